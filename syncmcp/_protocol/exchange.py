"""One request and everything that belongs to it, until there is a final result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from syncmcp._protocol.capabilities import ELICITATION, OfferedCapabilities
from syncmcp._protocol.dialect import Dialect, Reply, TaskState
from syncmcp._protocol.steps import (
    AnswerInput,
    InputQuestion,
    InputRound,
    Pause,
    RegisterCallback,
    Send,
    SendAndForget,
    SessionPin,
    Steps,
    WatchTask,
    link_of,
    url_questions,
)
from syncmcp._protocol.tasks import (
    ACTIONABLE_STATUSES,
    AUGMENTED,
    CANCEL,
    FINAL_STATUSES,
    GET,
    MIN_WATCHED_INTERVAL,
    UPDATE,
)
from syncmcp.errors import (
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    InvalidQuestion,
    McpError,
    OutcomeUnknown,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    TooManyRounds,
    TransportError,
    UrlElicitationRequired,
    fresh,
)

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
                questions = links.unseen(url_questions(error.data))
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
                yield Pause(repeat_delay(rounds.rounds))
            sent = outcome.retry(params, answers)
    except McpError as error:
        if begun:
            raise error_of_started_call(error, method) from error.__cause__
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
    answers = links.known_answers(questions)
    if any(answer.get("action") != "accept" for answer in answers.values()):
        rounds.fail("the server asks again for a link that nobody agreed to", questions)
    new = {key: each for key, each in questions.items() if key not in answers}
    if new:
        given = yield AnswerInput(method, params, new)
        links.remember(new, given)
        answers.update(given)
    else:
        # The person is still there, and no server of this era tells when they are done.
        yield Pause(links.next_pause())
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


# The one among them that does something; the others only ask.
_NOT_REPEATABLE = "tools/call"

# Seconds to wait before a request is repeated that nothing was asked for, and at most.
_FIRST_DELAY = 0.05
_MAX_DELAY = 0.25

# The same for a request that waits for a person who is at a link: about a minute in ten rounds.
_MAX_VISIT_DELAY = 15.0

# What may be a random value in a URL; it is one if there is a digit in it. Shorter ones are names.
_PERHAPS_RANDOM = re.compile(r"[A-Za-z0-9_-]{16,}")


class RoundLimit:
    """Counts how often a server asks before it has a result."""

    def __init__(self, method: str, most: int) -> None:
        self._method = method
        self._most = most
        self.rounds = 0

    def count(self, last: McpError | Mapping[str, InputQuestion]) -> None:
        """It asks once more.

        Args:
            last: What it said: an error, or these questions.

        Raises:
            TooManyRounds: That is too often.
        """
        if self.rounds >= self._most:
            self.fail(f"the server asked more than {self._most} times (option max_rounds)", last)
        self.rounds += 1

    def fail(self, why: str, last: McpError | Mapping[str, InputQuestion]) -> NoReturn:
        """Nothing will come of it.

        Raises:
            TooManyRounds: Always; its cause is `last`.
        """
        if not isinstance(last, McpError):
            last = McpError(
                f"the server asked for {len(last)} more answers",
                method=self._method,
                questions={
                    key: {"method": each.method, "params": each.params}
                    for key, each in last.items()
                },
            )
        raise TooManyRounds(why, rounds=self.rounds, method=self._method) from last


class AnsweredLinks:
    """Where one call has sent somebody, so that nobody is asked for the same link twice."""

    def __init__(self) -> None:
        self._names: set[tuple[str, ...]] = set()
        self._answers: dict[tuple[str, str], dict[str, Any]] = {}
        self._visits = 0

    def unseen(self, questions: Mapping[str, InputQuestion]) -> dict[str, InputQuestion]:
        """Those links of an error -32042 that it names for the first time in this call.

        A server that knows no progress names the same ones again, perhaps with another id.
        """
        known = frozenset(self._names)  # one error may name a page twice, for two ids
        listed: dict[tuple[tuple[str, ...], ...], str] = {}
        for key, each in questions.items():
            names = _link_keys(each.params)
            if known.isdisjoint(names):
                listed.setdefault(names, key)
            self._names.update(names)
        return {key: questions[key] for key in listed.values()}

    def known_answers(self, questions: Mapping[str, InputQuestion]) -> dict[str, dict[str, Any]]:
        """The answers to those links of a result that somebody gave in this call, by key.

        The link and the words must be the same: no consent is passed on to anything else.
        """
        answers = {key: self._known(each) for key, each in questions.items()}
        return {key: answer for key, answer in answers.items() if answer is not None}

    def _known(self, question: InputQuestion) -> dict[str, Any] | None:
        link = link_of(question)
        return None if link is None else self._answers.get(link)

    def remember(
        self, questions: Mapping[str, InputQuestion], answers: Mapping[str, dict[str, Any]]
    ) -> None:
        """Keep what was answered, if it was a link."""
        for key, each in questions.items():
            if (link := link_of(each)) is not None and key in answers:
                self._answers[link] = answers[key]

    def next_pause(self) -> float:
        """Seconds until the server is asked again whether a person is done."""
        self._visits += 1
        return repeat_delay(self._visits, _MAX_DELAY, _MAX_VISIT_DELAY)


def _link_keys(params: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """What a link is known by: its id, its URL, and what a person would recognize.

    Many servers make an id, or a state of their own, for each error and put it into the URL. Where
    nothing else is new, neither the words for the person, they lead to the same page.
    """
    id, url, message = (params.get(name) for name in ("elicitationId", "url", "message"))
    names: list[tuple[str, ...]] = [("id", id)] if type(id) is str else []
    if type(url) is str:
        names.append(("url", url))
        if type(message) is str:
            path = max(url.find("/", url.find("//") + 2), 0)  # another host is another page
            rest = _PERHAPS_RANDOM.sub(_without_random, url[path:])
            names.append(("page", url[:path], rest, message))
    return tuple(names)


def _without_random(match: re.Match[str]) -> str:
    value = match.group()
    return "*" if any(character.isdigit() for character in value) else value


def error_of_started_call(error: McpError, method: str) -> McpError:
    """What became of a call that its server has begun on, where a later request about it failed.

    That may not have been sent, but the call was.

    Args:
        error: How that request failed; says afterwards how the call ended.
        method: The method of the call.
    """
    facts: Any = error
    if hasattr(facts, "delivery"):
        facts.method, facts.delivery = method, "unknown"
    if method == _NOT_REPEATABLE and isinstance(error, (ConnectFailed, ConnectionLost)):
        lost = OutcomeUnknown(*error.args, **error.__dict__)
        lost.__cause__ = error.__cause__
        return lost
    return error


def repeat_delay(
    round_number: int, first: float = _FIRST_DELAY, longest: float = _MAX_DELAY
) -> float:
    """Seconds to wait before a request is repeated that nothing was asked for; 1 is the first."""
    return float(min(first * 2.0 ** (min(round_number, 16) - 1), longest))


class TaskPoller:
    """A task on its way to a result, as far as it was followed.

    Args:
        id: The task's id.
        params: The parameters of the call that became the task, if they are known.
        state: Where it stands; `None` if nobody has looked yet.
        max_rounds: How often the server may ask before there is a result.

    Attributes:
        told: Called with every state that is seen, one at a time.
        guard: Entered while that changes, which several who look may do at the same moment.
        until: When the questions that are open are withdrawn, and the task is followed further
            without an answer. Those that a later look finds have what stands here then.
        until_then: What takes its place with the next look, if that is something else.
    """

    def __init__(
        self,
        id: str,
        params: dict[str, Any] | None,
        state: TaskState | None,
        max_rounds: int,
    ) -> None:
        self.id = id
        self.params = params
        self.state = state
        self.on_state: Callable[[TaskState], object] | None = None
        self.lock: AbstractContextManager[object] = nullcontext()
        self.withdraw_on: RegisterCallback | None = None
        self.next_withdraw_on: RegisterCallback | None = None
        # What that was before the look that found the questions.
        self._withdraw_on: RegisterCallback | None = None
        self._rounds = RoundLimit(AUGMENTED, max_rounds)
        self._links = AnsweredLinks()
        # The keys of questions that somebody has answered, and answers that the server has not got.
        self._answered: set[str] = set()
        self._unsent: dict[str, Any] = {}
        # Why a question was not answered. It is not asked again, so nothing else will come.
        self._refusal: McpError | None = None

    @property
    def ended(self) -> bool:
        """Whether the task has come to its end."""
        return self.state is not None and self.state.status in FINAL_STATUSES

    def update(self, state: TaskState) -> None:
        """This is where the task stands now; nothing comes after its end."""
        with self.lock:
            if self.ended and state.status not in FINAL_STATUSES:
                return  # that was on its way for longer
            self.state = state
            if self.on_state is not None:
                self.on_state(state)

    def set_final_status(self, status: str) -> None:
        """The task has come to its end; its last state was not looked at."""
        assert self.state is not None
        self.update(self.state._replace(status=status, raw={**self.state.raw, "status": status}))

    def poll_until_done(self, timeout: float | None = None) -> Steps[dict[str, Any]]:
        """Look at the task again and again, have its questions answered, and return its result.

        May be given up and begun again: no question is asked twice.

        Args:
            within: The longest, in seconds, that one look may take.

        Raises:
            ServerError: The call has failed.
            RequestCancelled: The task was cancelled.
            McpError: Whatever can become of a request, or of a question.
        """
        # What wants something of us, or has come to its end, is looked at without delay.
        waits = self.state is not None and self.state.status not in ACTIONABLE_STATUSES
        stop_watching: Callable[[], object] | None = None
        try:
            while True:
                if waits:
                    assert self.state is not None
                    if stop_watching is None and self.state.interval >= MIN_WATCHED_INTERVAL:
                        stop_watching = yield WatchTask(self.id)
                    yield Pause(self.state.interval, self.id)
                with self.lock:
                    self._withdraw_on, self.withdraw_on = (
                        self.withdraw_on,
                        self.next_withdraw_on or self.withdraw_on,
                    )
                dialect = yield from self.poll(timeout)
                assert dialect.tasks is not None  # or it could not have been asked
                result = yield from dialect.tasks.advance(self, dialect, timeout)
                if result is not None:
                    return result
                waits = not self.ended  # as it may be by now, if there were questions
        finally:
            if stop_watching is not None:
                stop_watching()

    def poll(self, timeout: float | None = None) -> Steps[Dialect]:
        """Look at the task, once; return what the server speaks."""
        reply: Reply = yield Send(GET, {"taskId": self.id}, timeout=timeout)
        task_protocol = reply.dialect.tasks
        assert task_protocol is not None  # or it could not have been asked
        self.update(task_protocol.read(GET, reply.dialect.read_result(GET, reply.result)))
        return reply.dialect

    def answer_questions(
        self, questions: Mapping[str, Any], timeout: float | None = None
    ) -> Steps[None]:
        """Have new questions answered, and tell the server (2026-07-28).

        Those that are withdrawn meanwhile are not asked again.

        Raises:
            TooManyRounds: There were too many.
            McpError: One was refused, now or before; or the server could not be told.
        """
        if self._refusal is not None:
            raise fresh(self._refusal)
        new = {key: each for key, each in questions.items() if key not in self._answered}
        if new:
            self._rounds.count(new)
            known = self._links.known_answers(new)
            self._answered.update(known)
            self._unsent.update(known)
            new = {key: each for key, each in new.items() if key not in known}
        if new:
            try:
                answers = yield AnswerInput(
                    AUGMENTED, self.params, new, withdraw_on=self._withdraw_on
                )
            except (RequestCancelled, RequestTimeout):
                raise  # nobody has waited long enough
            except McpError as error:
                self._refusal = fresh(error)
                raise
            self._answered.update(new)
            if answers is None:
                # A server may go on all the same. If it still asks then, it is told that there will
                # be no answer, where there are words for that.
                self._unsent.update(
                    {key: _CANCEL_ANSWER for key, each in new.items() if each.method == ELICITATION}
                )
                yield from self.poll(timeout)
                return
            self._links.remember(new, answers)
            self._unsent.update(answers)
        unsent = {key: each for key, each in self._unsent.items() if key in questions}
        if unsent:
            try:
                yield Send(UPDATE, {"taskId": self.id, "inputResponses": unsent}, timeout=timeout)
            except ServerError:
                yield from self.poll(timeout)
                if not self.ended:  # then it had no use for answers any more
                    raise
            for key in unsent:
                del self._unsent[key]


def wait_for_task(poller: TaskPoller) -> Steps[dict[str, Any]]:
    """Follow a task to its end; if nobody waits for that any more, have it cancelled.

    Raises:
        McpError: What `TaskPoller.follow` raises.
    """
    try:
        return (yield from poller.poll_until_done())
    except ServerError:
        raise  # the server said so itself
    except McpError as error:
        # It is the call that ends like this, whatever was asked about its task at the moment.
        ended = error_of_started_call(error, AUGMENTED)
        # One that cannot be reached cannot be told, either.
        if not (poller.ended or isinstance(error, (TransportError, ClosedError))):
            yield SendAndForget(CANCEL, {"taskId": poller.id})
        raise ended from error.__cause__


# The answer to a form or a link that nobody gives one to.
_CANCEL_ANSWER = {"action": "cancel"}
