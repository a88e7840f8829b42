"""What single peers do: content, changes, tasks and visits, and quirks that a client lives with."""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
import requests

import syncmcp
from syncmcp import (
    ChangeEvent,
    Elicitation,
    MethodNotFound,
    MissingCapability,
    NotSupported,
    RequestCancelled,
    ResourceNotFound,
    UsageError,
)
from syncmcp.completion import Completer
from syncmcp.saving import save
from syncmcp.testing import Recording, Replay
from syncmcp.types import ElicitResult, PromptReference
from tests.system.peers.answers import AGREEABLE, ANSWERS, PLACES
from tests.system.peers.launch import client_of, http_server
from tests.system.peers.peers import (
    EVERYTHING,
    FILES,
    FILESYSTEM,
    HTTP,
    HTTP_JSON,
    HTTP_SSE,
    MCP_1_8,
    MCP_1_9,
    MCP_1_12,
    OFFICIAL,
    OLD_HTTP,
    PEERS,
    ROOT,
    SERVERS,
    STDIO,
    Call,
    Peer,
    Program,
    Row,
    own_server,
)
from tests.system.peers.setup_peers import NODE_MODULES, venv_python
from tests.system.peers.test_peers import PATIENCE, ask, ask_until_it_says_so, start_waiting

if TYPE_CHECKING:
    from pathlib import Path

    from syncmcp import HandlerContext, Stdio
    from syncmcp.types import ElicitRequestURLParams, LoggingMessageNotificationParams

pytestmark = pytest.mark.peer

FRUIT = "stock://fruit"


def of_rows(*rows: Row) -> pytest.MarkDecorator:
    """Run a test for each of these, on the server that `target` gives."""
    return pytest.mark.parametrize("row", rows, ids=str, scope="module")


# -- content, changes, tasks


@of_rows(
    Row(OFFICIAL, STDIO, "2024-11-05"),
    Row(OFFICIAL, HTTP_SSE, "2025-11-25"),
    Row(OFFICIAL, STDIO, "2026-07-28"),
    Row(OFFICIAL, HTTP_SSE, "2026-07-28"),
)
@pytest.mark.requirement("M-11", "M-13", "SUB-01")
def test_the_official_server_reads_what_we_expand_completes_and_tells_of_changes(
    row: Row, target: Stdio | str, subtests: pytest.Subtests
) -> None:
    with syncmcp.connect(target, mode=row.mode) as client:
        with subtests.test("content"):
            reads_what_we_expand_and_completes(client)
        if row.mode == "2026-07-28":
            with subtests.test("changes"):
                tells_of_changes(client)


def reads_what_we_expand_and_completes(client: syncmcp.Client) -> None:
    shop, paper, find = client.list_resource_templates().resource_templates
    expansions: list[tuple[Any, dict[str, Any], str]] = [
        (shop, {"country": "Norway", "city": "Bodø / {x}?#"}, "The shop in Bodø / {x}?#, Norway."),
        (paper, {"path": "a b/c"}, "a b/c"),
        (find, {}, "any on page 1"),
        (find, {"name": "A & B", "page": 3}, "A & B on page 3"),
    ]
    for template, values, text in expansions:
        uri = template.expand(values)
        assert client.read_resource(uri).blob.decode() == text
        assert template.match(uri) == {name: str(value) for name, value in values.items()}
    with pytest.raises(ResourceNotFound):
        client.read_resource("shop://nowhere")

    (order,) = client.list_prompts().prompts
    message = client.get_prompt(order, {"city": "Oslo"}).messages[0].to_wire()
    assert message["content"]["text"] == "Order bread in Oslo."
    with pytest.raises(UsageError, match="needs 'city'"):
        client.get_prompt(order)
    assert client.complete(order, "what", "b").completion.values == []
    # The oldest revision knows no context, so there it completes the cities of every country.
    everywhere = ["Beppu"] * (client.server.revision == "2024-11-05")
    cities = suggested(Completer(client, shop, pause=0), "city", "B", {"country": "Norway"})
    assert cities == ["Bergen", "Bodø", *everywhere]


def suggested(completer: Completer, *asked: Any) -> list[str]:
    found = completer.suggest(*asked)
    assert found is not None
    return list(found.values)


