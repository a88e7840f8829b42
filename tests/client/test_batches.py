"""Batches: which calls a block collects, how it sends them, and how it ends."""

from __future__ import annotations

import pydoc
import threading
from collections.abc import Callable
from concurrent.futures import as_completed, wait
from contextlib import nullcontext
from typing import Any, Final
from unittest.mock import DEFAULT, Mock

import pytest

import syncmcp
from syncmcp import Batch, Client, ClosedError, LimitExceeded, RequestCancelled, UsageError
from syncmcp._client import batch as batch_module
from syncmcp._client import operations
from syncmcp.cache import CachedResult, MemoryCache
from syncmcp.testing import Batches, Server, ToolContext, serve_http
from syncmcp.testing.server.session import Session
from tests.support.intercepting import Gate, Seen, on_call
from tests.support.stage import PATIENCE, STATELESS, WIRES, Stage, Wire, elsewhere, in_threads

BATCHING: Final = "2025-03-26"
FRAMING = [Wire(transport, BATCHING) for transport in ("memory", "stdio", "http", "sse")]
MEMORY, _, HTTP, _ = FRAMING

with_frames = pytest.mark.parametrize("wire", FRAMING, ids=str)
everywhere = pytest.mark.parametrize("wire", [*FRAMING, *WIRES[1::3]], ids=str)
both_kinds = pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "in turn"])


class Placed(Stage):
    """A stage that notes each call's place in its batch: `(index, size)`, by the call's key."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.server.batches = Batches(**options)
        self.places: dict[str, tuple[int, int] | None] = {}
        self.server.tool()(self.place)

    def place(self, context: ToolContext, key: str = "") -> str:
        self.places[key] = context.batch
        return key


def texts(futures: Any) -> list[str]:
    return [future.result(PATIENCE).text for future in futures]


def errors(batch: Batch) -> list[type[object]]:
    """Return the types of the calls' errors; check that each error is an object of its own."""
    found = [future.exception(PATIENCE) for future in batch.futures]
    assert len({id(error) for error in found}) == len(found)
    return [type(error) for error in found]


def places(batch: Batch, *keys: str) -> None:
    for key in keys:
        batch.call_tool("place", {"key": key})


# -- the messages of a batch -----------------------------------------------------------------------
@everywhere
@both_kinds
@pytest.mark.requirement("M-24")
def test_every_call_of_a_batch_ends_in_its_own_future_in_order(wire: Wire, parallel: bool) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        with client.batch(parallel=parallel) as batch:
            echoes = [batch.call_tool("echo", {"text": str(number)}) for number in range(5)]
            wrong = batch.call_tool("no such tool")
            tools = batch.list_tools()
            raw = batch.request("tools/list")
        assert texts(echoes) == ["0", "1", "2", "3", "4"]
        assert isinstance(wrong.exception(PATIENCE), syncmcp.ServerError)
        assert len(tools.result(PATIENCE).tools) == len(raw.result(PATIENCE)["tools"]) == 3
        assert batch.futures == (*echoes, wrong, tools, raw)
        assert len(batch) == 8


@pytest.mark.parametrize("wire", WIRES, ids=str)
@pytest.mark.requirement("RPC-14")
def test_where_a_revision_has_no_batches_the_calls_go_alone_and_none_waits(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            for key in "abc":
                batch.call_tool("hold", {"key": key})
            places(batch, "d")
        stage.inside("a", "b", "c")
        assert texts(batch.futures[3:]) == ["d"]
        stage.gate.set()
        assert texts(batch.futures) == ["a", "b", "c", "d"]
    assert stage.places == {"d": None}


@with_frames
@pytest.mark.requirement("M-24")
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", {}),
        ("a", {"a": None}),
        ("abc", {"a": (0, 3), "b": (1, 3), "c": (2, 3)}),
        ("abcde", {"a": (0, 3), "b": (1, 3), "c": (2, 3), "d": (0, 2), "e": (1, 2)}),
        ("abcd", {"a": (0, 3), "b": (1, 3), "c": (2, 3), "d": None}),
    ],
)
def test_what_is_collected_leaves_in_frames_of_the_size_in_its_order_and_a_single_call_alone(
    wire: Wire, keys: str, expected: dict[str, tuple[int, int] | None]
) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        before = sum(stage.stats.requests.values())
        with client.batch(max_size=3) as batch:
            places(batch, *keys)
        assert texts(batch.futures) == [*keys]
        assert stage.places == expected
        assert sum(stage.stats.requests.values()) == before + len(keys)


