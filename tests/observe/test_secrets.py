"""No secret shows: canaries planted in every place, searched for in everything that comes out."""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator

import pytest

import syncmcp
from syncmcp import McpError, Stdio
from syncmcp.testing import ScriptedPeer
from syncmcp.testing import script as s
from tests.support.scripts import EVERYTHING, OLD

CANARY = "canary-7f3a9c"


def texts_of(thing: object) -> Iterator[str]:
    """All that a person, a log file or another process might get to see of it."""
    yield from (str(thing), repr(thing), f"{thing}")
    if isinstance(thing, BaseException):
        pickled = pickle.dumps(thing)
        copy = pickle.loads(pickled)
        yield from (repr(pickled), repr(vars(thing)), str(copy), repr(copy))
        # Not the lines of this file, which hold the canaries: the messages of the whole chain.
        error: BaseException | None = thing
        while error is not None:
            yield from traceback.format_exception_only(type(error), error)
            error = error.__cause__ or error.__context__


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """What was logged, with the tracebacks."""
    caplog.set_level(logging.DEBUG)
    formatter = logging.Formatter("%(name)s %(threadName)s %(message)s")
    return lambda: "\n".join(map(formatter.format, caplog.records))


@pytest.fixture
def output(logged: Callable[[], str]) -> Iterator[list[object]]:
    """What is to be shown; it and the log are searched for canaries."""
    things: list[object] = []
    yield things
    everything = [logged(), *(text for thing in things for text in texts_of(thing))]
    assert [text for text in everything if CANARY in text] == []


@contextlib.contextmanager
def errors_into(output: list[object]) -> Iterator[None]:
    """Collect the error that must come."""
    with pytest.raises(McpError) as caught:
        yield
    output.append(caught.value)


# It says all its secrets on stderr and on stdout, and dies.
TALKATIVE = """
import os, sys
token = os.environ["API_TOKEN"]
print("starting with", token, file=sys.stderr)
print(f"Authorization: Bearer {token}", file=sys.stderr)
print("GET https://user:%s@example.com/x?token=%s" % (token, token), file=sys.stderr)
sys.stderr.flush()
print("noise with", token, flush=True)
sys.stdin.readline()
sys.exit(4)
"""


def test_a_server_that_prints_its_environment_betrays_nothing(
    output: list[object], logged: Callable[[], str]
) -> None:
    server = Stdio(sys.executable, "-c", TALKATIVE, env={"API_TOKEN": f"{CANARY}-env"})
    with errors_into(output):
        syncmcp.connect(server)
    output += [server, syncmcp.Client(server)]
    assert "starting with ***" in logged()
    assert "noise with ***" in logged()


def test_cursors_arguments_and_results_stay_out_of_logs_and_errors(output: list[object]) -> None:
    script = [
        *s.handshake(OLD, capabilities=EVERYTHING),
        *(s.expect("tools/list"), s.reply({"nextCursor": f"{CANARY}-cursor"})),
        *[s.expect("tools/list"), s.reply({"tools": [], "nextCursor": f"{CANARY}-cursor"})] * 2,
        *(s.expect("tools/call"), s.reply({"content": f"{CANARY}-result"})),
    ]
    with ScriptedPeer(script) as peer:
        with syncmcp.connect(Stdio(*peer.command), mode=OLD) as client:
            with errors_into(output):
                client.list_tools()  # a result that does not fit its model
            with errors_into(output):
                client.list_tools()  # a cursor that comes back
            with errors_into(output):
                client.call_tool("x", {"secret": f"{CANARY}-argument"})
        output.append(client)
