"""Every exception: its base class, its facts, and its copies."""

from __future__ import annotations

import concurrent.futures
import copy
import pickle
import pickletools
import re
from typing import Any

import pytest

from syncmcp import errors
from syncmcp.errors import (
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    LimitExceeded,
    McpError,
    OutcomeUnknown,
    Refused,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    SessionLost,
    ToolError,
    TransportError,
    UsageError,
    fresh,
)
from syncmcp.types import CallToolResult

PARENTS = {
    name: parent
    for parent, names in {
        "Exception": "McpError",
        "McpError": """
            UsageError InterceptorFailed ClosedError TransportError LimitExceeded RequestTimeout
            RequestCancelled ProtocolError ServerError ToolError TooManyRounds SubscriptionLost
            Refused Denied
        """,
        "UsageError": "NotSupported InvalidArguments",
        "ClosedError": "ForkedError",
        "TransportError": "ConnectFailed ConnectionLost HttpError",
        "ConnectionLost": "OutcomeUnknown SessionLost",
        "HttpError": "AuthError",
        "AuthError": "LoginRequired DiscoveryFailed RegistrationFailed TokenRefused",
        "ProtocolError": "InvalidOutput UnsupportedSchema InvalidQuestion",
        "ServerError": """
            ParseError InvalidRequest MethodNotFound InvalidParams InternalError
            ResourceNotFound HeaderMismatch MissingCapability UnsupportedVersion
            UrlElicitationRequired
        """,
    }.items()
    for name in names.split()
}
CODES = dict(
    re.findall(
        r"(\S+) (\w+)",
        """
        -32700 ParseError   -32600 InvalidRequest   -32601 MethodNotFound   -32602 InvalidParams
        -32603 InternalError   -32002 ResourceNotFound   -32020 HeaderMismatch
        -32021 MissingCapability   -32022 UnsupportedVersion   -32042 UrlElicitationRequired
        """,
    )
)
BROKEN = CallToolResult.from_wire(
    {"content": [{"type": "text", "text": "disk full"}], "isError": True, "extra": 1}
)
FACTS: dict[str, Any] = {
    "server": "python server.py",
    "method": "tools/call",
    "delivery": "unknown",
    "exit_code": -9,
    "stderr_tail": "Traceback",
    "status": 503,
    "body": "busy",
    "data": {"supported": ["2025-11-25"]},
    "kind": "idle",
    "seconds": 1.5,
    "reason": "no longer wanted",
}


def one_of(name: str) -> McpError:
    """Return an error of this class with all possible facts."""
    arguments = {"ToolError": (BROKEN,), "Refused": (-1, "the message")}
    made: McpError = getattr(errors, name)(*arguments.get(name, ("the message",)))
    made.__dict__.update(FACTS)
    return made


EVERY = pytest.mark.parametrize("name", PARENTS)


@pytest.mark.pitfall("8")
def test_each_exception_stands_in_its_place_and_in_the_tree_that_is_printed() -> None:
    public = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    assert public == set(PARENTS)
    assert set(errors.__all__) - public == {"Delivery"}
    # Errors of the caller, the server, the protocol and the transport have no common class.
    families = (UsageError, TransportError, errors.ProtocolError, ServerError)
    for name, parent in PARENTS.items():
        cls = getattr(errors, name)
        assert cls.__bases__[0].__name__ == parent
        assert name in (errors.__doc__ or "")
        assert cls.__doc__
        assert sum(issubclass(cls, family) for family in families) <= 1
    assert issubclass(UsageError, ValueError)
    assert issubclass(RequestCancelled, concurrent.futures.CancelledError)
    for either in (TimeoutError, concurrent.futures.TimeoutError):  # two classes in Python 3.10
        assert issubclass(RequestTimeout, either)
    # Each class of a failed request has a `delivery`.
    for delivery, kinds in {
        "not_sent": (ClosedError, TransportError, ConnectFailed),
        "refused": (SessionLost, HttpError),
        "unknown": (
            *(ConnectionLost, OutcomeUnknown, LimitExceeded, RequestTimeout, RequestCancelled),
        ),
    }.items():
        assert {kind.delivery for kind in kinds} == {delivery}


@pytest.mark.requirement("RES-01")
@pytest.mark.parametrize(("number", "name"), CODES.items())
def test_each_code_of_the_specification_has_its_class(number: str, name: str) -> None:
    code = int(number)
    error = ServerError.from_wire(code, "no", [1], server="s")
    assert type(error) is getattr(errors, name)
    assert (error.code, error.message, error.data, error.server) == (code, "no", [1], "s")
    assert getattr(errors, name)("made by hand").code == code
    assert type(errors.MethodNotFound.from_wire(code, "no")) is type(error)


