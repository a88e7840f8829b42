"""The page about eras says of each operation what it does in each revision."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import syncmcp
from syncmcp import Client, Mode
from syncmcp.testing import Server, demo_server
from syncmcp.types import CompleteResult, ElicitResult, ResourceTemplateReference
from tests.support.stage import PATIENCE

PAGE = Path(__file__).parents[2] / "docs" / "eras.md"
REVISIONS: tuple[Mode, ...] = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
CITY = ResourceTemplateReference(uri="demo://cities/{city}")

Heard = list[Any]
"""The contexts that the server was given for a completion."""


def table() -> dict[str, dict[str, str]]:
    """What the page says: by operation and revision."""
    text = PAGE.read_text(encoding="utf-8")
    part = text.partition("<!-- operations: begin -->")[2].partition("<!-- operations: end -->")[0]
    head, _, *rows = re.findall(r"^\|(.*)\|$", part, re.MULTILINE)
    revisions = [cell.strip() for cell in head.split("|")][1:]
    said: dict[str, dict[str, str]] = {}
    for row in rows:
        name, *cells = [cell.strip() for cell in row.split("|")]
        said[name] = dict(zip(revisions, cells, strict=True))
    return said


def call(client: Client, heard: Heard) -> str:
    assert client.list_tools().tools
    assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
    return "yes"


def data(client: Client, heard: Heard) -> str:
    result = client.call_tool("weather", {"city": "Cairo"})
    return "yes" if result.has_data else "no data"


def complete(client: Client, heard: Heard) -> str:
    answer: CompleteResult = client.complete(CITY, "city", "K", {"country": "Japan"})
    assert answer.completion.values == ["Kyoto"]
    return "yes" if heard == [{"country": "Japan"}] else "left out"


def begin(client: Client, heard: Heard) -> str:
    asked = isinstance(client.begin_tool("count_files", {"path": "/"}), syncmcp.InputRequired)
    return "the questions" if asked else "the result"


def batch(client: Client, heard: Heard) -> str:
    with client.batch() as calls:
        answers = [calls.call_tool("add", {"a": n, "b": n}) for n in range(2)]
    assert [answer.result(PATIENCE).text for answer in answers] == ["0", "2"]
    return "yes"


def task(client: Client, heard: Heard) -> str:
    assert client.start_task("slow").result(PATIENCE).text == "done"
    return "yes"


def notify(client: Client, heard: Heard) -> str:
    """All of it works, or nothing."""
    client.notify("acme/seen", {})
    client.report_progress("token", 1)
    return "yes"


def only(*operations: Callable[[Client], object]) -> Callable[[Client, Heard], str]:
    """Operations that are there or not."""

    def run(client: Client, heard: Heard) -> str:
        for operation in operations:
            operation(client)
        return "yes"

    return run


WORKS: dict[str, Callable[[Client, Heard], str]] = {
    "`call_tool`, `list_tools`": call,
    "`call_tool(...).data`": data,
    "`complete(context=)`": complete,
    "`ping`": only(lambda client: client.ping()),
    "`set_log_level`": only(lambda client: client.set_log_level("info")),
    "`listen`": only(lambda client: client.listen(tools=True, timeout=PATIENCE).close()),
    "`subscribe_resource`": only(lambda client: client.subscribe_resource("demo://readme")),
    "`begin_tool`": begin,
    "`start_task`": task,
    "`list_tasks`": only(lambda client: client.list_tasks()),
    "`batch`": batch,
    "`notify`, `report_progress`": notify,
    "`on_request`": only(lambda client: client.on_request("acme/ask", lambda params, context: {})),
}


def server(heard: Heard) -> Server:
    """The demo server, with a tool that may run as a task."""
    made = demo_server()
    made.add_tool(lambda: "done", name="slow", task_support="optional")

    @made.completion(template="demo://cities/{city}", argument="city")
    def complete_city(value: str, arguments: Any) -> list[str]:
        heard.append(dict(arguments))
        return ["Kyoto"]

    return made


def test_the_page_has_each_operation_and_each_revision() -> None:
    assert sorted(table()) == sorted(WORKS)
    assert {tuple(cells) for cells in table().values()} == {REVISIONS}


def test_each_operation_does_what_the_page_says() -> None:
    assert {name: {revision: does(name, revision) for revision in REVISIONS} for name in WORKS} == (
        table()
    )


def does(name: str, revision: Mode) -> str:
    heard: Heard = []
    with syncmcp.connect(
        server(heard),
        mode=revision,
        roots=["."],
        elicitation=lambda request, context: ElicitResult.cancel(),
        extensions={"io.modelcontextprotocol/tasks": {}},
    ) as client:
        try:
            return WORKS[name](client, heard)
        except syncmcp.NotSupported:
            return "no"
