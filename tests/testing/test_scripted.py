"""The scripted peer on its three transports: messages, transcript and failures."""

from __future__ import annotations

import contextlib
import http.client
import inspect
import json
import os
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import syncmcp
import syncmcp.testing
from syncmcp.testing import ScriptedPeer
from syncmcp.testing import script as s
from syncmcp.testing.scripted import ScriptError
from tests.testing.wires import PATIENCE, Child, Http, Memory, decoded, read_event

HELLO = {"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"_meta": {"progressToken": "t"}}}
NOTE = {"jsonrpc": "2.0", "method": "note"}


@contextlib.contextmanager
def over_http(peer: ScriptedPeer) -> Iterator[Http]:
    with peer, Http(peer.url) as client:
        yield client


def test_the_steps_of_a_script_are_public() -> None:
    assert "script" in syncmcp.testing.__all__
    assert syncmcp.testing.script is s
    public = {name: value for name, value in vars(s).items() if not name.startswith("_")}
    steps = {name for name, value in public.items() if inspect.isfunction(value)}
    assert steps == set(s.__all__) - {"ID", "PROGRESS_TOKEN", "Script", "Step"}


def test_a_script_is_played_in_order() -> None:
    peer = ScriptedPeer(
        [
            s.expect("hello", label="first"),
            s.gate("go"),
            s.garbage(),
            s.repeat([s.raw(b"again\n")], times=2),
            s.progress(1, 2, "half"),
            s.request("ping", identifier=9),
            s.withdraw(9, "never mind"),
            s.expect("response"),
            s.drip(s.reply({"said": s.ID}, to="first"), every=0.0001),
            s.error(-5, "no", {"why": 1}, to="first"),
            s.expect("hello", label="second"),
            s.input_required({"a": ("roots/list", None)}, ""),
            s.reply("late", to="first"),
            s.silence(),
            s.reply("never"),
        ]
    )
    with peer, Memory(peer) as client:
        client.send(NOTE)
        client.send(HELLO)
        peer.transcript.wait_received("hello")
        assert client.quiet()
        peer.open("go")
        with pytest.raises(ValueError, match=r"utf-8|Expecting"):
            client.next()
        assert [client.line(), client.line()] == [b"again", b"again"]
        assert client.next()["params"] == {
            "progressToken": "t", "progress": 1, "total": 2, "message": "half",
        }  # fmt: skip
        assert client.next() == {"jsonrpc": "2.0", "id": 9, "method": "ping"}
        assert client.next()["params"] == {"requestId": 9, "reason": "never mind"}
        client.send({"jsonrpc": "2.0", "id": 9, "result": {}})
        assert client.next() == {"jsonrpc": "2.0", "id": 1, "result": {"said": 1}}
        error = {"code": -5, "message": "no", "data": {"why": 1}}
        assert client.next() == {"jsonrpc": "2.0", "id": 1, "error": error}
        client.send({**HELLO, "id": "1"})
        result = {"inputRequests": {"a": {"method": "roots/list"}}, "requestState": ""}
        assert client.next()["result"] == {"resultType": "input_required", **result}
        assert client.next() == {"jsonrpc": "2.0", "id": 1, "result": "late"}
        assert peer.transcript.methods() == ["note", "hello", "response", "hello"]
        assert peer.transcript.received[1].message == HELLO
        client.close()
        assert peer.transcript.wait_event("disconnected")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (s.head(), "head has no meaning in memory"),
        (s.reply({}, to="b"), "no message was expected with the label 'b'"),
        (s.message({1, 2}), "TypeError"),
    ],
    ids=["place", "label", "type"],
)
def test_a_script_without_sense_fails_loudly(step: s.Step, said: str) -> None:
    peer = ScriptedPeer([s.expect("ping"), step])
    ended = threading.Event()
    Memory(peer, ended.set).ask("ping")
    assert ended.wait(PATIENCE)
    with pytest.raises(ScriptError, match=said):
        peer.close()


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (s.reply({}), "a reply needs an expect before it"),
        (s.progress(1), "a progress notification needs an expect before it"),
        (s.cut(), "over HTTP, a cut needs an expect before it"),
    ],
    ids=["reply", "progress", "cut"],
)
def test_a_step_that_responds_needs_an_expect_before_it(step: s.Step, said: str) -> None:
    peer = ScriptedPeer([step])
    assert peer.url
    assert peer.transcript.wait_for(lambda seen: any("failed" in each for each in seen.events))
    with pytest.raises(ScriptError, match=f"^failed: {said}"):
        peer.close()


