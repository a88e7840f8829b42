"""Ctrl-C at every moment of a call at which an interpreter looks for signals."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest

from syncmcp import CancelToken, Client, RequestCancelled
from syncmcp.testing import Server, ToolContext
from tests.stage import PATIENCE, Wire, every_wire, in_threads


def struck(job: Callable[[], object], number: int) -> bool:
    """Interrupt `job` at the `number`th moment at which it runs the library's code.

    An interpreter looks for signals where a function begins and behind a call of a function in C.

    Returns:
        Whether it came so far.
    """
    moments = 0

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal moments
        path = frame.f_code.co_filename
        if f"{os.sep}syncmcp{os.sep}" not in path or f"{os.sep}testing{os.sep}" in path:
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
    try:
        [outcome] = in_threads(run, patience=PATIENCE)
    finally:
        gc.enable()
    if moments >= number:
        assert isinstance(outcome, KeyboardInterrupt)
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
        """Have the call cancelled, and wait until it is."""
        self.token.cancel()
        context.cancelled.wait()

    def echo(self, text: str) -> str:
        """Say `text`."""
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
def test_the_server_hears_of_it_and_the_next_call_works(
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
