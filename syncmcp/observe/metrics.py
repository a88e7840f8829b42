"""What a program counts and times: requests, bytes, repetitions.

::

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

import logging
from collections.abc import Callable
from typing import Any, Literal, Protocol

from syncmcp._base.checks import refuse_coroutines
from syncmcp.interceptors import Interceptor, Message

__all__ = ["Measured", "Metrics"]

_log = logging.getLogger("syncmcp.observe.metrics")


class Metrics(Protocol):
    """Where numbers go. Many threads call it at one time, one that reads a connection among them.

    Each method counts and returns: one that blocks holds up the calls of the client. What it raises
    is logged, and harms nobody.
    """

    def request(self, server: str, method: str, seconds: float, error: str | None) -> object:
        """A request of ours is over.

        Args:
            server: What logs and errors call the server.
            method: The request's method.
            seconds: How long it took, from when it left.
            error: The class of the error that it ended with; `None` if it has a result.
        """
        ...

    def frame(self, server: str, direction: Literal["sent", "received"], size: int) -> object:
        """A message of so many bytes was handed to the connection, or came from it."""
        ...

    def repetition(self, server: str, method: str) -> object:
        """A request that failed is about to be sent again."""
        ...


class Measured(Interceptor):
    """An interceptor that has `Metrics` told. One object may serve many clients.

    Args:
        metrics: Who is told.

    Raises:
        UsageError: It lacks a method, or has coroutine functions.
    """

    def __init__(self, metrics: Metrics) -> None:
        for name in ("request", "frame", "repetition"):
            refuse_coroutines(
                getattr(metrics, name, None),  # type: ignore[arg-type]
                f"{type(metrics).__name__}.{name}",
            )
        self._metrics = metrics

    def ended(self, answer: Message) -> None:
        """See `Interceptor`."""
        error = None if answer.error is None else type(answer.error).__name__
        seconds = answer.elapsed or 0.0  # of one that never left there is none
        self._tell(self._metrics.request, answer.server, answer.method, seconds, error)

    def moved(self, server: str, direction: Literal["sent", "received"], size: int) -> None:
        """Tell of a frame."""
        self._tell(self._metrics.frame, server, direction, size)

    def repeated(self, server: str, method: str) -> None:
        """Tell of a repetition."""
        self._tell(self._metrics.repetition, server, method)

    def _tell(self, report: Callable[..., object], *facts: Any) -> None:
        try:
            report(*facts)
        except Exception:  # the program's own code: no call may fail by being counted
            _log.exception("the metrics of %s were not taken", facts[0])
