"""Answers the questions of a server: checks them, reviews them, runs handlers, checks answers.

Before 2026-07-28 a question is a request of the server; in 2026-07-28 it is part of a result. Both
are answered alike, on a pool thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from syncmcp import types
from syncmcp._base.text import cut, first_problem, logger
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.pool import slot_released
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.capabilities import ELICITATION, ROOTS, SAMPLING, OfferedCapabilities
from syncmcp._protocol.conversation import check_tool_results, single_block
from syncmcp.errors import Denied, InvalidQuestion, Refused, UsageError
from syncmcp.handlers import (
    HandlerContext,
    Handlers,
    answered_by_person,
    offer_of,
)
from syncmcp.handlers.context import set_provisional, show_with

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError

    from syncmcp._protocol.dialect import Dialect
    from syncmcp.approval import Approval, Kind
    from syncmcp.handlers.forms import Form, InvalidAnswer
    from syncmcp.types import (
        CreateMessageRequestParams,
        ElicitRequestFormParams,
        ElicitRequestURLParams,
        ListRootsRequestParams,
    )
    from syncmcp.types.base import WireModel

    Request = (
        CreateMessageRequestParams
        | ElicitRequestFormParams
        | ElicitRequestURLParams
        | ListRootsRequestParams
    )

M = TypeVar("M", bound="WireModel")

_log = logger("syncmcp.handlers")

AnswerFunction: TypeAlias = Callable[[HandlerContext], dict[str, Any]]
"""Runs the handler of a request, on a pool thread, and returns the answer for the wire."""

# How long, in seconds, a retry waits for ``notifications/elicitation/complete`` of its URL.
COMPLETION_SECONDS = 60.0

# The error code of the specification for a person's refusal.
_REJECTED = -1


def check_offered(method: str, offer: OfferedCapabilities, dialect: Dialect) -> None:
    """Raise `InvalidQuestion` if the client does not offer to answer questions of this method."""
    offer = dialect.supported_part(offer)
    if not (
        (method == SAMPLING and offer.sampling)
        or (method == ELICITATION and (offer.form or offer.url))
        or (method == ROOTS and offer.roots)
    ):
        method = cut(method)  # the server chose it: it may have any length
        text = f"this client does not handle {method}"
        if method == "initialize":  # an echo; this error, echoed too, answers the client's request
            text = (
                "the server sent 'initialize', a request that only clients send; does it echo its"
            )
            text += " input, like cat?"
        raise InvalidQuestion(text, method=method, code=jsonrpc.METHOD_NOT_FOUND)


def answered_by_library(method: str, handlers: Handlers) -> bool:
    """Whether neither a function of the program nor a person takes part in the answer."""
    if method != ROOTS or handlers.approval is not None:
        return False
    with delaying_forks():
        from syncmcp.handlers.roots import is_plain_list

    return is_plain_list(handlers.roots)


def known_handler(
    method: str,
    params: dict[str, Any],
    handlers: Handlers,
    dialect: Dialect,
    *,
    await_completion: bool = False,
) -> AnswerFunction:
    """The answer function of a question that the specification defines.

    Its parameters are parsed on the thread of the handler. With `await_completion`, it waits after
    the consent to a URL until the server reports the completion.
    """

    def answer_known(context: HandlerContext) -> dict[str, Any]:
        request = read_question(method, params, offer_of(handlers), dialect)
        result = answer(request, handlers, dialect, context)
        if await_completion and consents(result):
            # The notification may never come: then the request is retried anyway, and if the server
            # names the same URL again, the call fails.
            set_provisional(context, result)
            context.wait_completed(COMPLETION_SECONDS)
        return result

    return answer_known


def elicitation_ids(method: str, *questions: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids by which a server may report that a URL elicitation is completed (2025-11-25).

    `questions` are the parameters of each question that asks for this visit.
    """
    if method != ELICITATION:
        return ()
    stated = [params.get("elicitationId") for params in questions if is_link(method, params)]
    return tuple(each for each in stated if type(each) is str)


