"""One request until its final result: rounds of input, URL elicitation, and polling of tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from syncmcp._protocol import tasks
from syncmcp._protocol.capabilities import ELICITATION, OfferedCapabilities
from syncmcp._protocol.dialect import Dialect, Reply
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
    link_of,
    read_questions,
    url_questions,
)
from syncmcp.errors import (
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    InvalidQuestion,
    McpError,
    OutcomeUnknown,
    ProtocolError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    TooManyRounds,
    TransportError,
    UrlElicitationRequired,
    fresh,
)

MAX_ROUNDS = 10
"""The default of the option max_rounds: how often a server may ask before its final result."""

# The only request in `INPUT_METHODS` with side effects.
_NOT_REPEATABLE = "tools/call"

# Seconds to wait before a request without questions is repeated: the first time, and at most.
_FIRST_DELAY = 0.05
_MAX_DELAY = 0.25

# The maximum while a person visits a link: about a minute in ten rounds.
_MAX_VISIT_DELAY = 15.0

# A part of a URL that is taken for a random value if it has a digit. Shorter parts are names.
_PERHAPS_RANDOM = re.compile(r"[A-Za-z0-9_-]{16,}")

# Scheme and host of a URL.
_ORIGIN = re.compile(r"[^/?#]*//[^/?#]*")

# The answer to a form or a link whose question was withdrawn.
_CANCEL_ANSWER = {"action": "cancel"}


def exchange(
    method: str,
    params: dict[str, Any] | None = None,
    *,
    max_rounds: int = MAX_ROUNDS,
    session: SessionPin | None = None,
    polls_task: bool = True,
) -> Steps[dict[str, Any]]:
    """Send a request, have the server's questions answered, and return the final result.

    The result is not validated. But its kind (final, questions, task) is determined before a model
    of pydantic parses it: a tolerant model would read questions as an empty success. A call that
    becomes a task is polled until it ends; unless `polls_task`, its `TaskState` is returned.

    After a result with questions, the server has started the call. So an error of a repeated
    request has the `delivery` of the call, not of that request.

    Raises:
        ProtocolError: The result is not an object, or of a kind that was not negotiated.
        UrlElicitationRequired: The server requires URLs that no handler opens or the person does
            not agree to, or requires the same URLs again after the person visited them.
        InvalidQuestion: It requires a URL that must not be shown; the cause is the server's error.
        TooManyRounds: The server asked more than `max_rounds` times, or again for a URL that the
            person did not agree to.
        SessionChanged: The session to which `session` ties the request has ended.
    """
    sent = params
    rounds: RoundLimit | None = None  # made for the first question: most calls have none
    begun = False
    try:
        while True:
            try:
                reply: Reply = yield Send(method, sent, session=session)
            except UrlElicitationRequired as error:
                rounds = rounds or RoundLimit(method, max_rounds)
                questions = rounds.links.unseen(url_questions(error.data))
                if not questions:
                    raise  # without links, or the same links after the person visited them
                rounds.count(error)
                try:
                    agreed = yield AnswerInput(method, params, questions, await_completion=True)
                except InvalidQuestion as refusal:
                    # The server's error contains the refused links.
                    raise refusal from error
                if not agreed:
                    raise
                continue
            outcome: Any = reply.dialect.read_result(method, reply.result)
            if not isinstance(outcome, InputRound):
                break
            begun = True
            rounds = rounds or RoundLimit(method, max_rounds)
            rounds.count(outcome.questions)
            answers: dict[str, Any] | None = None
            if outcome.questions:
                answers = yield from _answers(method, params, outcome.questions, rounds)
            else:
                yield Pause(repeat_delay(rounds.rounds))
            sent = outcome.retry(params, answers)
    except McpError as error:
        if begun:
            raise error_of_started_call(error, method) from error.__cause__
        raise
    if polls_task and isinstance(outcome, tasks.TaskState):
        outcome = yield from wait_for_task(TaskPoller(outcome.id, params, outcome, max_rounds))
    result: dict[str, Any] = outcome
    return result


def _answers(
    method: str,
    params: dict[str, Any] | None,
    questions: Mapping[str, InputQuestion],
    rounds: RoundLimit,
) -> Steps[dict[str, Any]]:
    """Have the questions of a result answered; each link is asked for once per call."""
    links = rounds.links
    answers = links.known_answers(questions)
    if any(answer.get("action") != "accept" for answer in answers.values()):
        rounds.fail("the server asks again for a link that the person did not accept", questions)
    new = {key: each for key, each in questions.items() if key not in answers}
    if new:
        given = yield AnswerInput(method, params, new)
        links.remember(new, given)
        answers.update(given)
    else:
        # The person may still be at the link: servers of 2026-07-28 do not notify completion.
        yield Pause(links.next_pause())
    return answers


def single_exchange(
    method: str,
    params: dict[str, Any] | None,
    offer: OfferedCapabilities,
    *,
    max_rounds: int = MAX_ROUNDS,
) -> Steps[dict[str, Any] | InputRound]:
    """Send a request once; return its result, that of its task, or the questions of the server."""
    reply: Reply = yield Send(method, params, offer)
    outcome = reply.dialect.read_result(method, reply.result)
    if isinstance(outcome, tasks.TaskState):
        return (yield from wait_for_task(TaskPoller(outcome.id, params, outcome, max_rounds)))
    return outcome


class RoundLimit:
    """Limits how often a server may ask before one call's final result; `rounds` is the count."""

    def __init__(self, method: str, most: int) -> None:
        self._method = method
        self._most = most
        self.links = AnsweredLinks()
        self.rounds = 0

    def count(self, last: McpError | Mapping[str, InputQuestion]) -> None:
        """Count one more round, in which the server sent `last`; `TooManyRounds` if too many."""
        if self.rounds >= self._most:
            self.fail(f"the server asked more than {self._most} times (option max_rounds)", last)
        self.rounds += 1

    def fail(self, why: str, last: McpError | Mapping[str, InputQuestion]) -> NoReturn:
        """End the call with `TooManyRounds`, whose cause is `last`."""
        if not isinstance(last, McpError):
            last = McpError(
                f"the server asked for {len(last)} more answers",
                method=self._method,
                questions={key: each._asdict() for key, each in last.items()},
            )
        raise TooManyRounds(why, rounds=self.rounds, method=self._method) from last


