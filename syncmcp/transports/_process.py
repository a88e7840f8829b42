"""The interface to server processes, and what POSIX and Windows share: environment, PATH, pipes."""

from __future__ import annotations

import contextlib
import errno
import ntpath
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

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

# The extensions of the files that Windows starts directly.
_RUNNABLE = (".COM", ".EXE", ".BAT", ".CMD")

# How deep scripts may be nested, each as the interpreter of another one (Linux).
_INTERPRETERS = 5


class Process(Protocol):
    """A running server: its three pipes, and the process tree below it.

    Each pipe is used and closed by one thread. The other methods may be called on any thread.
    """

    writes_block: bool
    """Whether `write` blocks while the pipe is full, and so needs a thread of its own."""

    def read_output(self) -> bytes:
        """Wait for bytes on the server's stdout; return none at its end or after `end_output`."""
        ...

    def read_errors(self) -> bytes | None:
        """Wait for bytes on the server's stderr; return none at its end or after `end_errors`.

        The method returns `None` once, when the server's own process has exited, if the system
        reports that.
        """

    def write(self, data: bytes | memoryview, taken: list[int]) -> None:
        """Write to the server's stdin; append to `taken` how many bytes were written, if any.

        `taken` is correct even if a signal handler raises during the call. Nothing is appended if
        the pipe is full.

        Raises:
            OSError: The server no longer reads.
        """

    def wait_writable(self) -> bool:
        """Wait until `write` can write something; return `False` after `end_input`."""
        ...

    def end_input(self) -> None:
        """Make `wait_writable` return."""

    def end_output(self) -> None:
        """Make `read_output` return buffered bytes, then end, even if the pipe stays open."""

    def end_errors(self) -> None:
        """Do the same for `read_errors`."""

    def close_input(self) -> None:
        """Close the server's stdin, so that the server sees the end of its input."""

    def close_output(self) -> None:
        """Close our end of its stdout."""

    def close_errors(self) -> None:
        """Close our end of its stderr."""

    def wait(self, timeout: float | None) -> int | None:
        """Wait for the exit status (negative for a signal); return `None` after `timeout` seconds.

        If possible, the process is not reaped, so that `terminate` and `kill` cannot hit another
        process with a reused process id.
        """

    def hold_tree(self) -> None:
        """Record the descendants of a running server as members of its process tree."""

    def tree_ended(self, timeout: float) -> bool:
        """Return whether the tree, as far as it can be found, exits within `timeout` seconds."""
        ...

    def terminate(self) -> None:
        """Ask the whole process tree to exit."""

    def kill(self) -> None:
        """Kill the whole process tree, even if its root has exited, and reap the root."""

    def release(self) -> None:
        """Free the remaining resources.

        No other method is called afterwards.
        """

    def discard_in_child(self) -> None:
        """In a forked child: close all descriptors, without effect on the process."""


def environment(
    given: Mapping[str, str],
    inherit: str,
    own: Mapping[str, str],
    *,
    windows: bool = sys.platform == "win32",
) -> dict[str, str]:
    """Return the server's environment: variables of `own` that `inherit` allows, and `given`."""
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
    """Return the `PATH` that the server will have, or the system's default.

    On Windows, it is empty by default, because the system's default begins with the current
    directory.
    """
    return _variable(env, "PATH", "" if windows else os.defpath, windows)


def _variable(env: Mapping[str, str], name: str, default: str, windows: bool) -> str:
    for key, value in env.items():
        if key == name or (windows and key.upper() == name):
            return value
    return default


def locate(command: str, env: Mapping[str, str], cwd: str | None) -> str:
    """Find the file to run.

    A command without a directory is searched only in the server's `PATH`. Windows itself would
    search the current directory first. Relative paths are relative to the server's working
    directory.

    Raises:
        FileNotFoundError: No directory of the `PATH` contains the command.
        PermissionError: A directory contains the command, but the file is not executable.
    """
    if sys.platform == "win32":
        return locate_on_windows(command, env, cwd)
    if os.path.dirname(command):
        return command
    path = search_path(env)
    found = shutil.which(command, path=path)
    if found is not None:
        return os.path.abspath(found)  # a directory of the `PATH` may be relative to ours
    if any(Path(folder, command).is_file() for folder in path.split(os.pathsep)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), command)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)


def locate_on_windows(
    command: str,
    env: Mapping[str, str],
    cwd: str | None,
    is_file: Callable[[str], bool] = os.path.isfile,
) -> str:
    """Do the work of `locate` for Windows, where names are completed: `npx` is found as `npx.cmd`.

    Relative directories in the `PATH`, and empty ones, are skipped.
    """
    known = _variable(env, "PATHEXT", ";".join(_RUNNABLE), windows=True).upper().split(";")
    endings = [ending for ending in known if ending in _RUNNABLE]
    whole = ntpath.splitext(command)[1].upper() in endings
    names = [command, *map(command.__add__, endings)] if whole else [*map(command.__add__, endings)]
    if ntpath.dirname(command):
        places = [cwd or ""]
    else:
        path = search_path(env, windows=True).split(";")
        places = [place for place in (each.strip(' "') for each in path) if ntpath.isabs(place)]
    for place in places:
        for name in names:
            if is_file(found := ntpath.join(place, name)):
                return found
    if ntpath.dirname(command):
        return ntpath.join(cwd or "", command)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)


def reach(command: str, cwd: str | None) -> None:
    """Wait until the file systems with a command and its working directory respond.

    Python holds the GIL while it starts a process, on Linux until the program runs (`vfork`). A
    network file system that does not respond would then block all threads. Here it blocks only the
    calling thread. Errors are ignored, because the start reports them.
    """
    with contextlib.suppress(OSError, ValueError):
        if cwd is not None:
            os.stat(os.path.join(cwd, os.curdir))
        for _ in range(_INTERPRETERS):
            command = os.path.join(cwd or "", command)
            if not stat.S_ISREG(os.stat(command).st_mode):  # opening a FIFO would block
                return
            with open(command, "rb", buffering=0) as file:
                head = file.read(256)
            words = head.split(b"\n")[0][2:].split()
            if not head.startswith(b"#!") or not words:
                return
            command = os.fsdecode(words[0])  # a script: the program that runs it


def make_pipes() -> tuple[list[int], list[int]]:
    """Return the client's ends of a server's stdin, stdout and stderr, and the server's ends.

    The ends are plain descriptors, because the file objects of `Popen` would close the descriptors
    a second time when garbage-collected. By default, descriptors are not inheritable.
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
