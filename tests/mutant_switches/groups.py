"""Mutants of many servers: of the files that name them, and of what makes one of them."""

from __future__ import annotations

from syncmcp.config import Stdio
from tests.mutant import Mutant
from tests.mutant_switches.change import always

ENTRY = "syncmcp._server_entry:ServerEntry"
REVIEW = "syncmcp._server_review"

FILES = (
    Mutant(
        "unapproved-servers",
        "what a project's file names is used without asking anybody",
        f"{ENTRY}._check_approved",
        always(None),
        ("SEC-06",),
    ),
    Mutant(
        "commands-cut-short",
        "who approves a server sees the beginning of its command",
        f"{REVIEW}:shown",
        lambda original: lambda text: original(text)[:120],
        ("SEC-06",),
    ),
    Mutant(
        "dangers-unsaid",
        "commands that look dangerous carry no warning",
        f"{REVIEW}:ServerReview._of_command",
        always([]),
        ("SEC-07",),
    ),
    Mutant(
        "nobody-confined",
        "what is to confine a server is left out",
        f"{ENTRY}._stdio",
        lambda original: lambda self, stated, command: Stdio(command, *stated.args),
        ("SEC-07",),
    ),
)

MUTANTS = FILES
