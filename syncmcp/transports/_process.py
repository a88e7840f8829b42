"""The interface to server processes, and what POSIX and Windows share: environment, PATH, pipes."""

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
    """A running server: its three pipes, and the process tree that it is the root of.

    Each pipe is used and closed by one thread. The other methods may be called on any thread.
    """

    writes_block: bool
    """Whether `write` blocks while the pipe is full, and so needs a thread of its own."""

    def read_output(self) -> bytes:
        """Wait for bytes on the server's stdout; empty at its end or after `end_output`."""
        ...

    def read_errors(self) -> bytes | None:
        """Wait for bytes on the server's stderr; empty at its end or after `end_errors`.

        Returns `None` once, when the server's own process has exited, if the system reports that.
        """
        ...

    def write(self, data: bytes | memoryview, taken: list[int]) -> None:
        """Write to the server's stdin; append to `taken` how many bytes were written, if any.

        `taken` is correct even if a signal handler raises during the call. Nothing is appended if
        the pipe is full.

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
        """Make `read_output` return buffered bytes, then end, even if the pipe stays open."""
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
        """The exit status (negative: a signal); `None` after `timeout` seconds without one.

        The process is not reaped where possible, so that `terminate` and `kill` cannot hit another
        process with a reused process id.
        """
        ...

    def terminate(self) -> None:
        """Ask the whole process tree to exit."""
        ...

    def kill(self) -> None:
        """Kill the whole process tree, even if its root has exited, and reap the root."""
        ...

    def release(self) -> None:
        """Free the remaining resources; no other method is called afterwards."""
        ...

    def discard_in_child(self) -> None:
        """In a forked child: close all descriptors, without effect on the process."""
        ...


def environment(
    given: Mapping[str, str],
    inherit: str,
    own: Mapping[str, str],
    *,
    windows: bool = sys.platform == "win32",
) -> dict[str, str]:
    """The environment of the server: variables of `own` that `inherit` allows, and `given`."""
    if inherit == "none":
        kept: dict[str, str] = {}
    elif inherit == "all":
        kept = dict(own)
    else:
        # Some shells define, and run, functions from values that begin with "()" (Shellshock).
        kept = {
            name: value
            for name, value in own.items()
            if _is_safe(name, windows) and not value.startswith("()")
        }
    if windows:  # names ignore case there: `given` replaces other spellings
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
        # A relative path is relative to the server's working directory, which may differ from ours.
        return command if os.path.dirname(command) and sys.platform != "win32" else found
    if os.path.dirname(command):
        return command
    if any(Path(folder, command).is_file() for folder in path.split(os.pathsep)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), command)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)


def make_pipes() -> tuple[list[int], list[int]]:
    """Our ends of a server's stdin, stdout and stderr, and its own.

    Plain descriptors, because the file objects of `Popen` would close the descriptors a second time
    when garbage-collected. They are not inheritable, by default.
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
    """Close the descriptors for a process that could not be started."""
    for descriptor in descriptors:
        os.close(descriptor)
