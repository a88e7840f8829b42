"""Control characters of a server are visible in errors, tracebacks, dumps and logs."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from syncmcp import Client, Http, McpError, ServerError, Stdio
from syncmcp.testing import ScriptedPeer
from syncmcp.testing import script as s
from tests.support.hostile_text import EVIL, FORGED, check_text
from tests.support.scripts import EVERYTHING, NEW, OLD


class Watch:
    """Collects the errors and texts of a client; `check` checks them and the log."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.errors: list[BaseException] = []
        self.texts: list[str] = []

    def __call__(self, function: Callable[[], Any]) -> None:
        """Call `function`, and collect an `McpError` that it raises."""
        try:
            function()
        except McpError as error:
            self.errors.append(error)

    def check(self) -> None:
        for error in self.errors:
            check_text(str(error))
            check_text(repr(error), one_line=True)
            check_text("".join(traceback.format_exception(error)))
        for text in self.texts:
            check_text(text)
        formatter = logging.Formatter()
        for record in self._caplog.get_records("call"):  # during teardown, `records` lacks them
            check_text(record.getMessage(), one_line=True)
            check_text(formatter.format(record))


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture) -> Iterator[Watch]:
    caplog.set_level(logging.DEBUG)
    made = Watch(caplog)
    yield made
    made.check()


def poisoned(value: Any) -> Any:
    """Return a JSON value with the evil text in every string, and in one more member."""
    if isinstance(value, dict):
        return {**{name: poisoned(each) for name, each in value.items()}, EVIL: EVIL}
    if isinstance(value, list):
        return [poisoned(each) for each in value]
    return f"{value}{EVIL}" if isinstance(value, str) else value


RESULTS: dict[str, Any] = {
    "tool error": {"isError": True, "content": [{"type": "text", "text": EVIL}]},
    "poisoned content": {"content": poisoned([{"type": "text", "text": "x"}])},
    "unknown content": {"content": [{"type": EVIL, EVIL: 3}]},
    "content of a wrong type": {"content": EVIL},
    "no object": EVIL,
    "a list": [EVIL],
    "kind of result": {"resultType": EVIL, "content": []},
    "structured": {"content": [], "structuredContent": {EVIL: EVIL, "n": EVIL}},
    "task": {"task": poisoned({"taskId": "t", "status": "working"})},
}
CODES = (-32700, -32600, -32601, -32602, -32603, -32002, -32020, -32021, -32022, -32042, 7, -1)
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "description": EVIL}},
    "required": ["n", EVIL],
    EVIL: EVIL,
}
TOOL = {"name": "t", "title": EVIL, "inputSchema": {"type": "object"}, "outputSchema": SCHEMA}
OPERATIONS: dict[str, Callable[[Client], Any]] = {
    "tools/list": lambda client: client.list_tools(),
    "resources/list": lambda client: client.list_resources(),
    "resources/templates/list": lambda client: client.list_resource_templates(),
    "prompts/list": lambda client: client.list_prompts(),
    "prompts/get": lambda client: client.get_prompt("p"),
    "resources/read": lambda client: client.read_resource("x://y"),
    "resources/subscribe": lambda client: client.subscribe_resource("x://y"),
    "completion/complete": lambda client: client.complete("p", "argument", "val"),
    "logging/setLevel": lambda client: client.set_log_level("info"),
    "ping": lambda client: client.ping(),
}


def talk(watch: Watch, steps: list[s.Step], use: Callable[[Client], Any], **options: Any) -> None:
    """Use a client against a script, and collect its dump."""
    with ScriptedPeer([*s.handshake(OLD, capabilities=EVERYTHING), *steps]) as peer:
        client = Client(peer, mode=OLD, timeout=5, retry=None, **options)

        def run() -> None:
            with client:
                watch(lambda: use(client))
                watch.texts.append(str(client.dump()))
                assert FORGED in watch.texts[-1]  # the text has arrived

        watch(run)


@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.parametrize("listed", [False, True])
def test_every_result_of_a_call(kind: str, listed: bool, watch: Watch) -> None:
    lists = [s.expect("tools/list"), s.reply({"tools": [TOOL]})]
    # After a result that does not match the schema, the client fetches the list again.
    script = [s.expect("tools/call"), s.reply(RESULTS[kind]), *lists]

    def use(client: Client) -> None:
        if listed:
            client.list_tools()
        client.call_tool("t").raise_for_error()

    talk(watch, [*lists, *script] if listed else script, use)


@pytest.mark.parametrize("code", CODES)
def test_every_error(code: int, watch: Watch) -> None:
    data = poisoned({"uri": "x", "supported": ["x"], "elicitations": [{"url": "https://x/"}]})
    steps = [s.expect("tools/call"), s.error(code, EVIL, data)]
    again = [s.expect("tools/list"), s.reply({"tools": []}), *steps]  # after a header mismatch
    talk(watch, [*steps, *again], lambda client: client.call_tool("t"))
    (error,) = watch.errors
    assert isinstance(error, ServerError)
    assert FORGED in str(error)
    assert error.message == EVIL  # the attributes are unchanged
    assert error.data == data


@pytest.mark.parametrize("what", ["reply", "wrong", "error"])
@pytest.mark.parametrize("method", OPERATIONS)
def test_every_operation(method: str, what: str, watch: Watch) -> None:
    one = poisoned({"name": "x", "uri": "x", "uriTemplate": "x{", "text": "x", "inputSchema": "x"})
    members = ("tools", "resources", "resourceTemplates", "prompts", "messages", "contents")
    step = {
        "reply": s.reply({**{member: [one] for member in members}, "nextCursor": EVIL, EVIL: EVIL}),
        "wrong": s.reply({**{member: {EVIL: EVIL} for member in members}, "completion": EVIL}),
        "error": s.error(-32603, EVIL, EVIL),
    }[what]
    talk(watch, [s.expect(method), step, s.expect(method), step], OPERATIONS[method])


