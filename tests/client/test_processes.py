"""Pickled and forked clients: their state in the new process, and effects on the original."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken, Client, ClosedError, Http, Interceptor, Message, Stdio, UsageError
from syncmcp._client import settings
from syncmcp._concurrency.timing import Deadline, reaper
from syncmcp.auth import MemoryStore, OAuth
from syncmcp.testing import Server, serve_http
from syncmcp.transports.base import Outgoing
from syncmcp.types import CallToolResult
from tests.support import programs
from tests.support.stage import PATIENCE, STATEFUL, WIRES, Stage, Wire, elsewhere, in_threads

HERE = "http://127.0.0.1:9/"


@pytest.fixture(autouse=True)
def close_shared() -> Iterator[None]:
    yield
    for client in list(settings._shared.values()):
        client.close()


def heard(*_news: object) -> None:
    """A handler that can be pickled."""


def again(client: Client) -> Client:
    copy: Client = pickle.loads(pickle.dumps(client))
    return copy


def test_a_pickle_holds_what_the_client_was_given_in_the_clear() -> None:
    target = Http(HERE, headers={"X-Key": "canary-of-a-header"})
    assert b"canary-of-a-header" in pickle.dumps(Client(target))
    assert b"canary-of-env" in pickle.dumps(Client(Stdio("x", env={"KEY": "canary-of-env"})))


class Locked(Interceptor):
    """An interceptor that cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def ended(self, answer: Message) -> None: ...


UNFIT: list[tuple[str, Callable[[], Client]]] = [
    ("on_log", lambda: Client(HERE, on_log=lambda log: None)),
    ("interceptors", lambda: Client(HERE, interceptors=[Locked()])),
    (r"headers of Http\(\.\.\.\)", lambda: Client(Http(HERE, headers=lambda: {"X-Key": "1"}))),
    (r"stderr of Stdio\(\.\.\.\)", lambda: Client(Stdio("x", stderr=lambda line: None))),
    (r"auth of Http\(\.\.\.\)", lambda: Client(Http(HERE, auth=OAuth(store=MemoryStore())))),
    ("the target", lambda: Client(Server("here"))),
]


@pytest.mark.parametrize(("named", "make"), UNFIT)
def test_what_cannot_be_pickled_is_named(named: str, make: Callable[[], Client]) -> None:
    with pytest.raises(UsageError, match=f"{named} cannot be pickled") as caught:
        pickle.dumps(make())
    assert caught.value.__cause__ is not None


def test_handlers_set_one_by_one_travel_too() -> None:
    client = Client(HERE)
    client.on_request("acme/question", heard)
    client.on_notification("acme/news", heard)
    handlers = again(client)._handlers
    assert handlers.requests == {"acme/question": heard}
    assert handlers.notifications == {"acme/news": heard}
    client.on_notification("acme/other", lambda params: None)
    with pytest.raises(UsageError, match="the handler of acme/other"):
        pickle.dumps(client)


@pytest.mark.pitfall("32")
def test_a_process_opens_one_client_for_one_configuration() -> None:
    stage = Stage()
    with serve_http(stage.server) as http:
        one, other = Client(http.url, timeout=9), Client(http.url, timeout=8)
        data = pickle.dumps(one)
        barrier = threading.Barrier(8)

        def call() -> Client:
            barrier.wait(PATIENCE)
            client: Client = pickle.loads(data)
            assert client.call_tool("echo", {"text": "a"}).text == "a"
            return client

        clients = in_threads(*[call] * 8)
        assert all(client is clients[0] for client in clients)
        assert clients[0] is not one
        assert clients[0]._configuration()[1] == one._configuration()[1]
        assert again(other) is not clients[0]
        assert stage.stats.requests["server/discover"] == 1


def test_who_leaves_a_with_leaves_a_shared_client_open_for_the_others() -> None:
    stage = Stage()
    with serve_http(stage.server) as http:
        data = pickle.dumps(Client(http.url))
        with pickle.loads(data) as client:
            client.call_tool("echo", {"text": "a"})
        assert client.call_tool("echo", {"text": "b"}).text == "b"
        client.close()
        with pytest.raises(ClosedError):
            client.call_tool("echo", {"text": "c"})
        # Unpickling again makes a new client.
        assert pickle.loads(data) is not client
        assert pickle.loads(data).call_tool("echo", {"text": "d"}).text == "d"


