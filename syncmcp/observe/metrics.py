"""Metrics: a program counts and times requests, frames and retries.

::

    from syncmcp.observe.metrics import Measured

    class Numbers:
        def request(self, server, method, seconds, error):
            durations.labels(server, method, error or "").observe(seconds)

        def frame(self, server, direction, size):
            traffic.labels(server, direction).inc(size)

        def repetition(self, server, method):
            repetitions.labels(server, method).inc()

    client = syncmcp.Client(target, interceptors=[Measured(Numbers())])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from syncmcp._base.checks import check_callable
from syncmcp._base.text import logger
from syncmcp.interceptors import Interceptor, Message

__all__ = ["Measured", "Metrics"]

_log = logger("syncmcp.observe.metrics")


class Metrics(Protocol):
    """Receives metrics. Implement all three methods.

    Many threads call the methods at the same time, among them the thread that reads a connection. A
    method must not block: it would delay the calls of the client. Exceptions are logged, and do not
    fail a call.
    """

    def request(self, server: str, method: str, seconds: float, error: str | None) -> object:
        """Record that a request of the client has ended.

        Args:
            server: The name of the server in logs and errors.
            method: The method of the request.
            seconds: The seconds since the request was sent; 0 if the request was not sent.
            error: The name of the class of its error; `None` if the request has a result.
        """
        ...

    def frame(self, server: str, direction: Literal["sent", "received"], size: int) -> object:
        """Record a message of `size` bytes that was handed to the connection, or came from it."""
        ...

    def repetition(self, server: str, method: str) -> object:
        """Record that a failed request is about to be sent again."""
        ...


class Measured(Interceptor):
    """An interceptor that reports to `Metrics`. One object may serve many clients.

    Args:
        metrics: The object that receives the metrics.

    Raises:
        UsageError: `metrics` lacks a method, or has a coroutine function.
    """

    def __init__(self, metrics: Metrics) -> None:
        for name, arguments in (
            ("request", ("server", "method", "seconds", "error")),
            ("frame", ("server", "direction", "size")),
            ("repetition", ("server", "method")),
        ):
            method: Any = getattr(metrics, name, None)
            check_callable(method, f"{type(metrics).__name__}.{name}", arguments)
        self._metrics = metrics

    def __repr__(self) -> str:
        return f"Measured({self._metrics!r})"

    def ended(self, answer: Message) -> None:
        """See `Interceptor`."""
        error = None if answer.error is None else type(answer.error).__name__
        seconds = answer.elapsed or 0.0  # `None` if the request was never sent
        self._report(self._metrics.request, answer.server, answer.method, seconds, error)

    def moved(self, server: str, direction: Literal["sent", "received"], size: int) -> None:
        """Report a frame to `Metrics.frame`."""
        self._report(self._metrics.frame, server, direction, size)

    def repeated(self, server: str, method: str) -> None:
        """Report a retry to `Metrics.repetition`."""
        self._report(self._metrics.repetition, server, method)

    def _report(self, method: Callable[..., object], *facts: Any) -> None:
        try:
            method(*facts)
        except Exception:  # an error in the program's own code must not fail a call
            _log.exception("the metrics of %s were not taken", facts[0])
