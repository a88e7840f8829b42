"""Tests every cell of the table in ``docs/peers.md`` through the public API."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import CancelledError
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

import syncmcp
from tests.system.peers.answers import ANSWERS
from tests.system.peers.peers import (
    EVERYTHING,
    EVERYTHING_2025_03,
    HTTP,
    ROWS,
    STDIO,
    TYPESCRIPT,
    Call,
    Peer,
    Row,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from syncmcp.types import CallToolResult

# One worker runs all files that use these servers.
pytestmark = [pytest.mark.peer, pytest.mark.together("peers")]

PATIENCE = 30.0

# The one revision with batches, and the servers that answer them over HTTP.
BATCHING = "2025-03-26"
ANSWERING = [(peer.name, HTTP) for peer in (TYPESCRIPT, EVERYTHING, EVERYTHING_2025_03)]


# "auto" must detect the last revision, so its session also tests the row of that revision.
TRIED = [row for row in ROWS if row.mode != row.peer.revisions[-1]]


@pytest.mark.parametrize("row", TRIED, ids=str, scope="module")
@pytest.mark.requirement("M-04", "M-06", "M-09", "M-24", "HTL-03", "RPC-12")
@pytest.mark.pitfall("13", "14", "18", "30")
def test_a_peer_does_all_that_its_row_says(
    row: Row, target: syncmcp.Stdio | str, subtests: pytest.Subtests
) -> None:
    with syncmcp.connect(target, mode=row.mode, **ANSWERS) as client:
        for cell, check in CHECKS.items():
            limit = row.limit(cell)
            if limit is None or limit.half:
                with subtests.test(cell):
                    check(row, client)
        if row.revision == BATCHING and row.transport != STDIO:
            with subtests.test("batch"):
                answers_a_batch_or_refuses_all_of_it(row, client)


def lists_its_tools(row: Row, client: syncmcp.Client) -> None:
    assert client.server.revision == row.revision
    names = {tool.name for tool in client.list_tools(timeout=PATIENCE).tools}
    used = [row.peer.call, row.peer.error, row.peer.progress, row.peer.wait]
    asking = [call for cell, call in row.peer.questions.items() if not row.limit(cell)]
    assert {call.tool for call in (*used, *asking) if call} <= names


def answers_a_call(row: Row, client: syncmcp.Client) -> None:
    result = ask(client, row.peer.call)
    assert not result.is_error
    assert row.peer.call.text in result.text


def says_why_a_call_failed(row: Row, client: syncmcp.Client) -> None:
    with pytest.raises(row.peer.error_type) as caught:
        ask(client, row.peer.error).raise_for_error()
    assert row.peer.error.text in str(caught.value)


def reports_progress_in_order_before_the_result(row: Row, client: syncmcp.Client) -> None:
    assert row.peer.progress
    seen: list[tuple[float, float | None]] = []
    result = client.call_tool(
        row.peer.progress.tool,
        row.peer.progress.arguments,
        timeout=PATIENCE,
        on_progress=lambda progress, total, message: seen.append((progress, total)),
    )
    assert row.peer.progress.text in result.text
    everything: Sequence[tuple[float, float]] = [(1, 3), (2, 3), (3, 3)]
    if row.peer.progress_apart and row.transport != STDIO:
        assert seen
        assert seen == everything[: len(seen)]
    else:
        assert seen == everything


def stops_a_cancelled_call_and_goes_on(row: Row, client: syncmcp.Client) -> None:
    nonce = uuid.uuid4().hex
    future = start_waiting(row.peer, client, nonce)
    assert future.cancel()
    if row.limit("cancel"):
        answers_a_call(row, client)
    else:
        assert ask(client, Call("cancelled", {"nonce": nonce}, "")).text == "yes"
    with pytest.raises(CancelledError):
        future.result(PATIENCE)


def has_its_question_answered(cell: str, row: Row, client: syncmcp.Client) -> None:
    question = row.peer.questions[cell]
    if cell == "roots" and row.peer.roots_unasked:
        ask_until_it_says_so(client, question)
        return
    result = ask(client, question)
    assert not result.is_error, result.text
    assert question.text in result.text


def answers_a_batch_or_refuses_all_of_it(row: Row, client: syncmcp.Client) -> None:
    call = row.peer.call
    with client.batch() as batch:
        calls = [batch.call_tool(call.tool, call.arguments) for _ in range(3)]
        wrong = batch.request("acme/no-such-method")
        tools = batch.list_tools()
    if (row.peer.name, row.transport) in ANSWERING:
        assert all(call.text in future.result(PATIENCE).text for future in calls)
        assert isinstance(wrong.exception(PATIENCE), syncmcp.ServerError)
        assert call.tool in [tool.name for tool in tools.result(PATIENCE).tools]
    else:
        futures: list[syncmcp.RequestFuture[Any]] = [*calls, wrong, tools]
        errors = [future.exception(PATIENCE) for future in futures]
        assert {type(error) for error in errors} <= {syncmcp.HttpError, syncmcp.InvalidParams}
        assert len({id(error) for error in errors}) == 5
        answers_a_call(row, client)


CHECKS: Mapping[str, Callable[[Row, syncmcp.Client], None]] = {
    "list": lists_its_tools,
    "call": answers_a_call,
    "error": says_why_a_call_failed,
    "progress": reports_progress_in_order_before_the_result,
    "cancel": stops_a_cancelled_call_and_goes_on,
    "sampling": partial(has_its_question_answered, "sampling"),
    "form": partial(has_its_question_answered, "form"),
    "url": partial(has_its_question_answered, "url"),
    "roots": partial(has_its_question_answered, "roots"),
}


def start_waiting(
    peer: Peer, client: syncmcp.Client, nonce: str
) -> syncmcp.RequestFuture[CallToolResult]:
    """Start a call that runs until it is cancelled; return once the server has started it."""
    assert peer.wait
    running = Event()
    future = client.call_tool.future(
        peer.wait.tool,
        {"nonce": nonce} if peer.has_gates else peer.wait.arguments,
        timeout=PATIENCE,
        on_progress=lambda progress, total, message: running.set(),
    )
    if peer.has_gates:
        assert ask(client, Call("started", {"nonce": nonce}, "")).text == "yes"
    else:
        assert running.wait(PATIENCE)
    return future


def ask(client: syncmcp.Client, call: Call) -> CallToolResult:
    """Make one call with a timeout."""
    return client.call_tool(call.tool, call.arguments, timeout=PATIENCE)


def ask_until_it_says_so(client: syncmcp.Client, call: Call) -> None:
    """Repeat a call until its answer contains the text."""
    deadline = time.monotonic() + PATIENCE
    while call.text not in (text := ask(client, call).text):
        assert time.monotonic() < deadline, text
