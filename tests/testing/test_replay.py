"""A replay answers like the recorded server, to any client, in any order."""

from __future__ import annotations

import json
import logging
import pickle
import threading
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import HandlerContext
from syncmcp.testing import NotRecorded, Recording, Replay, ScriptedPeer, Server, serve_http
from syncmcp.testing import script as s
from syncmcp.types import CallToolResult, ElicitResult
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Wire,
    every_wire,
    in_threads,
    nervous,
)
from tests.testing.sessions import Visit, record, replay, shop

MEMORY = Wire("memory", STATEFUL)
both_eras = pytest.mark.parametrize("wire", [MEMORY, Wire("http", STATELESS)], ids=str)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.jsonl"


def write(path: Path, *entries: dict[str, Any], ended: bool = True) -> Path:
    """Write a recording: a handshake, then these entries of one connection."""
    hello = {
        "protocolVersion": STATEFUL,
        "capabilities": {"tools": {}, "logging": {}},
        "serverInfo": {"name": "by hand", "version": "1"},
    }
    start: list[dict[str, Any]] = [
        {"opened": {"blocking": False, "ordered": True}},
        {"sent": {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}},
        {"got": {"jsonrpc": "2.0", "id": 1, "result": hello}},
        {"sent": {"jsonrpc": "2.0", "method": "notifications/initialized"}},
        {"adopted": {"stateful": True}},
    ]
    rest = [{"closed": True}] if ended else []
    text = [{"syncmcp-recording": 1, "server": "by hand"}]
    text += [{"connection": 1, **entry} for entry in (*start, *entries, *rest)]
    path.write_text("".join(json.dumps(line) + "\n" for line in text), encoding="utf-8")
    return path


def asks(id: int, text: str = "", method: str = "tools/call") -> dict[str, Any]:
    params = {"name": "say", "arguments": {"text": text}, "_meta": {"progressToken": id}}
    return {"sent": {"jsonrpc": "2.0", "id": id, "method": method, "params": params}}


def says(id: int, text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"got": {"jsonrpc": "2.0", "id": id, "result": {"content": content}}}


def logs(text: str) -> dict[str, Any]:
    params = {"level": "info", "data": text}
    return {"got": {"jsonrpc": "2.0", "method": "notifications/message", "params": params}}


def say(client: syncmcp.Client, text: str = "", **options: Any) -> str | None:
    return client.call_tool("say", {"text": text}, **options).text


def opened(played: Any, **options: Any) -> syncmcp.Client:
    played = Replay(played) if isinstance(played, Path) else played
    return syncmcp.connect(played, mode="legacy", validate_output="off", **options)


@pytest.mark.parametrize("was_there", [True, False])
def test_the_end_of_a_stream_ends_the_waits_for_what_it_may_bring_if_it_was_there(
    was_there: bool, path: Path
) -> None:
    link = {"mode": "url", "message": "Look", "url": "https://example.org/", "elicitationId": "e"}
    question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": link}
    agreed = {"jsonrpc": "2.0", "id": "q", "result": {"action": "accept"}}
    recorded = [{"got": question}, {"sent": agreed}, says(2, "hi")]
    write(path, asks(2), *recorded, {"silent": was_there}, logs("after"))
    contexts, after = list[HandlerContext](), threading.Event()

    def agree(request: Any, context: HandlerContext) -> ElicitResult:
        contexts.append(context)
        return ElicitResult.accept()

    elicitation = syncmcp.Elicitation(url=agree)
    with opened(path, elicitation=elicitation, on_log=lambda _: after.set()) as client:
        assert say(client) == "hi"
        assert after.wait(PATIENCE)
        if was_there:
            assert contexts[0].cancel.wait(PATIENCE)
        assert contexts[0].cancel.cancelled == was_there


