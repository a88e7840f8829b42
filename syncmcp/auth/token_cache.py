"""The login in use: in memory, and in the store that others may share."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncmcp._concurrency import timing
from syncmcp._concurrency.timing import Deadline
from syncmcp.auth.tokens import Login
from syncmcp.errors import AuthError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from syncmcp.auth.store import TokenStore

__all__ = ["Held", "Keeper"]

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
class Held:
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


class Keeper:
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
        self._held: Held | None = None

    def turn(self) -> AbstractContextManager[None]:
        """Keep all others who would renew the login out, threads and processes.

        Raises:
            RequestTimeout: They took too long.
            AuthError: The store fails.
            Cut: The exchange on this thread was cut.
        """
        return self._store.lock(self._key, Deadline(_TURN_SECONDS))

    def current(self) -> Held | None:
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

    def stored(self) -> Held | None:
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
        return Held(login, due, own=False)

    def other_than(self, used: Login | None) -> Held | None:
        """The login in use, if it is none or has another token than `used`."""
        with self._lock:
            held = self._held
        return None if held is None or held.login.same_token(used) else held

    def newer_than(self, used: Login | None) -> Held | None:
        """The login in the store, if it has another token than `used`; it is used from now on.

        Raises:
            AuthError: The store cannot be read, or holds no login.
        """
        held = self.stored()
        if held is None or held.login.same_token(used):
            return None
        self._use(held)
        return held

    def keep(self, login: Login) -> Held:
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
        held = Held(login, due, own=True)
        self._use(held)
        return held

    def put_off(self, held: Held) -> None:
        """Do not renew a login for a while, as that failed and its token still works."""
        later = Held(held.login, timing.monotonic() + _PAUSE, held.own)
        with self._lock:
            if self._held is held:  # else others have got a newer one, or have logged out
                self._held = later

    def spent(self, login: Login) -> Held | None:
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
        self._use(Held(left, None, own=False))
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

    def _use(self, held: Held) -> None:
        with self._lock:
            self._held = held
