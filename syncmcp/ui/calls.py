"""Tool calls for display to a person: their arguments, and the word that confirms a call."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from syncmcp.approval import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from syncmcp.approval import Question

RUN: Final = "run"
"""The word that a person types to allow a call that may change something."""

# The limits of an overview: the number of arguments, the characters of a name and of a value.
_MOST_ARGUMENTS = 20
_MOST_OF_NAME = 60
_MOST_OF_VALUE = 300
# And of a text of several lines: the lines at each end, and the characters of a line.
_MOST_LINES = 3
_MOST_OF_LINE = 100

# A text in indented JSON: what comes before it, the text itself, and the comma after it.
_STRING = r'"(?:[^"\\]|\\.)*"'
_TEXT = re.compile(rf"( *(?:{_STRING}: )?)({_STRING}),?")
_TEXT_INDENT = 4


def wants_word(question: Question) -> bool:
    """Return whether a person must type a word to allow `question`: a tool may change something.

    A call needs no word if a trusted server declares the tool read-only. The annotation of any
    other server proves nothing.
    """
    call = question.request
    if not isinstance(call, ToolCall):
        return False
    hints = call.annotations
    return not (question.server.trusted and hints is not None and hints.read_only_hint is True)


def server_words(call: ToolCall) -> tuple[str, str, str]:
    """Return the server's words about a tool: claims, title and description; "" without one."""
    hints, declared = call.annotations, call.definition
    title = (declared and declared.title) or (hints and hints.title) or ""
    description = (declared and declared.description) or ""
    if hints is None:
        return "", title, description
    if hints.read_only_hint:
        return "it only reads", title, description
    # Only the hints that the server states: a person takes them for its words.
    stated = (
        ("it changes things", hints.read_only_hint is False),
        ("it may destroy", hints.destructive_hint is True),
        ("it only adds", hints.destructive_hint is False),
        ("it interacts with the outside world", hints.open_world_hint is True),
    )
    return ", ".join(words for words, said in stated if said), title, description


def arguments_text(call: ToolCall) -> str:
    """Return all arguments of a call as JSON."""
    return "".join(arguments_parts(call))


def arguments_parts(call: ToolCall) -> Iterator[str]:
    """Yield the parts of `arguments_text`, which may be far longer than the arguments."""
    encoder = json.JSONEncoder(ensure_ascii=False, indent=2, default=str)
    return encoder.iterencode(dict(call.arguments))


def arguments_lines(call: ToolCall) -> Iterator[str]:
    """Yield the lines of `arguments_text`, but a text of several lines as its lines.

    They are indented below the member or item that they belong to, so they cannot look like others.
    """
    for line in arguments_text(call).split("\n"):
        found = _TEXT.fullmatch(line)
        text = json.loads(found[2]) if found is not None else ""
        if found is None or "\n" not in text:
            yield line
        else:
            yield from _text_lines(found[1], text, len(found[1]) - len(found[1].lstrip(" ")))


def _text_lines(title: str, text: str, indent: int) -> Iterator[str]:
    lines = text.split("\n")
    yield f"{title}({len(lines):,} lines)"
    yield from (" " * (indent + _TEXT_INDENT) + line for line in lines)


def arguments_overview(call: ToolCall) -> str:
    """Return the arguments of a call, one on each line, with long arguments cut in the middle.

    Of a text of several lines, some of the first and the last lines are shown as lines.
    """
    lines: list[str] = []
    for name, value in islice(call.arguments.items(), _MOST_ARGUMENTS):
        title = f"{both_ends(_as_json(name), _MOST_OF_NAME)}: "
        if isinstance(value, str) and "\n" in value:
            lines += _ends_of_lines(title, value.split("\n"))
        else:
            lines.append(title + both_ends(_as_json(value), _MOST_OF_VALUE))
    if (left_out := len(call.arguments) - _MOST_ARGUMENTS) > 0:
        lines.append(f"… ({left_out:,} more arguments)")
    return "\n".join(lines)


def _ends_of_lines(title: str, lines: list[str]) -> Iterator[str]:
    shown, about = lines, f"{len(lines):,} lines"
    if len(lines) > 2 * _MOST_LINES:
        shown = [*lines[:_MOST_LINES], *lines[-_MOST_LINES:]]
        about += f"; the first {_MOST_LINES} and the last {_MOST_LINES}"
    yield f"{title}({about})"
    yield from (" " * _TEXT_INDENT + both_ends(line, _MOST_OF_LINE) for line in shown)


def overview_pairs(call: ToolCall, write: Callable[[Any], str]) -> Iterator[tuple[str, str]]:
    """Yield names and values of the first arguments, as `write` formats them, cut in the middle."""
    for name, value in islice(call.arguments.items(), _MOST_ARGUMENTS):
        yield both_ends(write(name), _MOST_OF_NAME), both_ends(write(value), _MOST_OF_VALUE)


def both_ends(text: str, limit: int) -> str:
    """Cut `text` in its middle to at most `limit` characters, and say how many were cut out."""
    left_out = len(text) - limit
    if left_out <= 0:
        return text
    tail = limit // 2
    note = f"… ({left_out:,} of {len(text):,} characters are not shown here) …"
    return f"{text[: limit - tail]}{note}{text[len(text) - tail :]}"


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