def test_a_gap_in_what_belongs_to_no_request_is_played_at_its_time(path: Path) -> None:
    write(path, asks(2, "a"), asks(3, "b"), says(3, "B"), {"missed": True}, says(2, "A"))
    with opened(path) as client:
        events = client.listen(tools=True, timeout=0, undeclared="try")
        first = client.call_tool.future("say", {"text": "a"})
        client.ping()
        with pytest.raises(TimeoutError):
            next(events)
        assert say(client, "b") == "B"
        assert first.result(PATIENCE).text == "A"
        assert next(events) == syncmcp.ChangeEvent("tools", missed=True)


@every_wire
@pytest.mark.pitfall("33")
def test_a_program_sees_the_same_with_the_recording_as_with_the_server(
    wire: Wire, path: Path
) -> None:
    seen = record(wire, path)
    assert replay(path, wire.revision) == seen
    assert replay(path, wire.revision, order="recorded") == seen
    assert replay(path, "auto") == seen
    assert len(seen) > 10
    header, opened, *rest = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert header["syncmcp-recording"] == 1
    assert opened["opened"]["blocking"] is (wire.transport in ("http", "sse"))
    assert list(rest[-1]) == ["connection", "closed"]
    sent, got = (
        Counter(line[kind].get("method") for line in rest if kind in line)
        for kind in ("sent", "got")
    )
    assert sent["tools/list"] == 2
    assert sent["tools/call"] == (5 if wire.revision == STATELESS else 4)
    assert got["notifications/progress"] == 3
    assert got["notifications/message"] == 2
    assert ("elicitation/create" in got) is (wire.revision == STATEFUL)


@pytest.mark.parametrize("revisions", [[STATEFUL], [STATEFUL, STATELESS]])
def test_what_was_found_out_in_the_recording_is_found_out_again(
    revisions: list[str], path: Path
) -> None:
    with (
        serve_http(Server("either", revisions=revisions)) as http,
        syncmcp.connect(Recording(http.url, path)) as client,
    ):
        assert client.server.revision == revisions[-1]
    with syncmcp.connect(Replay(path)) as client:
        assert client.server.revision == revisions[-1]


