"""Opening, end to end: what a client makes of every kind of server that was seen in the wild."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import (
    Client,
    ConnectFailed,
    Message,
    Mode,
    ProtocolError,
    RequestTimeout,
    ServerError,
    Stdio,
)
from syncmcp._client.opening import RevisionMemory
from syncmcp._protocol.revisions import dialect_for
from syncmcp.testing import Server
from syncmcp.testing import script as s
from syncmcp.types import Implementation
from tests.support.scripts import NEW, OLD, REVISIONS, STATEFUL, WIRES, Scripted, opening
from tests.support.stage import PATIENCE, Clock, in_threads

ROOT = Path(__file__).parents[2]

INITIALIZED = "notifications/initialized"
FALLEN_BACK = ["server/discover", "initialize", INITIALIZED]
META = "io.modelcontextprotocol/"

PING = [s.expect("ping"), s.reply({})]
LIST = [s.expect("tools/list"), s.reply({"resultType": "complete", "tools": []})]

DISCOVERED = opening(NEW)[1]["value"]["result"]
REFUSED = s.error(-32601, "Method not found")

REFUSALS: dict[str, list[s.Step]] = {
    "method not found": [s.error(-32601, "Method not found")],
    "invalid params": [s.error(-32602, "Invalid request parameters")],
    "invalid request": [s.error(-32600, "Not initialized")],
    "code zero": [s.error(0, "server/discover is not known")],
    "an error without a message": [
        s.message({"jsonrpc": "2.0", "id": s.ID, "error": {"code": -32601}})
    ],
    "an error without a code": [s.message({"jsonrpc": "2.0", "id": s.ID, "error": {}})],
    "a result that says nothing": [s.reply({})],
    "a result that is no object": [s.reply("what?")],
    "versions that are no list": [s.reply({"supportedVersions": "all"})],
    "older versions only": [s.reply({"resultType": "complete", "supportedVersions": [OLD]})],
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server is so slow to start, on a busy machine, that it is probed again."""
    monkeypatch.setattr("syncmcp._client.opening._REPROBE_SECONDS", PATIENCE)


