"""What the stdio transport asks of the operating system, and what both kinds of system share."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_POSIX_NAMES = frozenset(
    ("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
)
_WINDOWS_NAMES = frozenset(
    (
        "APPDATA",
        "COMSPEC",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATH",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "PROGRAMDATA",
        "PROGRAMFILES",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "TMP",
        "USERNAME",
        "USERPROFILE",
        "WINDIR",
    )
)


class Process(Protocol):
    """A started server: its three pipes, and the tree of processes that it heads.

    Each pipe has one thread that uses and closes it. The rest may be called on any thread.
    """

    writes_block: bool
    """Whether `write` waits for a reader that is slow, so that only a thread of its own may call
    it."""

    def read_output(self) -> bytes:
        """Wait for bytes on the server's stdout; empty at its end or after `end_output`."""
        ...

    def read_errors(self) -> bytes | None:
        """Wait for bytes on its stderr; empty once there is nothing left to watch.

        Returns `None` once, when the server's own process has ended, where the system can tell.
        """
        ...

    def write(self, data: bytes | memoryview, taken: list[int]) -> None:
        """Write to its stdin; adds to `taken` how many bytes it took, nothing if the pipe is full.

        What is written is on record whatever a signal handler raises at that moment.

        Raises:
            OSError: The server no longer reads.
        """
        ...

    def wait_writable(self) -> bool:
        """Wait until `write` will take something; `False` after `end_input`."""
        ...

    def end_input(self) -> None:
        """Make `wait_writable` return."""
        ...

    def end_output(self) -> None:
        """Make `read_output` return what is there, then end, though somebody holds the pipe."""
        ...

    def end_errors(self) -> None:
        """Do the same for `read_errors`."""
        ...

    def close_input(self) -> None:
        """Close the server's stdin: it sees the end of its input."""
        ...

    def close_output(self) -> None:
        """Close our end of its stdout."""
        ...

    def close_errors(self) -> None:
        """Close our end of its stderr."""
        ...

    def wait(self, timeout: float | None) -> int | None:
        """The exit status (negative: the signal) once it has one, `None` after `timeout` seconds.

        The process keeps its place in the process table where possible, so that `terminate` and
        `kill` cannot hit a stranger who got its number.
        """
        ...

    def terminate(self) -> None:
        """Ask the whole tree to end."""
        ...

    def kill(self) -> None:
        """End the whole tree, also when its head has ended, and clear the process table."""
        ...

    def release(self) -> None:
        """Free what the threads shared; nothing else is called afterwards."""
        ...

    def discard_in_child(self) -> None:
        """In a forked child: close everything, touch no process."""
        ...


def environment(
    given: Mapping[str, str],
    inherit: str,
    own: Mapping[str, str],
    *,
    windows: bool = sys.platform == "win32",
) -> dict[str, str]:
    """The environment of the server: what `inherit` lets through of `own`, and `given` on top."""
    if inherit == "none":
        kept: dict[str, str] = {}
    elif inherit == "all":
        kept = dict(own)
    else:
        # Values that begin with "()" are functions that some shells would define, and run.
        kept = {
            name: value
            for name, value in own.items()
            if _is_safe(name, windows) and not value.startswith("()")
        }
    if windows:  # names differ in case only there: the caller's spelling takes the place of ours
        upper = {name.upper() for name in given}
        kept = {name: value for name, value in kept.items() if name.upper() not in upper}
    return {**kept, **given}


def _is_safe(name: str, windows: bool) -> bool:
    if windows:
        return name.upper() in _WINDOWS_NAMES
    return name in _POSIX_NAMES or name.startswith("LC_")


def search_path(env: Mapping[str, str], *, windows: bool = sys.platform == "win32") -> str:
    """The `PATH` that the server will have, or the system's default."""
    for name, value in env.items():
        if name == "PATH" or (windows and name.upper() == "PATH"):
            return value
    return os.defpath


def locate(command: str, path: str) -> str:
    """Find the file to run. A command with a directory in it is left as it is.

    Raises:
        FileNotFoundError: No directory of `path` has it.
        PermissionError: One has it, but it must not be run.
    """
    # On Windows `which` also completes names: `npx` is found as `npx.cmd`.
    found = shutil.which(command, path=path)
    if found is not None:
        # A relative name is relative to the server's directory, which may not be ours.
        return command if os.path.dirname(command) and sys.platform != "win32" else found
    if os.path.dirname(command):
        return command
    if any(Path(folder, command).is_file() for folder in path.split(os.pathsep)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), command)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)


def make_pipes() -> tuple[list[int], list[int]]:
    """Our ends of a server's stdin, stdout and stderr, and its own.

    Plain descriptors rather than `Popen`'s file objects, which would close the numbers once more
    when they are collected. No other child inherits them: that is their default.
    """
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for we_write in (True, False, False):
            reader, writer = os.pipe()
            ours.append(writer if we_write else reader)
            theirs.append(reader if we_write else writer)
    except OSError:
        close_all((*ours, *theirs))
        raise
    return ours, theirs


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors that were opened for a process that did not come about."""
    for descriptor in descriptors:
        os.close(descriptor)
