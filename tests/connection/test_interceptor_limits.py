"""What holds while a hook of an interceptor takes its time, or calls the client itself."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, Message
from tests.support.intercepting import (
    MEMORY,
    Ask,
    Does,
    Gate,
    Seen,
    block,
    call_of,
    future,
    on_call,
    rotated_asks,
    throws,
)
from tests.support.stage import (
    PATIENCE,
    Clock,
    Stage,
    Wire,
    in_threads,
    rotated,
    rotated_with,
    tick,
)

ENDS: dict[str, type[syncmcp.McpError]] = {
    "timeout": syncmcp.RequestTimeout,
    "token": syncmcp.RequestCancelled,
    "close": syncmcp.ClosedError,
}


# A client that is closed waits for what has come.
PAUSES = [("incoming", "timeout"), ("incoming", "token"), *(("outgoing", end) for end in ENDS)]


@rotated_with("hook, end, ask", [(*pause, ask) for pause in PAUSES for ask in (block, future)])
def test_a_pause_ends_with_the_call(
    wire: Wire, hook: str, end: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, clock = Stage(), Clock(monkeypatch, "syncmcp._concurrency.timing")
    token, inside, ended = syncmcp.CancelToken(), threading.Event(), threading.Event()

    def hold(message: Message) -> None:
        if end == "timeout":
            clock.advance(600 - 0.05)
            tick()  # so that it knows how little is left
        inside.set()
        try:
            message.pause(6 * PATIENCE)
        finally:
            ended.set()

    def finish() -> None:
        assert inside.wait(PATIENCE)
        if end == "token":
            token.cancel("enough")
        elif end == "close":
            client.close()

    with wire.connect(stage.server, interceptors=[on_call(hook, hold)]) as client:
        call = call_of(client, ask)
        options: dict[str, Any] = {"timeout": 600, "cancel": token}
        ends = in_threads(lambda: call("echo", {"text": "x"}, **options), finish)
        assert ended.wait(PATIENCE)
    error: Any = ends[0]
    assert error.delivery == ("not_sent" if hook == "outgoing" else "unknown")
    if end == "token":
        assert error.reason == "enough"
    assert type(error) is ENDS[end]
    assert stage.stats.requests["tools/call"] == (0 if hook == "outgoing" else 1)


def test_a_pause_is_a_number_of_seconds_and_comes_to_an_end() -> None:
    pauses: list[Any] = [-1, "long"]

    def hold(message: Message) -> None:
        message.pause(pauses.pop() if pauses else 0.001)

    for hook in ("outgoing", "incoming"):
        with MEMORY.connect(Stage().server, interceptors=[on_call(hook, hold)]) as client:
            while pauses:
                with pytest.raises(syncmcp.UsageError, match="seconds"):
                    block(client, "x")
            assert block(client, "x").text == "x"
        pauses[:] = [-1]


@rotated_with(
    "hook, end", [(hook, end) for hook in ("outgoing", "incoming") for end in (*ENDS, "cancel")]
)
def test_a_future_whose_call_has_ended_does_not_wait_for_a_hook(
    wire: Wire, hook: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, token, stage = Gate(), syncmcp.CancelToken(), Stage()
    clock = Clock(monkeypatch, "syncmcp._concurrency.timing")
    with wire.connect(stage.server, interceptors=[on_call(hook, gate)]) as client:
        call = client.call_tool.future("echo", {"text": "x"}, timeout=600, cancel=token)
        gate.reached()
        if end == "cancel":
            assert call.cancel()
        elif end == "token":
            token.cancel("enough")
        elif end == "close":
            client.close()
        else:
            clock.advance(600)
            tick()
        clock.advance(1)
        tick()
        if end == "cancel":
            with pytest.raises(syncmcp.RequestCancelled):
                call.result(PATIENCE)
            gate.open.set()
        elif hook == "incoming":  # the response had arrived in time
            assert not call.done()
            gate.open.set()
            assert call.result(PATIENCE).text == "x"
        else:
            error = call.exception(PATIENCE)
            assert type(error) is ENDS[end]
            assert getattr(error, "delivery", None) == "not_sent"
            gate.open.set()
    assert stage.stats.requests["tools/call"] == (0 if hook == "outgoing" else 1)


@rotated
def test_a_blocking_call_whose_hook_was_late_ends_by_its_own_limit_and_sends_nothing(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, clock = Stage(), Clock(monkeypatch, "syncmcp._concurrency.timing")

    def dawdle(message: Message) -> None:
        clock.advance(600)
        tick()

    with wire.connect(stage.server, interceptors=[on_call("outgoing", dawdle)]) as client:
        with pytest.raises(syncmcp.RequestTimeout) as caught:
            client.call_tool("echo", {"text": "x"}, timeout=600)
        assert caught.value.delivery == "not_sent"
    assert stage.stats.requests["tools/call"] == 0


@rotated
def test_calls_of_32_threads_each_have_their_own_way(wire: Wire) -> None:
    seen = Seen()

    def stamp(message: Message) -> Message:
        text = message.params["arguments"]["text"]
        return message.with_params({**message.params, "arguments": {"text": f"{text}!"}})

    chain = [seen, on_call("outgoing", stamp)]
    with wire.connect(Stage().server, interceptors=chain) as client:
        jobs = [
            lambda n=n: (block(client, f"b{n}").text, future(client, f"f{n}").text)
            for n in range(32)
        ]
        assert in_threads(*jobs) == [(f"b{n}!", f"f{n}!") for n in range(32)]
    calls = seen.of("tools/call")
    for hook in ("outgoing", "incoming", "ended"):
        assert len({message.id for each, message in calls if each == hook}) == 64
    assert len(calls) == 3 * 64


@rotated_asks
def test_a_result_is_freed_with_its_call_and_not_by_the_garbage_collector(
    wire: Wire, ask: Ask
) -> None:
    freed = threading.Event()
    with wire.connect(Stage().server, interceptors=[Does("", "", throws(ValueError()))]) as client:
        gc.disable()
        try:
            weakref.finalize(ask(client, "x"), freed.set)
            assert freed.wait(PATIENCE)
        finally:
            gc.enable()


@rotated_with(
    "hook, ask",
    [(hook, ask) for hook in ("outgoing", "incoming", "ended") for ask in (block, future)],
)
def test_an_interceptor_may_call_the_client_and_does_not_see_what_it_does(
    wire: Wire, ask: Ask, hook: str
) -> None:
    seen, stage = Seen(), Stage()
    inside: list[str] = []
    found: list[Client] = []

    def audit(message: Message) -> None:
        inside.append(ask(found[0], "audit").text)

    chain = [on_call(hook, audit), seen]
    # One place in flight: what a hook sends does not wait for the call that waits for the hook.
    with wire.connect(stage.server, interceptors=chain, max_in_flight=1) as client:
        found.append(client)
        assert block(client, "x").text == "x"
        assert client.call_tool.future("echo", {"text": "y"}).result(PATIENCE).text == "y"
    assert inside == ["audit", "audit"]
    assert stage.stats.requests["tools/call"] == 4
    assert seen.hooks("tools/call").count(("outgoing", "request")) == 4
