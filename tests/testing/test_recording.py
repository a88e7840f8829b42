"""The contents of a recording, and the texts that it masks."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp.errors import LimitExceeded
from syncmcp.testing import Recording, Replay, ScriptedPeer, Server, serve_http
from syncmcp.testing import script as s
from syncmcp.testing.recording import Entry, RecordingFile
from syncmcp.transports.base import Transport
from tests.support.parts import without_pauses
from tests.support.session_server import FirstStreamLost, session_server
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Stage, in_threads
from tests.testing.sessions import shop


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def methods(path: Path, kind: str) -> list[str]:
    return [line[kind].get("method") for line in lines(path) if kind in line]


@pytest.fixture
def server() -> Iterator[Server]:
    server = shop()
    yield server
    server.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "shop.jsonl"


def test_a_message_is_in_the_file_before_anybody_can_act_on_it(server: Server, path: Path) -> None:
    seen: list[list[str]] = []

    @server.tool()
    def look() -> str:
        seen.append(methods(path, "sent"))
        return "looked"

    with syncmcp.connect(Recording(server, path)) as client:
        client.call_tool("look")
        assert "looked" in path.read_text(encoding="utf-8")
    assert "tools/call" in seen[0]


def test_a_message_of_too_many_values_is_refused_before_it_is_masked(
    server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @server.tool()
    def talk() -> dict[str, Any]:
        return {"said": ["too many words"] * 200}

    monkeypatch.setattr(Transport, "max_values", 200)
    with (
        syncmcp.connect(Recording(server, path)) as client,
        pytest.raises(LimitExceeded, match="more than 200 values"),
    ):
        client.call_tool("talk")
    assert methods(path, "sent")[-1] == "tools/call"
    assert "too many words" not in path.read_text(encoding="utf-8")


def test_a_file_is_recorded_by_one_recording_at_a_time_and_anew_by_the_next(
    server: Server, path: Path
) -> None:
    with syncmcp.connect(Recording(server, path)) as client:
        with pytest.raises(syncmcp.UsageError, match="being recorded by another"):
            syncmcp.connect(Recording(server, path))
        client.call_tool("price", {"item": "pear"})
    assert "tools/call" in methods(path, "sent")
    assert path.stat().st_mode & 0o077 == 0
    with syncmcp.connect(Recording(server, path)):
        pass
    assert "tools/call" not in methods(path, "sent")
    assert lines(path)[0]["server"] == "shop"
    with pytest.raises(
        syncmcp.ConnectFailed, match=r"recording cannot be written: .*below\.jsonl: [A-Z]"
    ):
        syncmcp.connect(Recording(server, path / "below.jsonl"))


def test_clients_and_threads_of_one_recording_share_its_file(server: Server, path: Path) -> None:
    recording = Recording(server, path)

    def call(item: str) -> list[list[str | None]]:
        with syncmcp.connect(recording) as client:

            def calls() -> list[str | None]:
                return [client.call_tool("price", {"item": item}).text for _ in range(20)]

            return in_threads(calls, calls)

    told = in_threads(lambda: call("apple"), lambda: call("pear"))
    assert told == [[["30"] * 20] * 2, [["45"] * 20] * 2]
    assert {line.get("connection") for line in lines(path)} == {None, 1, 2}
    assert methods(path, "sent").count("tools/call") == 80


@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_no_secret_is_in_the_file(server: Server, path: Path, revision: Any) -> None:
    known = ["key-from-env-1", "hunter2hunter2", "canary-header-value", "tok-9876"]
    bearer = "bearer-abcdef"

    @server.tool()
    def repeat(password: str, note: str) -> dict[str, str]:
        return {"sessionToken": password, "note": note, "text": f"Bearer {bearer}"}

    with serve_http(server) as http:
        url = http.url.replace("http://", f"http://user:{known[1]}@") + f"?key={known[3]}"
        target = syncmcp.Http(url, headers={"X-Key": known[2]})
        recording = Recording(target, path, secrets=[known[0]])
        with syncmcp.connect(recording, mode=revision) as client:
            assert len(client.list_tools().tools) == 4
            for leak in (*known, bearer):
                told = client.call_tool("repeat", {"password": leak, "note": f"it is {leak}!"}).data
                assert told["sessionToken"] == leak
            session = client.session_id
            assert bool(session) is (revision == STATEFUL)
    text = path.read_text(encoding="utf-8")
    assert [leak for leak in known if leak in text] == []
    assert f"Bearer {bearer}" not in text
    assert session is None or session not in text
    assert '"nextCursor": "***' in text


def answering(answer: str, **variables: str) -> syncmcp.Stdio:
    """Return a child process whose tools all return `answer`, a Python expression."""
    program = f"""