WORKER = """
import multiprocessing, pickle, sys

def call(data):
    pickle.loads(data).list_tools()

if __name__ == "__main__":
    import syncmcp

    data = pickle.dumps(syncmcp.Client(sys.argv[1], mode=sys.argv[2]))
    process = multiprocessing.get_context("fork").Process(target=call, args=(data,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


def test_it_is_closed_at_the_end_of_a_worker_process(tmp_path: Path) -> None:
    stage = Stage()
    script = tmp_path / "program.py"
    script.write_text(WORKER, encoding="utf-8")
    root = str(Path(__file__).parents[2])
    with serve_http(stage.server) as http:
        subprocess.run(
            [sys.executable, "-W", "error", str(script), http.url, STATEFUL],
            env={**os.environ, "PYTHONPATH": root},
            check=True,
            timeout=9 * programs.CEILING,  # the program and its worker have to start
        )
        assert stage.stats.wait_for(lambda stats: stats.sessions == 0, PATIENCE)
        assert stage.stats.opened == 1


def test_errors_of_what_came_out_of_a_pickle_name_the_server() -> None:
    with pytest.raises(syncmcp.ConnectFailed) as caught:
        again(Client(HERE, name="far away", retry=None)).call_tool("echo")
    assert caught.value.server == "far away"


OTHER_PROCESSES = [wire for wire in WIRES if wire.transport != "memory"]
WAYS = ["token", "future", "stream", "dropped", "notify", "roots"]


def in_child(function: Callable[[], object]) -> int:
    """Run a function in a forked child; return the exit code, which is 0 without an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from forking with threads
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(PATIENCE))  # a child that hangs is killed
        try:
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def reap() -> None:
    """Wait until all clients that were garbage-collected are closed."""
    done = threading.Event()
    gc.collect()
    reaper.start()
    reaper.put(done.set)
    assert done.wait(PATIENCE)


@pytest.mark.parametrize(
    ("way", "wire"), [*zip(WAYS * 2, cycle(OTHER_PROCESSES), strict=False)], ids=str
)
@pytest.mark.pitfall("32")
def test_nothing_in_a_forked_child_reaches_the_calls_of_its_parent(wire: Wire, way: str) -> None:
    stage, token = Stage(), CancelToken()
    with wire.connect(stage.server, roots=["/tmp"], retry=None) as client:
        assert client.call_tool("echo", {"text": "x"}).text == "x"  # leaves an idle connection
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
            elif way == "dropped":  # as documented: the child makes its own client
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
            with pytest.raises(syncmcp.ForkedError):  # pool threads call it directly, too
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


@pytest.mark.parametrize("wire", OTHER_PROCESSES, ids=str)
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
            assert called == []  # callbacks of the parent run in the parent only
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
            with ExitStack() as stack:
                for lock in locks:
                    stack.enter_context(lock)
                taken.set()
                over.wait(3 * PATIENCE)

        def child() -> None:
            token.cancel()
            told = threading.Event()
            held.add_done_callback(lambda _: told.set())
            assert told.wait(PATIENCE)
            for waiting in (held.result, partial(next, stream)):
                with pytest.raises(syncmcp.ForkedError):
                    waiting()
            assert done.exception() is None
            client.dump()

        taking = elsewhere(take)
        assert taken.wait(PATIENCE)
        assert in_child(child) == 0
        over.set()
        taking.result(PATIENCE)
        stage.gate.set()
        assert held.result(PATIENCE).text == "a"


@pytest.mark.pitfall("32")
def test_a_forked_child_has_one_client_of_its_own_for_one_configuration() -> None:
    stage = Stage()
    with serve_http(stage.server) as http:
        data = pickle.dumps(Client(http.url))
        client = pickle.loads(data)
        client.list_tools()

        def child() -> None:
            ours = pickle.loads(data)
            assert ours is pickle.loads(data)
            assert ours is not client
            assert ours.call_tool("echo", {"text": "a"}).text == "a"
            ours.close()

        assert in_child(child) == 0
        assert pickle.loads(data) is client
        assert client.call_tool("echo", {"text": "b"}).text == "b"
        assert stage.stats.requests["server/discover"] == 2


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
