"""tkinter: calls run in the background, and only the window's thread changes the window.

For Qt, GTK or wx, replace `Window` and `main`; the rest is independent of tkinter.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import syncmcp
from syncmcp.types import CallToolResult

if TYPE_CHECKING:
    import tkinter

SERVER = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")


class Bridge:
    """Passes functions from any thread to the thread that may change the window."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()

    def post(self, job: Callable[[], object]) -> None:
        """Queue `job` for the window's thread. Any thread may call this; it never blocks."""
        self._jobs.put(job)

    def run_jobs(self) -> None:
        """Run the queued jobs. Only the window's thread may call this."""
        with contextlib.suppress(Empty):
            while True:
                self._jobs.get_nowait()()


class Countdown:
    """A call that can be started and cancelled, and that shows its state through a bridge."""

    def __init__(
        self, client: syncmcp.Client, bridge: Bridge, show: Callable[[str], object]
    ) -> None:
        self._client = client
        self._bridge = bridge
        self._show = show
        self._call: Future[CallToolResult] | None = None

    def start(self) -> None:
        """Start the call. Returns at once, even if the server must start first."""
        self.cancel()
        self._call = self._client.call_tool.future(
            "countdown", {"steps": 30, "delay": 0.1}, on_progress=self._progressed
        )
        self._call.add_done_callback(lambda call: self._bridge.post(lambda: self._ended(call)))

    def cancel(self) -> None:
        """Cancel the call, if one was started."""
        if self._call is not None:
            self._call.cancel()

    def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        self._bridge.post(lambda: self._show(f"{progress:g} of {total or 0:g}: {message}"))

    def _ended(self, call: Future[CallToolResult]) -> None:
        if call.cancelled():
            self._show("cancelled")
        elif error := call.exception():
            self._show(str(error))
        else:
            self._show(call.result().text)


class Window:
    """Two buttons and a line of text."""

    def __init__(self, root: tkinter.Tk, client: syncmcp.Client) -> None:
        import tkinter

        self.text = tkinter.StringVar(root, "ready")
        self._root = root
        self._bridge = Bridge()
        countdown = Countdown(client, self._bridge, self.text.set)
        self.start = tkinter.Button(root, text="Start", command=countdown.start)
        self.cancel = tkinter.Button(root, text="Cancel", command=countdown.cancel)
        for widget in (tkinter.Label(root, textvariable=self.text), self.start, self.cancel):
            widget.pack(padx=40, pady=8)
        self._poll()

    def _poll(self) -> None:
        self._bridge.run_jobs()
        self._root.after(50, self._poll)


def main() -> None:
    """Show the window until it is closed."""
    import tkinter

    with contextlib.closing(syncmcp.Client(SERVER, lazy=True)) as client:
        root = tkinter.Tk()
        Window(root, client)
        root.mainloop()


if __name__ == "__main__":
    main()