NOTICES: dict[str, list[s.Step]] = {
    "log": [s.notify("notifications/message", {"level": EVIL, "logger": EVIL, "data": EVIL})],
    "progress": [s.progress(1, 2, EVIL), s.notify("notifications/progress", {"progress": EVIL})],
    "unknown": [s.notify(f"notifications/{EVIL}", {EVIL: EVIL})],
    "updated": [s.notify("notifications/resources/updated", {"uri": EVIL})],
    "completed": [s.notify("notifications/elicitation/complete", {"elicitationId": EVIL})],
    "cancelled": [s.notify("notifications/cancelled", {"requestId": EVIL, "reason": EVIL})],
    "task": [s.notify("notifications/tasks/status", poisoned({"taskId": "x", "status": "x"}))],
    "unknown request": [s.request(EVIL, {EVIL: EVIL})],
    "sampling": [s.request("sampling/createMessage", {"messages": EVIL, EVIL: EVIL})],
    "elicitation": [s.request("elicitation/create", {"message": EVIL, "requestedSchema": EVIL})],
    "wrong id": [s.message({"jsonrpc": "2.0", "id": EVIL, "result": {}})],
    "no version": [s.message({"jsonrpc": EVIL, "id": EVIL, "method": EVIL})],
    "no id": [s.message({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": EVIL}})],
    "malformed error": [s.message({"jsonrpc": "2.0", "id": 99, "error": {"code": EVIL}})],
    "no message": [s.message(EVIL), s.message([EVIL]), s.message({EVIL: EVIL})],
}


@pytest.mark.parametrize("kind", NOTICES)
def test_every_message_that_nobody_asked_for(kind: str, watch: Watch) -> None:
    def failing(*args: Any) -> Any:
        raise ValueError(f"{args}: {EVIL}")

    names = ("on_log", "on_progress", "on_notification", "sampling", "elicitation")
    steps = [s.expect("tools/call"), *NOTICES[kind], s.reply({"content": []})]
    talk(watch, steps, lambda client: client.call_tool("t"), **dict.fromkeys(names, failing))


@pytest.mark.parametrize("revision", [OLD, NEW, EVIL])
def test_the_handshake(revision: str, watch: Watch) -> None:
    opened = {
        **poisoned({"serverInfo": {"name": "x", "version": "x"}, "instructions": "x"}),
        "protocolVersion": revision,
        "supportedVersions": [revision],
        "capabilities": {EVIL: {EVIL: EVIL}, "tools": {"listChanged": EVIL}},
    }
    for mode, method in (("legacy", "initialize"), (NEW, "server/discover")):
        steps = [s.expect(method), s.reply(opened), s.expect("tools/list"), s.error(1, EVIL)]
        with ScriptedPeer(steps) as peer:
            client = Client(peer, mode=mode, timeout=5, open_timeout=5, retry=None)  # type: ignore[arg-type]
            watch(client.open)
            watch(client.list_tools)
            watch.texts.append(str(client.dump()))
            client.close()


DIES = f"""
import sys
evil = {EVIL!r}.encode()
for stream, data in ((sys.stderr, evil + b"\\n" + evil), (sys.stdout, evil + b"\\n")):
    stream.buffer.write(data)
    stream.flush()
sys.stdin.readline()
sys.exit(3)
"""


def test_what_a_child_process_writes(watch: Watch) -> None:
    client = Client(Stdio(sys.executable, "-c", DIES), retry=None)
    watch(client.open)
    watch.texts.append(str(client.dump()))
    (error,) = watch.errors
    assert FORGED in str(error)
    client.close()


HEADER = "\x1b[2J\x07\x9b31m\x7f"  # control characters that http.client accepts
HTTP: dict[str, list[s.Step]] = {
    "page": [s.head(500, {"Content-Type": "text/plain"}), s.chunk(EVIL.encode()), s.end()],
    "forbidden": [s.head(403, {"Content-Type": "text/plain"}), s.chunk(EVIL.encode()), s.end()],
    "type": [s.head(200, {"Content-Type": f"text/{HEADER}"}), s.chunk(b"x"), s.end()],
    "redirect": [s.head(302, {"Location": f"http://x{HEADER}/{HEADER}"}), s.end()],
    "later": [s.head(429, {"Retry-After": HEADER, "Content-Type": HEADER}), s.end()],
    "encoding": [s.head(200, {"Content-Type": "application/json", "Content-Encoding": HEADER}),
                 s.chunk(b"x"), s.end()],
    "session": [s.head(200, {"Content-Type": "application/json", "Mcp-Session-Id": HEADER}),
                s.chunk(b"{}"), s.end()],
    "event": [s.event(EVIL.replace("\n", " ").replace("\r", " ")), s.end()],
}  # fmt: skip


@pytest.mark.parametrize("kind", HTTP)
def test_what_an_http_server_answers(kind: str, watch: Watch) -> None:
    with ScriptedPeer([s.expect("initialize"), *HTTP[kind]]) as peer:
        client = Client(Http(peer.url), mode="legacy", retry=None, open_timeout=5)
        watch(client.open)
        watch.texts.append(str(client.dump()))
        client.close()
    assert watch.errors


@pytest.mark.parametrize("line", [HEADER, f"HTTP/1.1 {HEADER} x", f"HTTP/1.1 500 {HEADER}"])
def test_a_status_line_of_any_text(line: str, watch: Watch) -> None:
    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(f"{line}\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        client = Client(Http(url), mode="legacy", retry=None)
        watch(client.open)
        client.close()
        thread.join()
    assert watch.errors