@pytest.mark.parametrize("last", [s.reply({}), s.cut(), s.silence()], ids=["reply", "cut", "no"])
def test_a_script_is_finished_with_its_last_step(last: s.Step) -> None:
    with ScriptedPeer([s.expect("ping"), last]) as peer, Memory(peer) as client:
        assert not peer.transcript.wait_event("finished", timeout=0)
        client.ask("ping")
        peer.transcript.wait_received("ping")
        client.close()
        assert peer.transcript.wait_event("finished")
    with ScriptedPeer([s.expect("ping"), s.cut(), s.silence()]) as other, Memory(other) as client:
        client.ask("ping")
        assert not other.transcript.wait_event("finished", timeout=0.01)


def test_the_transcript_names_the_step_of_each_unfinished_script() -> None:
    steps = [s.expect("ping"), s.reply({}), s.repeat([s.gate("go"), s.expect("tools/call")], 1)]
    with ScriptedPeer(steps) as peer, Memory(peer) as client, Memory(peer) as other:
        for one in (client, other):
            one.ask("ping")
        at_gate = "the script is at step 3 of 3: gate 'go'"
        shown = f"<Transcript of 2 messages; {at_gate}; {at_gate}>"
        assert peer.transcript.wait_for(lambda seen: repr(seen) == shown)
        peer.open("go")
        client.send({"jsonrpc": "2.0", "method": "tools/call"})
        assert peer.transcript.wait_event("finished")
        other.close()
        ended = "the script is at step 3 of 3: expect 'tools/call'"
        shown = f"<Transcript of 3 messages; {ended}>"
        assert peer.transcript.wait_for(lambda seen: repr(seen) == shown)
    with ScriptedPeer([s.expect("ping"), s.cut()]) as peer, Memory(peer) as client:
        client.send({"jsonrpc": "2.0", "method": "ping"})
        assert peer.transcript.wait_event("finished")
        assert repr(peer.transcript) == "<Transcript of 1 messages>"


@pytest.mark.parametrize(
    ("pair", "kind"),
    [({"method": "roots/list"}, "dict"), ("ab", "str"), (("roots/list",), "tuple")],
)
def test_a_question_of_input_required_is_a_method_with_its_params(pair: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"\['a'\] must be a tuple \(method, params\), not {kind}"):
        s.input_required({"a": pair})


