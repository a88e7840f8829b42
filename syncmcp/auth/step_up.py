"""Sign-ins for more scope: counted, and not repeated once somebody said no.

(basic/authorization/index#step-up-authorization-flow; security best practices, scope minimization)
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from syncmcp.auth.scope import missing
from syncmcp.errors import AuthError

if TYPE_CHECKING:
    from syncmcp.auth.need import Need

__all__ = ["StepUps", "pointless"]

# How often one operation may lead to a sign-in for more scope; with the first sign-in that makes
# three ("no more than a few times").
_MOST = 2


class StepUps:
    """What was tried, and what was denied. Used from any thread."""

    def __init__(self) -> None:
        # Guards what follows.
        self._lock = threading.RLock()
        self._tried: dict[str, int] = {}
        self._denied: frozenset[str] = frozenset()

    def begin(self, need: Need, operation: str) -> None:
        """Count a sign-in for what `operation` needs.

        Raises:
            AuthError: There were enough of them, or it was denied, or would change nothing.
        """
        scope = need.demand.scope
        if scope is not None and not missing(scope, need.earlier):
            raise pointless(
                f"the server wants the scope {scope[:200]!r}, which was asked for already:"
                " asking again would not help"
            )
        with self._lock:
            if scope is not None and self._denied.intersection(scope.split()):
                raise pointless(f"the scope {scope[:200]!r} was denied before: login() asks again")
            tried = self._tried.get(operation, 0)
            if tried >= _MOST:
                raise pointless(
                    f"the server wants more scope after {tried + 1} sign-ins: no further one"
                )
            self._tried[operation] = tried + 1

    def deny(self, need: Need) -> None:
        """The person or the authorization server said no."""
        with self._lock:
            self._denied |= missing(need.demand.scope, need.earlier)

    def accept(self, operation: str) -> None:
        """The operation was let through."""
        with self._lock:
            self._tried.pop(operation, None)

    def reset(self) -> None:
        """Everything may be asked for again."""
        with self._lock:
            self._tried.clear()
            self._denied = frozenset()


def pointless(message: str) -> AuthError:
    """What ends a request whose scope stays too small."""
    return AuthError(message, status=403, error="insufficient_scope")
