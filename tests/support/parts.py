"""Parts inside of the library that tests of other parts need, made here and nowhere else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from syncmcp._http.exchange import AbortableExchange, ExchangeAborted
from syncmcp._protocol.negotiate import Negotiated
from syncmcp._protocol.revisions import dialect_for
from syncmcp.auth import Deadline
from syncmcp.handlers.context import ConnectedServer
from tests.support.stage import PATIENCE, STATEFUL


def agreement(info: dict[str, Any] | None = None) -> Negotiated:
    """What a client and a server agreed on, without capabilities.

    Args:
        info: What the server says of itself.
    """
    return Negotiated(dialect_for(STATEFUL, None), {"serverInfo": info} if info else {})


def connected_server(
    name: str, *, trusted: bool = False, info: dict[str, Any] | None = None
) -> ConnectedServer:
    """A server that nobody connected to, as handlers and policies see it."""
    return ConnectedServer(agreement(info), name=name, trusted=trusted)


class Exchange(AbortableExchange):
    """What a call over HTTP runs in: entered by the thread that waits, aborted by any.

    Attributes:
        waits: Set once its thread waits for what is not there yet.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        super().__init__(deadline or Deadline(PATIENCE))
        self.waits = threading.Event()

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Wait for `event`, at most `seconds`."""
        if not event.is_set():
            self.waits.set()
        return super().wait(event, seconds)


def aborted() -> AbstractContextManager[object]:
    """Expect that the block ends because the exchange that it runs in is aborted."""
    return pytest.raises(ExchangeAborted)


def was_aborted(outcome: object) -> bool:
    """Whether this was raised because an exchange was aborted."""
    return isinstance(outcome, ExchangeAborted)


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make no exchange pause, as it does before a stream is resumed; return what was asked for."""
    pauses: list[float] = []

    def sleep(exchange: AbortableExchange, seconds: float) -> None:
        pauses.append(seconds)
        exchange.wait(threading.Event(), 0.001)

    monkeypatch.setattr(AbortableExchange, "sleep", sleep)
    return pauses


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    """A function that raises this, whatever it is given."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail
