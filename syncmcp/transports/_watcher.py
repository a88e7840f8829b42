"""Finds the processes of servers by a mark in their environment, and ends them (POSIX systems).

A process may hide its environment: those that still have their parent are also found by it.

The file is also a program, the watcher: a child process of the program that uses the library. It
waits for the death of that program, and then ends the servers that are left. It runs without the
library, and imports little, so that it is small and starts quickly.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from itertools import islice

TYPE_CHECKING = False  # `typing` and what it imports would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Lets type checkers for Windows skip what follows.
assert sys.platform != "win32"

VARIABLE = "SYNCMCP_SERVER"
"""The environment variable with the mark of a server, on Linux.

Descendants of the server inherit it. A server that is a client of other servers marks them with its
own mark and theirs, separated by a colon: whoever ends it ends them, too.
"""

# What servers are given, in seconds: after the end of their input, and after SIGTERM.
_GRACE = 1.0

# How long, in seconds, to look for processes that are started while others are killed.
_KILL_SECONDS = 1.0

# Without a pidfd: how often, in seconds, to check for the end of the program, and of a process.
_PARENT_CHECK = 1.0
_EXIT_CHECK = 0.02

# How long to wait, in seconds, for processes that begin a program, and how often to look.
_EXEC_SECONDS = 0.25
_EXEC_CHECK = 0.001

_CHUNK = 64 * 1024

MAX_HELD = 128
"""How many processes are held at one time, each by a descriptor; others follow when they ended."""

MAX_ENVIRONMENT = 1024 * 1024
"""How much of the environment of a process is read, in bytes.

A process may let all of its address space pass for its environment (`PR_SET_MM_MAP` of Linux): to
read that would take hours.
"""


def open_pidfd(pid: int) -> int | None:
    """A pidfd, which becomes readable when the process exits; `None` where there is none."""
    if sys.platform == "linux":
        try:
            return os.pidfd_open(pid)
        except (OSError, AttributeError):  # an old kernel, an interpreter built for one
            pass
    return None


class Member:
    """A process that has to end, or if `pid` is negative, a process group.

    Where there are pidfds, signals go to this process only, also once its id has been reused.
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
        """Wait for the exit, at most so many seconds; return whether it has exited."""
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
    """The living processes of servers. The caller closes them.

    On Linux these are the processes with the mark of a server, and those in the process group of a
    server that lives, `MAX_HELD` at most. Not found are processes without the mark in other groups,
    and those whose environment this process must not read. Elsewhere each process group counts as
    one process. `servers` has by the mark of a server the id of its process group, 0 if it is not
    known.
    """
    if sys.platform != "linux":
        members = [Member(-group) for group in servers.values() if group]
    else:
        marks = [mark.encode() for mark in servers]
        # Once the server has exited, the id of its group may be that of another one.
        end = time.monotonic() + _EXEC_SECONDS
        groups = {group for group in servers.values() if group and _has_mark(group, marks, end)}
        living = (pid for pid in _pids() if _belongs(pid, marks, groups, end))
        members = [Member(pid) for pid in islice(living, MAX_HELD)]
    found = []
    for member in members:
        # Before it was held, its id may have been reused.
        held = sys.platform != "linux" or _belongs(member.pid, marks, groups, end)
        if held and not member.wait(0):
            found.append(member)
        else:
            member.close()
    return found


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # no descriptor is free for that; process groups are ended all the same
        return []


def _in_other_session(pid: int) -> bool:
    """Whether a server may have started it; any file of the process takes much longer to read."""
    try:
        # Servers have sessions of their own, and what they start cannot leave these for this one.
        # Threads of the kernel have none.
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

    On Linux with pidfds. They are found by their parents: a process whose parent has exited has
    another one by then, and is not found.
    """
    if sys.platform != "linux":
        return
    origins = {pid: _origin(pid) for pid in _pids() if _in_other_session(pid)}
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in origins.items():
        children.setdefault(parent, []).append(pid)
    # Not the ids of those that have exited, which may be those of others by now.
    tree = [*roots, *(member.pid for member in members if not member.wait(0))]
    known = {*tree}
    for parent in tree:  # which grows meanwhile
        for pid in children.get(parent, ()):
            if pid in known or len(members) >= MAX_HELD:
                continue
            child = Member(pid)
            # Before it was held, its id may have been reused.
            if child.pidfd is not None and _origin(pid) == origins[pid]:
                members.append(child)
                tree.append(pid)
            else:
                child.close()


def _origin(pid: int) -> tuple[int, bytes]:
    """The id of the parent of a process, -1 if it has exited, and when it was started."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return -1, b""
    return int(fields[1]), fields[19]


def _has_mark(pid: int, marks: Iterable[bytes], end: float) -> bool:
    """Whether the process was started with one of the marks.

    Waits until `end` for a process that begins a program: who started it may have exited since.
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
    """What the process was started with; empty for a zombie, and within `execve`."""
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
    """Whether a process whose environment was empty is within `execve`, or was a moment ago."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    state, begin, end = fields[0], fields[47], fields[48]  # addresses, 0 until it is there
    return state not in (b"Z", b"X") and (begin != end or end == b"0")


def wait(members: Iterable[Member], seconds: float) -> bool:
    """Wait until all have exited, `seconds` at most in all; return whether they have."""
    end = time.monotonic() + seconds
    exited = True
    for member in members:
        exited = member.wait(end - time.monotonic()) and exited
    return exited


def close(members: Iterable[Member]) -> None:
    """Let go of the processes."""
    for member in members:
        member.close()


def kill(servers: Mapping[str, int]) -> None:
    """Kill the processes that `find` finds, until there are none, or a second has passed."""
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
    """What the program tells the watcher, one server per line; see `find` for `servers`."""

    def __init__(self) -> None:
        self.servers: dict[str, int] = {}
        self._rest = b""

    def read(self, descriptor: int) -> bool:
        """Read what is there; `False` at the end."""
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

    A child that the program has forked may hold the other end of the input, hence both.
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
    # The parent is another one as soon as the program has died.
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
