"""Opening over HTTP, and opening by calls that are cancelled."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from typing import Any

import pytest

import syncmcp
from syncmcp import AuthError, CancelToken, HttpError, RequestCancelled, ServerError
from syncmcp.testing import ScriptedPeer
from syncmcp.testing import script as s
from syncmcp.types import ListToolsResult
from tests.support.scripts import EVERYTHING, NEW, OLD, Scripted, opening
from tests.support.stage import PATIENCE, in_threads
from tests.transports.http_peer import Request, serving

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


def error(code: int, message: str = "no", id: object = 1, **data: Any) -> bytes:
    body = {"code": code, "message": message, **data}
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": body}).encode()


# For the handling of errors and statuses, see tests/protocol/test_negotiate.py.
OLD_SERVERS: dict[str, list[s.Step]] = {
    "400, an error without an id": answer(400, error(-32600, "Missing session", id=None)),
    "404, plain text": answer(404, b"Invalid session ID", "text/plain"),
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
        *answer(400, error(-32022, data={"supported": [NEW], "requested": "x"})),
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
        (503, None, HttpError),
        (400, -32020, ServerError),  # a code of modern servers only
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


SILENT = [s.expect("server/discover"), s.silence()]


class SlowServer:
    """An HTTP server that holds the first request until a test sets `go`."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def __call__(self, request: Request) -> None:
        self.asked.set()
        assert self.go.wait(PATIENCE)


@pytest.mark.parametrize(
    ("wire", "way"),
    [
        *((wire, way) for wire in ("memory", "http") for way in ("blocking", "cancelled future")),
        *(("stdio", "event"), ("stdio", "future")),
    ],
)
def test_the_call_that_opens_ends_at_its_cancel(wire: str, way: str) -> None:
    token, event = CancelToken(), threading.Event()
    with Scripted(SILENT) as peer, serving(slow := SlowServer()) as http:
        target: Any = http.url if wire == "http" else peer.on(wire)

        def asked() -> None:
            assert slow.asked.wait(PATIENCE) if wire == "http" else peer.methods(1)

        with closing(syncmcp.Client(target, lazy=True, open_timeout=6 * PATIENCE)) as client:

            def call() -> object:
                if way in ("blocking", "event"):
                    return client.call_tool("buy", cancel=token if way == "blocking" else event)
                future = client.call_tool.future("buy", cancel=token)
                if way == "cancelled future":
                    asked()
                    assert future.cancel()
                return future.result(PATIENCE)

            def cancel() -> None:
                asked()
                event.set()
                if way != "cancelled future":
                    token.cancel("not needed any more")

            outcome = in_threads(call, cancel, patience=PATIENCE)[0]
            slow.go.set()
        assert isinstance(outcome, RequestCancelled)
        assert outcome.delivery == "not_sent"
        assert outcome.method == "tools/call"
        if way in ("blocking", "future"):
            assert outcome.reason == "not needed any more"


def test_a_call_that_is_cancelled_before_it_opens_starts_nothing() -> None:
    token = CancelToken()
    token.cancel()
    with Scripted([]) as peer, closing(syncmcp.Client(peer, lazy=True)) as client:
        with pytest.raises(RequestCancelled) as caught:
            client.call_tool("buy", cancel=token)
        assert caught.value.delivery == "not_sent"
        assert caught.value.method == "tools/call"
        assert not peer.transcript.methods()


def somebody_waits(client: syncmcp.Client) -> threading.Event:
    """Return an event that is set once a thread waits for another thread's opening."""
    waiting, changed = threading.Event(), client._core._changed
    wait = changed.wait

    def watched(timeout: float | None = None) -> bool:
        waiting.set()
        return wait(timeout)

    changed.wait = watched  # type: ignore[method-assign]
    return waiting


def test_a_call_that_waits_opens_anew_when_the_one_that_opened_is_cancelled() -> None:
    token = CancelToken()
    listed = s.reply({"resultType": "complete", "tools": []})
    answered = [*opening(NEW), s.expect("tools/list"), listed]
    with Scripted(SILENT, answered) as peer, closing(syncmcp.Client(peer, lazy=True)) as client:
        waiting = somebody_waits(client)

        def second() -> object:
            peer.methods(1)
            return client.list_tools()

        def cancel() -> None:
            assert waiting.wait(PATIENCE)
            token.cancel()

        first, then, _ = in_threads(
            lambda: client.call_tool("buy", cancel=token), second, cancel, patience=PATIENCE
        )
        assert isinstance(first, RequestCancelled)
        assert isinstance(then, ListToolsResult)


@pytest.mark.parametrize("early", [True, False])
def test_the_cancel_of_one_that_waits_ends_no_opening(early: bool) -> None:
    token = CancelToken()
    with (
        serving(slow := SlowServer()) as http,
        closing(syncmcp.Client(http.url, lazy=True)) as client,
    ):
        waiting = somebody_waits(client)

        def second() -> object:
            assert slow.asked.wait(PATIENCE)
            if early:
                token.cancel()
            try:
                return client.ping(cancel=token)
            finally:
                client.close()

        def cancel() -> None:
            if not early:
                assert waiting.wait(PATIENCE)
                token.cancel()

        first, then, _ = in_threads(client.open, second, cancel, patience=PATIENCE)
        slow.go.set()
        assert isinstance(then, RequestCancelled)
        assert isinstance(first, syncmcp.ClosedError)
