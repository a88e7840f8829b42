"""Rounds of input: a result that is a question first (spec: 2026-07-28, "Multi Round-Trip").

The server's state is opaque and secret. It goes back exactly as it came, with the same request and
no other, and is never looked at, kept or shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncmcp._protocol.steps import InputQuestion
from syncmcp.errors import ProtocolError, TooManyRounds

METHODS = frozenset(("prompts/get", "resources/read", "tools/call"))
"""The requests whose result may be a question."""

# More questions than this at once are not for a person, nor for a model.
_MOST_QUESTIONS = 64

# Seconds to wait before a request is repeated that nothing was asked for, and at most.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.25


class InputRound:
    """What a server wants before it goes on.

    Attributes:
        questions: By key; empty when the server only wants the request again.
        state: To be sent back; `None` when there was none, which is not the same as ``""``.
    """

    def __init__(self, questions: Mapping[str, InputQuestion], state: str | None) -> None:
        self.questions = questions
        self.state = state

    def retry(
        self, params: Mapping[str, Any] | None, answers: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The parameters of the request that goes on from here."""
        retried = dict(params or {})
        if answers is not None:
            retried["inputResponses"] = dict(answers)
        if self.state is not None:
            retried["requestState"] = self.state
        return retried

    def __repr__(self) -> str:
        return f"<InputRound {', '.join(self.questions) or 'without questions'}>"


def read_round(method: str, result: Mapping[str, Any]) -> InputRound:
    """Read an ``input_required`` result.

    Raises:
        ProtocolError: It belongs to a request that cannot have one, or makes no sense.
    """
    if method not in METHODS:
        raise ProtocolError("the server may not ask for input here", method=method)
    state = result.get("requestState")
    requests = result.get("inputRequests")
    if state is None and requests is None:
        raise ProtocolError("the server asks for input without a question", method=method)
    if state is not None and type(state) is not str:
        raise ProtocolError("the state of an input request is no string", method=method)
    return InputRound({} if requests is None else read_questions(method, requests), state)


def read_questions(method: str, requests: Any) -> dict[str, InputQuestion]:
    """Read the questions in an answer to `method`, by key.

    Raises:
        ProtocolError: They make no sense.
    """
    if type(requests) is not dict:
        raise ProtocolError("the questions of an input request are no object", method=method)
    if len(requests) > _MOST_QUESTIONS:
        raise ProtocolError(f"the server asks {len(requests)} questions at once", method=method)
    return {key: _question(method, each) for key, each in requests.items()}


def _question(method: str, request: Any) -> InputQuestion:
    if type(request) is dict:
        asked, params = request.get("method"), request.get("params")
        if type(asked) is str and (params is None or type(params) is dict):
            return InputQuestion(asked, params or {})
    raise ProtocolError("a question of an input request makes no sense", method=method)


class RoundCount:
    """Counts how often a server asks before it has a result."""

    def __init__(self, method: str, most: int) -> None:
        self._method = method
        self._most = most
        self.rounds = 0

    def count(self) -> None:
        """It asks once more.

        Raises:
            TooManyRounds: That is too often.
        """
        if self.rounds >= self._most:
            raise TooManyRounds(
                f"the server asked more than {self._most} times (option max_rounds)",
                rounds=self.rounds,
                method=self._method,
            )
        self.rounds += 1


def url_questions(data: Any) -> dict[str, InputQuestion]:
    """The URLs in the data of an error -32042 (spec: 2025-11-25); empty if it has none."""
    entries = data.get("elicitations") if type(data) is dict else None
    if type(entries) is not list or not 0 < len(entries) <= _MOST_QUESTIONS:
        return {}
    if not all(type(entry) is dict and entry.get("mode") == "url" for entry in entries):
        return {}
    return {
        str(index): InputQuestion("elicitation/create", entry)
        for index, entry in enumerate(entries)
    }


def pause_before(round_number: int) -> float:
    """Seconds to wait before a request is repeated that nothing was asked for; 1 is the first."""
    return float(min(_FIRST_PAUSE * 2.0 ** (min(round_number, 16) - 1), _LONGEST_PAUSE))
