"""What is remembered of commands that were run as servers: which of them need no probe."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from syncmcp._concurrency.timing import monotonic

if TYPE_CHECKING:
    from syncmcp._protocol.revisions import Dialect
    from syncmcp.config import Stdio

# Of so many commands, and for so long, in seconds.
_MOST = 256
_KEPT_SECONDS = 3600.0

# In the place of a revision: some stateful one.
_STATEFUL = ""


class Eras:
    """The commands whose servers were probed in vain, and the revisions that they speak.

    A server that refuses the probe is not among them: that costs one short answer, and asking it
    each time is how an upgraded one is found. One that dies of the probe, or does not answer it, or
    is slow to refuse it, costs seconds.
    """

    def __init__(self) -> None:
        # Guards the table: by command, the revision, and until when it counts.
        self._lock = threading.RLock()
        self._found: dict[int, tuple[str, float]] = {}

    def find(self, command: Stdio) -> str | None:
        """The revision that its server speaks, if it is remembered; `""` for some older one."""
        key = _key(command)
        with self._lock:
            revision, until = self._found.get(key, (None, 0.0))
        return revision if monotonic() < until else None

    def learn(self, command: Stdio, dialect: Dialect | None, *, in_vain: bool) -> None:
        """Its server speaks this, and a probe did (not) help to find out; `None`: some old one."""
        key = _key(command)
        revision = _STATEFUL if dialect is None else dialect.revision
        with self._lock:
            before, _ = self._found.get(key, (None, 0.0))
            if (dialect is None or dialect.stateful) and (in_vain or before == _STATEFUL):
                self._found.pop(key, None)
                self._found[key] = revision, monotonic() + _KEPT_SECONDS
                if len(self._found) > _MOST:  # the oldest makes room
                    del self._found[next(iter(self._found))]
            elif before != revision:
                self._found.pop(key, None)

    def forget(self, command: Stdio) -> None:
        """What was remembered may be wrong."""
        with self._lock:
            self._found.pop(_key(command), None)


def _key(command: Stdio) -> int:
    """Everything that decides which server it runs, as a number: there are secrets among it."""
    from syncmcp.transports._process import environment, locate, search_path

    env = environment(command.env, command.inherit_env, os.environ)
    program, place = command.command, command.cwd
    try:
        program = locate(program, search_path(env))
        place = os.path.abspath(place or "")
        program = os.path.join(place, program)  # a relative one is relative to that directory
    except (OSError, ValueError):
        pass  # whoever starts it will hear of that
    return hash((program, command.args, place, frozenset(env.items())))


eras = Eras()


if hasattr(os, "register_at_fork"):
    # The lock may have been held by another thread of the parent at that moment.
    os.register_at_fork(after_in_child=eras.__init__)  # type: ignore[misc]