import json, os, sys
for line in sys.stdin:
    ask = json.loads(line)
    if "id" in ask:
        answer = {{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}},
                  "serverInfo": {{"name": "e", "version": "1"}}}}
        if ask["method"] == "tools/call":
            answer = {answer}
        print(json.dumps({{"jsonrpc": "2.0", "id": ask["id"], "result": answer}}), flush=True)
"""
    return syncmcp.Stdio(sys.executable, "-c", program, env=variables)


def test_variables_are_masked_in_any_member_in_names_and_in_numbers(path: Path) -> None:
    """So is the text that the function `mask` replaces."""
    leak, pin = "key ZZ secret 0123456789", 48151623
    told = {**dict.fromkeys(("type", "role", "method", "level", "x"), leak), leak: pin}
    text = f"object, {leak} and 4111-1111"
    answer = {"content": [{"type": "text", "text": text}], "structuredContent": told}
    target = answering(repr(answer), API_KEY=leak, PIN=str(pin), KIND="object", PLACE="content")

    def called(target: Any) -> Any:
        with syncmcp.connect(target, mode="legacy", validate_output="off") as client:
            return client.call_tool("x", {"type": leak, "pin": pin})

    masking = Recording(target, path, mask=lambda text: text.replace("4111-1111", "***"))
    result = called(masking)
    assert (result.text, result.data) == (text, told)
    kept = path.read_text(encoding="utf-8")
    assert [found for found in (leak, str(pin), "4111") if found in kept] == []
    result = called(Replay(path))
    assert "object" not in result.text
    assert " and ***" in result.text
    assert set(result.data) == {"type", "role", "method", "level", "x", "***1"}


def test_what_cannot_be_recorded_is_refused_when_the_recording_is_made(path: Path) -> None:
    url = "http://localhost/mcp"
    for wrong in (42, "no-url", syncmcp.Http(url, session_id="theirs")):
        with pytest.raises(syncmcp.UsageError):
            Recording(wrong, path)  # type: ignore[arg-type]
    with pytest.raises(syncmcp.UsageError, match="cannot be recorded"):
        Recording(Recording(url, path), path)
    # A secret too short to be distinguished from text, and a string instead of a list.
    with pytest.raises(syncmcp.UsageError, match="at least 6"):
        Recording(url, path, secrets=["1234"])
    with pytest.raises(syncmcp.UsageError, match="secrets must be a list of strings"):
        Recording(url, path, secrets="secret")
    made = Recording(syncmcp.Stdio("echo"), path, secrets=["secret-one"])
    assert repr(pickle.loads(pickle.dumps(made))) == repr(made)
    assert "secret-one" not in repr(made)


def test_a_full_disk_ends_the_session_and_says_so(
    server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    client = syncmcp.Client(Recording(server, path))
    with monkeypatch.context() as patch:
        patch.setattr("syncmcp.testing.recording.os.write", full)
        with pytest.raises(syncmcp.ConnectFailed, match="No space left"):
            client.open()
    with client:  # the disk has space again
        client.call_tool("price", {"item": "pear"})
        assert lines(path)[0]["syncmcp-recording"] == 1
        monkeypatch.setattr("syncmcp.testing.recording.os.write", full)
        with pytest.raises(syncmcp.TransportError, match="No space left"):
            client.call_tool("price", {"item": "pear"})


def test_a_recording_that_fails_on_two_threads_ends_its_connection_once(
    server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording(server, path)
    both = threading.Barrier(2)

    def fail(file: RecordingFile, connection: int, entry: Entry) -> None:
        if entry.kind == "sent":
            both.wait(PATIENCE)  # neither thread has seen the failure of the other
        raise OSError(28, "No space left on device")

    with syncmcp.connect(recording, retry=None) as client, monkeypatch.context() as patch:
        patch.setattr(RecordingFile, "write", fail)
        calls = [partial(client.call_tool, "price", {"item": "pear"})] * 2
        assert [type(error) for error in in_threads(*calls)] == [syncmcp.ConnectionLost] * 2
    with syncmcp.connect(recording):
        pass
    with syncmcp.connect(Recording(server, path)):
        pass  # the file is not locked


def test_a_server_that_dies_is_recorded_as_one_that_died(path: Path) -> None:
    def died(target: Any) -> int | None:
        with (
            syncmcp.connect(target, mode="legacy") as client,
            pytest.raises(syncmcp.OutcomeUnknown) as caught,
        ):
            client.call_tool("x")
        return caught.value.exit_code

    with ScriptedPeer([*s.handshake(), s.expect("tools/call"), s.cut(code=3)]) as peer:
        assert died(Recording(syncmcp.Stdio(*peer.command), path)) == 3
    assert [line["lost"]["exit_code"] for line in lines(path) if "lost" in line] == [3]
    assert died(Replay(path)) == 3


def test_changes_that_were_missed_are_missed_in_the_replay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pauses(monkeypatch)

    def listen(target: Any, lost: threading.Event) -> syncmcp.ChangeEvent:
        with (
            syncmcp.connect(target, mode=STATEFUL) as client,
            client.listen(tools=True, timeout=PATIENCE) as events,
        ):
            lost.set()
            event = next(events)
            client.list_tools()
            return event

    with session_server() as server:
        before = server.before = FirstStreamLost()
        server.capabilities = {"tools": {"listChanged": True}}
        seen = listen(Recording(server.url, path), before.ended)
    assert seen == syncmcp.ChangeEvent("tools", missed=True)
    replayed = Replay(path)
    assert listen(replayed, threading.Event()) == seen
    assert replayed.unplayed == []


def program(steps: str, path: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a program that records a call, and then runs `steps`."""
    start = f"""
import os, signal, syncmcp
from syncmcp.testing import Recording, demo_server
recording = Recording(demo_server(), {str(path)!r})
client = syncmcp.connect(recording)
client.call_tool("add", {{"a": 1, "b": 2}})
"""
    command = [sys.executable, "-W", "ignore", "-c", start + steps]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


