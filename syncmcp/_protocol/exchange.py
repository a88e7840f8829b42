"""One request and everything that belongs to it, until there is a final result."""

from __future__ import annotations

from typing import Any

from syncmcp._protocol.offer import Offer
from syncmcp._protocol.rounds import InputRound, pause_before, url_questions
from syncmcp._protocol.steps import Ask, Pause, Reply, Send, Steps
from syncmcp.errors import TooManyRounds, UrlElicitationRequired

MAX_ROUNDS = 10
"""How often a server may ask before it must have a result, unless a client says otherwise."""


def exchange(
    method: str, params: dict[str, Any] | None = None, *, max_rounds: int = MAX_ROUNDS
) -> Steps[dict[str, Any]]:
    """Send a request, have the server's questions answered, and return the final result.

    The result is not validated. What kind it is of gets read before any model sees it, so that a
    tolerant model cannot turn a question into a hollow success.

    Raises:
        ProtocolError: The result is no object, or of a kind that nobody agreed on.
        TooManyRounds: The server asked more than `max_rounds` times.
    """
    sent = params
    rounds = 0
    while True:
        try:
            reply: Reply = yield Send(method, sent)
        except UrlElicitationRequired as error:
            questions = url_questions(error.data)
            if not questions:
                raise
            rounds = _count(rounds, max_rounds, method)
            if not (yield Ask(method, params, questions, await_completion=True)):
                raise
            continue
        outcome = reply.dialect.read_result(method, reply.result)
        if not isinstance(outcome, InputRound):
            return outcome
        rounds = _count(rounds, max_rounds, method)
        answers: dict[str, Any] | None = None
        if outcome.questions:
            answers = yield Ask(method, params, outcome.questions)
        else:
            yield Pause(pause_before(rounds))
        sent = outcome.retry(params, answers)


def single_exchange(
    method: str, params: dict[str, Any] | None, offer: Offer
) -> Steps[dict[str, Any] | InputRound]:
    """Send a request once and return what comes: its result, or what the server asks.

    Raises:
        ProtocolError: The result is no object, or of a kind that nobody agreed on.
    """
    reply: Reply = yield Send(method, params, offer)
    return reply.dialect.read_result(method, reply.result)


def _count(rounds: int, max_rounds: int, method: str) -> int:
    if rounds >= max_rounds:
        raise TooManyRounds(
            f"the server asked more than {max_rounds} times (option max_rounds)",
            rounds=rounds,
            method=method,
        )
    return rounds + 1
