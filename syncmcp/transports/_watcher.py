"""Finds the processes of servers by a mark in their environment, and ends them (POSIX systems).

A process may hide its environment. It is then found by its parent, if the parent still lives.

The file is also a program, the watcher: a child process of the program that uses the library. It
waits for the death of that program, and then ends the remaining servers. It runs without the
library, and imports little, so that it is small and starts quickly.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from itertools import islice

TYPE_CHECKING = False  # importing `typing` would take longer than everything else
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Lets type checkers for Windows skip what follows.
assert sys.platform != "win32"

VARIABLE = "SYNCMCP_SERVER"
"""The environment variable with the mark of a server, on Linux.

Descendants of the server inherit it. A server that is a client of other servers marks them with its
own mark and theirs, separated by a colon. So a program that ends this server ends them, too.
"""

# How many seconds servers have to exit: after the end of their input, and again after SIGTERM.
_GRACE = 1.0

# How long, in seconds, to look for processes that are started while others are killed.
_KILL_SECONDS = 1.0

# Without a pidfd: how often, in seconds, to check for the end of the program, and of a process.
_PARENT_CHECK = 1.0
_EXIT_CHECK = 0.02

# How long to wait, in seconds, for processes that are in `execve`, and how often to check.
_EXEC_SECONDS = 0.25
_EXEC_CHECK = 0.001

_CHUNK = 64 * 1024

MAX_HELD = 128
"""The most processes that are held at a time, each by a descriptor; others follow later."""

MAX_ENVIRONMENT = 1024 * 1024
"""How much of the environment of a process is read, in bytes.

A process may declare all its memory as environment (`PR_SET_MM_MAP`). Reading it would take hours.
"""


def open_pidfd(pid: int) -> int | None:
    """Return a pidfd, which becomes readable when the process exits; `None` if that fails."""
    if sys.platform == "linux":
        try:
            return os.pidfd_open(pid)
        except (OSError, AttributeError):  # an old kernel, an interpreter built for one
            pass
    return None


class Member:
    """A process to end, or if `pid` is negative, a process group.

    With a pidfd, signals go to this process only, even after its id was reused.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = open_pidfd(pid)

    def signal(self, number: int) -> None:
        """Send a signal, if the process still exists."""
        try:
            if sys.platform == "linux" and self.pidfd is not None:
                signal.pidfd_send_signal(self.pidfd, number)
            else:
                os.kill(self.pid, number)
        except OSError:  # it has exited, or belongs to another user
            pass

    def wait(self, seconds: float) -> bool:
        """Wait for the exit, at most `seconds`; return whether the process has exited."""
        if self.pidfd is not None:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            return bool(poll.poll(max(0.0, seconds) * 1000))
        end = time.monotonic() + seconds
        while True:
            try:
                os.kill(self.pid, 0)
            except OSError:
                return True
            if (left := end - time.monotonic()) <= 0:
                return False
            time.sleep(min(left, _EXIT_CHECK))

    def group(self) -> int:
        """The id of its process group; 0 if it has exited."""
        try:
            return os.getpgid(self.pid)
        except OSError:
            return 0

    def close(self) -> None:
        """Close the pidfd."""
        if self.pidfd is not None:
            os.close(self.pidfd)


def find(servers: Mapping[str, int]) -> list[Member]:
    """Return the living processes of servers. The caller closes them.

    `servers` maps the mark of each server to the id of its process group, 0 if that is unknown. On
    Linux, at most `MAX_HELD` processes are found: those with the mark of a server, and those in the
    process group of a living server. In other groups, processes are not found if they have no mark,
    or if this process must not read their environment. On other systems each process group counts
    as one process.
    """
    if sys.platform != "linux":
        members = [Member(-group) for group in servers.values() if group]
    else:
        marks = [mark.encode() for mark in servers]
        # After the server has exited, another group may have the id of its group.
        end = time.monotonic() + _EXEC_SECONDS
        groups = {group for group in servers.values() if group and _has_mark(group, marks, end)}
        living = (pid for pid in _pids() if _belongs(pid, marks, groups, end))
        members = [Member(pid) for pid in islice(living, MAX_HELD)]
    found = []
    for member in members:
        # The id may have been reused before the process was held.
        held = sys.platform != "linux" or _belongs(member.pid, marks, groups, end)
        if held and not member.wait(0):
            found.append(member)
        else:
            member.close()
    return found


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # no descriptor is free for that; the client still signals the process group
        return []


def _in_other_session(pid: int) -> bool:
    """Return whether a server may have started the process; faster than reading its files."""
    try:
        # Each server has a session of its own, and its descendants cannot join the session of this
        # process. Threads of the kernel have no session.
        return os.getsid(pid) not in (0, os.getsid(0))
    except OSError:  # it has exited
        return False


def _belongs(pid: int, marks: Iterable[bytes], groups: set[int], end: float) -> bool:
    if not _in_other_session(pid):
        return False
    try:
        return _has_mark(pid, marks, end) or (bool(groups) and os.getpgid(pid) in groups)
    except OSError:  # it has exited
        return False