def test_a_server_that_the_probe_breaks_can_be_played(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp._client.opening._REPROBE_SECONDS", 0.05)
    broken = [s.expect("server/discover"), s.expect("server/discover"), s.cut(code=1)]
    with (
        ScriptedPeer(broken, s.handshake()) as peer,
        syncmcp.connect(Recording(syncmcp.Stdio(*peer.command), path)) as client,
    ):
        assert client.server.revision == STATEFUL
    with syncmcp.connect(Replay(path)) as client:
        assert client.server.revision == STATEFUL
    assert path.read_text("utf-8").count("server/discover") == 2


def test_the_fallback_to_an_older_transport_needs_no_playing(path: Path) -> None:
    with serve_http(shop()) as http, syncmcp.connect(Recording(http.sse_url, path)) as client:
        assert client.server.revision == STATEFUL
        assert client.call_tool("price", {"item": "pear"}).text == "45"
    with syncmcp.connect(Replay(path)) as client:
        assert client.call_tool("price", {"item": "pear"}).text == "45"


class TestWhatWasNotRecorded:
    def test_is_refused_with_the_difference(self, path: Path) -> None:
        record(MEMORY, path)
        recording = Replay(path)
        with syncmcp.connect(recording, mode=STATEFUL) as client:
            with pytest.raises(NotRecorded) as caught:
                client.call_tool("price", {"item": "quince", "currency": "NOK"})
            assert caught.value.differences == (
                'arguments.item: recorded "pear"; asked "quince"',
                'arguments.currency: recorded nothing; asked "NOK"',
            )
            assert str(caught.value).startswith(
                "tools/call [replay of shop.jsonl]: it was not recorded with these parameters:\n"
            )
            later = client.call_tool.future("price", {"item": "Bearer abcdef123456"})
            secret = later.exception(PATIENCE)
            assert isinstance(secret, NotRecorded)
            assert "abcdef123456" not in repr(secret) + str(vars(secret))
            with pytest.raises(
                NotRecorded, match="the recording has: initialize, resources/read, too"
            ):
                client.request("shop/close", {}, result=dict)
            client.ping()  # answered without a recording
            assert client.call_tool("price", {"item": "pear"}).text == "45"
        assert [type(error) for error in recording.unexpected] == [NotRecorded] * 3
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    def test_is_the_same_request_once_more(self, path: Path) -> None:
        write(path, asks(2, "a"), says(2, "first"), asks(3, "a"), says(3, "second"))
        recording = Replay(path)
        assert recording.unplayed == ["initialize", "tools/call", "tools/call"]
        with opened(recording) as client:
            assert say(client, "a") == "first"
            assert recording.unplayed == ["tools/call"]
            assert say(client, "a") == "second"
            with pytest.raises(NotRecorded, match="recorded 2 times"):
                say(client, "a")

    @both_eras
    def test_is_another_answer_to_a_question(self, wire: Wire, path: Path) -> None:
        record(wire, path)
        visit, recording = Visit(size=4), Replay(path)
        with visit.client(recording, mode=wire.revision) as client:
            with pytest.raises(NotRecorded, match=r"content\.size: recorded 3; asked 4") as caught:
                client.call_tool("order", {"item": "pear"})
            assert ("elicitation/create" in str(caught.value)) == (wire.revision == STATEFUL)
        assert len(recording.unexpected) == 1

        def same_size(method: str, value: Any) -> Any:
            return value | {"content": None} if method == "elicitation/create" else value

        if wire == MEMORY:
            recording = Replay(path, normalize=same_size)
            with Visit(size=4).client(recording, mode=STATEFUL) as client:
                told = client.call_tool("order", {"item": "pear"}).text
                assert told == "accept: {'size': 3} of pear"

    @both_eras
    def test_is_a_list_of_tools_more_often_than_recorded(self, wire: Wire, path: Path) -> None:
        """A client lists the tools again when the server notifies it of a change."""
        record(wire, path)
        recording = Replay(path)
        with syncmcp.connect(recording, mode=wire.revision, cache=False) as client:
            listed = [[tool.name for tool in client.list_tools().tools] for _ in range(4)]
            with pytest.raises(NotRecorded):
                client.request("tools/list", {"another": "list"}, result=dict)
        assert listed == [["price", "count", "order"]] * 4
        assert len(recording.unexpected) == 1

    def test_is_another_request_for_what_the_server_is(self, path: Path) -> None:
        """It takes the place of a ping in the stateless revision."""
        with syncmcp.connect(Recording(shop(), path)) as client:
            revisions = client.request("server/discover", result=dict)["supportedVersions"]
        with syncmcp.connect(Replay(path)) as client:
            for _ in range(2):
                again = client.request("server/discover", result=dict)
                assert again["supportedVersions"] == revisions

    def test_a_normalize_without_a_return_is_an_error(self, path: Path) -> None:
        write(path, asks(2, "a"), says(2, "first"))
        replay = Replay(path, normalize=lambda method, value: None)
        said = r"normalize returned None for initialize: is a return missing\?"
        with pytest.raises(NotRecorded, match=said), opened(replay):
            pass

    @pytest.mark.parametrize("order", ["causal", "recorded"])
    def test_is_said_even_if_the_comparison_fails(self, order: Any, path: Path) -> None:
        write(path, asks(2, "a"), says(2, "first"))

        def broken(method: str, value: Any) -> Any:
            return value["missing"] if method == "tools/call" else value

        with (
            opened(Replay(path, normalize=broken, order=order)) as client,
            pytest.raises(NotRecorded, match="normalize failed: KeyError: 'missing'"),
        ):
            say(client, "a")


class TestOrder:
    def test_requests_may_come_in_another_order_and_one_after_another(self, path: Path) -> None:
        write(path, asks(2, "a"), asks(3, "b"), logs("of both"), says(3, "B"), says(2, "A"))
        for texts in ("ab", "ba"):
            with opened(path) as client:
                assert [say(client, text, timeout=PATIENCE) for text in texts] == [*texts.upper()]
        # The messages of a call that is not made are not delivered.
        write(path, asks(2, "a"), logs("of a"), says(2, "A"), asks(3, "b"), says(3, "B"))
        seen: list[Any] = []
        with opened(path, on_log=lambda log: seen.append(log.data)) as client:
            assert say(client, "b") == "B"
        assert seen == []

    def test_the_order_of_the_recording_can_be_insisted_on(self, path: Path) -> None:
        write(path, asks(2, "a"), asks(3, "b"), says(3, "B"), says(2, "A"))
        second: Future[CallToolResult] = Future()
        both, earlier = threading.Event(), threading.Event()

        def look(_: object) -> None:
            if both.wait(PATIENCE) and second.done():
                earlier.set()

        recording = Replay(path, order="recorded")
        with opened(recording) as client:
            first = client.call_tool.future("say", {"text": "a"})
            first.add_done_callback(look)
            second = client.call_tool.future("say", {"text": "b"})
            both.set()
            assert (first.result(PATIENCE).text, second.result(PATIENCE).text) == ("A", "B")
            assert earlier.wait(PATIENCE)
        # `close` ends a call that waits for its turn.
        with opened(recording) as client:
            first = client.call_tool.future("say", {"text": "a"})
        assert isinstance(first.exception(PATIENCE), syncmcp.ClosedError)

    def test_what_is_told_in_between_comes_in_between(self, path: Path) -> None:
        first = [asks(2, "a"), logs("before"), says(2, "A"), logs("between")]
        write(path, *first, asks(3, "b"), logs("after"), says(3, "B"))
        seen: list[Any] = []
        told = threading.Semaphore(0)

        def on_log(log: Any) -> None:
            seen.append(log.data)
            told.release()

        with opened(path, on_log=on_log) as client:
            seen.append(say(client, "a"))
            assert told.acquire(timeout=PATIENCE)
            assert told.acquire(timeout=PATIENCE)
            seen.append(say(client, "b"))
        # Logs arrive on another thread: the second may arrive before or after the first answer.
        assert [said for said in seen if said != "A"] == ["before", "between", "after", "B"]
        assert seen.index("A") in (1, 2)

    def test_an_answer_waits_for_the_answer_to_the_question_before_it(self, path: Path) -> None:
        question = {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}
        answer = {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}
        write(path, asks(2), {"got": question}, {"sent": answer}, says(2, "A"))
        asked, go = threading.Event(), threading.Event()

        def roots(context: Any) -> list[str]:
            asked.set()
            assert go.wait(PATIENCE)
            return []

        with opened(path, roots=roots) as client:
            call = client.call_tool.future("say", {"text": ""})
            assert asked.wait(PATIENCE)
            assert not call.done()
            go.set()
            assert call.result(PATIENCE).text == "A"

    def test_many_threads_get_the_answers_to_what_they_asked(self, path: Path) -> None:
        wire = MEMORY

        def counted() -> list[Any]:
            steps: list[Any] = [client.call_tool("price", {"item": "pear"}).text]
            client.call_tool(
                "count", {"shelves": 2}, on_progress=lambda step, *_: steps.append(step)
            )
            return steps

        with (
            wire.serve(shop()) as reached,
            syncmcp.connect(Recording(reached, path), mode=wire.revision) as client,
        ):
            for _ in range(15):
                assert counted()[0] == "45"
        recording = Replay(path)
        with nervous(), syncmcp.connect(recording, mode=wire.revision) as client:
            told = in_threads(*[lambda: [counted() for _ in range(5)]] * 3)
        assert told == [[["45", 1.0, 2.0]] * 5] * 3
        assert recording.unplayed == []
        assert recording.unexpected == []


class TestConnections:
    def test_each_connection_plays_the_next_one_and_later_ones_the_last(self, path: Path) -> None:
        server = Server("counting")
        calls = iter(range(9))
        server.add_tool(lambda: str(next(calls)), name="next")
        recorded = syncmcp.Client(Recording(server, path))
        for _ in range(2):
            with recorded:
                recorded.call_tool("next")
        server.close()
        copy = pickle.loads(pickle.dumps(Replay(path, order="recorded")))
        assert repr(copy) == f"Replay({str(path)!r})"
        for replayed in (syncmcp.Client(Replay(path)), syncmcp.Client(copy)):
            seen = []
            for _ in range(3):
                with replayed:
                    seen.append(replayed.call_tool("next").text)
            assert seen == ["0", "1", "1"]

    def test_a_session_that_was_lost_is_lost_again(self, path: Path) -> None:
        with (
            serve_http(shop()) as http,
            syncmcp.connect(Recording(http.url, path), mode=STATEFUL) as client,
        ):
            first = client.call_tool("price", {"item": "pear"}).text
            http.endpoint.forget_sessions()
            second = client.call_tool("price", {"item": "apple"}).text
        with syncmcp.connect(Replay(path), mode=STATEFUL) as client:
            assert client.call_tool("price", {"item": "pear"}).text == first
            assert client.call_tool("price", {"item": "apple"}).text == second

    def test_a_server_that_could_not_be_reached_is_not_reached_again(self, path: Path) -> None:
        with pytest.raises(syncmcp.ConnectFailed) as real:
            syncmcp.connect(Recording(syncmcp.Stdio("no-such-program-anywhere"), path))
        with pytest.raises(syncmcp.ConnectFailed) as replayed:
            syncmcp.connect(Replay(path))
        assert replayed.value.message == real.value.message

    def test_an_http_status_is_the_same_status_again(self, path: Path) -> None:
        plain = {"Content-Type": "text/plain"}
        refuses = [s.expect("tools/call"), s.head(503, plain), s.chunk(b"closed"), s.end()]
        with (
            ScriptedPeer([*s.handshake(), *refuses]) as peer,
            opened(Recording(peer.url, path), retry=None) as client,
            pytest.raises(syncmcp.HttpError) as real,
        ):
            say(client)
        with opened(path, retry=None) as client, pytest.raises(syncmcp.HttpError) as replayed:
            say(client)
        assert (replayed.value.status, replayed.value.body) == (503, real.value.body)

    @both_eras
    def test_a_call_that_got_no_answer_gets_none_and_can_be_cancelled(
        self, wire: Wire, path: Path
    ) -> None:
        server = Server("slow")
        begun, go = threading.Event(), threading.Event()

        @server.tool()
        def say() -> str:
            begun.set()
            return str(go.wait(PATIENCE))

        def withdrawn(client: syncmcp.Client) -> bool:
            token = syncmcp.CancelToken()
            call = client.call_tool.future("say", cancel=token)
            assert begun.wait(PATIENCE)
            token.cancel()
            return isinstance(call.exception(PATIENCE), syncmcp.RequestCancelled)

        with (
            wire.serve(server) as reached,
            syncmcp.connect(Recording(reached, path), mode=wire.revision) as client,
        ):
            assert withdrawn(client)
            go.set()
        with syncmcp.connect(Replay(path), mode=wire.revision) as client:
            assert withdrawn(client)
        server.close()


@both_eras
def test_change_events_come_again(wire: Wire, path: Path) -> None:
    server = shop()
    with (
        wire.serve(server) as reached,
        syncmcp.connect(Recording(reached, path), mode=wire.revision) as client,
        client.listen(uris=["shelf://all"]) as changes,
    ):
        server.resource_updated("shelf://all")
        real = next(changes)
    with (
        syncmcp.connect(Replay(path), mode=wire.revision) as client,
        client.listen(uris=["shelf://all"], timeout=PATIENCE) as changes,
    ):
        assert next(changes) == real
    server.close()


FIRST = '{"syncmcp-recording": 1}\n'


class TestFiles:
    def test_a_recording_that_was_cut_answers_as_far_as_it_goes(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        write(path, asks(2, "a"), says(2, "A"), asks(3, "b"), says(3, "B"), ended=False)
        whole = path.read_bytes()
        path.write_bytes(whole[: whole.rindex(b'"content"')])
        with caplog.at_level(logging.WARNING, "syncmcp.testing"), opened(path) as client:
            assert "ends in the middle of line 10" in caplog.text
            assert say(client, "a") == "A"
            with pytest.raises(syncmcp.ConnectionLost, match="recording ends before the response"):
                say(client, "b")
        # Cut anywhere, it can be read, or the error says that it is not a recording.
        first = whole.index(b"\n")
        for end in range(0, len(whole), 17):
            path.write_bytes(whole[:end])
            if whole.find(b"\n", first + 1) < end:
                Replay(path)
            else:
                with pytest.raises(syncmcp.UsageError, match="recording"):
                    Replay(path)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "first line does not say so"),
            ("[]\n", "first line does not say so"),
            ("nothing\n", "first line does not say so"),
            ('{"syncmcp-recording": 2}\n', "of version 2; this library reads only 1"),
            (FIRST, "is an empty recording"),
            (FIRST + '{"connection": 1}\n', "line 2: it must have one of"),
            (FIRST + '{"closed": true}\n', "line 2: it is not an object with"),
            (FIRST + '\n{"connection": 1, \n\n', "line 3: Expecting"),
            (
                FIRST + '{"connection": 1, "got": 1, "for": "x"}\n',
                "line 2: for and status are whole numbers",
            ),
        ],
    )
    def test_what_is_no_recording_is_refused_with_its_line(
        self, text: str, said: str, path: Path
    ) -> None:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(syncmcp.UsageError, match=said):
            Replay(path)

    def test_a_file_that_is_not_there_is_refused_at_once(self, path: Path) -> None:
        with pytest.raises(syncmcp.UsageError, match="cannot read the recording"):
            Replay(path)
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(syncmcp.UsageError, match="not UTF-8"):
            Replay(path)
        with pytest.raises(syncmcp.UsageError, match="'causal' or 'recorded'"):
            Replay(path, order="random")  # type: ignore[arg-type]

    def test_nonsense_of_the_server_is_played_as_the_nonsense_it_was(self, path: Path) -> None:
        odd: list[dict[str, Any]] = [
            {"got_text": "Listening on port 3000"},
            {"got": [1, {"jsonrpc": "2.0", "id": [7], "result": {}}]},
            {"got": {"jsonrpc": "2.0", "id": 99, "result": {}}},
        ]
        write(path, asks(2), *odd, says(2, "A"))
        with opened(path) as client:
            assert say(client) == "A"

    def test_a_batch_of_answers_is_played_when_all_were_asked(self, path: Path) -> None:
        batch = [says(3, "B")["got"], says(2, "A")["got"]]
        write(path, {"sent": [asks(2, "a")["sent"], asks(3, "b")["sent"]]}, {"got": batch})
        with opened(path) as client:
            first = client.call_tool.future("say", {"text": "a"})
            assert not first.done()
            assert say(client, "b") == "B"
            assert first.result(PATIENCE).text == "A"

    def test_a_masked_parameter_fits_anything_and_the_same_one_best(self, path: Path) -> None:
        both = [asks(2, "key ***1"), says(2, "first"), asks(3, "key ***2"), says(3, "second")]
        write(path, *both)
        with opened(path) as client:
            assert say(client, "key ***2") == "second"
            assert say(client, "key 4711") == "first"
        with opened(path) as client, pytest.raises(NotRecorded):
            say(client, "lock 4711")


def test_a_recording_written_in_2026_can_still_be_played() -> None:
    # Users keep recordings for years, so old files must remain readable.
    kept = Path(__file__).with_name("kept_recording.jsonl")
    with syncmcp.connect(Replay(kept)) as client:
        assert client.call_tool("price", {"item": "pear"}).text == "45"
