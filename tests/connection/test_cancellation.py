"""Cancellation: tokens, notifications to the server, and simultaneous answers."""

from __future__ import annotations

import concurrent.futures
import gc
import signal
import threading
import weakref
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken
from syncmcp._concurrency.cancel import as_token
from syncmcp._concurrency.timing import reaper, timer
from syncmcp.testing import ScriptedPeer, ToolContext
from syncmcp.testing import script as s
from tests.support.shops import known
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    Stage,
    Wire,
    every_wire,
    every_wire_in_turn,
    in_threads,
    interrupted,
    nervous,
    rotated,
)


@pytest.mark.requirement("M-02")
def test_a_token_is_cancelled_once_and_tells_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    token = CancelToken()
    heard: list[str] = []

    def fail() -> None:
        raise RuntimeError("broken")

    assert not token.cancelled
    token.raise_if_cancelled()
    token.on_cancel(fail)
    token.on_cancel(lambda: heard.append("before"))
    token.on_cancel(lambda: heard.append("taken away"))()
    assert token.cancel("first")
    assert not token.cancel("second")
    with pytest.raises(syncmcp.RequestCancelled) as caught:
        token.raise_if_cancelled()
    assert token.cancelled
    assert token.reason == caught.value.reason == "first"
    assert caught.value.delivery == "not_sent"
    token.on_cancel(lambda: heard.append("after"))
    assert heard == ["before", "after"]
    assert "a callback of a cancel token failed" in caplog.text


@pytest.mark.requirement("M-02")
def test_a_linked_token_is_cancelled_with_any_of_its_links_and_alone() -> None:
    first, second = CancelToken(), CancelToken()
    linked, alone, grandchild = CancelToken(first, second), first.child(), first.child().child()
    timed, own = CancelToken(CancelToken.after(0.02, "time is up")), CancelToken.after(0.02)
    threads: SimpleQueue[str] = SimpleQueue()
    own.on_cancel(lambda: threads.put(threading.current_thread().name))
    gc.collect()  # removes links without other references
    second.cancel("second has it")
    alone.cancel()
    assert not first.cancelled
    first.cancel("too late for both")
    assert linked.cancelled
    assert linked.reason == "second has it"
    assert first.child().reason == grandchild.reason == "too late for both"
    assert threads.get(timeout=PATIENCE).startswith("syncmcp-cancel")  # not on the timer's thread
    assert timed.wait(PATIENCE)
    assert (timed.reason, own.reason) == ("time is up", "0.02 s have passed")


def test_thousands_of_children_leave_nothing_with_their_parent() -> None:
    parent = CancelToken()
    for _ in range(10_000):
        parent.child()
    assert len(parent._followers) < 100
    kept = [parent.child() for _ in range(1000)]
    parent.cancel("all of you")
    assert {token.reason for token in kept} == {"all of you"}


def test_a_timed_token_that_nobody_holds_is_collected_and_its_clock_put_away() -> None:
    before = len(timer._heap)
    gone = weakref.ref(CancelToken.after(3600.0))
    for _ in range(1000):
        CancelToken.after(3600.0)
    gc.collect()
    assert gone() is None
    done = threading.Event()
    reaper.put(done.set)
    assert done.wait(PATIENCE)
    assert len(timer._heap) < before + 200


@pytest.mark.requirement("M-02")
def test_a_token_follows_a_plain_event() -> None:
    event = threading.Event()
    token = CancelToken(event)
    assert not token.cancelled
    event.set()
    assert token.wait(PATIENCE)
    assert CancelToken(event).wait(PATIENCE)
    told: list[str] = []
    as_token(event).on_cancel(lambda: told.append("at once"))
    assert told == ["at once"]
    idle: Any = as_token(threading.Event())
    for take_away in [idle.on_cancel(lambda: None) for _ in range(2)]:
        take_away()
    known(lambda: not idle._polling)  # the event is no longer polled


def test_many_threads_that_cancel_find_one_winner() -> None:
    def tell(token: CancelToken, heard: SimpleQueue[str | None]) -> None:
        heard.put(token.reason)

    with nervous():
        for _ in range(50):
            token = CancelToken()
            heard: SimpleQueue[str | None] = SimpleQueue()
            token.on_cancel(partial(tell, token, heard))
            won = in_threads(*(partial(token.cancel, str(number)) for number in range(4)))
            assert sorted(won) == [False, False, False, True]
            assert token.reason == str(won.index(True))
            assert heard.get(timeout=PATIENCE) == token.reason
            assert heard.empty()


