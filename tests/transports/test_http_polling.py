"""Streams as servers and proxies cut them: polling, comments, pauses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import chain, count, repeat
from typing import Any

import pytest

from syncmcp.transports.http import USEFUL_SECONDS
from tests.support.stage import PATIENCE
from tests.transports.http_peer import Request, opened, request, serving
from tests.transports.test_http_streams import Listening, answer, start, stateful


def listened_to(*streams: Callable[[Request], None]) -> None:
    """Listen until the last of these streams, which stays open."""

    def stay(one: Request) -> None:
        one.connection.start_events()
        staying.set()
        assert one.connection.wait_for_end()

    staying = threading.Event()
    with serving(Listening(*streams, stay)) as server, opened(server.url) as (transport, receiver):
        start(transport)
        assert staying.wait(PATIENCE)
        transport.send(request())
        assert not receiver.failures
        assert not receiver.ends


@pytest.mark.requirement("HTL-15")
@pytest.mark.pitfall("22")
def test_a_listening_stream_of_comments_that_is_cut_again_and_again_is_kept(
    pauses: list[float],
) -> None:
    def cut_off(one: Request) -> None:
        one.connection.start_events()
        one.connection.chunk(b": nothing new\n\n")
        one.connection.close()

    listened_to(*[cut_off] * 12)
    assert len(pauses) == 12
    assert pauses[-1] >= 30


def closed_at_once(one: Request) -> None:
    one.connection.start_events()
    one.connection.chunk(b"retry: 0\nid: 7\n\n: a comment\n\n")
    one.connection.close()


def closed_after_a_message(one: Request) -> None:
    one.connection.start_events()
    one.connection.event({"jsonrpc": "2.0", "method": "acme/news"})
    one.connection.close()


def test_a_message_on_a_listening_stream_lets_the_pauses_begin_anew(pauses: list[float]) -> None:
    listened_to(*[closed_at_once] * 4, closed_after_a_message, closed_at_once, closed_at_once)
    assert pauses[3] >= 4
    assert 0.5 <= pauses[4] <= 0.625
    assert 1.0 <= pauses[6] <= 2.5


def test_a_listening_stream_that_was_open_for_seconds_lets_the_pauses_begin_anew(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = chain([0.0] * 8, [0.0, USEFUL_SECONDS], repeat(0.0))  # two for each stream
    monkeypatch.setattr("syncmcp.transports.http.monotonic", looks.__next__)
    listened_to(*[closed_at_once] * 6)
    assert pauses[3] >= 4
    assert 0.5 <= pauses[4] <= 0.625
    assert pauses[5] >= 1


@pytest.mark.pitfall("22")
def test_a_listening_stream_that_is_refused_for_now_is_asked_for_when_the_server_wants(
    pauses: list[float],
) -> None:
    listened_to(lambda one: one.connection.respond(503, headers={"Retry-After": "17"}))
    assert pauses == [17]


def test_a_resumption_that_is_refused_for_now_is_tried_when_the_server_wants(
    pauses: list[float],
) -> None:
    asked: list[Any] = []

    def call(one: Request) -> None:
        asked.append(one.id)
        one.connection.start_events()
        one.connection.chunk(b"retry: 10\nid: 1\n\n")
        one.connection.close()

    def resume(one: Request) -> None:
        asked.append("resumed")
        if len(asked) == 2:
            one.connection.respond(429, headers={"Retry-After": "23"})
        else:
            one.connection.start_events()
            one.connection.event(answer(asked[0]))

    with serving(stateful(call, resume)) as server, opened(server.url) as (transport, receiver):
        start(transport)
        transport.send(request())
        assert not receiver.failures
    assert pauses == [0.05, 23]


@pytest.mark.requirement("HTL-07", "HTL-09")
@pytest.mark.pitfall("22")
def test_a_call_whose_stream_brings_only_ids_polls_twice_a_second(pauses: list[float]) -> None:
    numbers, asked = count(), list[Any]()

    def script(one: Request) -> None:
        number = next(numbers)
        if one.method == "POST":
            asked.append(one.id)
        one.connection.start_events()
        if number < 4:
            one.connection.chunk(b"retry: 0\nid: %d\ndata: \n\n" % number)
            one.connection.close()
        else:
            one.connection.event(answer(asked[0]))

    with serving(stateful(script, script)) as server, opened(server.url) as (transport, receiver):
        start(transport)
        transport.send(request())
        assert not receiver.failures
    assert pauses == [0.05, 0.5, 0.5, 0.5]
