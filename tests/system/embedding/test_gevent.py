"""gevent: calls over HTTP and stdio let other greenlets run; wrong patching is an error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace

import pytest

import syncmcp
from syncmcp._concurrency import timing
from syncmcp.testing import Server, demo_server, serve_http
from syncmcp.transports import _windows
from tests.support.programs import Program, running
from tests.support.stage import Stage, relayed
from tests.system.embedding.frameworks import EXAMPLES, FRAMEWORKS, finished

pytestmark = pytest.mark.slow

ALL = "from gevent import monkey; monkey.patch_all()\nimport gevent\n"

OUTCOME = """
def outcome(call, *arguments):
    try:
        return call(*arguments)
    except syncmcp.McpError as error:
        return type(error).__name__
"""


def patched(code: str) -> AbstractContextManager[Program]:
    """Run `code` in a program whose standard library is patched by gevent."""
    return running(code, python=FRAMEWORKS, first=ALL)


@contextmanager
def target(wire: str, server: Server) -> Iterator[str]:
    """Serve `server` from this process; yield a line of code that defines `TARGET`."""
    if wire == "http":
        with serve_http(server) as http:
            yield f"TARGET = {http.url!r}\n"
    else:
        with relayed(server) as relay:
            yield f"TARGET = syncmcp.Stdio(*{(relay.command, *relay.args)!r})\n"


@pytest.mark.peer
@pytest.mark.pitfall("3")
def test_the_example_runs() -> None:
    said = finished(EXAMPLES / "gevent_program.py", python=FRAMEWORKS)
    assert said == "20 results, the last: 19 rested\nanother greenlet ran: True\n"


@pytest.mark.peer
@pytest.mark.pitfall("3", "4", "14", "23")
@pytest.mark.parametrize("wire", ["http", "stdio"])
def test_greenlets_call_beside_each_other_and_limits_tokens_futures_and_closing_end_calls(
    wire: str,
) -> None:
    stage = Stage()
    code = """
client = syncmcp.connect(TARGET)
stop = syncmcp.CancelToken()
calls = [
    client.call_tool.future("hold", {"key": "timeout"}, timeout=0.2),
    client.call_tool.future("hold", {"key": "token"}, cancel=stop),
    client.call_tool.future("hold", {"key": "future"}),
]
say(type(calls[0].exception()).__name__)
gevent.spawn(stop.cancel)
say(type(calls[1].exception()).__name__)
say(calls[2].cancel())
last = gevent.spawn(outcome, client.call_tool, "hold", {"key": "last"})
client.call_tool("echo", {"text": "what came before this is at the server by now"})
gevent.spawn(client.close)
say(last.get())
with client:
    held = [gevent.spawn(client.call_tool, "hold", {"key": key}) for key in "abc"]
    gevent.sleep(0)
    say(client.call_tool("echo", {"text": "x" * 300_000}).text == "x" * 300_000)
    say("".join(call.get().text for call in held))
    say([client.call_tool.future("echo", {"text": key}).result().text for key in "de"])
    reports = []
    client.call_tool("count", {"steps": 50}, on_progress=lambda done, *_: reports.append(done))
    say(reports == list(range(1, 51)))
"""
    ends = ["RequestTimeout", "RequestCancelled", "True", "ClosedError"]
    with target(wire, stage.server) as where, patched(where + OUTCOME + code) as program:
        assert [program.line() for _ in ends] == ends
        stage.inside("a", "b", "c")
        assert program.line() == "True"  # while three calls are held
        stage.gate.set()
        assert [program.line() for _ in range(3)] == ["abc", "['d', 'e']", "True"]
        assert program.end() == (0, "", "")
    stage.server.close()


@pytest.mark.peer
@pytest.mark.pitfall("3", "5", "6", "7", "13")
def test_a_child_process_asks_dies_is_started_again_and_ends_with_the_program() -> None:
    code = """
client = syncmcp.Client(SERVER, mode="legacy")
client.on_request("acme/question", lambda params, context: {"pid": client.call_tool("pid").text})
client.open()
pid = client.call_tool("pid").text
say(pid in client.call_tool("ask").text)
waiting = [gevent.spawn(outcome, client.call_tool, "wait") for _ in range(5)]
gevent.sleep(0)
try:
    client.call_tool("die", {"code": 4})
except syncmcp.ConnectionLost as error:
    say(error.exit_code, error.stderr_tail.splitlines()[-1])
say({call.get() for call in waiting})
say(client.call_tool("pid").text != pid)
say("open at the end")
"""
    with patched(OUTCOME + code) as program:
        lines = ["True", "4 the disk is full", "{'OutcomeUnknown'}", "True", "open at the end"]
        assert [program.line() for _ in lines] == lines
        assert program.end() == (0, "", "")


LATE = "import syncmcp\nfrom gevent import monkey; monkey.patch_all()\n"
TRY = """
for target in (SERVER, "http://127.0.0.1:9/mcp"):
    try:
        syncmcp.connect(target)
    except syncmcp.UsageError as error:
        say(error)
"""


@pytest.mark.peer
@pytest.mark.pitfall("3")
def test_what_would_hang_is_refused_when_it_is_opened() -> None:
    with running(TRY, python=FRAMEWORKS, first=LATE) as program:
        advice = "before `import syncmcp`"
        assert [advice in program.line() for _ in range(2)] == [True, True]
        assert program.end() == (0, "", "")


@pytest.mark.pitfall("3")
class TestWithoutGevent:
    """The same checks without gevent: a fake `gevent.monkey` says which modules are patched."""

    @staticmethod
    def say(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
        monkey = SimpleNamespace(is_module_patched=modules.__contains__)
        monkeypatch.setitem(sys.modules, "gevent.monkey", monkey)

    @pytest.mark.parametrize("modules", [("time", "signal"), timing._WAITING_MODULES])
    def test_gevent_that_patches_nothing_or_all_in_time_is_no_obstacle(
        self, modules: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(timing, "_unpatched_at_import", [])
        self.say(monkeypatch, *modules)
        with syncmcp.connect(demo_server()) as client:
            assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"

    @pytest.mark.parametrize("lazy", [False, True])
    def test_patching_after_the_import_is_refused_and_nothing_is_started(
        self, monkeypatch: pytest.MonkeyPatch, lazy: bool
    ) -> None:
        self.say(monkeypatch, *timing._WAITING_MODULES)
        client = syncmcp.Client(demo_server(), lazy=lazy)
        with pytest.raises(syncmcp.UsageError, match="patch_all"):
            client.call_tool("add") if lazy else client.open()
        client.close()

    def test_a_part_is_refused_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.say(monkeypatch, "socket", "ssl")
        with pytest.raises(syncmcp.UsageError, match="patched socket, ssl, but not threading, "):
            syncmcp.connect(demo_server())

    def test_on_windows_a_child_process_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.say(monkeypatch, *timing._WAITING_MODULES)
        with pytest.raises(ValueError, match="use HTTP"):
            _windows.start(("python",), {}, None)