def _told(stage: Stage, wire: Wire, times: int) -> bool:
    """Wait until the server was notified of this many cancellations, in the form of the wire."""
    return stage.stats.wait_for(
        lambda stats: (
            stats.cancelled == times
            and (not wire.announces or len(stats.cancels) == times)
            and (wire.announces or not stats.cancels)
        ),
        PATIENCE,
    )


@every_wire_in_turn
@pytest.mark.requirement("CAN-01", "CAN-04", "M-01", "M-02")
@pytest.mark.pitfall("14")
def test_a_call_that_is_cancelled_ends_and_the_server_is_told_once(wire: Wire, way: str) -> None:
    stage, token = Stage(), CancelToken()

    def cancel() -> None:
        stage.inside("a")
        token.cancel("no longer wanted")
        token.cancel("again")

    with wire.connect(stage.server) as client:
        if way == "future":
            future = client.call_tool.future("hold", {"key": "a"})
            stage.inside("a")
            assert future.cancel()
            assert future.cancel()
            assert future.cancelled()
            with pytest.raises(concurrent.futures.CancelledError):
                future.result(PATIENCE)
        else:
            hold = partial(client.call_tool, "hold", {"key": "a"}, cancel=token.child())
            outcome, _ = in_threads(hold, cancel)
            assert isinstance(outcome, syncmcp.RequestCancelled)
            assert (outcome.delivery, outcome.method) == ("unknown", "tools/call")
            assert outcome.reason == "no longer wanted"
        assert _told(stage, wire, 1)
        if wire.announces:
            [context] = stage.inside("a")
            assert stage.stats.cancels == [context.request_id]
            assert way == "future" or context.cancel_reason == "no longer wanted"
        assert client.call_tool("echo", {"text": "still here"}).text == "still here"
        assert _told(stage, wire, 1)


@rotated
@pytest.mark.requirement("CAN-05", "M-02")
@pytest.mark.pitfall("14")
def test_a_token_that_is_cancelled_before_or_after_a_call_says_nothing(wire: Wire) -> None:
    stage, before, token = Stage(), CancelToken(), CancelToken()
    before.cancel("before")
    with wire.connect(stage.server) as client:
        future = client.call_tool.future("echo", {"text": "x"}, cancel=before)
        with pytest.raises(syncmcp.RequestCancelled) as caught:
            client.call_tool("echo", {"text": "x"}, cancel=before)
        for error in (caught.value, future.exception(PATIENCE)):
            assert isinstance(error, syncmcp.RequestCancelled)
            assert (error.delivery, error.reason) == ("not_sent", "before")
        assert client.call_tool("echo", {"text": "x"}, cancel=token).text == "x"
        future = client.call_tool.future("echo", {"text": "y"}, cancel=token)
        assert future.result(PATIENCE).text == "y"
        assert token.cancel("late")
        assert not future.cancel()
        assert client.call_tool("echo", {"text": "z"}).text == "z"
        assert not token._internal_callbacks
    with stage.stats as stats:
        assert (stats.requests["tools/call"], stats.cancels, stats.cancelled) == (3, [], 0)


@pytest.mark.requirement("CAN-05")
@pytest.mark.pitfall("14", "H10")
def test_a_late_answer_is_dropped_and_the_reader_lives_on() -> None:
    late = [
        s.expect("tools/call", label="late"),
        s.expect("notifications/cancelled"),
        s.reply({"content": [{"type": "text", "text": "late"}]}, to="late"),
        s.error(-32603, "late", to="late"),
        s.progress(1, to="late"),
    ]
    next_one = [s.expect("tools/call"), s.reply({"content": [{"type": "text", "text": "next"}]})]
    script = [*s.handshake(), *late, *next_one]
    with ScriptedPeer(script) as peer, Wire("stdio", STATEFUL).connect(peer) as client:
        future = client.call_tool.future("slow")
        peer.transcript.wait_received("tools/call")
        assert future.cancel()
        assert client.call_tool("next", timeout=PATIENCE).text == "next"
        assert peer.transcript.methods().count("notifications/cancelled") == 1


