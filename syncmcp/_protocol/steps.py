"""What an operation is made of: a generator that yields requests and returns its result.

An operation is written once. Whoever drives it decides whether the waiting happens in the caller's
thread or behind a future.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from syncmcp._protocol.dialect import Dialect

R = TypeVar("R")


class Send(NamedTuple):
    """Send this request and come back with its answer."""

    method: str
    params: dict[str, Any] | None


class Reply(NamedTuple):
    """A result as it came, and the dialect to read it in."""

    result: Any
    dialect: Dialect


Steps = Generator[Send, Reply, R]
