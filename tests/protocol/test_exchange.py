"""One request, driven by hand until its final result."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp._protocol.dialect import REVISIONS, dialect_for
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.steps import Reply, Send
from syncmcp.errors import ProtocolError


def finish(revision: str, result: Any) -> dict[str, Any]:
    """Send one request and answer it with `result`."""
    steps = exchange("tools/call", {"name": "add"})
    assert next(steps) == Send("tools/call", {"name": "add"})
    with pytest.raises(StopIteration) as stop:
        steps.send(Reply(result, dialect_for(revision, None, {})))
    returned: dict[str, Any] = stop.value.value
    return returned


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_request_is_sent_once_and_its_result_returned_as_it_came(revision: str) -> None:
    result = {"content": [], "unknown": 1}
    assert finish(revision, result) is result


def test_params_may_be_left_out() -> None:
    assert next(exchange("ping")) == Send("ping", None)


@pytest.mark.requirement("RPC-16")
@pytest.mark.parametrize("kind", ["input_required", "something else", None])
def test_the_kind_of_a_result_is_read_before_any_model_sees_it(kind: Any) -> None:
    with pytest.raises(ProtocolError):
        finish("2026-07-28", {"resultType": kind, "content": []})


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_result_that_is_no_object_ends_the_exchange_with_an_error(revision: str) -> None:
    with pytest.raises(ProtocolError, match="not an object"):
        finish(revision, "hello")


def test_an_error_thrown_in_passes_through() -> None:
    steps = exchange("tools/call")
    next(steps)
    with pytest.raises(ProtocolError, match="thrown"):
        steps.throw(ProtocolError("thrown"))
