"""Coroutine functions are refused where they are given, not lost where they would be called."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from syncmcp.errors import UsageError

__all__ = ["refuse_coroutines"]


def refuse_coroutines(handler: Callable[..., object], name: str) -> None:
    """Refuse what cannot be called here.

    Raises:
        UsageError: `handler` is not callable, or a coroutine function: there is no event loop.
    """
    call = getattr(handler, "__call__", None)  # noqa: B004 - the method itself is looked at
    if call is None:
        raise UsageError(f"{name} is not callable")
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        raise UsageError(f"{name} is a coroutine function; a plain function is needed here")
