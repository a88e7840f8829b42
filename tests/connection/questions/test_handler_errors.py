"""Errors of handlers, and how a program gets them without reading a log."""

from __future__ import annotations

import json
import logging
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import pytest
from pydantic import ValidationError

import syncmcp
from syncmcp import HandlerContext, InvalidAnswer, Mode, Refused, UsageError, tasks
from syncmcp._connection.questions import InboundRequest, QuestionRegistry
from syncmcp.approval import Approval, DenyAll, Question, Verdict
from syncmcp.testing import Server, ToolContext
from syncmcp.types import CreateMessageRequestParams, ElicitResult
from tests.connection.questions.asking import (
    BOTH,
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
    question,
    saying,
    through,
)
from tests.support.people import Held, Obedient, Person, reply
from tests.support.scripts import NEW, OLD
from tests.support.stage import (
    PATIENCE,
    Clock,
    Wire,
    is_gone,
    rotated_stateful,
    tick,
)

# FORM requires a name, and `loud` must be a boolean.
UNFIT = ElicitResult.model_construct(action="accept", content={"loud": "swordfish"})


class Told:
    """An `on_handler_error` callback that stores its arguments."""

    def __init__(self) -> None:
        self.errors, self.contexts = list[BaseException](), list[HandlerContext]()
        self.came = threading.Event()

    def __call__(self, error: BaseException, context: HandlerContext) -> None:
        self.errors.append(error)
        self.contexts.append(context)
        self.came.set()


