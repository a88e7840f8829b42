"""Opening over HTTP: what real servers answer to a probe that they do not know."""

from __future__ import annotations

import json
from typing import Any

import pytest

import syncmcp
from syncmcp import AuthError, HttpError, ServerError
from syncmcp.testing import ScriptedPeer
from syncmcp.testing import script as s
from tests.support.scripts import EVERYTHING, NEW, OLD

STARTED = {"protocolVersion": OLD, "capabilities": EVERYTHING, "serverInfo": {"name": "http"}}
INITIALIZE = [s.expect("initialize"), s.reply(STARTED)]
PING = [s.expect("ping"), s.reply({})]


def answer(status: int, body: bytes = b"", kind: str = "application/json") -> list[s.Step]:
    headers = {"Content-Type": kind, "Content-Length": str(len(body))}
    return [
        s.expect("server/discover"),
        s.head(status, headers, chunked=False),
        s.raw(body),
        s.end(),
    ]


def error(code: int, message: str = "no", data: Any = None, id: object = 1) -> bytes:
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": body}).encode()


# How an error of JSON-RPC is judged is in tests/protocol/test_negotiate.py.
OLD_SERVERS: dict[str, list[s.Step]] = {
    "400, an error of the server's own": answer(400, error(-32000, "Server not initialized")),
    "400, an error without an id": answer(400, error(-32600, "Missing session", id=None)),
    "400, empty": answer(400),
    "400, a page": answer(400, b"<html>Bad Request</html>", "text/html"),
    "404, plain text": answer(404, b"Invalid session ID", "text/plain"),
    "404, method not found": answer(404, error(-32601, "Method not found")),
    "405": answer(405),
    "406": answer(406, b"Not Acceptable", "text/plain"),
    "200, method not found": answer(200, error(-32601, "Method not found")),
}


@pytest.mark.parametrize("server", OLD_SERVERS)
@pytest.mark.requirement("VER-14", "VER-03")
@pytest.mark.pitfall("18")
def test_a_server_that_refuses_the_probe_over_http_is_initialized(server: str) -> None:
    with (
        ScriptedPeer([*OLD_SERVERS[server], *INITIALIZE, *PING]) as peer,
        syncmcp.connect(peer.url) as client,
    ):
        client.ping()
        assert client.server.revision == OLD
        posted = [method for method in peer.transcript.methods() if method != "GET"]
        assert posted == ["server/discover", "initialize", "notifications/initialized", "ping"]


@pytest.mark.requirement("VER-12", "VER-15")
def test_a_400_that_names_a_stateless_revision_leads_to_no_handshake() -> None:
    discovered = {"supportedVersions": [NEW], "capabilities": {}, "resultType": "complete"}
    script = [
        *answer(400, error(-32022, "no", {"supported": [NEW], "requested": "x"})),
        s.expect("server/discover"),
        s.reply(discovered),
    ]
    with ScriptedPeer(script) as peer, syncmcp.connect(peer.url) as client:
        assert client.server.revision == NEW
        assert peer.transcript.methods() == ["server/discover", "server/discover"]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, None, AuthError),
        (403, None, AuthError),
        (429, None, HttpError),
        (503, None, HttpError),
        (400, -32020, ServerError),  # only a modern server writes this
        (400, -32021, ServerError),
    ],
)
@pytest.mark.requirement("VER-15")
@pytest.mark.pitfall("8")
def test_an_outage_says_nothing_about_the_era(
    status: int, code: int | None, kind: type[syncmcp.McpError]
) -> None:
    body = b"not now" if code is None else error(code, "not now")
    with ScriptedPeer(answer(status, body)) as peer:
        with pytest.raises(kind, match="not now") as caught:
            syncmcp.connect(peer.url, retry=None)
        assert getattr(caught.value, "status", None) == status
        assert getattr(caught.value, "code", None) == code
        assert peer.transcript.methods() == ["server/discover"]
