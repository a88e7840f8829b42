"""Server processes on Windows: a job object contains the process tree. Not run on Windows.

The logic is tested on other systems, with fakes of process and job. Windows cannot poll pipes: a
separate thread writes, and the exit of a server is detected when its pipes close.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

from syncmcp._concurrency.timing import gevent_patched
from syncmcp.transports._process import close_all, make_pipes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CHUNK = 256 * 1024

# Flags of the Windows API. The first prevents Ctrl-C from reaching the server, the second a console
# window.
_CREATE_NEW_PROCESS_GROUP = 0x00000200
_CREATE_NO_WINDOW = 0x08000000

# How long, in seconds, to wait for a process that was killed.
_KILL_WAIT = 1.0

# The command interpreter runs batch files (`npx.cmd`), and parses the command line again: with
# these characters it could be made to run other commands.
_UNSAFE_FOR_BATCH = frozenset('"%&|<>^!').union(map(chr, range(32))) - {"\t"}

# Keeps that interpreter, and other programs, from searching the current directory first.
_SKIP_CURRENT_FOLDER = "NoDefaultCurrentDirectoryInExePath"


class Child(Protocol):
    """The methods used of `subprocess.Popen`."""

    def poll(self) -> int | None:
        """The exit status, or `None`."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status."""
        ...

    def kill(self) -> None:
        """End this one process."""


class Job(Protocol):
    """A set of processes that can be ended together; child processes are members, too."""

    def terminate(self) -> None:
        """End every member."""

    def close(self) -> None:
        """Close the handle, which ends every member."""


