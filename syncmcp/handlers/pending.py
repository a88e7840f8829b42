"""Calls that wait for answers which the program gives by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp._protocol.steps import InputRound, read_round
from syncmcp.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp.types import InputRequest

__all__ = ["Answerable", "InputRequired"]

R = TypeVar("R")

Answerable = Literal["sampling", "sampling_tools", "sampling_context", "form", "url", "roots"]
"""A kind of question that a program can answer."""


class InputRequired(Generic[R]):
    """What a server asks before a call has a result (spec: 2026-07-28, "Multi Round-Trip").

    Answer it with `Client.resume`, in this process or, after `to_json` and `from_json`, in another
    one. It holds the server's own state of the call, which is a secret.

    Attributes:
        method: The request that waits: ``"tools/call"``, ``"prompts/get"`` or
            ``"resources/read"``.
        questions: What is asked, by key. Empty when the server only wants to be asked again
            later.
    """

    def __init__(
        self, method: str, params: dict[str, Any], waiting: InputRound, offer: OfferedCapabilities
    ) -> None:
        from syncmcp.types import InputRequest

        self.method = method
        self.questions: dict[str, InputRequest] = {
            key: InputRequest(method=question.method, params=question.params)
            for key, question in waiting.questions.items()
        }
        self._params = params
        self._round = waiting
        self._offer = offer

    def _retry(self, answers: Mapping[str, Any] | None) -> dict[str, Any]:
        """The parameters of the request that goes on with `answers`.

        Args:
            answers: By key of the question: an `ElicitResult`, a `CreateMessageResult`, a
                `ListRootsResult`, or one of them as a dict. What is missing is asked again.

        Raises:
            UsageError: There is no such question, or that is no answer.
            InvalidAnswer: It does not fit the form.
        """
        wire = {}
        for key, answer in (answers or {}).items():
            if key not in self.questions:
                raise UsageError(f"there is no question {key!r}", method=self.method)
            to_wire = getattr(answer, "to_wire", None)
            given = answer if to_wire is None else to_wire()
            if not isinstance(given, dict):
                raise UsageError(f"an answer is a model or a dict, not {answer!r}")
            wire[key] = _filled_in(key, self.questions[key], given)
        return self._round.retry(self._params, wire if self.questions else None)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON, the secret state of the server included."""
        return {
            "method": self.method,
            "params": self._params,
            "questions": {
                key: {"method": question.method, "params": question.params}
                for key, question in self._round.questions.items()
            },
            "state": self._round.state,
            "offer": [name for name, has in self._offer._asdict().items() if has],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` made.

        Raises:
            UsageError: It is something else.
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
            raise UsageError("this is no pending call as to_json() makes it") from None

    def __repr__(self) -> str:
        return f"<InputRequired {self.method}: {', '.join(self.questions) or 'no questions'}>"


def _filled_in(key: str, question: InputRequest, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer as it is sent: forms with their defaults, checked as a handler's are."""
    from syncmcp.handlers.forms import Form, InvalidAnswer
    from syncmcp.types import ElicitRequestFormParams

    try:
        request = question.read()
        if not isinstance(request, ElicitRequestFormParams) or answer.get("action") != "accept":
            return answer
        form = Form.read(request.requested_schema)
    except ValueError:  # whoever answers what cannot be read knows better than we do
        return answer
    content = form.with_defaults(answer.get("content") or {})
    problems = form.problems(content)
    for name, problem in problems.items():
        text = f"the answer to {key!r} does not fit the form: {name}: {problem}"
        raise InvalidAnswer(text, problems=problems)
    return {**answer, "content": content}


def as_offer(kinds: tuple[Answerable, ...]) -> OfferedCapabilities:
    """What a program says that it can answer.

    Raises:
        UsageError: There is no such kind of question.
    """
    unknown = [kind for kind in kinds if kind not in OfferedCapabilities._fields]
    if unknown:
        raise UsageError(
            f"can is a tuple of {', '.join(OfferedCapabilities._fields)}, not {unknown[0]!r}"
        )
    return OfferedCapabilities(**dict.fromkeys(kinds, True))


BY_HAND: tuple[Answerable, ...] = ("sampling", "form", "url", "roots")
"""What a program that answers by hand is taken to be able to, unless it says otherwise."""