def add_descendants(members: list[Member], *roots: int) -> None:
    """Add the living descendants of `members` and of `roots`, also those whose mark cannot be read.

    This works only on Linux with pidfds. Descendants are found by the ids of their parents: a
    process whose parent has exited has another parent, and is not found.
    """
    if sys.platform != "linux":
        return
    origins = {pid: _origin(pid) for pid in _pids() if _in_other_session(pid)}
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in origins.items():
        children.setdefault(parent, []).append(pid)
    # Without members that have exited: other processes may have their ids by now.
    tree = [*roots, *(member.pid for member in members if not member.wait(0))]
    known = {*tree}
    for parent in tree:  # grows during the loop
        for pid in children.get(parent, ()):
            if pid in known or len(members) >= MAX_HELD:
                continue
            child = Member(pid)
            # The id may have been reused before the process was held.
            if child.pidfd is not None and _origin(pid) == origins[pid]:
                members.append(child)
                tree.append(pid)
            else:
                child.close()


def _origin(pid: int) -> tuple[int, bytes]:
    """Return the id of a process's parent (-1 if the process has exited), and its start time."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return -1, b""
    return int(fields[1]), fields[19]


def _has_mark(pid: int, marks: Iterable[bytes], end: float) -> bool:
    """Return whether the process was started with one of the marks.

    The function waits until `end` for a process in `execve`, which has no environment yet: its
    parent, by which it could be found, may have exited.
    """
    try:
        while not (variables := _environment(pid)) and _begins_program(pid):
            if time.monotonic() >= end:
                return False
            time.sleep(_EXEC_CHECK)
    except OSError:  # it has exited, or belongs to another user
        return False
    return any(mark in variables for mark in marks)


def _environment(pid: int) -> bytearray:
    """Return the environment of a process at its start; empty for a zombie, and in `execve`."""
    descriptor = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    try:
        variables = bytearray()
        while len(variables) < MAX_ENVIRONMENT and (chunk := os.read(descriptor, _CHUNK)):
            variables += chunk
            if len(chunk) < _CHUNK:
                break
    finally:
        os.close(descriptor)
    return variables


def _begins_program(pid: int) -> bool:
    """Return whether a process whose environment was empty is, or just was, in `execve`."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    state, begin, end = fields[0], fields[47], fields[48]  # of the environment; 0 until it is set
    return state not in (b"Z", b"X") and (begin != end or end == b"0")


def wait(members: Iterable[Member], seconds: float) -> bool:
    """Wait until all have exited, `seconds` at most in all; return whether they have."""
    end = time.monotonic() + seconds
    exited = True
    for member in members:
        exited = member.wait(end - time.monotonic()) and exited
    return exited


def close(members: Iterable[Member]) -> None:
    """Close the pidfds of the processes."""
    for member in members:
        member.close()


def kill(servers: Mapping[str, int]) -> None:
    """Kill the processes that `find` returns, until it returns none or a second has passed."""
    end = time.monotonic() + _KILL_SECONDS
    while members := find(servers):
        for member in members:
            member.signal(signal.SIGKILL)
        wait(members, end - time.monotonic())
        close(members)
        if time.monotonic() >= end:
            return


def end_all(servers: Mapping[str, int]) -> None:
    """End the servers of a program that has died, in the order in which a client ends one."""
    members = find(servers)
    add_descendants(members)
    # The death of the program has closed the pipes of the servers: the end of their input.
    for number in (signal.SIGTERM, signal.SIGKILL):
        wait(members, _GRACE)
        for member in members:
            member.signal(number)
    close(members)
    kill(servers)


class Orders:
    """The orders of the program to the watcher, a line for each; see `find` for `servers`."""

    def __init__(self) -> None:
        self.servers: dict[str, int] = {}
        self._rest = b""

    def read(self, descriptor: int) -> bool:
        """Read the available orders; `False` if there are none, or the input has ended."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            mark, _, group = line.decode("ascii").partition(" ")
            if group:
                self.servers[mark] = int(group)
            else:
                self.servers.pop(mark, None)
        return bool(data)


def main() -> None:
    """Wait for the death of the parent process, or the end of the standard input; end the servers.

    It waits for both, because a forked child of the program may have the input's other end open.
    """
    parent = int(sys.argv[1])
    # Terminals and service managers send these to all processes of a program.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    if (pidfd := open_pidfd(parent)) is not None:
        poll.register(pidfd, select.POLLIN)
    orders = Orders()
    # As soon as the program has died, this process has another parent.
    while os.getppid() == parent:
        ready = poll.poll(None if pidfd is not None else _PARENT_CHECK * 1000)
        if any(descriptor == 0 for descriptor, _ in ready) and not orders.read(0):
            break
    os.set_blocking(0, False)
    while orders.read(0):
        pass
    end_all(orders.servers)


if __name__ == "__main__":
    main()
