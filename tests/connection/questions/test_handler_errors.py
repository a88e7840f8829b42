"""What a handler does wrong, and how the program learns of it without reading a log."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from pydantic import ValidationError

import syncmcp
from syncmcp import (
    Client,
    ClientGroup,
    HandlerContext,
    InvalidAnswer,
    Mode,
    Refused,
    UsageError,
    tasks,
)
from syncmcp._connection.questions import InboundRequest, QuestionRegistry
from syncmcp.approval import DenyAll, Verdict
from syncmcp.testing import Server, ToolContext
from syncmcp.types import ElicitResult
from tests.connection.questions.asking import (
    ELICITATION,
    FORM,
    PROMPT,
    ROOTS,
    SAMPLING,
    asked,
    asker,
    asking_server,
    demanded,
    fault,
    model,
    person,
    through,
)
from tests.support.people import Held, Obedient
from tests.support.scripts import NEW, OLD
from tests.support.stage import (
    PATIENCE,
    Clock,
    Wire,
    is_gone,
    rotated,
    rotated_stateful,
    rotated_stateless,
    tick,
)

BOTH = pytest.mark.parametrize("revision", [OLD, NEW])

# FORM wants a name, and a yes or no.
UNFIT = ElicitResult.model_construct(action="accept", content={"loud": "swordfish"})


class Told:
    """An `on_handler_error` that keeps what it was told."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.contexts: list[HandlerContext] = []
        self.came = threading.Event()

    def __call__(self, error: BaseException, context: HandlerContext) -> None:
        self.errors.append(error)
        self.contexts.append(context)
        self.came.set()


def unfit(request: Any, context: Any) -> ElicitResult:
    """Fills in the form wrong."""
    return UNFIT


def failing(*_: Any) -> NoReturn:
    """Fails."""
    raise LookupError("swordfish")


def leaving(*_: Any) -> NoReturn:
    """Ends the program, or tries to."""
    raise SystemExit(3)


def undecided(*_: Any) -> ElicitResult:
    """Gives an answer that there is not."""
    return ElicitResult(action="perhaps")  # type: ignore[arg-type]


@rotated
@pytest.mark.requirement("ELI-14", "M-06")
def test_the_program_is_told_of_an_answer_that_does_not_fit_its_form(wire: Wire) -> None:
    told, server = Told(), asking_server()
    with wire.connect(server, name="asker", elicitation=unfit, on_handler_error=told) as client:
        code, text = -32603, "the client failed to answer"
        if wire.revision == NEW:
            with pytest.raises(InvalidAnswer):
                asked(client, ELICITATION, FORM)
        else:
            assert asked(client, ELICITATION, FORM)["error"] == [code, text, None]
        (error,), (context,) = told.errors, told.contexts  # before the call had its result
        assert isinstance(error, InvalidAnswer)
        assert error.problems == {"loud": "Answer yes or no.", "name": "This needs an answer."}
        assert context.method == ELICITATION
        assert context.server.name == "asker"
        assert context.client is client
        assert client.call_tool("echo", {"text": "alive"}).text == "alive"
    with server.stats as stats:
        assert stats.violations == []


@rotated_stateless.with_rows("way", ["blocking", "future"])
@pytest.mark.requirement("ELI-14")
def test_in_the_stateless_era_the_call_raises_what_is_wrong_with_the_answer(
    wire: Wire, way: str
) -> None:
    with (
        wire.connect(asking_server(), name="asker", elicitation=unfit) as client,
        pytest.raises(InvalidAnswer) as caught,
    ):
        through(client, way, "ask", {"method": ELICITATION, "params": FORM})
    error = caught.value
    assert error.problems == {"loud": "Answer yes or no.", "name": "This needs an answer."}
    assert (error.server, error.method) == ("asker", "tools/call")
    assert "does not fit the form: name: This needs an answer. loud: " in str(error)
    assert "swordfish" not in f"{error}{error.problems}"
    assert isinstance(error.__cause__, InvalidAnswer)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.problems) == (str(error), error.problems)


@pytest.mark.requirement("ELI-14")
def test_an_unfit_answer_to_another_call_is_not_taken_for_one_to_this() -> None:
    """The handler's own call fails, and the handler with it."""

    def calling(request: Any, context: HandlerContext) -> ElicitResult:
        if context.call is not None and context.call.params == inner:
            return UNFIT
        context.client.call_tool(**inner)
        return person(request, context)

    inner: dict[str, Any] = {
        "name": "ask",
        "arguments": {"method": ELICITATION, "params": {**FORM, "message": "Again?"}},
    }
    told = Told()
    with asker(NEW, elicitation=calling, on_handler_error=told) as client:
        with pytest.raises(Refused) as caught:
            asked(client, ELICITATION, FORM)
        assert caught.value.code == -32603
        assert isinstance(caught.value.__cause__, InvalidAnswer)
        assert [type(error) for error in told.errors] == [InvalidAnswer] * 2


