"""A request of the server to its client (stateful revisions)."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from syncmcp.testing.server.wire import Message, RpcError

Progress = Callable[[float, "float | None", "str | None"], object]


class Withdrawn(Exception):
    """A question ended without an answer: it was withdrawn, or its call has ended."""


class Question:
    """A question that waits for its answer. Its methods may be called from any thread.

    Attributes:
        id: The request's id; also its progress token, if it was given one.
    """

    def __init__(
        self,
        identifier: int,
        method: str,
        *,
        withdraw: Callable[[Question, str | None], bool],
        progress: Progress | None,
    ) -> None:
        self.id = identifier
        self._method = method
        self._withdraw = withdraw
        self._progress = progress
        self._reached: float | None = None
        # What came from the client, in order; an exception when nothing more will come.
        self._inbox: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()

    def result(self, timeout: float = 300.0) -> Any:
        """Wait for the result, an object unless the client errs.

        Progress callbacks run on this thread.

        Args:
            timeout: Seconds to wait at most; progress starts them anew. When they have passed,
                the question is withdrawn.

        Raises:
            RpcError: The client answered with an error.
            TimeoutError: No answer came in time.
            Withdrawn: The question was withdrawn, or the call it belongs to has ended.
            ConnectionError: The session has ended.
        """
        while True:
            try:
                item = self._inbox.get(timeout=timeout)
            except queue.Empty:
                text = f"the client did not answer {self._method} in {timeout} s"
                self._withdraw(self, text)
                raise TimeoutError(text) from None
            if isinstance(item, Exception):
                raise item
            if "method" not in item:
                return _result(item)
            params: Message = item["params"]
            if self._progress is not None:
                self._progress(params["progress"], params.get("total"), params.get("message"))

    def cancel(self, reason: str | None = None) -> bool:
        """Withdraw the question; the client is told. Return whether it was still open."""
        if not self._withdraw(self, reason):
            return False
        self.end(Withdrawn(reason or f"{self._method} was withdrawn"))
        return True

    def answered(self, message: Message) -> None:
        """Take the client's answer; called by the session."""
        self._inbox.put(message)

    def progressed(self, params: Message) -> str | None:
        """Take a progress notification; return what is wrong with it."""
        reached = params.get("progress")
        if self._progress is None:
            return f"progress of question {self.id}, which has no progress token"
        if not isinstance(reached, (int, float)) or isinstance(reached, bool):
            return f"progress of question {self.id} is not a number: {reached!r}"
        if self._reached is not None and reached <= self._reached:
            return f"progress of question {self.id} went from {self._reached} to {reached}"
        self._reached = reached
        self._inbox.put({"method": "notifications/progress", "params": params})
        return None

    def end(self, error: Exception) -> None:
        """Have whoever waits raise `error`."""
        self._inbox.put(error)


def _result(answer: Message) -> Any:
    error = answer.get("error")
    if isinstance(error, dict):
        raise RpcError(error.get("code", 0), str(error.get("message")), error.get("data"))
    return answer.get("result")