@pytest.mark.requirement("M-24")
def test_a_larger_batch_is_refused_at_the_call_that_is_too_much_if_asked_for() -> None:
    stage = Placed()
    words = r"more than 2 calls.*\(the request was not sent\)"
    with MEMORY.connect(stage.server) as client:
        refused = pytest.raises(LimitExceeded, match=words)
        with refused, client.batch(max_size=2, oversize="refuse") as batch:
            places(batch, *"abc")
        assert [future.cancelled() for future in batch.futures] == [True] * 2
        client.ping()
    assert stage.places == {}


@pytest.mark.parametrize("oversize", [True, False])
def test_what_comes_to_a_batch_too_late_is_refused_and_undone(oversize: bool) -> None:
    stage = Stage()
    late: list[bool] = []

    class Late(MemoryCache):
        def get(self, key: str) -> CachedResult | None:
            if not late:
                late.append(True)
                if oversize:
                    batch.call_tool("echo", {"text": "fast"})
                else:
                    batch.__exit__(None, None, None)
            return super().get(key)

    with syncmcp.connect(stage.server, mode=STATELESS, cache=Late()) as client:
        batch = client.batch(max_size=1, oversize="refuse")
        kind, words = (LimitExceeded, "than 1 call ") if oversize else (UsageError, "within its")
        with batch, pytest.raises(kind, match=words):
            batch.list_tools()


@everywhere
@pytest.mark.requirement("RPC-13")
@pytest.mark.parametrize("early", [True, False], ids=["while calls are collected", "by the calls"])
def test_a_batch_that_makes_the_client_open_sends_its_calls_alone(wire: Wire, early: bool) -> None:
    stage = Placed()
    with wire.connect(stage.server) as opened:
        opened.close()
        client = Client(opened._core.settings.target, mode=wire.revision, lazy=True)
        with client.batch() as batch:
            places(batch, "a", "b")
            if early:
                client.list_tools()
        assert texts(batch.futures) == ["a", "b"]
        client.close()
    if not early:
        assert stage.places == {"a": None, "b": None}


@pytest.mark.requirement("RPC-13")
def test_a_handshake_by_hand_stands_in_no_frame_either() -> None:
    stage = Placed()
    with MEMORY.connect(stage.server) as client:
        with client.batch() as batch:
            places(batch, "a", "b")
            again = batch.request("initialize", {})
        assert texts(batch.futures[:2]) == ["a", "b"]
        error = again.exception(PATIENCE)
        assert isinstance(error, syncmcp.InvalidParams)  # from the server: it was sent alone
    assert stage.places == {"a": (0, 2), "b": (1, 2)}


def test_calls_with_headers_of_their_own_go_alone() -> None:
    stage = Placed()
    with HTTP.connect(stage.server) as client:
        with client.batch() as batch:
            for key in "abc":
                headers = {"X-Key": key} if key == "b" else None
                batch.call_tool("place", {"key": key}, headers=headers)
        assert texts(batch.futures) == [*"abc"]
    alone = [key for key, place in stage.places.items() if place is None]
    assert alone in (["b"], ["a", "c"], ["c", "a"])  # the first call in a frame sets its headers


