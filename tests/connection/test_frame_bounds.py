"""A message with too many values is not decoded: on every wire it ends as one that is too long."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from syncmcp import Client, LimitExceeded, ProtocolError
from syncmcp._protocol import jsonrpc
from syncmcp.testing import Server
from syncmcp.testing import script as s
from tests.support.scripts import OLD, Scripted, opening
from tests.support.stage import PATIENCE, Wire, every_wire, rotated


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that a test reaches with a small message."""
    monkeypatch.setattr(jsonrpc, "MAX_VALUES", 3000)


def counting() -> Server:
    server = Server("counting")

    @server.tool()
    def zeros(count: int) -> dict[str, Any]:
        return {"zeros": [0] * count}

    @server.tool()
    def commas(count: int) -> str:
        return ',[{":' * count

    return server


@every_wire
def test_a_result_with_too_many_values_fails_its_call(wire: Wire, few_values: None) -> None:
    with wire.connect(counting()) as client:
        with pytest.raises(LimitExceeded, match="3,000 values") as caught:
            client.call_tool("zeros", {"count": 3000})
        assert caught.value.delivery == "unknown"
        assert (caught.value.method, caught.value.server) == ("tools/call", client.server.name)
        with pytest.raises(LimitExceeded, match="3,000 values"):
            client.call_tool.future("zeros", {"count": 3000}).result(PATIENCE)
        if wire.transport == "http":  # an exchange of its own: nothing else ends with it
            assert client.call_tool("zeros", {"count": 3}).structured_content == {"zeros": [0] * 3}


BATCHING: Final = "2025-03-26"

DEEP = '{"content":[],"_meta":{"x":' + "[" * 400 + "]" * 400 + "}}"


@pytest.mark.parametrize("wire", ["memory", "stdio"])
def test_a_call_whose_answer_cannot_be_decoded_fails_at_once(wire: str) -> None:
    steps = [*opening(), s.expect("tools/call"), s.reply(json.loads(DEEP)), s.silence()]
    with (
        Scripted(steps) as peer,
        Client(peer.on(wire), mode=OLD) as client,
        pytest.raises(ProtocolError, match="levels"),
    ):
        client.call_tool("deep", timeout=PATIENCE)


@pytest.mark.parametrize("wire", ["memory", "stdio", "http"])
def test_of_a_batch_of_answers_only_those_that_cannot_be_decoded_fail(wire: str) -> None:
    deep, good = json.loads(DEEP), {"content": [{"type": "text", "text": "good"}]}
    results = [(3, deep), (2, good), (4, deep)]
    answers = [{"jsonrpc": "2.0", "id": id, "result": result} for id, result in results]
    steps = [*opening(BATCHING), s.expect("batch"), s.message(answers), s.silence()]
    with Scripted(steps) as peer:
        target = peer.url if wire == "http" else peer.on(wire)
        with Client(target, mode=BATCHING, retry=None) as client:
            with client.batch() as batch:
                calls = [batch.call_tool(name, timeout=PATIENCE) for name in ("a", "b", "c")]
            assert calls[0].result(PATIENCE).text == "good"
            for call in calls[1:]:
                with pytest.raises(ProtocolError, match="levels"):
                    call.result(PATIENCE)


@rotated
def test_text_has_one_value_whatever_is_in_it(wire: Wire, few_values: None) -> None:
    with wire.connect(counting()) as client:
        assert client.call_tool("commas", {"count": 10_000}).text == ',[{":' * 10_000
