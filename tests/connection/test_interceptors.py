"""Interceptors: which messages they see, and which changes they may make."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

import syncmcp
from syncmcp import Client, Interceptor, InterceptorFailed, Message
from syncmcp.testing import Server, ToolContext, serve_http
from tests.support.intercepting import (
    MEMORY,
    Ask,
    Does,
    Gate,
    Seen,
    block,
    both_ways,
    call_of,
    future,
    on_call,
    rotated_asks,
    throws,
)
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Clock,
    Stage,
    Wire,
    in_threads,
    rotated,
    rotated_stateful,
    rotated_with,
    tick,
)


@rotated_asks
def test_a_call_is_seen_on_its_way_out_and_back_and_at_its_end_whatever_that_raises(
    wire: Wire, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[tuple[str, str, Message]] = []
    outer, inner = Seen("outer", log), Seen("inner", log)
    chain = [outer, on_call("ended", throws(ValueError("a slip"))), inner]
    with wire.connect(Stage().server, interceptors=chain, name="here") as client:
        del log[:], outer.threads[:]
        assert ask(client, "hello").text == "hello"
        if ask is block:
            assert outer.threads == [threading.current_thread().name] * 3
        else:
            assert len(outer.threads) == 3
            assert all(name.startswith("syncmcp-exchange") for name in outer.threads)
        of_call = [one for one in log if one[2].method == "tools/call"]
    assert [f"{name} {hook} {message.kind}" for name, hook, message in of_call] == [
        *("outer outgoing request", "inner outgoing request", "inner incoming response"),
        *("outer incoming response", "inner ended response", "outer ended response"),
    ]
    assert "Does.ended failed" in caplog.text
    request, _, _, response, _, end = (message for _, _, message in of_call)
    assert request.params["arguments"] == {"text": "hello"}
    assert request.params["_meta"]["progressToken"] == request.id  # the same as on the wire
    assert (request.server, request.direction, request.elapsed) == ("here", "outgoing", None)
    assert response.id == end.id == request.id
    assert response.params == end.params == request.params
    assert (response.result, response.result["content"][0]["text"]) == (end.result, "hello")
    assert response.elapsed is not None
    assert 0 <= response.elapsed < PATIENCE
    assert (request.settled, response.settled, end.settled) == (False, False, True)
    assert (response.error, end.error) == (None, None)


# The hooks that see a request.
ANSWERED = [("outgoing", "request"), ("incoming", "response"), ("ended", "response")]


@rotated
def test_the_messages_that_open_a_connection_are_seen(wire: Wire) -> None:
    seen = Seen()
    with wire.connect(Stage().server, interceptors=[seen]):
        pass
    first = "initialize" if wire.revision == STATEFUL else "server/discover"
    assert seen.hooks(first) == ANSWERED
    told = seen.hooks("notifications/initialized")
    assert told == ([("outgoing", "notification")] if wire.revision == STATEFUL else [])


@both_ways
def test_the_hooks_of_a_call_share_the_context_of_its_caller_and_leave_it_alone(ask: Ask) -> None:
    said, heard = ContextVar("said", default="nothing"), list[str]()

    def speak(word: str) -> Callable[[Message], None]:
        def action(message: Message) -> None:
            heard.append(said.get())
            said.set(word)

        return action

    chain = [on_call(hook, speak(hook)) for hook in ("outgoing", "incoming", "ended")]
    with MEMORY.connect(Stage().server, interceptors=chain) as client:
        said.set("caller")
        ask(client, "x")
    assert heard == ["caller", "outgoing", "incoming"]
    assert said.get() == "caller"


@rotated_asks
def test_the_end_of_a_call_without_an_answer_is_told_and_is_no_message(
    wire: Wire, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, stage = Seen(), Stage()
    clock = Clock(monkeypatch, "syncmcp._concurrency.timing")

    def run_out_of_time() -> None:
        stage.inside("")
        clock.advance(600)
        tick()

    with wire.connect(stage.server, interceptors=[seen]) as client:
        call = call_of(client, ask)
        error, _ = in_threads(lambda: call("hold", timeout=600), run_out_of_time)
        assert isinstance(error, syncmcp.RequestTimeout)
        end = seen.wait("tools/call", "response")
    assert seen.hooks("tools/call")[:2] == [("outgoing", "request"), ("ended", "response")]
    assert isinstance(end.error, syncmcp.RequestTimeout)
    assert end.elapsed is not None


def test_a_message_keeps_what_it_carries_out_of_its_repr() -> None:
    message = Message("here", "outgoing", "request", "tools/call", 7, {"name": "s3cret"})
    assert repr(message) == "<Message outgoing request tools/call 7 [here]>"
    answer = Message(
        "here", "incoming", "response", "x", 7, result="s3cret", error=ValueError("s3cret")
    )
    assert repr(answer) == "<Message incoming response x 7 [here]: ValueError>"


def _shout(message: Message) -> Message:
    return message.with_params({**message.params, "arguments": {"text": "LOUD"}})


def _mask(message: Message) -> Message:
    return message.with_result({"content": [{"type": "text", "text": "masked"}]})


@rotated_asks
def test_a_request_and_its_answer_can_be_changed(wire: Wire, ask: Ask) -> None:
    seen = Seen()
    chain = [on_call("incoming", _mask), seen, on_call("outgoing", _shout)]
    with wire.connect(Stage().server, interceptors=chain) as client:
        assert ask(client, "quiet").text == "masked"
    (_, before), (_, answer), (_, end) = seen.of("tools/call")
    assert before.params is not None
    assert before.params["arguments"] == {"text": "quiet"}
    assert answer.result["content"][0]["text"] == "LOUD"  # the changed request was sent
    assert end.result["content"][0]["text"] == "masked"


@rotated
def test_the_refusal_of_a_server_is_seen_and_can_be_made_good(wire: Wire) -> None:
    seen = Seen()
    chain = [on_call("incoming", lambda message: _mask(message) if message.error else None), seen]
    with wire.connect(Stage().server, interceptors=chain) as client:
        assert client.call_tool("nowhere").text == "masked"
        (_, refused) = seen.of("tools/call")[1]
        assert isinstance(refused.error, syncmcp.ServerError)
        assert block(client, "fine").text == "fine"
        with pytest.raises(syncmcp.ServerError) as caught:
            client.request("acme/nothing", result=dict)
    responses = [message for hook, message in seen.of("acme/nothing") if hook != "outgoing"]
    assert [each.error for each in responses] == [caught.value, caught.value]


@rotated_with("in_place", [False, True])
def test_the_protocols_own_keys_cannot_be_taken_away(wire: Wire, in_place: bool) -> None:
    metas: list[dict[str, Any]] = []

    mine = {"progressToken": "mine", "ours/note": 1}

    def bare(message: Message) -> Message | None:
        if not in_place:
            return message.with_params({**message.params, "_meta": mine})
        message.params["_meta"].clear()
        return None

    server = Server("metas")

    @server.tool()
    def look(context: ToolContext) -> str:
        metas.append(context.meta)
        context.report_progress(1)
        return "looked"

    seen: list[float] = []
    with wire.connect(server, interceptors=[on_call("outgoing", bare)]) as client:
        client.call_tool("look", on_progress=lambda done, total, message: seen.append(done))
    assert seen == [1]
    assert type(metas[0]["progressToken"]) is int
    assert ("ours/note" in metas[0]) is not in_place
    protocol = "io.modelcontextprotocol/protocolVersion"
    assert metas[0].get(protocol) == (STATELESS if wire.revision == STATELESS else None)


@rotated_stateful
def test_a_notification_of_the_program_can_be_changed_and_refused(wire: Wire) -> None:
    stage = Stage()
    chain: list[Interceptor] = [
        Does("outgoing", "acme/a", lambda message: message.with_params({"changed": True})),
        Does("outgoing", "acme/b", throws(ValueError("not this one"))),
    ]
    with wire.connect(stage.server, interceptors=chain) as client:
        client.notify("acme/a", {"changed": False})
        with pytest.raises(InterceptorFailed, match="outgoing raised ValueError"):
            client.notify("acme/b")
        assert stage.stats.wait_for(lambda stats: stats.notifications["acme/a"] == 1)
        assert stage.stats.notifications["acme/b"] == 0


# The exception of the first hook for a call, and the error that the caller gets.
RAISED: list[tuple[str, Exception, type[syncmcp.McpError]]] = [
    ("outgoing", syncmcp.Denied("not today"), syncmcp.Denied),
    ("outgoing", ValueError("a slip"), InterceptorFailed),
    ("incoming", ValueError("a slip"), InterceptorFailed),
]


@rotated_with(
    "hook, error, kind, ask", [(*raised, ask) for raised in RAISED for ask in (block, future)]
)
def test_what_an_interceptor_raises_ends_the_call_and_nothing_else(
    wire: Wire, ask: Ask, hook: str, error: Exception, kind: type[syncmcp.McpError]
) -> None:
    stage, outer, inner = Stage(), Seen("outer"), Seen("inner")
    slips = [error]
    guard = on_call(hook, lambda _: throws(slips.pop())(_) if slips else None)
    with wire.connect(stage.server, interceptors=[outer, guard, inner], name="here") as client:
        with pytest.raises(kind) as caught:
            ask(client, "x")
        failed: Any = caught.value
        assert (failed.server, failed.method) == ("here", "tools/call")
        if kind is InterceptorFailed:
            assert failed.__cause__ is error
            assert (failed.interceptor, failed.hook) == ("Does", hook)
            assert f"{hook} raised ValueError" in str(failed)
            assert failed.delivery == ("not_sent" if hook == "outgoing" else "unknown")
            assert ("the request was not sent" in str(failed)) == (hook == "outgoing")
        assert outer.hooks("tools/call") == [("outgoing", "request"), ("ended", "response")]
        assert (inner.hooks("tools/call") == []) == (hook == "outgoing")
        assert outer.of("tools/call")[1][1].error is failed
        assert ask(client, "again").text == "again"
    assert stage.stats.requests["tools/call"] == (1 if hook == "outgoing" else 2)


CHANGES: dict[str, tuple[str, Callable[[Message], Any]]] = {
    "changed the id of": ("outgoing", lambda m: replace(m, id=None)),
    "changed the method of": ("outgoing", lambda m: replace(m, method="ping")),
    "changed the direction of": ("outgoing", lambda m: replace(m, direction="incoming")),
    "changed the kind of": ("outgoing", lambda m: replace(m, kind="response")),
    "returned dict": ("outgoing", lambda m: m.params),
    "replaced the params with a list": ("outgoing", lambda m: m.with_params(cast("Any", [1]))),
    "cannot be sent as JSON": ("outgoing", lambda m: m.with_params({"x": object()})),
    "replaced the result with a list": ("incoming", lambda m: m.with_result([])),
    "replaced the error of a message: raise it instead": (
        "incoming",
        lambda m: replace(m, error=ValueError()),
    ),
}


@pytest.mark.parametrize(
    ("what", "ask"), [(what, (block, future)[number % 2]) for number, what in enumerate(CHANGES)]
)
def test_what_makes_a_message_another_one_cannot_be_changed(ask: Ask, what: str) -> None:
    hook, change = CHANGES[what]
    stage, twist = Stage(), [change]
    chain = [on_call(hook, lambda message: twist.pop()(message) if twist else None)]
    kind = syncmcp.UsageError if "JSON" in what else InterceptorFailed
    with MEMORY.connect(stage.server, interceptors=chain) as client:
        with pytest.raises(kind, match=what):
            ask(client, "x")
        assert ask(client, "y").text == "y"
    assert stage.stats.requests["tools/call"] == (1 if hook == "outgoing" else 2)


def test_an_interceptor_that_refuses_the_handshake_keeps_the_client_closed() -> None:
    # A hook cannot call the client while it opens.
    client: Client
    slips: list[Any] = [throws(ValueError("a slip")), lambda _: client.ping()]
    guard = Does("outgoing", "initialize", lambda m: slips.pop()(m) if slips else None)
    client = Client(Stage().server, mode=STATEFUL, interceptors=[guard])
    with pytest.raises(syncmcp.UsageError, match="cannot call a client that is being opened"):
        client.open()
    with pytest.raises(InterceptorFailed, match="raised ValueError"):
        client.open()
    with client:
        assert block(client, "x").text == "x"


def test_an_interrupt_in_a_hook_reaches_the_caller_and_the_table_forgets_the_call() -> None:
    stage, seen = Stage(), Seen()
    stops: list[BaseException] = [KeyboardInterrupt()]
    guard = on_call("outgoing", lambda _: throws(stops.pop())(_) if stops else None)
    with MEMORY.connect(stage.server, interceptors=[seen, guard], max_in_flight=1) as client:
        with pytest.raises(KeyboardInterrupt):
            block(client, "x")
        assert isinstance(seen.of("tools/call")[-1][1].error, KeyboardInterrupt)
        assert block(client, "y").text == "y"  # the interrupted call is not in flight


def test_faults_that_an_interceptor_makes_are_retried_like_real_ones() -> None:
    seen, stage = Seen(), Stage()
    faults: list[Exception] = [syncmcp.ConnectFailed("made up"), syncmcp.ConnectFailed("again")]
    guard = Does("outgoing", "tools/list", lambda _: throws(faults.pop())(_) if faults else None)
    swift = syncmcp.Retry(attempts=3, pause=0.001)
    with serve_http(stage.server) as http:
        chain = [seen, guard]
        with syncmcp.connect(http.url, interceptors=chain, retry=swift) as client:
            assert len(client.list_tools().tools) == 3
    assert stage.stats.requests["tools/list"] == 1
    assert seen.hooks("tools/list").count(("outgoing", "request")) == 3
    assert seen.hooks("tools/list").count(("ended", "response")) == 3


class Coroutines(Interceptor):
    async def outgoing(self, message: Message) -> None:  # type: ignore[override]
        ...


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Seen(), "a list of interceptors"),
        (7, "a list of interceptors"),
        ([Seen], "an object, not the class Seen"),
        ([SimpleNamespace(outgoing=id, incoming=id)], "SimpleNamespace has no method ended"),
        ([Coroutines()], "coroutine function"),
        ([print], "has no method outgoing: an interceptor is an object of a class that inherits"),
    ],
)
def test_what_is_no_interceptor_is_refused(given: Any, why: str) -> None:
    with pytest.raises(syncmcp.UsageError, match=why):
        Client(Stage().server, interceptors=given)


# -- hooks that are slow, or call the client

ENDS: dict[str, type[syncmcp.McpError]] = {
    "timeout": syncmcp.RequestTimeout,
    "token": syncmcp.RequestCancelled,
    "close": syncmcp.ClosedError,
}


# No ("incoming", "close"): closing a client waits for responses that have arrived.
PAUSES = [("incoming", "timeout"), ("incoming", "token"), *(("outgoing", end) for end in ENDS)]


@rotated_with(
    "hook, end, ask", [(*pause, (block, future)[n % 2]) for n, pause in enumerate(PAUSES)]
)
def test_a_pause_ends_with_the_call(
    wire: Wire, hook: str, end: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, clock = Stage(), Clock(monkeypatch, "syncmcp._concurrency.timing")
    token, inside, ended = syncmcp.CancelToken(), threading.Event(), threading.Event()

    def hold(message: Message) -> None:
        if end == "timeout":
            clock.advance(600 - 0.05)
            tick()  # the timer notices how little time is left
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
    pauses: list[Any] = []
    for hook in ("outgoing", "incoming"):
        hold = on_call(hook, lambda message: message.pause(pauses.pop() if pauses else 0.001))
        with MEMORY.connect(Stage().server, interceptors=[hold]) as client:
            for pause in (-1, "long"):
                pauses.append(pause)
                with pytest.raises(syncmcp.UsageError, match="seconds"):
                    block(client, "x")
            assert block(client, "x").text == "x"


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
        ways: dict[str, Callable[[], object]] = {"cancel": call.cancel, "close": client.close}
        ways |= {"token": token.cancel, "timeout": partial(clock.advance, 600)}
        assert ways[end]() is not False
        for _ in range(2):
            tick()
            clock.advance(1)
        tick()
        if end == "cancel":
            with pytest.raises(syncmcp.RequestCancelled):
                call.result(PATIENCE)
        elif hook == "incoming":  # the response arrived in time
            assert not call.done()
        else:
            error: Any = call.exception(PATIENCE)
            assert (type(error), error.delivery) == (ENDS[end], "not_sent")
        gate.open.set()
        if hook == "incoming" and end != "cancel":
            assert call.result(PATIENCE).text == "x"
    assert stage.stats.requests["tools/call"] == (0 if hook == "outgoing" else 1)


@rotated
def test_a_call_with_a_late_hook_is_not_sent(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, clock = Stage(), Clock(monkeypatch, "syncmcp._concurrency.timing")

    def dawdle(message: Message) -> None:
        clock.advance(600)
        tick()

    with wire.connect(stage.server, interceptors=[on_call("outgoing", dawdle)]) as client:
        with pytest.raises(syncmcp.RequestTimeout) as caught:
            client.call_tool("echo", {"text": "x"}, timeout=600)
        assert caught.value.delivery == "not_sent"
    assert stage.stats.requests["tools/call"] == 0


@rotated_asks
def test_a_result_is_freed_with_its_call_without_any_collector(wire: Wire, ask: Ask) -> None:
    freed = threading.Event()
    with wire.connect(Stage().server, interceptors=[Does("", "", throws(ValueError()))]) as client:
        gc.disable()
        try:
            weakref.finalize(ask(client, "x"), freed.set)
            assert freed.wait(PATIENCE)
        finally:
            gc.enable()


@rotated_with("hook, ask", [(hook, ask) for hook, _ in ANSWERED for ask in (block, future)])
def test_a_hook_may_call_the_client_unseen_by_itself(wire: Wire, ask: Ask, hook: str) -> None:
    seen, stage, inside = Seen(), Stage(), list[str]()
    chain = [on_call(hook, lambda _: inside.append(ask(client, "audit").text)), seen]
    # With one place in flight, a hook's call must not wait for the call that waits for the hook.
    with wire.connect(stage.server, interceptors=chain, max_in_flight=1) as client:
        assert [each(client, "x").text for each in (block, future)] == ["x", "x"]
    assert inside == ["audit", "audit"]
    assert stage.stats.requests["tools/call"] == 4
    assert seen.hooks("tools/call").count(("outgoing", "request")) == 4
