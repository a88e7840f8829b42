"""The stdio transport: a server as a child process, one JSON-RPC message per line.

Two threads read stdout and stderr. The thread that sends a frame writes it. If the pipe is full, a
third thread is started, which writes the queued frames. Spec: basic/transports, "stdio". The tests
run the POSIX code; the Windows code was not run on Windows.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncmcp._base.text import logger
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.limited_log import LimitedLog
from syncmcp._concurrency.timing import Deadline, Latch, start_thread
from syncmcp._protocol.jsonrpc import check_values, values_within
from syncmcp.config import Stdio
from syncmcp.errors import (
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    Delivery,
    LimitExceeded,
    McpError,
    RequestTimeout,
    UsageError,
)
from syncmcp.transports._pipes import (
    EXIT_STATUS_WAIT,
    LineReader,
    StderrSink,
    StdinWriter,
    TruncatedLine,
)
from syncmcp.transports._process import Process, environment, locate, reach, search_path
from syncmcp.transports.base import Outgoing, Receiver, Transport, reader_failed

_log = logger("syncmcp.stdio")

_BOM = b"\xef\xbb\xbf"

# An object, or (2025-03-26) an array of objects. "[INFO] ready" is not a frame.
_FRAME = re.compile(rb"[ \t]*(?:\{|\[[ \t]*\{)")

# How many seconds the reader thread waits for the end of stderr, which the error for a lost
# connection quotes. It waits longer if the server has exited: only buffered bytes are left then,
# unless another process has stderr open.
_TAIL_WAIT = 0.02
_LAST_WORDS_WAIT = 0.25

# After the exit of the server, its stdout and its process tree have this many seconds to end. Then
# the reader thread ends, and `close` terminates the rest of the tree.
_EXIT_WAIT = 0.05

# How long, in seconds, `close` waits for the end of each thread.
_JOIN_WAIT = 1.0

_NOISE_SHOWN = 200

SKIPPED_LINE = "[%s] skipped a line on stdout that is not a message: %r"
"""The log message for a line on stdout that is not a message."""

# How many characters from the end of stderr `describe` returns at most.
_TAIL_DESCRIBED = 1000

_open_transports: weakref.WeakSet[StdioTransport] = weakref.WeakSet()


class StdioTransport(Transport):
    """Runs one server process, and sends and receives frames through its pipes.

    `noise` counts the lines of stdout that were skipped, because they were not messages.
    """

    blocking = False
    ordered = True

    def __init__(self, config: Stdio) -> None:
        self.label = config.label
        self.max_values = values_within(config.max_frame)
        self.noise = 0
        self._first_noise = ""
        self._limited_log = LimitedLog()
        self._config = config
        self._secrets = config.secrets
        self._secrets.give_variables(config.env)  # `env` may have changed since `Stdio` was made
        self._receiver: Receiver | None = None
        self._process: Process | None = None
        self._stderr: StderrSink | None = None
        self._reader: threading.Thread | None = None
        self._drain: threading.Thread | None = None
        self._output_ended = Latch()
        self._errors_ended = Latch()
        self._opening = False
        self._closing = False
        self._closer: int | None = None
        self._closed = Latch()
        # Guards the flags above, and the users of the process: the threads and this transport. The
        # last user releases the process. Reentrant for the same reason as `StdinWriter._lock`.
        self._lock = threading.RLock()
        self._users: set[object] = {self}
        self._stdin_writer = StdinWriter(self, config.max_frame)

    # -- opening

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """Start the server and its reader threads.

        Raises:
            ConnectFailed: The command was not found or could not be run.
            RequestTimeout: `deadline` passed.
            UsageError: An argument or environment variable cannot be passed to a process.
            ClosedError: The transport was closed.
        """
        if deadline.expired:
            raise RequestTimeout(
                "no time was left to start the server",
                server=self.label,
                kind="open",
                seconds=deadline.seconds,
                delivery="not_sent",
            )
        with self._lock:
            if self._closing:
                raise ClosedError("the transport is closed", server=self.label)
        self._receiver = receiver
        # Another thread starts the process: in the main thread, KeyboardInterrupt could come before
        # the process or a pipe is stored, and leak it.
        started = Latch()
        failure: list[BaseException] = []
        name = f"syncmcp-stderr[{self.label}]"
        drain = threading.Thread(
            target=self._start_and_drain, args=(started, failure), name=name, daemon=True
        )
        try:
            start_thread(drain)
            if not started.wait(deadline.remaining()):
                raise RequestTimeout(
                    "the server was not started in time",
                    server=self.label,
                    kind="open",
                    seconds=deadline.seconds,
                    delivery="not_sent",
                )
        except BaseException as error:
            self.close(deadline.sooner(_JOIN_WAIT))
            # `close` must not wait while the system blocks the start: that thread ends the server.
            self._closed.set()
            if isinstance(error, RuntimeError):
                raise ConnectFailed("cannot start a thread", server=self.label) from error
            raise
        if failure:
            drain.join(_JOIN_WAIT)
            raise failure.pop()

    def _start_and_drain(self, started: Latch, failure: list[BaseException]) -> None:
        """Start the server, set `started`, and read the server's stderr to the end.

        One thread does both: a server that uses `PR_SET_PDEATHSIG` (Linux) gets its signal when
        the thread that started it ends.
        """
        with self._lock:
            if self._closing:  # closed before the start
                failure.append(
                    ClosedError("the transport was closed before it was open", server=self.label)
                )
                started.set()
                return
            self._opening = True
            self._users.add(threading.current_thread())
        try:
            try:
                self._start_process()
            except BaseException as error:
                failure.append(error)
                self._closing = True
                self._errors_ended.set()  # stderr will not be read
                self._kill_and_close(Deadline(0))
                return
            finally:
                started.set()
            self._read_stderr()
        finally:
            self._release_process(threading.current_thread())

    def _start_process(self) -> None:
        self._open_stderr()
        self._stdin_writer.open(self._spawn())
        try:
            self._reader = self.start_thread("read", self._read_stdout)
        except RuntimeError as error:
            raise ConnectFailed("cannot start a thread", server=self.label) from error
        with self._lock:
            if self._closing:  # this thread has to end the server
                raise ClosedError("the transport was closed before it was open", server=self.label)
            self._opening = False
            self._drain = threading.current_thread()

    def _open_stderr(self) -> None:
        try:
            self._stderr = StderrSink(self._config.stderr, self.label, self._secrets)
        except OSError as error:
            raise ConnectFailed(
                f"cannot open the file for stderr: {error}", server=self.label
            ) from error

    def _spawn(self) -> Process:
        config = self._config
        env = environment(config.env, config.inherit_env, os.environ)
        try:
            # A file system that does not respond blocks only this thread here; see `reach`.
            command = locate(config.command, env, config.cwd)
            reach(command, config.cwd)
            if config.before_start is not None:
                config.before_start()
            if self._closing:
                raise ClosedError("the transport was closed before it was open", server=self.label)
            with delaying_forks():
                self._process = process = start((command, *config.args), env, config.cwd)
                _open_transports.add(self)
            return process
        except ValueError as error:
            raise UsageError(f"cannot start the server: {error}", server=self.label) from error
        except OSError as error:
            text = self._start_error_text(error, search_path(env))
            raise ConnectFailed(text, server=self.label) from error

    def _start_error_text(self, error: OSError, path: str) -> str:
        config = self._config
        if config.cwd is not None and error.filename == config.cwd:
            return f"cannot use the working directory {config.cwd!r}: {error.strerror}"
        command = self._secrets.redact(config.command)
        if isinstance(error, FileNotFoundError):
            hint = ""
            if " " in config.command and not config.args:
                hint = "; pass the program and its arguments as separate strings"
            elif config.command.startswith("~"):
                hint = "; ~ is not expanded: pass os.path.expanduser(...)"
            elif "://" in config.command:
                hint = "; a URL needs no Stdio: connect(URL)"
            elif config.command.endswith(".py"):
                if not os.path.exists(os.path.join(config.cwd or "", config.command)):
                    return f"there is no file {command!r}"
                hint = f"; is it a script? Stdio('python', {command!r})"
            if hint or os.path.dirname(config.command):
                return f"command not found: {command!r}{hint}"
            return f"command not found: {command!r}; PATH searched: {path}"
        if os.path.isdir(config.command):
            return f"{command!r} is a directory"
        if isinstance(error, PermissionError):
            return f"{command!r} is not executable; is it a script? Stdio('python', {command!r})"
        return f"cannot run {command!r}: {error.strerror}"

    def start_thread(self, role: str, target: Callable[[], None]) -> threading.Thread:
        """Start a thread, which counts as a user of the process."""
        # Emptied by the thread when it runs, or below if Ctrl-C interrupts the wait for its start.
        box = [target]

        def run() -> None:
            with self._lock:
                if not box:
                    return
                target = box.pop()
            try:
                target()
            finally:
                self._release_process(thread)

        thread = threading.Thread(target=run, name=f"syncmcp-{role}[{self.label}]", daemon=True)
        try:
            with self._lock:
                self._users.add(thread)
            start_thread(thread)
        except BaseException:
            with self._lock:
                running = not box
                box.clear()
            if not running:
                self._release_process(thread)
            raise
        return thread

    # -- reading

    def _read_stdout(self) -> None:
        process, receiver = self._process, self._receiver
        assert process is not None and receiver is not None  # noqa: PT018
        try:
            error = self._read_frames(process, receiver)
            self._output_ended.set()
            if error is None and not self._closing:  # `close` needs no error, which takes time
                error = self._connection_lost(process)
            if error is not None and not self._closing:
                receiver.lost(error)
        except LimitExceeded as error:  # a message with too many values or parts
            receiver.lost(error)
        except Exception as error:  # unreported, all requests would wait for their timeouts
            receiver.lost(reader_failed(self.label, error))
        finally:
            self._limited_log.flush()
            self._output_ended.set()
            process.close_output()

    def _read_frames(self, process: Process, receiver: Receiver) -> McpError | None:
        lines = LineReader(self._config.max_frame)
        at_start = True
        while chunk := process.read_output():
            if self._closing:  # read and discard: a server that is blocked in a write cannot exit
                continue
            for line in lines.feed(chunk):
                if at_start:
                    at_start = False
                    line = _without_bom(line)  # noqa: PLW2901
                if not _FRAME.match(line):
                    if line and not line.isspace():
                        self.skipped(line)
                elif isinstance(line, TruncatedLine):
                    return self._message_too_long()
                elif not self._closing:
                    receiver.receive(line)
        rest = _without_bom(lines.rest()) if at_start else lines.rest()
        if rest and not self._closing:
            # A last line without a line end may be incomplete: only valid JSON is accepted.
            if _FRAME.match(rest) and _is_json(rest, self.max_values):
                receiver.receive(rest)
            else:
                self.skipped(rest)
        return None

    def skipped(self, frame: bytes) -> None:
        """Count a line of stdout that is not a message.

        The first such line is logged, and shown in errors.
        """
        self.noise += 1
        if self.noise > 1 and not _log.isEnabledFor(logging.DEBUG):
            return
        cut = len(frame) > 2 * _NOISE_SHOWN
        text = frame[: 2 * _NOISE_SHOWN].decode("utf-8", "replace")
        text = self._secrets.redact(text, ends_cut=cut)[:_NOISE_SHOWN]
        if self.noise == 1:
            self._first_noise = text
        level = logging.WARNING if self.noise == 1 else logging.DEBUG
        self._limited_log.log(_log, level, SKIPPED_LINE, self.label, text)

    def _message_too_long(self) -> LimitExceeded:
        return LimitExceeded(
            f"the server sent a message longer than max_frame ({self._config.max_frame} bytes)",
            server=self.label,
        )

    def _connection_lost(self, process: Process) -> ConnectionLost:
        code = process.wait(EXIT_STATUS_WAIT)
        self._errors_ended.wait(_TAIL_WAIT if code is None else _LAST_WORDS_WAIT)
        text = "the server closed its stdout" if code is None else "the server exited"
        return self._lost(text, code)

    def _lost(self, text: str, code: int | None, **facts: Any) -> ConnectionLost:
        said = self._noise_said()
        text += f"; {said}" if said else ""
        return ConnectionLost(text, **facts, **self._error_details(code))

    def _error_details(self, code: int | None) -> dict[str, Any]:
        tail = "" if self._stderr is None else self._stderr.tail()
        return {"server": self.label, "exit_code": code, "stderr_tail": tail}

    def _read_stderr(self) -> None:
        process, sink, receiver = self._process, self._stderr, self._receiver
        assert process is not None and sink is not None and receiver is not None  # noqa: PT018
        try:
            while (chunk := process.read_errors()) != b"":
                if chunk is None:
                    # Stdout normally ends with the server, but not if another process has inherited
                    # it: then the reader would block forever.
                    if not self._output_ended.wait(_EXIT_WAIT):
                        process.end_output()
                else:
                    sink.feed(chunk)
        except Exception as error:  # nothing reads stderr now: a full pipe would block the server
            receiver.lost(reader_failed(self.label, error))
        finally:
            self._errors_ended.set()
            process.close_errors()
            sink.close()

    def stderr_tail(self) -> str:
        """Return the last lines that the server wrote to its stderr, secrets removed."""
        return "" if self._stderr is None else self._stderr.tail()

    def describe(self) -> str:
        """Return the skipped lines on stdout, and the end of stderr."""
        facts = [self._noise_said()]
        tail = "" if self._stderr is None else self._stderr.tail()[-_TAIL_DESCRIBED:].strip()
        if tail:
            facts.append(f"stderr ended with: {tail}")
        return "; ".join(filter(None, facts))

    def _noise_said(self) -> str:
        noise, first = self.noise, self._first_noise
        if noise <= 1:
            return f"1 line on its stdout was not a message: {first!r}" if noise else ""
        return f"{noise} lines on its stdout were not messages, the first: {first!r}"

    # -- writing

    def send(self, out: Outgoing) -> None:
        """Write a frame, or queue it if the pipe is full, without blocking.

        The failure of a queued request is reported to `Receiver.failed`.

        Raises:
            ClosedError: The transport is not open.
            ConnectionLost: The server no longer reads.
            LimitExceeded: The queue is full, because the server does not read.
        """
        self._stdin_writer.send(out)

    post = send

    def cancel(self, out: Outgoing) -> Delivery:
        """Cancel a frame that is not yet written; a partly written frame is completed."""
        return self._stdin_writer.cancel(out)

    def broken_pipe(self, delivery: Delivery, wait: float) -> ConnectionLost:
        process = self._process
        code = None if process is None else process.wait(wait)
        return self._lost("the server no longer reads", code, delivery=delivery)

    def failed(self, out: Outgoing, error: McpError) -> None:
        if self._receiver is not None and not self._closing:
            self._receiver.failed(out, error)

    def stalled(self, seconds: float) -> None:
        if self._receiver is not None and not self._closing:
            text = f"the server has read nothing for {seconds:g} s, but answers to it are waiting"
            self._receiver.lost(self._lost(text, None))

    def input_closed(self) -> None:
        """Report the connection as lost.

        To replace or close the connection ends the process.
        """
        if self._receiver is not None and not self._closing:
            text = "the server closed its stdin"
            self._receiver.lost(self._lost(text, None))

    # -- closing

    def close(self, deadline: Deadline) -> None:
        """End the server: close its stdin, wait, terminate its process tree, wait, kill the rest.

        The method may be called from any thread, including the transport's own, a signal handler or
        a finalizer. It starts no thread. A second caller waits for the first one, or until its own
        deadline.
        """
        me = threading.get_ident()
        mine = False
        try:  # Ctrl-C may come at any point
            with self._lock:
                self._closing = True
                # While the server is being started, the thread that starts it also ends it.
                mine = self._closer is None and not self._opening
                if mine:
                    self._closer = me
            if mine:
                if self._process is not None:
                    self._shut_down(self._process, deadline)
                self._kill_and_close(deadline)
            elif me != self._closer and threading.current_thread() not in self._threads():
                self._closed.wait(deadline.remaining())
        except BaseException:
            if mine:  # leave no process behind
                self._kill_and_close(Deadline(0))
            raise

    def _threads(self) -> tuple[threading.Thread | None, ...]:
        return self._reader, self._drain, self._stdin_writer.writer

    def _kill_and_close(self, deadline: Deadline) -> None:
        """Kill the process and free all resources. Idempotent, and repeated after Ctrl-C."""
        process = self._process
        if process is not None:
            if self in self._users:
                self._kill_process(process, deadline)
            self._release_process(self)
        if self._stderr is not None and self._drain is None:
            self._stderr.close()
        _open_transports.discard(self)
        self._closed.set()

    def _kill_process(self, process: Process, deadline: Deadline) -> None:
        self._stdin_writer.close()
        process.kill()
        process.end_output()
        process.end_errors()
        for thread in self._threads():
            if thread is not None and thread is not threading.current_thread():
                # The threads end at once, unless the user's function for stderr does not return.
                left = deadline.remaining()
                thread.join(_JOIN_WAIT if left is None else min(_JOIN_WAIT, max(_EXIT_WAIT, left)))
        # Each thread closes its own pipe, unless the thread was not started.
        if self._reader is None:
            process.close_output()
        if self._drain is None:
            process.close_errors()

    def _shut_down(self, process: Process, deadline: Deadline) -> None:
        first, second = self._config.grace
        process.hold_tree()  # before the server exits: its children get another parent then
        self._stdin_writer.close()
        exited = process.wait(_grace_within(deadline, first)) is not None
        # The reader thread continues, because a server that flushes its output must not block. If
        # stdout stays open after the exit of the server, child processes are left.
        reading = self._reader not in (None, threading.current_thread())
        # `tree_ended`: child processes may have closed their stdout, or may be about to exit.
        quiet = exited and (not reading or self._output_ended.wait(_EXIT_WAIT))
        if quiet and process.tree_ended(_EXIT_WAIT):
            return
        process.terminate()
        pause = Deadline(_grace_within(deadline, second))
        if process.wait(pause.remaining()) is not None:
            if reading:
                self._output_ended.wait(pause.remaining())
            process.tree_ended(pause.remaining() or 0.0)

    def _release_process(self, user: object) -> None:
        with self._lock:
            self._users.discard(user)
            last = not self._users
        if last and self._process is not None:
            self._process.release()

    def _discard_in_child(self) -> None:
        """Close a forked child's copies of the pipes: the server belongs to the parent."""
        if self._process is not None:
            self._process.discard_in_child()


def _grace_within(deadline: Deadline, grace: float) -> float:
    """Return `grace`, but at most half of the remaining time: the rest is for later steps."""
    left = deadline.remaining()
    return grace if left is None else min(grace, left / 2)


def _without_bom(line: bytes) -> bytes:
    # `removeprefix` would turn a `TruncatedLine` into plain `bytes`.
    return type(line)(line[len(_BOM) :]) if line.startswith(_BOM) else line


def _is_json(data: bytes, max_values: int) -> bool:
    check_values(data, max_values)
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _after_fork_in_child() -> None:
    for transport in list(_open_transports):
        transport._discard_in_child()
    _open_transports.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def start(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Process:
    """Start a server on this system, without a shell.

    Raises:
        OSError: The server could not be started.
        ValueError: An argument or environment variable cannot be passed to a process.
    """
    with delaying_forks():
        if sys.platform == "win32":
            from syncmcp.transports._windows import start as start_here
        else:
            from syncmcp.transports._posix import start as start_here
    return start_here(argv, env, cwd)
