"""Mutants of many servers: of the files that name them, and of what makes one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncmcp.config import Stdio
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

ENTRY = "syncmcp.servers_file.entry:ServerEntry"
REVIEW = "syncmcp.servers_file.review"

CATALOG = "syncmcp.group.catalog"


def _raise_it(original: Function) -> Function:
    def fail(self: Any, error: BaseException) -> None:
        raise error

    return fail


FILES = (
    Mutant(
        "unapproved-servers",
        "what a project's file names is used without asking anybody",
        f"{ENTRY}._approved_review",
        always(None),
        ("SEC-06",),
    ),
    Mutant(
        "commands-cut-short",
        "who approves a server sees the beginning of its command",
        f"{REVIEW}:visible",
        lambda original: lambda text: original(text)[:120],
        ("SEC-06",),
    ),
    Mutant(
        "dangers-unsaid",
        "commands that look dangerous carry no warning",
        f"{REVIEW}:ServerReview._command_warnings",
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

GROUPS = (
    Mutant(
        "failures-spread",
        "a broken server takes down its group",
        "syncmcp.group.member:GroupMember.fail",
        _raise_it,
        ("27", "M-30"),
    ),
    Mutant(
        "offers-left-behind",
        "what a removed server offered is still there",
        f"{CATALOG}:Catalog.without",
        lambda original: lambda self, server: self,
        ("M-30",),
    ),
    Mutant(
        "names-by-number",
        "equal names are told apart by numbers",
        "syncmcp.group.keys:_prefixed",
        lambda original: lambda one: f"{id(one)}_{one.name}",
        ("TOOL-05",),
    ),
)

MUTANTS = FILES + GROUPS
