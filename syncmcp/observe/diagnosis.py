"""What a client is doing at this moment: ``print(client.dump())`` when something hangs.

Nothing is asked of the server, and nobody is waited for longer than it takes to copy a table.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from syncmcp._base.text import redact
from syncmcp._concurrency import timing
from syncmcp._concurrency.timing import monotonic
from syncmcp._connection.connection import Connection
from syncmcp.transports.base import OfChild

if TYPE_CHECKING:
    from syncmcp._client.pools import Pools
    from syncmcp._connection.call import Call
    from syncmcp._connection.wire_log import Wire
    from syncmcp._protocol.negotiate import Negotiated
    from syncmcp.transports.base import Outgoing

__all__ = ["Dump"]

# How much of a thread is shown: its innermost calls.
_MOST_CALLS = 16
_CALLS_IN_TEXT = 5

# Where a thread is that waits for an answer, over any transport.
_WAITING = (Connection._exchange.__code__,)

_HERE = str(Path(__file__).parent) + os.sep


class Dump:
    """What a client was doing at one moment; `str()` is for people.

    Secrets are removed, as far as they can be told by their names or were given as such (headers, a
    server's environment). Arguments and results are in the frames: look at it before you send it to
    somebody.

    Attributes:
        facts: The same as plain values, ready for JSON: ``client``, ``calls``, ``questions``,
            ``queues``, ``threads``, ``frames``, ``server``.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts

    def __str__(self) -> str:
        return "\n".join(_lines(self.facts))

    def __repr__(self) -> str:
        return f"<Dump of {self.facts['client']['label']}: {len(self.facts['calls'])} calls>"


class Diagnosis:
    """The part of a client that tells what it is doing."""

    _label: str
    _wire: Wire
    _generation: int
    _wanted: bool
    _connection: Connection | None
    _opening: Connection | None
    _pools_now: Pools | None
    _negotiated: Negotiated | None

    def dump(self) -> Dump:
        """Say what the client is doing at this moment; works in any state, on any thread.

        Calls in flight with their ages, what the server has asked, queues, threads and where they
        are, the newest frames and the end of the server's stderr; see `Dump`.
        """
        now = monotonic()
        connection = self._connection or self._opening
        calls = [] if connection is None else _calls(connection, now)
        return Dump(
            {
                "client": self._about(connection),
                "calls": calls,
                "questions": [] if connection is None else _questions(connection),
                "queues": _queues(self._pools_now, connection),
                "threads": list(_running(self._label)),
                "frames": [
                    {
                        "age": round(now - frame.when, 3),
                        "direction": frame.direction,
                        "bytes": frame.size,
                        "text": frame.text(self._wire.secrets),
                    }
                    for frame in self._wire.frames()
                ],
                "server": _server(connection),
            }
        )

    def _about(self, connection: Connection | None) -> dict[str, Any]:
        dead = None if connection is None else connection.dead
        if self._generation != timing.generation:
            state = "of the parent process"
        elif connection is None:
            state = "not open" if self._wanted else "closed"
        elif self._connection is None:
            state = "opening"
        else:
            state = "open" if dead is None else "lost"
        negotiated = self._negotiated
        return {
            "label": self._label,
            "state": state,
            "process": os.getpid(),
            "revision": None if negotiated is None else negotiated.dialect.revision,
            "transport": None if connection is None else type(connection.transport).__name__,
            "lost": None if dead is None else str(dead),
        }


def _calls(connection: Connection, now: float) -> list[dict[str, Any]]:
    with connection._lock:
        calls = connection._peer.open_calls()
    return [_call(call, now) for call in calls]


def _call(call: Call, now: float) -> dict[str, Any]:
    out, seen, left = call.out, call.seen, call.deadline.remaining()
    name = (call.params or {}).get("name")
    return {
        "id": call.id,
        "method": call.method,
        "name": name if isinstance(name, str) else None,
        "age": None if out is None else round(now - out.since, 3),
        "state": "sent" if _handed_over(out) else "waits for its turn",
        "silent": None if seen is None else round(now - seen, 3),
        "left": None if left is None else round(left, 3),
        "clock": "stands still" if call.deadline.held else "runs",
        "cancelled": call.options.cancel is not None and call.options.cancel.cancelled,
    }


def _handed_over(out: Outgoing | None) -> bool:
    # In a batch it is the frame of all of them that is.
    return out is not None and (out.carrier or out).handed_over


def _questions(connection: Connection) -> list[dict[str, Any]]:
    desk = connection.desk
    with desk._lock:
        asked = [(each, each in desk._waiting) for each in desk._open]
    found = []
    for each, waits in asked:
        deadline = each.deadline
        left = None if deadline is None else deadline.remaining()
        found.append(
            {
                "method": each._method,
                "state": "waits for a handler" if waits else "is with its handler",
                "left": None if left is None else round(left, 3),
            }
        )
    return found


def _queues(pools: Pools | None, connection: Connection | None) -> dict[str, int]:
    """How many jobs stand in line, and for what."""
    queues: dict[str, int] = {}
    if connection is not None:
        with connection._lock:
            queues["calls"] = len(connection._peer._in_line)
        queues["questions"] = connection.desk.waiting
    if pools is not None:
        queues["handlers"] = pools.handlers.waiting
        queues["callbacks"] = pools.workers.waiting
        queues["exchanges"] = pools.exchanges.waiting
        queues["futures"] = pools.resumer.waiting
    return queues


def _running(label: str) -> Iterator[dict[str, Any]]:
    """The client's threads, those that all clients share, and others inside of this library."""
    stacks: Mapping[int, FrameType] = sys._current_frames()
    me = threading.get_ident()
    for thread in threading.enumerate():
        stack = stacks.get(thread.ident or 0)
        if stack is None or thread.ident == me:
            continue
        calls = [
            call for call in traceback.extract_stack(stack) if call.filename != threading.__file__
        ]
        ours = thread.name.startswith("syncmcp-")
        if ours and "[" in thread.name and f"[{label}]" not in thread.name:
            continue  # another client's
        if not ours and not any(call.filename.startswith(_HERE) for call in calls):
            continue
        yield {
            "name": redact(thread.name),
            "daemon": thread.daemon,
            "waits_for": _awaited(stack),
            "calls": [
                f"{_short(call.filename)}:{call.lineno} {call.name}"
                for call in calls[-_MOST_CALLS:]
            ],
        }


def _awaited(stack: FrameType) -> str | None:
    """The request of ours whose answer a thread waits for, if it does."""
    frame: FrameType | None = stack
    while frame is not None:
        if frame.f_code in _WAITING:
            call: Call = frame.f_locals["call"]
            return f"the answer to {call.id} {call.method}"
        frame = frame.f_back
    return None


def _short(filename: str) -> str:
    path = Path(filename)
    return f"{path.parent.name}/{path.name}"


def _server(connection: Connection | None) -> dict[str, Any]:
    if connection is None:
        return {"stderr": "", "said": ""}
    transport = connection.transport
    tail = transport.stderr_tail() if isinstance(transport, OfChild) else ""
    return {"stderr": tail, "said": transport.describe()}


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    client = facts["client"]
    revision = client["revision"] or "no revision yet"
    yield f"{client['label']}: {client['state']}, {revision}, process {client['process']}"
    if client["lost"]:
        yield f"  {client['lost']}"
    yield f"calls in flight: {len(facts['calls'])}"
    for call in facts["calls"]:
        yield f"  {_call_line(call)}"
    yield f"questions of the server: {len(facts['questions'])}"
    for question in facts["questions"]:
        yield f"  {question['method']} {question['state']}, {_seconds(question['left'])} left"
    waiting = ", ".join(f"{name} {count}" for name, count in facts["queues"].items() if count)
    yield f"in line: {waiting or 'nothing'}"
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
    if call["clock"] != "runs":
        parts.append("its clock stands still for a question")
    if call["cancelled"]:
        parts.append("its token is cancelled")
    return ", ".join(parts)


def _seconds(value: float | None) -> str:
    return "any time" if value is None else f"{value:.3f} s"