def is_link(method: str, params: Mapping[str, Any]) -> bool:
    """Whether a question asks for a visit to a URL."""
    return method == ELICITATION and params.get("mode") == "url"


def consents(outcome: object) -> bool:
    """Whether an outcome is the consent to an elicitation."""
    return isinstance(outcome, dict) and outcome.get("action") == "accept"


def read_question(
    method: str, params: dict[str, Any], offer: OfferedCapabilities, dialect: Dialect
) -> Request:
    """Parse a question whose method is offered; see `check_offered`.

    `InvalidQuestion` if it is invalid, or needs a feature of the method that is not offered.
    """
    offer = dialect.supported_part(offer)
    if method == SAMPLING:
        return _read_sampling(params, offer)
    if method == ELICITATION:
        return _read_elicitation(params, offer)
    return _read(types.ListRootsRequestParams, params)


def answer(
    request: Request, handlers: Handlers, dialect: Dialect, context: HandlerContext
) -> dict[str, Any]:
    """Run the handler of a question and return the result for the wire.

    Raises:
        InvalidQuestion: It is a form that the library cannot show.
        Refused: The handler refused.
        Denied: A policy or a person denied it.
        InvalidAnswer: It is a form, and the handler's answer does not fit it.
        Exception: The handler failed, or its answer cannot be sent.
    """
    if isinstance(request, types.CreateMessageRequestParams):
        return _sample(request, handlers, dialect, context)
    if isinstance(request, types.ListRootsRequestParams):
        return _list_roots(request, handlers, context)
    try:
        if isinstance(request, types.ElicitRequestFormParams):
            return _fill_in(request, handlers, context)
        return _send_to(request, handlers, context)
    except Denied as error:
        # An elicitation is answered with an action, not with an error.
        return {"action": "cancel" if error.by in _UNDECIDED else "decline"}


_UNDECIDED = frozenset(("timeout", "withdrawn", "nobody", "error"))


def refusal(method: str, error: BaseException) -> tuple[int, str, Any]:
    """The code, message and data of the JSON-RPC error that is sent for `error`."""
    if isinstance(error, Denied):
        # The reason is left out: it may be meant for the person only.
        rejected = f"{_NAMES.get(method, 'the request')} was rejected"
        return _REJECTED, NO_ANSWER if error.by == "timeout" else rejected, None
    if isinstance(error, Refused):
        return error.code, error.message, error.data
    if isinstance(error, InvalidQuestion):
        return error.code, error.message, None
    # The text of the error is left out: it may contain private data.
    return jsonrpc.INTERNAL_ERROR, "the client failed to answer", None


NO_ANSWER = "nobody answered in time"
"""The error message for a server that still waits for the answer to a question that has ended."""


def unanswered(
    method: str, why: str, denied: Denied | None = None
) -> dict[str, Any] | Refused | Denied:
    """The outcome of a question that its handler did not answer: an answer or an error.

    `denied`: the error if the approval of the question was not decided.
    """
    if method == ELICITATION:
        return {"action": "cancel"}
    if denied is not None:
        return {"roots": []} if method == ROOTS else denied
    return Refused(_REJECTED if method == SAMPLING else jsonrpc.INTERNAL_ERROR, why)


_NAMES = {
    SAMPLING: "the sampling request",
    ELICITATION: "the elicitation",
    ROOTS: "the roots request",
}


# -- sampling --------------------------------------------------------------------------------


def _read_sampling(
    params: dict[str, Any], offer: OfferedCapabilities
) -> CreateMessageRequestParams:
    if not offer.sampling_tools and not params.keys().isdisjoint(("tools", "toolChoice")):
        raise InvalidQuestion("this client does not let models use tools", method=SAMPLING)
    request = _read(types.CreateMessageRequestParams, params)
    try:
        check_tool_results(request.messages)
    except ValueError as error:
        raise InvalidQuestion(str(error), method=SAMPLING) from error
    return request