@BOTH
def test_an_answer_that_was_changed_by_a_reviewer_is_checked_like_the_handlers(
    revision: Mode,
) -> None:
    class Editor:
        def review(self, question: Any, /) -> Verdict:
            answer = None if question.answer is None else UNFIT
            return Verdict.allow(answer=answer)

    told = Told()
    with asker(
        revision,
        elicitation=person,
        approval=syncmcp.Approval(reviewer=Editor()),
        on_handler_error=told,
    ) as client:
        if revision == OLD:
            assert fault(client, ELICITATION, FORM)[0] == -32603
        else:
            with pytest.raises(InvalidAnswer):
                asked(client, ELICITATION, FORM)
    assert [type(error) for error in told.errors] == [InvalidAnswer]


def test_an_unfit_answer_by_hand_is_the_same_error() -> None:
    server = asking_server()
    with syncmcp.connect(server, mode=NEW) as client:
        pending = client.begin_tool("ask", {"method": ELICITATION, "params": FORM})
        assert isinstance(pending, syncmcp.InputRequired)
        (key,) = pending.questions
        with pytest.raises(InvalidAnswer, match="does not fit the form") as caught:
            client.resume(pending, {key: UNFIT})
        assert list(caught.value.problems) == ["name", "loud"]
        with server.stats as stats:
            assert stats.requests["tools/call"] == 1


WRONG: dict[str, tuple[str, Any, dict[str, Any], type[BaseException]]] = {
    "the model fails": (SAMPLING, PROMPT, {"sampling": failing}, LookupError),
    "the model ends the program": (SAMPLING, PROMPT, {"sampling": leaving}, SystemExit),
    "the model says something else": (SAMPLING, PROMPT, {"sampling": lambda *_: 7}, UsageError),
    "the form fails": (ELICITATION, FORM, {"elicitation": failing}, LookupError),
    "the form is answered by nothing": (
        ELICITATION,
        FORM,
        {"elicitation": lambda *_: None},
        UsageError,
    ),
    "the form is answered oddly": (ELICITATION, FORM, {"elicitation": undecided}, ValidationError),
    "the roots fail": (ROOTS, {}, {"roots": failing}, LookupError),
    "the roots are none": (ROOTS, {}, {"roots": lambda _: ["https://x.org"]}, UsageError),
}


@BOTH
@pytest.mark.parametrize("case", WRONG)
def test_the_program_is_told_of_whatever_a_handler_does_wrong(case: str, revision: Mode) -> None:
    method, params, handlers, expected = WRONG[case]
    told = Told()
    with asker(revision, on_handler_error=told, **handlers) as client:
        assert fault(client, method, params)[0] == -32603
        assert [type(error) for error in told.errors] == [expected]
        assert told.contexts[0].method == method


def refusing(*_: Any) -> NoReturn:
    """Refuses."""
    raise Refused(-1, "no")


@BOTH
@pytest.mark.requirement("M-06")
def test_a_refusal_is_no_error_of_a_handler(revision: Mode) -> None:
    told = Told()
    answers: list[dict[str, Any]] = [
        {"sampling": refusing},
        {"sampling": model, "approval": DenyAll()},
        {"sampling": model},
    ]
    for each in answers:
        with asker(revision, on_handler_error=told, **each) as client:
            if "approval" in each or each["sampling"] is refusing:
                assert fault(client, SAMPLING, PROMPT)[0] in (-1, None)
            else:
                asked(client, SAMPLING, PROMPT)
    assert told.errors == []


@rotated_stateful
def test_the_program_is_told_of_handlers_of_its_own_requests(wire: Wire) -> None:
    told = Told()
    with wire.connect(asking_server(), on_handler_error=told) as client:
        client.on_request("acme/fails", failing)
        assert demanded(client, "acme/fails")["error"][0] == -32603
        assert [type(error) for error in told.errors] == [LookupError]
        told.came.clear()
        client.on_request("acme/odd", lambda *_: {"it": object()})
        assert demanded(client, "acme/odd")["error"][0] == -32603
        assert told.came.wait(PATIENCE)  # what is no JSON is found out when it is written
        assert "JSON" in str(told.errors[-1])
        assert [context.method for context in told.contexts] == ["acme/fails", "acme/odd"]


class TooLate(Exception):
    """What is raised when nobody waits for it."""


@BOTH
def test_one_that_fails_after_nobody_wants_its_answer_is_not_told_of(revision: Mode) -> None:
    gone: list[Callable[[], bool]] = []

    def late(request: Any, context: HandlerContext) -> NoReturn:
        obedient(request, context)
        error = TooLate()
        gone.append(is_gone(error))
        raised.set()
        raise error

    obedient, told, raised = Obedient(), Told(), threading.Event()
    with asker(revision, sampling=late, on_handler_error=told) as client:
        call = client.call_tool.future("ask", {"method": SAMPLING, "params": PROMPT})
        obedient.entered()
        call.cancel()
        obedient.obeyed()
        assert raised.wait(PATIENCE)
        (dropped,) = gone
        assert dropped()
    assert told.errors == []