@pytest.mark.parametrize(
    ("step", "args", "said"),
    [
        (s.drip, ([s.reply({})], 0.1), "step must be one step, not list: write drip(step, 0.1)"),
        (s.drip, (0.1, s.reply({})), "not float: write drip(step, 0.1)"),
        (s.drip, (s.reply({}), "x"), "every must be a number of seconds"),
        (s.error, ("no", -5), "code must be an int: write error(code, text)"),
        (s.head, ({"retry-after": "0"},), "status must be an int, not dict: write head(200)"),
    ],
    ids=["list", "swapped drip", "seconds", "swapped error", "headers"],
)
def test_wrong_arguments_of_a_step_are_refused_at_once(step: Any, args: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        step(*args)


def test_what_is_waited_for_in_vain_is_told_with_what_came() -> None:
    with ScriptedPeer([]) as peer, Memory(peer) as client:
        client.ask("ping")
        with pytest.raises(TimeoutError, match=r"pong came 0 times, not 1; received: \['ping'\]"):
            peer.transcript.wait_received("pong", timeout=0)
        with pytest.raises(syncmcp.UsageError, match="predicate must be callable, not bool"):
            peer.transcript.wait_for(True)  # type: ignore[arg-type]


def test_an_event_that_no_transcript_has_is_a_mistake() -> None:
    with ScriptedPeer([]) as peer:
        with pytest.raises(ValueError, match="no event 'finshed': did you mean 'finished'"):
            peer.transcript.wait_event("finshed")
        with pytest.raises(ValueError, match="the events are connected, disconnected, finished"):
            peer.transcript.wait_event("abc")
        assert not peer.transcript.wait_event("failed: TypeError", timeout=0)
        assert not peer.transcript.wait_event("started: 5", timeout=0)


@pytest.mark.parametrize(
    ("steps", "warns"),
    [
        ([s.head(429)], True),
        ([s.head(429), s.expect("later")], True),
        ([s.head(200)], False),
        ([s.head(429), s.end()], False),
        ([s.head(429), s.cut()], False),
        ([s.head(429, {"Content-Length": "0"})], False),
    ],
    ids=["last", "then an expect", "a stream", "end", "cut", "a length"],
)
def test_an_error_response_without_end_is_warned_of(
    steps: list[s.Step], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedPeer([s.expect("hello"), *steps]) as peer, Http(peer.url) as client:
        assert client.request("POST", HELLO).status == steps[0]["status"]
        place = "expect 'later'" if s.expect("later") in steps else ""
        assert peer.transcript.wait_for(
            lambda seen: "finished" in seen.events or bool(place and place in repr(seen))
        )
    said = "write script.end() after script.head(429), or script.silence()"
    assert [said in each.getMessage() for each in caplog.records] == [True] * warns


def test_a_reply_to_a_response_and_a_gate_that_no_script_has_are_mistakes() -> None:
    asking = [s.expect("ping"), s.request("roots/list"), s.expect("response"), s.reply({})]
    peer, ended = ScriptedPeer(asking), threading.Event()
    with Memory(peer, ended.set) as client:
        client.ask("ping")
        client.send({"jsonrpc": "2.0", "id": 1, "result": {}})
        assert ended.wait(PATIENCE)
    with pytest.raises(ScriptError, match="the last expect is a response, which gets no reply"):
        peer.close()
    drip, other = s.drip(s.gate("c"), 1), s.gate("a")
    with ScriptedPeer([s.repeat([s.gate("b"), drip])], [other]) as gated:
        for name in "abc":
            gated.open(name)
        with pytest.raises(ValueError, match=r"has the gate 'x'; the gates are: 'a', 'b', 'c'$"):
            gated.open("x")
    with ScriptedPeer([]) as empty, pytest.raises(ValueError, match="the gates are: none"):
        empty.open("x")


@pytest.mark.parametrize("closed_by", ["the peer", "the client"])
def test_a_request_that_no_step_expects_is_told_at_the_end(closed_by: str) -> None:
    peer = ScriptedPeer([s.expect("tools/cal"), s.reply({})])
    line = Memory(peer)
    line.notify("notifications/initialized")
    line.ask("tools/call")
    if closed_by == "the client":
        line.close()
    hint = r"did you mean 'tools/call'\?$"
    with pytest.raises(
        ScriptError, match=f"waited for 'tools/cal', while 'tools/call' came: {hint}"
    ):
        peer.close()
    unopened = ScriptedPeer([s.expect("tools/call")])
    Memory(unopened).ask("initialize")
    with pytest.raises(
        ScriptError, match=r"'initialize' came: begin the script with \*script.handshake\(\.\.\.\)"
    ):
        unopened.close()
    unprobed = ScriptedPeer([s.expect("initialize")])
    Memory(unprobed).ask("server/discover")
    with pytest.raises(ScriptError, match=r"handshake\(probe=True\)"):
        unprobed.close()
    with ScriptedPeer([s.expect("tools/call")]) as quiet, Memory(quiet) as line:
        line.notify("notifications/initialized")  # needs no step


def test_a_request_over_http_that_no_step_expects_is_told_at_the_end() -> None:
    peer = ScriptedPeer([s.expect("tools/cal"), s.reply({})])
    with Http(peer.url) as client:
        call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call"})
        client.connection.request("POST", client.parts.path, call)
        peer.transcript.wait_received("tools/call")
        with pytest.raises(ScriptError, match="waited for 'tools/cal', while 'tools/call' came"):
            peer.close()


def test_requests_after_the_last_step_are_logged_as_unanswered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ScriptedPeer([s.expect("ping")]) as peer, Memory(peer) as client:
        client.ask("before")
        client.ask("ping")
        assert peer.transcript.wait_event("finished")
        client.ask("after")
        client.notify("notifications/initialized")  # needs no response
    told = [record.getMessage() for record in caplog.records if "script" in record.getMessage()]
    assert told == [
        f"the script has no step for {method}: it gets no response"
        for method in ("before", "after")
    ]


def test_requests_of_a_second_connection_over_http_are_told_that_there_is_one_script(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = [s.expect("ping"), s.reply({})]
    with ScriptedPeer(steps, steps) as peer, Http(peer.url) as first, Http(peer.url) as second:
        first.post("ping")
        assert peer.transcript.wait_event("finished")
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        second.connection.request("POST", second.parts.path, body)
        peer.transcript.wait_received("ping", 2)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.endswith(
        "no response (over HTTP, the first script is played once for all connections)"
    )


@pytest.mark.parametrize("step", [s.raw, s.chunk, s.stderr])
def test_a_step_refuses_data_of_another_type_at_once(step: Any) -> None:
    with pytest.raises(TypeError, match=r"^data must be bytes, not str$"):
        step("text")


def test_a_step_refuses_times_and_steps_that_make_no_sense() -> None:
    wrong: Any = s.silence()
    with pytest.raises(TypeError, match="write repeat"):
        s.repeat(wrong)
    with pytest.raises(ValueError, match="seconds must be a number of seconds"):
        s.delay(-1)


def test_a_process_may_write_to_stderr_and_stop_reading() -> None:
    peer = ScriptedPeer(
        [s.stderr(b"\xffoops\n"), s.stop_reading(), s.notify("ready"), s.gate("die"), s.cut()]
    )
    assert peer.command == peer.command  # it can run several times
    with peer, Child(*peer.command) as client:
        assert client.next()["method"] == "ready"
        number = client.stdin.fileno()
        os.set_blocking(number, False)
        assert os.write(number, b"x" * 8_000_000) < 8_000_000  # more than any pipe can buffer
        with pytest.raises(BlockingIOError):
            os.write(number, b"x")
        assert peer.transcript.received == []
        peer.open("die")
        assert client.line() == b""
        assert client.stderr.read() == b"\xffoops\n"


def test_over_http_an_answer_is_a_whole_response() -> None:
    said = [s.expect("a"), s.reply("A"), s.expect("b"), s.error(-3, "B")]
    peer = ScriptedPeer([*said, s.expect("hello"), s.progress(1), s.reply("end")])
    with over_http(peer) as client:
        assert client.post("a", X_Mine="yes")[2] == {"jsonrpc": "2.0", "id": 1, "result": "A"}
        assert client.post("b")[2]["error"]["code"] == -3
        (received,) = peer.transcript.wait_received("a")
        assert (received.http, received.headers["x-mine"]) == ("POST /mcp", "yes")
        # A message before the answer makes the response a stream.
        found = decoded(client.request("POST", HELLO))
        assert [json.loads(event["data"]).get("result") for event in found] == [None, "end"]
        # Other requests get the usual responses.
        for verb, body, status in (("POST", NOTE, 202), ("GET", None, 405), ("DELETE", None, 200)):
            response = client.request(verb, body)
            assert (response.status, response.read()) == (status, b"")
        assert peer.transcript.methods()[-3:] == ["note", "GET", "DELETE"]
        assert peer.connections == 1


def test_over_http_a_response_is_written_byte_for_byte() -> None:
    peer = ScriptedPeer(
        [
            s.expect("hello"),
            s.head(200, {"Mcp-Session-Id": "abc"}),
            s.event("", identifier="1", retry=5),
            s.comment(" hi"),
            s.event({"id": s.ID}, kind="message"),
            s.drip(s.event("slow"), every=0.0001),
            s.end(),
            s.expect("GET"),
            s.head(503, {"content-type": "text/plain", "content-length": "4"}, chunked=False),
            s.chunk(b"busy"),
            s.expect("raw"),
            s.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        ]
    )
    with over_http(peer) as client:
        response = client.request("POST", HELLO)
        assert response.headers["mcp-session-id"] == "abc"
        assert read_event(response) == {"id": "1", "retry": "5", "data": ""}
        assert read_event(response) == {"": "hi"}
        assert read_event(response) == {"event": "message", "data": '{"id":1}'}
        assert read_event(response) == {"data": "slow"}
        assert response.read() == b""
        response = client.request("GET")
        assert (response.status, response.read()) == (503, b"busy")
        assert client.post("raw")[2] == {}
        assert peer.connections == 1


@pytest.mark.parametrize("reset", [False, True])
def test_over_http_a_stream_may_be_cut(reset: bool) -> None:
    peer = ScriptedPeer([s.expect("hello"), s.raw(b"HTTP/1.1 2"), s.cut(reset=reset)])
    with over_http(peer) as client:
        if reset:
            with pytest.raises(ConnectionResetError):
                client.request("POST", HELLO)
        else:
            with pytest.raises(http.client.BadStatusLine, match=r"HTTP/1\.1 2$"):
                client.request("POST", HELLO)
        assert peer.transcript.wait_event("finished")
    assert "disconnected" not in peer.transcript.events


@pytest.mark.parametrize(
    "waiting", [s.delay(60), s.repeat([s.comment(), s.delay(0.001)])], ids=["delay", "for ever"]
)
def test_over_http_a_script_goes_on_when_the_client_hangs_up(waiting: s.Step) -> None:
    peer = ScriptedPeer([s.expect("hello"), s.head(), waiting, s.expect("hello"), s.reply("again")])
    with over_http(peer) as client:
        response = client.request("POST", HELLO)
        assert response.status == 200
        response.close()
        client.close()
        assert peer.transcript.wait_event("disconnected")
        assert decoded(client.request("POST", HELLO))["result"] == "again"
        assert peer.connections == 2
