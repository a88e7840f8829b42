"""Long-running calls with real servers, of both shapes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import syncmcp
from syncmcp import MissingCapability, RequestCancelled
from syncmcp.types import ElicitResult
from tests.system.peers.launch import client_of, http_server
from tests.system.peers.peers import EVERYTHING, HTTP, STDIO, Program
from tests.system.peers.setup_peers import venv_python

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.peer

SOME_TIME = 30.0
RESEARCH = "simulate-research-query"
TASKS = "io.modelcontextprotocol/tasks"
FASTMCP = Program(
    (str(venv_python("fastmcp-4")), "-m", "tests.system.peers.servers.fastmcp_4_tasks", "{port}")
)


def choose(request: Any, context: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"interpretation": "snake"})


@contextmanager
def everything(transport: str) -> Iterator[syncmcp.Client]:
    """A client of server-everything, once its list has the tool that needs our answers."""
    program = EVERYTHING.programs[transport]
    with client_of(program, mode="2025-11-25", elicitation=choose) as client:
        # It adds the tool a moment after the handshake, and says so.
        with client.listen(tools=True, timeout=SOME_TIME) as changes:
            while RESEARCH not in [tool.name for tool in client.list_tools().tools]:
                next(changes)
        yield client


@pytest.mark.parametrize("transport", [STDIO, HTTP])
@pytest.mark.requirement("TSK-04", "TSK-09")
def test_server_everything_researches_asks_and_is_stopped(transport: str) -> None:
    with everything(transport) as client:
        started = client.start_task(RESEARCH, {"topic": "python", "ambiguous": True})
        alone = client.call_tool.future(RESEARCH, {"topic": "rust"})
        stopped = client.start_task(RESEARCH, {"topic": "go"})
        stopped.cancel()
        updates = list(started)
        assert updates[0].status == "working"
        assert updates[-1].status == "completed"
        assert "python (snake)" in started.result(SOME_TIME).text
        assert "Research Report: rust" in alone.result(SOME_TIME).text
        with pytest.raises(RequestCancelled):
            stopped.result(SOME_TIME)
        listed = {task.task_id: task.status for task in client.list_tasks().tasks}
        assert (listed[str(started.id)], listed[str(stopped.id)]) == ("completed", "cancelled")


@pytest.mark.requirement("RPC-17", "TSX-01", "TSX-06", "TSX-07")
def test_fastmcp_makes_tasks_of_calls_where_both_sides_have_the_extension() -> None:
    with http_server(FASTMCP) as server:
        with syncmcp.connect(server.url, mode="2026-07-28", extensions={TASKS: {}}) as client:
            task = client.start_task("add", {"a": 2, "b": 3})
            assert task.id is not None
            assert client.task(task.id, "add").result(SOME_TIME).text == "5"
            assert [update.status for update in task][-1] == "completed"
            assert client.call_tool("add", {"a": 3, "b": 3}).text == "6"
            failed = client.call_tool("fail", {"reason": "out of paper"})
            assert failed.is_error
            assert "out of paper" in failed.text
        with syncmcp.connect(server.url, mode="2026-07-28") as client:
            assert client.call_tool("add", {"a": 2, "b": 3}).text == "5"
            with pytest.raises(MissingCapability):
                client.call_tool("fail", {"reason": "out of paper"})
