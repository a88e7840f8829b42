"""Mutants of what happens after a failure: new sessions, repetitions, pings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from syncmcp.errors import SessionLost
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

REPETITION = "syncmcp._client.retrying:RetryState"


def _give_up_with_the_session(original: Function) -> Function:
    def decide(self: Any, error: Any, connection: Any) -> Any:
        return None if isinstance(error, SessionLost) else original(self, error, connection)

    return decide


def _open_for_each_call(original: Function) -> Function:
    def ensure_connection(self: Any, deadline: Any, cancel: Any = None) -> Any:
        connection = self.connection
        if connection is not None and connection.close_error is not None:
            self._clean_up_dead(connection, deadline)
            return self._establish(deadline.sooner(self.settings.open_timeout))
        return original(self, deadline, cancel)

    return ensure_connection


def _end_every_call(original: Function) -> Function:
    def lost(self: Any, error: Any) -> None:
        original(self, error)
        if isinstance(error, SessionLost) and len(self._table) > 1:
            self._close_with(error)

    return lost


def _believe_everybody(original: Function) -> Function:
    def init(self: Any, policy: Any, *, trusted: bool, reopens: bool) -> None:
        original(self, policy, trusted=True, reopens=reopens)

    return init


MUTANTS = (
    Mutant(
        "session-gone-for-good",
        "a call that is refused with its session fails",
        f"{REPETITION}._delay",
        _give_up_with_the_session,
        ("HTL-11", "15"),
    ),
    Mutant(
        "a-session-for-each",
        "each thread that is refused begins a session of its own",
        "syncmcp._client.core:ClientCore.ensure_connection",
        _open_for_each_call,
        ("15",),
    ),
    Mutant(
        "all-end-with-the-session",
        "a lost session ends every call in flight",
        "syncmcp._connection.connection:Connection.lost",
        _end_every_call,
        ("15",),
    ),
    Mutant(
        "standing-forgotten",
        "a new session knows neither log level nor subscriptions",
        "syncmcp._client.session_state:SessionState.restore",
        always(None),
        ("15",),
    ),
    Mutant(
        "repeated-blindly",
        "whatever has failed is sent again",
        "syncmcp._client.retrying:may_retry",
        always(True),
        ("16",),
    ),
    Mutant(
        "annotations-make-harmless",
        "what a server says of its tools is believed",
        "syncmcp._client.retrying:RetryRules.__init__",
        _believe_everybody,
        ("16", "TOOL-01"),
    ),
    Mutant(
        "one-miss-is-enough",
        "a connection ends with the first ping that has no answer",
        "syncmcp._client.lifetime:_MISSES",
        lambda original: 1,
        ("RPC-25",),
    ),
    Mutant(
        "watched-unasked",
        "every connection is watched",
        "syncmcp._client.core:ClientCore._start_heartbeat",
        lambda original: lambda self, connection: _watch(self, connection, original),
        ("RPC-25",),
    ),
)


def _watch(core: Any, connection: Any, original: Function) -> Any:
    settings = core.settings
    core.settings = replace(settings, ping_interval=settings.ping_interval or 60.0)
    return original(core, connection)