def tells_of_changes(client: syncmcp.Client) -> None:
    with client.listen(tools=True, uris=[FRUIT], timeout=PATIENCE, stop_after=2) as events:
        assert (events.lists, events.uris) == (("tools",), (FRUIT,))
        assert client.call_tool("stir").text == "stirred"
        assert list(events) == [ChangeEvent("tools"), ChangeEvent("resource", FRUIT)]
    with client.listen(uris=[FRUIT], timeout=PATIENCE) as events:
        client.call_tool("stir")
        assert next(events) == ChangeEvent("resource", FRUIT)


def choose(request: Any, context: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"interpretation": "snake"})


@of_rows(*(Row(EVERYTHING, transport, "2025-11-25") for transport in (STDIO, HTTP)))
@pytest.mark.requirement("M-11", "M-12", "M-13", "TSK-04", "TSK-09")
def test_server_everything_reads_what_we_expand_tells_of_changes_and_researches(
    row: Row, target: Stdio | str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    with syncmcp.connect(target, mode=row.mode, elicitation=choose) as client:
        with subtests.test("tasks"):
            researches_asks_and_is_stopped(client)
        with subtests.test("content"):
            reads_what_we_expand_links_and_completes(client, tmp_path)
        with subtests.test("changes"):
            tells_of_a_resource_until_nobody_listens(client)


def researches_asks_and_is_stopped(client: syncmcp.Client) -> None:
    research = "simulate-research-query"
    # It adds the tool a moment after the handshake, and says so.
    with client.listen(tools=True, timeout=PATIENCE) as changes:
        while research not in [tool.name for tool in client.list_tools().tools]:
            next(changes)
    started = client.start_task(research, {"topic": "python", "ambiguous": True})
    alone = client.call_tool.future(research, {"topic": "rust"})
    stopped = client.start_task(research, {"topic": "go"})
    stopped.cancel()
    updates = list(started)
    assert (updates[0].status, updates[-1].status) == ("working", "completed")
    assert "python (snake)" in started.result(PATIENCE).text
    assert "Research Report: rust" in alone.result(PATIENCE).text
    with pytest.raises(RequestCancelled):
        stopped.result(PATIENCE)
    listed = {task.task_id: task.status for task in client.list_tasks().tasks}
    assert (listed[str(started.id)], listed[str(stopped.id)]) == ("completed", "cancelled")


def reads_what_we_expand_links_and_completes(client: syncmcp.Client, folder: Path) -> None:
    text, blob = client.list_resource_templates().resource_templates
    uri = text.expand({"resourceId": 7})
    assert client.read_resource(uri).text.startswith("Resource 7: ")
    assert text.match(uri) == {"resourceId": "7"}
    file = save(client.read_resource(blob.expand({"resourceId": 8})), folder / "blob")
    assert file.read_text().startswith("Resource 8: ")

    links = client.call_tool("get-resource-links", {"count": 2}).links
    contents = [client.read_resource(link).blob for link in links]
    assert [content[:9] for content in contents] == [b"Resource "] * 2

    team = {prompt.name: prompt for prompt in client.iter_prompts()}["completable-prompt"]
    completer = Completer(client, team, pause=0)
    assert suggested(completer, "department", "S") == ["Sales", "Support"]
    names = suggested(completer, "name", "", {"department": "Sales"})
    assert names == ["David", "Eve", "Frank"]
    assert client.complete(text, "resourceId", "12").completion.values == ["12"]
    with pytest.raises(UsageError, match="needs 'department', 'name'"):
        client.get_prompt(team)
    message = client.get_prompt(team, {"department": "Sales", "name": "Eve"}).messages[0]
    assert "promote Eve to the head of the Sales team" in message.to_wire()["content"]["text"]


def tells_of_a_resource_until_nobody_listens(client: syncmcp.Client) -> None:
    uri = "demo://resource/dynamic/text/1"
    with client.listen(uris=[uri], timeout=PATIENCE, stop_after=1) as events:
        client.call_tool("toggle-subscriber-updates")
        assert list(events) == [ChangeEvent("resource", uri)]
    client.call_tool("toggle-subscriber-updates")


@pytest.mark.requirement("RPC-17", "TSX-01", "TSX-06", "TSX-07")
def test_fastmcp_makes_tasks_of_calls_where_both_sides_have_the_extension() -> None:
    python, tasks = str(venv_python("fastmcp-4")), "io.modelcontextprotocol/tasks"
    program = Program((python, "-m", "tests.system.peers.servers.fastmcp_4_tasks", "{port}"))
    with http_server(program) as server:
        with syncmcp.connect(server.url, mode="2026-07-28", extensions={tasks: {}}) as client:
            task = client.start_task("add", {"a": 2, "b": 3})
            assert task.id is not None
            assert client.task(task.id, "add").result(PATIENCE).text == "5"
            assert [update.status for update in task][-1] == "completed"
            assert client.call_tool("add", {"a": 3, "b": 3}).text == "6"
            failed = client.call_tool("fail", {"reason": "out of paper"})
            assert failed.is_error
            assert "out of paper" in failed.text
        with syncmcp.connect(server.url, mode="2026-07-28") as client:
            assert client.call_tool("add", {"a": 2, "b": 3}).text == "5"
            with pytest.raises(MissingCapability):
                client.call_tool("fail", {"reason": "out of paper"})


# -- servers that do not declare what they handle


def undeclaring(transport: str, venv: str) -> Program:
    """One on this version of the official SDK."""
    return own_server("undeclaring_1", venv_python(venv), "/mcp/")[transport]


@pytest.mark.parametrize("transport", [STDIO, HTTP])
@pytest.mark.requirement("M-12")
def test_the_official_sdk_1_30_tells_of_a_resource_though_it_declares_that_it_does_not(
    transport: str,
) -> None:
    with client_of(undeclaring(transport, "mcp-1.30")) as client:
        resources = client.server.capabilities.resources
        assert resources is not None
        assert resources.subscribe is False
        with pytest.raises(NotSupported, match=r"resources\.subscribe \(undeclared="):
            client.listen(uris=[FRUIT])
        with client.listen(uris=[FRUIT], undeclared="try", timeout=PATIENCE) as events:
            assert client.call_tool("stir").text == "1 subscribed"
            assert next(events) == ChangeEvent("resource", FRUIT)
        assert client.call_tool("stir").text == "0 subscribed"
        client.subscribe_resource(FRUIT, undeclared="try")
        assert client.call_tool("stir").text == "1 subscribed"
        client.request("resources/unsubscribe", {"uri": FRUIT})
        assert client.call_tool("stir").text == "0 subscribed"


def test_a_client_can_be_told_to_try_whatever_the_official_sdk_does_not_declare() -> None:
    with client_of(undeclaring(HTTP, "mcp-1.30"), undeclared="try") as client:
        with client.listen(tools=True, uris=[FRUIT], timeout=PATIENCE, stop_after=2) as events:
            client.call_tool("stir")
            assert list(events) == [ChangeEvent("tools"), ChangeEvent("resource", FRUIT)]
        with pytest.raises(MethodNotFound):
            client.list_prompts()
        assert client.list_tools().tools[0].name == "stir"


def test_the_official_sdk_1_9_completes_though_it_does_not_declare_that() -> None:
    fruit = PromptReference(name="fruit")
    with client_of(undeclaring(STDIO, "mcp-1.9")) as client:
        with pytest.raises(NotSupported, match="the capability completions"):
            client.complete(fruit, "name", "p")
        found = client.complete(fruit, "name", "p", undeclared="try")
        assert found.completion.values == ["pear"]


# -- recording


def talk(target: Any, row: Row) -> list[Any]:
    """A conversation that has lists, calls, progress and questions in it."""
    peer, steps = row.peer, list[float]()
    assert peer.progress
    with syncmcp.connect(target, mode=row.mode, **ANSWERS) as client:
        return [
            client.server.revision,
            [tool.name for tool in client.list_tools().tools],
            [str(resource.uri) for resource in client.list_resources().resources],
            client.call_tool(peer.call.tool, peer.call.arguments).text,
            client.call_tool(
                peer.progress.tool,
                peer.progress.arguments,
                on_progress=lambda step, *_: steps.append(step),
            ).text,
            steps,
            *(
                client.call_tool(question.tool, question.arguments).text
                for cell, question in peer.questions.items()
                # The address of a link is masked, and so nobody consents to it any more.
                if cell != "url" and not row.limit(cell)
            ),
        ]


@of_rows(
    Row(OFFICIAL, STDIO, "2025-11-25"),
    Row(OFFICIAL, STDIO, "2026-07-28"),
    Row(OFFICIAL, HTTP_SSE, "2025-11-25"),
    Row(OFFICIAL, HTTP_SSE, "2026-07-28"),
    Row(EVERYTHING, STDIO, "2025-11-25"),
    Row(EVERYTHING, HTTP, "2025-11-25"),
)
def test_a_session_with_a_real_server_is_the_same_without_it(
    row: Row, target: Stdio | str, tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    seen = talk(Recording(target, path), row)
    assert len(seen) > 7
    recording = Replay(path)
    assert talk(recording, row) == seen
    assert recording.unplayed == []
    assert recording.unexpected == []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {"sent", "got", "closed"} <= {kind for line in lines for kind in line}


# -- visits


@pytest.mark.parametrize(
    ("row", "tool"),
    [
        (Row(OFFICIAL, STDIO, "2025-11-25"), "locked"),
        (Row(OFFICIAL, HTTP_SSE, "2025-11-25"), "visit"),
    ],
    ids=str,
    scope="module",
)
@pytest.mark.requirement("ELI-15", "ELI-18", "M-07")
def test_the_official_sdk_calls_a_visit_done_after_the_consent_and_before_it(
    row: Row, target: Stdio | str, tool: str
) -> None:
    link = {"url": AGREEABLE, "elicitation_id": uuid.uuid4().hex}
    agreed, early = threading.Semaphore(0), threading.Event()
    told: list[Future[bool]] = []

    def complete(client: syncmcp.Client) -> None:
        arguments = {"elicitation_id": link["elicitation_id"]}
        assert client.call_tool("tell_of_visit", arguments).raise_for_error().text == "told"

    def visit(request: Any, context: HandlerContext) -> ElicitResult:
        told.append(Future())
        context.on_completed(told[-1].set_result)
        if early.is_set():
            complete(context.client)
        agreed.release()
        return ElicitResult.accept()

    # The one revision that calls visits done.
    with syncmcp.connect(target, mode=row.mode, elicitation=Elicitation(url=visit)) as client:
        after = client.call_tool.future(tool, link)
        assert agreed.acquire(timeout=PATIENCE)
        if tool == "visit":
            assert after.result(PATIENCE).text == "accept"
        complete(client)
        assert after.result(PATIENCE).text == "accept"
        assert told[0].result(PATIENCE)

        early.set()
        link["elicitation_id"] = uuid.uuid4().hex
        before = client.call_tool.future(tool, link)
        assert before.result(PATIENCE).text == "accept"
        assert told[1].result(PATIENCE)
    assert len(told) == 2


@pytest.mark.requirement("M-07", "ELI-18")
def test_a_call_that_a_person_has_to_visit_a_url_for_is_made_again() -> None:
    visited: list[str] = []

    def visit(request: ElicitRequestURLParams, context: HandlerContext) -> ElicitResult:
        visited.append(request.url)
        # This server never tells that a visit is over.
        context.completed()
        return ElicitResult.accept()

    call = Call("trigger-url-elicitation", {"url": AGREEABLE, "errorPath": True}, "completed the")
    with syncmcp.connect(stdio(EVERYTHING, []), elicitation=Elicitation(url=visit)) as client:
        assert call.text in ask(client, call).text
    # The error names a URL of its own; the call that is made again asks for the one it was given.
    assert visited == ["https://modelcontextprotocol.io", AGREEABLE]


# -- HTTP+SSE: the examples of the TypeScript SDK, alone or beside Streamable HTTP

EXAMPLES = NODE_MODULES / "@modelcontextprotocol" / "sdk" / "dist" / "esm" / "examples" / "server"


def example(script: str) -> Program:
    """An example, on a port of our choice."""
    command = ("{node}", "--import", str(SERVERS / "on_port.mjs"), str(EXAMPLES / script))
    return Program(command, {"PORT": "{port}"}, path="")


def hear(url: str) -> None:
    """Use the one tool of the examples."""
    told: list[LoggingMessageNotificationParams] = []
    tool = "start-notification-stream"
    with syncmcp.connect(url, on_log=told.append) as client:
        assert [one.name for one in client.list_tools().tools] == [tool]
        answer = client.call_tool(tool, {"interval": 10, "count": 3}, timeout=PATIENCE)
        assert "notifications every 10ms" in answer.text
        assert told


@pytest.mark.requirement("HTL-16", "SSE-01", "SSE-02")
@pytest.mark.pitfall("18")
def test_the_transport_of_a_url_is_found_out() -> None:
    stream, post = "GET request to /sse", "POST request to /mcp"
    with http_server(example("simpleSseServer.js")) as server:
        # By option no POST goes to the stream.
        with syncmcp.connect(syncmcp.Http(server.url + "/mcp", transport="sse")) as client:
            assert client.list_tools().tools
        assert server.output().count(stream) == 1
        assert post not in server.output()
        hear(server.url + "/mcp")
        assert server.output().count(stream) == 2
    with http_server(example("sseAndStreamableHttpCompatibleServer.js")) as server:
        hear(server.url + "/sse")
        assert stream in server.output()
        assert post not in server.output()
        hear(server.url + "/mcp")
        assert post in server.output()


@pytest.mark.requirement("SSE-02")
def test_over_http_and_sse_a_server_that_dies_ends_its_calls() -> None:
    [peer] = [one for one in PEERS if one.name == MCP_1_12.name and OLD_HTTP in one.programs]
    with (
        http_server(peer.programs[OLD_HTTP]) as server,
        syncmcp.connect(server.url, retry=None) as client,
    ):
        future = start_waiting(peer, client, uuid.uuid4().hex)
        server.stop()
        error = future.exception(PATIENCE)
        assert isinstance(error, syncmcp.ConnectionLost)
        assert error.delivery == "unknown"
        with pytest.raises(syncmcp.TransportError):
            ask(client, Call("add", {"a": 1, "b": 1}, ""))


# -- quirks


def stdio(peer: Peer, stderr: list[str]) -> syncmcp.Stdio:
    """The peer as a child process whose stderr is kept."""
    return syncmcp.Stdio(*peer.programs[STDIO].ready().command, cwd=ROOT, stderr=stderr.append)


class Sent:
    """Notes what a client has sent."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def outgoing(self, message: syncmcp.Message) -> None:
        self.methods.append(message.method)

    def incoming(self, message: syncmcp.Message) -> None:
        pass

    def ended(self, answer: syncmcp.Message) -> None:
        pass


@pytest.mark.pitfall("18")
@pytest.mark.requirement("VER-14", "VER-16")
def test_a_server_that_dies_of_the_probe_is_reached_all_the_same() -> None:
    stderr: list[str] = []
    sent = Sent()
    options: dict[str, Any] = {"mode": "auto", "interceptors": [sent]}
    with syncmcp.connect(stdio(MCP_1_8, stderr), **options) as client:
        assert client.server.revision == "2024-11-05"
        assert MCP_1_8.call.text in ask(client, MCP_1_8.call).text
    assert any("Traceback" in line for line in stderr), "it did not die: this shows nothing"
    opening = ["initialize", "notifications/initialized", "tools/call"]
    assert sent.methods == ["server/discover", "server/discover", *opening]

    sent.methods.clear()
    with syncmcp.connect(stdio(MCP_1_8, stderr), **options) as client:
        assert MCP_1_8.call.text in ask(client, MCP_1_8.call).text
    assert sent.methods == opening


def test_an_endpoint_that_redirects_to_itself_with_a_slash_is_followed() -> None:
    with http_server(MCP_1_8.programs[HTTP_JSON]) as server:
        answer = requests.post(server.url, json={}, timeout=PATIENCE, allow_redirects=False)
        assert (answer.status_code, answer.headers["Location"]) == (307, f"{server.url}/")
        with syncmcp.connect(server.url) as client:
            assert MCP_1_8.call.text in ask(client, MCP_1_8.call).text


@pytest.mark.requirement("STD-07")
def test_a_server_that_dies_of_a_cancel_is_started_again_by_a_later_call() -> None:
    stderr: list[str] = []
    with syncmcp.connect(stdio(MCP_1_9, stderr), mode="legacy") as client:
        future = start_waiting(MCP_1_9, client, uuid.uuid4().hex)
        assert future.cancel()
        # The dying server may still take a request, and a new one may be there for it already.
        between = client.call_tool.future("started", {"nonce": "unknown"}, timeout=PATIENCE)
        assert isinstance(between.exception(PATIENCE), syncmcp.ConnectionLost | None)
        assert MCP_1_9.call.text in ask(client, MCP_1_9.call).text
    assert any("Traceback" in line for line in stderr), "it did not die: this shows nothing"


def test_a_server_that_would_ask_for_roots_keeps_the_directories_of_its_command_line() -> None:
    with syncmcp.connect(stdio(FILESYSTEM, [])) as client:
        answer = ask(client, Call("list_allowed_directories", {}, ""))
        assert str(FILES) in answer.text


@pytest.mark.requirement("M-03", "ROOT-03")
@pytest.mark.parametrize("peer", [EVERYTHING, FILESYSTEM], ids=lambda peer: peer.name)
def test_a_server_learns_of_a_root_added_later(peer: Peer) -> None:
    first, second = PLACES
    question = peer.questions["roots"]
    with syncmcp.connect(stdio(peer, []), roots=[first]) as client:
        ask_until_it_says_so(client, Call(question.tool, {}, str(first)))
        assert question.text not in ask(client, question).text
        client.roots.add(second)
        ask_until_it_says_so(client, question)