def test_ctrl_c_leaves_a_recording_that_is_whole(path: Path) -> None:
    ended = program(
        """
signal.signal(signal.SIGINT, signal.default_int_handler)
with client:
    client.call_tool.future("sleep", {"seconds": 600})
    signal.raise_signal(signal.SIGINT)
""",
        path,
    )
    assert b"KeyboardInterrupt" in ended.stderr
    assert list(lines(path)[-1]) == ["connection", "closed"]
    with syncmcp.connect(Replay(path)) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"


def test_a_forked_process_cannot_write_and_a_killed_one_leaves_what_has_happened_and_no_lock(
    server: Server, path: Path
) -> None:
    ended = program(
        """
child = os.fork()
if child == 0:
    try:
        syncmcp.connect(recording)
    except syncmcp.UsageError as error:
        os.write(1, str(error).encode())
    os._exit(0)
os.waitpid(child, 0)
client.call_tool("add", {"a": 2, "b": 2})
os.kill(os.getpid(), signal.SIGKILL)
""",
        path,
    )
    assert ended.returncode == -signal.SIGKILL
    assert b"being recorded by another" in ended.stdout
    assert methods(path, "sent").count("tools/call") == 2
    with syncmcp.connect(Recording(server, path)):
        pass


def test_an_answer_that_comes_after_the_caller_gave_up_is_recorded(path: Path) -> None:
    stage = Stage()
    with syncmcp.connect(Recording(stage.server, path), mode=STATEFUL) as client:
        call = client.call_tool.future("hold")
        stage.inside("")
        call.cancel()
        stage.gate.set()
        client.ping()
    told = [line["withdrawn"] for line in lines(path) if "withdrawn" in line]
    sent = [line["sent"] for line in lines(path) if "sent" in line]
    assert told == [one["id"] for one in sent if one["method"] == "tools/call"]
    assert "notifications/cancelled" in methods(path, "sent")
    stage.server.close()
