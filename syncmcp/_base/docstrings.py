"""Docstrings that are completed at run time: with inherited attributes, or with a signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound="Callable[..., Any]")

_SECTION = re.compile(r"^(?:Inherited a|A)ttributes:\n", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+): .*(?:\n {8}.*)*", re.MULTILINE)


def describe_inherited(cls: type) -> None:
    """Add the descriptions of inherited attributes to the docstring of `cls`, for `help()`."""
    if cls.__doc__:
        cls.__doc__ = _Docstring(cls, cls.__doc__)  # type: ignore[assignment]


def describe_call(call: Callable[..., Any]) -> Callable[[F], F]:
    """Add the signature and description of `call` to a function that returns such a callable."""

    def describe(function: F) -> F:
        signature = inspect.signature(call)
        parameters = [one for one in signature.parameters.values() if one.name != "self"]
        shown = f"{function.__name__}{signature.replace(parameters=parameters)}"
        shown = re.sub(r"<class '(\w+)'>|'", r"\1", shown)
        told = inspect.cleandoc(call.__doc__ or "").partition("\n\n")[2]
        function.__doc__ = f"{function.__doc__}\n\n``{shown}``\n\n{told}"
        return function

    return describe


class _Docstring:
    """A docstring that is composed when it is read, to keep imports fast."""

    def __init__(self, cls: type, told: str) -> None:
        self._cls = cls
        self._told = told

    def __get__(self, instance: object, owner: type) -> str:
        told = inspect.cleandoc(self._told)
        own = _attributes(told)
        inherited: dict[str, str] = {}
        for base in self._cls.__mro__[1:]:
            for name, entry in _attributes(base.__doc__ or "").items():
                inherited.setdefault(name, entry)
        entries = "\n".join(inherited[name] for name in inherited if name not in own)
        return f"{told}\n\nInherited attributes:\n{entries}" if entries else told


def _attributes(docstring: str) -> dict[str, str]:
    _, *sections = _SECTION.split(inspect.cleandoc(docstring))
    entries = _ENTRY.finditer("".join(sections))
    return {entry[1]: entry[0] for entry in entries}