class AnsweredLinks:
    """The links that a person was asked to open for one call, with the answers."""

    def __init__(self) -> None:
        self._seen_keys: set[tuple[str, ...]] = set()
        self._answers: dict[tuple[str, str], dict[str, Any]] = {}
        self._visits = 0

    def unseen(self, questions: Mapping[str, InputQuestion]) -> dict[str, InputQuestion]:
        """Return the links of an error -32042 that no earlier error of this call named.

        A server that does not register the visit names the same links again, perhaps with new ids.
        """
        known = frozenset(self._seen_keys)  # one error may name a page twice, with two ids
        listed: dict[tuple[tuple[str, ...], ...], str] = {}
        for key, each in questions.items():
            link_keys = _link_keys(each.params)
            if known.isdisjoint(link_keys):
                listed.setdefault(link_keys, key)
            self._seen_keys.update(link_keys)
        return {key: questions[key] for key in listed.values()}

    def known_answers(self, questions: Mapping[str, InputQuestion]) -> dict[str, dict[str, Any]]:
        """Return the answers to those links of a result that were answered before, by key.

        URL and message must be the same: consent is valid only for the text that the person saw.
        """
        links = ((key, link_of(each)) for key, each in questions.items())
        return {key: self._answers[link] for key, link in links if link in self._answers}

    def remember(
        self, questions: Mapping[str, InputQuestion], answers: Mapping[str, dict[str, Any]]
    ) -> None:
        """Store the answers to links."""
        for key, each in questions.items():
            if (link := link_of(each)) is not None and key in answers:
                self._answers[link] = answers[key]

    def next_pause(self) -> float:
        """Return the seconds to wait before repeating the request while a person visits a link."""
        self._visits += 1
        return repeat_delay(self._visits, _MAX_DELAY, _MAX_VISIT_DELAY)


