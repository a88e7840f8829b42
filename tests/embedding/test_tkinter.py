"""tkinter: what happens on other threads is shown by the one thread that may.

The window itself is tried where tkinter can open one: under Xvfb, or on a desktop. Elsewhere the
same calls are shown by a stand-in, a loop that does what the window's loop does.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

import syncmcp
from syncmcp.testing import Server, ToolContext
from tests.stage import PATIENCE


class View(Protocol):
    """A window as a person uses it."""

    shown: list[str]

    def start(self) -> None: ...
    def cancel(self) -> None: ...
    def loop_until(self, text: str) -> None: ...


class StandIn:
    """No window, but the loop of one."""

    def __init__(self, client: syncmcp.Client) -> None:
        from examples.embedding.tkinter_window import Bridge, Countdown

        self.shown: list[str] = []
        self._thread = threading.get_ident()
        self._bridge = Bridge()
        countdown = Countdown(client, self._bridge, self._show)
        self.start, self.cancel = countdown.start, countdown.cancel

    def _show(self, text: str) -> None:
        assert threading.get_ident() == self._thread
        self.shown.append(text)

    def loop_until(self, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < end, self.shown
            self._bridge.do_waiting()
