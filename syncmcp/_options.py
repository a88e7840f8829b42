"""The options that every call takes, declared once."""

from __future__ import annotations

import contextvars
import copy
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from syncmcp._protocol.meta import check_keys
from syncmcp.cancellation import CancelToken, as_token
from syncmcp.errors import UsageError
from syncmcp.handlers import ProgressHandler, refuse_coroutines

if TYPE_CHECKING:
    from syncmcp.types import LoggingLevel

__all__ = ["CallOptions"]


class CallOptions(TypedDict, total=False):
    """What every operation takes besides its own arguments; all by keyword.

    Where an option is left out, the client's own setting counts.
    """

    timeout: float | None
    """The longest the call may take in all, in seconds; `None` for no limit."""

    idle_timeout: float | None
    """The longest silence after the call's first sign of life, in seconds; `None` for any."""

    cancel: CancelToken | threading.Event | None
    """Cancelling (or setting) it withdraws the call."""

    on_progress: ProgressHandler | None
    """Told the call's progress, on a pool thread, in order, before the call returns."""

    log_level: LoggingLevel | str | None
    """Ask the server to log at this level during the call (2026-07-28; ignored before)."""

    meta: Mapping[str, Any] | None
    """Goes into the request's `_meta`."""

    headers: Mapping[str, str] | None
    """HTTP headers for this call; ignored on other transports."""


OPTION_NAMES: frozenset[str] = frozenset(CallOptions.__annotations__)


class Options:
    """The options of one call, with the client's settings filled in. Never changed once made."""

    __slots__ = (
        "cancel",
        "context",
        "headers",
        "idle_timeout",
        "log_level",
        "meta",
        "on_progress",
        "timeout",
    )

    def __init__(
        self,
        timeout: float | None,
        idle_timeout: float | None,
        on_progress: ProgressHandler | None = None,
        log_level: str | None = None,
        cancel: CancelToken | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.timeout = timeout
        self.idle_timeout = idle_timeout
        self.on_progress = on_progress
        self.log_level = log_level
        self.cancel = cancel
        self.meta = meta
        self.headers = headers
        # Callbacks of the call see the context variables of the caller.
        self.context = contextvars.copy_context()

    @classmethod
    def checked(cls, given: CallOptions, defaults: Options) -> Options:
        """What a caller gave, and `defaults` for what was left out.

        Raises:
            UsageError: An option makes no sense.
        """
        options = cls(defaults.timeout, defaults.idle_timeout)
        if "timeout" in given:
            options.timeout = seconds(given["timeout"], "timeout")
        if "idle_timeout" in given:
            options.idle_timeout = seconds(given["idle_timeout"], "idle_timeout")
        cancel = given.get("cancel")
        if cancel is not None:
            options.cancel = as_token(cancel)
        options.on_progress = given.get("on_progress")
        if options.on_progress is not None:
            refuse_coroutines(options.on_progress, "on_progress")
        options.meta = given.get("meta")
        if options.meta:
            check_keys(options.meta)
        options.log_level = given.get("log_level")
        options.headers = given.get("headers")
        return options

    def with_cancel(self, token: CancelToken) -> Options:
        """The same options, with another token."""
        other = copy.copy(self)
        other.cancel = token
        return other


def seconds(value: float | None, name: str) -> float | None:
    """Check a length of time given by a caller.

    Raises:
        UsageError: It is negative, not a number, or not even a numeric type.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{name} is a number of seconds or None, not {value!r}")
    if value != value or value < 0:  # noqa: PLR0124 - NaN alone differs from itself
        raise UsageError(f"{name} cannot be {value!r}")
    # What the platform cannot wait for (about 292 years) is no limit.
    return None if value >= threading.TIMEOUT_MAX else float(value)
