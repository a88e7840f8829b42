"""What a forked child may do with what it inherits: nothing that its parent notices."""

from __future__ import annotations

import gc
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken
from syncmcp._concurrency.timing import Deadline, reaper
from syncmcp.testing import Server, serve_http
from syncmcp.transports.base import Outgoing
from syncmcp.types import CallToolResult
from tests.support.stage import PATIENCE, WIRES, Stage, Wire

OTHER_PROCESSES = pytest.mark.parametrize(
    "wire", [wire for wire in WIRES if wire.transport != "memory"], ids=str
)


def in_child(function: Callable[[], object]) -> int:
    """Fork; run the function in the child; return its exit code, 0 if it returned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking a program with threads
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(PATIENCE))  # not to hang
        try:
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def reap() -> None:
    """Have everything closed that was garbage-collected."""
    done = threading.Event()
    gc.collect()
    reaper.start()
    reaper.put(done.set)
    assert done.wait(PATIENCE)


@OTHER_PROCESSES
@pytest.mark.parametrize("way", ["token", "future", "stream", "dropped", "notify", "roots"])
@pytest.mark.pitfall("32")
def test_nothing_in_a_forked_child_reaches_the_calls_of_its_parent(wire: Wire, way: str) -> None:
    stage, token = Stage(), CancelToken()
    with wire.connect(stage.server, roots=["/tmp"], retry=None) as client:
        assert client.call_tool("echo", {"text": "x"}).text == "x"  # leaves a connection idle
        held = client.call_tool.future("hold", {"key": "a"}, cancel=token)
        streams = [client.call_tool.stream("hold", {"key": "b"})]
        stage.inside("a", "b")

        def child() -> None:
            if way == "token":
                token.cancel()
            elif way == "future":
                held.cancel()
            elif way == "stream":
                streams[0].close()
            elif way == "dropped":  # what the documentation advises: a client of its own
                streams.clear()
                with syncmcp.connect(Server("here")):
                    reap()
            elif way == "notify":
                with pytest.raises(syncmcp.ForkedError):
                    client.notify("notifications/x")
            else:
                client.roots.add("/")
            connection = client._core.connection
            assert connection is not None
            with pytest.raises(syncmcp.ForkedError):  # as the transport is asked by pool threads
                connection.transport.post(Outgoing(b"{}", None, None, (), {}, Deadline(None)))
            client.close()

        assert in_child(child) == 0
        assert client.call_tool("echo", {"text": "y"}).text == "y"
        stage.gate.set()
        assert held.result(PATIENCE).text == "a"
        (result,) = streams[0]
        assert isinstance(result, CallToolResult)
        assert result.text == "b"
        assert stage.stats.cancels == []
        assert stage.stats.notifications.keys() <= {"notifications/initialized"}


@OTHER_PROCESSES
@pytest.mark.pitfall("32")
def test_the_open_calls_of_a_parent_fail_in_a_forked_child(wire: Wire) -> None:
    stage = Stage()
    called: list[object] = []
    with wire.connect(stage.server, max_in_flight=2) as client:
        held = client.call_tool.future("hold", {"key": "a"}, timeout=None)
        held.add_done_callback(called.append)
        stream = client.call_tool.stream("hold", {"key": "b"}, timeout=None)
        stage.inside("a", "b")
        queued = client.call_tool.future("echo", {"text": "x"})

        def child() -> None:
            assert wait([held, queued]).not_done == set()
            for waiting in (held.result, queued.exception, lambda: next(stream)):
                try:
                    error = waiting()
                except syncmcp.ForkedError as raised:
                    error = raised
                assert isinstance(error, syncmcp.ForkedError)
                assert error.delivery == "unknown"
            assert [*held.progress()] == []
            told = threading.Event()
            held.add_done_callback(lambda _: told.set())
            assert told.wait(PATIENCE)
            assert called == []  # those of the parent run there
            for new in (client.call_tool, client.call_tool.future):
                with pytest.raises(syncmcp.ForkedError):
                    new("echo", {"text": "y"})

        assert in_child(child) == 0
        stage.gate.set()
        assert held.result(PATIENCE).text == "a"
        assert queued.result(PATIENCE).text == "x"
        assert next(stream).text == "b"  # type: ignore[union-attr]


@pytest.mark.pitfall("32")
def test_locks_that_threads_of_the_parent_hold_do_not_stop_a_forked_child() -> None:
    stage, token = Stage(), CancelToken()
    taken, over = threading.Event(), threading.Event()
    with serve_http(stage.server) as http, syncmcp.connect(http.url) as client:
        held = client.call_tool.future("hold", {"key": "a"}, cancel=token)
        stream = client.call_tool.stream("hold", {"key": "b"})
        stage.inside("a", "b")
        done = client.call_tool.future("echo", {"text": "x"})
        assert done.result(PATIENCE).text == "x"
        assert client._core.connection is not None
        locks: list[Any] = [
            client._core.connection._lock,
            client._core.connection.notifier._answering._lock,
            client._core.pools.workers._lock,
            held._state_lock,
            vars(held)["_condition"],
            vars(done)["_condition"],
            stream._items.lock,
        ]

        def take() -> None:
            for lock in locks:
                lock.acquire()
            taken.set()
            over.wait(3 * PATIENCE)
            for lock in locks:
                lock.release()

        def child() -> None:
            token.cancel()
            told = threading.Event()
            held.add_done_callback(lambda _: told.set())
            assert told.wait(PATIENCE)
            waits: list[Callable[[], object]] = [held.result, lambda: next(stream)]
            for waiting in waits:
                with pytest.raises(syncmcp.ForkedError):
                    waiting()
            assert done.exception() is None
            client.dump()

        thread = threading.Thread(target=take)
        thread.start()
        assert taken.wait(PATIENCE)
        assert in_child(child) == 0
        over.set()
        thread.join()
        stage.gate.set()
        assert held.result(PATIENCE).text == "a"


@pytest.mark.pitfall("32")
def test_a_listener_of_the_parent_does_not_run_in_a_forked_child() -> None:
    with syncmcp.connect(Stage().server) as client:
        with client.listen(tools=True) as events:
            listener = events.run_in_thread(lambda _: None)
            others = client.listen(tools=True)

            def child() -> None:
                with pytest.raises(syncmcp.ForkedError):
                    next(others)
                assert not listener.running
                assert listener.stop()

            assert in_child(child) == 0
            assert listener.running
        assert listener.stop(PATIENCE)