@pytest.fixture
def impatient(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every server that does not answer at once is."""
    monkeypatch.setattr("syncmcp._client.opening._REPROBE_SECONDS", 0.05)


def offer_of(peer: Scripted) -> str:
    """The revision that the last `initialize` named."""
    offer: str = peer.requests("initialize")[-1]["params"]["protocolVersion"]
    return offer


@WIRES
@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.requirement("VER-01", "VER-03", "VER-13", "VER-14")
@pytest.mark.pitfall("18")
def test_a_server_that_refuses_the_probe_in_any_way_is_initialized(refusal: str, wire: str) -> None:
    steps = [s.expect("server/discover"), *REFUSALS[refusal], *opening(), *PING]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire)) as client:
        client.ping()
        assert client.server.revision == OLD
        assert peer.methods(4) == [*FALLEN_BACK, "ping"]


@WIRES
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("RPC-29")
def test_every_revision_can_be_agreed_on(revision: Mode, wire: str) -> None:
    steps = [*opening(revision), *LIST]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire), mode=revision) as client:
        client.list_tools()
        assert client.server.revision == revision
        info = client.server.info
        assert info is not None
        assert (info.name, info.version) == ("scripted", "1")
        if revision in STATEFUL:
            assert peer.methods(3) == ["initialize", INITIALIZED, "tools/list"]
            assert offer_of(peer) == revision
        else:
            assert peer.methods(2) == ["server/discover", "tools/list"]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("RPC-28", "RPC-29")
def test_a_server_in_memory_gets_the_messages_that_a_pipe_would_carry(revision: Mode) -> None:
    steps = [*opening(revision), *LIST, s.expect("tools/call"), s.reply({"content": []})]
    seen: list[list[dict[str, Any]]] = []
    for wire in ("memory", "stdio"):
        with Scripted(steps) as peer, syncmcp.connect(peer.on(wire), mode=revision) as client:
            client.list_tools()
            client.call_tool("x", {"a": [1]}, meta={"acme.example/k": "v"})
            peer.methods(4 if revision in STATEFUL else 3)
            seen.append([one.message for one in peer.transcript.received])
    in_memory, piped = seen
    assert in_memory == piped
    assert [message["jsonrpc"] for message in in_memory] == ["2.0"] * len(in_memory)
    if revision in STATEFUL:
        params = in_memory[0]["params"]
        assert params.keys() == {"protocolVersion", "capabilities", "clientInfo"}
        return
    prefix = "io.modelcontextprotocol/"
    for message in in_memory:
        keys = {key for key in message["params"]["_meta"] if key.startswith(prefix)}
        assert keys == {
            f"{prefix}{each}" for each in ("protocolVersion", "clientCapabilities", "clientInfo")
        }


@pytest.mark.requirement("VER-02", "VER-08", "VER-09", "VER-10")
def test_the_client_says_who_it_is_in_both_eras() -> None:
    me = Implementation(name="a program", version="3")
    steps = [
        s.expect("server/discover"),
        s.error(-32601, "Method not found"),
        *opening(),
    ]
    with (
        Scripted(steps) as peer,
        syncmcp.connect(peer, client_info=me),
    ):
        meta = peer.requests("server/discover")[0]["params"]["_meta"]
        assert meta[META + "protocolVersion"] == NEW
        assert meta[META + "clientCapabilities"] == {}
        assert meta[META + "clientInfo"] == {"name": "a program", "version": "3"}
        assert peer.requests("initialize")[0]["params"] == {
            "protocolVersion": OLD,
            "capabilities": {},
            "clientInfo": {"name": "a program", "version": "3"},
        }


@pytest.mark.requirement("VER-08", "VER-09", "VER-10", "RPC-27")
def test_in_the_stateless_era_every_request_introduces_itself_anew() -> None:
    steps = [*opening(NEW), *LIST, *LIST]
    with Scripted(steps) as peer, syncmcp.connect(peer) as client:
        client.list_tools()
        client.list_tools(meta={"acme.example/colour": "blue"})
        metas = [message["params"]["_meta"] for message in peer.requests("tools/list", 2)]
        for meta in metas:
            assert meta[META + "protocolVersion"] == NEW
            assert meta[META + "clientCapabilities"] == {}
            assert meta[META + "clientInfo"]["name"] == "syncmcp"
        assert metas[1]["acme.example/colour"] == "blue"
        assert "acme.example/colour" not in metas[0]


@pytest.mark.requirement("VER-14")
@pytest.mark.pitfall("7", "18")
@pytest.mark.parametrize("code", [0, 1, -9])
def test_a_server_that_dies_of_the_probe_gets_a_fresh_process(code: int) -> None:
    dies = [s.expect("server/discover"), s.cut(code=code)]
    with Scripted(dies, [*opening(), *PING]) as peer:
        with syncmcp.connect(Stdio(*peer.command)) as client:
            client.ping()
            assert client.server.revision == OLD
        assert peer.methods(4) == [*FALLEN_BACK, "ping"]
        assert [seen.connection for seen in peer.transcript.received] == [0, 1, 1, 1]


@pytest.mark.requirement("VER-14")
@pytest.mark.pitfall("7", "18")
def test_a_server_that_ignores_the_probe_and_dies_of_the_next_message_gets_a_fresh_process() -> (
    None
):
    dies = [s.expect("server/discover"), s.expect("initialize"), s.cut(code=1)]
    with Scripted(dies, [*opening(), *PING]) as peer:
        with syncmcp.connect(Stdio(*peer.command), probe_timeout=0.2) as client:
            client.ping()
        assert peer.methods(5) == [
            "server/discover",
            "initialize",
            "initialize",
            INITIALIZED,
            "ping",
        ]
        assert len(peer.children) == 2


@WIRES
@pytest.mark.requirement("VER-14", "VER-03")
@pytest.mark.pitfall("4", "18")
def test_a_server_that_is_silent_on_the_probe_is_initialized_on_the_same_connection(
    wire: str,
) -> None:
    with Scripted([*opening(), *PING]) as peer:
        with syncmcp.connect(peer.on(wire), probe_timeout=0.2) as client:
            client.ping()
        assert peer.methods(4) == [*FALLEN_BACK, "ping"]
        assert {seen.connection for seen in peer.transcript.received} == {0}


@pytest.mark.requirement("VER-14")
@pytest.mark.pitfall("7", "18")
@pytest.mark.usefixtures("impatient")
def test_a_server_that_the_probe_breaks_and_the_next_line_ends_is_not_waited_for() -> None:
    # It is silent until then, on stderr too: so is the official SDK for Python, 1.2 to 1.8.
    broken = [s.expect("server/discover"), s.expect("server/discover"), s.cut(code=1)]
    with Scripted(broken, [*opening("2024-11-05"), *PING]) as peer:
        target = Stdio(*peer.command)
        with syncmcp.connect(target, probe_timeout=20.0, open_timeout=10.0) as client:
            client.ping()
            assert client.server.revision == "2024-11-05"
        assert peer.methods(5) == ["server/discover", *FALLEN_BACK, "ping"]
        assert [seen.connection for seen in peer.transcript.received] == [0, 0, 1, 1, 1]


@pytest.mark.requirement("VER-13")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answered", [["first"], ["second"], ["first", "second"]], ids="+".join)
def test_a_slow_server_that_logs_while_it_starts_is_taken_for_what_it_is(
    answered: list[str],
) -> None:
    steps = [
        s.stderr(b"loading\nTraceback (most recent call last):\nValidationError: a bad plug-in\n"),
        s.expect("server/discover", label="first"),
        s.expect("server/discover", label="second"),
        *[s.reply(DISCOVERED, to=label) for label in answered],
        *LIST,
    ]
    with Scripted(steps) as peer:
        with syncmcp.connect(Stdio(*peer.command), probe_timeout=10.0) as client:
            client.list_tools()
            assert client.server.revision == NEW
        assert peer.methods(3) == ["server/discover", "server/discover", "tools/list"]
        assert len(peer.children) == 1


@WIRES
@pytest.mark.requirement("VER-14")
@pytest.mark.pitfall("18")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answered", [["first"], ["second"], ["first", "second"]], ids="+".join)
def test_a_slow_server_that_refuses_the_probe_is_initialized(
    answered: list[str], wire: str
) -> None:
    steps = [
        s.expect("server/discover", label="first"),
        s.expect("server/discover", label="second"),
        *[{**REFUSED, "to": label} for label in answered],
        *opening(),
        *PING,
    ]
    with Scripted(steps) as peer:
        with syncmcp.connect(peer.on(wire), probe_timeout=10.0) as client:
            client.ping()
            assert client.server.revision == OLD
        assert peer.methods(5) == ["server/discover", *FALLEN_BACK, "ping"]
        assert {seen.connection for seen in peer.transcript.received} == {0}


@WIRES
@pytest.mark.requirement("VER-12", "VER-13")
@pytest.mark.parametrize(
    "start",
    [
        [],
        [s.error(-32601, "no such method", to="start")],
        [s.reply({"protocolVersion": OLD, "capabilities": {}, "serverInfo": {}}, to="start")],
    ],
    ids=["ignored", "refused", "answered"],
)
def test_a_probe_that_is_answered_while_the_handshake_waits_proves_a_modern_server(
    start: list[s.Step], wire: str
) -> None:
    steps = [
        s.expect("server/discover", label="probe"),
        s.expect("initialize", label="start"),
        s.reply(DISCOVERED, to="probe"),
        *start,
        *LIST,
    ]
    with Scripted(steps) as peer:
        with syncmcp.connect(peer.on(wire), probe_timeout=0.1) as client:
            client.list_tools()
            assert client.server.revision == NEW
        assert peer.methods(3) == ["server/discover", "initialize", "tools/list"]


@pytest.mark.requirement("VER-14")
def test_a_probe_without_an_answer_leaves_time_for_the_handshake() -> None:
    with (
        Scripted([*opening(), *PING]) as peer,
        syncmcp.connect(peer, probe_timeout=10.0, open_timeout=4.0) as client,
    ):
        assert client.server.revision == OLD


class Between:
    """Stands before and after the exchanges of one method, on the thread of the client."""

    def __init__(
        self, method: str, before: Callable[[], object], failed: Callable[[], object]
    ) -> None:
        self._method = method
        self._before = before
        self._failed = failed

    def outgoing(self, message: Message) -> None:
        if message.method == self._method:
            self._before()

    def incoming(self, message: Message) -> None:
        pass

    def ended(self, answer: Message) -> None:
        if answer.method == self._method and answer.error is not None:
            self._failed()


CLOSING = """
import json, os, socket, sys

line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
asked = json.loads(sys.stdin.buffer.readline())
if asked["method"] == "server/discover":
    os.close(0)
    line.sendall(b"closed")
    line.recv(1)
    os._exit(1)
result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {}}
result["serverInfo"] = {"name": "s", "version": "1"}
print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
sys.stdin.read()
"""


@pytest.mark.requirement("VER-14")
@pytest.mark.pitfall("18")
def test_a_server_that_stopped_reading_before_it_ended_has_died_of_the_probe_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syncmcp._client.opening._EXIT_NOTICE_SECONDS", PATIENCE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        lines: list[socket.socket] = []

        def reads_no_more() -> None:
            if not lines:
                lines.append(listener.accept()[0])
                lines[0].settimeout(PATIENCE)
                assert lines[0].recv(6) == b"closed"

        def let_it_end() -> None:
            lines[0].close()

        client = Client(
            Stdio(sys.executable, "-c", CLOSING, str(listener.getsockname()[1])),
            interceptors=[Between("initialize", reads_no_more, let_it_end)],
            probe_timeout=0.1,
        )
        with client:
            assert client.server.revision == OLD


@pytest.mark.requirement("VER-07")
def test_a_start_that_took_too_long_because_of_the_probe_says_how_to_do_without() -> None:
    dies = [s.expect("server/discover"), s.cut(code=1)]
    with Scripted(dies, [s.expect("initialize"), s.silence()]) as peer:
        with pytest.raises(RequestTimeout, match=r"open_timeout.*mode='legacy'"):
            syncmcp.connect(peer, open_timeout=3.0)
        assert peer.methods(2) == ["server/discover", "initialize"]


@pytest.mark.requirement("CAN-02")
def test_the_probe_and_the_handshake_are_never_cancelled() -> None:
    silent = [s.expect("initialize"), s.silence()]
    with Scripted(silent) as peer:
        with pytest.raises(RequestTimeout):
            syncmcp.connect(peer, probe_timeout=0.1, open_timeout=2.0)
        assert peer.gone()
        assert peer.methods(2) == ["server/discover", "initialize"]


@WIRES
@pytest.mark.pitfall("18")
def test_a_probe_that_is_answered_after_the_limit_disturbs_nothing(wire: str) -> None:
    steps = [
        s.expect("server/discover", label="probe"),
        s.expect("initialize", label="start"),
        s.error(-32601, "Method not found", to="probe"),
        s.reply({"protocolVersion": OLD, "capabilities": {}, "serverInfo": {}}, to="start"),
        *PING,
    ]
    with (
        Scripted(steps) as peer,
        syncmcp.connect(peer.on(wire), probe_timeout=0.1) as client,
    ):
        client.ping()
        assert client.server.revision == OLD


@WIRES
def test_a_modern_server_that_answered_the_probe_too_late_is_still_taken_for_modern(
    wire: str,
) -> None:
    steps = [
        s.expect("server/discover"),
        s.expect("initialize"),
        s.error(-32022, "old", {"supported": [NEW], "requested": OLD}),
        *opening(NEW),
        *LIST,
    ]
    with (
        Scripted(steps) as peer,
        syncmcp.connect(peer.on(wire), probe_timeout=0.1) as client,
    ):
        client.list_tools()
        assert client.server.revision == NEW


@WIRES
@pytest.mark.requirement("VER-11", "VER-12")
def test_a_probe_refused_for_its_version_is_repeated_in_the_one_in_common(wire: str) -> None:
    steps = [
        s.expect("server/discover"),
        s.error(-32022, "no", {"supported": ["2027-01-01", NEW], "requested": NEW}),
        *opening(NEW),
        *LIST,
    ]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire)) as client:
        client.list_tools()
        assert peer.methods(3) == ["server/discover", "server/discover", "tools/list"]


@WIRES
def test_no_revision_in_common_is_an_error_that_names_both_sides(wire: str) -> None:
    steps = [
        s.expect("server/discover"),
        s.error(-32022, "no", {"supported": ["2031-01-01"], "requested": NEW}),
    ]
    with Scripted(steps) as peer:
        with pytest.raises(ProtocolError) as caught:
            syncmcp.connect(peer.on(wire))
        assert "2031-01-01" in str(caught.value)
        assert NEW in str(caught.value)
        assert peer.methods(1) == ["server/discover"]


@WIRES
@pytest.mark.parametrize("answer", ["1999-01-01", NEW, None, 7])
@pytest.mark.requirement("VER-05")
def test_a_server_that_answers_initialize_with_an_unknown_revision_is_left(
    answer: object, wire: str
) -> None:
    steps = [
        s.expect("initialize"),
        s.reply({"protocolVersion": answer, "capabilities": {}, "serverInfo": {}}),
    ]
    with Scripted(steps) as peer:
        with pytest.raises(ProtocolError) as caught:
            syncmcp.connect(peer.on(wire), mode="legacy")
        assert repr(answer) in str(caught.value)
        assert OLD in str(caught.value)
        assert peer.gone()
        assert INITIALIZED not in peer.transcript.methods()


@WIRES
@pytest.mark.parametrize("counter", STATEFUL)
def test_a_server_may_counter_the_newest_revision_with_an_older_one(
    counter: str, wire: str
) -> None:
    with (
        Scripted(opening(counter)) as peer,
        syncmcp.connect(peer.on(wire), mode="legacy") as client,
    ):
        assert offer_of(peer) == OLD
        assert client.server.revision == counter


@WIRES
def test_a_server_that_echoes_any_version_cannot_lead_the_client_to_an_unknown_one(
    wire: str,
) -> None:
    # It echoes what it is offered: so what it is offered must be a revision with `initialize`.
    echoing = [
        s.expect("server/discover"),
        s.error(-32601, "Method not found"),
        s.expect("initialize"),
        s.reply({"protocolVersion": OLD, "capabilities": {}, "serverInfo": {"name": "echo"}}),
    ]
    with Scripted(echoing) as peer, syncmcp.connect(peer.on(wire)) as client:
        assert offer_of(peer) == client.server.revision == OLD


@WIRES
def test_a_revision_that_was_insisted_on_is_the_only_one_accepted(wire: str) -> None:
    with Scripted([s.expect("initialize"), *opening("2024-11-05")[1:]]) as peer:
        with pytest.raises(ProtocolError, match="2024-11-05"):
            syncmcp.connect(peer.on(wire), mode="2025-06-18")
        assert offer_of(peer) == "2025-06-18"


@WIRES
@pytest.mark.requirement("VER-21")
def test_the_words_of_a_server_that_refuses_initialize_reach_the_user(wire: str) -> None:
    words = "This server only speaks 2031; upgrade your client at example.com"
    steps = [
        s.expect("initialize"),
        s.error(-32022, words, {"supported": ["2031-01-01"], "requested": OLD}),
    ]
    with Scripted(steps) as peer:
        with pytest.raises(ServerError) as caught:
            syncmcp.connect(peer.on(wire), mode="legacy")
        assert words in str(caught.value)
        assert caught.value.data["supported"] == ["2031-01-01"]


@WIRES
@pytest.mark.requirement("VER-07")
def test_a_server_that_never_answers_is_a_timeout_that_says_it_was_the_opening(
    wire: str,
) -> None:
    with Scripted([s.silence()]) as peer:
        with pytest.raises(RequestTimeout) as caught:
            syncmcp.connect(peer.on(wire), probe_timeout=0.1, open_timeout=0.4)
        assert caught.value.kind == "open"
        assert caught.value.seconds == 0.4
        assert caught.value.__cause__ is not None
        # A child may be killed before it has said anything; the leak check looks for it.
        assert wire == "stdio" or peer.gone()


@pytest.mark.requirement("VER-07")
@pytest.mark.pitfall("7", "8")
def test_a_server_that_exits_at_every_start_is_a_failed_connect_with_code_and_last_words() -> None:
    code = "import sys; sys.stderr.write('no licence found\\n'); sys.exit(3)"
    with pytest.raises(ConnectFailed) as caught:
        syncmcp.connect(Stdio(sys.executable, "-c", code))
    error = caught.value
    assert error.exit_code == 3
    assert "no licence found" in error.stderr_tail
    assert "no licence found" in str(error)
    assert "exit code 3" in str(error)
    assert isinstance(error.__cause__, syncmcp.ConnectionLost)


LEAVING = """
import json, os, signal, sys

