"""Calls that are suspended until the program answers the server's questions itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from typing_extensions import Self

from syncmcp import types
from syncmcp._base.checks import kind_of
from syncmcp._base.text import first_problem, visible
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp._protocol.steps import InputRound, read_round
from syncmcp.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from syncmcp.types import InputRequest

__all__ = ["Answerable", "InputRequired"]

R = TypeVar("R")

Answerable = Literal["sampling", "sampling_tools", "sampling_context", "form", "url", "roots"]
"""A kind of question that a program can answer.

``"sampling_tools"`` and ``"sampling_context"`` allow requests for sampling with tools, and with the
context of servers."""


class InputRequired(Generic[R]):
    """A call that the server interrupted with questions (spec: 2026-07-28, "Multi Round-Trip").

    >>> from syncmcp.types import ElicitResult
    >>> pending = client.begin_tool("ask_user_preferences")
    >>> while isinstance(pending, syncmcp.InputRequired):
    ...     answers = {key: ElicitResult.decline() for key in pending.questions}
    ...     pending = client.resume(pending, answers)
    >>> pending.data
    {'action': 'decline'}

    Answer the questions with `Client.resume`, in this process or, after `to_json` and `from_json`,
    in another one. The object holds the server's state of the call, which is a secret.

    Attributes:
        method: The method of the interrupted request: ``"tools/call"``, ``"prompts/get"`` or
            ``"resources/read"``.
        questions: The questions, by key. There are none if the server only wants the request to be
            sent again later.
    """

    def __init__(
        self, method: str, params: dict[str, Any], waiting: InputRound, offer: OfferedCapabilities
    ) -> None:
        self.method = method
        self.questions: dict[str, InputRequest] = {
            key: types.InputRequest(method=question.method, params=question.params)
            for key, question in waiting.questions.items()
        }
        self._params = params
        self._round = waiting
        self._offer = offer

    def to_json(self) -> dict[str, Any]:
        """Serialize to plain JSON values, the secret state of the server included."""
        return {
            "method": self.method,
            "params": self._params,
            "questions": {key: each._asdict() for key, each in self._round.questions.items()},
            "state": self._round.state,
            "offer": [name for name, has in self._offer._asdict().items() if has],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Restore an object from the return value of `to_json`.

        Raises:
            UsageError: `data` is not a value that `to_json` returned.
        """
        try:
            method, params = data["method"], data["params"]
            offer = OfferedCapabilities(**dict.fromkeys(data["offer"], True))
            waiting = read_round(
                method, {"inputRequests": data["questions"], "requestState": data["state"]}
            )
            if not isinstance(params, dict):
                raise TypeError
            return cls(method, params, waiting, offer)
        except (AttributeError, KeyError, ProtocolError, TypeError, ValueError):
            raise UsageError("this is not a pending call from to_json()") from None

    def __repr__(self) -> str:
        return visible(
            f"<InputRequired {self.method}: {', '.join(self.questions) or 'no questions'}>"
        )


def retry_params(pending: InputRequired[Any], answers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters of the request that resumes the call; see `Resume`."""
    wire = {}
    for key, answer in (answers or {}).items():
        if key not in pending.questions:
            known = ", ".join(map(repr, pending.questions)) or "none"
            text = f"unknown question {key!r}; the questions are: {known}"
            raise UsageError(visible(text), method=pending.method)
        to_wire = getattr(answer, "to_wire", None)
        wire_answer = answer if to_wire is None else to_wire()
        if not isinstance(wire_answer, dict):
            model, write = _answer_model(pending.questions[key].method)
            kinds = f"{model.__name__} or dict"
            text = f"the answer to {key!r} must be {kinds}, not {kind_of(answer)}{write}"
            raise UsageError(visible(text))
        wire[key] = _checked_answer(key, pending.questions[key], wire_answer)
    return pending._round.retry(pending._params, wire if pending.questions else None)


def _answer_model(method: str) -> tuple[type[types.WireModel], str]:
    """Return the model of the answer to a question, and advice on how to write the answer."""
    models: dict[str, tuple[type[types.WireModel], str]] = {
        "elicitation/create": (types.ElicitResult, "; write ElicitResult.accept({...})"),
        "sampling/createMessage": (types.CreateMessageResult, ""),
        "roots/list": (types.ListRootsResult, ""),
    }
    return models.get(method, (types.Result, ""))


def _checked_answer(key: str, question: InputRequest, answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the defaults of its form, and with its fields checked."""
    with delaying_forks():
        from syncmcp.handlers.forms import Form, InvalidAnswer

    model, write = _answer_model(question.method)
    # `Form.problems`, below, describes wrong content better.
    looked_at = {**answer, "content": None} if model is types.ElicitResult else answer
    try:
        model.from_wire(looked_at)
    except ValueError as error:
        text = (
            f"the answer to {key!r} is not a valid {model.__name__}: {first_problem(error)}{write}"
        )
        raise InvalidAnswer(text) from None
    try:
        request = question.read()
        if (
            not isinstance(request, types.ElicitRequestFormParams)
            or answer.get("action") != "accept"
        ):
            return answer
        form = Form.read(request.requested_schema)
    except ValueError:  # the library cannot parse the question, but the program may
        return answer
    content = form.with_defaults(answer.get("content") or {})
    problems = form.problems(content)
    for name, problem in problems.items():
        text = f"the answer to {key!r} does not fit the form: {name}: {problem}"
        raise InvalidAnswer(text, problems=problems)
    return {**answer, "content": content}


def as_offer(kinds: tuple[Answerable, ...]) -> OfferedCapabilities:
    """Return the capabilities for these kinds of questions; `UsageError` if one is unknown."""
    unknown = [kind for kind in kinds if kind not in OfferedCapabilities._fields]
    if unknown:
        raise UsageError(
            f"can must be a tuple of {', '.join(OfferedCapabilities._fields)}, not {unknown[0]!r}"
        )
    return OfferedCapabilities(**dict.fromkeys(kinds, True))


BY_HAND: tuple[Answerable, ...] = ("sampling", "form", "url", "roots")
"""The default kinds of questions that a program answers itself."""
