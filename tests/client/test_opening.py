"""Opening, end to end, with every kind of server that is known to exist."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

import syncmcp
from syncmcp import Client, ConnectionLost, Mode, RequestTimeout, Stdio
from syncmcp._client.opening import RevisionMemory
from syncmcp._connection.connection import Connection
from syncmcp._protocol.revisions import dialect_for
from syncmcp.testing import Server
from syncmcp.testing import script as s
from syncmcp.types import Implementation
from tests.support.scripts import NEW, OLD, REVISIONS, STATEFUL, Scripted, opening
from tests.support.stage import PATIENCE, Clock, in_threads

INITIALIZED = "notifications/initialized"
FALLEN_BACK = ["server/discover", "initialize", INITIALIZED]
PING = [s.expect("ping"), s.reply({})]
LIST = [s.expect("tools/list"), s.reply({"resultType": "complete", "tools": []})]

STARTED = {"protocolVersion": OLD, "capabilities": {}, "serverInfo": {}}
DISCOVERED = opening(NEW)[1]["value"]["result"]
REFUSED = s.error(-32601, "Method not found")
OTHER_VERSION = s.error(-32022, "no", {"supported": [NEW], "requested": OLD})
NEWER = s.error(-32022, "no", {"supported": ["2027-01-01", NEW], "requested": NEW})
PROBE = s.expect("server/discover")
START = s.expect("initialize")
TWO_PROBES = [s.expect("server/discover", label=label) for label in ("first", "second")]
BOTH = [s.expect("server/discover", label="probe"), s.expect("initialize", label="start")]

DIES = [PROBE, s.cut(code=1)]
ENDS = [START, s.cut(code=1)]
REFUSES = [PROBE, REFUSED, *opening()]

OPENED = ["initialize", INITIALIZED]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent a second probe of a server that starts slowly on a busy machine."""
    monkeypatch.setattr("syncmcp._client.opening._REPROBE_SECONDS", PATIENCE)


def probe_soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._client.opening._REPROBE_SECONDS", 0.05)


# -- servers that are started once ----------------------------------------------------------------
class Start(NamedTuple):
    """The steps of a server during opening, the methods it receives, and the agreed revision."""

    steps: list[s.Step]
    methods: Sequence[str] = FALLEN_BACK
    revision: str = OLD
    options: Mapping[str, Any] = MappingProxyType({})


SOON: dict[str, Any] = {"probe_timeout": 0.1}
TWICE = ["server/discover", "server/discover"]

STARTS: dict[str, Start] = {
    # For all kinds of refusal, see tests/protocol/test_negotiate.py.
    "refused: method not found": Start([PROBE, REFUSED, *opening()]),
    "refused: a result that is no object": Start([PROBE, s.reply("what?"), *opening()]),
    "silent on the probe": Start(opening(), options=SOON),
    "refused after the limit": Start(
        [*BOTH, {**REFUSED, "to": "probe"}, s.reply(STARTED, to="start")], FALLEN_BACK, OLD, SOON
    ),
    "noise before every answer": Start(
        [PROBE, s.garbage(2), REFUSED, START, s.garbage(3), *opening()[1:], s.garbage()]
    ),
    # A possible refusal counts at once: these limits are too long for the test to wait.
    "refused: names no request": Start(
        [PROBE, s.message({"jsonrpc": "2.0", "id": None, "error": {"code": -32600}}), *opening()],
        options={"probe_timeout": 3600.0, "open_timeout": None},
    ),
    "refused for its version": Start([PROBE, NEWER, *opening(NEW)], TWICE, NEW),
    "modern, and silent until the handshake": Start(
        [PROBE, START, OTHER_VERSION, *opening(NEW)],
        ["server/discover", "initialize", "server/discover"],
        NEW,
        SOON,
    ),
    "answers the probe during the handshake": Start(
        [*BOTH, s.reply(DISCOVERED, to="probe"), s.reply(STARTED, to="start")],
        ["server/discover", "initialize"],
        NEW,
        SOON,
    ),
}


@pytest.mark.parametrize(("case", "wire"), [*zip(STARTS, cycle(["memory", "stdio"]), strict=False)])
@pytest.mark.requirement("VER-01", "VER-03", "VER-11", "VER-12", "VER-13", "VER-14")
@pytest.mark.pitfall("4", "18")
def test_a_server_of_any_kind_is_opened_on_one_connection(case: str, wire: str) -> None:
    start = STARTS[case]
    modern = start.revision == NEW
    with Scripted([*start.steps, *(LIST if modern else PING)]) as peer:
        with syncmcp.connect(peer.on(wire), **start.options) as client:
            client.list_tools() if modern else client.ping()
            assert client.server.revision == start.revision
        used = "tools/list" if modern else "ping"
        assert peer.methods(len(start.methods) + 1) == [*start.methods, used]
        assert {seen.connection for seen in peer.transcript.received} == {0}
        for offer in peer.requests("initialize", start.methods.count("initialize")):
            assert offer["params"]["protocolVersion"] == OLD