def _link_keys(params: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Return the keys that identify a link: its id, its URL, and its URL without random parts.

    Many servers put a new id or state into the URL of each error. Two URLs that differ in random
    parts only, and have the same message, lead to the same page.
    """
    id, url, message = (params.get(name) for name in ("elicitationId", "url", "message"))
    keys: list[tuple[str, ...]] = [("id", id)] if type(id) is str else []
    if type(url) is str:
        keys.append(("url", url))
        if type(message) is str:
            origin = _ORIGIN.match(url)
            path = 0 if origin is None else origin.end()  # random hosts are different pages
            rest = _PERHAPS_RANDOM.sub(_without_random, url[path:])
            keys.append(("page", url[:path], rest, message))
    return tuple(keys)


def _without_random(match: re.Match[str]) -> str:
    value = match.group()
    return "*" if any(character.isdigit() for character in value) else value


def error_of_started_call(error: McpError, method: str) -> McpError:
    """Return the error of a call that the server has started, after a later request failed.

    The later request may not have been sent, but the call was: its delivery is ``"unknown"``.
    `error`, the error of the later request, is changed.
    """
    facts: Any = error
    if hasattr(facts, "delivery"):
        facts.method, facts.delivery = method, "unknown"
    if method == _NOT_REPEATABLE and isinstance(error, (ConnectFailed, ConnectionLost)):
        return OutcomeUnknown(*error.args, **error.__dict__)
    return error


def repeat_delay(
    round_number: int, first: float = _FIRST_DELAY, longest: float = _MAX_DELAY
) -> float:
    """Return the seconds to wait before repeating a request: exponential backoff from round 1."""
    return float(min(first * 2.0 ** (min(round_number, 16) - 1), longest))


class TaskPoller:
    """Polls one task until it ends, and sends the handlers' answers to its questions.

    `params` are those of the call that became the task, if known; `state` is the latest state,
    `None` if the task was not polled yet. The server may ask `max_rounds` times before it ends.
    """

    def __init__(
        self,
        id: str,
        params: dict[str, Any] | None,
        state: tasks.TaskState | None,
        max_rounds: int,
    ) -> None:
        self.id = id
        self.params = params
        self.state = state
        self.on_state: Callable[[tasks.TaskState], object] | None = None  # called under `lock`
        # Guards `state`, because several threads may poll the task at the same time.
        self.lock: AbstractContextManager[object] = nullcontext()
        # Withdraws the questions that the next poll finds; polling continues without answers.
        self.withdraw_on: RegisterCallback | None = None
        self.next_withdraw_on: RegisterCallback | None = None  # replaces it at the next poll
        # The value of `withdraw_on` before the latest poll, which found the open questions.
        self._withdraw_on: RegisterCallback | None = None
        self._rounds = RoundLimit(tasks.AUGMENTED, max_rounds)
        # The keys of answered questions, and the answers that the server has not received.
        self._answered: set[str] = set()
        self._unsent: dict[str, Any] = {}
        # Why a question was refused. It is not asked again, so later attempts fail the same way.
        self._refusal: McpError | None = None

    @property
    def ended(self) -> bool:
        """True if the latest state is a final one."""
        return self.state is not None and self.state.status in tasks.FINAL_STATUSES

    def update(self, state: tasks.TaskState) -> None:
        """Record a state; ignored if the task has ended and the state is not final."""
        with self.lock:
            if self.ended and state.status not in tasks.FINAL_STATUSES:
                return  # an older state that arrived late
            self.state = state
            if self.on_state is not None:
                self.on_state(state)

    def poll_until_done(self, timeout: float | None = None) -> Steps[dict[str, Any]]:
        """Poll the task, have its questions answered, and return the result of the call.

        May be stopped and called again: no question is asked twice. `timeout` is the limit for one
        poll, in seconds. `RequestCancelled` if the task was cancelled; an `McpError` if the call or
        a request about the task failed, or a question was refused.
        """
        with self.lock:
            # Read before the state: the event that ends the pause may change the state, too.
            ends_on = self.withdraw_on
            # A task that has ended or has questions is polled without a pause.
            waits = self.state is not None and self.state.status not in tasks.ACTIONABLE_STATUSES
        while True:
            if waits:
                assert self.state is not None
                yield Pause(self.state.interval, ends_on)
            with self.lock:
                self._withdraw_on, self.withdraw_on = (
                    self.withdraw_on,
                    self.next_withdraw_on or self.withdraw_on,
                )
                ends_on = self.withdraw_on
            dialect = yield from self.poll(timeout)
            assert dialect.tasks is not None  # otherwise `poll` would have failed
            advance = self._fetch if dialect.tasks.requested_by_client else self._act_on_state
            result = yield from advance(dialect, timeout)
            if result is not None:
                return result
            waits = not self.ended  # answering questions may poll, too, and find a final state

    def poll(self, timeout: float | None = None) -> Steps[Dialect]:
        """Poll the task once; return the dialect of the connection."""
        reply: Reply = yield Send(tasks.GET, {"taskId": self.id}, timeout=timeout)
        task_protocol = reply.dialect.tasks
        assert task_protocol is not None  # otherwise the request would have failed
        self.update(
            task_protocol.read(tasks.GET, reply.dialect.read_result(tasks.GET, reply.result))
        )
        return reply.dialect

    def _fetch(self, dialect: Dialect, timeout: float | None) -> Steps[dict[str, Any] | None]:
        """Return the result of the call (2025-11-25); `None` if there is no result yet.

        The server sends its questions while ``tasks/result`` is open.
        """
        assert self.state is not None
        if self.state.status == "cancelled":
            raise tasks.cancelled_error(self.state)
        if self.state.status not in tasks.ACTIONABLE_STATUSES:
            return None
        try:
            reply: Reply = yield Send(tasks.RESULT, {"taskId": self.id})
        except ServerError as error:
            if not self.ended:  # since the latest poll, the task may have ended or been deleted
                try:
                    yield from self.poll(timeout)
                except ServerError:
                    raise error from None
            if self.state.status == "cancelled":
                raise tasks.cancelled_error(self.state) from error
            raise
        result = reply.dialect.read_result(tasks.RESULT, reply.result)
        assert isinstance(result, dict)
        if not self.ended:
            status = "failed" if result.get("isError") is True else "completed"
            raw = {**self.state.raw, "status": status}
            self.update(self.state._replace(status=status, raw=raw))
        return result

    def _act_on_state(
        self, dialect: Dialect, timeout: float | None
    ) -> Steps[dict[str, Any] | None]:
        """Return the result in the state (2026-07-28), or `None`; answer questions in it."""
        assert self.state is not None
        _, status, _, raw = self.state
        if status == "cancelled":
            raise tasks.cancelled_error(self.state)
        if status == "failed":
            raise tasks.failed_error(raw.get("error"))
        if status == "completed":
            result = dialect.read_result(tasks.AUGMENTED, raw.get("result"))
            if not isinstance(result, dict):
                raise ProtocolError("the result of a task is not a final result", method=tasks.GET)
            return result
        if status == "input_required":
            questions = read_questions(tasks.GET, raw.get("inputRequests"))
            yield from self.answer_questions(questions, timeout)
        return None

    def answer_questions(
        self, questions: Mapping[str, Any], timeout: float | None = None
    ) -> Steps[None]:
        """Have new questions answered, and send the answers to the server (2026-07-28).

        A withdrawn question is not asked again; a refused one fails each time.
        """
        if self._refusal is not None:
            raise fresh(self._refusal)
        new = {key: each for key, each in questions.items() if key not in self._answered}
        if new:
            self._rounds.count(new)
            known = self._rounds.links.known_answers(new)
            self._answered.update(known)
            self._unsent.update(known)
            new = {key: each for key, each in new.items() if key not in known}
        if new:
            try:
                answers = yield AnswerInput(
                    tasks.AUGMENTED, self.params, new, withdraw_on=self._withdraw_on
                )
            except (RequestCancelled, RequestTimeout):
                raise  # not a refusal: a later call may ask again
            except McpError as error:
                self._refusal = fresh(error)
                raise
            self._answered.update(new)
            if answers is None:
                # The server may go on without the answers. If the next poll still finds the
                # questions, elicitations are answered with "cancel"; others have no such answer.
                self._unsent.update(
                    {key: _CANCEL_ANSWER for key, each in new.items() if each.method == ELICITATION}
                )
                yield from self.poll(timeout)
                return
            self._rounds.links.remember(new, answers)
            self._unsent.update(answers)
        unsent = {key: each for key, each in self._unsent.items() if key in questions}
        if unsent:
            try:
                yield Send(
                    tasks.UPDATE, {"taskId": self.id, "inputResponses": unsent}, timeout=timeout
                )
            except ServerError:
                yield from self.poll(timeout)
                if not self.ended:  # a task that has ended needs no answers
                    raise
            for key in unsent:
                del self._unsent[key]


def wait_for_task(poller: TaskPoller) -> Steps[dict[str, Any]]:
    """Poll a task until it ends; cancel it at the server if polling fails."""
    try:
        return (yield from poller.poll_until_done())
    except ServerError:
        raise  # the call failed, and the task has ended
    except McpError as error:
        # The error of a request about the task becomes the error of the call.
        ended = error_of_started_call(error, tasks.AUGMENTED)
        # After a transport error, the server cannot be reached for the cancel request either.
        if not (poller.ended or isinstance(error, (TransportError, ClosedError))):
            yield SendAndForget(tasks.CANCEL, {"taskId": poller.id})
        raise ended from error.__cause__
