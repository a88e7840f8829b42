"""tkinter: events on other threads change the window only on the main thread.

The test uses a real window if tkinter can open one: on a desktop, or under Xvfb. Otherwise a fake
window shows the same calls; its loop does the same jobs as the loop of a window.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import syncmcp
from examples.embedding.tkinter_window import Bridge, Countdown, Window
from syncmcp.testing import Server, ToolContext
from tests.support.stage import PATIENCE

pytestmark = pytest.mark.slow


class StandIn:
    """A fake window: the loop of a window, and the text that it would show."""

    def __init__(self, client: syncmcp.Client) -> None:
        self._bridge = Bridge()
        self._thread = threading.get_ident()
        self._text = "ready"
        countdown = Countdown(client, self._bridge, self._show)
        self.start, self.cancel = countdown.start, countdown.cancel

    def _show(self, text: str) -> None:
        assert threading.get_ident() == self._thread
        self._text = text

    def text(self) -> str:
        return self._text

    def turn(self) -> None:
        """Run the queued jobs."""
        self._bridge.run_jobs()


class Real:
    """A real window; its buttons can be pressed."""

    def __init__(self, root: Any, client: syncmcp.Client) -> None:
        window = Window(root, client)
        self.start, self.cancel = window.start.invoke, window.cancel.invoke
        self.text: Callable[[], str] = window.text.get
        self.turn: Callable[[], None] = root.update


@pytest.fixture(scope="module")
def screen() -> Any:
    """Return Tk's root window, which stays open; `None` if there is no Tk or no screen."""
    try:
        import tkinter
    except ImportError:
        return None
    try:
        return tkinter.Tk()
    except tkinter.TclError:
        return None


@contextmanager
def shown(client: syncmcp.Client, screen: Any) -> Iterator[StandIn | Real]:
    """Show the window if there is a screen, otherwise the fake one."""
    if screen is None:
        yield StandIn(client)
        return
    try:
        yield Real(screen, client)
    finally:
        for appointment in screen.tk.splitlist(screen.tk.call("after", "info")):
            screen.after_cancel(appointment)
        for part in screen.winfo_children():
            part.destroy()


def sees(view: StandIn | Real, text: str) -> None:
    """Run the loop of the window until it shows this text."""
    end = time.monotonic() + PATIENCE
    while text not in view.text():
        assert time.monotonic() < end, view.text()
        view.turn()


@pytest.mark.pitfall("3", "14")
def test_progress_is_shown_a_button_cancels_and_the_result_of_another_call_is_shown(
    screen: Any,
) -> None:
    server, go_on = Server("clockwork"), threading.Event()

    @server.tool()
    def countdown(context: ToolContext, steps: int, delay: float) -> str:
        context.report_progress(1, steps, f"{delay} s each")
        while not (go_on.wait(0.01) or context.cancelled.is_set()):
            pass
        return "lift-off"

    with syncmcp.connect(server) as client, shown(client, screen) as view:
        view.start()
        sees(view, "1 of 30: 0.1 s each")
        view.cancel()
        sees(view, "cancelled")
        assert server.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)
        go_on.set()
        view.start()
        sees(view, "lift-off")
