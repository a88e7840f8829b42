"""A call that opens the connection ends when it is cancelled, however long the opening takes."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken, RequestCancelled
from syncmcp.testing import script as s
from syncmcp.types import ListToolsResult
from tests.support.scripts import NEW, Scripted, opening
from tests.support.stage import PATIENCE, in_threads
from tests.transports.http_peer import Request, serving

SILENT = [s.expect("server/discover"), s.silence()]


class SlowServer:
    """An HTTP server that answers the first request of a client only when it is let go."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go = threading.Event()

    def __call__(self, request: Request) -> None:
        self.asked.set()
        assert self.go.wait(PATIENCE)


@pytest.mark.parametrize("way", ["blocking", "event", "future", "cancelled future"])
@pytest.mark.parametrize("wire", ["memory", "stdio", "http"])
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
    """Set once a thread waits for the opening that another one has begun."""
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
