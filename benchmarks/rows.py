"""The rows of the table: the workloads that are measured, and their targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.servers.answers import BATCHING, STATEFUL, STATELESS
from benchmarks.sides.base import SIDES, SideName, Wire

Versus = Literal["official", "floor", "ideal", "singles"]

FUTURES: tuple[SideName, ...] = ("syncmcp", "official")


@dataclass(frozen=True)
class Row:
    """One workload that is measured on some or all sides.

    Attributes:
        key: Its name in the JSON.
        title: Its name in the table.
        workload: A function of `workloads.py`, or a program of `programs.py`.
        wire: How the server is reached.
        parameters: The arguments of the workload.
        target: The highest acceptable ratio; `None` for no target.
        versus: The side with which syncmcp is compared, or "ideal".
        ideal: The ideal time in seconds, if `versus` is "ideal".
        sides: The sides that are measured.
        unit: The unit of work that each figure is for; "MB" for memory.
        quick: Whether the quick run includes it.
        no_new_connection: Whether HTTP calls must open no new TCP connection.
        revision: The only revision it is measured with; `None` for that of the run.
    """

    key: str
    title: str
    workload: str
    wire: Wire = "stdio"
    parameters: dict[str, Any] = field(default_factory=dict)
    target: float | None = None
    versus: Versus = "official"
    ideal: float = 0.0
    sides: tuple[SideName, ...] = SIDES
    unit: str = "call"
    quick: bool = True
    no_new_connection: bool = False
    revision: str | None = None


_MB = 1_000_000


def _batches(wire: Wire) -> list[Row]:
    """Return rows of batches. In sequence, 100 calls of 50 ms take at least 5 s."""
    rows = []
    for revision, era, kind in (
        (BATCHING, "frame", "a batch"),
        (STATELESS, "pipelined", "a batch, pipelined"),
    ):
        ten: dict[str, Any] = {"calls": 10, "seconds": 0.05}
        hundred: dict[str, Any] = {"calls": 100, "seconds": 0.05}
        instant: dict[str, Any] = {"calls": 100, "seconds": 0.0}
        rows += [
            Row(
                *(f"{wire}_batch_{era}_10", f"10 calls of 50 ms as {kind}", "batch", wire),
                ten,
                1 / 9,
                versus="singles",
                sides=("syncmcp", "singles"),
                unit="10 calls",
                revision=revision,
            ),
            Row(
                *(f"{wire}_batch_{era}_100", f"100 calls of 50 ms as {kind}", "batch", wire),
                hundred,
                1 / 9,
                versus="ideal",
                ideal=5.0,
                sides=("syncmcp",),
                unit="100 calls",
                quick=False,
                revision=revision,
            ),
            Row(
                *(f"{wire}_batch_{era}_instant", f"100 instant calls as {kind}", "batch", wire),
                instant,
                1.0 if revision == BATCHING else None,
                versus="singles",
                sides=("syncmcp", "singles"),
                unit="100 calls",
                quick=False,
                revision=revision,
            ),
        ]
    return rows


ROWS: tuple[Row, ...] = (
    # stdio
    Row("stdio_sequential", "one after another", "sequential", "stdio", {"calls": 100}, 0.30),
    Row("stdio_64", "64 in flight", "in_flight", "stdio", {"calls": 64, "rounds": 2}, 0.08),
    Row("stdio_threads", "16 threads", "threads", "stdio", {"threads": 16, "calls": 8}, 0.25),
    Row("stdio_5mb", "a result of 5 MB", "payload", "stdio", {"size": 5 * _MB}, 0.30),
    Row(
        *("stdio_20mb", "a result of 20 MB", "payload", "stdio", {"size": 20 * _MB}, 2.0),
        versus="floor",
        quick=False,
    ),
    Row(
        *("stdio_structured", "1 MB of structured output, checked", "structured", "stdio"),
        {"size": _MB},
        0.30,
        sides=FUTURES,
    ),
    Row(
        *("stdio_listing", "10,000 tools on 100 pages", "listing", "stdio"),
        {"tools": 10_000, "pages": 100},
        sides=FUTURES,
        unit="tool",
        quick=False,
    ),
    Row(
        *("stdio_progress", "progress notification", "progress", "stdio", {"count": 1000}, 0.10),
        unit="notification",
    ),
    Row(
        *("stdio_changes", "10,000 change events", "change_events", "stdio", {"count": 10_000}),
        sides=FUTURES,
        unit="event",
        quick=False,
        revision=STATEFUL,
    ),
    Row(
        *("stdio_sleeping", "200 calls that sleep 0.5 s", "sleeping", "stdio"),
        {"calls": 200, "seconds": 0.5},
        1.5,
        versus="ideal",
        ideal=0.5,
        unit="200 calls",
        quick=False,
    ),
    Row(
        *("stdio_busy", "beside a thread that computes", "beside_a_busy_thread", "stdio"),
        {"calls": 20},
        2.0,
        versus="floor",
    ),
    Row(
        *("stdio_questions", "question of the server", "questions", "stdio"),
        {"calls": 4, "questions": 25},
        0.40,
        unit="question",
        revision=STATEFUL,
    ),
    Row(
        *("stdio_rounds", "question in a round of input", "questions", "stdio"),
        {"calls": 13, "questions": 8},
        sides=FUTURES,
        unit="question",
        revision=STATELESS,
    ),
    *_batches("stdio"),
    # HTTP, JSON
    Row("json_sequential", "one after another", "sequential", "json", {"calls": 50}, 0.35),
    Row("json_32", "32 in flight", "in_flight", "json", {"calls": 32, "rounds": 2}, 0.42),
    Row("json_5mb", "a result of 5 MB", "payload", "json", {"size": 5 * _MB}, quick=False),
    Row(
        *("json_sleeping", "200 calls that sleep 0.5 s", "sleeping", "json"),
        {"calls": 200, "seconds": 0.5},
        1.5,
        versus="ideal",
        ideal=0.5,
        sides=FUTURES,
        unit="200 calls",
    ),
    Row(
        *("json_busy", "beside a thread that computes", "beside_a_busy_thread", "json"),
        {"calls": 10},
        2.0,
        versus="floor",
    ),
    Row(
        *("json_connect", "connect", "connect", "json", {"times": 1}, 0.12),
        sides=FUTURES,
        unit="connect",
    ),
    *_batches("json"),
    # HTTP, event streams
    Row(
        *("sse_sequential", "one after another", "sequential", "sse", {"calls": 30}, 0.25),
        no_new_connection=True,
    ),
    Row(
        *("sse_32", "32 in flight", "in_flight", "sse", {"calls": 32, "rounds": 2}),
        quick=False,
        no_new_connection=True,
    ),
    Row("sse_5mb", "5 MB in one event", "payload", "sse", {"size": 5 * _MB}, 0.85),
    Row(
        *("sse_progress", "progress notification", "progress", "sse", {"count": 300}),
        unit="notification",
        quick=False,
    ),
    # timeouts and killed servers
    Row(
        *("stdio_timeout", "timed out: late by", "timed_out", "stdio", {"timeout": 0.1}),
        sides=FUTURES,
    ),
    Row(
        *("json_timeout", "timed out: late by", "timed_out", "json", {"timeout": 0.1}),
        sides=FUTURES,
    ),
    Row(
        *("stdio_killed", "kill -9: 100 calls fail", "killed", "stdio"),
        {"calls": 100},
        sides=FUTURES,
        unit="100 calls",
    ),
)

PROGRAMS: tuple[Row, ...] = (
    Row(
        *("import_http", "import, connect, close", "connect", "json", {}, 0.28),
        sides=FUTURES,
        unit="program",
    ),
    Row(
        *("memory_http", "memory after connect", "connect", "json", {}, 0.42),
        sides=FUTURES,
        unit="MB",
    ),
    Row(
        *("memory_stdio", "memory after connect", "connect", "stdio", {}, 0.42),
        sides=FUTURES,
        unit="MB",
        quick=False,
    ),
    Row(
        *("import_alone", "import alone", "import", "stdio"),
        sides=FUTURES,
        unit="program",
        quick=False,
    ),
    Row(
        *("exit_stdio", "exit with a call in flight", "exit", "stdio"),
        sides=("syncmcp",),
        unit="program",
        quick=False,
    ),
    Row(
        *("exit_http", "exit with a call in flight", "exit", "json"),
        sides=("syncmcp",),
        unit="program",
        quick=False,
    ),
)
"""Each sample is a new process, minus the cost of a bare Python. Rows of a program share it."""