@pytest.mark.parametrize(
    ("wire", "way"),
    [
        (Wire("stdio", OLD), "blocking"),
        *((Wire("http", NEW), way) for way in ("blocking", "future")),
    ],
    ids=str,
)
@pytest.mark.requirement("ELI-14", "M-06")
def test_an_unfit_answer_is_told_and_in_the_stateless_era_raised(
    wire: Wire, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    told, server = Told(), asking_server()
    problems = {"loud": "Answer yes or no.", "name": "This field needs an answer."}
    options: Any = {"name": "asker", "elicitation": Person(UNFIT), "on_handler_error": told}
    with wire.connect(server, **options) as client:
        ask = {"method": ELICITATION, "params": FORM}
        if wire.revision == OLD:
            answer = through(client, way, "ask", ask).raise_for_error().text
            assert json.loads(answer) == {"error": [-32603, "the client failed to answer", None]}
        else:
            with pytest.raises(InvalidAnswer) as caught:
                through(client, way, "ask", ask)
            raised = caught.value
            assert raised.problems == problems
            assert (raised.server, raised.method) == ("asker", "tools/call")
            assert "does not fit the form: name: This field needs an answer. loud: " in str(raised)
            assert "swordfish" not in f"{raised}{raised.problems}"
            assert isinstance(raised.__cause__, InvalidAnswer)
            copy = pickle.loads(pickle.dumps(raised))
            assert (str(copy), copy.problems) == (str(raised), raised.problems)
        (error,), (context,) = told.errors, told.contexts  # reported before the call had its result
        assert isinstance(error, InvalidAnswer)
        assert error.problems == problems
        assert (context.method, context.server.name) == (ELICITATION, "asker")
        assert context.client is client
        assert client.call_tool("echo", {"text": "alive"}).text == "alive"
    assert server.stats.violations == []
    assert "does not fit the form" in caplog.text
    assert "swordfish" not in caplog.text


@pytest.mark.requirement("ELI-14")
def test_an_unfit_answer_to_another_call_is_not_taken_for_one_to_this() -> None:
    """The handler's own call fails, and so does the handler."""

    def calling(request: Any, context: HandlerContext) -> ElicitResult:
        if request.message == "Again?":
            return UNFIT
        asked(context.client, ELICITATION, {**FORM, "message": "Again?"})
        return person(request, context)

    told = Told()
    with asker(NEW, elicitation=calling, on_handler_error=told) as client:
        with pytest.raises(Refused) as caught:
            asked(client, ELICITATION, FORM)
        assert caught.value.code == -32603
        assert isinstance(caught.value.__cause__, InvalidAnswer)  # the caller gets it as the cause
        assert [type(error) for error in told.errors] == [InvalidAnswer] * 2


def odd_action() -> ElicitResult:
    return ElicitResult(action="swordfish")  # type: ignore[arg-type]


# The text of another server's error must not reach this server.
OTHER_SERVER = syncmcp.ServerError("the password is swordfish", code=-32000, data="swordfish")
ODD: Any = {"role": "assistant", "content": "swordfish"}
# The handler's result or error, the reported error, and a text in the log besides the method.
WRONG: dict[str, tuple[str, Any, type[BaseException], str]] = {
    "the model fails": (SAMPLING, LookupError("swordfish"), LookupError, ""),
    "the model ends the program": (SAMPLING, SystemExit("swordfish"), SystemExit, ""),
    "the model's server fails": (SAMPLING, OTHER_SERVER, syncmcp.ServerError, ""),
    "the model says something odd": (SAMPLING, ODD, UsageError, "CreateMessageResult"),
    "the form is answered by nothing": (ELICITATION, lambda: None, UsageError, "ElicitResult"),
    "the form is answered oddly": (ELICITATION, odd_action, ValidationError, ""),
    "the roots are none": (ROOTS, ["https://x.org"], UsageError, ""),
    "the roots are no list": (ROOTS, 7, UsageError, "list"),
}
OPTIONS = {SAMPLING: "sampling", ELICITATION: "elicitation", ROOTS: "roots"}


@BOTH
@pytest.mark.parametrize("case", WRONG)
@pytest.mark.requirement("SAMP-08", "SAMP-09", "ROOT-02", "ROOT-04", "ROOT-06")
def test_whatever_a_handler_does_wrong_is_told_to_the_program_alone(
    case: str, revision: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    method, answer, expected, words = WRONG[case]
    told, handlers = Told(), {OPTIONS[method]: Person(answer)}
    with asker(revision, on_handler_error=told, **handlers) as client:
        code, text = fault(client, method, question(method, revision))
        assert code == -32603
        # In 2026-07-28 the caller gets the error, and no server sees it.
        assert "swordfish" not in text or revision == NEW
        assert client.call_tool("echo", {"text": "alive"}).text == "alive"
    assert [type(error) for error in told.errors] == [expected]
    assert told.contexts[0].method == method
    (record,) = [record for record in caplog.records if record.name == "syncmcp.handlers"]
    assert record.exc_info is not None
    assert method in record.getMessage()
    assert words in caplog.text
    assert words == "" or "swordfish" not in caplog.text


@BOTH
@pytest.mark.requirement("M-06")
def test_a_refusal_is_no_error_of_a_handler(revision: Mode) -> None:
    told = Told()
    refusing: Any = {"sampling": Person(Refused(-1, "no"))}
    for options in (refusing, {"sampling": model, "approval": DenyAll()}):
        with asker(revision, on_handler_error=told, **options) as client:
            assert fault(client, SAMPLING, PROMPT)[0] in (-1, None)
    assert told.errors == []


@rotated_stateful
def test_the_program_is_told_of_handlers_of_its_own_requests(wire: Wire) -> None:
    told = Told()
    with wire.connect(asking_server(), on_handler_error=told) as client:
        client.on_request("acme/fails", Person(LookupError("swordfish")))
        assert demanded(client, "acme/fails")["error"][0] == -32603
        assert [type(error) for error in told.errors] == [LookupError]
        told.came.clear()
        client.on_request("acme/odd", lambda *_: {"it": object()})
        assert demanded(client, "acme/odd")["error"][0] == -32603
        assert told.came.wait(PATIENCE)  # detected when the answer is serialized
        assert "JSON" in str(told.errors[-1])
        assert [context.method for context in told.contexts] == ["acme/fails", "acme/odd"]


class TooLate(Exception):
    """An exception that is raised after the question has ended."""


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
def test_the_callback_may_call_the_client_and_its_own_error_is_logged(
    problem: BaseException, revision: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def fail(error: BaseException, context: HandlerContext) -> NoReturn:
        heard.append(context.client.call_tool("echo", {"text": "told"}).text)
        raise problem

    model = Person(LookupError("swordfish"))
    options: dict[str, Any] = {"sampling": model, "on_handler_error": fail, "max_handlers": 1}
    with asker(revision, **options) as client:
        assert fault(client, SAMPLING, PROMPT)[0] == -32603
        assert heard == ["told"]  # the callback ended before the answer was sent
        assert client.call_tool("echo", {"text": "alive"}).text == "alive"
    assert "on_handler_error failed" in caplog.text


@pytest.mark.requirement("M-20")
def test_meanwhile_the_server_is_not_kept_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, held = Clock(monkeypatch, "syncmcp._concurrency.timing"), Held(lambda: None)
    limits: dict[str, Any] = {"human_timeout": 100.0, "timeout": None, "idle_timeout": None}
    person = Person(LookupError("swordfish"))
    with asker(OLD, elicitation=person, on_handler_error=held, **limits) as client:
        call = client.call_tool.future("ask", {"method": ELICITATION, "params": FORM})
        held.entered()
        clock.advance(101)
        tick()
        assert '"cancel"' in call.result(PATIENCE).text
        held.leave()


@pytest.mark.requirement("SEC-09")
def test_what_a_task_asks_and_is_answered_wrong_is_raised_by_waiting_for_it() -> None:
    server = Server("studio")

    @server.tool(task_support="optional")
    def sign(context: ToolContext) -> str:
        return str(context.elicit("Who?", FORM["requestedSchema"]))

    told, options = Told(), dict[str, Any](extensions={tasks.EXTENSION: {}})
    options |= {"elicitation": Person(UNFIT), "on_handler_error": told}
    with syncmcp.connect(server, mode=NEW, **options) as client:
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
        """Cancel the token only after the handler has failed."""
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


CANARY = "canary-5b1e0d"

SECRETS: dict[str, Any] = {
    "systemPrompt": f"{CANARY}-system",
    "messages": [
        {"role": "user", "content": {"type": "text", "text": f"{CANARY}-prompt"}},
        {"role": "assistant", "content": {"type": "text", "text": f"{CANARY}-turn"}},
    ],
    "metadata": {"note": f"{CANARY}-metadata"},
    "maxTokens": 10,
}
ASKED = {**FORM, "message": f"{CANARY}-form"}


class Impatient:
    """A reviewer who raises the token limit, and replaces the model's answer."""

    asks_person = True

    def review(self, question: Question, /) -> Verdict:
        if isinstance(question.request, CreateMessageRequestParams) and question.answer is None:
            longer = question.request.model_copy(update={"max_tokens": 99})
            return Verdict.allow(longer)
        return Verdict.allow(answer=reply(f"{CANARY}-edited"))


def refuse(*_: Any) -> Any:
    raise Refused(-1, "no", {"why": f"{CANARY}-reason"})


def dawdle(request: Any, context: Any) -> Any:
    assert context.cancel.wait(PATIENCE)
    return reply(f"{CANARY}-late")


TEXT = {"type": "text", "text": f"{CANARY}-text"}
USE = {"type": "tool_use", "id": "u", "name": f"{CANARY}-tool", "input": {"a": CANARY}}

SPOKEN: dict[str, Any] = {"sampling": lambda *_: saying(TEXT)}
MODELS: dict[str, dict[str, Any]] = {
    "answers": SPOKEN,
    "wants a tool": {"sampling": lambda *_: saying(USE)},
    "returns a dict": {"sampling": lambda *_: {"role": "assistant", "content": CANARY}},
    "returns text": {"sampling": lambda *_: f"{CANARY}-answer"},
    "refuses": {"sampling": refuse},
    "is denied": {**SPOKEN, "approval": DenyAll()},
    "is judged by nobody": {**SPOKEN, "approval": Approval()},
    "is edited": {**SPOKEN, "approval": Approval(reviewer=Impatient())},
    "is slow": {"sampling": dawdle, "human_timeout": 0.05},
}


def filling(content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"elicitation": lambda *_: ElicitResult.accept(content), **more}


PEOPLE: dict[str, dict[str, Any]] = {
    "answers something else": filling({"name": 7, "loud": f"{CANARY}-loud"}),
    "answers too much": filling({"name": "x", "more": f"{CANARY}-more"}),
    "returns a dict": {"elicitation": lambda *_: {"action": "accept", "content": CANARY}},
    "is denied": filling({"name": CANARY}, approval=DenyAll()),
}

CASES = {
    **{f"model {case}": (SAMPLING, SECRETS, given) for case, given in MODELS.items()},
    **{f"person {case}": (ELICITATION, ASKED, given) for case, given in PEOPLE.items()},
    "tools": (SAMPLING, {**SECRETS, "tools": [{"name": CANARY}]}, MODELS["answers"]),
    "no limit": (SAMPLING, {**SECRETS, "maxTokens": CANARY}, MODELS["answers"]),
    "no form": (ELICITATION, {**ASKED, "requestedSchema": {"type": CANARY}}, PEOPLE["is denied"]),
}


@BOTH
@pytest.mark.parametrize(("method", "params", "options"), CASES.values(), ids=CASES)
@pytest.mark.requirement("SAMP-08", "M-17")
def test_neither_what_is_asked_nor_what_is_answered_is_logged_above_debug(
    method: str, params: Any, options: Any, revision: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "syncmcp")
    # In 2026-07-28 a refusal ends the call.
    with asker(revision, **options) as client, suppress(syncmcp.McpError):
        client.call_tool("ask", {"method": method, "params": params})
    # At DEBUG the log shows the beginning of each frame, so the text did arrive.
    assert CANARY in caplog.text
    formatter = logging.Formatter("%(levelname)s %(name)s %(message)s")
    above = [formatter.format(record) for record in caplog.records if record.levelno > 10]
    assert not [text for text in above if CANARY in text]
