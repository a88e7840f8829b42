"""Arguments on the command line, as HTTPie writes them.

::

    name=text        a string
    name:=json       any JSON value
    name=@file       the text of a file, UTF-8
    name:=@file      the JSON in a file

``@-`` is stdin. A backslash before ``=``, ``:`` or ``@`` makes it a plain character.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from syncmcp.cli.output import CommandError

__all__ = ["object_of", "parse", "read_file", "texts"]

_KEY = re.compile(r"((?:\\[\\=:@]|[^\\=:]|\\(?![\\=:@])|:(?!=))*)(:=|=)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\([\\=:@])")


def parse(words: Iterable[str]) -> dict[str, Any]:
    """The arguments that `words` stand for.

    Raises:
        CommandError: A word is no item, a name comes twice, or a file cannot be read.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        name, is_json, text = _split(word)
        if name in arguments:
            raise CommandError(f"the argument {name!r} is given twice")
        arguments[name] = _json(text, f"the value of {name!r}") if is_json else text
    return arguments


def texts(words: Iterable[str]) -> dict[str, str]:
    """The same, where only strings are taken.

    Raises:
        CommandError: As with `parse`, or a value is no string.
    """
    found = parse(words)
    for name, value in found.items():
        if not isinstance(value, str):
            raise CommandError(f"{name!r} takes a string", hint=f"write {name}=...")
    return found


def object_of(text: str) -> dict[str, Any]:
    """The JSON object that an option holds, or with ``@`` before it the file of that name.

    Raises:
        CommandError: It is none, or the file cannot be read.
    """
    value = _json(read_file(text[1:]) if text.startswith("@") else text, "what --input gives")
    if not isinstance(value, dict):
        raise CommandError("what --input gives is no JSON object")
    return value


def _split(word: str) -> tuple[str, bool, str]:
    found = _KEY.fullmatch(word)
    if found is None or not found[1]:
        raise CommandError(
            f"{word!r} is no argument", hint="write name=text, name:=json or name=@file"
        )
    name, separator, value = found.groups()
    if value.startswith("@"):
        value = read_file(value[1:])
    elif value.startswith("\\@"):
        value = value[1:]
    return _ESCAPE.sub(r"\1", name), separator == ":=", value


def read_file(name: str) -> str:
    """The text of a file, or for ``-`` of stdin.

    Raises:
        CommandError: It cannot be read.
    """
    try:
        return sys.stdin.read() if name == "-" else Path(name).expanduser().read_text("utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8"
        raise CommandError(f"the file {name!r} cannot be read: {reason}") from error


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        hint = "a text goes behind = instead of :="
        raise CommandError(f"{what} is no JSON: {error}", hint=hint) from error


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")
