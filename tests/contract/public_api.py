"""The public names of syncmcp and their signatures, as text that can be compared.

``python -m tests.contract.public_api`` writes the snapshot ``tests/contract/public_api.txt``. A
test compares the code with it. A name that was removed or changed breaks programs of users. A class
has a line with its arguments or fields, one with its other attributes, and one for each method.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import MemberDescriptorType, ModuleType, UnionType
from typing import Annotated, Any, ForwardRef, Generic, Protocol, Union, get_args, get_origin

from typing_extensions import is_typeddict

from syncmcp._client.batch import Collected
from syncmcp._client.operation import Operation
from syncmcp.group import Routed

MODULES = (
    "syncmcp",
    "syncmcp.approval",
    "syncmcp.auth",
    "syncmcp.observe.logging",
    "syncmcp.cache",
    "syncmcp.completion",
    "syncmcp.observe.diagnosis",
    "syncmcp.errors",
    "syncmcp.handlers.forms",
    "syncmcp.group",
    "syncmcp.handlers",
    "syncmcp.handlers.links",
    "syncmcp.llm",
    "syncmcp.observe.metrics",
    "syncmcp.handlers.pending",
    "syncmcp.handlers.roots",
    "syncmcp.saving",
    "syncmcp.servers_file",
    "syncmcp.skills",
    "syncmcp.tasks",
    "syncmcp.templates",
    "syncmcp.testing",
    "syncmcp.tools",
    "syncmcp.observe.tracing",
    "syncmcp.types",
    "syncmcp.ui.browser",
    "syncmcp.ui.terminal",
    "syncmcp.ui",
)
SNAPSHOT = Path(__file__).with_name("public_api.txt")


def public_classes() -> list[type]:
    """Return each public class once."""
    homes = [importlib.import_module(name) for name in MODULES]
    values = [getattr(home, name) for home in homes for name in home.__all__]
    return [
        *dict.fromkeys(
            value for value in values if inspect.isclass(value) and get_origin(value) is None
        )
    ]


def describe() -> str:
    """Return the text: each public name once, sorted within its module."""
    lines: list[str] = []
    told: dict[object, str] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        lines.append(f"[{name}]")
        again: dict[str, list[str]] = {}
        for public in sorted(module.__all__):
            value: object = getattr(module, public)
            is_class = inspect.isclass(value) and get_origin(value) is None
            if is_class and told.setdefault(value, name) != name:
                again.setdefault(told[value], []).append(public)
            else:
                lines.extend(_describe(public, value, module))
        lines += [f"from {home}: {', '.join(names)}" for home, names in again.items()]
        lines.append("")
    return "\n".join(lines)


def _describe(name: str, value: object, owner: ModuleType) -> Iterator[str]:
    home = getattr(value, "__module__", owner.__name__)
    if inspect.isclass(value) and home.startswith("syncmcp"):
        yield from _describe_class(name, value)
    elif inspect.ismodule(value):
        yield f"module {name}"
    elif inspect.isroutine(value):
        yield f"def {name}{_signature(value)}"
    elif isinstance(value, (str, int, float, bool, type(None))):
        yield f"{name} = {value!r}"
    else:
        yield f"{name}: {_alias(value)}"


def _describe_class(name: str, cls: type) -> Iterator[str]:
    kind = "dataclass" if dataclasses.is_dataclass(cls) else "class"
    bases = ", ".join(dict.fromkeys(_public_bases(cls)))
    members: dict[str, str] = {}
    for ancestor in reversed([cls, *_hidden_ancestors(cls)]):
        members |= _members(ancestor)
    if issubclass(cls, enum.Enum):
        members = {member.name: f"{member.name} = {member.value!r}" for member in cls}
    fields = [name for name in sorted(_fields(cls)) if name in members]
    if hasattr(cls, "model_fields") or is_typeddict(cls) or issubclass(cls, BaseException):
        yield f"{kind} {name}({bases}) ({', '.join(members[field] for field in fields)})"
    else:
        yield f"{kind} {name}({bases}){_call_signature(cls)}"
    # The line above has the fields. A row that a public base has, too, is not repeated.
    inherited = {row for base in cls.__mro__[1:] if not _is_hidden(base) for row in _rows(base)}
    own = [members[name] for name in sorted(members) if name not in fields]
    rows = [row for row in own if row not in inherited]
    calls = [row for row in rows if re.match("(def|classmethod|staticmethod|operation) ", row)]
    attributes = "; ".join(row for row in rows if row not in calls)
    yield from (f"    {row}" for row in [attributes, *calls] if row)


def _members(cls: type) -> dict[str, str]:
    """Return the rows of the public members that a class itself defines, by name."""
    names = {**cls.__dict__.get("__annotations__", {}), **vars(cls)}
    return {
        name: _describe_member(cls, name)
        for name in names
        if not name.startswith("_") and name != "model_config"
    }


def _rows(base: type) -> Iterable[str]:
    """Return the rows of a base, if it is a class of the library."""
    return _members(base).values() if base.__module__.startswith("syncmcp") else ()


def _fields(cls: type) -> Collection[str]:
    """Return the names of the fields, which are in the first line of a class."""
    if dataclasses.is_dataclass(cls):
        return {field.name for field in dataclasses.fields(cls) if field.init}
    if is_typeddict(cls) or issubclass(cls, BaseException):
        return {*cls.__dict__.get("__annotations__", {})}
    return getattr(cls, "model_fields", getattr(cls, "_fields", ()))


def _public_bases(cls: type) -> Iterator[str]:
    """Yield the names of the public bases; a private base is replaced by its own bases."""
    for base in cls.__bases__:
        if _is_hidden(base):
            yield from _public_bases(base)
        elif base not in (object, Generic, Protocol):
            yield base.__name__


def _hidden_ancestors(cls: type) -> list[type]:
    """Return the private base classes; their members count as members of the subclass."""
    return [ancestor for ancestor in cls.__mro__[1:] if _is_hidden(ancestor)]


def _is_hidden(cls: type) -> bool:
    if not cls.__module__.startswith("syncmcp"):
        return False
    modules = [importlib.import_module(module) for module in MODULES]
    return not any(
        cls.__name__ in module.__all__ and getattr(module, cls.__name__) is cls
        for module in modules
    )


def _describe_member(cls: type, name: str) -> str:
    annotation = cls.__dict__.get("__annotations__", {}).get(name)
    if annotation is not None:
        return f"{name}: {_annotation(annotation)}"
    value = vars(cls)[name]
    if isinstance(value, property):
        settable = "" if value.fset is None else " (settable)"
        return f"{name}{_returns(value.fget)}{settable}"
    if isinstance(value, MemberDescriptorType):
        return name
    if isinstance(value, functools.cached_property):
        return f"{name}{_returns(value.func)}"
    if isinstance(value, (classmethod, staticmethod)):
        return f"{type(value).__name__} {name}{_signature(value.__func__)}"
    if isinstance(value, Routed):
        value = value.operation
    if isinstance(value, Operation):
        # Its function is a generator of steps; a call returns the result of the steps.
        called = re.sub(r"-> Steps.(.*).$", r"-> \1", _signature(value))
        return f"operation {name}{called}"
    if isinstance(value, Collected):
        return f"collected {name}"
    if inspect.isroutine(value):
        return f"def {name}{_signature(value)}"
    return f"{name} = {_stable(repr(value))}"


def _alias(value: Any) -> str:
    """Return a type alias as text, without the metadata for pydantic."""
    if get_origin(value) is Annotated:
        return _alias(get_args(value)[0])
    if get_origin(value) in (Union, UnionType):
        return " | ".join(_alias(part) for part in get_args(value))
    return _annotation(value) if isinstance(value, type) else _stable(repr(value))


def _call_signature(cls: type) -> str:
    if issubclass(cls, enum.Enum):
        return ""
    try:
        return f" {_signature(cls)}"
    except ValueError:
        return ""


def _returns(function: Any) -> str:
    annotation = inspect.signature(function).return_annotation
    return "" if annotation is inspect.Signature.empty else f" -> {_annotation(annotation)}"


def _signature(value: Any) -> str:
    signature = inspect.signature(value)
    parameters = [
        parameter.replace(
            annotation=_Verbatim(_annotation(parameter.annotation))
            if parameter.annotation is not inspect.Parameter.empty
            else parameter.annotation,
            default=parameter.default
            if parameter.default is inspect.Parameter.empty
            else _Verbatim(_stable(repr(parameter.default))),
        )
        for parameter in signature.parameters.values()
    ]
    returns: Any = signature.return_annotation
    if returns is not inspect.Signature.empty:
        returns = _Verbatim(_annotation(returns))
    return str(signature.replace(parameters=parameters, return_annotation=returns))


class _Verbatim:
    """Text that `inspect` prints unchanged, without quotes."""

    __module__ = "builtins"

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):  # of a NamedTuple or TypedDict
        annotation = annotation.__forward_arg__
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _stable(text)


def _stable(text: str) -> str:
    """Remove addresses and module prefixes: they differ between runs or versions of Python."""
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", text).replace("pathlib._local.", "pathlib.")
    return re.sub(r"\b(?:typing|typing_extensions|collections\.abc|builtins)\.", "", text)


if __name__ == "__main__":
    SNAPSHOT.write_text(describe(), encoding="utf-8")
    print(f"wrote {SNAPSHOT}")