def _sample(
    request: CreateMessageRequestParams,
    handlers: Handlers,
    dialect: Dialect,
    context: HandlerContext,
) -> dict[str, Any]:
    assert handlers.sampling is not None
    review = _Review("sampling", request, handlers, context)
    reviewed = review.request()
    if isinstance(reviewed, types.CreateMessageResult):
        result = reviewed
    else:
        if reviewed.max_tokens > request.max_tokens:
            # A reviewer may lower the limit, but not raise it.
            _log.warning(
                "the review increased max_tokens to %d; the server's limit of %d applies",
                reviewed.max_tokens,
                request.max_tokens,
            )
            reviewed = reviewed.model_copy(update={"max_tokens": request.max_tokens})
        result = handlers.sampling(reviewed, context)
        _expect(result, types.CreateMessageResult, "a sampling handler")
        if not request.tools and any(block.type == "tool_use" for block in result.blocks):
            raise UsageError("a sampling handler returned a tool use, but the request has no tools")
        result = review.answer(reviewed, result)
    if not dialect.content_lists:
        result = single_block(result, dialect.single_blocks)
    return _without_nulls(result.to_wire())


# -- elicitation -----------------------------------------------------------------------------


def _read_elicitation(
    params: dict[str, Any], offer: OfferedCapabilities
) -> ElicitRequestFormParams | ElicitRequestURLParams:
    mode = params.get("mode", "form")
    if mode == "form" and offer.form:
        return _read(types.ElicitRequestFormParams, params)
    if mode == "url" and offer.url:
        with delaying_forks():
            from syncmcp.handlers.links import Link, UnsafeLink

        url = _read(types.ElicitRequestURLParams, params)
        try:
            Link.read(url.url)
        except UnsafeLink as error:
            raise InvalidQuestion(error.message, method=ELICITATION) from error
        return url
    raise InvalidQuestion("this client does not support this elicitation mode", method=ELICITATION)


def _fill_in(
    request: ElicitRequestFormParams, handlers: Handlers, context: HandlerContext
) -> dict[str, Any]:
    from pydantic import ValidationError

    form = _read_form(request)
    handler, asks_person = handlers.elicitation.form, "form" in answered_by_person(handlers)
    assert handler is not None
    review = _Review("form", request, handlers, context, asks_person=asks_person)
    reviewed = review.request()
    if isinstance(reviewed, types.ElicitResult):
        result = reviewed
    else:
        try:
            with slot_released() if asks_person else nullcontext():
                result = handler(request, context)
        except ValidationError as error:
            if (problems := _mistyped(form, error)) is None:
                raise
            raise _unfit(problems) from None  # not chained: that error contains the private values
        _expect(result, types.ElicitResult, "a form handler")
        result = review.answer(request, _with_defaults(form, result))
    if result.action != "accept":
        return {"action": result.action}
    result = _with_defaults(form, result)  # a review may have removed fields
    problems = form.problems(result.content or {})
    if problems:
        raise _unfit(problems)
    return result.to_wire()


def _with_defaults(form: Form, result: types.ElicitResult) -> types.ElicitResult:
    """Fill omitted fields of an accepted form with the defaults that the server chose."""
    if result.action != "accept":
        return result
    return result.model_copy(update={"content": form.with_defaults(result.content or {})})


def _unfit(problems: Mapping[str, str]) -> InvalidAnswer:
    with delaying_forks():
        from syncmcp.handlers.forms import InvalidAnswer

    # The text does not contain the values: they are private.
    reasons = " ".join(f"{name}: {problem}" for name, problem in problems.items())
    text = f"the answer does not fit the form: {reasons}"
    return InvalidAnswer(text, method=ELICITATION, problems=problems)


def _mistyped(form: Form, error: ValidationError) -> dict[str, str] | None:
    """Return the problems by field if `ElicitResult` rejected the values of a form, else `None`."""
    values: dict[str, Any] = {}
    for each in error.errors(include_url=False, include_context=False):
        path = each["loc"]
        if error.title != types.ElicitResult.__name__ or path[0] != "content" or len(path) < 2:
            return None
        # The first error of a field is about its whole value, later ones are about parts.
        values.setdefault(str(path[1]), each["input"])
    found = form.problems(values)
    return {name: found.get(name, "Forms do not allow values of this type.") for name in values}