@pytest.mark.requirement("VER-13", "VER-14")
@pytest.mark.pitfall("18")
@pytest.mark.parametrize(
    ("answered", "wire"),
    [(["first"], "memory"), (["second"], "stdio"), (["first", "second"], "memory")],
)
@pytest.mark.parametrize("modern", [True, False])
def test_a_slow_server_is_probed_twice(
    answered: list[str], modern: bool, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe_soon_again(monkeypatch)
    steps = [
        s.stderr(b"loading\nTraceback (most recent call last):\nValidationError: a bad plug-in\n"),
        *TWO_PROBES,
        *[s.reply(DISCOVERED, to=to) if modern else {**REFUSED, "to": to} for to in answered],
        *(LIST if modern else [*opening(), *PING]),
    ]
    if wire == "memory":
        del steps[0]
    with Scripted(steps) as peer:
        with syncmcp.connect(peer.on(wire), probe_timeout=10.0) as client:
            client.list_tools() if modern else client.ping()
            assert client.server.revision == (NEW if modern else OLD)
        then = ["tools/list"] if modern else [*OPENED, "ping"]
        assert peer.methods(2 + len(then)) == [*TWICE, *then]
        assert {seen.connection for seen in peer.transcript.received} == {0}


@pytest.mark.parametrize("revision", [REVISIONS[0], NEW])
@pytest.mark.requirement("RPC-28", "RPC-29")
def test_every_revision_can_be_agreed_on(revision: Mode) -> None:
    steps = [*opening(revision), *LIST, s.expect("tools/call"), s.reply({"content": []})]
    start = OPENED if revision in STATEFUL else ["server/discover"]
    seen: list[list[dict[str, Any]]] = []
    for wire in ("memory", "stdio"):
        with Scripted(steps) as peer, syncmcp.connect(peer.on(wire), mode=revision) as client:
            client.list_tools()
            client.call_tool("x", {"a": [1]}, meta={"acme.example/k": "v"})
            assert client.server.revision == revision
            assert client.server.info == Implementation(name="scripted", version="1")
            assert peer.methods(len(start) + 2) == [*start, "tools/list", "tools/call"]
            seen.append([one.message for one in peer.transcript.received])
    in_memory, piped = seen
    assert in_memory == piped
    assert {message["jsonrpc"] for message in in_memory} == {"2.0"}
    if revision in STATEFUL:
        params = in_memory[0]["params"]
        assert params.keys() == {"protocolVersion", "capabilities", "clientInfo"}
        assert params["protocolVersion"] == revision


@pytest.mark.requirement("VER-14")
@pytest.mark.pitfall("18")
def test_who_stopped_reading_before_it_ended_died_of_the_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syncmcp._client.opening._EXIT_NOTICE_SECONDS", PATIENCE)
    request, ended = Connection.request, threading.Event()

    def reads_no_more(connection: Connection, method: str, *args: Any, **options: Any) -> Any:
        if method == "initialize" and not ended.is_set():
            ended.set()
            peer.open("end")
            raise ConnectionLost("the server no longer reads")
        return request(connection, method, *args, **options)

    with Scripted([PROBE, s.gate("end"), s.cut(code=1)], opening()) as peer:
        monkeypatch.setattr(Connection, "request", reads_no_more)
        assert revisions(Stdio(*peer.command), 1, probe_timeout=0.1) == [OLD]


# -- remembered revisions --------------------------------------------------------------------------
def revisions(target: Stdio, count: int, **options: Any) -> list[str]:
    """Return the revisions that a number of clients negotiate, one after another."""
    found = []
    for _ in range(count):
        with syncmcp.connect(target, **options) as client:
            found.append(client.server.revision)
    return found


NOT_ANY_MORE = ["initialize", "server/discover"]


def test_a_failed_negotiation_names_its_server() -> None:
    chosen = {**STARTED, "protocolVersion": "1999-01-01"}
    wrong = pytest.raises(syncmcp.errors.ProtocolError, match=r"\[shop\]: .*'1999-01-01'")
    with Scripted([START, s.reply(chosen)]) as peer, wrong as raised:
        syncmcp.connect(peer.url, name="shop", mode="legacy")
    assert raised.value.server == "shop"


@pytest.mark.requirement("VER-16")
@pytest.mark.parametrize(
    ("scripts", "revision", "methods"),
    [
        ([REFUSES, opening()], OLD, OPENED),
        ([REFUSES, [START, OTHER_VERSION], opening(NEW)], NEW, NOT_ANY_MORE),
        ([REFUSES, ENDS, opening(NEW)], NEW, NOT_ANY_MORE),
    ],
    ids=["the era that was found", "an era that no longer holds", "ends at the handshake"],
)
def test_a_client_that_is_opened_again_begins_with_what_it_found(
    scripts: list[list[s.Step]], revision: str, methods: list[str]
) -> None:
    with Scripted(*scripts) as peer:
        client = Client(Stdio(*peer.command))
        for expected in (OLD, revision):
            with client:
                assert client.server.revision == expected
        assert peer.methods(3 + len(methods)) == [*FALLEN_BACK, *methods]


class Remembered(NamedTuple):
    """Scripts for the processes of one command, the negotiated revisions, and the methods sent."""

    scripts: list[list[s.Step]]
    found: list[str]
    methods: list[str]
    options: Mapping[str, Any] = MappingProxyType({})


UNPROBED = [*FALLEN_BACK, *OPENED * 2]
FOUND_OUT = [*FALLEN_BACK, "initialize", *TWICE]

REMEMBERED: dict[str, Remembered] = {
    "died of the probe": Remembered([DIES, opening(), opening()], [OLD] * 3, UNPROBED),
    "died of the handshake behind it": Remembered(
        [[PROBE, *ENDS], opening()],
        [OLD],
        ["server/discover", "initialize", *OPENED],
        {"probe_timeout": 0.2},
    ),
    # Silent until then, also on stderr, as the official Python SDK 1.2 to 1.8.
    "died of the next line": Remembered(
        [[PROBE, *DIES], opening()],
        [OLD],
        [*TWICE, *OPENED],
        {"probe_timeout": 20.0, "open_timeout": 10.0},
    ),
    "silent on the probe": Remembered(
        [opening(), opening()], [OLD] * 3, UNPROBED, {"probe_timeout": 0.2}
    ),
    "refuses the probe": Remembered(
        [REFUSES, opening(NEW)], [OLD, NEW], [*FALLEN_BACK, "server/discover"]
    ),
    "newer, answers -32022": Remembered(
        [DIES, opening(), [START, OTHER_VERSION], opening(NEW)], [OLD, NEW, NEW], FOUND_OUT
    ),
    "newer, ends at the handshake": Remembered(
        [DIES, opening(), ENDS, opening(NEW)],
        [OLD, NEW],
        [*FALLEN_BACK, "initialize", "server/discover"],
    ),
    # The client does not offer the remembered revision: a newer server would echo it.
    "another old revision": Remembered(
        [DIES, opening("2024-11-05"), opening(OLD), opening(NEW)],
        ["2024-11-05", OLD, NEW],
        [*FALLEN_BACK, *OPENED, "server/discover"],
    ),
}


@pytest.mark.requirement("VER-14", "VER-16")
@pytest.mark.pitfall("7", "18")
@pytest.mark.parametrize("case", REMEMBERED)
def test_who_dies_of_the_probe_gets_a_fresh_process_and_is_not_probed_again(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = REMEMBERED[case]
    if row.methods[:2] == TWICE:
        probe_soon_again(monkeypatch)
    with Scripted(*row.scripts) as peer:
        assert revisions(Stdio(*peer.command), len(row.found), **row.options) == row.found
        assert peer.methods(len(row.methods)) == row.methods
        offers = {offer["params"]["protocolVersion"] for offer in peer.requests("initialize")}
        assert offers == {OLD}


KEEPING: dict[str, list[list[s.Step]]] = {
    "refuses": [REFUSES],
    "silent": [STARTS["silent on the probe"].steps],
    "late": [[*BOTH, s.reply(DISCOVERED, to="probe")]],
    "dies": [DIES, opening()],
    "twice": [[*TWO_PROBES, s.reply(DISCOVERED, to="second")]],
    "twice, and answers the first": [[*TWO_PROBES, s.reply(DISCOVERED, to="first")]],
    "twice, and refuses": [[*TWO_PROBES, {**REFUSED, "to": "second"}, *opening()]],
}


@pytest.mark.parametrize("case", KEEPING)
def test_an_open_client_keeps_no_frame_of_who_opened_it(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Owner:
        pass

    def opened_by(owner: Owner) -> Client:
        options = SOON if case in ("silent", "late") else {}
        return syncmcp.connect(Stdio(*peer.command), **options)

    if case.startswith("twice"):
        probe_soon_again(monkeypatch)
    gc.disable()  # a collection would hide a cycle with the frames
    try:
        with Scripted(*KEEPING[case]) as peer, opened_by(owner := Owner()):
            alive = weakref.ref(owner)
            del owner
            assert alive() is None
    finally:
        gc.enable()


@pytest.mark.requirement("VER-16")
def test_a_client_whose_server_became_silent_forgets_its_era(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Scripted(REFUSES, [START, s.silence()], opening(NEW)) as peer:
        client = Client(Stdio(*peer.command))
        client.open().close()
        with monkeypatch.context() as patch:
            # Only for this opening: others must succeed on a busy machine, too.
            impatient = replace(client._core.settings, open_timeout=3.0)
            patch.setattr(client._core, "settings", impatient)
            with pytest.raises(RequestTimeout, match=r"no probe.*The next open\(\) sends it"):
                client.open()
        client.close()
        with client:
            assert client.server.revision == NEW


@pytest.mark.requirement("VER-16", "VER-07")
def test_a_command_that_refused_the_probe_too_late_to_be_opened_is_not_probed_again() -> None:
    late = [*BOTH, {**REFUSED, "to": "probe"}, s.silence()]
    with Scripted(late, opening("2024-11-05"), opening("2024-11-05")) as peer:
        target = Stdio(*peer.command)
        with pytest.raises(RequestTimeout, match=r"open_timeout.*mode='legacy'"):
            syncmcp.connect(target, probe_timeout=0.1, open_timeout=2.5)
        assert revisions(target, 2) == ["2024-11-05"] * 2
        assert peer.methods(6) == ["server/discover", "initialize", *OPENED * 2]


@pytest.mark.requirement("VER-16")
def test_what_is_remembered_of_a_command_is_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with Scripted(DIES, opening(), opening(), opening(NEW)) as peer:
        clock = Clock(monkeypatch, "syncmcp._client.opening", stands=True)
        assert revisions(Stdio(*peer.command), 1) == [OLD]
        clock.advance(3599.0)
        assert revisions(Stdio(*peer.command), 1) == [OLD]
        clock.advance(1.5)
        assert revisions(Stdio(*peer.command), 1) == [NEW]


@pytest.mark.requirement("VER-16")
def test_what_is_known_is_of_that_command_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, env, dialect = RevisionMemory(), {"FLAVOUR": "old"}, dialect_for(OLD, None)
    found.learn(Stdio("serve", env=env), dialect, failed_probe=True)
    assert found.find(Stdio("serve", env=env)) == OLD
    assert found.find(Stdio("serve", "--verbose", env=env)) is None
    assert found.find(Stdio("serve", env={"FLAVOUR": "new"})) is None
    assert found.find(Stdio("serve", env=env, cwd=tmp_path)) is None
    # A relative directory depends on the current directory of the program.
    relative = Stdio("serve", cwd="server")
    found.learn(relative, dialect, failed_probe=True)
    assert found.find(relative) == OLD
    monkeypatch.chdir(tmp_path)
    assert found.find(relative) is None


def test_of_many_commands_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._client.opening._MAX_REMEMBERED", 2)
    found = RevisionMemory()
    commands = [Stdio("no-such-command", str(number)) for number in range(3)]
    for command in (commands[0], commands[1], commands[0], commands[2]):
        found.learn(command, dialect_for(OLD, None), failed_probe=True)
    assert [found.find(command) for command in commands] == [OLD, None, OLD]


@pytest.mark.requirement("VER-04")
def test_calls_of_other_threads_wait_until_the_handshake_is_over() -> None:
    with Scripted([START, s.gate("answer"), *opening()[1:], *PING * 4]) as peer:
        client = Client(peer, mode="legacy", lazy=True)

        def answer() -> None:
            peer.transcript.wait_received("initialize")
            assert peer.methods(1) == ["initialize"]
            peer.open("answer")

        assert in_threads(*[client.ping] * 4, answer, patience=PATIENCE) == [None] * 5
        client.close()
        assert peer.methods(6) == ["initialize", INITIALIZED, *["ping"] * 4]


def test_instructions_and_capabilities_are_there_to_read() -> None:
    server = Server("shop", instructions="Ask for the price first.")
    server.add_tool(lambda: "x", name="price")
    with syncmcp.connect(server) as client:
        assert client.server.instructions == "Ask for the price first."
        assert client.server.capabilities.tools is not None
        assert client.server.capabilities.prompts is None
    nameless = [START, s.reply({**STARTED, "serverInfo": "nobody"}), s.expect(INITIALIZED)]
    with Scripted(nameless) as peer, syncmcp.connect(peer, mode="legacy") as client:
        assert client.server.info is None
        assert client.server.instructions is None
