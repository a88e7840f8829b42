"""Visits to the URLs of elicitations (URL mode), and the reports that a visit is completed."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from syncmcp._base.text import logger
from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.limited_log import LimitedLog
from syncmcp._protocol.steps import url_questions
from syncmcp.errors import McpError, UrlElicitationRequired

_log = logger("syncmcp.connection")

# Limits the known ids and the open visits of one session, which the server could otherwise make
# grow without limit: the oldest are evicted.
MAX_VISITS = 1_024

Run: TypeAlias = Callable[[Callable[[], object]], object]
"""Runs a function, now or on another thread."""


def run_inline(job: Callable[[], object]) -> None:
    """Run a callback on this thread, and log its exceptions."""
    try:
        job()
    except Exception:  # the other callbacks of the visit have to run, too
        _log.exception("a callback of a visit failed")


class UrlVisit:
    """One visit to a URL, settled once: it is completed, or no report can come any more.

    Attributes:
        run: Runs callbacks, by default on the thread that settles the visit.
        agreed: Whether the person's consent was sent, or is about to be sent. From then on, the
            timeout of the question no longer applies to the visit.
    """

    def __init__(self, run: Run = run_inline) -> None:
        self.agreed = False
        self.run = run
        # Guards the outcome. Never held while a callback runs.
        self._lock = threading.RLock()
        self._outcome: bool | None = None
        # Cancelled once there is any outcome.
        self._over = CancelToken()
        self._token: CancelToken | None = None

    @property
    def done(self) -> bool:
        """Whether the visit is completed."""
        return self._outcome is True

    @property
    def settled(self) -> bool:
        """Whether the outcome is decided."""
        return self._outcome is not None

    def wait(self, timeout: float | None) -> bool:
        """Block until the visit is settled, at most `timeout` seconds; return whether it is."""
        return self._over.wait(timeout)

    def settle(self, *, done: bool) -> None:
        """Decide the outcome; only the first call has an effect. Never blocks."""
        with self._lock:
            if self._outcome is None:
                self._outcome, self._token = done, None
        self._over.cancel()

    def agree(self, token: CancelToken) -> None:
        """Record the person's consent; `token` is the cancel token of the question."""
        with self._lock:
            self.agreed = True
            self._token = None if self.settled else token
            failed = self._outcome is False
        if failed:
            self.run(partial(token.cancel, "the server can no longer report its completion"))

    def cancel(self, reason: str) -> None:
        """Settle the visit as not completed: no report can come any more.

        After the consent the token is cancelled, too, for handlers that poll it. Before the consent
        that would stop a question that can still be answered.
        """
        with self._lock:
            token = self._token
        if token is None:
            self.settle(done=False)
        else:  # this settles the visit; other callbacks of the token are user code
            self.run(partial(token.cancel, reason))

    def on_settled(self, callback: Callable[[bool], object]) -> Callable[[], None]:
        """Call `callback` once with `done`; return a function that removes the callback."""
        return call_when_cancelled(self._over, lambda: self.run(partial(callback, self.done)))


class UrlVisits:
    """The visits of one session, by the elicitation ids of its server (2025-11-25).

    Completed ids are kept until the session ends, whatever the outcome of their questions: a server
    may ask again with the same id. No method blocks.
    """

    def __init__(self, label: str, run: Run, log: LimitedLog) -> None:
        self._label = label
        self._run = run
        self._limited_log = log
        # Guards the attributes below; held for look-ups and changes only.
        self._lock = threading.RLock()
        # Whether an id is completed; least recently asked first.
        self._completed: dict[bytes, bool] = {}
        # The open visits, oldest first, each with its ids that are not completed.
        self._visits: dict[UrlVisit, set[bytes]] = {}
        self._closed = False

    def register(self, *elicitation_ids: str) -> None:
        """Register the ids of a question: from now on the server may report their completion."""
        if elicitation_ids:
            with self._lock:
                for each in elicitation_ids:
                    self._touch(_key(each))

    def register_from_error(self, error: McpError) -> None:
        """Register the ids in an error -32042, which asks for visits; ignore other errors.

        The reader calls this: a completion right after the error may be read before the caller of
        the failed request has looked at the error.
        """
        if isinstance(error, UrlElicitationRequired):
            for question in url_questions(error.data).values():
                elicitation_id = question.params.get("elicitationId")
                if type(elicitation_id) is str:
                    self.register(elicitation_id)

    def start(self, *elicitation_ids: str) -> UrlVisit:
        """Create the visit for a question that is handed to a handler.

        The visit is completed when all of its ids are completed. A visit without ids is never
        completed.
        """
        visit = UrlVisit(self._run)
        keys = [_key(each) for each in elicitation_ids]
        oldest: UrlVisit | None = None
        with self._lock:
            missing = {key for key in keys if not self._touch(key)}
            done = bool(keys) and not missing
            over = done or self._closed
            if not over:
                oldest = self._evict_oldest()
                self._visits[visit] = missing
        if over:
            visit.settle(done=done)
        if oldest is not None:
            oldest.cancel("its server asks for too many visits")
        return visit

    def complete(self, elicitation_id: object) -> None:
        """Handle the report that an id is completed; ignore ids that were never registered."""
        key = _key(elicitation_id) if type(elicitation_id) is str else None
        settled: list[UrlVisit] = []
        with self._lock:
            concerned = [visit for visit, missing in self._visits.items() if key in missing]
            known = key in self._completed or bool(concerned)
            if key is not None and known:
                self._touch(key)
                self._completed[key] = True
                for visit in concerned:
                    self._visits[visit].discard(key)
                    if not self._visits[visit]:
                        del self._visits[visit]
                        settled.append(visit)
        if not known:
            text = "[%s] completed a visit that it never asked for"
            self._limited_log.log(_log, logging.DEBUG, text, self._label)
        for visit in settled:
            visit.settle(done=True)

    def close(self, reason: str) -> None:
        """Settle all visits, also those that start later, because the session has ended."""
        with self._lock:
            self._closed = True
        self.cancel_all(reason)

    def cancel_all(self, reason: str) -> None:
        """Settle all open visits as not completed; later visits are not affected."""
        with self._lock:
            visits, self._visits = list(self._visits), {}
        for visit in visits:
            visit.cancel(reason)

    def _touch(self, key: bytes) -> bool:
        """Store an id as the most recent one; return whether it is completed."""
        done = self._completed.pop(key, False)
        self._completed[key] = done
        if len(self._completed) > MAX_VISITS:
            del self._completed[next(iter(self._completed))]
        return done

    def _evict_oldest(self) -> UrlVisit | None:
        """Make room for one more visit; return the evicted one, if any."""
        if len(self._visits) < MAX_VISITS:
            return None
        self._visits = {visit: ids for visit, ids in self._visits.items() if not visit.settled}
        if len(self._visits) < MAX_VISITS:
            return None
        oldest = next(iter(self._visits))
        del self._visits[oldest]
        return oldest


def _key(elicitation_id: str) -> bytes:
    """Return a digest of an id, because a server may send ids of any length."""
    return hashlib.sha256(elicitation_id.encode("utf-8", "surrogatepass")).digest()
