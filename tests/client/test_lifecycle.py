"""The life of a client in one program: opening, calls and closing by any thread, and Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from itertools import islice
from types import FrameType
from unittest.mock import Mock

import pytest

import syncmcp
from syncmcp import (
    CancelToken,
    Client,
    ClosedError,
    ConnectionLost,
    OutcomeUnknown,
    RequestCancelled,
    Stdio,
)
from syncmcp._concurrency import forks
from syncmcp._concurrency.timing import Deadline, Latch, Timer
from syncmcp._connection.options import ResolvedOptions
from syncmcp.testing import Server, ToolContext, serve_http
from syncmcp.testing.leaks import Footprint
from tests.support import programs
from tests.support.programs import CEILING
from tests.support.scripts import OLD
from tests.support.stage import PATIENCE, WIRES, Wire, in_threads, interrupted, is_library

TARGETS = pytest.mark.parametrize("wire", ["memory", "stdio"])


def in_process() -> Server:
    """Return an in-process server with the tools `pid` and `wait`."""
    server = Server("here")
    server.add_tool(os.getpid, name="pid")

    @server.tool()
    def wait(context: ToolContext) -> str:
        context.cancelled.wait()
        return "cancelled"

    return server


def target(wire: str) -> Server | Stdio:
    return in_process() if wire == "memory" else programs.server()


def pid(client: Client) -> str:
    """Return the process id of the server."""
    return client.call_tool("pid").text


# -- threads and order ---------------------------------------------------------------------------
@TARGETS
@pytest.mark.requirement("STD-09")
@pytest.mark.pitfall("1")
def test_many_clients_are_used_and_closed_in_any_threads_and_order(wire: str) -> None:
    clients = in_threads(*[lambda: syncmcp.connect(target(wire))] * 4)
    random.Random(4).shuffle(clients)
    first = [in_threads(partial(pid, client)) for client in clients]
    while clients:
        gone = clients.pop(0)
        assert in_threads(gone.close) == [None]
        with pytest.raises(ClosedError):
            gone.call_tool("pid")
        del first[0]
        assert [[pid(client)] for client in clients] == first


@pytest.mark.pitfall("3")
def test_a_client_opened_in_one_loop_works_in_another() -> None:
    async def opened() -> Client:
        return syncmcp.connect(in_process())

    async def used(client: Client) -> list[str]:
        with client:
            here = client.call_tool("pid").text  # a blocking call in a coroutine, as in a notebook
            there = await asyncio.to_thread(client.call_tool, "pid")
            later = await asyncio.wrap_future(client.call_tool.future("pid"))
            return [here, there.text, later.text]

    assert asyncio.run(used(asyncio.run(opened()))) == [str(os.getpid())] * 3


# -- opening and closing -------------------------------------------------------------------------
def test_closing_is_idempotent_from_many_threads_at_once() -> None:
    server = in_process()
    client = syncmcp.connect(server)
    assert in_threads(*[client.close] * 8) == [None] * 8
    client.close()
    assert server.stats.wait_for(lambda stats: stats.sessions == 0)
    Client(server).close()  # a client that was never open


@pytest.mark.pitfall("32")
def test_the_end_of_a_forked_child_ends_no_session_of_its_parent() -> None:
    code = """
import sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking a program with threads
client = syncmcp.connect(URL, mode="2025-11-25", retry=None)
child = os.fork()
if child == 0:
    sys.exit(0)  # runs what was registered with `atexit`
say(os.waitpid(child, 0)[1])
say(client.call_tool("pid").text != "")
client.close()
"""
    server = in_process()
    with serve_http(server) as http:
        with programs.running(f"URL = {http.url!r}\n{code}") as program:
            assert [program.line() for _ in range(2)] == ["0", "True"]
            assert program.end() == (0, "", "")
        assert server.stats.opened == 1


def test_a_function_for_headers_does_not_hold_up_the_end_of_a_program() -> None:
    code = """
from concurrent.futures import Future

ended = threading.Event()

def headers():
    if ended.is_set():
        say("asked")
        Future().result()  # for ever
    return {}

for _ in range(2):
    client = syncmcp.Client(syncmcp.Http(URL, headers=headers), mode="2025-11-25").open()
