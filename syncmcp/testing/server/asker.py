"""How the questions of one handler travel: as requests, or in rounds (2026-07-28)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncmcp.testing.server import answers, asking, wire
from syncmcp.testing.server.call import Call
from syncmcp.testing.server.capabilities import MissingCapability, missing_for
from syncmcp.testing.server.question import Progress, Question, Withdrawn
from syncmcp.testing.server.revisions import STATELESS
from syncmcp.testing.server.wire import Message, RpcError

if TYPE_CHECKING:
    from syncmcp.testing.server.server import Server

Asked = tuple[str, "Message | None"]
"""Method and params of a question."""


class Asker:
    """Asks for one handler, whose request changes with every round.

    Attributes:
        call: The request being served: the latest, if the client had to send it again.
        cancelled: Set when the caller gave up, or did not come back with the request.
    """

    def __init__(self, call: Call, server: Server) -> None:
        self.call = call
        self.cancelled = threading.Event()
        self._server = server
        self._lock = threading.Lock()  # Guards `_waiting`.
        self._waiting: set[Question] = set()
        # One `input_required` at a time: there is one request to answer with it.
        self._turn = threading.Lock()
        call.at_end(self._call_ended)

    def check(self, method: str, params: Message | None) -> None:
        """Raise `MissingCapability` unless the client declared what the question needs."""
        call = self.call
        missing = missing_for(method, params or {}, call.client_capabilities, call.revision)
        if missing is not None:
            raise MissingCapability(missing, call.revision)

    def ask(self, asked: Asked, timeout: float, progress: Progress | None) -> Message:
        """Ask one thing and wait for the result."""
        self.check(*asked)
        if self.call.revision in STATELESS:
            return self._ask_in_rounds({"question": asked}, timeout)["question"]
        question = self.send(*asked, progress)
        try:
            return self._checked(asked, question.result(timeout))
        finally:
            self.done(question)

    def ask_all(self, questions: Mapping[str, Asked], timeout: float) -> dict[str, Message]:
        """Ask several things at once and wait for all results."""
        for asked in questions.values():
            self.check(*asked)
        if self.call.revision in STATELESS:
            return self._ask_in_rounds(questions, timeout)
        sent: dict[str, Question] = {}
        try:
            for key, asked in questions.items():
                sent[key] = self.send(*asked, None)
            return {
                key: self._checked(questions[key], question.result(timeout))
                for key, question in sent.items()
            }
        finally:
            for question in sent.values():
                question.cancel("another question failed")
                self.done(question)

    def send(self, method: str, params: Message | None, progress: Progress | None) -> Question:
        """Send a request on the stream of the call (stateful revisions), unchecked."""
        call, session = self.call, self.call.session
        if session is None or session.revision != call.revision:
            raise RpcError(wire.INTERNAL_ERROR, f"{call.revision} has no requests from servers")
        question = session.question(method, params, send=call.send, progress=progress)
        with self._lock:
            self._waiting.add(question)
        if not call.open:
            self._call_ended(call)
        return question

    def done(self, question: Question) -> None:
        """Forget a question that was sent."""
        with self._lock:
            self._waiting.discard(question)

    def round(self, questions: Mapping[str, Asked], timeout: float) -> Mapping[str, Any]:
        """Answer the request with `input_required`, wait for the retry, go on under it.

        Returns:
            What the retry answers, by key.

        Raises:
            TimeoutError: No retry came in time.
            Withdrawn: The call ended first.
        """
        server = self._server
        with self._turn:
            call = self.call
            opened = server.rounds.open(call, frozenset(questions))
            result: Message = {
                "resultType": "input_required",
                asking.STATE: opened.state,
                "_meta": {wire.SERVER_INFO: server.info},
            }
            if questions:
                result["inputRequests"] = {
                    key: {"method": method} | ({} if params is None else {"params": params})
                    for key, (method, params) in questions.items()
                }
            with server.stats as stats:
                stats.questions.update(method for method, _ in questions.values())
            if not server.answer(call, wire.reply(call.request_id, result)):
                server.rounds.drop(opened)
                with server.stats as stats:
                    stats.questions.subtract(method for method, _ in questions.values())
                raise Withdrawn("the call has ended")
            try:
                retry = self.call = server.rounds.wait(opened, timeout)
            except (TimeoutError, Withdrawn):
                self.cancelled.set()
                raise
        # Runs at once if the client has given up already.
        retry.at_end(self._call_ended)
        return asking.responses(retry)

    def _ask_in_rounds(self, questions: Mapping[str, Asked], timeout: float) -> dict[str, Message]:
        results: dict[str, Message] = {}
        missing = dict(questions)
        while missing:
            given = self.round(missing, timeout)
            for key in given.keys() & missing.keys():
                results[key] = self._checked(missing.pop(key), given[key])
        return {key: results[key] for key in questions}

    def _checked(self, asked: Asked, answer: Any) -> Message:
        method, params = asked
        for breach in answers.breaches(method, params or {}, answer, self.call.revision):
            self._server.stats.blame(breach)
        return answer if isinstance(answer, dict) else {}

    def _call_ended(self, call: Call) -> None:
        if call.cancelled.is_set():
            self.cancelled.set()
        with self._lock:
            waiting = list(self._waiting)
        for question in waiting:
            question.cancel("the call has ended")
