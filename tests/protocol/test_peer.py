"""The table of requests that wait for a response: examples, and a comparison with a model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from syncmcp._protocol.jsonrpc import RequestTable, own_id


class Waiter:
    """A request that waits for its answer."""

    id = 0

    def __init__(self, method: str = "tools/call") -> None:
        self.method = method


def peer(max_in_flight: int = 8) -> RequestTable[Waiter]:
    return RequestTable(1, max_in_flight)


def registered(table: RequestTable[Waiter], count: int) -> list[Waiter]:
    waiters = [Waiter() for _ in range(count)]
    for waiter in waiters:
        table.register(waiter)
    return waiters


@pytest.mark.pitfall("23")
def test_an_id_that_was_never_given_out_finds_nothing() -> None:
    for id in (
        *(None, True, 1.0, [1], {"a": 1}, 99),
        *("1.0", " 1", "1 ", "+1", "-1", "", "one", "²", "9" * 5000),
        "\N{ARABIC-INDIC DIGIT ONE}",
    ):
        table = peer()
        (waiter,) = registered(table, 1)
        assert table.get(id) is None
        assert table.take(id) is None
        assert len(table) == 1
        # A server may have turned the number into a string.
        assert table.get("1") is table.take("1") is waiter
        assert (own_id(3), own_id("4"), own_id("x"), own_id(True)) == (3, 4, None, None)


def test_the_only_open_request_is_found_while_it_is_the_only_one() -> None:
    table = peer()
    assert table.sole_call() is None
    first, second = registered(table, 2)
    assert table.sole_call() is None
    table.take(first.id)
    assert table.sole_call() is second
    ping = Waiter("ping")
    table.register(ping)
    assert table.sole_call() is second  # only a response belongs to a ping
    table.take(second.id)
    assert table.sole_call() is None


def test_what_is_too_much_stands_in_line_and_goes_in_the_order_it_came() -> None:
    table = peer(2)
    waiters = [Waiter() for _ in range(5)]
    assert [table.register(waiter) for waiter in waiters] == [True, True, False, False, False]
    assert len(table.queued) == 3
    assert table.next_queued() is None
    table.take(waiters[1].id)
    assert table.next_queued() is waiters[2]
    assert table.next_queued() is None
    # A queued request that is taken loses its place in the queue.
    assert table.take(waiters[3].id) is waiters[3]
    table.take(waiters[0].id)
    table.take(waiters[2].id)
    assert table.next_queued() is waiters[4]
    assert not table.queued
    assert table.next_queued() is None


def test_draining_takes_everything_and_leaves_nobody_in_line() -> None:
    table = peer(1)
    waiters = registered(table, 3)
    table.open_calls().clear()  # a copy: the table is unchanged
    assert table.open_calls() == waiters
    assert len(table) == 3
    assert table.take_all() == waiters
    assert len(table) == 0
    assert table.next_queued() is None
    assert table.take_all() == []
    (following,) = registered(table, 1)
    assert following.id == 4
    lasting = Waiter("subscriptions/listen")
    table.register(lasting)
    assert table.take_all() == [following, lasting]
    assert table.get(lasting.id) is None


IDS = st.integers(0, 30)
STRANGE_IDS = st.one_of(
    st.none(), st.booleans(), st.floats(0, 30), st.text("0123 .x", max_size=3), st.just([1])
)
MOST = 3


class Model(RuleBasedStateMachine):
    """Applies the same operations, in any order, to a table and to plain collections."""

    def __init__(self) -> None:
        super().__init__()
        self.table: RequestTable[Waiter] = RequestTable(0, MOST)
        self.running: dict[int, Waiter] = {}
        self.line: list[Waiter] = []
        self.given = 0

    def waiting(self) -> dict[int, Waiter]:
        return {**self.running, **{waiter.id: waiter for waiter in self.line}}

    @rule(at_once=st.booleans())
    def register(self, at_once: bool) -> None:
        waiter = Waiter()
        # A new request can get a free slot before `next_queued` gives it to a queued request.
        free = at_once or len(self.running) < MOST
        assert self.table.register(waiter, skip_queue=at_once) is free
        assert waiter.id == self.given
        self.given += 1
        if free:
            self.running[waiter.id] = waiter
        else:
            self.line.append(waiter)

    @rule(id=IDS, as_text=st.booleans())
    def take(self, id: int, as_text: bool) -> None:
        expected = self.waiting().get(id)
        assert self.table.get(str(id) if as_text else id) is expected
        assert self.table.take(str(id) if as_text else id) is expected
        self.running.pop(id, None)
        self.line = [waiter for waiter in self.line if waiter is not expected]

    @rule(id=STRANGE_IDS)
    def take_with_a_strange_id(self, id: Any) -> None:
        meant = int(id) if isinstance(id, str) and id.isdigit() else -1
        expected = self.waiting().get(meant)
        assert self.table.get(id) is expected
        if expected is None:
            assert self.table.take(id) is None

    @rule()
    def next_queued(self) -> None:
        expected = self.line[0] if self.line and len(self.running) < MOST else None
        assert self.table.next_queued() is expected
        if expected is not None:
            self.running[expected.id] = self.line.pop(0)

    @rule()
    def drain(self) -> None:
        expected = sorted(self.waiting().values(), key=lambda waiter: waiter.id)
        assert self.table.take_all() == expected
        self.running.clear()
        self.line.clear()

    @invariant()
    def both_agree_on_who_waits(self) -> None:
        waiting = self.waiting()
        assert len(self.table) == len(waiting)
        only = next(iter(waiting.values())) if len(waiting) == 1 else None
        assert self.table.sole_call() is only
        for id, waiter in waiting.items():
            assert waiter.id == id
            assert self.table.get(id) is waiter


@pytest.mark.requirement("RPC-02", "RPC-04", "RPC-05", "CAN-04", "CAN-05")
@pytest.mark.pitfall("23", "H10")
class TestModel(Model.TestCase):  # type: ignore[misc, valid-type]
    """Any sequence of registering, taking and draining."""


def test_a_request_that_lasts_is_found_but_counts_for_nothing() -> None:
    table = peer(1)
    lasting, other, third = Waiter("subscriptions/listen"), Waiter(), Waiter()
    assert table.register(lasting)
    assert len(table) == 0
    assert table.sole_call() is None
    assert table.register(other)
    assert table.sole_call() is other
    assert not table.register(third)
    assert table.get(lasting.id) is lasting
    assert table.open_calls() == [other, third, lasting]
    assert table.take(lasting.id) is lasting
    assert table.take(lasting.id) is None
    assert table.get(lasting.id) is None