atexit.register(ended.set)
"""
    http = serve_http(in_process())
    with http, programs.running(f"URL = {http.url!r}\n{code}") as program:
        assert program.line() == "asked"
        assert program.end()[0] == 0


# Hooks of `fork` hold these locks themselves.
_HELD_BY_FORKS = ("_forking", "build_lock")


@pytest.mark.pitfall("32")
def test_no_lock_of_the_library_stays_taken_in_a_forked_child() -> None:
    code = f"""
import sys, threading, warnings
import syncmcp.types
syncmcp.types.load()
warnings.simplefilter("ignore", DeprecationWarning)  # forking a program with threads
kinds = type(threading.Lock()), type(threading.RLock())

def locks():
    return {{
        (module.__name__, name): value
        for module in list(sys.modules.values())
        if module.__name__.startswith("syncmcp")
        for name, value in vars(module).items()
        if isinstance(value, kinds) and name not in {_HELD_BY_FORKS!r}
    }}

def take():
    for lock in locks().values():
        lock.acquire()
    taken.set()
    over.wait()

taken, over = threading.Event(), threading.Event()
threading.Thread(target=take, daemon=True).start()
taken.wait()
child = os.fork()
if child == 0:
    say(len(locks()) > 2, [name for name, lock in locks().items() if not lock.acquire(timeout=0)])
    os._exit(0)
say(os.waitpid(child, 0)[1])
"""
    with programs.running(code) as program:
        assert [program.line() for _ in range(2)] == ["True []", "0"]


@pytest.mark.parametrize("place", ["progress", "log", "handler", "done"])
@pytest.mark.pitfall("1")
def test_a_client_may_be_closed_from_its_own_callbacks(place: str) -> None:
    server = Server("asks")
    closed = threading.Event()

    @server.tool()
    def work(context: ToolContext) -> str:
        context.report_progress(1)
        context.log("error", "x")
        context.request("acme/question")
        return "done"

    def close_at(where: str) -> Callable[..., None]:
        def close(*_: object) -> None:
            if where == place:
                client.close()
                closed.set()

        return close

    client = Client(server, mode="legacy", on_log=close_at("log"))
    client.on_request("acme/question", close_at("handler"))
    client.open()
    call = client.call_tool.future("work", on_progress=close_at("progress"))
    call.add_done_callback(close_at("done"))
    assert closed.wait(CEILING)
    outcome = call.exception(CEILING)
    # Closed by a handler, the call has no result yet. Otherwise either may come first.
    kinds = [ClosedError] if place == "handler" else [ClosedError, type(None)]
    assert type(outcome) in kinds


@TARGETS
@pytest.mark.pitfall("7")
def test_an_abandoned_client_is_collected_ends_its_server_and_warns(wire: str) -> None:
    before = Footprint()
    server = target(wire)
    client = syncmcp.connect(server)
    alive = weakref.ref(client)
    client.call_tool("pid")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del client
        gc.collect()
    assert alive() is None
    (warning,) = caught
    assert (warning.category, "never closed" in str(warning.message)) == (ResourceWarning, True)
    assert before.left_behind() == []


# It answers `initialize`, and dies at the next request.
ANSWERS_AND_DIES = """
import json, os, signal
start = json.loads(input())
result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
print(json.dumps({"jsonrpc": "2.0", "id": start["id"], "result": result}), flush=True)
input(), input()
os.kill(os.getpid(), signal.SIGKILL)
"""
MORTAL = Stdio(sys.executable, "-I", "-S", "-c", ANSWERS_AND_DIES)


# -- servers that die ----------------------------------------------------------------------------
@pytest.mark.requirement("STD-07")
@pytest.mark.pitfall("5", "7")
def test_a_server_that_died_is_started_again_by_the_next_call() -> None:
    with syncmcp.connect(programs.server()) as client:
        first = client.call_tool("pid").text
        with pytest.raises(OutcomeUnknown) as caught:
            client.call_tool("die", {"code": 3})
        assert caught.value.exit_code == 3
        assert caught.value.stderr_tail.endswith("the disk is full")
        assert "the disk is full" in str(caught.value)
        assert client.call_tool("pid").text != first
        assert client.call_tool.future("pid").result(CEILING).text != first


DEAF = """
import json, os, signal, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
    if asked["method"] == "ping":
        os.close(0)
        answer = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
    if not answer:
        signal.pause()
