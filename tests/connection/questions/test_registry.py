"""The registry of open inbound requests: their ids, their states, and who settles them."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp import ClosedError
from syncmcp._concurrency.pool import DaemonPool
from syncmcp._connection.client_services import ClientServices, HandlerRegistry
from syncmcp._connection.questions import InboundRequest, Outcome, QuestionRegistry
from syncmcp.handlers import Handlers


@pytest.fixture
def registry() -> QuestionRegistry:
    """The registry of a connection whose client is gone: no handler is started."""
    handlers = HandlerRegistry(None, None, None, Handlers())
    pool = DaemonPool("registry", 1)
    services = ClientServices("a server", lambda: None, handlers, pool, pool, None, 100)
    return QuestionRegistry(services)


def request(
    registry: QuestionRegistry, id: Any = None, outcomes: list[Outcome] | None = None
) -> InboundRequest:
    """An inbound request that appends its outcome to `outcomes`."""
    kept = [] if outcomes is None else outcomes
    return InboundRequest(
        registry, "x/ask", {}, lambda context: {}, lambda _, outcome: kept.append(outcome), id=id
    )


@pytest.mark.requirement("RPC-06", "CAN-06")
def test_an_id_keeps_its_type_and_is_free_once_its_request_is_settled(
    registry: QuestionRegistry,
) -> None:
    number, text = request(registry, 1), request(registry, "1")
    assert registry.add(number)
    assert registry.add(text)
    assert (registry.get(1), registry.get("1")) == (number, text)
    assert not registry.add(request(registry, 1))
    assert registry.settle(number)
    assert registry.get(1) is None
    following = request(registry, 1)
    assert registry.add(following)
    assert not registry.settle(number)
    assert (registry.get(1), len(registry), registry.waiting) == (following, 2, 2)
    odd: list[Any] = [None, True, 1.0, [1], {}]
    assert [registry.get(each) for each in odd] == [None] * 5


def test_requests_of_a_round_have_no_id_and_one_that_has_ended_stays_out(
    registry: QuestionRegistry,
) -> None:
    ended = request(registry)
    assert ended.cancel("its round has failed")
    assert not registry.add(ended)
    assert not registry.begin(ended)
    assert (len(registry), registry.waiting) == (0, 0)
    asked = [request(registry) for _ in range(3)]
    assert all(map(registry.add, asked))
    assert len(registry) == 3
    assert all(map(registry.settle, asked))
    assert (len(registry), registry.waiting) == (0, 0)


def test_the_first_end_of_a_request_is_its_outcome(registry: QuestionRegistry) -> None:
    outcomes: list[Outcome] = []
    asked = request(registry, "q", outcomes)
    assert registry.add(asked)
    assert registry.begin(asked)
    assert (asked.state, registry.waiting, len(registry)) == ("running", 0, 1)
    assert asked.cancel("withdrawn")
    assert not asked.cancel("again", told="too late")
    asked.expire()
    assert outcomes == [None]
    assert asked.state == "settled"
    assert not registry.begin(asked)


@pytest.mark.parametrize("end", ["connection", "client"])
def test_the_end_of_the_connection_or_of_the_client_cancels_what_is_open(
    registry: QuestionRegistry, end: str
) -> None:
    outcomes: list[Outcome] = []
    asked = request(registry, 1, outcomes)
    assert registry.add(asked)
    if end == "client":
        asked._run()
    else:
        registry.close(ClosedError("the client was closed"))
        assert not registry.add(request(registry, 2))
    assert outcomes == [None]
    assert (len(registry), registry.waiting) == (0, 0)
