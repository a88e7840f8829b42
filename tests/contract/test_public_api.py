"""The public names are those of the snapshot, are documented, and have a useful repr."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any, get_origin

import syncmcp
from syncmcp import AllowAll, AutoApprove, Client, RateLimit
from syncmcp.approval import Decision
from syncmcp.auth import Deadline
from syncmcp.completion import Completer
from syncmcp.llm import AnthropicFormat
from syncmcp.testing import (
    AuthorizationServer,
    FaultProxy,
    ScriptedPeer,
    Server,
    demo_server,
    serve_http,
)
from syncmcp.ui.browser import Browser
from syncmcp.ui.terminal import AskOnTerminal
from tests.contract.public_api import MODULES, SNAPSHOT, describe, public_classes


def test_names_and_signatures_are_those_of_the_snapshot() -> None:
    # After an intended change: run `make api`, and add an entry to CHANGELOG.md.
    assert describe().splitlines() == SNAPSHOT.read_text(encoding="utf-8").splitlines()


def test_modules_are_attributes_of_the_package_without_another_import() -> None:
    parts = sorted({name.split(".")[1] for name in MODULES if "." in name} | {"executors"})
    code = f"import syncmcp\nfor name in {parts}: getattr(syncmcp, name)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_class_function_and_method_is_documented() -> None:
    assert {name: bare for name in MODULES if (bare := undocumented(name))} == {}


def undocumented(name: str) -> list[str]:
    module = importlib.import_module(name)
    values = {public: getattr(module, public) for public in module.__all__}
    for owner, value in [*values.items()]:
        if inspect.isclass(value) and value.__module__.startswith("syncmcp"):
            values |= {
                f"{owner}.{member}": getattr(value, member)
                for member, kept in vars(value).items()
                if not member.startswith("_")
                and (inspect.isroutine(kept) or isinstance(kept, property))
            }
    return [
        public
        for public, value in values.items()
        # On Python 3.10, `isclass` is true for an alias of a generic type.
        if get_origin(value) is None
        and (inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, property))
        and not inspect.getdoc(value)
    ]


def answer(request: Any, context: Any) -> Any:
    """Stand in for a handler, which is never called."""


def test_public_classes_have_a_repr_of_their_own() -> None:
    classes = [cls for cls in public_classes() if not getattr(cls, "_is_protocol", False)]
    assert [
        cls
        for cls in classes
        if not {"__repr__"} & {*chain.from_iterable(map(vars, cls.__mro__[:-1]))}
    ] == []


def objects() -> Iterator[object]:
    """Yield objects that a program makes or gets from the library."""
    client, server = Client(Server("x")), Server("x")
    yield from (client.request, client.resume, client.start_task, client.batch(), server)
    yield from (server.stats, syncmcp.ToolLoop(answer, client), Deadline(None), Deadline(3))
    yield from (syncmcp.Handlers(), syncmcp.Handlers(elicitation=answer), syncmcp.Sampling(answer))
    yield from (AllowAll(), AutoApprove(server="x", per=9, calls=3), syncmcp.Approval(AllowAll()))
    yield from (syncmcp.Rules([syncmcp.Rule(decision=Decision.ASK)]), RateLimit(per=60, calls=1))
    yield from (AnthropicFormat(), Completer(client, "p"), AskOnTerminal(), Browser())
    yield from (ScriptedPeer([]), ScriptedPeer([]).transcript)
    with FaultProxy("http://127.0.0.1:1") as proxy:
        yield proxy
    with AuthorizationServer() as issuer, serve_http(server) as http:
        yield from (issuer, http, http.endpoint, http.sse_endpoint)
    with syncmcp.connect(demo_server()) as open_client:
        yield open_client.on_tools_changed(print)


def test_objects_are_shown_on_one_line_and_by_more_than_their_class() -> None:
    shown = [repr(each) for each in objects()]
    assert [each for each in shown if re.search(r"\n| object at 0x", each)] == []
    assert re.search(r"<AuthorizationServer http://127.0.0.1:\d+>", " ".join(shown))
    assert re.search(r"<HttpServer of <Server 'x'> at http://127.0.0.1:\d+/mcp>", " ".join(shown))
    assert {"<Listener running>", "<Handlers of form>", "<Deadline without a limit>"} <= {*shown}