"""


def test_a_server_that_closes_its_stdin_and_lives_is_replaced() -> None:
    with syncmcp.connect(Stdio(sys.executable, "-c", DEAF, grace=(0, 0)), mode=OLD) as client:
        client.ping()
        deaf = client._core.connection
        assert deaf is not None
        with pytest.raises(ConnectionLost):
            deaf.request("ping", None, ResolvedOptions(None, None), Deadline(PATIENCE))
        assert deaf.wait_closed(PATIENCE)
        client.ping()
        assert client._core.connection is not deaf


@pytest.mark.pitfall("5")
def test_restart_never_keeps_a_client_broken_until_it_is_opened_anew() -> None:
    server = Stdio(sys.executable, str(programs.SERVER), restart="never")
    client = syncmcp.connect(server)
    with pytest.raises(OutcomeUnknown):
        client.call_tool("die")
    for _ in range(2):
        with pytest.raises(ConnectionLost) as caught:
            client.call_tool("pid")
        assert caught.value.delivery == "not_sent"
        assert caught.value.exit_code == 3
    client.close()
    with client:
        assert client.call_tool("pid").text


@pytest.mark.requirement("STD-07")
@pytest.mark.pitfall("5")
def test_a_killed_server_fails_every_call_in_flight_with_an_error_of_its_own() -> None:
    running = threading.Semaphore(0)
    blocking, futures = 10, 100
    with syncmcp.connect(programs.server(), on_progress=lambda *_: running.release()) as client:
        victim = int(client.call_tool("pid").text)
        calls = [client.call_tool.future("wait") for _ in range(futures)]

        def kill() -> None:
            for _ in range(blocking + futures):
                assert running.acquire(timeout=CEILING)
            os.kill(victim, signal.SIGKILL)

        *errors, _ = in_threads(*[lambda: client.call_tool("wait")] * blocking, kill)
        # Each with its own traceback: that of a shared error would grow with each raise.
        assert len({id(error.__traceback__) for error in errors}) == blocking
        errors += [call.exception(CEILING) for call in calls]
        assert {type(error) for error in errors} == {OutcomeUnknown}
        assert len({id(error) for error in errors}) == blocking + futures
        for error in errors:
            assert (error.method, error.delivery) == ("tools/call", "unknown")
            assert error.exit_code == -signal.SIGKILL
            assert "ready to serve" in error.stderr_tail
        assert int(client.call_tool("pid").text) != victim


@pytest.mark.alone
@pytest.mark.pitfall("2", "7")
def test_cycles_of_connect_and_kill_leave_and_burn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Restarts have no pause.
    monkeypatch.setattr("syncmcp._concurrency.timing._LONGEST_BACKOFF", 0.0)
    before = Footprint()
    for _ in range(25):
        with syncmcp.connect(MORTAL, mode="legacy") as client, pytest.raises(ConnectionLost):
            client.ping()
    assert before.left_behind() == []
    with syncmcp.connect(programs.server()) as client:
        waiting = client.call_tool.future("wait")
        # The answer shows that the server has the earlier request.
        os.kill(int(client.call_tool("pid").text), signal.SIGKILL)
        with pytest.raises(ConnectionLost):
            waiting.result(PATIENCE)
        start = time.process_time()
        threading.Event().wait(0.5)  # the time during which CPU use is measured
        assert time.process_time() - start < 0.25
    assert before.left_behind() == []


def test_a_server_goes_by_the_name_that_the_program_gives_it() -> None:
    with syncmcp.connect(in_process(), name="mine", trusted=True) as client:
        assert repr(client) == "<Client mine open>"
        assert (client.server.name, client.server.trusted) == ("mine", True)
        with pytest.raises(syncmcp.ServerError) as caught:
            client.call_tool("nothing of the kind")
        assert caught.value.server == "mine"
    with syncmcp.connect(in_process()) as client:
        assert (client.server.name, client.server.trusted) == ("here", False)


# -- interrupts at any moment --------------------------------------------------------------------
@pytest.mark.pitfall("H11")
def test_a_signal_handler_or_a_finalizer_may_close_the_client_at_any_moment_of_a_call() -> None:
    client, number = Client(in_process()), 1
    while interrupted(partial(client.open().call_tool, "pid"), number, client.close):
        with pytest.raises(ClosedError):
            client.call_tool("pid")
        number += 3
    assert number > 50
    client.close()


interrupt = Mock(side_effect=KeyboardInterrupt)


def test_ctrl_c_while_the_client_opens_leaves_it_usable() -> None:
    client, number = Client(in_process()), 1
    while interrupted(client.open, number, interrupt, "call"):
        with client:
            assert client.call_tool("pid", timeout=CEILING).text
        number += 2
    assert number > 20
    client.close()


@pytest.mark.parametrize("drain", [False, True])
def test_a_close_that_ctrl_c_interrupts_at_any_moment_is_finished_by_the_next(drain: bool) -> None:
    before, number, more = Footprint(), 1, True
    while more:
        client = syncmcp.connect(target("memory"))
        client.call_tool.future("pid")
        more = interrupted(partial(client.close, drain=drain), number, interrupt, "call")
        client.close()
        assert before.left_behind() == [], f"after the interrupt at call {number}"
        number += 1
    assert number > 10


@pytest.mark.parametrize("drain", [False, True])
def test_a_close_that_ctrl_c_interrupts_leaves_no_server(drain: bool) -> None:
    """Without another call of `close`: a program leaves its `with` block only once."""

    before = Footprint()
    for number in (5, 25, 45, 65):
        client = syncmcp.connect(MORTAL, mode="legacy")
        interrupted(partial(client.close, drain=drain), number, interrupt, "call")
        assert before.left_behind() == [], f"after the interrupt at call {number}"


# Destructors of generators and files run these functions, too. Python ignores their exceptions.
_LOST = frozenset({"<genexpr>", "closed", "isclosed"})


def struck(
    job: Callable[[], object], number: int, *, everywhere: bool = False, once: bool = False
) -> bool:
    """Raise `KeyboardInterrupt` in `job` at its `number`th moment, from 1; return whether it came.

    A moment is the beginning of a function, or the return of a C function: CPython checks for
    signals there. Only the library's code counts, or all code with `everywhere`. With `once`,
    moments with the same five innermost frames count once.
    """
    moments = 0
    known: set[tuple[object, ...]] = set()
    lost: list[type[BaseException] | None] = []  # types of exceptions from destructors

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal moments
        ours = is_library(frame.f_code.co_filename)
        if not (ours or everywhere) or frame.f_code.co_name in _LOST:
            return
        if event in {"call", "c_return"}:
            if once:
                frames = islice(traceback.walk_stack(frame), 5)
                calls = tuple((one.f_code, one.f_lasti) for one, _ in frames)
                if calls in known:
                    return
                known.add(calls)
            moments += 1
            if moments == number:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def run() -> None:
        sys.setprofile(profile)
        try:
            job()
        finally:
            sys.setprofile(None)

    gc.disable()  # a collection would run destructors of earlier objects, which hide the interrupt
    hook, sys.unraisablehook = sys.unraisablehook, lambda raised: lost.append(raised.exc_type)
    try:
        [outcome] = in_threads(run, patience=PATIENCE)
    finally:
        sys.unraisablehook = hook
        gc.enable()
    if moments >= number:
        assert KeyboardInterrupt in (type(outcome), *lost)
    return moments >= number


class Waiting:
    """A server with a tool that cancels its own call, and waits for the notification."""

    def __init__(self) -> None:
        self.server = Server("waiting")
        self.stats = self.server.stats
        self.token = CancelToken()
        self.server.tool()(self.wait)
        self.server.add_tool(lambda text: text, name="echo")

    def wait(self, context: ToolContext) -> None:
        self.token.cancel()
        context.cancelled.wait()

    def call(self, client: Client) -> None:
        """Make a call that is cancelled when it reaches the tool."""
        self.token = CancelToken()
        with pytest.raises(RequestCancelled):
            client.call_tool("wait", cancel=self.token, timeout=None)

    def start(self, client: Client) -> None:
        """Start such a call; stop the interrupts once its future exists."""
        self.token = CancelToken()
        future = client.call_tool.future("wait", cancel=self.token, timeout=None)
        sys.setprofile(None)
        assert isinstance(future.exception(PATIENCE), RequestCancelled)


# An interrupt while a socket changes its owner leaves the closing to its destructor.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    ("way", "wire"),
    [
        *((Waiting.call, wire) for wire in WIRES),
        *((Waiting.start, wire) for wire in WIRES if wire.transport == "http"),
        (Waiting.start, WIRES[0]),
    ],
)
@pytest.mark.pitfall("9")
def test_the_server_hears_and_the_next_call_works(
    way: Callable[[Waiting, Client], None], wire: Wire
) -> None:
    waiting = Waiting()
    with wire.connect(waiting.server) as client:
        client.list_tools()
        number = 1
        while struck(partial(way, waiting, client), number):
            assert client.call_tool("echo", {"text": "a"}, timeout=PATIENCE).text == "a"
            number += 1
        assert number > 50
        assert waiting.stats.wait_for(lambda stats: not stats.running, PATIENCE)
        assert client.dump().facts["calls"] == []
    assert not waiting.stats.violations


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of partial files
@pytest.mark.slow
@pytest.mark.pitfall("9")
def test_a_client_over_http_lives_on_wherever_the_code_below_it_is_struck() -> None:
    server = Server("below")
    server.add_tool(lambda text: text, name="echo")
    with serve_http(server) as http, Client(http.url) as client:
        call = partial(client.call_tool, "echo", {"text": "a"}, timeout=PATIENCE)
        call()
        number = 1
        while struck(call, number, everywhere=True):
            assert call().text == "a"
            number += 1
        assert number > 200


# It is started about a thousand times, so it must start fast.
_DIES_OF_THE_PROBE = """
while read -r line; do
    case "$line" in *server/discover*) exit 3;; esac
    echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18",'\\
        '"capabilities":{},"serverInfo":{"name":"old","version":"1"}}}'
