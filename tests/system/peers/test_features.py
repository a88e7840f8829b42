"""Tests with single servers: content, changes, tasks, visits to URLs, and roots."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

import syncmcp
from syncmcp import (
    ChangeEvent,
    Elicitation,
    MissingCapability,
    RequestCancelled,
    ResourceNotFound,
    UsageError,
)
from syncmcp.completion import Completer
from syncmcp.saving import save
from syncmcp.types import ElicitResult
from tests.system.peers.answers import AGREEABLE, PLACES
from tests.system.peers.peers import (
    EVERYTHING,
    FASTMCP,
    FILESYSTEM,
    HTTP,
    HTTP_SSE,
    OFFICIAL,
    STDIO,
    Call,
    Peer,
    Row,
)
from tests.system.peers.test_peers import PATIENCE, ask, ask_until_it_says_so

if TYPE_CHECKING:
    from pathlib import Path

    from syncmcp import HandlerContext, Stdio

pytestmark = [pytest.mark.peer, pytest.mark.together("peers")]

FRUIT = "stock://fruit"


def of_row(peer: Peer, transport: str, revision: syncmcp.Mode) -> pytest.MarkDecorator:
    """Return a decorator: run a test with the server of this row."""
    return pytest.mark.parametrize("row", [Row(peer, transport, revision)], ids=str, scope="module")


# -- content, changes, tasks


@of_row(OFFICIAL, HTTP_SSE, "2026-07-28")
@pytest.mark.requirement("M-11", "M-13", "SUB-01")
def test_the_official_server_reads_what_we_expand_completes_and_tells_of_changes(
    row: Row, target: Stdio | str
) -> None:
    with syncmcp.connect(target, mode=row.mode) as client:
        reads_what_we_expand_and_completes(client)
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
    cities = suggested(Completer(client, shop, pause=0), "city", "B", {"country": "Norway"})
    assert cities == ["Bergen", "Bodø"]


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


@of_row(EVERYTHING, HTTP, "2025-11-25")
@pytest.mark.requirement("M-11", "M-12", "M-13", "TSK-04", "TSK-09")
def test_server_everything_researches_reads_what_we_expand_and_tells_of_changes(
    row: Row, target: Stdio | str, tmp_path: Path
) -> None:
    with syncmcp.connect(target, mode=row.mode, elicitation=choose) as client:
        researches_asks_and_is_stopped(client)
        reads_what_we_expand_links_and_completes(client, tmp_path)
        tells_of_a_resource_until_nobody_listens(client)


def researches_asks_and_is_stopped(client: syncmcp.Client) -> None:
    research = "simulate-research-query"
    # The server adds the tool shortly after the handshake, and notifies the client.
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


@of_row(FASTMCP, HTTP_SSE, "2026-07-28")
@pytest.mark.requirement("RPC-17", "TSX-01", "TSX-06", "TSX-07")
def test_fastmcp_makes_tasks_of_calls_where_both_sides_have_the_extension(
    row: Row, target: Stdio | str
) -> None:
    tasks = {"io.modelcontextprotocol/tasks": dict[str, Any]()}
    with syncmcp.connect(target, mode=row.mode, extensions=tasks) as client:
        task = client.start_task("add_later", {"a": 2, "b": 3})
        assert task.id is not None
        assert client.task(task.id, "add_later").result(PATIENCE).text == "5"
        assert [update.status for update in task][-1] == "completed"
        assert client.call_tool("add_later", {"a": 3, "b": 3}).text == "6"
        failed = client.call_tool("fail_later", {"reason": "out of paper"})
        assert failed.is_error
        assert "out of paper" in failed.text
    with syncmcp.connect(target, mode=row.mode) as client:
        assert client.call_tool("add_later", {"a": 2, "b": 3}).text == "5"
        with pytest.raises(MissingCapability):
            client.call_tool("fail_later", {"reason": "out of paper"})


# -- visits


@of_row(OFFICIAL, HTTP_SSE, "2025-11-25")
@pytest.mark.parametrize("tool", ["visit", "locked"])
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

    # The one revision with notifications about completed visits.
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


# -- roots


@of_row(FILESYSTEM, STDIO, "2025-11-25")
@pytest.mark.requirement("M-03", "ROOT-03")
def test_a_server_learns_of_a_root_added_later(row: Row, target: Stdio | str) -> None:
    first, second = PLACES
    question = row.peer.questions["roots"]
    with syncmcp.connect(target, roots=[first]) as client:
        ask_until_it_says_so(client, Call(question.tool, {}, str(first)))
        assert question.text not in ask(client, question).text
        client.roots.add(second)
        ask_until_it_says_so(client, question)
