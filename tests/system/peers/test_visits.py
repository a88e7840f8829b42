"""The official SDK says that a visit is done: before the consent, and after it."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from syncmcp import Elicitation
from syncmcp.types import ElicitResult
from tests.system.peers.answers import AGREEABLE
from tests.system.peers.launch import client_of
from tests.system.peers.peers import HTTP, STDIO, own_server

if TYPE_CHECKING:
    import syncmcp
    from syncmcp import HandlerContext

pytestmark = pytest.mark.peer

PATIENCE = 30.0


@pytest.mark.parametrize(("transport", "tool"), [(STDIO, "locked"), (HTTP, "ask")])
@pytest.mark.requirement("ELI-15", "ELI-18", "M-07")
def test_the_official_sdk_calls_a_visit_done(transport: str, tool: str) -> None:
    link = {"url": AGREEABLE, "elicitation_id": uuid.uuid4().hex}
    agreed, early = threading.Semaphore(0), threading.Event()
    told: list[Future[bool]] = []

    def complete(client: syncmcp.Client) -> None:
        arguments = {"elicitation_id": link["elicitation_id"]}
        assert client.call_tool("complete", arguments).raise_for_error().text == "told"

    def visit(request: Any, context: HandlerContext) -> ElicitResult:
        told.append(Future())
        context.on_completed(told[-1].set_result)
        if early.is_set():
            complete(context.client)
        agreed.release()
        return ElicitResult.accept()

    # The one revision that calls visits done.
    options = {"mode": "2025-11-25", "elicitation": Elicitation(url=visit)}
    with client_of(own_server("visits")[transport], **options) as client:
        after = client.call_tool.future(tool, link)
        assert agreed.acquire(timeout=PATIENCE)
        if tool == "ask":
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
