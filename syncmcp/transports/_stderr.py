"""What a server writes to stderr: a bounded tail for errors, and a place for the rest."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from syncmcp._base.text import redact
from syncmcp.transports._lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from syncmcp.config import Stderr

_log = logging.getLogger("syncmcp.stderr")

_TAIL_BYTES = 4 * 1024
_TAIL_LINES = 20

# More is kept than shown, so that a secret at the edge of the tail is still known as one.
_KEPT_BYTES = 4 * _TAIL_BYTES

_LONGEST_LINE = 64 * 1024


class StderrSink:
    """Takes the bytes of one server's stderr, on the one thread that reads them.

    Args:
        target: Where lines go besides the tail. The log gets them redacted; the others are the
            caller's own places and get them as they are (a sign-in link must stay usable).
        label: What the log calls the server.
        secrets: Values that must not be shown.

    Raises:
        OSError: The file that `target` names cannot be opened.
    """

    def __init__(self, target: Stderr, label: str, secrets: Collection[str]) -> None:
        self._label = label
        self._secrets = secrets
        self._lines = Lines(_LONGEST_LINE)
        self._kept = bytearray()
        # Guards the bytes kept: the tail is asked for on other threads.
        self._lock = threading.RLock()
        self._close: Callable[[], None] | None = None
        self._sink = self._choose(target)

    def _choose(self, target: Stderr) -> Callable[[str], None] | None:
        if target == "log":
            return self._to_log
        if target == "inherit":
            return _to_own_stderr
        if target == "devnull":
            return None
        if callable(target):
            return target
        file = Path(os.fspath(target)).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._close = file.close

        def append(line: str) -> None:
            file.write(line + "\n")

        return append

    def _to_log(self, line: str) -> None:
        # A server may write to stderr what it likes: that is no sign of an error.
        if _log.isEnabledFor(logging.INFO):
            _log.info("[%s] %s", self._label, redact(line, self._secrets))

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        with self._lock:
            self._kept += chunk[-_KEPT_BYTES:]
            del self._kept[:-_KEPT_BYTES]
        for line in self._lines.feed(chunk):
            self._show(line)

    def close(self) -> None:
        """Show what came after the last line end, and close the file if there is one."""
        rest = self._lines.rest()
        if rest:
            self._show(rest)
        if self._close is not None:
            self._close()

    def tail(self) -> str:
        """The last lines, secrets removed. Any thread may ask."""
        with self._lock:
            kept = bytes(self._kept)
        text = redact(kept.decode("utf-8", "replace"), self._secrets)
        return "\n".join(text.splitlines()[-_TAIL_LINES:])[-_TAIL_BYTES:].strip()

    def _show(self, line: bytes) -> None:
        if self._sink is None:
            return
        try:
            self._sink(line.decode("utf-8", "replace"))
        except Exception:  # the caller's function or file: it must not stop the draining
            self._sink = None
            _log.exception("[%s] the place for stderr failed and gets no more lines", self._label)


def _to_own_stderr(line: str) -> None:
    # Looked up each time: a notebook replaces it, and a program without a console has none.
    if sys.stderr is not None:
        sys.stderr.write(line + "\n")
