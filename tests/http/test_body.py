"""Bodies of responses: what a compressed piece inflates to is processed part by part."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
import urllib3

from syncmcp._http.exchange import AbortableExchange, ExchangeAborted
from syncmcp._http.session import body_of

INFLATED = 8 * 2**20


class Body:
    """The body of a compressed response that comes in one piece; whoever reads it may be ended."""

    def __init__(self, compressed: bytes) -> None:
        self.deadline = SimpleNamespace(expired=False)
        self.exchange = AbortableExchange(cast("Any", self.deadline))
        response = requests.Response()
        response.raw = urllib3.HTTPResponse(io.BytesIO(compressed), preload_content=False)
        response.headers["Content-Encoding"] = "gzip"
        self.parts: Iterator[bytes] = body_of(self.exchange, response)

    def expire(self) -> None:
        self.deadline.expired = True


@pytest.mark.parametrize(
    ("end", "error"),
    [(Body.expire, TimeoutError), (lambda it: it.exchange.abort(), ExchangeAborted)],
)
def test_reading_ends_within_a_piece_that_inflates_to_a_thousand_times_its_size(
    end: Callable[[Body], object], error: type[Exception]
) -> None:
    body = Body(gzip.compress(b"\n" * INFLATED))
    assert 0 < len(next(body.parts)) <= INFLATED / 16
    end(body)
    with pytest.raises(error):
        next(body.parts)


def test_empty_members_of_a_compressed_body_count_as_parts() -> None:
    body = Body(gzip.compress(b"first") + gzip.compress(b"") * 1_000 + gzip.compress(b"last"))
    assert next(body.parts) == b"first"
    body.expire()
    with pytest.raises(TimeoutError):
        next(body.parts)


def test_a_compressed_body_comes_whole() -> None:
    body = Body(gzip.compress(b"first") + gzip.compress(b"") + gzip.compress(b"last"))
    assert list(body.parts) == [b"first", b"last"]
