"""What is not HTTP has its own way to say who the client is, and the library leaves it to that."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from collections.abc import Callable

import pytest

import syncmcp
from syncmcp.auth import OAuth
from syncmcp.errors import AuthError
from syncmcp.testing import Server
from syncmcp.transports.base import ServerSession

KEY = b"a key that both sides have"


class Sealed:
    """A caller's own transport: each frame is sealed with a key, and the other side looks at that.

    Attributes:
        frames: What was sealed.
    """

    name = "sealed"

    def __init__(self, key: bytes) -> None:
        self.frames: list[bytes] = []
        self._key = key
        self._server = Server("vault")
        self._server.add_tool(lambda: "gold", name="open", description="Opens.")

    def connect(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None]
    ) -> ServerSession:
        self._let_in(b"hello", self._seal(b"hello"))
        session, transport = self._server.connect(deliver, on_close), self

        class Session:
            def receive(self, frame: bytes) -> None:
                transport.frames.append(frame)
                transport._let_in(frame, transport._seal(frame))
                session.receive(frame)

            def close(self) -> None:
                session.close()

        return Session()

    def _seal(self, frame: bytes) -> bytes:
        return hmac.digest(self._key, frame, "sha256")

    def _let_in(self, frame: bytes, seal: bytes) -> None:
        if not hmac.compare_digest(seal, hmac.digest(KEY, frame, hashlib.sha256)):
            raise AuthError("the vault does not know this seal")


@pytest.mark.requirement("ASC-03")
def test_a_transport_of_the_caller_authenticates_in_its_own_way_and_nothing_is_added() -> None:
    sealed = Sealed(KEY)
    with syncmcp.connect(sealed) as client:
        assert client.call_tool("open").text == "gold"
    messages = [json.loads(frame) for frame in sealed.frames]
    assert "tools/call" in [message["method"] for message in messages]
    for message in messages:
        assert set(message) <= {"jsonrpc", "id", "method", "params"}
    assert b"uthorization" not in b"".join(sealed.frames)


@pytest.mark.requirement("RPC-28")
def test_a_transport_of_the_caller_gets_the_metadata_of_each_request() -> None:
    sealed = Sealed(KEY)
    with syncmcp.connect(sealed, mode="2026-07-28") as client:
        client.list_tools()
        client.call_tool("open", meta={"acme.example/key": "small"})
    messages = [json.loads(frame) for frame in sealed.frames]
    assert [message["method"] for message in messages] == [
        "server/discover",
        "tools/list",
        "tools/call",
    ]
    for message in messages:
        assert message["jsonrpc"] == "2.0"
        meta = message["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "syncmcp"
    assert messages[-1]["params"]["_meta"]["acme.example/key"] == "small"
    assert messages[-1]["params"]["name"] == "open"


@pytest.mark.requirement("ASC-03")
def test_what_such_a_transport_refuses_is_the_error_of_the_caller() -> None:
    sealed = Sealed(b"another key")
    with pytest.raises(AuthError, match="does not know this seal"):
        syncmcp.connect(sealed)
    assert sealed.frames == []


def test_signing_in_over_http_is_offered_for_http_alone() -> None:
    with pytest.raises(TypeError):
        syncmcp.Stdio(sys.executable, "server.py", auth=OAuth())  # type: ignore[call-arg]