done
"""


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize(
    ("everywhere", "once", "step"),
    [
        pytest.param(False, True, 2, id="of the library"),
        pytest.param(True, True, 5, id="of all code", marks=pytest.mark.slow),
        pytest.param(True, False, 1, id="each moment", marks=pytest.mark.stress),
    ],
)
@pytest.mark.timeout(600)  # it starts hundreds of processes, one after another
@pytest.mark.pitfall("9")
def test_nothing_is_left_of_opening_two_processes(everywhere: bool, once: bool, step: int) -> None:
    def client(number: int) -> Client:
        # Each `NUMBER` makes another command, of which the library remembers nothing.
        server = Stdio("sh", "-c", _DIES_OF_THE_PROBE, env={"NUMBER": str(number)})
        return Client(server, open_timeout=PATIENCE)

    with client(0):
        pass
    before, number = Footprint(), 1
    while struck((opened := client(number)).open, number, everywhere=everywhere, once=once):
        assert before.left_behind() == [], f"after the interrupt at moment {number}"
        number += step
    opened.close()
    assert number > 500
    # Before 3.12, an exception of a profiler at a generator's call skips the generator's `finally`.
    if sys.version_info >= (3, 12):
        assert not forks._under_way  # a fork would wait for it


@pytest.mark.parametrize("act", [Latch.set, partial(Latch.wait, seconds=0)], ids=["set", "wait"])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_latch_works_on(act: Callable[[Latch], object], earlier: bool) -> None:
    number, more = 1, True
    while more:
        latch = Latch()
        if earlier:
            latch.set()
        more = struck(partial(act, latch), number, everywhere=True)
        latch.set()
        assert in_threads(*[partial(latch.wait, PATIENCE)] * 3) == [True] * 3
        number += 1
    assert number > 3


def test_a_timer_runs_once() -> None:
    timer_name, number, more = "timer of a test", 1, True
    running: set[threading.Thread | None] = set()
    before = {*threading.enumerate()}
    while more:
        timer, done = Timer(timer_name), threading.Event()
        more = struck(timer.start, number, everywhere=True)
        timer.after(0.0, done.set)
        assert done.wait(PATIENCE)
        running.add(timer._thread)
        assert len(running) == number
        number += 1
    assert number > 5
    named = {one for one in threading.enumerate() if one.name == timer_name} - before
    # An interrupted start may leave a thread that ends when it finds another one. It may also leave
    # a thread that never runs: `threading.enumerate` lists that one permanently.
    for thread in named - running:
        if thread._started.is_set():  # type: ignore[attr-defined]
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert all(thread is not None and thread.is_alive() for thread in running)
