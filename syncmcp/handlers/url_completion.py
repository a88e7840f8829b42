"""Visits to the URLs that a server sends a person to, and the news that one of them is done."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from syncmcp._protocol.steps import url_questions
from syncmcp.errors import UrlElicitationRequired

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp.errors import McpError

_log = logging.getLogger("syncmcp.connection")

# The ids of one session that are known, and the visits that may still end. A server can name as
# many as it likes: the oldest are forgotten.
MOST = 1_024

Run: TypeAlias = Callable[[Callable[[], object]], object]
"""Runs a function, now or on another thread."""


def here(job: Callable[[], object]) -> None:
    """Run a callback now; what it raises is logged."""
    try:
        job()
    except Exception:  # whoever ends a visit must reach everybody
        _log.exception("a callback of a visit failed")


class UrlVisit:
    """One visit to a URL. It ends once: it is done, or nobody will say so any more.

    Args:
        run: Runs callbacks; by default the thread that ends the visit does.

    Attributes:
        done: Whether it is done.
        agreed: Whether the server has, or is about to get, the person's consent. From then on the
            limits of the question are none of the visit.
    """

    __slots__ = ("_callbacks", "_ended", "_lock", "_run", "_token", "agreed", "done")

    def __init__(self, run: Run = here) -> None:
        self.done = False
        self.agreed = False
        self._run = run
        # Guards the end and who is told of it. Never held while a callback runs.
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._callbacks: dict[object, Callable[[bool], object]] = {}
        self._token: CancelToken | None = None

    @property
    def ended(self) -> bool:
        """Whether there will be no more news of it."""
        return self._ended.is_set()

    def wait(self, timeout: float | None) -> bool:
        """Block until it ends, at most `timeout` seconds; return whether it has ended."""
        return self._ended.wait(timeout)

    def end(self, *, done: bool) -> None:
        """End it; the first time counts. Never blocks."""
        with self._lock:
            if self._ended.is_set():
                return
            self.done = done
            self._ended.set()
            callbacks, self._callbacks = list(self._callbacks.values()), {}
            self._token = None
        for callback in callbacks:
            self._run(partial(callback, done))

    def agree(self, token: CancelToken) -> None:
        """The server gets the person's consent; `token` is that of the question."""
        with self._lock:
            self.agreed = True
            self._token = None if self._ended.is_set() else token
            lost = self._ended.is_set() and not self.done
        if lost:
            self._run(partial(token.cancel, "nobody will say that it is done"))

    def lose(self, reason: str) -> None:
        """Nobody will say any more that it is done.

        After the consent the token says so, too: whoever waits in turns must see the end. Before it
        the token would stop a question that can still be answered.
        """
        with self._lock:
            token = self._token
        if token is None:
            self.end(done=False)
        else:  # which ends the visit; what else hangs on it is user code
            self._run(partial(token.cancel, reason))

    def on_end(self, callback: Callable[[bool], object]) -> Callable[[], None]:
        """Have `callback` told once whether it is done; return what takes the callback away."""
        key = object()
        with self._lock:
            if not self._ended.is_set():
                self._callbacks[key] = callback
                return partial(self._forget, key)
        self._run(partial(callback, self.done))
        return lambda: None

    def _forget(self, key: object) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


NEVER = UrlVisit()
"""Of a question that led to no URL, or is over: there will be no news."""

NEVER.end(done=False)


class UrlVisits:
    """The visits of one session, by the ids that its server gave them (2025-11-25).

    That an id is completed is kept as long as the session, whatever became of its question: a
    question may be asked again with the same id. Nothing here blocks.

    Args:
        label: What logs call the server.
        run: Runs callbacks on another thread.
    """

    def __init__(self, label: str, run: Run) -> None:
        self._label = label
        self._run = run
        # Guards what follows; held for look-ups and changes only.
        self._lock = threading.RLock()
        # Whether it is completed, by id; the one that was asked about last comes last.
        self._completed: dict[bytes, bool] = {}
        # Those that have not ended, the oldest first, and of each the ids that are not completed.
        self._visits: dict[UrlVisit, set[bytes]] = {}
        self._over = False

    def asked(self, *elicitation_ids: str) -> None:
        """A server asks for a visit: from now on it may say that it is done."""
        if elicitation_ids:
            with self._lock:
                for each in elicitation_ids:
                    self._know(_key(each))

    def announced(self, error: McpError) -> None:
        """A call has failed: perhaps for want of visits (-32042), which are asked for thereby.

        What the server says right after the error may be read before anybody has looked at it.
        """
        if isinstance(error, UrlElicitationRequired):
            for question in url_questions(error.data).values():
                stated = question.params.get("elicitationId")
                if type(stated) is str:
                    self.asked(stated)

    def begin(self, *elicitation_ids: str) -> UrlVisit:
        """A handler gets the question that asks for it; without an id there will be no news.

        It is done when all of its ids are completed.
        """
        visit = UrlVisit(self._run)
        keys = [_key(each) for each in elicitation_ids]
        oldest: UrlVisit | None = None
        with self._lock:
            missing = {key for key in keys if not self._know(key)}
            done = bool(keys) and not missing
            over = done or self._over
            if not over:
                oldest = self._make_room()
                self._visits[visit] = missing
        if over:
            visit.end(done=done)
        if oldest is not None:
            oldest.lose("its server asks for too many visits")
        return visit

    def complete(self, elicitation_id: object) -> None:
        """The server says that a visit is done. Ids that it never asked about are ignored."""
        key = _key(elicitation_id) if type(elicitation_id) is str else None
        ended: list[UrlVisit] = []
        with self._lock:
            concerned = [visit for visit, missing in self._visits.items() if key in missing]
            known = key in self._completed or bool(concerned)
            if key is not None and known:
                self._know(key)
                self._completed[key] = True
                for visit in concerned:
                    self._visits[visit].discard(key)
                    if not self._visits[visit]:
                        del self._visits[visit]
                        ended.append(visit)
        if not known:
            _log.debug("[%s] completed a visit that it never asked for", self._label)
        for visit in ended:
            visit.end(done=True)

    def close(self, reason: str) -> None:
        """The session is over, and with it every visit: nobody will say that one is done."""
        with self._lock:
            self._over = True
        self.lose(reason)

    def lose(self, reason: str) -> None:
        """Nobody will say that one of the visits so far is done; later ones are not concerned."""
        with self._lock:
            visits, self._visits = list(self._visits), {}
        for visit in visits:
            visit.lose(reason)

    def _know(self, key: bytes) -> bool:
        """Remember that an id was asked about; return whether it is completed."""
        done = self._completed.pop(key, False)
        self._completed[key] = done
        if len(self._completed) > MOST:
            del self._completed[next(iter(self._completed))]
        return done

    def _make_room(self) -> UrlVisit | None:
        """Make room for one more; return the visit that had to go, if one had."""
        if len(self._visits) < MOST:
            return None
        self._visits = {visit: ids for visit, ids in self._visits.items() if not visit.ended}
        if len(self._visits) < MOST:
            return None
        oldest = next(iter(self._visits))
        del self._visits[oldest]
        return oldest


def _key(elicitation_id: str) -> bytes:
    """What an id is kept as: a server may give ids of any length."""
    return hashlib.sha256(elicitation_id.encode("utf-8", "surrogatepass")).digest()
