"""The storage of cached results: in limited memory, in a store of the program, or nowhere."""

from __future__ import annotations

import logging
import pickle
import threading
from typing import Any

import pytest

import syncmcp
from syncmcp import UsageError
from syncmcp.cache import CachedResult, CacheStore, MemoryCache
from tests.client.test_cache import MEMORY, Recorder, asked, names, shop
from tests.support.stage import PATIENCE, STATELESS, Wire, rotated_stateless


@rotated_stateless
def test_it_can_be_switched_off(wire: Wire) -> None:
    server = shop()
    with wire.connect(server, cache=False) as client:
        for use in ("use", "refresh", "bypass"):
            assert names(client, cache=use) == ["echo"]
        assert client.list_tools.future().result(PATIENCE).tools
        assert client.request("tools/list")["tools"]
        assert client.request.future("tools/list").result(PATIENCE)["tools"]
    assert asked(server, "tools/list") == 6


@rotated_stateless
@pytest.mark.parametrize("fault", ["get", "put", "both"])
def test_a_store_that_fails_costs_a_request_and_no_result(
    wire: Wire, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Recorder):
        def get(self, key: str) -> CachedResult | None:
            if fault != "put":
                raise OSError("no disk")
            return super().get(key)

        def put(self, key: str, result: CachedResult) -> None:
            if fault != "get":
                raise OSError("no disk")
            super().put(key, result)

    server = shop()
    with wire.connect(server, cache=Broken()) as client:
        assert names(client) == names(client) == ["echo"]
        assert client.list_tools.future().result(PATIENCE).tools
    assert asked(server, "tools/list") == 3
    assert "the cache store failed" in caplog.text


def test_a_store_of_the_programs_never_runs_on_the_thread_that_reads() -> None:
    seen: set[str] = set()

    class Watching(Recorder):
        def put(self, key: str, result: CachedResult) -> None:
            seen.add(threading.current_thread().name)
            super().put(key, result)

    with Wire("stdio", STATELESS).connect(shop(), cache=Watching()) as client:
        client.list_tools.future().result(PATIENCE)
        client.request.future("prompts/list").result(PATIENCE)
    assert seen
    assert not [name for name in seen if "reader" in name or "stdio" in name], seen


def entry(size: int) -> CachedResult:
    return CachedResult(b"x" * size, 0.0, 1.0)


def test_memory_keeps_what_was_used_last_within_its_bounds() -> None:
    cache = MemoryCache(max_entries=3, max_bytes=100)
    for key in "abc":
        cache.put(key, entry(10))
    assert cache.get("a") is not None
    cache.put("d", entry(10))
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]
    cache.put("e", entry(90))
    assert [key for key in "acde" if cache.get(key)] == ["d", "e"]
    cache.put("d", entry(10))
    cache.put("d", entry(10))
    assert (len(cache), cache.get("e") is not None) == (2, True)
    cache.put("e", entry(101))  # too large, but it still removes the old entry
    assert [key for key in "de" if cache.get(key)] == ["d"]
    assert repr(cache) == "<MemoryCache of 1 results, 10 bytes>"
    cache.clear()
    assert (len(cache), cache.get("d")) == (0, None)
    assert repr(cache) == "<MemoryCache of 0 results, 0 bytes>"
    # The result of the latest request counts, in any order of arrival.
    asked = [(b"early", 1.0), (b"late", 2.0), (b"other", 2.0)]
    early, late, other = (CachedResult(body, when, 9.0) for body, when in asked)
    cache.put("a", late)
    cache.put("a", early)
    assert cache.get("a") == late
    assert repr(cache) == "<MemoryCache of 1 results, 4 bytes>"
    cache.put("a", other)  # requested at the same time, so the newer one counts
    assert cache.get("a") == other
    cache.put("b", early)
    cache.put("b", late)
    assert cache.get("b") == late


def test_what_is_no_store_and_no_bound_is_refused() -> None:
    for bounds in ({"max_entries": 0}, {"max_bytes": -1}, {"max_entries": True}):
        with pytest.raises(UsageError):
            MemoryCache(**bounds)
    for store in (None, "memory", 5, MemoryCache, object()):
        wrong: Any = store
        with pytest.raises(UsageError, match="cache must be True, False or a CacheStore"):
            syncmcp.Client(shop(), cache=wrong)


def test_a_pickled_client_has_an_empty_memory_of_the_same_size() -> None:
    store = MemoryCache(max_entries=7, max_bytes=8)
    store.put("a", entry(1))
    copy = pickle.loads(pickle.dumps(store))
    assert isinstance(copy, MemoryCache)
    assert isinstance(copy, CacheStore)
    assert (len(copy), copy._max_entries, copy._max_bytes) == (0, 7, 8)
    for cache in (True, False, store):
        client = syncmcp.Client(syncmcp.Stdio("x"), cache=cache)
        again = pickle.loads(pickle.dumps(client))
        assert (again._core.cache is None) == (cache is False)


def test_what_is_kept_shows_nothing_of_what_is_in_it(caplog: pytest.LogCaptureFixture) -> None:
    store, server = Recorder(), shop()
    server.resource("shelf:/canary")(lambda: "canary-content")
    caplog.set_level(logging.DEBUG, "syncmcp.cache")
    with MEMORY.connect(server, cache=store) as client:
        client.read_resource("shelf:/canary")
    ((key, kept),) = store.kept.items()
    assert b"canary-content" in kept.body
    assert "canary" not in key + repr(kept) + caplog.text