@pytest.mark.requirement("CAN-04", "CAN-05", "M-01")
@pytest.mark.pitfall("14", "H10")
def test_a_cancel_and_an_answer_that_meet_have_one_winner() -> None:
    rounds = 400
    stage = Stage()
    arrived: SimpleQueue[tuple[Any, threading.Event]] = SimpleQueue()

    @stage.server.tool()
    def meet(context: ToolContext) -> str:
        gate = threading.Event()
        arrived.put((context.request_id, gate))
        assert gate.wait(PATIENCE)
        return "answered"

    before_the_answer, cancelled, answered = set(), set(), set()
    with Wire("memory", STATEFUL).connect(stage.server) as client, nervous():
        for number in range(rounds):
            future = client.call_tool.future("meet")
            request_id, gate = arrived.get(timeout=PATIENCE)
            settled: SimpleQueue[object] = SimpleQueue()
            future.add_done_callback(settled.put)
            if number % 4 == 0:
                assert future.cancel()
                before_the_answer.add(request_id)
                gate.set()
            else:
                gate.set()
                for _ in range(number % 50):
                    pass
                future.cancel()
            concurrent.futures.wait([future], PATIENCE)
            if future.cancelled():
                cancelled.add(request_id)
            else:
                assert future.result(0).text == "answered"
                answered.add(request_id)
            assert settled.get(timeout=PATIENCE) is future
            assert settled.empty()
        assert client.call_tool("echo", {"text": "still here"}).text == "still here"
        with stage.stats as stats:
            told = list(stats.cancels)
    assert len(told) == len(set(told))
    # The server is not notified of a cancellation after the answer. It may not be notified if the
    # answer had arrived when the future was cancelled.
    assert before_the_answer <= set(told) <= cancelled
    assert len(cancelled) + len(answered) == rounds


@every_wire
@pytest.mark.requirement("CAN-01")
@pytest.mark.pitfall("9")
def test_ctrl_c_in_a_blocking_call_is_told_and_leaves_the_client_usable(wire: Wire) -> None:
    stage = Stage()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        stage.inside("a")
        # As a terminal does. Only a real signal interrupts the main thread's wait.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    try:
        with wire.connect(stage.server) as client:
            interrupter.start()
            with pytest.raises(KeyboardInterrupt):
                client.call_tool("hold", {"key": "a"}, timeout=2 * PATIENCE)
            assert _told(stage, wire, 1)
            assert client.call_tool("echo", {"text": "still here"}).text == "still here"
    finally:
        interrupter.join(PATIENCE)
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("way", ["blocking", "future"])
@pytest.mark.pitfall("H11")
def test_a_signal_handler_may_cancel_a_token_at_any_moment_of_a_call(way: str) -> None:
    stage = Stage()
    with Wire("memory", STATEFUL).connect(stage.server) as client:
        call = client.call_tool if way == "blocking" else client.call_tool.future
        number = 1
        while True:
            token = CancelToken()
            job = partial(call, "echo", {"text": "x"}, cancel=token)
            if not interrupted(job, number, token.cancel):
                break
            assert token.cancelled
            number += 2
        assert number > 50
        assert client.call_tool("echo", {"text": "y"}).text == "y"


@pytest.mark.parametrize("way", ["timeout", "token", "future"])
@pytest.mark.requirement("M-02")
def test_a_call_that_ends_in_line_is_not_sent_and_gives_back_what_it_claimed(way: str) -> None:
    stage = Stage()
    stage.server.resource("demo://a")(lambda: "a")
    token = CancelToken()
    with Wire("http", STATEFUL).connect(stage.server, max_in_flight=1) as client:
        held = client.call_tool.future("hold")
        stage.inside("")
        limit = 0.0 if way == "timeout" else PATIENCE
        call = client.subscribe_resource.future("demo://a", timeout=limit, cancel=token)
        if way == "future":
            call.cancel()
        elif way == "token":
            token.cancel("out of line")
        with pytest.raises((syncmcp.RequestTimeout, syncmcp.RequestCancelled)) as caught:
            call.result(PATIENCE)
        ended: Any = caught.value
        assert way == "future" or ended.delivery == "not_sent"
        assert way != "token" or ended.reason == "out of line"
        stage.gate.set()
        held.result(PATIENCE)
        client.ping.future().result(PATIENCE)  # a later request
        assert client._core.session_state.resources.needed_uris() == []
    assert (stage.stats.requests["resources/subscribe"], stage.stats.cancels) == (0, [])
