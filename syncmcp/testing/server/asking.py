"""How a handler asks its client: by requests, or in rounds (2026-07-28)."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from syncmcp.testing.server import wire
from syncmcp.testing.server.questions import (
    MissingCapability,
    Progress,
    Question,
    Withdrawn,
    find_violations,
    missing_for,
)
from syncmcp.testing.server.session import Call, Session
from syncmcp.testing.server.wire import INVALID_PARAMS, STATELESS, Message, RpcError, Stats

# Rounds (2026-07-28): a result `input_required` with questions, and the retry with the answers.


METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose result may be `input_required`."""

STATE = "requestState"
RESPONSES = "inputResponses"

_USED = "used before"
_GIVEN_UP = "no longer waited for"


@dataclass(frozen=True, eq=False)
class Round:
    """An `input_required` result with its `requestState`, and the awaited retry."""

    call: Call
    keys: frozenset[str]
    state: str = field(default_factory=partial(secrets.token_urlsafe, 24))
    retry: Future[Call] = field(default_factory=Future)


class Rounds:
    """The open rounds of one server, over all its transports."""

    def __init__(
        self, stats: Stats, info: Message, answer: Callable[[Call, Message], bool]
    ) -> None:
        self.stats = stats
        self.info = info
        self.answer = answer
        self._lock = threading.Lock()  # Guards both tables.
        self._open: dict[str, Round] = {}
        self._ended: dict[str, str] = {}

    def open(self, call: Call, keys: frozenset[str]) -> Round:
        """Open a round.

        Call this before its result is sent: the retry may follow at once.
        """
        opened = Round(call, keys)
        with self._lock:
            self._open[opened.state] = opened
        self.stats._count(paused=1)
        return opened

    def wait(self, opened: Round, timeout: float) -> Call:
        """Wait for the retry; raise `TimeoutError`, or `Withdrawn` if no retry can come."""
        try:
            return opened.retry.result(timeout)
        except FutureTimeout:
            if self.remove(opened):
                raise TimeoutError(f"no retry of the request within {timeout} s") from None
        return opened.retry.result()  # Another thread has removed the round and sets its outcome.

    def remove(self, opened: Round, why: str = _GIVEN_UP) -> bool:
        """Remove a round; return whether it was open.

        If it was open, the caller must set its outcome.
        """
        with self._lock:
            known = self._open.pop(opened.state, None) is not None
            self._ended[opened.state] = why
        if known:
            self.stats._count(paused=-1)
        return known

    def close(self, session: Session | None = None) -> None:
        """End the open rounds of `session`, or all: their tools raise `Withdrawn`."""
        with self._lock:
            rounds = list(self._open.values())
        for opened in rounds:
            if (session is None or opened.call.session is session) and self.remove(opened):
                opened.retry.set_exception(Withdrawn("nobody is left to send the request again"))

    def is_open(self, call: Call) -> bool:
        with self._lock:
            return str(call.params.get(STATE)) in self._open

    def resume(self, call: Call) -> None:
        """Pass a retry to the thread that waits for it; raise `RpcError` if no thread waits."""
        state = call.params.get(STATE)
        with self._lock:
            opened = self._open.get(state) if isinstance(state, str) else None
            problem = self._refusal(opened, call)
        if problem is None and opened is not None and self.remove(opened, _USED):
            for fault in _retry_problems(opened, call):
                self.stats.blame(fault)
            opened.retry.set_result(call)
            return
        problem = problem or _state_error(_USED)
        if problem != _state_error(_GIVEN_UP):
            self.stats.blame(f"{call.method}: {problem}")
        raise RpcError(INVALID_PARAMS, problem)

    def _refusal(self, opened: Round | None, call: Call) -> str | None:
        if call.method not in METHODS:
            return f"{call.method} has no {STATE} and no {RESPONSES}"
        if STATE not in call.params:
            return f"{RESPONSES} without {STATE}"
        if opened is None:
            return _state_error(
                self._ended.get(str(call.params[STATE]), "not one of this server's")
            )
        if opened.call.session is not call.session:
            return f"{STATE} belongs to another client"
        if _retry_key(opened.call) != _retry_key(call):
            return f"{STATE} belongs to another request"
        return None


def _state_error(what: str) -> str:
    return f"{STATE} is {what}"


def _retry_key(call: Call) -> tuple[str, Message]:
    """Return the method and params that a retry must repeat unchanged."""
    own = ("_meta", STATE, RESPONSES)
    return call.method, {name: value for name, value in call.params.items() if name not in own}


