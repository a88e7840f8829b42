"""`demo`: a first look, on the server that comes with the library."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from syncmcp.cli.output import Output

__all__ = ["demo"]

_SERVER = (sys.executable, "-m", "syncmcp.testing")

_TOUR: tuple[tuple[str, Sequence[str]], ...] = (
    ("What the server is", ("info",)),
    ("What it has", ("list",)),
    ("What a tool takes", ("call", "add", "--help")),
    ("A call", ("call", "add", "a:=1", "b:=2")),
    ("A call that takes its time, with progress", ("call", "countdown", "steps:=5")),
    ("The protocol's own result", ("call", "weather", "city=Bergen", "--json")),
    ("A resource, by its template", ("read", "demo://cities/{city}", "city=Kyoto")),
)


def demo() -> None:
    """Go through the commands on the demo server; nothing leaves this computer."""
    from syncmcp.cli.app import obey

    out = Output(json=False)
    command = shlex.join(("--", "python", *_SERVER[1:]))
    for title, words in _TOUR:
        out.note("")
        out.note(f"{title}:")
        out.note(f"$ syncmcp {shlex.join(words)} {command}")
        obey([*words, "--", *_SERVER])
    out.note("")
    out.note(f"Now you: `syncmcp shell {command}` has all of it, with Tab.")
