"""Questions on stderr, with the bar out of the way."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from syncmcp.ui._screen import Quit
from syncmcp.ui.terminal import Terminal

if TYPE_CHECKING:
    from syncmcp.approval import Question, Verdict
    from syncmcp.cli.progress import Bar
    from syncmcp.handlers import HandlerContext
    from syncmcp.servers_file import ServerReview
    from syncmcp.types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

__all__ = ["BesideBar"]


class BesideBar(Terminal):
    """A `Terminal` that takes the bar away while it asks."""

    def __init__(self, bar: Bar) -> None:
        super().__init__(sys.stdin, sys.stderr)
        self._bar = bar

    def form(self, request: ElicitRequestFormParams, context: HandlerContext, /) -> ElicitResult:
        """See `Terminal.form`."""
        with self._bar.lent():
            return super().form(request, context)

    def url(self, request: ElicitRequestURLParams, context: HandlerContext, /) -> ElicitResult:
        """See `Terminal.url`."""
        with self._bar.lent():
            return super().url(request, context)

    def review(self, question: Question, /) -> Verdict:
        """See `Terminal.review`."""
        with self._bar.lent():
            return super().review(question)

    def approve(self, review: ServerReview) -> bool:
        """Ask whether a server that a file names may be used; Ctrl-C means no."""
        try:
            with self._turn(None) as screen:
                screen.say()
                screen.headline("A file in this folder names the server")
                screen.quote(str(review))
                answer = screen.choose(
                    "Use it? The answer is remembered as long as this stays the same.",
                    [("no", "No"), ("yes", "Yes, use exactly this")],
                )
        except Quit:
            return False
        return answer == "yes"
