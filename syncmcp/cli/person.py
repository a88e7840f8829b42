"""The person at the terminal, who answers servers and allows calls. Stdout stays the results'."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING

from syncmcp.cli.progress import Bar

if TYPE_CHECKING:
    from syncmcp.approval import Approval
    from syncmcp.servers_file import ServerReview
    from syncmcp.ui.terminal import Terminal

__all__ = ["Person", "somebody"]


def somebody() -> Person | None:
    """The person, if there is one: stdin and stderr are a terminal that takes commands."""
    dumb = os.environ.get("TERM") == "dumb"
    return Person() if sys.stdin.isatty() and sys.stderr.isatty() and not dumb else None


class Person:
    """Somebody to ask.

    Attributes:
        bar: Shows them progress.
    """

    def __init__(self) -> None:
        self.bar = Bar()

    @cached_property
    def terminal(self) -> Terminal:
        """Asks them what servers ask, with the bar out of the way."""
        from syncmcp.ui.terminal import Terminal

        return Terminal(sys.stdin, sys.stderr, beside=self.bar.lent)

    @cached_property
    def approval(self) -> Approval:
        """Asks them what has to be allowed."""
        from syncmcp.ui.terminal import AskOnTerminal

        return AskOnTerminal(terminal=self.terminal)

    def approve(self, review: ServerReview) -> bool:
        """Ask whether a server that a file in the working tree names may be used."""
        return self.terminal.approve(review)
