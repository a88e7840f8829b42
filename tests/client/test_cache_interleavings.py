"""However answers, changes and news fall together, nobody sees what they know to be old."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp._client.caching import ResultCache
from syncmcp._client.pages import cached_or_exchange
from syncmcp._connection.options import CacheUse, ResolvedOptions
from syncmcp._protocol.capabilities import NO_OFFER
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.revisions import dialect_for
from syncmcp._protocol.steps import CacheLookup, Send, Steps
from syncmcp._protocol.subscription import ChangeEvent
from syncmcp.cache import MemoryCache
from syncmcp.config import Http

DIALECT = dialect_for("2026-07-28", None)
LIFETIME = 10
METHODS = {"tools/list": ChangeEvent("tools"), "resources/read": ChangeEvent("resource", "a:1")}


class Client:
    """What a client is to what it keeps; and the news that are on their way to it."""

    def __init__(self, store: MemoryCache) -> None:
        target = Http("https://example.com/mcp")
        self.cache: ResultCache | None = ResultCache(
            store, target, extensions={}, offer=lambda: NO_OFFER
        )
        self.settings = SimpleNamespace(max_rounds=1)
        self.heard = dict.fromkeys(METHODS, 0)
        self.news: list[tuple[str, int]] = []

    def live(self) -> Any:
        agreed = SimpleNamespace(check=lambda method, undeclared: DIALECT)
        return SimpleNamespace(dialect=DIALECT, agreed=agreed)


class Fetch:
    """One call that found nothing kept: asked for, then answered by the server, then finished."""

    def __init__(self, method: str, steps: Steps[Any], store: Callable[[Reply], None]) -> None:
        self.method, self.steps, self.store = method, steps, store
        self.answer: dict[str, Any] | None = None


def advance(steps: Steps[Any], value: Any) -> tuple[Any, Any]:
    """Take the next step; return what is to be done, or what it all came to."""
    try:
        return steps.send(value), None
    except StopIteration as stop:
        return None, stop.value


class World:
    """One server, two clients that share a store, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.versions = dict.fromkeys(METHODS, 0)
        self.store = MemoryCache()
        self.clients = [Client(self.store), Client(self.store)]
        self.fetches: list[Fetch] = []
        self.hits = 0

    def time(self) -> float:
        return self.now

    def call(self, client: Client, method: str, use: CacheUse) -> None:
        options = ResolvedOptions(None, None).but(cache=use)
        params = {"uri": "a:1"} if method == "resources/read" else None
        assert client.cache is not None
        steps: Steps[Any] = cached_or_exchange(cast("Any", client), method, params)
        effect, found = advance(steps, None)
        assert isinstance(effect, CacheLookup)
        effect, found = advance(steps, client.cache.look_up(effect, client.live(), options))
        if found is None:
            assert isinstance(effect, Send)
            store = client.cache.reply_handler(effect, options)
            assert store is not None
            self.fetches.append(Fetch(method, steps, store))
            return
        assert use == "use"
        self.hits += 1
        # The point of it all: never older than what this client was told of...
        assert found["version"] >= client.heard[method]
        # ... nor longer kept than the server allows.
        assert self.now < found["answered"] + LIFETIME

    def serve(self, fetch: Fetch) -> None:
        if fetch.answer is None:
            fetch.answer = {
                "resultType": "complete",
                "version": self.versions[fetch.method],
                "ttlMs": LIFETIME * 1000,
                "cacheScope": "public",
            }

    def finish(self, fetch: Fetch) -> None:
        self.serve(fetch)
        assert fetch.answer is not None
        # When it arrives; for the check alone.
        fetch.answer["answered"] = self.now
        self.fetches.remove(fetch)
        reply = Reply(fetch.answer, DIALECT)
        fetch.store(reply)
        assert advance(fetch.steps, reply) == (None, fetch.answer)

    def change(self, method: str) -> None:
        self.versions[method] += 1
        for client in self.clients:
            client.news.append((method, self.versions[method]))

    def hear(self, client: Client) -> None:
        if client.news:
            method, version = client.news.pop(0)
            assert client.cache is not None
            client.cache.on_change(METHODS[method])
            client.heard[method] = version


METHOD = st.sampled_from(["tools/list"] * 3 + ["resources/read"])
WHO = st.integers(0, 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), WHO, METHOD, st.sampled_from(["use", "use", "refresh"])),
        st.tuples(st.just("call"), WHO, METHOD, st.just("use")),
        st.tuples(st.sampled_from(["serve", "finish"]), st.integers(0, 2)),
        st.tuples(st.just("finish"), st.integers(0, 2)),
        st.tuples(st.just("change"), METHOD),
        st.tuples(st.just("hear"), WHO),
        st.tuples(st.just("wait"), st.integers(1, 9)),
    ),
    min_size=12,
    max_size=40,
)


def play(steps: list[Any]) -> World:
    world = World()
    with mock.patch("syncmcp._client.caching.monotonic", world.time):
        for kind, *rest in steps:
            # Everything up to the next call happens at one tick of the clock.
            world.now += 0.25 if kind == "call" else 0.0
            if kind == "call":
                world.call(world.clients[rest[0]], rest[1], rest[2])
            elif kind in ("serve", "finish") and world.fetches:
                getattr(world, kind)(world.fetches[rest[0] % len(world.fetches)])
            elif kind == "change":
                world.change(rest[0])
            elif kind == "hear":
                world.hear(world.clients[rest[0]])
            elif kind == "wait":
                world.now += float(rest[0])
    return world


@given(STEPS)
def test_no_interleaving_shows_anybody_what_they_were_told_is_old(steps: list[Any]) -> None:
    play(steps)


def call(client: int, use: CacheUse = "use") -> tuple[Any, ...]:
    return ("call", client, "tools/list", use)


CHANGE = ("change", "tools/list")

# The steps, how many calls found something kept, and how many are still on their way.
EXAMPLES: dict[str, tuple[list[Any], int, int]] = {
    "an answer from before the change arrives after the news": (
        [call(0), ("serve", 0), CHANGE, ("hear", 0), ("finish", 0), call(0)],
        0,
        1,
    ),
    "something is kept for longer than the server allows": (
        [call(0), ("finish", 0), ("wait", 9), call(0), ("wait", 1), call(0)],
        1,
        1,
    ),
    "another client put it there before the news": (
        [call(0), ("finish", 0), call(1), CHANGE, ("hear", 1), call(1), call(0)],
        2,
        1,
    ),
}


@pytest.mark.requirement("CCH-06")
@pytest.mark.parametrize("example", EXAMPLES)
def test_what_is_outdated_is_asked_for_again(example: str) -> None:
    steps, hits, fetches = EXAMPLES[example]
    world = play(steps)
    assert (world.hits, len(world.fetches)) == (hits, fetches)


def test_an_answer_that_was_asked_for_earlier_does_not_replace_one_asked_for_later() -> None:
    steps = [call(0), ("serve", 0), CHANGE, call(1, "refresh"), ("finish", 1), ("finish", 0)]
    world = play([*steps, ("hear", 1)])
    kept = list(world.store._entries.values())
    assert [b'"version":1' in each.body for each in kept] == [True]
