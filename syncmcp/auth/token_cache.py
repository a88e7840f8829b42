"""The login in use: in memory, and in the store that others may share."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from syncmcp._concurrency import timing
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import current
from syncmcp.auth.tokens import Login
from syncmcp.errors import AuthError, McpError, RequestTimeout, UsageError, fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from syncmcp._http.exchange import AbortableExchange
    from syncmcp.auth.store import TokenStore

__all__ = ["CachedLogin", "SharedAttempt", "SingleFlight", "TokenCache"]


# A token is renewed this many seconds before its end, or a tenth of its life if that is less.
_EARLY = 30.0

# The clock of the process that stored a token may be off by this many seconds; until then the
# server's 401 says whether the token has expired.
_SKEW = 300.0

# After a renewal ahead of time failed, the next attempt comes so many seconds later.
_PAUSE = 10.0

# How long others may work on the same login, in seconds: a person may be among them.
_TURN_SECONDS = 300.0


_DOWNGRADED = (
    "the authorization server issued a token that is not bound to the key of this client: it does"
    " not support DPoP, or was kept from it; dpop=False would accept that"
)
_BOUND = (
    "the authorization server issued a token that is bound to a key (DPoP), and no proof of one was"
    " sent: dpop=True sends it"
)


@dataclass(frozen=True)
class CachedLogin:
    """A login in use.

    Attributes:
        login: The login.
        due: When by `time.monotonic()` its token is worth replacing; `None`: when it is refused.
        own: Whether this process got the token, and did not find it in the store.
    """

    login: Login
    due: float | None
    own: bool

    @property
    def fresh(self) -> bool:
        """Whether there is no reason to replace its token now."""
        return self.due is None or timing.monotonic() < self.due


class TokenCache:
    """Keeps the login of one client at one MCP server. Used from any thread.

    Args:
        store: Where it is kept for others, and for later.
        key: What it is filed under.
        issuer: The one authorization server that is acceptable.
        bound: Whether tokens are bound to a key of the client (RFC 9449); others are then refused.
    """

    def __init__(
        self, store: TokenStore, key: str, issuer: str | None, *, bound: bool = False
    ) -> None:
        self._store = store
        self._key = key
        self._issuer = issuer
        self._kind = "dpop" if bound else "bearer"
        # Guards what follows; never held while the store is at work.
        self._lock = threading.RLock()
        self._held: CachedLogin | None = None

    def turn(self) -> AbstractContextManager[None]:
        """Keep all others who would renew the login out, threads and processes.

        Raises:
            RequestTimeout: They took too long.
            AuthError: The store fails.
            Cut: The exchange on this thread was cut.
        """
        return self._store.lock(self._key, Deadline(_TURN_SECONDS))

    def current(self) -> CachedLogin | None:
        """The login in use, or one that was stored.

        Raises:
            AuthError: The store cannot be read, or holds no login.
        """
        with self._lock:
            held = self._held
        if held is None and (held := self.stored()) is not None:
            with self._lock:
                # Another thread may have got a newer one while this one read.
                held = self._held = self._held or held
        return held

    def stored(self) -> CachedLogin | None:
        """The login in the store, whoever put it there.

        Raises:
            AuthError: The store cannot be read, or holds no login.
        """
        value = self._store.load(self._key)
        if value is None:
            return None
        login = Login.from_json(value)
        if self._issuer not in (None, login.server.issuer) or not self._fits(login):
            return None
        expires = login.token.expires_at
        due = None if expires is None else timing.monotonic() + expires - time.time() + _SKEW
        return CachedLogin(login, due, own=False)

    def other_than(self, used: Login | None) -> CachedLogin | None:
        """The login in use, if it is none or has another token than `used`."""
        with self._lock:
            held = self._held
        return None if held is None or held.login.same_token(used) else held

    def newer_than(self, used: Login | None) -> CachedLogin | None:
        """The login in the store, if it has another token than `used`; it is used from now on.

        Raises:
            AuthError: The store cannot be read, or holds no login.
        """
        held = self.stored()
        if held is None or held.login.same_token(used):
            return None
        self._use(held)
        return held

    def keep(self, login: Login) -> CachedLogin:
        """Store a login that was just made, and use it from now on.

        Raises:
            AuthError: The store cannot be written, or the token is of another type than was asked
                for.
        """
        if not self._fits(login):
            raise AuthError(_DOWNGRADED if self._kind == "dpop" else _BOUND)
        self._store.save(self._key, login.to_json())
        expires = login.token.expires_at
        left = None if expires is None else expires - time.time()
        due = None if left is None else timing.monotonic() + left - min(_EARLY, left / 10)
        held = CachedLogin(login, due, own=True)
        self._use(held)
        return held

    def put_off(self, held: CachedLogin) -> None:
        """Do not renew a login for a while, as that failed and its token still works."""
        later = CachedLogin(held.login, timing.monotonic() + _PAUSE, held.own)
        with self._lock:
            if self._held is held:  # else others have got a newer one, or have logged out
                self._held = later

    def spent(self, login: Login) -> CachedLogin | None:
        """Forget a refresh token, unless others have stored a newer login, which is returned.

        Raises:
            AuthError: The store fails.
        """
        newer = self.newer_than(login)
        if newer is not None:
            return newer
        left = login.without_refresh()
        if self.stored() is not None:
            self._store.save(self._key, left.to_json())
        self._use(CachedLogin(left, None, own=False))
        return None

    def forget(self) -> Login | None:
        """Forget the login here and in the store; returns what it was.

        Raises:
            AuthError: The store fails.
        """
        held = self.stored()
        with self._lock:
            held, self._held = held or self._held, None
        self._store.save(self._key, None)
        return None if held is None else held.login

    def _fits(self, login: Login) -> bool:
        return login.token.token_type.lower() == self._kind

    def _use(self, held: CachedLogin) -> None:
        with self._lock:
            self._held = held


# One thread gets a token, all others that need one wait for it.


T = TypeVar("T")


class SharedAttempt(Generic[T]):
    """Work that one thread does for all that wait for it.

    Attributes:
        apart: Whether it goes on without anybody waiting.
        worker: The thread that does it.
        done: Set when nobody works at it any more.
        ended: Whether the work came to its end; if not, and without an error, it was given up.
        outcome: What came of it.
        error: Why it failed.
    """

    def __init__(self, apart: bool) -> None:
        self.apart = apart
        self.worker: int | None = None
        self.done = threading.Event()
        self.ended = False
        self.outcome: T | None = None
        self.error: BaseException | None = None
        # Guards what follows.
        self._lock = threading.RLock()
        self._waiting: list[Deadline] = []
        self._held = False

    @contextmanager
    def person(self, deadline: Deadline | None) -> Iterator[None]:
        """Whoever waits does not pay for the time that a person takes.

        Args:
            deadline: That of the thread that does the work.
        """
        if deadline is not None:
            deadline.hold()
        with self._lock:
            self._held = True
            for one in self._waiting:
                one.hold()
        try:
            yield
        finally:
            with self._lock:
                self._held = False
                for one in self._waiting:
                    one.release()
            if deadline is not None:
                deadline.release()

    def wait(self, exchange: AbortableExchange | None) -> None:
        """Wait for the end of the work.

        Raises:
            RequestTimeout: The deadline of the exchange passed.
            Cut: The exchange was cut.
        """
        if exchange is None:
            self.done.wait()
            return
        deadline = exchange.deadline
        with self._lock:
            self._waiting.append(deadline)
            if self._held:
                deadline.hold()
        try:
            # Its clock may have been stopped in the meantime, so the deadline is looked at again.
            while not exchange.wait(self.done, deadline.remaining()):
                if deadline.expired:
                    raise RequestTimeout(
                        "no token was there in time",
                        seconds=deadline.seconds,
                        delivery="refused" if exchange.sent else "not_sent",
                    )
        finally:
            with self._lock:
                self._waiting.remove(deadline)
                if self._held:
                    deadline.release()


class SingleFlight(Generic[T]):
    """Lets one thread at a time do work, and gives the others what comes of it."""

    def __init__(self) -> None:
        # Guards the flight.
        self._lock = threading.RLock()
        self._flight: SharedAttempt[T] | None = None
        self._generation = timing.fork_generation

    def run(
        self,
        ready: Callable[[], T | None],
        work: Callable[[SharedAttempt[T]], T | None],
        *,
        apart: bool,
    ) -> T | None:
        """Return what is ready, or what comes of the work, done here or by another thread.

        Args:
            ready: What makes the work needless (by now), or `None`; does not block.
            work: Does it; may fail, or end with `None`.
            apart: Whether the work goes on when nobody waits for it any more; it then has a
                thread of its own. Those who wait for work of the other kind look again after it.

        Raises:
            McpError: The work failed; each who waited for it gets the error.
            UsageError: This thread is at it already: it would wait for itself.
            RequestTimeout: The deadline of the exchange on this thread passed.
            Cut: The exchange on this thread was cut.
        """
        if self._generation != timing.fork_generation:  # whoever was at it is in the parent process
            self.__init__()  # type: ignore[misc]
        while True:
            mine: SharedAttempt[T] | None = None
            try:
                with self._lock:
                    value = ready()
                    if value is not None:
                        return value
                    flight = self._flight
                    if flight is None:
                        mine = flight = self._flight = SharedAttempt(apart)
                if mine is not None:
                    if apart and self._hand_over(mine, work):
                        mine = None
                    else:
                        self._do(mine, work)
            finally:
                if mine is not None:  # done, or Ctrl-C came at any point
                    self._land(mine)
            if flight.worker == threading.get_ident() and not flight.done.is_set():
                raise UsageError(
                    "what is called to sign in (a receiver, a store) cannot use what it signs in"
                )
            flight.wait(current())
            if flight.error is not None:
                raise fresh(flight.error) if isinstance(flight.error, McpError) else flight.error
            if flight.ended and flight.apart == apart:
                return flight.outcome

    def _hand_over(
        self, flight: SharedAttempt[T], work: Callable[[SharedAttempt[T]], T | None]
    ) -> bool:
        def run() -> None:
            try:
                self._do(flight, work)
            except BaseException as error:  # raised by those who wait
                flight.error = error
            finally:
                self._land(flight)

        try:
            threading.Thread(target=run, name="syncmcp-auth", daemon=True).start()
        except RuntimeError:  # the interpreter is about to exit
            return False
        return True

    def _do(self, flight: SharedAttempt[T], work: Callable[[SharedAttempt[T]], T | None]) -> None:
        flight.worker = threading.get_ident()
        try:
            flight.outcome = work(flight)
            flight.ended = True
        except McpError as error:
            exchange = current()
            if exchange is not None and (exchange.aborted or exchange.deadline.expired):
                raise  # it was the time of this thread's own call: others have more
            flight.error = error

    def _land(self, flight: SharedAttempt[T]) -> None:
        with self._lock:
            if self._flight is flight:
                self._flight = None
        flight.done.set()
