"""The steps of calls that become tasks, without a connection."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from syncmcp._protocol.capabilities import NO_OFFER
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.exchange import TaskPoller, exchange, single_exchange
from syncmcp._protocol.revisions import REVISIONS, dialect_for, unavailable_requests
from syncmcp._protocol.steps import AnswerInput, InputQuestion, Pause, Send, SendAndForget
from syncmcp._protocol.tasks import (
    DEFAULT_INTERVAL,
    EXTENSION,
    MAX_INTERVAL,
    MIN_INTERVAL,
    RELATED_TASK_KEY,
    TaskState,
    cancelled_error,
    created_task_id,
    failed_error,
    related_task_id,
    with_related_task,
)
from syncmcp.errors import (
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    Denied,
    HttpError,
    InvalidParams,
    McpError,
    OutcomeUnknown,
    ProtocolError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    TooManyRounds,
)
from tests.protocol.played import NEWEST, Answerer, Played

CORE = "2025-11-25"
PARAMS: dict[str, Any] = {"name": "render"}
AS_TASK = {**PARAMS, "task": {}}
RESULT: dict[str, Any] = {"content": []}
ID = {"taskId": "t1"}
FORM = {"method": "elicitation/create", "params": {"message": "who?"}}
MODEL = {"method": "sampling/createMessage", "params": {}}
REFUSED = InvalidParams("there is no result", code=-32602)


def told(status: str, **more: Any) -> dict[str, Any]:
    return {"taskId": "t1", "status": status, **more}


def asking(**questions: Any) -> dict[str, Any]:
    return told("input_required", inputRequests=questions)


def poller(params: dict[str, Any] = PARAMS) -> TaskPoller:
    return TaskPoller("t1", params, None, 10)


DONE = told("completed", result=RESULT)
ENABLED = dialect_for(NEWEST, None, {EXTENSION: {}})


def begun(revision: str, status: str = "working", **more: Any) -> dict[str, Any]:
    """Return the answer to a call that became a task."""
    if revision == CORE:
        return {"task": told(status, **more)}
    return {"resultType": "task", **told(status, **more)}


def _agree(ask: AnswerInput) -> dict[str, Any]:
    return {key: {"to": key} for key in ask.questions}


def playing(
    steps: Any, *outcomes: Any, answer: Answerer = _agree, revision: str = NEWEST
) -> Played:
    return Played(steps, *outcomes, answer=answer, revision=revision, tasks=True)


def core(*outcomes: Any) -> Played:
    """Return a call of 2025-11-25 that asks for a task."""
    return playing(exchange("tools/call", AS_TASK), *outcomes, revision=CORE)


def extension(*outcomes: Any, answer: Answerer = _agree) -> Played:
    """Return a call of 2026-07-28 that may become a task."""
    return playing(exchange("tools/call", PARAMS), *outcomes, answer=answer)


def updates(played: Played) -> list[Any]:
    """Return the answers that were sent to the questions of the task."""
    sent = [params for method, params in played.requests if method == "tasks/update"]
    assert all(params.keys() == {"taskId", "inputResponses"} for params in sent)
    assert all(params["taskId"] == "t1" for params in sent)
    return [params["inputResponses"] for params in sent]


def test_a_task_is_looked_at_until_it_has_ended_and_its_result_is_fetched_then() -> None:
    states = (told("working", pollInterval=500), told("unheard_of"), told("completed"))
    played = core(begun(CORE, pollInterval=2000), *states, RESULT)
    assert played.run() is RESULT
    looks = [("tasks/get", ID)] * 3
    assert played.requests == [("tools/call", AS_TASK), *looks, ("tasks/result", ID)]
    assert played.pauses == [2.0, 0.5, DEFAULT_INTERVAL]


@pytest.mark.parametrize("status", ["completed", "failed", "input_required"])
def test_what_wants_something_of_us_is_looked_at_without_delay(status: str) -> None:
    played = core(begun(CORE, status), told(status), RESULT)
    assert played.run() is RESULT
    assert played.pauses == []


def test_where_input_is_needed_the_result_is_waited_for_and_tells_the_end() -> None:
    for result, status in ((RESULT, "completed"), ({"isError": True}, "failed")):
        course = poller(AS_TASK)
        course.on_state = Mock()
        played = playing(course.poll_until_done(), told("input_required"), result, revision=CORE)
        assert played.run() is result
        seen = [call.args[0].status for call in course.on_state.mock_calls]
        assert seen == ["input_required", status]
        assert course.ended
        assert course.state is not None
        assert course.state.raw == told(status)


def test_a_task_that_was_cancelled_has_no_result() -> None:
    said = told("cancelled", statusMessage="no paper")
    error = core(begun(CORE), said).fail(RequestCancelled)
    assert (error.reason, error.delivery, error.method) == ("no paper", "unknown", "tools/call")
    for more in ({}, {"statusMessage": 5}):
        assert core(begun(CORE), told("cancelled", **more)).fail(RequestCancelled).reason is None
    # The same holds while the client waits for the result.
    played = core(begun(CORE, "input_required"), told("input_required"), REFUSED, told("cancelled"))
    assert played.fail(RequestCancelled).__cause__ is REFUSED
    # A program that cancels the task knows its end before the result is refused.
    course = poller(AS_TASK)
    steps = course.poll_until_done()
    next(steps)
    steps.send(Reply(told("input_required"), dialect_for(CORE, None)))
    course.update(TaskState("t1", "cancelled", 1.0, told("cancelled")))
    with pytest.raises(RequestCancelled):
        steps.throw(REFUSED)


def test_a_call_that_fails_while_its_result_is_waited_for_is_looked_at_once_more() -> None:
    unknown = InvalidParams("no such task", code=-32602)
    for now, over in ((told("failed"), True), (told("input_required"), False), (unknown, False)):
        course = poller(AS_TASK)
        steps = course.poll_until_done()
        played = playing(steps, told("input_required"), REFUSED, now, revision=CORE)
        assert played.fail(InvalidParams) is REFUSED
        assert course.ended is over


def test_a_call_that_asks_for_a_task_may_be_answered_plainly() -> None:
    assert core({"content": [], "task": {"taskId": "x"}}).run()["content"] == []
    # In older revisions, no call becomes a task.
    said = {"task": told("working")}
    for revision in {*REVISIONS} - {CORE, NEWEST}:
        assert playing(exchange("tools/call", PARAMS), said, revision=revision).run() == said
        assert dialect_for(revision, None).tasks is None


@pytest.mark.parametrize("said", [None, 5, {}, {"taskId": "t1"}, {"taskId": "", "status": "x"}])
def test_a_task_that_is_none_is_a_mistake_of_the_server(said: Any) -> None:
    state = said if isinstance(said, dict) else {}
    for played, method in (
        (core({"task": said}), "tools/call"),
        (extension(begun(NEWEST), state), "tasks/get"),
    ):
        error = played.fail(ProtocolError)
        assert (error.message, error.method) == ("the task object has no id or no status", method)


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [
        *((0, MIN_INTERVAL), (-5, MIN_INTERVAL), (1500, 1.5), (2.5, MIN_INTERVAL)),
        *((1e12, MAX_INTERVAL), pytest.param(10**400, MAX_INTERVAL, id="huge")),
        *(pytest.param(-(10**400), MIN_INTERVAL, id="tiny"), (float("nan"), DEFAULT_INTERVAL)),
        *(("soon", DEFAULT_INTERVAL), (None, DEFAULT_INTERVAL)),
    ],
)
def test_a_wish_for_an_interval_is_kept_within_reason(stated: Any, seconds: float) -> None:
    played = core(begun(CORE, pollInterval=stated), told("completed"), RESULT)
    played.run()
    assert played.pauses == [seconds]


def test_the_result_of_a_task_is_part_of_its_state() -> None:
    played = extension(begun(NEWEST, pollIntervalMs=20), told("working"), DONE)
    assert played.run() is RESULT
    assert played.requests == [("tools/call", PARAMS), *[("tasks/get", ID)] * 2]
    assert played.pauses == [0.02, DEFAULT_INTERVAL]


def test_a_state_that_lacks_what_it_should_say_is_a_mistake_of_the_server() -> None:
    for state, message in (
        *((told("completed", result=each), "the result is not an object") for each in (None, 5)),
        (told("completed", result=begun(NEWEST)), "the result of a task is not a final result"),
        *(
            (told("failed", error=each), "the task failed, and the server does not say how")
            for each in (None, "x", {"code": "x", "message": "x"}, {"code": 1})
        ),
        (told("input_required", inputRequests=None), "the questions of an input request"),
        (told("input_required", inputRequests=[]), "the questions of an input request"),
        (told("input_required", inputRequests={"a": 5}), "an input request"),
        (told("input_required", inputRequests={"a": {"method": 5}}), "an input request"),
    ):
        played = extension(begun(NEWEST), state)
        error = played.fail(ProtocolError)
        assert error.message.startswith(message)
        assert error.method == ("tools/call" if "an object" in message else "tasks/get")
        # A task that has ended is not cancelled.
        assert bool(played.posted) is (state["status"] == "input_required")


def test_a_failed_task_raises_the_error_of_its_call_and_a_cancelled_one_is_cancelled() -> None:
    said = told("failed", error={"code": -32602, "message": "no such colour", "data": 1})
    error = extension(begun(NEWEST), said).fail(InvalidParams)
    assert (error.message, error.data, error.method) == ("no such colour", 1, "tools/call")
    extension(begun(NEWEST), told("cancelled")).fail(RequestCancelled)


def test_a_question_that_is_seen_again_is_not_asked_again() -> None:
    first, both = asking(a=FORM), asking(a=FORM, b=FORM)
    played = extension(begun(NEWEST), first, {}, first, both, {}, DONE)
    assert played.run() is RESULT
    question = InputQuestion("elicitation/create", {"message": "who?"})
    assert played.questions == [{"a": question}, {"b": question}]
    assert [ask.params for ask in played.asked] == [PARAMS, PARAMS]
    assert updates(played) == [{"a": {"to": "a"}}, {"b": {"to": "b"}}]
    # An answer that did not reach the server is sent again, without a new question.
    course = poller()
    playing(course.poll_until_done(), first, ConnectionLost("gone")).fail(ConnectionLost)
    again = playing(course.poll_until_done(), first, {}, DONE)
    assert again.run() is RESULT
    assert again.questions == []
    assert updates(again) == [{"a": {"to": "a"}}]


@pytest.mark.parametrize(
    "error", [RequestCancelled("enough"), RequestTimeout("late"), Denied("no", by="person")]
)
def test_a_question_is_asked_the_next_time_unless_it_was_refused(error: McpError) -> None:
    course = poller()
    asks = asking(a=FORM)
    playing(course.poll_until_done(), asks, answer=lambda ask: error).fail(type(error))
    if isinstance(error, Denied):
        again = playing(course.poll_until_done(), asks)
        again.fail(Denied)
        assert again.questions == []
    else:
        again = playing(course.poll_until_done(5.0), asks, {}, DONE)
        again.run()
        assert len(again.questions) == 1
        # Each request of a poll has its own limit.
        assert [one.timeout for one in again.effects if isinstance(one, Send)] == [5.0, 5.0, 5.0]


def test_a_server_that_never_stops_asking_is_stopped() -> None:
    asks = [asking(**{str(number): FORM}) for number in range(11)]
    outcomes = [one for each in asks[:10] for one in (each, {})]
    error = extension(begun(NEWEST), *outcomes, asks[10]).fail(TooManyRounds)
    assert error.rounds == 10
    assert error.__cause__.questions == {"10": FORM}
    # `single_exchange` polls a task to its end, too, with the same limit of rounds.
    by_hand = single_exchange("tools/call", PARAMS, NO_OFFER, max_rounds=1)
    played = playing(by_hand, begun(NEWEST), asks[0], {}, asks[1])
    played.fail(TooManyRounds)
    assert [ask.params for ask in played.asked] == [PARAMS]
    by_hand = single_exchange("tools/call", PARAMS, NO_OFFER)
    assert playing(by_hand, begun(NEWEST), DONE).run() is RESULT


def test_a_task_asks_nobody_twice_for_the_same_link() -> None:
    link = {"mode": "url", "url": "https://example.com/", "message": "go"}
    one, other = (asking(**{key: {**FORM, "params": link}}) for key in "ab")
    accepted = {"action": "accept"}
    played = extension(begun(NEWEST), one, {}, other, {}, DONE, answer=lambda _: {"a": accepted})
    assert played.run() == RESULT
    assert len(played.questions) == 1
    assert updates(played) == [{"a": accepted}, {"b": accepted}]


@pytest.mark.requirement("TSX-02")
@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "tools/list", "tasks/get"])
def test_only_a_tool_call_becomes_a_task(method: str) -> None:
    for steps in (exchange(method), single_exchange(method, None, NO_OFFER)):
        error = playing(steps, begun(NEWEST)).fail(ProtocolError)
        assert "must not run this request as a task" in error.message


@pytest.mark.requirement("RPC-17", "TSX-01")
def test_without_the_extension_a_task_is_a_result_of_an_unknown_kind() -> None:
    plain = dialect_for(NEWEST, None)
    with pytest.raises(ProtocolError, match="unknown type, 'task'"):
        plain.read_result("tools/call", begun(NEWEST))
    assert isinstance(ENABLED.read_result("tools/call", begun(NEWEST)), TaskState)
    assert ENABLED.read_result("tools/call", RESULT) is RESULT
    with pytest.raises(ProtocolError, match="unknown type, 'song'"):
        ENABLED.read_result("tools/call", {"resultType": "song"})


@pytest.mark.parametrize("revision", [CORE, NEWEST])
@pytest.mark.parametrize("error", [RequestCancelled("enough"), RequestTimeout("late")])
def test_a_call_that_is_given_up_has_its_task_cancelled(revision: str, error: McpError) -> None:
    play = core if revision == CORE else extension
    played = play(begun(revision), told("working"), error)
    ended = played.fail(type(error))
    assert (ended.method, ended.delivery) == ("tools/call", "unknown")
    assert played.posted == [SendAndForget("tasks/cancel", ID)]
    # So does a call whose question is refused.
    denied = Denied("no", by="person")
    played = extension(begun(NEWEST), asking(a=FORM), answer=lambda ask: denied)
    played.fail(Denied)
    assert played.posted == [SendAndForget("tasks/cancel", ID)]


def test_a_server_that_is_gone_or_knows_better_is_told_nothing() -> None:
    gone, no = ConnectFailed("gone"), ServerError("no", code=-1)
    for error, kind in ((gone, OutcomeUnknown), (no, ServerError)):
        played = extension(begun(NEWEST), error)
        played.fail(kind)
        assert played.posted == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectFailed("gone", delivery="not_sent"), OutcomeUnknown),
        (ConnectionLost("gone", delivery="not_sent"), OutcomeUnknown),
        (HttpError("busy", status=503, delivery="refused"), HttpError),
        (ClosedError("closed", delivery="not_sent"), ClosedError),
    ],
)
@pytest.mark.parametrize("revision", [CORE, NEWEST])
def test_a_task_that_cannot_be_looked_at_any_more_was_started_all_the_same(
    revision: str, error: McpError, kind: type[McpError]
) -> None:
    error.__cause__ = OSError("no route")
    play = core if revision == CORE else extension
    played = play(begun(revision), error)
    ended = played.fail(kind)
    assert (ended.message, ended.method, ended.delivery) == (error.message, "tools/call", "unknown")
    assert isinstance(ended.__cause__, OSError)
    assert played.posted == []


ASKS, MORE = asking(a=FORM, b=MODEL), asking(a=FORM, b=MODEL, c=MODEL)


def withdrawn(*outcomes: Any, withdraws: int = 1) -> Played:
    """Return a task whose first `withdraws` rounds of questions are withdrawn."""
    course = poller()
    course.withdraw_on = lambda end: end

    def answer(ask: AnswerInput) -> Any:
        assert ask.withdraw_on is course.withdraw_on
        nonlocal withdraws
        withdraws -= 1
        return _agree(ask) if withdraws < 0 else None

    return playing(course.poll_until_done(), ASKS, *outcomes, answer=answer)


def test_a_question_that_is_withdrawn_leads_to_the_true_end_at_once() -> None:
    played = withdrawn(DONE, DONE)
    assert played.run() is RESULT
    assert (len(played.questions), played.pauses, updates(played)) == (1, [], [])
    error = withdrawn(told("cancelled"), told("cancelled")).fail(RequestCancelled)
    assert error.message == "the task was cancelled"


@pytest.mark.requirement("TSX-04")
def test_a_question_that_is_withdrawn_is_not_asked_again_and_a_new_one_is() -> None:
    played = withdrawn(told("working"), MORE, {}, DONE)
    assert played.run() is RESULT
    assert [list(each) for each in played.questions] == [["a", "b"], ["c"]]
    # The withdrawn form is cancelled, and the new question is answered.
    assert updates(played) == [{"a": {"action": "cancel"}, "c": {"to": "c"}}]
    # A question that is not open any more is not answered.
    played = withdrawn(told("working"), asking(c=MODEL), {}, DONE)
    assert played.run() is RESULT
    assert updates(played) == [{"c": {"to": "c"}}]
    # If the server still asks after some polls, the client cancels the form.
    played = withdrawn(ASKS, ASKS, {}, ASKS, DONE)
    assert played.run() is RESULT
    assert updates(played) == [{"a": {"action": "cancel"}}]
    assert len(played.pauses) == 3


def test_what_withdraws_a_question_is_what_did_so_before_the_look_that_found_it() -> None:
    course = poller()
    before = course.withdraw_on = lambda end: end
    steps = course.poll_until_done()
    assert next(steps) == Send("tasks/get", ID)
    course.withdraw_on = lambda end: end  # withdrawn during the poll
    ask = steps.send(Reply(ASKS, ENABLED))
    assert isinstance(ask, AnswerInput)
    assert ask.withdraw_on is before
    steps.close()


@pytest.mark.parametrize(
    ("revision", "outcomes", "count"),
    [(CORE, [ASKS, REFUSED, ASKS], 2), (NEWEST, [ASKS, ASKS, ASKS, REFUSED, ASKS], 4)],
)
def test_every_look_has_the_limit_that_was_given(
    revision: str, outcomes: list[Any], count: int
) -> None:
    steps = poller().poll_until_done(5.0)
    played = playing(steps, *outcomes, answer=lambda ask: None, revision=revision)
    played.fail(InvalidParams)
    looks = [one for one in played.effects if isinstance(one, Send) and one.method == "tasks/get"]
    assert [look.timeout for look in looks] == [5.0] * count


def test_an_answer_that_comes_when_the_task_has_ended_is_no_error() -> None:
    refused = InvalidParams("no such colour", code=-32602)
    played = withdrawn(refused, DONE, DONE, withdraws=0)
    assert played.run() is RESULT
    assert len(played.questions) == 1
    cancelled = told("cancelled")
    withdrawn(refused, cancelled, cancelled, withdraws=0).fail(RequestCancelled)
    # It is an error while the server still asks.
    assert withdrawn(refused, ASKS, withdraws=0).fail(InvalidParams) is refused


def test_who_wants_the_task_gets_it_after_the_questions_before_it() -> None:
    asks = {"resultType": "input_required", "inputRequests": {"a": FORM}}
    steps = exchange("tools/call", PARAMS, polls_task=False)
    state: Any = playing(steps, asks, begun(NEWEST, pollIntervalMs=10)).run()
    assert (state.id, state.status, state.interval) == ("t1", "working", 0.01)


def test_by_hand_the_first_look_comes_after_the_pause_that_the_server_wants() -> None:
    steps = single_exchange("tools/call", PARAMS, NO_OFFER)
    played = playing(steps, begun(NEWEST, pollIntervalMs=20), DONE)
    assert played.run() is RESULT
    assert played.pauses == [0.02]


def test_what_withdraws_the_questions_of_a_task_ends_the_pause_before_the_next_look() -> None:
    at_first, then = (lambda end: end), (lambda end: end)
    course = poller()
    course.withdraw_on = at_first
    steps = course.poll_until_done()
    working = Reply(told("working"), ENABLED)
    assert next(steps) == Send("tasks/get", ID)
    assert steps.send(working) == Pause(1.0, at_first)
    course.next_withdraw_on = then  # a cancel ends only this pause, not the next one
    assert steps.send(None) == Send("tasks/get", ID)
    assert steps.send(working) == Pause(1.0, then)
    steps.close()


class MeanwhileEnded:
    """A lock; while one thread waits for it, another thread records the end of the task."""

    def __init__(self, course: TaskPoller) -> None:
        self._course = course
        self._entered = False

    def __enter__(self) -> None:
        if not self._entered:
            self._entered = True
            self._course.update(TaskState("t1", "completed", 1.0, told("completed")))

    def __exit__(self, *_: object) -> None:
        pass


def test_nothing_comes_after_the_end_of_a_task() -> None:
    course = poller()
    assert ENABLED.tasks
    for status in ("completed", "working"):
        course.update(ENABLED.tasks.read("tasks/get", told(status)))
    assert course.state
    assert course.state.status == "completed"
    # Nor after an end that another thread records at the same moment.
    course, seen = poller(), []
    course.on_state = lambda state: seen.append(state.status)
    course.lock = MeanwhileEnded(course)
    course.update(TaskState("t1", "working", 1.0, told("working")))
    assert seen == ["completed"]
    assert course.ended


@pytest.mark.requirement("TSX-06", "TSX-07")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_requests_about_tasks_name_the_task_and_declare_the_extension(method: str) -> None:
    params = ENABLED.request_params(method, {"taskId": "tä"}, 1, None, None)
    assert params is not None
    declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"]
    assert declared == {EXTENSION: {}}
    assert "progressToken" not in params["_meta"]
    assert ENABLED.headers(method, params)["Mcp-Name"] == "=?base64?dMOk?="


@pytest.mark.requirement("VER-18")
def test_the_gate_of_the_extension_has_two_sides() -> None:
    theirs = unavailable_requests(ENABLED, {})["tasks/get"]
    assert theirs.undeclared
    assert f"capability extensions.{EXTENSION} (" in theirs.reason
    assert "tasks/get" not in unavailable_requests(ENABLED, {"extensions": {EXTENSION: {}}})
    ours = unavailable_requests(dialect_for(NEWEST, None), {"extensions": {EXTENSION: {}}})[
        "tasks/get"
    ]
    assert not ours.undeclared
    assert "tasks is not enabled" in ours.reason


def test_messages_say_which_task_they_belong_to_and_results_which_they_created() -> None:
    marked = with_related_task({"content": [], "_meta": {"a": 1}}, "t1")
    assert marked == {"content": [], "_meta": {"a": 1, RELATED_TASK_KEY: ID}}
    assert related_task_id(marked) == "t1"
    assert with_related_task({}, "t1") == {"_meta": {RELATED_TASK_KEY: ID}}
    unmarked: dict[str, Any] = {"content": []}
    assert with_related_task(unmarked, None) is unmarked
    for odd in (5, {RELATED_TASK_KEY: 5}, {RELATED_TASK_KEY: {"taskId": 5}}):
        assert related_task_id({"_meta": odd}) is None
    assert related_task_id({}) is None
    assert created_task_id(begun(CORE)) == "t1"
    for result in (RESULT, {"task": 5}, {"task": {"taskId": 5}}):
        assert created_task_id(result) is None


def test_an_error_about_a_cancelled_task_quotes_little_of_its_message() -> None:
    error = cancelled_error(TaskState("t", "cancelled", 1, {"statusMessage": "x" * 100_000}))
    assert len(error.message) < 2 * 16 * 1024


def test_the_error_of_a_failed_task_has_the_hint_of_its_kind() -> None:
    data: dict[str, Any] = {"requiredCapabilities": {"roots": {}}}
    error = failed_error({"code": -32021, "message": "no roots", "data": data})
    assert error.hint == "pass the client a handler: roots="