def _read_form(request: ElicitRequestFormParams) -> Form:
    with delaying_forks():
        from syncmcp.handlers.forms import Form, UnsupportedForm

    try:
        return Form.read(request.requested_schema)
    except UnsupportedForm as error:
        raise InvalidQuestion(error.message, method=ELICITATION) from error


def _send_to(
    request: ElicitRequestURLParams, handlers: Handlers, context: HandlerContext
) -> dict[str, Any]:
    handler, asks_person = handlers.elicitation.url, "url" in answered_by_person(handlers)
    assert handler is not None
    review = _Review("url", request, handlers, context, asks_person=asks_person)
    result = review.request()
    if not isinstance(result, types.ElicitResult):
        with slot_released() if asks_person else nullcontext():
            result = handler(request, context)
        _expect(result, types.ElicitResult, "a URL handler")
        if asks_person:
            review.answer(request, result)
    return {"action": result.action}


# -- roots -----------------------------------------------------------------------------------


def _list_roots(
    request: ListRootsRequestParams, handlers: Handlers, context: HandlerContext
) -> dict[str, Any]:
    with delaying_forks():
        from syncmcp.handlers.roots import to_root

    assert handlers.roots is not None
    roots = tuple(map(to_root, handlers.roots(context)))
    try:
        _Review("roots", request, handlers, context, roots=roots).request()
    except Denied:
        return {"roots": []}
    return {"roots": [_without_nulls(root.to_wire()) for root in roots]}


# -- all questions ---------------------------------------------------------------------------


class _Review:
    """The review of one question by a policy or a person, if the program has an approval.

    With `asks_person` the handler asks a person itself.
    """

    def __init__(
        self,
        kind: Kind,
        request: Request,
        handlers: Handlers,
        context: HandlerContext,
        *,
        roots: tuple[types.Root, ...] = (),
        asks_person: bool = False,
    ) -> None:
        self._request = request
        self._asks_person = asks_person
        self._approval: Approval | None = None
        if handlers.approval is not None:
            with delaying_forks():
                from syncmcp.approval import Question, as_approval

            self._approval = as_approval(handlers.approval)
            self._question = Question(kind, context.server, request, context, roots=roots)
            show_with(context, partial(self._approval.update, self._question))

    def request(self) -> Any:
        """The request for the handler, or the answer if the reviewer gave one."""
        if self._approval is None:
            return self._request
        with self._undecided():
            return self._approval.review_request(self._question, asks_person=self._asks_person)

    def answer(self, request: Any, answer: Any) -> Any:
        """Return the answer to send. An answer that a person entered is recorded, not reviewed."""
        if self._approval is None:
            return answer
        question = replace(self._question, request=request, answer=answer)
        if self._asks_person:
            self._approval.record_answer(question)
            return answer
        with self._undecided():
            return self._approval.review_answer(question)

    @contextmanager
    def _undecided(self) -> Iterator[None]:
        """Free the slot of the handler; if the time runs out in this block, nobody has decided."""
        kind, context = self._question.kind, self._question.context
        assert context is not None
        text, reason = f"the {kind} request was denied", f"{NO_ANSWER} (option human_timeout)"
        set_provisional(context, Denied(text, kind=kind, by="timeout", reason=reason))
        try:
            with slot_released():
                yield
        finally:
            set_provisional(context, None)


def _read(model: type[M], params: dict[str, Any]) -> M:
    try:
        return model.from_wire(params)
    except ValueError as error:
        raise InvalidQuestion(first_problem(error)) from None


def _without_nulls(wire: dict[str, Any]) -> dict[str, Any]:
    """Remove keys with the value `None`, which the schema does not allow."""
    return {key: value for key, value in wire.items() if value is not None}


def _expect(result: object, model: type, who: str) -> None:
    if not isinstance(result, model):
        kind = type(result).__name__
        made = "ElicitResult.accept(...)"
        if model is types.CreateMessageResult:
            made = "CreateMessageResult(role='assistant', content=TextContent(text=...), model=...)"
        raise UsageError(f"{who} must return {model.__name__}, not {kind}: write {made}")