class WindowsProcess:
    """One server process and the job with its process tree; without a job, only the process."""

    writes_block = True

    def __init__(self, child: Child, job: Job | None, stdin: int, stdout: int, stderr: int) -> None:
        self._child = child
        self._job = job
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr
        self._input_ended = False
        self._output_ended = False
        self._errors_ended = False

    def read_output(self) -> bytes:
        return b"" if self._output_ended else os.read(self._stdout, _CHUNK)

    def read_errors(self) -> bytes | None:
        """Read from stderr, and never return `None`: only the pipe is watched."""
        return b"" if self._errors_ended else os.read(self._stderr, _CHUNK)

    def write(self, data: bytes | memoryview, taken: list[int]) -> None:
        # In one C call: Python runs no signal handler between the write and the append.
        taken.extend(map(os.write, (self._stdin,), (data,)))

    def wait_writable(self) -> bool:
        """Return at once: `write` blocks instead."""
        return not self._input_ended

    def end_input(self) -> None:
        """Do nothing: a blocked write ends when the server exits."""
        self._input_ended = True

    def end_output(self) -> None:
        """Do nothing: a blocked read ends when the last process of the tree has exited."""
        self._output_ended = True

    def end_errors(self) -> None:
        self._errors_ended = True

    def close_input(self) -> None:
        pipe, self._stdin = self._stdin, -1
        if pipe >= 0:
            os.close(pipe)

    def close_output(self) -> None:
        pipe, self._stdout = self._stdout, -1
        if pipe >= 0:
            os.close(pipe)

    def close_errors(self) -> None:
        pipe, self._stderr = self._stderr, -1
        if pipe >= 0:
            os.close(pipe)

    def wait(self, timeout: float | None) -> int | None:
        try:
            return self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def hold_tree(self) -> None:
        """Do nothing: the job contains the process tree."""

    def tree_ended(self, timeout: float) -> bool:
        """Return `True`: the job ends the other processes, which cannot be asked to exit."""
        return True

    def terminate(self) -> None:
        """Kill the process tree: a process without a window cannot be asked to exit."""
        self.kill()

    def kill(self) -> None:
        if self._job is not None:
            self._job.terminate()
        elif self._child.poll() is None:
            self._child.kill()
        self.wait(_KILL_WAIT)

    def release(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.close()

    def discard_in_child(self) -> None:
        """Do nothing, and never be called: Windows has no fork."""


def check_arguments(argv: Sequence[str]) -> None:
    """Raise `ValueError` for a batch file with special characters in its path or an argument.

    The command interpreter would not pass them on literally.
    """
    # Windows ignores dots and spaces at the end of the name of a file.
    if argv[0].rstrip(" .").lower().endswith((".bat", ".cmd")):
        for word in argv:
            if _UNSAFE_FOR_BATCH.intersection(word):
                raise ValueError(
                    "the path or an argument of a batch file has a character that its interpreter "
                    "would act on"
                )


def without_current_folder(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return `env` with the setting that excludes the current directory from program searches."""
    if any(name.upper() == _SKIP_CURRENT_FOLDER.upper() for name in env):
        return env
    return {**env, _SKIP_CURRENT_FOLDER: "1"}


def start(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> WindowsProcess:
    """Start a server; see `syncmcp.transports.stdio.start`."""
    if gevent_patched("threading"):
        raise ValueError(
            "with gevent on Windows, the pipes of a server would block all greenlets; use HTTP"
        )
    check_arguments(argv)
    ours, theirs = make_pipes()
    try:
        child = subprocess.Popen(
            argv,
            stdin=theirs[0],
            stdout=theirs[1],
            stderr=theirs[2],
            env=without_current_folder(env),
            cwd=cwd,
            creationflags=_CREATE_NEW_PROCESS_GROUP | _CREATE_NO_WINDOW,
        )
    except BaseException:
        close_all(ours)
        raise
    finally:
        close_all(theirs)
    return WindowsProcess(child, _job_for(child.pid), *ours)


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _KILL_ON_CLOSE = 0x2000
    _EXTENDED_LIMITS = 9
    _SET_QUOTA_AND_TERMINATE = 0x0101

    class _Limits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

        _fields_ = (
            ("process_time", wintypes.LARGE_INTEGER),
            ("job_time", wintypes.LARGE_INTEGER),
            ("flags", wintypes.DWORD),
            ("minimum_working_set", ctypes.c_size_t),
            ("maximum_working_set", ctypes.c_size_t),
            ("active_processes", wintypes.DWORD),
            ("affinity", ctypes.c_size_t),
            ("priority_class", wintypes.DWORD),
            ("scheduling_class", wintypes.DWORD),
            ("io_counters", ctypes.c_ulonglong * 6),
            ("process_memory", ctypes.c_size_t),
            ("job_memory", ctypes.c_size_t),
            ("peak_process_memory", ctypes.c_size_t),
            ("peak_job_memory", ctypes.c_size_t),
        )

    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel.CreateJobObjectW.restype = wintypes.HANDLE
    _kernel.CreateJobObjectW.argtypes = (wintypes.LPVOID, wintypes.LPCWSTR)
    _kernel.SetInformationJobObject.argtypes = (
        wintypes.HANDLE,
        ctypes.c_int,
        wintypes.LPVOID,
        wintypes.DWORD,
    )
    _kernel.OpenProcess.restype = wintypes.HANDLE
    _kernel.OpenProcess.argtypes = (wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
    _kernel.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
    _kernel.TerminateJobObject.argtypes = (wintypes.HANDLE, wintypes.UINT)
    _kernel.CloseHandle.argtypes = (wintypes.HANDLE,)

    class _JobObject:
        """A job that ends when its last handle is closed, so also when this process is killed."""

        def __init__(self, handle: int) -> None:
            self._handle = handle

        def terminate(self) -> None:
            _kernel.TerminateJobObject(self._handle, 1)

        def close(self) -> None:
            _kernel.CloseHandle(self._handle)

    def _job_for(pid: int) -> Job | None:
        job = _kernel.CreateJobObjectW(None, None)
        if not job:
            return None
        limits = _Limits(flags=_KILL_ON_CLOSE)
        process = _kernel.OpenProcess(_SET_QUOTA_AND_TERMINATE, False, pid)
        held = bool(process) and bool(
            _kernel.SetInformationJobObject(
                job, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
            )
            and _kernel.AssignProcessToJobObject(job, process)
        )
        if process:
            _kernel.CloseHandle(process)
        if not held:  # an outer job may forbid it
            _kernel.CloseHandle(job)
            return None
        return _JobObject(job)

else:

    def _job_for(pid: int) -> Job | None:
        """Return `None`: other systems have no jobs."""
        return None
