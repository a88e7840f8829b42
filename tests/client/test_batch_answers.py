"""The answers that a server may give to a batch, in every valid and invalid form (2025-03-26)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, Final

import pytest

import syncmcp
from syncmcp import Client, ConnectionLost, HttpError, OutcomeUnknown, ParseError, ProtocolError
from syncmcp._concurrency.futures import wake_when_done
from syncmcp.testing import script as s
from tests.support.scripts import Scripted, opening
from tests.support.stage import PATIENCE

BATCHING: Final = "2025-03-26"
CALLS = ("a", "b", "c")
IDS = (2, 3, 4)  # the handshake uses id 1

every_wire = pytest.mark.parametrize("wire", ["memory", "stdio", "http"])
shared_streams = pytest.mark.parametrize("wire", ["memory", "stdio"])


def result(id: object) -> dict[str, Any]:
    """Return a response whose text is the id of its request."""
    text = {"type": "text", "text": str(id)}
    return {"jsonrpc": "2.0", "id": id, "result": {"content": [text]}}


def refusal(id: object, code: int = -32600, text: str = "no batches here") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}


class Sent:
    """A batch of three calls that was sent to a scripted server."""

    def __init__(self, peer: Scripted, client: Client) -> None:
        with client.batch() as batch:
            self.futures = [batch.call_tool(name) for name in CALLS]
        self.frame: Any = peer.requests("batch")[0]

    def assert_answered(self) -> None:
        """Check that each call got its own response."""
        texts = [future.result(PATIENCE).text for future in self.futures]
        own = {message["params"]["name"]: str(message["id"]) for message in self.frame}
        assert texts == [own[name] for name in CALLS]

    def by_id(self) -> dict[int, Any]:
        """Return the futures by the ids of their requests."""
        ids = (message["id"] for message in self.frame)
        return dict(zip(ids, self.futures, strict=True))

    def errors(self) -> list[Any]:
        """Return the error of each call; check that each is an object of its own."""
        found = [future.exception(PATIENCE) for future in self.futures]
        assert len({id(error) for error in found}) == len(CALLS)
        return found


@contextmanager
def sent(wire: str, *steps: s.Step, **options: Any) -> Iterator[Sent]:
    with Scripted([*opening(BATCHING), s.expect("batch"), *steps]) as peer:
        target = peer.url if wire == "http" else peer.on(wire)
        options.setdefault("retry", None)
        with syncmcp.connect(target, mode=BATCHING, **options) as client:
            yield Sent(peer, client)


# -- arrays, single answers, both ------------------------------------------------------------------
STRAY = [result(None), result(99), {"jsonrpc": "2.0", "method": "acme/news"}]

# Responses to a batch that give each call its own response.
ANSWERS: dict[str, list[s.Step]] = {
    "an array in any order": [s.message([result(4), *STRAY, result(2), result(3)])],
    "single answers": [s.message(result(id), final=False) for id in (3, 4, 2)],
    # An error without an id belongs to the request that has no other response.
    "an array with an error": [s.message([refusal(None), result(3), result(2), result(4)])],
}
EVENTS = [s.head(), s.event([result(3)]), s.event(result(2)), s.event([result(99), result(4)])]


@pytest.mark.parametrize(
    ("wire", "answer"), [*product(["memory", "stdio", "http"], ANSWERS), ("http", "events")]
)
@pytest.mark.requirement("RPC-12", "M-24")
def test_answers_in_any_form_and_order_answer_each_call(wire: str, answer: str) -> None:
    with sent(wire, *ANSWERS.get(answer, EVENTS)) as batch:
        assert [message["params"]["name"] for message in batch.frame] == [*CALLS]
        assert sorted(message["id"] for message in batch.frame) == [*IDS]
        batch.assert_answered()


@every_wire
def test_the_refusal_of_one_call_is_nobody_elses(wire: str) -> None:
    with sent(wire, s.message([result(2), refusal(3, -32602, "unknown"), result(4)])) as batch:
        found = batch.by_id()
        assert isinstance(found[3].exception(PATIENCE), syncmcp.InvalidParams)
        assert [found[id].result(PATIENCE).text for id in (2, 4)] == ["2", "4"]


# -- missing answers -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("steps", "error", "words"),
    [
        ([s.message([result(3)])], ProtocolError, "does not answer"),
        ([s.head(), s.event(result(3)), s.end()], OutcomeUnknown, None),
    ],
    ids=["array", "stream"],
)
def test_what_an_answer_leaves_out_was_answered_wrongly_or_may_have_been_done(
    steps: list[s.Step], error: type[syncmcp.McpError], words: str | None
) -> None:
    with sent("http", *steps) as batch:
        found = batch.by_id()
        assert found[3].result(PATIENCE).text == "3"
        for id in (2, 4):
            with pytest.raises(error, match=words):
                found[id].result(PATIENCE)


def test_a_stream_that_breaks_is_resumed_for_what_is_missing() -> None:
    listening = [s.expect("GET"), s.accept(405)]  # the stream for messages without a request
    broken = [s.head(), s.event(result(3), identifier="e1", retry=1), s.end()]
    rest = [s.expect("GET"), s.head(), s.event([result(4), result(2)])]
    script = [*opening(BATCHING), *listening, s.expect("batch"), *broken, *rest]
    with Scripted(script) as peer, syncmcp.connect(peer.url, mode=BATCHING) as client:
        Sent(peer, client).assert_answered()
        resumption = peer.transcript.wait_received("GET", 2)[1]
        assert resumption.headers["last-event-id"] == "e1"


@shared_streams
def test_the_end_of_the_server_ends_every_call_that_has_no_answer(wire: str) -> None:
    with sent(wire, s.message([result(2)]), s.cut()) as batch:
        assert batch.futures[0].result(PATIENCE).text == "2"
        errors = [future.exception(PATIENCE) for future in batch.futures[1:]]
        assert [type(error) for error in errors] == [OutcomeUnknown] * 2


# -- refused as a whole ----------------------------------------------------------------------------
@every_wire
@pytest.mark.requirement("M-24", "RPC-10")
def test_an_error_that_names_no_request_reaches_every_call_of_the_frame(wire: str) -> None:
    with sent(wire, s.message(refusal(None, -32700, "cannot read this"))) as batch:
        errors = batch.errors()
        assert [type(error) for error in errors] == [ParseError] * 3
        assert {error.method for error in errors} == {"tools/call"}


@shared_streams
def test_an_error_that_names_no_request_is_not_about_a_frame_that_was_read(wire: str) -> None:
    steps = [s.message(result(2)), s.message(refusal(None)), s.message([result(4), result(3)])]
    with sent(wire, *steps) as batch:
        batch.assert_answered()


@shared_streams
def test_with_two_frames_on_their_way_nobody_can_say_which_one_is_meant(wire: str) -> None:
    script = [*opening(BATCHING), s.expect("batch"), s.expect("batch"), s.message(refusal(None))]
    script += [s.message([*map(result, (2, 3, 4, 5))])]
    with Scripted(script) as peer, syncmcp.connect(peer.on(wire), mode=BATCHING) as client:
        with client.batch(max_size=2) as batch:
            futures = [batch.call_tool(name) for name in "abcd"]
        assert [future.result(PATIENCE).text for future in futures] == ["2", "3", "4", "5"]


def respond(status: int, body: bytes = b"") -> list[s.Step]:
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return [s.head(status, headers, chunked=False), s.raw(body)]


REFUSED: list[tuple[list[s.Step], type[syncmcp.McpError], dict[str, Any]]] = [
    (respond(404), HttpError, {"status": 404, "delivery": "refused"}),
    (respond(500), HttpError, {"status": 500, "delivery": "unknown"}),
    *(
        (respond(400, json.dumps(body).encode()), syncmcp.InvalidRequest, {"status": 400})
        for body in (refusal(None), [refusal(id) for id in IDS])
    ),
    *((respond(200, body), ProtocolError, {}) for body in (b"[{]", b"[]", b'[7, null, "x"]')),
    ([s.accept()], ProtocolError, {}),
]


@pytest.mark.parametrize(("steps", "kind", "facts"), REFUSED, ids=range(len(REFUSED)))
def test_what_refuses_the_frame_or_is_no_answer_reaches_every_call_of_it(
    steps: list[s.Step], kind: type[syncmcp.McpError], facts: dict[str, Any]
) -> None:
    with sent("http", *steps) as batch:
        for error in batch.errors():
            assert type(error) is kind
            assert {name: getattr(error, name) for name in facts} == facts


# -- retries ---------------------------------------------------------------------------------------
LIST_TWICE = [s.expect("prompts/list"), s.reply({"prompts": []})] * 2


@pytest.mark.parametrize("failure", ["memory", "stdio", "overload"])
def test_what_may_be_done_twice_is_sent_again_alone(failure: str) -> None:
    frame = [*opening(BATCHING), s.expect("batch")]
    if failure == "overload":
        busy = s.head(503, {"content-length": "0"}, chunked=False)
        scripts = [[*frame, busy, *LIST_TWICE]]
    else:  # the connection ends
        scripts = [[*frame, s.cut()], [*opening(BATCHING), *LIST_TWICE]]
    with Scripted(*scripts) as peer:
        targets: dict[str, Any] = {
            "memory": peer,
            "stdio": syncmcp.Stdio(*peer.command),
            "overload": peer.url,
        }
        retry = syncmcp.Retry(pause=0.0)
        with syncmcp.connect(targets[failure], mode=BATCHING, retry=retry) as client:
            with client.batch() as batch:
                call = batch.call_tool("a")
                lists = [batch.list_prompts(), batch.list_prompts()]
            kind = HttpError if failure == "overload" else OutcomeUnknown
            assert isinstance(call.exception(PATIENCE), kind)
            for prompts in lists:
                assert prompts.result(PATIENCE).prompts == []
                assert prompts.attempts == 2
            sent: Any = peer.requests("batch")[0]
            methods = [message["method"] for message in sent]
            assert methods == ["tools/call", *["prompts/list"] * 2]
            assert len(peer.requests("prompts/list", 2)) == 2
            # The tool call is not repeated. The other requests are repeated outside a frame.
            assert call.attempts == 1
            assert peer.requests("tools/call", 0) == []
            assert len(peer.requests("batch")) == 1


def test_a_call_cancelled_while_its_frame_fails_is_not_sent_again() -> None:
    first = [*opening(BATCHING), s.expect("batch"), s.gate("die"), s.cut()]
    with (
        Scripted(first, [*opening(BATCHING), *LIST_TWICE]) as peer,
        syncmcp.connect(peer, mode=BATCHING) as client,
    ):
        with client.batch() as batch:
            futures = [batch.list_prompts() for _ in CALLS]
        peer.requests("batch")

        def meanwhile() -> None:  # the future is cancelled, but its request still open
            peer.open("die")
            peer.requests("initialize", 2)

        wake_when_done(futures[0], meanwhile)
        assert futures[0].cancel()
        assert [future.result(PATIENCE).prompts for future in futures[1:]] == [[], []]
        assert len(peer.requests("prompts/list", 2)) == 2


def test_a_frame_that_cannot_be_sent_fails_every_call_as_not_sent() -> None:
    with Scripted(opening(BATCHING)) as peer:
        client = syncmcp.connect(peer.url, mode=BATCHING, retry=None)
    with client:
        with client.batch() as batch:
            futures = [batch.call_tool(name) for name in CALLS]
        errors: list[Any] = [future.exception(PATIENCE) for future in futures]
    assert all(isinstance(error, ConnectionLost | syncmcp.ConnectFailed) for error in errors)
    assert {error.delivery for error in errors} == {"not_sent"}