@BOTH
@pytest.mark.parametrize("problem", [LookupError("of the callback"), SystemExit(3)], ids=repr)
def test_an_error_of_the_callback_is_logged_and_the_server_is_answered(
    problem: BaseException, revision: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: BaseException, context: HandlerContext) -> NoReturn:
        raise problem

    with (
        caplog.at_level(logging.ERROR, "syncmcp.handlers"),
        asker(revision, sampling=failing, on_handler_error=fail) as client,
    ):
        assert fault(client, SAMPLING, PROMPT)[0] == -32603
        assert client.call_tool("echo", {"text": "alive"}).text == "alive"
    assert "on_handler_error failed" in caplog.text


@BOTH
def test_it_may_call_the_client_and_the_answer_waits_for_it(revision: Mode) -> None:
    heard: list[str] = []

    def tell(error: BaseException, context: HandlerContext) -> None:
        heard.append(context.client.call_tool("echo", {"text": "told"}).text)

    with asker(revision, sampling=failing, on_handler_error=tell, max_handlers=1) as client:
        fault(client, SAMPLING, PROMPT)
        assert heard == ["told"]


@pytest.mark.requirement("M-20")
def test_while_it_takes_its_time_the_server_is_not_kept_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, held = Clock(monkeypatch, "syncmcp._concurrency.timing"), Held(lambda: None)
    limits: dict[str, Any] = {"human_timeout": 100.0, "timeout": None, "idle_timeout": None}
    with asker(OLD, elicitation=failing, on_handler_error=held, **limits) as client:
        call = client.call_tool.future("ask", {"method": ELICITATION, "params": FORM})
        held.entered()
        clock.advance(101)
        tick()
        assert '"cancel"' in call.result(PATIENCE).text
        held.leave()


@pytest.mark.requirement("M-30")
def test_a_group_tells_whose_question_it_was() -> None:
    told = Told()
    servers = {"one": asking_server(), "two": asking_server()}
    with ClientGroup(servers, mode=OLD, elicitation=unfit, on_handler_error=told) as group:
        for name in ("two", "one"):
            asked(group.clients[name], ELICITATION, FORM)
    assert [context.server.name for context in told.contexts] == ["two", "one"]
    assert [type(error) for error in told.errors] == [InvalidAnswer] * 2


def test_a_pickled_client_tells_the_same_function() -> None:
    client = Client("http://127.0.0.1:9/", on_handler_error=failing)
    assert pickle.loads(pickle.dumps(client))._handlers.on_handler_error is failing


@pytest.mark.requirement("SEC-09")
def test_what_a_task_asks_and_is_answered_wrong_is_raised_by_waiting_for_it() -> None:
    server = Server("studio")

    @server.tool(task_support="optional")
    def sign(context: ToolContext) -> str:
        return str(context.elicit("Who?", FORM["requestedSchema"]))

    told = Told()
    with syncmcp.connect(
        server, mode=NEW, elicitation=unfit, on_handler_error=told, extensions={tasks.EXTENSION: {}}
    ) as client:
        task = client.start_task("sign")
        with pytest.raises(InvalidAnswer):
            task.result(PATIENCE)
        assert [type(error) for error in told.errors] == [InvalidAnswer]
        task.cancel()


def test_a_handler_that_fails_because_its_question_has_ended_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told, inside, ended, handled = Told(), *(threading.Event() for _ in range(3))
    stop, returned = InboundRequest._stop_handler, QuestionRegistry.returned

    def stop_later(request: InboundRequest, reason: str | None) -> None:
        """Its token is cancelled once the handler has failed."""
        ended.set()
        assert handled.wait(PATIENCE)
        stop(request, reason)

    def note(registry: QuestionRegistry, request: InboundRequest) -> None:
        returned(registry, request)
        handled.set()

    def fails(request: Any, context: HandlerContext) -> ElicitResult:
        inside.set()
        assert ended.wait(PATIENCE)
        raise LookupError("swordfish")

    monkeypatch.setattr(InboundRequest, "_stop_handler", stop_later)
    monkeypatch.setattr(QuestionRegistry, "returned", note)
    options: dict[str, Any] = {"elicitation": fails, "on_handler_error": told}
    with Wire("memory", OLD).connect(asking_server(), **options) as client:
        call = client.call_tool.future("ask", {"method": ELICITATION, "params": FORM})
        assert inside.wait(PATIENCE)
    assert handled.is_set()
    assert isinstance(call.exception(PATIENCE), syncmcp.ClosedError)
    assert told.errors == []
    assert "swordfish" not in caplog.text