@with_frames
def test_what_exceeds_the_calls_in_flight_goes_alone_and_later(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server, max_in_flight=2) as client:
        held = client.call_tool.future("hold", {"key": "held"})
        stage.inside("held")
        # Two batches at the same time do not wait for each other.
        with client.batch() as one, client.batch() as two:
            places(one, *"abcde")
            places(two, *"fghij")
        assert texts(one.futures) == [*"abcde"]
        assert texts(two.futures) == [*"fghij"]
        stage.gate.set()
        held.result(PATIENCE)
    assert set(stage.places.values()) == {None}


# -- sequential batches ----------------------------------------------------------------------------
@everywhere
def test_in_turn_each_call_is_sent_when_the_one_before_it_is_done(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        with client.batch(parallel=False) as batch:
            held = batch.call_tool("hold", {"key": "held"})
            dropped = batch.call_tool("place", {"key": "dropped"})
            places(batch, "after")
        stage.inside("held")
        assert dropped.cancel()
        assert stage.places == {}
        stage.gate.set()
        assert held.result(PATIENCE).text == "held"
        assert batch.futures[2].result(PATIENCE).text == "after"
    assert stage.places == {"after": None}


# -- leaving the block -----------------------------------------------------------------------------
def subscribing(client: Client) -> list[str]:
    """Return the URIs that the client subscribes to in its session."""
    return [uri for uri, _ in client._core.session_state.resources.needed_uris()]


@both_kinds
@pytest.mark.parametrize("way", ["exception", "cancel"])
def test_what_was_not_sent_is_cancelled_and_what_it_claimed_given_back(
    parallel: bool, way: str
) -> None:
    stage = Placed()
    stage.server.resource("demo://a")(lambda: "a")
    with MEMORY.connect(stage.server) as client:
        leaving = pytest.raises(ZeroDivisionError) if way == "exception" else nullcontext()
        with leaving, client.batch(parallel=parallel) as batch:
            batch.subscribe_resource("demo://a")
            if way == "exception":
                raise ZeroDivisionError
            assert batch.futures[0].cancel()
            places(batch, "a")
        assert subscribing(client) == []
        with pytest.raises(RequestCancelled):
            batch.futures[0].result()
        assert texts(batch.futures[1:]) == [*stage.places]
    assert stage.stats.cancels == []
    assert stage.stats.requests["resources/subscribe"] == 0


def test_ctrl_c_while_a_batch_is_sent_ends_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Placed()
    stage.server.resource("demo://a")(lambda: "a")
    with MEMORY.connect(stage.server) as client:
        start = Mock(side_effect=[DEFAULT, KeyboardInterrupt], wraps=batch_module._start)
        monkeypatch.setattr(batch_module, "_start", start)
        leaving = pytest.raises(KeyboardInterrupt)
        with leaving, client.batch() as batch:
            places(batch, "a", "b")
            batch.subscribe_resource("demo://a")
        assert [future.cancelled() for future in batch.futures] == [True] * 3
        assert subscribing(client) == []
        client.ping()
    assert stage.places == {}


def test_calls_are_collected_within_the_block_alone_and_a_batch_is_used_once() -> None:
    with MEMORY.connect(Stage().server) as client:
        with pytest.raises(syncmcp.NotSupported), client.batch() as batch:
            batch.list_prompts()  # fails here: the server does not declare prompts
        batch = client.batch()
        with pytest.raises(UsageError, match="within its `with` block"):
            batch.ping()
        with batch:
            batch.ping()
        with pytest.raises(UsageError, match="within its `with` block"):
            batch.ping()
        with pytest.raises(UsageError, match="can be used only once"), batch:
            pass
        assert batch.futures[0].result(PATIENCE) is None


@both_kinds
def test_the_block_cannot_wait_for_its_own_calls_and_another_thread_can(parallel: bool) -> None:
    stage = Stage()
    with MEMORY.connect(stage.server) as client:
        with client.batch(parallel=parallel) as batch:
            future = batch.call_tool("count", {"steps": 2})
            other = client.call_tool.future("echo", {"text": "before"})
            ways: list[Callable[[], object]] = [
                future.result,
                future.exception,
                lambda: next(future.progress(PATIENCE)),
                lambda: wait([other, future]),
                lambda: wait([future], return_when="FIRST_COMPLETED"),
                lambda: list(as_completed([future, other])),
            ]
            for way in ways:
                with pytest.raises(
                    UsageError, match="sends its calls at the end of its `with` block"
                ):
                    way()
            assert wait([other], PATIENCE).done == {other}
            dropped = batch.call_tool("echo", {"text": "never"})
            dropped.cancel()
            assert wait([dropped], PATIENCE).done == {dropped}
            assert len(list(as_completed([dropped, other], PATIENCE))) == 2
            found = elsewhere(lambda: (future.result(PATIENCE).text, wait([future], PATIENCE).done))
        assert found.result(2 * PATIENCE) == ("counted", {future})
        assert [report.progress for report in future.progress(PATIENCE)] == [1, 2]
        assert list(as_completed([future], PATIENCE)) == [future]


def test_code_of_the_callers_that_collecting_runs_holds_no_other_thread_up() -> None:
    stage = Stage()

    class Asking(MemoryCache):
        def get(self, key: str) -> CachedResult | None:
            if not batch.futures:  # another thread can add a call during this one
                in_threads(lambda: batch.call_tool("echo", {"text": "b"}), patience=PATIENCE)
            return super().get(key)

    with syncmcp.connect(stage.server, mode=STATELESS, cache=Asking()) as client:
        with client.batch() as batch:
            batch.list_tools()
        assert batch.futures[0].result(PATIENCE).text == "b"
        assert batch.futures[1].result(PATIENCE).tools


@with_frames
def test_closing_the_client_ends_every_call_of_a_frame(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        for parallel in (True, False):
            client.open()
            with client.batch(parallel=parallel) as batch:
                batch.ping()
                batch.ping()
                client.close()  # before the end of the block
            assert errors(batch) == [ClosedError] * 2
        client.open()
        with client.batch() as batch:
            for key in "ab":
                batch.call_tool("hold", {"key": key})
        stage.inside("a", "b")
        client.close()
        assert errors(batch) == [ClosedError] * 2
    stage.gate.set()


def test_a_batch_has_every_operation_of_a_client() -> None:
    def named(place: object, kind: str) -> set[str]:
        return {name for name, value in vars(place).items() if type(value).__name__ == kind}

    assert named(operations, "Operation") == named(Batch, "Collected")
    shown = pydoc.plain(pydoc.render_doc(Client(Server("x")).batch().call_tool))
    for words in ("Call a tool", "name:", "-> 'RequestFuture["):
        assert words in shown


# -- the end of calls ------------------------------------------------------------------------------
@with_frames
@pytest.mark.requirement("M-24")
def test_withdrawing_one_call_of_a_frame_leaves_the_others_alone(wire: Wire) -> None:
    stage, token = Placed(together=False), syncmcp.CancelToken()
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            one = batch.call_tool("hold", {"key": "a"})
            two = batch.call_tool("hold", {"key": "b"}, cancel=token)
            late = batch.call_tool("hold", {"key": "c"}, timeout=0.05)
            patient = batch.call_tool("hold", {"key": "d"})
            counts = [batch.call_tool("count", {"steps": steps}) for steps in (1, 3)]
        first, second, last = stage.inside("a", "b", "d")
        assert isinstance(late.exception(PATIENCE), syncmcp.RequestTimeout)
        assert one.cancel()
        token.cancel("enough")
        assert isinstance(two.exception(PATIENCE), RequestCancelled)
        assert stage.stats.wait_for(lambda stats: len(stats.cancels) == 3)
        for withdrawn in (first, second):
            assert withdrawn.cancelled.wait(PATIENCE)
        steps = [[step.progress for step in count.progress(PATIENCE)] for count in counts]
        assert steps == [[1], [1, 2, 3]]
        # A response that arrives early is delivered before the rest.
        assert texts(counts) == ["counted"] * 2
        assert not patient.done()
        assert not last.cancelled.is_set()
        stage.gate.set()
        assert patient.result(PATIENCE).text == "d"
        assert stage.stats.wait_for(lambda stats: stats.running == 0)


def test_a_session_that_was_lost_is_renewed_and_the_calls_sent_again_alone() -> None:
    stage = Placed()
    with serve_http(stage.server) as http, syncmcp.connect(http.url, mode=BATCHING) as client:
        http.endpoint.forget_sessions()
        with client.batch() as batch:
            places(batch, *"abc")
        assert texts(batch.futures) == [*"abc"]
    assert stage.places == dict.fromkeys("abc")
    assert stage.stats.requests["initialize"] == 2


# -- interceptors ----------------------------------------------------------------------------------
@with_frames
def test_with_interceptors_each_call_is_sent_alone_and_waits_for_no_other(wire: Wire) -> None:
    stage, seen, gate = Placed(), Seen(), Gate()

    def look(message: Any) -> None:
        key = message.params["arguments"]["key"]
        if key == "refused":
            raise UsageError("not today")
        if key == "stuck":
            gate(message)

    with wire.connect(stage.server, interceptors=[seen, on_call("outgoing", look)]) as client:
        with client.batch() as batch:
            places(batch, "stuck", "refused", "a", "b")
        gate.reached()
        assert isinstance(batch.futures[1].exception(PATIENCE), UsageError)
        assert texts(batch.futures[2:]) == ["a", "b"]
        assert stage.places == {"a": None, "b": None}
        gate.open.set()
        assert batch.futures[0].result(PATIENCE).text == "stuck"
    kinds = seen.hooks("tools/call")
    assert [kinds.count(("outgoing", "request")), kinds.count(("incoming", "response"))] == [4, 3]


# -- the test server -------------------------------------------------------------------------------
@pytest.mark.requirement("M-24")
@pytest.mark.parametrize("wire", [MEMORY, HTTP], ids=str)
def test_a_server_may_take_few_calls_at_a_time_in_turn_and_end_them(wire: Wire) -> None:
    stage, strict = Placed(parallel=False, max_size=3), Placed(timeout=0.05)
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            batch.call_tool("hold", {"key": "held"})
            places(batch, *"ab")
        stage.inside("held")
        assert stage.places == {}
        stage.gate.set()
        assert texts(batch.futures) == ["held", "a", "b"]
        with client.batch() as batch:
            places(batch, *"cdef")
        assert errors(batch) == [syncmcp.InvalidRequest] * 4
    with wire.connect(strict.server) as client:
        with client.batch() as batch:
            late = [batch.call_tool("hold", {"key": key}) for key in "ab"]
        for future in late:
            error = future.exception(PATIENCE)
            assert isinstance(error, syncmcp.ServerError)
            assert (error.code, "batch took longer" in str(error)) == (-32603, True)
        assert strict.stats.wait_for(lambda stats: stats.running == 0)


def test_a_call_that_arrives_after_its_batch_has_expired_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strict, expired = Placed(timeout=0.001), threading.Event()
    expire, admit = Session._expire, strict.server._admit

    def expire_first(*arguments: Any) -> None:
        expire(*arguments)
        expired.set()

    def admit_then(message: Any, *more: Any) -> Any:
        assert message["method"] != "tools/call" or expired.wait(PATIENCE)
        return admit(message, *more)

    monkeypatch.setattr(Session, "_expire", expire_first)
    monkeypatch.setattr(strict.server, "_admit", admit_then)
    with MEMORY.connect(strict.server) as client:
        client.list_tools()
        with client.batch() as batch:
            late = [batch.call_tool("hold", {"key": key}) for key in "ab"]
        for future in late:
            assert "batch took longer" in str(future.exception(PATIENCE))
        assert strict.stats.wait_for(lambda stats: stats.running == 0)
    assert strict._inside == {}
