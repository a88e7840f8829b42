"""Code of the program that takes part in authentication: functions that fail, own transports.

A failure of such a function is not reported as a failure of the network. A transport other than
HTTP authenticates the client in its own way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import requests

import syncmcp
from syncmcp import AuthError, UsageError
from syncmcp.auth import LoopbackReceiver, OAuth, PasteReceiver, Receiver
from syncmcp.testing import AuthorizationServer, Server, serve_http
from syncmcp.transports.base import ServerSession

SERVER = Server("shop")


def hooked(function: Any) -> requests.Session:
    session = requests.Session()
    session.hooks["response"].append(function)
    return session


GIVEN: dict[str, Callable[[Any], dict[str, Any]]] = {
    "the headers function": lambda function: {"headers": function},
    "auth": lambda function: {"auth": function},
    "a response hook": lambda function: {"session": hooked(function)},
    "the session": lambda function: {
        "session": type("Own", (requests.Session,), {"send": function})()
    },
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_function_that_fails_in_an_exchange_is_named_and_called_once(name: str) -> None:
    failing = Mock(side_effect=RuntimeError("k3y-4711"))
    with (
        serve_http(SERVER) as http,
        pytest.raises(UsageError, match=rf"{name} failed: RuntimeError$") as failed,
    ):
        syncmcp.connect(syncmcp.Http(http.url, **GIVEN[name](failing)))
    assert (failing.call_count, failed.value.attempts) == (1, 1)
    assert str(failed.value.__cause__) == "k3y-4711"


def test_an_auth_that_returns_no_request_is_told_so() -> None:
    nothing: Any = lambda request: None  # noqa: E731
    with (
        serve_http(SERVER) as http,
        pytest.raises(UsageError, match="auth must return the request, not None"),
    ):
        syncmcp.connect(syncmcp.Http(http.url, auth=nothing))


def test_an_allow_that_fails_is_named_and_called_once() -> None:
    allow = Mock(side_effect=ConnectionError("no"))  # raised by the function, not by the network
    with (
        AuthorizationServer() as authorization,
        serve_http(SERVER, authorization_server=authorization) as http,
        pytest.raises(UsageError, match=r"allow failed: ConnectionError$"),
    ):
        syncmcp.connect(syncmcp.Http(http.url, auth=OAuth(allow=allow)))
    assert allow.call_count == 1


def asked(prompt: str) -> str:
    pytest.fail("asked")


RECEIVERS: dict[str, Callable[[Any], Receiver]] = {
    "a listener": lambda show: LoopbackReceiver(open_browser=False, show=show),
    "a paste": lambda show: PasteReceiver(show, asked),
}


@pytest.mark.parametrize(
    ("make", "agreed"),
    [*((make, True) for make in RECEIVERS.values()), (RECEIVERS["a paste"], False)],
    ids=[*RECEIVERS, "an agreement"],
)
def test_a_show_that_fails_ends_the_sign_in_at_once(
    make: Callable[[Any], Receiver], agreed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp.auth.loopback._terminal_input", lambda: None)
    show = Mock(side_effect=OSError("no"))
    with (
        AuthorizationServer() as authorization,
        serve_http(SERVER, authorization_server=authorization) as http,
    ):
        allow = authorization.issuer if agreed else None
        login = OAuth(allow=allow, receiver=make(show), login_timeout=20.0)
        with pytest.raises(UsageError, match=r"show failed: OSError$"):
            syncmcp.connect(syncmcp.Http(http.url, auth=login))
    assert show.call_count == 1


# -- a transport of the program


class Vault:
    """A transport of the program, which authenticates the client in its own way.

    Attributes:
        frames: The frames that the client sent.
    """

    name = "vault"

    def __init__(self, known: bool = True) -> None:
        self.frames: list[bytes] = []
        self._known = known
        self._server = Server("vault")
        self._server.add_tool(lambda: "gold", name="open", description="Opens.")

    def connect(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None]
    ) -> ServerSession:
        if not self._known:
            raise AuthError("the vault does not know this client")
        session = self._server.connect(deliver, on_close)

        def receive(frame: bytes) -> None:
            self.frames.append(frame)
            session.receive(frame)

        return cast("ServerSession", SimpleNamespace(close=session.close, receive=receive))


@pytest.mark.requirement("ASC-03", "RPC-28")
def test_a_transport_of_the_caller_has_its_own_way_and_gets_metadata_alone() -> None:
    vault = Vault()
    with syncmcp.connect(vault, mode="2026-07-28") as client:
        client.list_tools()
        assert client.call_tool("open", meta={"acme.example/key": "small"}).text == "gold"
    messages = [json.loads(frame) for frame in vault.frames]
    methods = [message["method"] for message in messages]
    assert methods == ["server/discover", "tools/list", "tools/call"]
    for message in messages:
        assert set(message) <= {"jsonrpc", "id", "method", "params"}
        assert message["jsonrpc"] == "2.0"
        meta = message["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "syncmcp"
    assert messages[-1]["params"]["_meta"]["acme.example/key"] == "small"
    assert messages[-1]["params"]["name"] == "open"
    assert b"uthorization" not in b"".join(vault.frames)


@pytest.mark.requirement("ASC-03")
def test_what_such_a_transport_refuses_is_the_error_of_the_caller() -> None:
    vault = Vault(known=False)
    with pytest.raises(AuthError, match="does not know this client"):
        syncmcp.connect(vault)
    assert vault.frames == []
    # Only HTTP supports signing in.
    with pytest.raises(TypeError):
        syncmcp.Stdio(sys.executable, "server.py", auth=OAuth())  # type: ignore[call-arg]