def _retry_problems(opened: Round, call: Call) -> list[str]:
    """Return violations of the protocol in a retry that do not prevent a response."""
    faults: list[str] = []
    if opened.call.session is not None and call.request_id == opened.call.request_id:
        faults.append(f"{call.method}: the retry has the id of the request before")
    given = responses(call)
    lacking, unasked = opened.keys - given.keys(), given.keys() - opened.keys
    faults += [f"{RESPONSES} lacks {key!r}" for key in sorted(lacking)]
    faults += [f"{RESPONSES} has {key!r}, which was not asked" for key in sorted(unasked)]
    return faults


def responses(call: Call) -> Mapping[str, Any]:
    given = call.params.get(RESPONSES, {})
    return given if isinstance(given, dict) else {}


Asked = tuple[str, "Message | None"]
"""Method and params of a question."""


class Asker:
    """Sends the questions of one handler; the base class of `ToolContext`."""

    def __init__(self, call: Call, rounds: Rounds) -> None:
        self.call = call
        self.cancelled = threading.Event()
        self._rounds = rounds
        # Held for a whole round: there is only one request to answer.
        self._round_lock = threading.Lock()
        call.add_done_callback(self._call_ended)

    def _check(self, method: str, params: Message | None) -> None:
        """Raise `MissingCapability` unless the client declared what the question needs."""
        call = self.call
        missing = missing_for(method, params or {}, call.client_capabilities, call.revision)
        if missing is not None:
            raise MissingCapability(missing, call.revision)

    def _ask(self, asked: Asked, timeout: float, progress: Progress | None) -> Message:
        return self._ask_all({"question": asked}, timeout, progress)["question"]

    def _ask_all(
        self, questions: Mapping[str, Asked], timeout: float, progress: Progress | None = None
    ) -> dict[str, Message]:
        for asked in questions.values():
            self._check(*asked)
        if self.call.revision in STATELESS:
            return self._ask_in_rounds(questions, timeout)
        return self._ask_by_requests(questions, timeout, progress)

    def _ask_by_requests(
        self, questions: Mapping[str, Asked], timeout: float, progress: Progress | None
    ) -> dict[str, Message]:
        sent: dict[str, Question] = {}
        try:
            for key, asked in questions.items():
                sent[key] = self.call.question(*asked, progress)
            return {
                key: self._checked(questions[key], question.result(timeout))
                for key, question in sent.items()
            }
        finally:
            for question in sent.values():
                question.cancel("another question failed")

    def _round(self, questions: Mapping[str, Asked], timeout: float) -> Mapping[str, Any]:
        """Respond with `input_required`, wait for the retry, and return its answers by key."""
        rounds = self._rounds
        with self._round_lock:
            call = self.call
            opened = rounds.open(call, frozenset(questions))
            result: Message = {
                "resultType": "input_required",
                STATE: opened.state,
                "_meta": {wire.SERVER_INFO: rounds.info},
            }
            if questions:
                result["inputRequests"] = {
                    key: wire.given(method=method, params=params)
                    for key, (method, params) in questions.items()
                }
            with rounds.stats as stats:
                stats.questions.update(method for method, _ in questions.values())
            if not rounds.answer(call, wire.reply(call.request_id, result)):
                rounds.remove(opened)
                with rounds.stats as stats:
                    stats.questions.subtract(method for method, _ in questions.values())
                raise Withdrawn("the call has ended")
            try:
                retry = self.call = rounds.wait(opened, timeout)
            except (TimeoutError, Withdrawn):
                self.cancelled.set()
                raise
        # Runs at once if the retry was cancelled before this line.
        retry.add_done_callback(self._call_ended)
        return responses(retry)

    def _ask_in_rounds(self, questions: Mapping[str, Asked], timeout: float) -> dict[str, Message]:
        results: dict[str, Message] = {}
        missing = dict(questions)
        while missing:
            given = self._round(missing, timeout)
            for key in given.keys() & missing.keys():
                results[key] = self._checked(missing.pop(key), given[key])
        return {key: results[key] for key in questions}

    def _checked(self, asked: Asked, answer: Any) -> Message:
        method, params = asked
        for breach in find_violations(method, params or {}, answer, self.call.revision):
            self._rounds.stats.blame(breach)
        return answer if isinstance(answer, dict) else {}

    def _call_ended(self, call: Call) -> None:
        if call.cancelled.is_set():
            self.cancelled.set()
