"""Makes internal objects of the library for tests of other parts; no other test makes them."""

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
    """Return the result of a stateful handshake, without capabilities.

    Args:
        info: The `serverInfo` of the server.
    """
    return Negotiated(dialect_for(STATEFUL, None), {"serverInfo": info} if info else {})


def connected_server(
    name: str, *, trusted: bool = False, info: dict[str, Any] | None = None
) -> ConnectedServer:
    """Return a server as handlers and policies see it, without a connection."""
    return ConnectedServer(agreement(info), name=name, trusted=trusted)


class Exchange(AbortableExchange):
    """The HTTP exchange of a call. One thread enters it and waits; any thread may abort it.

    Attributes:
        waits: Set once a thread waits for an event that is not set.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        super().__init__(deadline or Deadline(PATIENCE))
        self.waits = threading.Event()

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Set `waits` if `event` is not set; then wait for `event`, at most `seconds`."""
        if not event.is_set():
            self.waits.set()
        return super().wait(event, seconds)


def aborted() -> AbstractContextManager[object]:
    """Expect that the block ends because its exchange is aborted."""
    return pytest.raises(ExchangeAborted)


def was_aborted(outcome: object) -> bool:
    """Return True if `outcome` is the error of an aborted exchange."""
    return isinstance(outcome, ExchangeAborted)


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Shorten the pauses before streams resume to 1 ms; return the list of requested seconds."""
    pauses: list[float] = []

    def sleep(exchange: AbortableExchange, seconds: float) -> None:
        pauses.append(seconds)
        exchange.wait(threading.Event(), 0.001)

    monkeypatch.setattr(AbortableExchange, "sleep", sleep)
    return pauses


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    """Return a function that raises `error`, whatever its arguments are."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail
