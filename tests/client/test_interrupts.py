"""Ctrl-C at every moment of a call at which an interpreter looks for signals."""

from __future__ import annotations

import gc
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest

from syncmcp import CancelToken, Client, RequestCancelled, Stdio
from syncmcp._concurrency import forks
from syncmcp._concurrency.timing import Latch, Timer
from syncmcp.testing import Server, ToolContext, serve_http
from syncmcp.testing.leaks import Footprint
from tests.support.stage import PATIENCE, Wire, every_wire, in_threads, is_library

# Functions that run in destructors, too: of generators that are left early, and of files. What is
# raised there is lost.
_LOST = frozenset({"<genexpr>", "closed", "isclosed"})


def struck(job: Callable[[], object], number: int, *, everywhere: bool = False) -> bool:
    """Interrupt `job` at the `number`th moment at which it runs the library's code.

    An interpreter looks for signals where a function begins and behind a call of a function in C.

    Args:
        job: What is interrupted.
        number: At which moment, from 1.
        everywhere: Count the moments of all code that runs, the standard library's, too.

    Returns:
        Whether it came so far.
    """
    moments = 0
    lost: list[type[BaseException] | None] = []  # what was raised in destructors

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal moments
        ours = is_library(frame.f_code.co_filename)
        if not (ours or everywhere) or frame.f_code.co_name in _LOST:
            return
        if event in {"call", "c_return"}:
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

    gc.disable()  # what it finds of earlier calls would be struck instead, where nobody hears of it
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
    """A server with a tool that cancels the call that it serves, and waits to hear of that."""

    def __init__(self) -> None:
        self.server = Server("waiting")
        self.stats = self.server.stats
        self.token = CancelToken()
        self.server.tool()(self.wait)
        self.server.tool()(self.echo)

    def wait(self, context: ToolContext) -> None:
        self.token.cancel()
        context.cancelled.wait()

    def echo(self, text: str) -> str:
        return text

    def call(self, client: Client) -> None:
        """Make a call that ends when it has reached the tool."""
        self.token = CancelToken()
        with pytest.raises(RequestCancelled):
            client.call_tool("wait", cancel=self.token, timeout=None)

    def start(self, client: Client) -> None:
        """Start such a call; whoever has its future could cancel it."""
        self.token = CancelToken()
        future = client.call_tool.future("wait", cancel=self.token, timeout=None)
        sys.setprofile(None)
        assert isinstance(future.exception(PATIENCE), RequestCancelled)


# A socket whose thread is interrupted while it changes hands is closed with its last reference.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@every_wire
@pytest.mark.parametrize("way", [Waiting.call, Waiting.start])
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
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of half-made files
@pytest.mark.slow
@pytest.mark.pitfall("9")
def test_a_client_over_http_lives_on_wherever_the_code_below_it_is_struck() -> None:
    server = Server("below")
    server.tool()(Waiting().echo)
    with serve_http(server) as http, Client(http.url) as client:
        call = partial(client.call_tool, "echo", {"text": "a"}, timeout=PATIENCE)
        call()
        number = 1
        while struck(call, number, everywhere=True):
            assert call().text == "a"
            number += 1
        assert number > 200


# Servers that start at once, because they are started a thousand times.
_ANSWERS = """
while read -r line; do
    echo '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","capabilities":{},'\\
        '"supportedVersions":["2026-07-28"],"serverInfo":{"name":"new","version":"1"}}}'
done
"""
_DIES_OF_THE_PROBE = """
while read -r line; do
    case "$line" in *server/discover*) exit 3;; esac
    echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18",'\\
        '"capabilities":{},"serverInfo":{"name":"old","version":"1"}}}'
done
"""


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize(
    ("script", "everywhere", "step"),
    [
        pytest.param(_DIES_OF_THE_PROBE, False, 3, id="two processes"),
        pytest.param(_ANSWERS, True, 5, id="one process, all code", marks=pytest.mark.slow),
        pytest.param(
            _DIES_OF_THE_PROBE, True, 5, id="two processes, all code", marks=pytest.mark.slow
        ),
        pytest.param(
            _DIES_OF_THE_PROBE, True, 1, id="two processes, each moment", marks=pytest.mark.stress
        ),
    ],
)
@pytest.mark.timeout(600)  # it starts hundreds of processes, one after the other
@pytest.mark.pitfall("9")
def test_nothing_is_left_of_opening_a_process(script: str, everywhere: bool, step: int) -> None:
    def client(number: int) -> Client:
        # To what is remembered of commands, each of them is a stranger.
        server = Stdio("sh", "-c", script, env={"NUMBER": str(number)})
        return Client(server, open_timeout=PATIENCE)

    with client(0):
        pass
    before, number = Footprint(), 1
    while struck((opened := client(number)).open, number, everywhere=everywhere):
        assert before.left_behind() == [], f"after the interrupt at moment {number}"
        number += step
    opened.close()
    assert number > 500
    # Before 3.12, what a profiler raises at a call passes by the `finally` of the generator called.
    if sys.version_info >= (3, 12):
        assert not forks._under_way  # a fork would wait for what is there


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
    timer_name = "timer of a test"
    number, more = 1, True
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
    # An interrupted start may have started a thread, which finds that there is another one and
    # ends. It may also come to nothing: such a thread is listed for good.
    cut_off = {
        thread
        for thread in named - running
        if thread._started.is_set()  # type: ignore[attr-defined]
    }
    for thread in cut_off:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in cut_off)
    assert all(thread is not None and thread.is_alive() for thread in running)
