"""Checks of arguments (durations, numbers, names, callables, headers), and of results."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import ParamSpec

from syncmcp._base.similar import did_you_mean
from syncmcp._base.text import first_problem
from syncmcp.errors import InvalidOutput, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["check_callable", "check_headers"]


# A token (RFC 9110, section 5.6.2).
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NEVER_IN_VALUES = re.compile(r"[\r\n\0]")


def check_headers(headers: object, source: str) -> None:
    """Check the headers that a program wants to be sent.

    Raises:
        UsageError: They are not a mapping of strings to strings, or HTTP does not allow a name or
            value. The error names `source`, and quotes no values: most are secrets.
    """
    if not isinstance(headers, Mapping):
        raise UsageError(
            f"{source} must be a mapping of header names to values, not {kind_of(headers)}"
        )
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"{source} has the name {name!r}, which HTTP does not allow")
        if not isinstance(value, str):
            raise UsageError(f"the value of {name} in {source} must be a str, not {kind_of(value)}")
        if _NEVER_IN_VALUES.search(value):
            raise UsageError(f"the value of {name} in {source} contains a line break or NUL")
        if not _fits_latin_1(value):
            raise UsageError(f"the value of {name} in {source} contains characters outside Latin-1")


def kind_of(value: object) -> str:
    """Return the type of a value, for errors: the value itself may contain secrets."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else type(value).__name__


def check_object(value: object, name: str) -> None:
    """Raise `UsageError` if `value` is a class instead of an instance."""
    if isinstance(value, type):
        raise UsageError(f"{name} is the class {value.__name__}: write {value.__name__}(...)")


def hinting(**elsewhere: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function explain in an error what to write instead of these unknown keywords.

    For another unknown keyword, the error suggests a parameter of similar spelling.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = inspect.signature(function).parameters.keys()

        @functools.wraps(function)
        def hinted(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                hint = elsewhere.get(name) or (name not in known and did_you_mean(name, known))
                if hint:
                    what = function.__qualname__.removesuffix(".__init__")
                    raise TypeError(f"{what}() has no {name}=: {hint}")
            return function(*args, **kwargs)

        return hinted

    return decorate


def _fits_latin_1(value: str) -> bool:
    return value.isascii() or all(character <= "\xff" for character in value)


M = TypeVar("M", bound="BaseModel")


def validate(model: type[M], raw: dict[str, Any], method: str) -> M:
    """Return the result `raw` as an instance of `model`; `InvalidOutput` if it does not fit."""
    try:
        # Models of the library accept wire names only. A program configures its own models.
        if hasattr(model, "from_wire"):
            return model.model_validate(raw, by_alias=True, by_name=False)
        return model.model_validate(raw)
    except ValueError as error:
        raise InvalidOutput(
            f"the result does not fit {model.__name__}: {first_problem(error)}", method=method
        ) from error


def check_callable(
    handler: Callable[..., object], name: str, arguments: tuple[str, ...] | None = None
) -> None:
    """Raise `UsageError` unless `handler` can be called with `arguments`, without an event loop."""
    call = getattr(handler, "__call__", None)  # noqa: B004 - the method itself is inspected
    if call is None:
        raise UsageError(f"{name} must be callable, not {kind_of(handler)}")
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        raise UsageError(f"{name} must be a plain function, not a coroutine function")
    if arguments is not None:
        # In 3.10 the signature of an object whose `__call__` is static is wrong.
        of_object = isinstance(call, (FunctionType, MethodType))
        _check_takes(call if of_object else handler, name, arguments)


def _check_takes(handler: Callable[..., object], name: str, arguments: tuple[str, ...]) -> None:
    if isinstance(handler, FunctionType):
        code = handler.__code__
        if code.co_argcount == len(arguments) and not code.co_kwonlyargcount:
            return  # the usual case: reading the signature would take much longer
    try:
        inspect.signature(handler).bind(*arguments)
    except TypeError:
        taken = f"accept the arguments ({', '.join(arguments)})"
        raise UsageError(
            f"{name} must {taken if arguments else 'be callable without arguments'}"
        ) from None
    except ValueError:
        return  # written in C, without a signature


def program_failed(name: str, error: Exception) -> UsageError:
    """Return the error of a call that failed because `name`, code of the program, raised `error`.

    The client does not retry such a call. The text of `error` is left out: it may have secrets.
    """
    return UsageError(f"{name} failed: {type(error).__name__}")


def check_mapping(value: object, name: str) -> None:
    """Raise `UsageError` unless an argument is a mapping or `None`."""
    # The type is compared first: `isinstance` with an abstract class is slow.
    if value is not None and type(value) is not dict and not isinstance(value, Mapping):
        json = isinstance(value, str) and value.lstrip().startswith("{")
        hint = "parse it with json.loads" if json else "write {'name': value}"
        raise UsageError(f"{name} must be a mapping or None, not {kind_of(value)}: {hint}")


def pairs(questions: Any, name: str) -> None:
    """Raise `TypeError` unless an argument maps keys to tuples (method, params)."""
    if not isinstance(questions, Mapping):
        raise TypeError(f"{name} must map keys to tuples (method, params): write {{KEY: (...)}}")
    for key, pair in questions.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                f"{name}[{key!r}] must be a tuple (method, params), not {kind_of(pair)}"
            )


def seconds(value: float | None, name: str) -> float | None:
    """Return a duration in seconds, `None` for no limit; `UsageError` if it is invalid."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{name} must be a number of seconds or None, not {value!r}")
    if value != value or value < 0:  # noqa: PLR0124 - NaN alone differs from itself
        raise UsageError(f"{name} must be 0 or more seconds, or None, not {value!r}")
    # More than the platform can wait for (about 292 years) counts as no limit.
    return None if value >= threading.TIMEOUT_MAX else float(value)


def finite_seconds(value: Any, name: str, *, positive: bool = False) -> float:
    """Return a finite duration in seconds; `UsageError` if it is invalid."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value < threading.TIMEOUT_MAX or (positive and value == 0):
        wanted = "a positive number of seconds" if positive else "a number of seconds, 0 or more"
        raise UsageError(f"{name} must be {wanted}, not {value!r}")
    return float(value)


def whole_number(value: Any, name: str) -> int:
    """Return a limit; `UsageError` if it is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name} must be a whole number of at least 1, not {value!r}")
    return int(value)


def flag(value: object, name: str) -> bool:
    """Return a boolean option; `UsageError` if it is neither `True` nor `False`."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {value!r}")
    return value


def text(value: object, name: str) -> None:
    """Raise `UsageError` unless an argument is a non-empty string."""
    if not isinstance(value, str) or not value:
        hint = ": pass its name" if hasattr(value, "name") else ""
        given = "''" if isinstance(value, str) else kind_of(value)
        raise UsageError(f"{name} must be a non-empty string, not {given}{hint}")
