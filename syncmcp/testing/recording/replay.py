"""Plays recorded sessions: a target that needs no server."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncmcp.errors import UsageError
from syncmcp.testing.recording.play import Normalize, NotRecorded, Play, completed
from syncmcp.testing.recording.playback import ReplayTransport
from syncmcp.testing.recording.tape import read
from syncmcp.transports.base import TransportSource

if TYPE_CHECKING:
    from syncmcp.testing.recording.score import Order
    from syncmcp.transports.base import Transport


class Replay(TransportSource):
    """A target that answers as a recorded server did: ``syncmcp.connect(Replay(path))``.

    A request gets the answer that was recorded for the same method and parameters, and what the
    server said before it: notifications in their order, and questions, which have to be answered
    as they were. The same request gets the answers one after another in the order in which they
    were recorded. ``***`` in a recorded parameter fits anything. Not compared are the parameters
    of `initialize` and `server/discover`, and what a client puts into `_meta` by itself. A `ping`
    is always answered.

    The n-th connection plays the n-th one that was recorded, and later ones the last. A call whose
    request was not recorded fails with `NotRecorded`.

    Args:
        path: A file that a `Recording` has written. It is read at once.
        order: ``"causal"``: what belongs to one request keeps its order, and requests may come in
            any order. ``"recorded"``: everything keeps the order of the recording; a client that
            does not do the same at the same time waits until its own limits.
        normalize: Given the method and the parameters of a request (or the method of a question
            and the client's answer to it), recorded or asked, before they are compared; returns
            what is to be compared. Runs on the threads that send.

    Raises:
        UsageError: The file cannot be read, or is no recording.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        order: Order = "causal",
        normalize: Normalize | None = None,
    ) -> None:
        if order not in ("causal", "recorded"):
            raise UsageError(f"order is 'causal' or 'recorded', not {order!r}")
        self._path = Path(path)
        self._order: Order = order
        self._normalize = normalize
        sessions = read(self._path)
        # Attempts that led to nothing belong to the way in which that server was reached.
        opened = [session for session in sessions if session.has("adopted")]
        self._sessions = [completed(session) for session in opened or sessions]
        if not self._sessions:
            raise UsageError(f"{self._path} is the recording of nothing")
        # Guards the two below.
        self._lock = threading.RLock()
        self._unexpected: list[NotRecorded] = []
        self._plays: list[Play] = []

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def label(self) -> str:
        """See `TransportSource`."""
        return f"replay of {self._path.name}"

    @property
    def behind(self) -> None:
        """See `TransportSource`."""
        return

    @property
    def unexpected(self) -> list[NotRecorded]:
        """What clients asked that was not recorded, even if they went on regardless."""
        with self._lock:
            return list(self._unexpected)

    @property
    def unplayed(self) -> list[str]:
        """The methods of requests that were recorded and that nobody has asked (yet)."""
        with self._lock:
            plays = list(self._plays)
        rest = [method for play in plays for method in play.unasked]
        for session in self._sessions[len(plays) :]:
            rest += Play(session, self._order, self._normalize).unasked
        return rest

    def transport(self, inner: Transport | None) -> ReplayTransport:
        """See `TransportSource`."""
        assert inner is None
        with self._lock:
            session = self._sessions[min(len(self._plays), len(self._sessions) - 1)]
            play = Play(session, self._order, self._normalize)
            self._plays.append(play)
        return ReplayTransport(self.label, play, self._note)

    def _note(self, error: NotRecorded) -> None:
        with self._lock:
            self._unexpected.append(error)

    def __repr__(self) -> str:
        return f"Replay({str(self._path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._path, self._order, self._normalize)


def _again(path: Path, order: Order, normalize: Normalize | None) -> Replay:
    return Replay(path, order=order, normalize=normalize)
