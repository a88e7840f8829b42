"""How far a call has come, as a bar on stderr."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn

from syncmcp.cli.output import console_on
from syncmcp.ui.text import shorten, visible

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = ["Bar"]

_MOST_WORDS = 60


class Bar:
    """Is drawn with the first report of progress, and leaves nothing behind.

    Reports come on a pool thread; the terminal is lent to questions meanwhile.
    """

    def __init__(self) -> None:
        # Guards all of it, so that a report cannot draw over a question.
        self._lock = threading.RLock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._lent = False

    def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Draw what a server reported; see `ProgressHandler`."""
        with self._lock:
            if self._lent:
                return
            if self._bar is None or self._task is None:
                self._bar = _made()
                self._task = self._bar.add_task("")
                self._bar.start()
            words = shorten(message or "", _MOST_WORDS)
            self._bar.update(
                self._task, completed=progress, total=total, description=visible(words)
            )
            self._bar.refresh()

    def end(self) -> None:
        """Take the bar away."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = self._task = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Keep off the terminal."""
        with self._lock:
            self.end()
            self._lent = True
        try:
            yield
        finally:
            with self._lock:
                self._lent = False


def _made() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:g}", markup=False),
        console=console_on(sys.stderr),
        auto_refresh=False,
        transient=True,
    )
