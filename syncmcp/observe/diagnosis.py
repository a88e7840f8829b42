"""A dump of what a client is doing at this moment: ``print(client.dump())`` when something hangs.

To make a dump sends nothing to the server, and holds locks only while a table is copied.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from syncmcp._base.text import redact, visible

__all__ = ["Dump"]

# The most frames of a thread's stack, the innermost ones: in `facts`, and in the text.
_MOST_CALLS = 16
_CALLS_IN_TEXT = 5

_HERE = str(Path(__file__).parent.parent) + os.sep


class Dump:
    """The activity of a client at one moment; `str(dump)` is text for people.

    Control and hidden characters of the server are visible in that text, and cannot end a line.

    Secrets are removed if their names show that they are secrets, or if they were passed as secrets
    (headers, a server's environment). The frames contain arguments and results, so read the dump
    before you send it to others.

    Attributes:
        facts: The same facts as plain values that can be converted to JSON: ``client``, ``calls``,
            ``questions``, ``queues``, ``threads``, ``frames``, ``server``.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts

    def __str__(self) -> str:
        return "\n".join(visible(line) for line in _lines(self.facts))

    def __repr__(self) -> str:
        return f"<Dump of {self.facts['client']['label']}: {len(self.facts['calls'])} calls>"


def threads(label: str, waiting: CodeType) -> Iterator[dict[str, Any]]:
    """Yield the client's threads, threads that all clients share, and others that run library code.

    `waiting` is the code of the function in which threads wait for a response; its local variable
    ``call`` is the call.
    """
    stacks: Mapping[int, FrameType] = sys._current_frames()
    me = threading.get_ident()
    for thread in threading.enumerate():
        stack = stacks.get(thread.ident or 0)
        if thread.ident == me:
            # A signal handler may have interrupted a call of the library to make this dump.
            stack = _outside(stack)
        if stack is None:
            continue
        calls = [
            call for call in traceback.extract_stack(stack) if call.filename != threading.__file__
        ]
        ours = thread.name.startswith("syncmcp-")
        if ours and "[" in thread.name and f"[{label}]" not in thread.name:
            continue  # a thread of another client
        if not ours and not any(call.filename.startswith(_HERE) for call in calls):
            continue
        yield {
            "name": redact(thread.name),
            "daemon": thread.daemon,
            "waits_for": _awaited(stack, waiting),
            "calls": [
                f"{_short(call.filename)}:{call.lineno} {call.name}"
                for call in calls[-_MOST_CALLS:]
            ],
        }


def _outside(stack: FrameType | None) -> FrameType | None:
    """Return the innermost frame of a stack that runs no code of the library."""
    while stack is not None and stack.f_code.co_filename.startswith(_HERE):
        stack = stack.f_back
    return stack


def _awaited(stack: FrameType, waiting: CodeType) -> str | None:
    """Return the request for whose response a thread waits, if it waits for one."""
    frame: FrameType | None = stack
    while frame is not None:
        if frame.f_code is waiting:
            call = frame.f_locals["call"]
            return f"the answer to {call.id} {call.method}"
        frame = frame.f_back
    return None


def _short(filename: str) -> str:
    path = Path(filename)
    return f"{path.parent.name}/{path.name}"


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    client = facts["client"]
    revision = client["revision"] or "no revision yet"
    yield f"{client['label']}: {client['state']}, {revision}, client process {client['process']}"
    if client["lost"]:
        yield f"  {client['lost']}"
    yield f"calls in flight: {len(facts['calls'])}"
    for call in facts["calls"]:
        yield f"  {_call_line(call)}"
    yield f"questions from the server: {len(facts['questions'])}"
    for question in facts["questions"]:
        yield f"  {question['method']} {question['state']}, {_seconds(question['left'])} left"
    waiting = ", ".join(f"{name} {count}" for name, count in facts["queues"].items() if count)
    yield f"queued: {waiting or 'nothing'}"
    yield f"threads: {len(facts['threads'])}"
    for thread in facts["threads"]:
        waits_for = f", waits for {thread['waits_for']}" if thread["waits_for"] else ""
        yield f"  {thread['name']}{waits_for}"
        yield from (f"      {call}" for call in thread["calls"][-_CALLS_IN_TEXT:])
    yield f"newest frames: {len(facts['frames'])}"
    for frame in facts["frames"]:
        arrow = "->" if frame["direction"] == "sent" else "<-"
        yield f"  {frame['age']:9.3f} s ago {arrow} {frame['text']}"
    for name in ("stderr", "said"):
        text = facts["server"][name]
        if text:
            yield f"the server's {name}:" if name == "stderr" else "the transport says:"
            yield from (f"  {line}" for line in text.splitlines())


def _call_line(call: dict[str, Any]) -> str:
    name = f" {call['name']!r}" if call["name"] else ""
    parts = [f"{call['id']} {call['method']}{name}: {call['state']}"]
    parts.append(f"{_seconds(call['age'])} old, {_seconds(call['left'])} left")
    if call["silent"] is not None:
        parts.append(f"silent for {_seconds(call['silent'])}")
    if call["clock"] != "running":
        parts.append("its timeout is paused for a question")
    if call["cancelled"]:
        parts.append("its token is cancelled")
    return ", ".join(parts)


def _seconds(value: float | None) -> str:
    return "unlimited time" if value is None else f"{value:.3f} s"
