"""One request and everything that belongs to it, until there is a final result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncmcp._protocol.client_capabilities import OfferedCapabilities
from syncmcp._protocol.steps import (
    AnsweredLinks,
    AnswerInput,
    InputQuestion,
    InputRound,
    Pause,
    Reply,
    RoundLimit,
    Send,
    SessionPin,
    Steps,
    of_begun,
    pause_before,
    url_questions,
)
from syncmcp._protocol.tasks import TaskPoller, TaskState, wait_for_task
from syncmcp.errors import InvalidQuestion, McpError, UrlElicitationRequired

MAX_ROUNDS = 10
"""How often a server may ask before it must have a result, unless a client says otherwise."""


def exchange(
    method: str,
    params: dict[str, Any] | None = None,
    *,
    max_rounds: int = MAX_ROUNDS,
    session: SessionPin | None = None,
) -> Steps[dict[str, Any]]:
    """Send a request, have the server's questions answered, and return the final result.

    The result is not validated. What kind it is of gets read before any model sees it, so that a
    tolerant model cannot turn a question into a hollow success. A call that becomes a task is
    followed to its end.

    Raises:
        ProtocolError: The result is no object, or of a kind that nobody agreed on.
        UrlElicitationRequired: The server asks for links that nobody goes to, or once more for
            those that somebody went to.
        InvalidQuestion: It asks for a link that must not be shown; its cause is the server's error.
        TooManyRounds: The server asked more than `max_rounds` times, or again for a link that
            nobody agreed to.
        SessionChanged: The request belongs to a `session` that has ended.
    """
    outcome = yield from exchange_or_task(method, params, max_rounds=max_rounds, session=session)
    if isinstance(outcome, TaskState):
        return (yield from wait_for_task(TaskPoller(outcome.id, params, outcome, max_rounds)))
    return outcome


def exchange_or_task(
    method: str,
    params: dict[str, Any] | None,
    *,
    max_rounds: int,
    session: SessionPin | None = None,
) -> Steps[dict[str, Any] | TaskState]:
    """Like `exchange`, but come back with the task if the call becomes one.

    Once the server has asked something in a result, it has begun on the call: whether a later
    request about it was sent does not matter for its `delivery`.
    """
    sent = params
    rounds, links = RoundLimit(method, max_rounds), AnsweredLinks()
    begun = False
    try:
        while True:
            try:
                reply: Reply = yield Send(method, sent, session=session)
            except UrlElicitationRequired as error:
                questions = links.new(url_questions(error.data))
                if not questions:
                    raise  # there are none, or it got no further though somebody went there
                rounds.count(error)
                try:
                    agreed = yield AnswerInput(method, params, questions, await_completion=True)
                except InvalidQuestion as refusal:
                    # The links that nobody may be sent to are in the server's own words.
                    raise refusal from error
                if not agreed:
                    raise
                continue
            outcome = reply.dialect.read_result(method, reply.result)
            if not isinstance(outcome, InputRound):
                return outcome
            begun = True
            rounds.count(outcome.questions)
            answers: dict[str, Any] | None = None
            if outcome.questions:
                answers = yield from _answers(method, params, outcome.questions, rounds, links)
            else:
                yield Pause(pause_before(rounds.rounds))
            sent = outcome.retry(params, answers)
    except McpError as error:
        if begun:
            raise of_begun(error, method) from error.__cause__
        raise


def _answers(
    method: str,
    params: dict[str, Any] | None,
    questions: Mapping[str, InputQuestion],
    rounds: RoundLimit,
    links: AnsweredLinks,
) -> Steps[dict[str, Any]]:
    """Have the questions of a result answered; nobody is asked twice for the same link.

    Raises:
        TooManyRounds: A link was not agreed to, and the server asks for it again.
    """
    answers = links.answered(questions)
    if any(answer.get("action") != "accept" for answer in answers.values()):
        rounds.stop("the server asks again for a link that nobody agreed to", questions)
    new = {key: each for key, each in questions.items() if key not in answers}
    if new:
        given = yield AnswerInput(method, params, new)
        links.remember(new, given)
        answers.update(given)
    else:
        # The person is still there, and no server of this era tells when they are done.
        yield Pause(links.pause())
    return answers


def single_exchange(
    method: str,
    params: dict[str, Any] | None,
    offer: OfferedCapabilities,
    *,
    max_rounds: int = MAX_ROUNDS,
) -> Steps[dict[str, Any] | InputRound]:
    """Send a request once and return what comes: its result, or what the server asks.

    A call that becomes a task is followed to its end: what a task asks, the handlers answer.

    Raises:
        ProtocolError: The result is no object, or of a kind that nobody agreed on.
    """
    reply: Reply = yield Send(method, params, offer)
    outcome = reply.dialect.read_result(method, reply.result)
    if isinstance(outcome, TaskState):
        return (yield from wait_for_task(TaskPoller(outcome.id, params, outcome, max_rounds)))
    return outcome
