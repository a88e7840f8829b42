"""Tools that wait for the retry of their request (2026-07-28, `input_required`)."""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncmcp.testing.server import wire
from syncmcp.testing.server.call import Call
from syncmcp.testing.server.question import Withdrawn
from syncmcp.testing.server.stats import Stats
from syncmcp.testing.server.wire import INVALID_PARAMS, Message, RpcError

if TYPE_CHECKING:
    from syncmcp.testing.server.session import Session

METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose result may be `input_required`."""

STATE = "requestState"
RESPONSES = "inputResponses"

_USED = "used before"
_GIVEN_UP = "no longer waited for"


class Round:
    """One `input_required` result and the thread that waits for the retry.

    Attributes:
        state: The `requestState` that names it.
        keys: The keys of its questions.
        call: The request it answered.
    """

    def __init__(self, call: Call, keys: frozenset[str]) -> None:
        self.state = secrets.token_urlsafe(24)
        self.keys = keys
        self.call = call
        self._inbox: queue.SimpleQueue[Call | Exception] = queue.SimpleQueue()

    def put(self, item: Call | Exception) -> None:
        """Wake the thread that waits: with the retry, or with what it is to raise."""
        self._inbox.put(item)

    def wait(self, timeout: float | None) -> Call:
        """Return the retry. Raises what was put, or `queue.Empty`."""
        item = self._inbox.get(timeout=timeout)
        if isinstance(item, Exception):
            raise item
        return item


class Rounds:
    """Every round of one server that waits for its retry, over all transports."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._lock = threading.Lock()  # Guards both tables.
        self._open: dict[str, Round] = {}
        self._ended: dict[str, str] = {}

    def open(self, call: Call, keys: frozenset[str]) -> Round:
        """Register a round before its result is sent, for the retry may follow at once."""
        opened = Round(call, keys)
        with self._lock:
            self._open[opened.state] = opened
        with self._stats as stats:
            stats.paused += 1
        return opened

    def wait(self, opened: Round, timeout: float) -> Call:
        """Wait for the retry.

        Raises:
            TimeoutError: It did not come within `timeout` seconds.
            Withdrawn: The session or the server has ended.
        """
        try:
            return opened.wait(timeout)
        except queue.Empty:
            if self.drop(opened):
                raise TimeoutError(f"no retry of the request within {timeout} s") from None
        return opened.wait(None)  # Whoever took it out of the table has put something.

    def drop(self, opened: Round, why: str = _GIVEN_UP) -> bool:
        """Have a round wait no longer; return whether it still did."""
        with self._lock:
            known = self._open.pop(opened.state, None) is not None
            self._ended[opened.state] = why
        if known:
            with self._stats as stats:
                stats.paused -= 1
        return known

    def end(self, session: Session | None = None) -> None:
        """End the waiting tools of `session`, or all."""
        with self._lock:
            rounds = list(self._open.values())
        for opened in rounds:
            if (session is None or opened.call.session is session) and self.drop(opened):
                opened.put(Withdrawn("nobody is left to send the request again"))

    def knows(self, call: Call) -> bool:
        """Return whether a round waits for this request."""
        with self._lock:
            return str(call.params.get(STATE)) in self._open

    def resume(self, call: Call) -> None:
        """Give a retry to the thread that waits for it.

        Raises:
            RpcError: No round of this client waits for this request (code -32602).
        """
        state = call.params.get(STATE)
        with self._lock:
            opened = self._open.get(state) if isinstance(state, str) else None
            problem = self._refusal(opened, call)
        if problem is None and opened is not None and self.drop(opened, _USED):
            for fault in _faults(opened, call):
                self._stats.blame(fault)
            opened.put(call)
            return
        problem = problem or _known(_USED)
        if problem != _known(_GIVEN_UP):
            self._stats.blame(f"{call.method}: {problem}")
        raise RpcError(INVALID_PARAMS, problem)

    def _refusal(self, opened: Round | None, call: Call) -> str | None:
        if call.method not in METHODS:
            return f"{call.method} has no {STATE} and no {RESPONSES}"
        if STATE not in call.params:
            return f"{RESPONSES} without {STATE}"
        if opened is None:
            return _known(self._ended.get(str(call.params[STATE]), "not one of this server's"))
        if opened.call.session is not call.session:
            return f"{STATE} belongs to another client"
        if _original(opened.call) != _original(call):
            return f"{STATE} belongs to another request"
        return None


def _known(what: str) -> str:
    return f"{STATE} is {what}"


def _original(call: Call) -> tuple[str, Message]:
    """Return what a retry repeats unchanged."""
    own = ("_meta", STATE, RESPONSES)
    return call.method, {name: value for name, value in call.params.items() if name not in own}


def _faults(opened: Round, call: Call) -> list[str]:
    """Return what the retry does wrong although it can be served."""
    faults: list[str] = []
    if opened.call.session is not None and wire.identity(call.request_id) == wire.identity(
        opened.call.request_id
    ):
        faults.append(f"{call.method}: the retry has the id of the request before")
    given = responses(call)
    lacking, unasked = opened.keys - given.keys(), given.keys() - opened.keys
    faults += [f"{RESPONSES} lacks {key!r}" for key in sorted(lacking)]
    faults += [f"{RESPONSES} has {key!r}, which was not asked" for key in sorted(unasked)]
    return faults


def responses(call: Call) -> Mapping[str, Any]:
    """Return the answers that a retry carries, by key."""
    given = call.params.get(RESPONSES, {})
    return given if isinstance(given, dict) else {}
