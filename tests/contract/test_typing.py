"""`help()` of the operations and errors is complete; type checkers read `typing_snippets.py`."""

from __future__ import annotations

import inspect
import pydoc
import re
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import syncmcp
from syncmcp import CallOptions, Client, ClientGroup, McpError
from syncmcp._client.operation import Operation
from syncmcp._client.requests import Request, Resume
from syncmcp.group import Routed
from syncmcp.tasks import StartTask
from syncmcp.testing import Server
from tests.contract.public_api import public_classes


@cache
def shown_by_help(thing: Any) -> str:
    return pydoc.plain(pydoc.render_doc(thing))


OPERATIONS = [name for name in dir(Client) if isinstance(getattr(Client, name), Operation)]


@pytest.mark.parametrize("name", OPERATIONS)
def test_help_shows_signature_and_docstring_of_each_operation(name: str) -> None:
    operation = getattr(Client(Server("x")), name)
    shown = shown_by_help(operation)
    doc = inspect.getdoc(operation) or ""
    first = doc.splitlines()[0]
    assert [word for word in (first, f"{name}(", "**options") if word not in shown] == []
    assert first in shown_by_help(Client)
    assert operation.__name__ == name
    assert name in repr(operation)
    assert "self" not in inspect.signature(operation).parameters
    if hasattr(ClientGroup, name):
        assert re.search(rf"\b{name}\(\W*self,", shown_by_help(ClientGroup))
    if isinstance(found := getattr(ClientGroup, name, None), Routed):
        assert "client." not in re.sub(r"client\.$", "", found.__doc__ or "", flags=re.MULTILINE)
        assert f"the key in `{found.first}`" in (found.__doc__ or "")
        assert "syncmcp.connect(" not in (found.__doc__ or "")  # examples of a client are left out
    if (of_batch := getattr(syncmcp.Batch, name, None)) is not None:
        assert f"Returns a `RequestFuture` of what `Client.{name}` returns" in of_batch.__doc__
        assert not re.search("^(>>>|Returns:)", of_batch.__doc__, re.MULTILINE)
    named = all(f"\n    {word}: " in doc for word in CallOptions.__annotations__)
    assert all(f"`{name}.{form}(...)`" in doc for form in ("future", "stream"))
    assert named or "; see `" in first  # or it refers to an operation that documents the options


@pytest.mark.parametrize(
    ("name", "call", "start"),
    [
        ("start_task", StartTask.__call__, "name: str, arguments: Mapping[str, Any] | "),
        ("request", Request.__call__, "method: str, params: Mapping[str, Any] | None = "),
        ("resume", Resume.__call__, "pending: InputRequired[R], answers: Mapping[str, A"),
    ],
)
def test_help_of_the_class_describes_what_is_called(
    name: str, call: Callable[..., Any], start: str
) -> None:
    shown = shown_by_help(getattr(Client, name))
    told = inspect.getdoc(call) or ""
    assert f"``{name}({start}" in shown
    assert "self" not in shown
    assert "'" not in shown.partition("``")[2].partition("``\n")[0]
    plain = re.sub(" +$", "", shown, flags=re.MULTILINE)  # Python 3.10 indents empty lines, too
    assert textwrap.indent(told.partition("Args:")[2].rstrip(), "    ") in plain


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(
    ("form", "made"), [("future", "RequestFuture"), ("stream", "ResultStream")]
)
def test_help_of_a_future_and_of_a_stream_says_what_they_take_and_return(
    form: str, made: str, name: str
) -> None:
    owners: list[Any] = [Client(Server("x")), Client]
    if isinstance(getattr(ClientGroup, name, None), Routed):
        owners += [ClientGroup({}), ClientGroup]
    for owner in owners:
        operation = getattr(owner, name)
        method = getattr(operation, form)
        shown = shown_by_help(method)
        assert inspect.signature(method).parameters == inspect.signature(operation).parameters
        assert f"-> '{made}[{inspect.signature(operation).return_annotation}]'" in shown
        words = ("Returns:", "Raises:", "timeout", "cancel", "thread", "max_in_flight")
        assert [word for word in (f"`help(client.{name})`", *words) if word not in shown] == []


def test_an_operation_and_its_forms_can_be_called_through_the_class() -> None:
    server = Server("x")
    server.add_tool(lambda: "y", name="x")
    with syncmcp.connect(server) as client, ClientGroup({"x": server}) as group:
        pairs: list[tuple[Any, Any]] = [(Client, client), (ClientGroup, group)]
        for cls, owner in pairs:
            operation = cls.call_tool
            assert operation(owner, "x").text == "y"
            assert operation.future(owner, "x").result(10).text == "y"
            assert [item.text for item in operation.stream(owner, "x")] == ["y"]


@pytest.mark.parametrize("error", [cls for cls in public_classes() if issubclass(cls, McpError)])
def test_help_of_an_error_describes_each_attribute(error: type[McpError]) -> None:
    told = re.findall(r"^    (\w+): ", inspect.getdoc(error) or "", re.MULTILINE)
    names = {name for base in error.__mro__ for name in inspect.get_annotations(base)}
    assert sorted(told) == sorted(name for name in names if not name.startswith("_"))


def test_connect_has_the_signature_of_a_client_that_is_opened_at_once() -> None:
    theirs = inspect.signature(Client).parameters
    ours = inspect.signature(syncmcp.connect)
    assert [*ours.parameters, "lazy"] == sorted(theirs, key="lazy".__eq__)
    assert ours.return_annotation == "Client"
    assert theirs["timeout"].default == 300.0
    assert "open" in (syncmcp.connect.__doc__ or "")
