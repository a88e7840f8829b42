"""Questions that come before the client is open: they wait for it, and end with it."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, RequestTimeout
from syncmcp._concurrency.timing import timer
from syncmcp._connection.questions import InboundRequest
from syncmcp._connection.server_requests import _ProgressReports
from syncmcp.testing import script as s
from tests.connection.questions.asking import PROMPT, SAMPLING, model
from tests.support.people import nobody
from tests.support.scripts import NEW, OLD, WIRES, Scripted, talk
from tests.support.stage import PATIENCE, in_threads

OPENED: dict[str, Any] = {
    "protocolVersion": OLD,
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "x", "version": "1"},
}


def ask(identifier: str) -> s.Step:
    """A question that wants to be told of its progress."""
    params = {**PROMPT, "_meta": {"progressToken": identifier}}
    return s.request(SAMPLING, params, identifier=identifier)


def beating() -> int:
    """How many questions tell their server from time to time that they are thought about."""
    with timer._lock:
        actions = [entry.action for _, _, entry in timer._heap]
    return sum(
        isinstance(getattr(action, "__self__", None), _ProgressReports) for action in actions
    )


def alive() -> int:
    """How many questions somebody still holds."""
    gc.collect()
    return sum(type(each) is InboundRequest for each in gc.get_objects())


@WIRES
def test_a_question_that_comes_before_the_answer_to_initialize_is_answered(wire: str) -> None:
    script = [
        s.expect("initialize", label="start"),
        ask("early"),
        s.reply(OPENED, to="start"),
        s.expect("notifications/initialized"),
        s.expect("response"),
    ]
    with talk(script, wire, sampling=model) as (peer, _):
        (answer,) = peer.requests("response")
        assert (answer["id"], answer["result"]["model"]) == ("early", "double")


@pytest.mark.parametrize(
    ("revision", "first"), [(OLD, "initialize"), (NEW, "server/discover")], ids=[OLD, NEW]
)
@pytest.mark.requirement("TMO-01")
def test_a_question_instead_of_the_answer_does_not_hold_the_limit_of_opening(
    revision: Any, first: str
) -> None:
    with Scripted([s.expect(first), ask("early"), s.silence()]) as peer:
        client = Client(peer, mode=revision, sampling=nobody, open_timeout=0.2, close_timeout=0.1)
        try:
            (error,) = in_threads(client.open, patience=PATIENCE)
            assert isinstance(error, RequestTimeout)
        finally:
            client.close()


def test_the_questions_of_a_connection_that_never_opens_end_with_it() -> None:
    kept, hearts = alive(), beating()
    script = [
        s.expect("initialize", label="start"),
        *(ask(f"early {number}") for number in range(5)),
        s.reply({**OPENED, "protocolVersion": "1999-01-01"}, to="start"),
    ]
    with Scripted(script) as peer:
        client = Client(peer, mode=OLD, sampling=nobody)
        with pytest.raises(syncmcp.McpError, match="1999-01-01"):
            client.open()
        client.close()
        assert beating() <= hearts
        assert alive() <= kept


def test_so_many_questions_may_wait_for_the_client_to_open_as_for_a_handler() -> None:
    script = [
        s.expect("initialize", label="start"),
        *(ask(f"{number}") for number in range(3)),
        s.expect("response"),
        s.reply(OPENED, to="start"),
        s.expect("notifications/initialized"),
        s.expect("response"),
        s.expect("response"),
    ]
    with talk(script, sampling=model, max_questions=2) as (peer, _):
        first, *others = peer.requests("response", 3)
        assert (first["id"], first["error"]["code"]) == ("2", -32603)
        assert {other["id"] for other in others} == {"0", "1"}
        assert all("result" in other for other in others)
