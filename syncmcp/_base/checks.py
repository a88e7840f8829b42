"""What may be sent as an HTTP header: everything else could end the head or hide what follows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from syncmcp.errors import InvalidOutput, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["check_headers", "refuse_coroutines"]


# A token (RFC 9110, section 5.6.2).
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NEVER_IN_VALUES = re.compile(r"[\r\n\0]")


def check_headers(headers: object, source: str) -> None:
    """Check the names and values that a user wants sent.

    Args:
        headers: What should be a mapping of strings to strings.
        source: What the error calls the place they come from.

    Raises:
        UsageError: It is none, or HTTP does not allow it. Never quotes a value: most are secrets.
    """
    if not isinstance(headers, Mapping):
        raise UsageError(
            f"{source} must be a mapping of header names to values, not {_kind(headers)}"
        )
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"{source} has the name {name!r}, which HTTP does not allow")
        if not isinstance(value, str):
            raise UsageError(f"the value of {name} in {source} must be a str, not {_kind(value)}")
        if _NEVER_IN_VALUES.search(value):
            raise UsageError(f"the value of {name} in {source} has a line end or NUL in it")
        if not _fits_latin_1(value):
            raise UsageError(f"the value of {name} in {source} has characters beyond Latin-1")


def _kind(value: object) -> str:
    return type(value).__name__


def _fits_latin_1(value: str) -> bool:
    return value.isascii() or all(character <= "\xff" for character in value)


# Makes models of results.


M = TypeVar("M", bound="BaseModel")


def validate(model: type[M], raw: dict[str, Any], method: str) -> M:
    """Build the model of a result.

    Raises:
        InvalidOutput: It does not fit.
    """
    try:
        # The library's own models are read by wire names alone; a caller's as that caller wrote it.
        read: Callable[[Any], M] = getattr(model, "from_wire", model.model_validate)
        return read(raw)
    except ValueError as error:
        raise InvalidOutput(
            f"the result does not fit {model.__name__}: {_first_problem(error)}", method=method
        ) from error


def _first_problem(error: ValueError) -> str:
    # Without the input: it may hold anything, secrets too.
    problem = error.errors(include_input=False, include_url=False)[0]  # type: ignore[attr-defined]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


# Coroutine functions are refused where they are given, not lost where they would be called.


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
