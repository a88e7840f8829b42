"""The whole content that a person approves, as one text: no part may be approved unseen.

A summary omits parts, and the author of a request can know which parts. This text is made from the
JSON that is sent, whatever its members are, so no member is omitted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from syncmcp.approval import ToolCall
from syncmcp.errors import UsageError
from syncmcp.handlers.roots import path_of
from syncmcp.types import CreateMessageRequestParams, CreateMessageResult
from syncmcp.ui import visible
from syncmcp.ui.calls import arguments_lines, arguments_parts

if TYPE_CHECKING:
    from syncmcp.approval import Question
    from syncmcp.types.base import RequestParams

MOST_SHOWN: Final = 1_000_000
"""The longest text that a person is asked to agree to, in characters."""

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def everything(sent: RequestParams | CreateMessageResult) -> str:
    """Return all members of a request or an answer as it is sent, by name.

    Inner members, and the lines of a text, are indented below the member that has them, so no line
    of a text looks like a member. Pictures and sounds are replaced by their lengths.
    """
    return "\n".join(_lines(_shown(sent), ""))


def check_length(question: Question) -> None:
    """Refuse a question that is too long for a person to read in full.

    Raises:
        UsageError: The question has more than `MOST_SHOWN` characters.
    """
    request, answer = question.request, question.answer
    if isinstance(request, ToolCall):
        told = (request.annotations, request.definition)
        said = (getattr(one, name, None) for one in told for name in ("title", "description"))
        _check_parts(question, chain(arguments_parts(request), filter(None, said)))
        _check_parts(question, arguments_lines(request))
    else:  # the answer of a model; or a request for sampling, a form, a link or the roots
        sent = answer if isinstance(answer, CreateMessageResult) else request
        _check_parts(question, _lines(_shown(sent), ""))


def _check_parts(question: Question, parts: Iterable[str]) -> None:
    length = 0
    for part in parts:  # stops early: indentation may make the text far longer
        length += len(part)
        if length > MOST_SHOWN:
            raise UsageError(
                f"the question is too long to show: it has over {MOST_SHOWN:,} characters",
                server=question.server.name,
            )


def roots_text(question: Question) -> str:
    """Return the roots that the server would get, one on each line."""
    lines = []
    for root in question.roots:
        name = "" if root.name is None else f" ({visible(root.name)})"
        lines.append(f"{visible(str(path_of(root.uri)))}{name}")
    return "\n".join(lines) or "(none)"


def _shown(sent: RequestParams | CreateMessageResult) -> dict[str, Any]:
    """Return the content that is sent, with lengths of pictures and sounds instead of their base64.

    This is done only in content blocks: elsewhere a server could present any text as the data of a
    picture.
    """
    wire = sent.to_wire()
    if isinstance(sent, CreateMessageRequestParams):
        return {**wire, "messages": [_with_lengths(message) for message in wire["messages"]]}
    return _with_lengths(wire) if isinstance(sent, CreateMessageResult) else wire


def _with_lengths(holder: dict[str, Any]) -> dict[str, Any]:
    """Insert the lengths into a message, or into the result of a tool within a message."""
    content = holder.get("content")
    if isinstance(content, list):
        return {**holder, "content": [_block(each) for each in content]}
    return {**holder, "content": _block(content)} if "content" in holder else holder


def _block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    kind, data = block.get("type"), block.get("data")
    if kind == "tool_result":
        return _with_lengths(block)
    if kind in ("image", "audio") and isinstance(data, str) and _BASE64.fullmatch(data):
        return {**block, "data": f"({len(data):,} characters of base64)"}
    return block


def _lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, member in value.items():
            yield from _member(f"{indent}{json.dumps(name, ensure_ascii=False)}:", member, indent)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value, 1):
            yield from _member(f"{indent}{number} of {len(value)}:", item, indent)
    else:
        yield indent + json.dumps(value, ensure_ascii=False, default=str)


def _member(title: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, str) and "\n" not in value:
        yield f"{title} {value}"
    elif isinstance(value, str):
        yield title
        yield from (f"{indent}  {line}" for line in value.split("\n"))
    elif value and isinstance(value, (Mapping, list)):
        yield title
        yield from _lines(value, indent + "  ")
    else:
        yield f"{title} {json.dumps(value, ensure_ascii=False, default=str)}"
