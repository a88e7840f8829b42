"""A message with too many values is not decoded: on every wire it ends as one that is too long."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from typing import Any, Final

import pytest

from syncmcp import Client, Http, LimitExceeded, ProtocolError, Stdio
from syncmcp._protocol import jsonrpc
from syncmcp.testing import Server, serve_http
from syncmcp.testing import script as s
from syncmcp.transports.base import Transport
from tests.support.scripts import OLD, Scripted, opening
from tests.support.stage import PATIENCE, Wire, every_wire, rotated


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that a test reaches with a small message."""
    monkeypatch.setattr(jsonrpc, "MAX_VALUES", 3000)
    monkeypatch.setattr(Transport, "max_values", 3000)


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


@pytest.mark.parametrize("wire", ["stdio", "http"])
def test_where_frames_must_be_shorter_they_may_have_fewer_values(wire: str) -> None:
    program = f"from {__name__} import counting; counting().run_stdio()"
    with serve_http(counting()) as server:
        targets: dict[str, Stdio | Http] = {
            "stdio": Stdio(sys.executable, "-c", program, max_frame=2**20),
            "http": Http(server.url, max_body=2**20),
        }
        with Client(targets[wire]) as client:
            zeros = client.call_tool("zeros", {"count": 49_000}).structured_content
            assert zeros == {"zeros": [0] * 49_000}
            with pytest.raises(LimitExceeded, match="more than 100,000 values"):
                client.call_tool("zeros", {"count": 110_000})


@pytest.mark.parametrize("wire", ["stdio", "http"])
def test_of_a_refused_message_nothing_is_held(wire: str) -> None:
    steps = [*opening(), s.expect("tools/call"), s.reply({"x": [0] * 250_000}), s.silence()]
    with Scripted(steps) as peer:
        target: Stdio | Http = Http(peer.url, max_body=2**20)
        if wire == "stdio":
            target = Stdio(*peer.command, restart="never", max_frame=2**20)
        with Client(target, mode=OLD, retry=None) as client:
            gc.collect()
            gc.disable()
            tracemalloc.start()
            try:
                with pytest.raises(LimitExceeded):
                    client.call_tool("many", timeout=PATIENCE)
                assert tracemalloc.get_traced_memory()[0] < len(json.dumps([0] * 100_000))
            finally:
                tracemalloc.stop()
                gc.enable()


BATCHING: Final = "2025-03-26"

DEEP = '{"content":[],"_meta":{"x":' + "[" * 400 + "]" * 400 + "}}"


@pytest.mark.parametrize("wire", ["memory", "stdio", "http"])
def test_only_answers_that_cannot_be_decoded_fail_at_once_in_a_batch_too(wire: str) -> None:
    deep, good = json.loads(DEEP), {"content": [{"type": "text", "text": "good"}]}
    results = [(3, deep), (2, good), (4, deep)]
    answers = [{"jsonrpc": "2.0", "id": id, "result": result} for id, result in results]
    alone = [s.expect("tools/call"), s.reply(deep)] if wire != "http" else []
    steps = [*opening(BATCHING), s.expect("batch"), s.message(answers), *alone, s.silence()]
    with Scripted(steps) as peer:
        target = peer.url if wire == "http" else peer.on(wire)
        with Client(target, mode=BATCHING, retry=None) as client:
            with client.batch() as batch:
                calls = [batch.call_tool(name, timeout=PATIENCE) for name in ("a", "b", "c")]
            assert calls[0].result(PATIENCE).text == "good"
            for call in calls[1:]:
                with pytest.raises(ProtocolError, match="levels"):
                    call.result(PATIENCE)
            if alone:
                with pytest.raises(ProtocolError, match="levels"):
                    client.call_tool("deep", timeout=PATIENCE)


@rotated
def test_text_has_one_value_whatever_is_in_it(wire: Wire, few_values: None) -> None:
    with wire.connect(counting()) as client:
        assert client.call_tool("commas", {"count": 10_000}).text == ',[{":' * 10_000
