"""Mutants of HTTP+SSE: the address for messages, the events, the way there."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urljoin

from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always
from tests.contract.mutant_switches.http import editing_lines

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

NEGOTIATE = "syncmcp._protocol.negotiate"
REPLY = "syncmcp.transports._http_reply"

_REFUSED_POST = (400, 404, 405)


def _post_to_the_stream(original: Function) -> Function:
    return lambda url, named: url


def _post_anywhere(original: Function) -> Function:
    return lambda url, named: urljoin(url, named.decode())


def _take_every_event_for_a_message(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if not line.startswith(b"event:") or b"endpoint" in line]


def _fall_back_after_any_refusal(original: Function) -> Function:
    return lambda error: error.method == "initialize" and error.status >= 400


def _fall_back_whatever_the_body_says(original: Function) -> Function:
    return lambda error: error.method == "initialize" and error.status in _REFUSED_POST


MUTANTS = (
    Mutant(
        "post-to-the-stream",
        "messages are posted to the stream's own address",
        f"{REPLY}:post_url",
        _post_to_the_stream,
        ("SSE-01",),
    ),
    Mutant(
        "post-anywhere",
        "messages, and secrets with them, are posted wherever the server says",
        f"{REPLY}:post_url",
        _post_anywhere,
        ("SEC-05", "SSE-01"),
    ),
    Mutant(
        "every-event-is-a-message",
        "events that are not named `message` are read as messages",
        "syncmcp.transports._http_reply:EventStream._end_event",
        editing_lines(_take_every_event_for_a_message),
        ("SSE-02",),
    ),
    Mutant(
        "no-older-transport",
        "a server that refuses a POST as old ones do is given up",
        f"{NEGOTIATE}:_may_be_sse_server",
        always(False),
        ("HTL-16",),
    ),
    Mutant(
        "older-transport-after-anything",
        "any refusal makes a server an old one",
        f"{NEGOTIATE}:_may_be_sse_server",
        _fall_back_after_any_refusal,
        ("HTL-16", "SSE-03"),
    ),
    Mutant(
        "modern-refusal-means-old",
        "a refusal that a stateless server wrote makes it an old one",
        f"{NEGOTIATE}:_may_be_sse_server",
        _fall_back_whatever_the_body_says,
        ("SSE-03",),
    ),
)