def leave(signum, frame):
    print("no key", file=sys.stderr, flush=True)
    os._exit(3)

signal.signal(signal.SIGTERM, leave)
asked = json.loads(os.read(0, 65536))
os.close(0)
refused = {"code": -32601, "message": "what?"}
print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": refused}), flush=True)
while True:
    signal.pause()
"""


def test_the_last_words_of_a_server_that_no_longer_reads_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syncmcp._client.opening._DISCARD_SECONDS", 20.0)
    with pytest.raises(ConnectFailed, match="no longer reads") as caught:
        syncmcp.connect(Stdio(sys.executable, "-c", LEAVING, grace=(0.0, 10.0)))
    assert caught.value.stderr_tail == "no key"


@pytest.mark.pitfall("8", "26")
def test_a_command_that_does_not_exist_is_a_failed_connect_that_says_where_it_was_sought() -> None:
    with pytest.raises(ConnectFailed, match="no-such-command") as caught:
        syncmcp.connect(Stdio("no-such-command", env={"PATH": "/here:/there"}))
    assert "/here:/there" in str(caught.value)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


@WIRES
@pytest.mark.pitfall("18")
def test_noise_before_every_answer_of_the_start_is_skipped(wire: str) -> None:
    steps = [s.expect("server/discover"), s.garbage(2), s.error(-32601, "Method not found")]
    steps += [s.expect("initialize"), s.garbage(3), *opening()[1:], s.garbage(), *PING]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire)) as client:
        client.ping()
        assert client.server.revision == OLD


@WIRES
def test_news_right_after_the_start_reach_their_handlers(wire: str) -> None:
    changed = "notifications/tools/list_changed"
    steps = [*opening(), *[s.notify(changed)] * 3, s.notify("notifications/stderr", {"text": "x"})]
    heard: list[str] = []
    all_heard = threading.Event()

    def hear(method: str, params: dict[str, Any]) -> None:
        heard.append(method)
        if len(heard) == 4:
            all_heard.set()

    with (
        Scripted(steps) as peer,
        syncmcp.connect(peer.on(wire), mode="legacy", on_notification=hear),
    ):
        assert all_heard.wait(10)
    assert heard == [changed] * 3 + ["notifications/stderr"]


@pytest.mark.requirement("VER-16")
def test_the_era_that_was_found_spares_the_probe_when_the_client_is_opened_again() -> None:
    probed = [s.expect("server/discover"), s.error(-32601, "Method not found"), *opening()]
    with Scripted(probed, opening()) as peer:
        client = Client(peer)
        client.open()
        client.close()
        client.open()
        client.close()
        assert peer.methods(5) == [*FALLEN_BACK, "initialize", INITIALIZED]


@pytest.mark.requirement("VER-16")
def test_an_era_that_no_longer_holds_is_looked_for_again() -> None:
    upgraded = [
        s.expect("initialize"),
        s.error(-32022, "upgraded", {"supported": [NEW], "requested": OLD}),
    ]
    with Scripted(
        [s.expect("server/discover"), s.error(-32601, "Method not found"), *opening()],
        upgraded,
        opening(NEW),
    ) as peer:
        client = Client(peer)
        client.open()
        client.close()
        client.open()
        assert client.server.revision == NEW
        client.close()


DIES = [s.expect("server/discover"), s.cut(code=1)]


def revisions(target: Stdio, count: int, **options: Any) -> list[str]:
    """What as many clients in a row agree on with it."""
    found = []
    for _ in range(count):
        with syncmcp.connect(target, **options) as client:
            found.append(client.server.revision)
    return found


@pytest.mark.requirement("VER-16")
@pytest.mark.parametrize(
    ("vain", "probe_timeout"),
    [([DIES, opening()], 10.0), ([opening()], 0.2)],
    ids=["died", "silent"],
)
def test_a_command_that_was_probed_in_vain_is_not_probed_again(
    vain: list[list[s.Step]], probe_timeout: float
) -> None:
    with Scripted(*vain, opening()) as peer:
        found = revisions(Stdio(*peer.command), 3, probe_timeout=probe_timeout)
        assert found == [OLD] * 3
        assert peer.methods(7) == [*FALLEN_BACK, *["initialize", INITIALIZED] * 2]


@pytest.mark.requirement("VER-16")
def test_a_command_that_refuses_the_probe_is_asked_each_time() -> None:
    refuses = [s.expect("server/discover"), REFUSED, *opening()]
    with Scripted(refuses, opening(NEW)) as peer:
        assert revisions(Stdio(*peer.command), 2) == [OLD, NEW]


@pytest.mark.requirement("VER-16")
@pytest.mark.parametrize(
    "refusal",
    [
        [s.error(-32022, "upgraded", {"supported": [NEW], "requested": OLD})],
        [REFUSED],
        [s.reply({"protocolVersion": NEW, "capabilities": {}, "serverInfo": {}})],
    ],
    ids=["-32022", "-32601", "another revision"],
)
def test_a_command_that_runs_a_newer_server_by_now_is_found_out(refusal: list[s.Step]) -> None:
    upgraded = [s.expect("initialize"), *refusal]
    with Scripted(DIES, opening(), upgraded, opening(NEW)) as peer:
        assert revisions(Stdio(*peer.command), 3) == [OLD, NEW, NEW]
        assert peer.methods(6) == [*FALLEN_BACK, "initialize", *["server/discover"] * 2]


ENDS = [s.expect("initialize"), s.cut(code=1)]


@pytest.mark.requirement("VER-16")
def test_a_command_whose_server_ends_at_the_handshake_is_probed_at_once() -> None:
    with Scripted(DIES, opening(), ENDS, opening(NEW)) as peer:
        assert revisions(Stdio(*peer.command), 2) == [OLD, NEW]
        assert peer.methods(5) == [*FALLEN_BACK, "initialize", "server/discover"]


@pytest.mark.requirement("VER-16")
@pytest.mark.parametrize("first", [DIES, None], ids=["probed in vain", "refused the probe"])
def test_a_client_whose_server_became_one_that_ends_at_the_handshake_is_opened_again(
    first: list[s.Step] | None,
) -> None:
    refuses = [s.expect("server/discover"), REFUSED, *opening()]
    with Scripted(*([DIES, opening()] if first else [refuses]), ENDS, opening(NEW)) as peer:
        client = Client(Stdio(*peer.command))
        found = []
        for _ in range(2):
            with client:
                found.append(client.server.revision)
        assert found == [OLD, NEW]
        assert peer.methods(5) == [*FALLEN_BACK, "initialize", "server/discover"]


@pytest.mark.requirement("VER-16")
def test_a_client_whose_server_became_one_that_ignores_the_handshake_forgets_what_it_was() -> None:
    ignores = [s.expect("initialize"), s.silence()]
    refuses = [s.expect("server/discover"), REFUSED, *opening()]
    with Scripted(refuses, ignores, opening(NEW)) as peer:
        client = Client(Stdio(*peer.command), open_timeout=3.0)
        client.open().close()
        with pytest.raises(RequestTimeout, match=r"not probed.*the next opening probes"):
            client.open()
        client.close()
        with client:
            assert client.server.revision == NEW


@pytest.mark.requirement("VER-16")
@pytest.mark.usefixtures("impatient")
def test_a_command_that_is_slow_to_refuse_each_probe_is_not_probed_again() -> None:
    hello, *answer = opening()
    slow = [
        s.expect("server/discover", label="first"),
        s.expect("server/discover", label="second"),
        {**REFUSED, "to": "first"},
        hello,
        s.delay(0.2),
        {**REFUSED, "to": "second"},
        *answer,
    ]
    with Scripted(slow, opening()) as peer:
        assert revisions(Stdio(*peer.command), 2) == [OLD] * 2
        assert peer.methods(6) == ["server/discover", *FALLEN_BACK, "initialize", INITIALIZED]


@pytest.mark.requirement("VER-16", "VER-07")
def test_a_command_that_refused_the_probe_too_late_to_be_opened_is_not_probed_again() -> None:
    late = [
        s.expect("server/discover", label="probe"),
        s.expect("initialize"),
        {**REFUSED, "to": "probe"},
        s.silence(),
    ]
    with Scripted(late, opening("2024-11-05"), opening("2024-11-05")) as peer:
        target = Stdio(*peer.command)
        with pytest.raises(RequestTimeout, match=r"open_timeout.*mode='legacy'"):
            syncmcp.connect(target, probe_timeout=0.1, open_timeout=2.5)
        assert revisions(target, 2) == ["2024-11-05"] * 2
        assert peer.methods(6) == [
            "server/discover",
            "initialize",
            *["initialize", INITIALIZED] * 2,
        ]


@pytest.mark.requirement("VER-14")
@pytest.mark.pitfall("18")
def test_a_refusal_of_the_probe_that_names_no_request_is_an_answer_to_it() -> None:
    unnamed = s.message({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "?"}})
    with Scripted([s.expect("server/discover"), unnamed, *opening(), *PING]) as peer:
        target = Stdio(*peer.command)

        def opened() -> str:
            with syncmcp.connect(target, probe_timeout=3600.0, open_timeout=None) as client:
                client.ping()
                return client.server.revision

        assert in_threads(opened, patience=PATIENCE) == [OLD]
        assert peer.methods(4) == [*FALLEN_BACK, "ping"]


@pytest.mark.requirement("VER-16")
def test_a_command_that_agrees_on_another_old_revision_by_now_is_probed_the_next_time() -> None:
    with Scripted(DIES, opening("2024-11-05"), opening(OLD), opening(NEW)) as peer:
        assert revisions(Stdio(*peer.command), 3) == ["2024-11-05", OLD, NEW]
        assert offer_of(peer) == OLD  # an echo of the older one would hide the newer server


@pytest.mark.requirement("VER-16")
def test_what_is_remembered_of_a_command_is_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with Scripted(DIES, opening(), opening(), opening(NEW)) as peer:
        assert revisions(Stdio(*peer.command), 1) == [OLD]
        clock = Clock(monkeypatch, "syncmcp._client.opening")
        clock.advance(3590.0)
        assert revisions(Stdio(*peer.command), 1) == [OLD]
        clock.advance(20.0)
        assert revisions(Stdio(*peer.command), 1) == [NEW]


@pytest.mark.requirement("VER-16")
@pytest.mark.parametrize("other", ["argument", "environment", "directory"])
def test_what_is_remembered_of_a_command_is_of_that_one_alone(other: str, tmp_path: Path) -> None:
    with Scripted(DIES, opening(), opening(NEW), opening()) as peer:
        here: Any = {"env": {"PYTHONPATH": str(ROOT)}}
        known = Stdio(*peer.command, **here)
        words = peer.command
        if other == "argument":
            words = [*words, "--verbose"]
        elif other == "environment":
            here["env"] = {**here["env"], "FLAVOUR": "new"}
        else:
            here["cwd"] = tmp_path
        assert revisions(known, 1) == [OLD]
        assert revisions(Stdio(*words, **here), 1) == [NEW]
        assert revisions(Stdio(*peer.command, env={"PYTHONPATH": str(ROOT)}), 1) == [OLD]


@pytest.mark.requirement("VER-16")
def test_what_is_remembered_of_a_relative_directory_is_of_where_that_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("one", "other"):
        (tmp_path / place / "server").mkdir(parents=True)
    with Scripted(DIES, opening(), opening(NEW), opening()) as peer:
        here: Any = {"env": {"PYTHONPATH": str(ROOT)}}
        relative = Stdio(*peer.command, cwd="server", **here)
        monkeypatch.chdir(tmp_path / "one")
        assert revisions(relative, 1) == [OLD]
        monkeypatch.chdir(tmp_path / "other")
        assert revisions(relative, 1) == [NEW]
        absolute = Stdio(*peer.command, cwd=tmp_path / "one" / "server", **here)
        assert revisions(absolute, 1) == [OLD]


@pytest.mark.requirement("VER-16")
def test_a_pinned_mode_neither_needs_nor_changes_what_is_remembered_of_a_command() -> None:
    with Scripted(DIES, opening(), opening("2024-11-05"), opening()) as peer:
        target = Stdio(*peer.command)
        assert revisions(target, 1) == [OLD]
        with syncmcp.connect(target, mode="2024-11-05"):
            pass
        assert revisions(target, 1) == [OLD]
        assert peer.methods(7) == [*FALLEN_BACK, *["initialize", INITIALIZED] * 2]


def test_of_many_commands_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._client.opening._MAX_REMEMBERED", 2)
    found = RevisionMemory()
    commands = [Stdio("no-such-command", str(number)) for number in range(3)]
    for command in (commands[0], commands[1], commands[0], commands[2]):
        found.learn(command, dialect_for(OLD, None), failed_probe=True)
    assert [found.find(command) for command in commands] == [OLD, None, OLD]


@pytest.mark.requirement("VER-19")
@pytest.mark.parametrize("info", [{"name": "2026-07-28", "version": "mcp 99"}, {}, "nobody"])
def test_nothing_is_decided_by_what_a_server_calls_itself(info: object) -> None:
    opened = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info}
    steps = [s.expect("initialize"), s.reply(opened), s.expect(INITIALIZED), *LIST]
    with Scripted(steps) as peer, syncmcp.connect(peer, mode="legacy") as client:
        assert client.server.revision == "2024-11-05"
        assert client.list_tools().tools == []
        if not isinstance(info, dict) or not info:
            assert client.server.info is None


@pytest.mark.requirement("VER-04")
def test_calls_of_other_threads_wait_until_the_handshake_is_over() -> None:
    steps = [
        s.expect("initialize"),
        s.gate("answer"),
        *opening()[1:],
        *PING * 4,
    ]
    with Scripted(steps) as peer:
        client = Client(peer, mode="legacy", lazy=True)
        callers = [threading.Thread(target=client.ping) for _ in range(4)]
        for caller in callers:
            caller.start()
        peer.transcript.wait_received("initialize")
        assert peer.methods(1) == ["initialize"]
        peer.open("answer")
        for caller in callers:
            caller.join(10)
        client.close()
        assert peer.methods(6) == ["initialize", INITIALIZED, *["ping"] * 4]


def test_instructions_and_capabilities_are_there_to_read() -> None:
    server = Server("shop", instructions="Ask for the price first.")
    server.add_tool(lambda: "x", name="price")
    with syncmcp.connect(server) as client:
        assert client.server.instructions == "Ask for the price first."
        assert client.server.capabilities.tools is not None
        assert client.server.capabilities.prompts is None


def test_an_unknown_mode_is_refused_before_anything_is_started() -> None:
    mode: Any = "2025-06"
    with pytest.raises(syncmcp.UsageError, match="2025-06-18"):
        Client("https://example.com/mcp", mode=mode)