@pytest.mark.requirement("RPC-18")
@pytest.mark.parametrize("code", [0, -1, 1, 404, -32000, -32001, -32003, -32019, -32023, -32099])
def test_a_code_that_nobody_defined_stays_a_plain_server_error(code: int) -> None:
    error = ServerError.from_wire(code, "no")
    assert type(error) is ServerError
    assert error.code == code
    assert f"error {code}" in str(error)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (McpError(), ""),
        (McpError("gone", method="tools/call"), "tools/call: gone"),
        (McpError("gone", server="https://h/mcp"), "[https://h/mcp]: gone"),
        (McpError("gone", server="s", method="ping"), "ping [s]: gone"),
        (ClosedError("closed"), "closed (the request was not sent)"),
        (
            ConnectFailed("ended", server="s", exit_code=1, stderr_tail="ImportError"),
            "[s]: ended (exit code 1; stderr ended with: ImportError)",
        ),
        (ConnectionLost("ended", exit_code=0), "ended (exit code 0; the outcome is unknown)"),
        (OutcomeUnknown("ended"), "ended (the outcome is unknown)"),
        (
            HttpError("no answer", status=502, body="Bad Gateway"),
            "no answer (HTTP 502; body began with: Bad Gateway; the server refused the request)",
        ),
        (HttpError("no answer"), "no answer (the server refused the request)"),
        (RequestTimeout("late", delivery="not_sent"), "late (the request was not sent)"),
        (
            RequestCancelled("gone", reason="end", delivery="not_sent"),
            "gone (end; the request was not sent)",
        ),
        (ServerError.from_wire(-32601, "what?", method="a/b"), "a/b: what? (error -32601)"),
        (ToolError(BROKEN), "disk full"),
        (ToolError(CallToolResult.from_wire({"content": []})), "the tool reported an error"),
        (ToolError(BROKEN, tool="save", server="s"), "tool 'save' [s]: disk full"),
        (Refused(-1, "not by me"), "not by me"),
    ],
    ids=lambda value: None if isinstance(value, McpError) else (value or "nothing"),
)
@pytest.mark.pitfall("8")
def test_the_text_tells_where_what_and_how_far_it_came(error: McpError, text: str) -> None:
    assert str(error) == text


@EVERY
@pytest.mark.pitfall("32")
def test_every_exception_can_be_pickled_and_copied_and_keeps_its_facts(name: str) -> None:
    error = one_of(name)
    protocols = range(pickle.HIGHEST_PROTOCOL + 1)
    pickled = [pickle.loads(pickle.dumps(error, protocol)) for protocol in protocols]
    assert [copied.__dict__ == error.__dict__ for copied in pickled] == [True] * len(pickled)
    for copied in (copy.copy(error), copy.deepcopy(error), fresh(error), *pickled):
        assert copied is not error
        assert type(copied) is type(error)
        assert copied.args == error.args
        assert str(copied) == str(error)
    # A pickle must not refer to names that another version of Python lacks.
    made = pickletools.genops(pickle.dumps(error, 2))
    named = {str(arg) for opcode, arg, _ in made if opcode.name == "GLOBAL"}
    assert f"syncmcp.errors {name}" in named
    if name != "ToolError":  # its result is a model, which is pickled, too
        assert {each for each in named if not each.startswith("syncmcp.errors ")} == set()


def test_facts_are_kept_beside_the_message_and_a_fresh_copy_may_have_others() -> None:
    refused = Refused(-1, "not by me", {"why": "policy"})
    assert (refused.code, refused.message, refused.data) == (-1, "not by me", {"why": "policy"})
    assert Refused(-1, "no").data is None
    assert HttpError("no answer", status=502, server="s").message == "no answer"
    assert McpError().message == ""
    assert ToolError(BROKEN).result is BROKEN
    error = ConnectionLost("ended", server="s", exit_code=1)
    error.__cause__ = OSError("reset")
    with pytest.raises(ConnectionLost) as caught:
        raise fresh(error, method="tools/call", delivery="not_sent")
    copied = caught.value
    assert (copied.__cause__, error.__traceback__) == (error.__cause__, None)
    assert (copied.server, copied.exit_code) == ("s", 1)
    assert (copied.method, copied.delivery) == ("tools/call", "not_sent")
    assert (error.method, error.delivery) == (None, "unknown")
