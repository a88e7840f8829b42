"""Batches: what is collected in a block, and how it leaves and ends (2025-03-26 and elsewhere)."""

from __future__ import annotations

import concurrent.futures
import inspect
import threading
from collections.abc import Callable
from typing import Any, Final, Literal

import pytest

import syncmcp
from syncmcp import (
    Batch,
    CancelToken,
    Client,
    ClosedError,
    InvalidParams,
    LimitExceeded,
    NotSupported,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    UsageError,
)
from syncmcp._client import batch as batch_module
from syncmcp._client import operations
from syncmcp.cache import CachedResult, MemoryCache
from syncmcp.testing import Batches, Server, ToolContext, serve_http
from tests.support.intercepting import Gate, Seen, on_call
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, WIRES, Stage, Wire

BATCHING: Final = "2025-03-26"
MEMORY = Wire("memory", BATCHING)
HTTP = Wire("http", BATCHING)
FRAMING = [Wire(transport, BATCHING) for transport in ("memory", "stdio", "http", "sse")]

with_frames = pytest.mark.parametrize("wire", FRAMING, ids=str)
everywhere = pytest.mark.parametrize("wire", [*FRAMING, *WIRES], ids=str)
both_kinds = pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "in turn"])


class Placed(Stage):
    """A stage that notes which frames its calls came in: `(index, size)` of each, by its key."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.server.batches = Batches(**options)
        self.places: dict[str, tuple[int, int] | None] = {}
        self.server.tool()(self.place)

    def place(self, context: ToolContext, key: str = "") -> str:
        """Note the place of the call, and say its key."""
        self.places[key] = context.batch
        return key


def texts(futures: Any) -> list[str]:
    return [future.result(PATIENCE).text for future in futures]


def places(batch: Batch, *keys: str) -> None:
    for key in keys:
        batch.call_tool("place", {"key": key})


# -- what leaves -----------------------------------------------------------------------------------


@everywhere
@both_kinds
@pytest.mark.requirement("M-24")
def test_every_call_of_a_batch_ends_in_its_own_future_in_the_order_of_the_calls(
    wire: Wire, parallel: bool
) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        with client.batch(parallel=parallel) as batch:
            echoes = [batch.call_tool("echo", {"text": str(number)}) for number in range(5)]
            wrong = batch.call_tool("no such tool")
            tools = batch.list_tools()
            raw = batch.request("tools/list")
        assert texts(echoes) == ["0", "1", "2", "3", "4"]
        assert isinstance(wrong.exception(PATIENCE), ServerError)
        assert len(tools.result(PATIENCE).tools) == len(raw.result(PATIENCE)["tools"]) == 3
        assert batch.futures == (*echoes, wrong, tools, raw)
        assert len(batch) == 8


@with_frames
@pytest.mark.requirement("M-24")
def test_what_is_collected_leaves_in_one_frame_in_its_order(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            places(batch, "a", "b", "c")
        assert texts(batch.futures) == ["a", "b", "c"]
        assert stage.places == {"a": (0, 3), "b": (1, 3), "c": (2, 3)}


@pytest.mark.parametrize("wire", WIRES, ids=str)
@pytest.mark.requirement("RPC-14")
def test_where_a_revision_has_no_batches_the_calls_go_one_by_one_and_none_waits(
    wire: Wire,
) -> None:
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
@pytest.mark.parametrize("count", [0, 1])
def test_no_call_sends_nothing_and_one_call_goes_alone(wire: Wire, count: int) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        before = sum(stage.stats.requests.values())
        with client.batch() as batch:
            places(batch, *["only"] * count)
        texts(batch.futures)
        assert sum(stage.stats.requests.values()) == before + count
        assert stage.places == ({"only": None} if count else {})


@with_frames
@pytest.mark.requirement("M-24")
def test_a_larger_batch_is_split_into_several_frames(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        with client.batch(max_size=2) as batch:
            places(batch, *"abcde")
        assert texts(batch.futures) == [*"abcde"]
    assert stage.places == {"a": (0, 2), "b": (1, 2), "c": (0, 2), "d": (1, 2), "e": None}


@pytest.mark.requirement("M-24")
def test_a_larger_batch_is_refused_at_the_call_that_is_too_much_if_asked_for() -> None:
    stage = Placed()
    with MEMORY.connect(stage.server) as client:
        with (
            pytest.raises(LimitExceeded, match="more than 2 calls"),
            client.batch(max_size=2, oversize="refuse") as batch,
        ):
            places(batch, *"abc")
        assert all(future.cancelled() for future in batch.futures)
        client.ping()
    assert stage.places == {}


def test_a_server_that_takes_fewer_at_a_time_tells_every_call_of_the_frame() -> None:
    for wire in FRAMING:
        stage = Placed(max_size=2)
        with wire.connect(stage.server) as client:
            with client.batch() as batch:
                places(batch, *"abc")
            errors = [future.exception(PATIENCE) for future in batch.futures]
            assert [type(error) for error in errors] == [syncmcp.InvalidRequest] * 3, wire
            assert len({id(error) for error in errors}) == 3
            assert client.call_tool("echo", {"text": "goes on"}).text == "goes on"
        assert stage.places == {}


@with_frames
@pytest.mark.requirement("RPC-13")
def test_a_batch_that_makes_the_client_open_sends_its_calls_alone(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server, lazy=True) as opened:
        opened.close()
        client = Client(opened._core.settings.target, mode=BATCHING, lazy=True)
        with client.batch() as batch:
            places(batch, "a", "b")
        assert texts(batch.futures) == ["a", "b"]
        client.close()
    assert stage.places == {"a": None, "b": None}
    assert stage.stats.requests["initialize"] == 2


@pytest.mark.requirement("RPC-13")
def test_a_handshake_by_hand_stands_in_no_frame_either() -> None:
    stage = Placed()
    with MEMORY.connect(stage.server) as client:
        with client.batch() as batch:
            places(batch, "a", "b")
            again = batch.request("initialize", {})
        assert texts(batch.futures[:2]) == ["a", "b"]
        error = again.exception(PATIENCE)
        assert isinstance(error, InvalidParams)  # what the server says to one that goes alone
    assert stage.places == {"a": (0, 2), "b": (1, 2)}


@with_frames
def test_the_pages_after_the_first_go_alone(wire: Wire) -> None:
    server = Server("pages", page_size=1)
    frames: list[object] = []

    @server.tool()
    def place(context: ToolContext) -> None:
        frames.append(context.batch)

    server.tool(name="other")(place)
    with wire.connect(server) as client:
        with client.batch() as batch:
            tools, placed = batch.list_tools(), batch.call_tool("place")
        assert [tool.name for tool in tools.result(PATIENCE).tools] == ["place", "other"]
        placed.result(PATIENCE)
    assert frames == [(1, 2)]
    assert server.stats.requests["tools/list"] == 2


def test_calls_with_headers_of_their_own_go_alone() -> None:
    stage = Placed()
    with HTTP.connect(stage.server) as client:
        with client.batch() as batch:
            for key in "abc":
                headers = {"X-Key": key} if key == "b" else None
                batch.call_tool("place", {"key": key}, headers=headers)
        assert texts(batch.futures) == [*"abc"]
    alone = [key for key, place in stage.places.items() if place is None]
    assert alone in (["b"], ["a", "c"], ["c", "a"])  # whoever comes first leads the frame


@with_frames
def test_what_exceeds_the_calls_in_flight_goes_alone_and_later(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server, max_in_flight=2) as client:
        held = client.call_tool.future("hold", {"key": "held"})
        stage.inside("held")
        with client.batch() as batch:
            places(batch, *"abcde")
        assert texts(batch.futures) == [*"abcde"]
        stage.gate.set()
        held.result(PATIENCE)
    assert set(stage.places.values()) == {None}


@with_frames
def test_two_batches_at_the_same_time_do_not_wait_for_each_other(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server, max_in_flight=3) as client:
        with client.batch() as one, client.batch() as two:
            for number in range(8):
                places(one, f"one {number}")
                places(two, f"two {number}")
        assert texts(one.futures) == [f"one {number}" for number in range(8)]
        assert texts(two.futures) == [f"two {number}" for number in range(8)]


# -- in turn ---------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("wire", [MEMORY, HTTP], ids=str)
def test_in_turn_what_comes_after_the_time_of_the_batch_is_not_sent(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        with client.batch(parallel=False, timeout=0.05) as batch:
            batch.call_tool("hold", {"key": "held"})
            places(batch, "a", "b")
        errors = [future.exception(PATIENCE) for future in batch.futures]
        assert [type(error) for error in errors] == [RequestTimeout] * 3
        assert [getattr(error, "delivery", "") for error in errors[1:]] == ["not_sent"] * 2
    assert stage.places == {}


# -- how a block is left ---------------------------------------------------------------------------


def places_and_fails(batch: Batch) -> None:
    places(batch, "a", "b")
    raise ZeroDivisionError


@everywhere
@both_kinds
def test_a_block_left_by_an_exception_sends_nothing_and_cancels_the_futures(
    wire: Wire, parallel: bool
) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        batch = client.batch(parallel=parallel)
        with pytest.raises(ZeroDivisionError), batch:
            places_and_fails(batch)
        assert all(future.cancelled() for future in batch.futures)
        with pytest.raises(RequestCancelled):
            batch.futures[0].result()
        client.list_tools()
    assert stage.places == {}


def claim_and_fail(batch: Batch) -> None:
    batch.subscribe_resource("demo://a")
    raise ZeroDivisionError


def test_what_was_claimed_for_a_call_that_is_not_sent_is_given_back() -> None:
    stage = Stage()
    stage.server.resource("demo://a")(lambda: "a")
    with MEMORY.connect(stage.server) as client:
        batch = client.batch()
        with pytest.raises(ZeroDivisionError), batch:
            claim_and_fail(batch)
        assert client._core.session_state.resources.needed_uris() == []


@both_kinds
def test_what_was_claimed_for_a_call_that_was_cancelled_is_given_back(parallel: bool) -> None:
    stage = Stage()
    stage.server.resource("demo://a")(lambda: "a")
    with MEMORY.connect(stage.server) as client:
        with client.batch(parallel=parallel) as batch:
            batch.subscribe_resource("demo://a").cancel()
        assert client._core.session_state.resources.needed_uris() == []


def places_and_claims(batch: Batch) -> None:
    places(batch, "a", "b")
    batch.subscribe_resource("demo://a")


def test_ctrl_c_while_a_batch_is_sent_ends_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Placed()
    stage.server.resource("demo://a")(lambda: "a")
    with MEMORY.connect(stage.server) as client:
        batch = client.batch()
        second: list[object] = []

        def interrupted(*args: Any) -> None:
            if second:
                raise KeyboardInterrupt
            second.append(args)
            start(*args)

        start = batch_module._start
        monkeypatch.setattr(batch_module, "_start", interrupted)
        with pytest.raises(KeyboardInterrupt), batch:
            places_and_claims(batch)
        assert [future.cancelled() for future in batch.futures] == [True] * 3
        assert client._core.session_state.resources.needed_uris() == []
        client.ping()
    assert stage.places == {}


@both_kinds
def test_a_call_cancelled_within_the_block_is_not_sent(parallel: bool) -> None:
    stage = Placed()
    with MEMORY.connect(stage.server) as client:
        with client.batch(parallel=parallel) as batch:
            places(batch, "a", "b", "c")
            assert batch.futures[1].cancel()
        assert texts(future for future in batch.futures if not future.cancelled()) == ["a", "c"]
    assert set(stage.places) == {"a", "c"}
    assert stage.stats.cancels == []


def test_a_mistake_is_raised_at_the_call() -> None:
    stage = Stage()
    mistakes: list[tuple[type[Exception], Callable[[Any], object]]] = [
        (UsageError, lambda batch: batch.call_tool("")),
        (UsageError, lambda batch: batch.call_tool("a", timeout=-1)),
        (TypeError, lambda batch: batch.call_tool("a", colour="red")),
        (NotSupported, lambda batch: batch.list_prompts()),
        (UsageError, lambda batch: batch.request("a", result=7)),
        (UsageError, lambda batch: batch.ping().result()),
        (UsageError, lambda batch: batch.ping().exception()),
    ]
    wrong: list[dict[str, Any]] = [{"max_size": 0}, {"timeout": -1}, {"oversize": "what"}]
    with MEMORY.connect(stage.server) as client:
        for error, mistake in mistakes:
            with pytest.raises(error), client.batch() as batch:
                mistake(batch)
        for options in wrong:
            with pytest.raises(UsageError):
                client.batch(**options)


def test_calls_are_collected_within_the_block_alone_and_a_batch_is_used_once() -> None:
    stage = Stage()
    with MEMORY.connect(stage.server) as client:
        batch = client.batch()
        with pytest.raises(UsageError, match="within its `with` block"):
            batch.ping()
        with batch:
            batch.ping()
        with pytest.raises(UsageError, match="within its `with` block"):
            batch.ping()
        with pytest.raises(UsageError, match="used once"), batch:
            pass
        assert batch.futures[0].result(PATIENCE) is None


@everywhere
def test_the_client_may_be_opened_while_calls_are_collected(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server, lazy=True) as opened:
        opened.close()
        client = Client(opened._core.settings.target, mode=wire.revision, lazy=True)
        with client.batch() as batch:
            places(batch, "a", "b")
            client.list_tools()
        assert texts(batch.futures) == ["a", "b"]
        client.close()


def test_progress_cannot_be_waited_for_before_anything_is_sent() -> None:
    stage = Stage()
    with MEMORY.connect(stage.server) as client:
        with client.batch() as batch:
            future = batch.call_tool("count", {"steps": 2})
            with pytest.raises(UsageError, match="when the block of its batch is left"):
                next(future.progress(PATIENCE))
        assert [report.progress for report in future.progress(PATIENCE)] == [1, 2]


@both_kinds
def test_the_block_cannot_wait_for_its_own_calls_by_the_standard_library_either(
    parallel: bool,
) -> None:
    stage = Stage()
    with MEMORY.connect(stage.server) as client:
        with client.batch(parallel=parallel) as batch:
            future = batch.call_tool("echo", {"text": "sent"})
            other = client.call_tool.future("echo", {"text": "before"})
            ways: list[Callable[[], object]] = [
                lambda: concurrent.futures.wait([other, future]),
                lambda: concurrent.futures.wait([future], return_when="FIRST_COMPLETED"),
                lambda: list(concurrent.futures.as_completed([future, other])),
            ]
            for way in ways:
                with pytest.raises(UsageError, match="when the block of its batch is left"):
                    way()
            assert concurrent.futures.wait([other], PATIENCE).done == {other}
            dropped = batch.call_tool("echo", {"text": "never"})
            dropped.cancel()
            assert concurrent.futures.wait([dropped], PATIENCE).done == {dropped}
            assert len(list(concurrent.futures.as_completed([dropped, other], PATIENCE))) == 2
            waited: list[Any] = []
            waiting = threading.Thread(
                target=lambda: waited.append(concurrent.futures.wait([future], PATIENCE).done)
            )
            waiting.start()
        waiting.join(2 * PATIENCE)
        assert waited == [{future}]
        assert future.result(PATIENCE).text == "sent"
        assert list(concurrent.futures.as_completed([future], PATIENCE)) == [future]


def test_code_of_the_callers_that_collecting_runs_holds_no_other_thread_up() -> None:
    stage = Stage()
    other: list[threading.Thread] = []

    class Asking(MemoryCache):
        def get(self, key: str) -> CachedResult | None:
            if not other:  # what another thread collects does not wait for this
                other.append(threading.Thread(target=batch.call_tool, args=("echo", {"text": "b"})))
                other[0].start()
                other[0].join(PATIENCE)
                assert not other[0].is_alive()
            return super().get(key)

    with syncmcp.connect(stage.server, mode=STATELESS, cache=Asking()) as client:
        with client.batch() as batch:
            batch.list_tools()
        assert batch.futures[0].result(PATIENCE).text == "b"
        assert batch.futures[1].result(PATIENCE).tools


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
        with batch, pytest.raises(LimitExceeded if oversize else UsageError):
            batch.list_tools()


def test_another_thread_may_wait_for_what_is_not_sent_yet() -> None:
    stage = Stage()
    found: list[object] = []
    with MEMORY.connect(stage.server) as client:
        with client.batch() as batch:
            future = batch.call_tool("echo", {"text": "later"})
            waiting = threading.Thread(target=lambda: found.append(future.result(PATIENCE).text))
            waiting.start()
        waiting.join(PATIENCE)
    assert found == ["later"]


@both_kinds
def test_a_client_that_was_closed_within_the_block_fails_every_call(parallel: bool) -> None:
    stage = Stage()
    with MEMORY.connect(stage.server) as client:
        with client.batch(parallel=parallel) as batch:
            batch.ping()
            batch.ping()
            client.close()
        errors = [future.exception(PATIENCE) for future in batch.futures]
        assert [type(error) for error in errors] == [ClosedError] * 2


def test_a_batch_has_every_operation_of_a_client() -> None:
    known = {
        name for name, value in vars(operations).items() if type(value).__name__ == "Operation"
    }
    assert known == {
        name for name, value in vars(Batch).items() if type(value).__name__ == "Collected"
    }
    assert inspect.getdoc(Batch.call_tool) == inspect.getdoc(Client.call_tool)


# -- how calls end ---------------------------------------------------------------------------------


@with_frames
@pytest.mark.requirement("M-24")
def test_withdrawing_one_call_of_a_frame_leaves_the_others_alone(wire: Wire) -> None:
    stage = Placed(together=False)
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            one, other = (batch.call_tool("hold", {"key": key}) for key in "ab")
        stage.inside("a", "b")
        assert one.cancel()
        assert stage.stats.wait_for(lambda stats: len(stats.cancels) == 1)
        assert not other.done()
        stage.gate.set()
        assert other.result(PATIENCE).text == "b"
        assert stage.stats.wait_for(lambda stats: stats.running == 0)
    assert stage.stats.cancelled == 1


@with_frames
def test_each_call_of_a_frame_has_a_deadline_of_its_own(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            late = batch.call_tool("hold", {"key": "late"}, timeout=0.05)
            patient = batch.call_tool("hold", {"key": "patient"})
        error = late.exception(PATIENCE)
        assert isinstance(error, RequestTimeout)
        stage.gate.set()
        assert patient.result(PATIENCE).text == "patient"


@pytest.mark.requirement("M-24")
@pytest.mark.parametrize("wire", [*FRAMING, Wire("http", STATEFUL)], ids=str)
def test_the_time_of_a_batch_ends_all_of_its_calls(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        with client.batch(timeout=0.05) as batch:
            for key in "ab":
                batch.call_tool("hold", {"key": key})
        errors = [future.exception(PATIENCE) for future in batch.futures]
        assert [type(error) for error in errors] == [RequestTimeout] * 2
        assert stage.stats.wait_for(lambda stats: stats.running == 0)


@with_frames
def test_a_token_withdraws_its_calls_alone(wire: Wire) -> None:
    stage = Placed()
    token = CancelToken()
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            one = batch.call_tool("hold", {"key": "a"}, cancel=token)
            other = batch.call_tool("hold", {"key": "b"})
        stage.inside("a", "b")
        token.cancel("enough")
        error = one.exception(PATIENCE)
        assert isinstance(error, RequestCancelled)
        stage.gate.set()
        assert other.result(PATIENCE).text == "b"


@with_frames
def test_progress_of_each_call_reaches_it(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            short, long = (batch.call_tool("count", {"steps": steps}) for steps in (1, 3))
        assert [step.progress for step in short.progress(PATIENCE)] == [1]
        assert [step.progress for step in long.progress(PATIENCE)] == [1, 2, 3]


@with_frames
def test_closing_the_client_ends_every_call_of_a_frame(wire: Wire) -> None:
    stage = Placed()
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            for key in "ab":
                batch.call_tool("hold", {"key": key})
        stage.inside("a", "b")
        client.close()
        errors = [future.exception(PATIENCE) for future in batch.futures]
        assert [type(error) for error in errors] == [ClosedError] * 2
        assert len({id(error) for error in errors}) == 2
    stage.gate.set()


@pytest.mark.parametrize("response", ["json", "sse"])
@pytest.mark.parametrize("together", [True, False])
def test_answers_come_as_json_or_as_events(
    response: Literal["json", "sse"], together: bool
) -> None:
    stage = Placed(together=together)
    with (
        serve_http(stage.server, response=response) as http,
        syncmcp.connect(http.url, mode=BATCHING) as client,
    ):
        with client.batch() as batch:
            places(batch, *"abc")
        assert texts(batch.futures) == [*"abc"]
    assert stage.places["c"] == (2, 3)


def test_what_comes_early_on_a_stream_does_not_wait_for_the_rest() -> None:
    stage = Placed(together=False)
    with HTTP.connect(stage.server) as client:
        with client.batch() as batch:
            held = batch.call_tool("hold", {"key": "held"})
            places(batch, "quick")
        assert batch.futures[1].result(PATIENCE).text == "quick"
        assert not held.done()
        stage.gate.set()
        assert held.result(PATIENCE).text == "held"


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
def test_with_interceptors_each_call_of_a_batch_is_sent_alone(wire: Wire) -> None:
    stage = Placed()
    seen = Seen()
    with wire.connect(stage.server, interceptors=[seen]) as client:
        with client.batch() as batch:
            places(batch, "a", "b")
        assert texts(batch.futures) == ["a", "b"]
        assert stage.places == {"a": None, "b": None}
    kinds = sorted(seen.hooks("tools/call"))
    assert kinds == sorted(
        [("outgoing", "request"), ("incoming", "response"), ("ended", "response")] * 2
    )


@with_frames
def test_an_interceptor_that_blocks_holds_its_own_call_of_a_batch_only(wire: Wire) -> None:
    stage = Placed()
    gate = Gate()

    def hold(message: Any) -> None:
        if message.params["arguments"]["key"] == "stuck":
            gate(message)

    with wire.connect(stage.server, interceptors=[on_call("outgoing", hold)]) as client:
        with client.batch() as batch:
            stuck = batch.call_tool("place", {"key": "stuck"})
            places(batch, "a", "b")
        gate.reached()
        assert texts(batch.futures[1:]) == ["a", "b"]
        assert stage.places == {"a": None, "b": None}
        gate.open.set()
        assert stuck.result(PATIENCE).text == "stuck"


@with_frames
def test_a_call_that_an_interceptor_refuses_holds_no_other_call_of_a_batch(wire: Wire) -> None:
    stage = Placed()

    def refuse(message: Any) -> None:
        if message.params["arguments"]["key"] == "b":
            raise UsageError("not today")

    with wire.connect(stage.server, interceptors=[on_call("outgoing", refuse)]) as client:
        with client.batch() as batch:
            places(batch, *"abc")
        assert isinstance(batch.futures[1].exception(PATIENCE), UsageError)
        assert texts(batch.futures[::2]) == ["a", "c"]
    assert stage.places == {"a": None, "c": None}


# -- the test server -------------------------------------------------------------------------------


@pytest.mark.requirement("M-24")
@with_frames
def test_a_server_may_take_the_calls_of_a_batch_in_turn(wire: Wire) -> None:
    stage = Placed(parallel=False)
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            held = batch.call_tool("hold", {"key": "held"})
            places(batch, *"ab")
        stage.inside("held")
        assert stage.places == {}
        stage.gate.set()
        assert texts(batch.futures) == ["held", "a", "b"]
        assert held.done()


@pytest.mark.requirement("M-24")
@with_frames
def test_a_server_may_end_a_batch_that_takes_too_long(wire: Wire) -> None:
    stage = Placed(timeout=0.05)
    with wire.connect(stage.server) as client:
        with client.batch() as batch:
            late = [batch.call_tool("hold", {"key": key}) for key in "ab"]
        for future in late:
            error = future.exception(PATIENCE)
            assert isinstance(error, ServerError)
            assert (error.code, "batch took longer" in str(error)) == (-32603, True)
        assert stage.stats.wait_for(lambda stats: stats.running == 0)
