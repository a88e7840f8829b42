"""Approvals and rules are for one server, even if another name looks the same."""

from __future__ import annotations

import gc
import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Http, Rule, Rules, ServersFile, Stdio, servers_file
from syncmcp.approval import Approval, AutoApprove, Decision, Policy, Verdict
from syncmcp.handlers.context import ConnectedServer, renamed
from syncmcp.testing import Server, demo_server, serve_http
from tests.approval.test_approval import Person, question
from tests.support import people
from tests.support.parts import agreement

LONG = "x" * 117
_SERVER = Server("once")


def connected(target: Any, name: str | None = None) -> ConnectedServer:
    """Return the server as a client of `target` describes it."""
    client = syncmcp.Client(target, name=name, lazy=True)
    return client._core.settings.connected_server(agreement())


def asked_twice(one: ConnectedServer, other: ConnectedServer) -> bool:
    """Return whether a person who allowed all of `one` is asked again for `other`."""
    person = Person(Verdict.allow(remember=True))
    approval = Approval(reviewer=person)
    for server in (one, one, other, other):
        approval.review_request(question(of=server))
    return len(person.asked) == 2


ALLOWS = Rules([Rule(server="tutor", decision=Decision.ALLOW)], otherwise=Decision.DENY)


NOT_NAMED = Verdict.deny(
    reason="a rule can allow only a server that the program named: Client(name=...), or a key of a"
    " group that differs from the name in a guarded servers file"
)


ALIKE = {
    "behind the end of the name": (Stdio("run", LONG, "good"), Stdio("run", LONG, "evil")),
    "another split into words": (Stdio("run", "a b"), Stdio("run", "a", "b")),
    "a secret of the command": (Stdio("run", "--token", "aaaaaa"), Stdio("run", "--token", "b")),
    "directory": (Stdio("run", cwd="/good"), Stdio("run", cwd="/evil")),
    "variable": (Stdio("run"), Stdio("run", env={"LD_PRELOAD": "/evil.so"})),
    "query": ("https://example.com/mcp?tenant=good", "https://example.com/mcp?tenant=evil"),
    "user": ("https://good@example.com/mcp", "https://evil@example.com/mcp"),
    "in-process server": (Server("same"), Server("same")),
    "command and in-process server": (Stdio("same"), Server("same")),
}


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE)
@pytest.mark.requirement("M-20")
def test_a_remembered_decision_is_for_one_server_and_no_default_name_allows(
    one: Any, other: Any
) -> None:
    assert asked_twice(connected(one), connected(other))
    # A name that the program gives to both does not make them one server, either.
    assert asked_twice(connected(one, "tutor"), connected(other, "tutor"))
    for server in (connected(one), connected(other)):
        rule = Rules([Rule(server=server.name, decision=Decision.ALLOW)])
        budget = AutoApprove(server=server.name, calls=9, per=60)
        assert rule.decide(question(of=server)) is Decision.ASK
        assert budget.decide(question(of=server)) is Decision.ASK


@pytest.mark.parametrize(
    ("target", "again"),
    [
        (Stdio("run", LONG, "a", env={"TOKEN": "t"}), Stdio("run", LONG, "a", env={"TOKEN": "t"})),
        (Http("https://example.com/?a=1"), Http("https://example.com/?a=1")),
        (Http("https://example.com/"), "https://example.com/"),
        (_SERVER, _SERVER),
    ],
    ids=["command", "target", "URL", "in-process server"],
)
def test_another_client_of_the_same_server_is_the_same_server(target: Any, again: Any) -> None:
    assert not asked_twice(connected(target), connected(again))
    assert not asked_twice(connected(target, "tutor"), connected(again, "tutor"))
    assert asked_twice(connected(target, "mine"), connected(again, "yours"))


def test_a_server_at_the_address_of_one_that_is_gone_is_another_one() -> None:
    """Python may give a new object the address of a freed one."""
    identities = set()
    for _ in range(20):
        identities.add(connected(Server("same")).identity)
        gc.collect()
    assert len(identities) == 20


def test_another_directory_is_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which program "./server" is depends on the directory of this program."""
    servers = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        servers.append(connected(Stdio("./server")))
    assert servers[1].identity == connected(Stdio("./server", cwd=tmp_path / "b")).identity
    assert asked_twice(*servers)
    (tmp_path / "b").rmdir()
    assert connected(Stdio("./server")).identity is not None


def test_an_identity_shows_nothing_of_the_target() -> None:
    server = connected(Http("https://me:hunter2@example.com/?key=c4nary"))
    assert not re.search("hunter2|c4nary", repr(server.identity) + repr(server))


def test_a_default_name_is_no_given_name() -> None:
    target = Stdio("run")
    assert (connected(target).name, connected(target).given_name) == ("run", None)
    assert (connected(target, "run").name, connected(target, "run").given_name) == ("run", "run")
    in_group = renamed(connected(target), "books")
    assert (in_group.name, in_group.given_name) == ("books", "books")


@pytest.mark.parametrize("decision", [Decision.DENY, Decision.ASK])
def test_a_rule_that_allows_nothing_holds_for_a_default_name_too(decision: Decision) -> None:
    rules = Rules([Rule(server="run", decision=decision)], otherwise=Decision.ALLOW)
    assert rules.decide(question(of=connected(Stdio("run")))) is decision
    assert rules.decide(question(of=connected(Stdio("other")))) is Decision.ALLOW


def test_a_name_that_the_program_gave_is_allowed_by() -> None:
    assert ALLOWS.decide(question(of=connected(Stdio("run"), "tutor"))) is Decision.ALLOW
    # A default name equals that of the rule: the reason says why it does not count.
    assert ALLOWS.decide(question(of=connected(Stdio("tutor")))) == NOT_NAMED
    assert ALLOWS.decide(question(of=connected(Stdio("other")))) is Decision.DENY


@pytest.mark.parametrize(
    ("policy", "name", "reason"),
    [
        (
            Rules([Rule(server="run", decision=Decision.ALLOW)]),
            None,
            "server that the program named",
        ),
        (AutoApprove(server="run", calls=5, per=60), None, "server that the program named"),
        (AutoApprove(server="demo", tokens=1, per=60), "demo", "budget of AutoApprove: 1 token in"),
        (Rules([], AutoApprove(server="demo", tokens=1, per=60)), "demo", "budget of AutoApprove"),
    ],
    ids=["rule", "budget for a default name", "spent", "spent behind rules"],
)
def test_without_a_person_too_the_reason_says_why_the_policy_did_not_allow(
    policy: Policy, name: str | None, reason: str
) -> None:
    with pytest.raises(syncmcp.Denied, match=reason):
        Approval(policy).review_request(question(of=connected(Stdio("run"), name)))


@pytest.fixture
def named_by_file(tmp_path: Path) -> Iterator[Callable[..., ServersFile]]:
    """Yield a function that reads a file with a server `tutor`, and approves all of it."""
    file = tmp_path / "mcp.json"

    def read(**options: Any) -> ServersFile:
        approvals = tmp_path / "approved.json"
        return servers_file.read(file, approve=lambda _: True, approvals=approvals, **options)

    with serve_http(demo_server()) as http:
        file.write_text(json.dumps({"mcpServers": {"tutor": {"url": http.url}}}))
        yield read


def decided(client: syncmcp.Client) -> tuple[str, Decision | Verdict]:
    """Return the name of a client's server, and the decision of a rule for `tutor`."""
    server = client._core.settings.connected_server(agreement())
    return server.name, ALLOWS.decide(question(of=server))


@pytest.mark.parametrize(
    "make",
    [
        syncmcp.Client,
        lambda entry: syncmcp.Client(entry, name=entry.name),
        lambda entry: syncmcp.Client(entry.target(), **entry.options),
        lambda entry: pickle.loads(pickle.dumps(syncmcp.Client(entry, lazy=True))),
    ],
    ids=["entry", "its name", "options", "pickled"],
)
def test_no_rule_allows_by_a_name_that_a_guarded_file_chose(
    make: Any, named_by_file: Callable[..., ServersFile]
) -> None:
    assert decided(make(named_by_file()["tutor"])) == ("tutor", NOT_NAMED)
    # A name from a trusted file counts, and so does a name that the program gives.
    assert decided(make(named_by_file(trust=True)["tutor"])) == ("tutor", Decision.ALLOW)
    own = syncmcp.Client(named_by_file()["tutor"], name="tutor")
    assert decided(own) == ("tutor", Decision.ALLOW)


@pytest.mark.parametrize(
    ("servers", "given"),
    [
        (lambda read: read(), None),
        (lambda read: {"tutor": Server("own"), **read()}, None),
        (lambda read: {"mine": read()["tutor"]}, "mine"),
        (lambda read: read(trust=True), "tutor"),
    ],
    ids=["the file", "merged into others", "another key of the program's", "a trusted file"],
)
def test_a_group_tells_names_of_a_file_from_those_of_the_program(
    servers: Any, given: str | None, named_by_file: Callable[..., ServersFile]
) -> None:
    with syncmcp.ClientGroup(servers(named_by_file), require="all") as group:
        name = given or "tutor"
        shown, client = group.status[name].server, group.clients[name].server
    assert shown is not None
    assert [(one.name, one.given_name) for one in (shown, client)] == 2 * [(name, given)]


def test_a_pickled_client_of_a_command_is_of_the_same_server() -> None:
    client = syncmcp.Client(Stdio("run", LONG), lazy=True)
    copies = (client, pickle.loads(pickle.dumps(client)))
    one, other = (each._core.settings.connected_server(agreement()).identity for each in copies)
    assert one == other


def test_clients_with_one_approval_ask_for_each_server() -> None:
    """With open clients, from the question of a server to the person."""
    person = Person(Verdict.allow(remember=True))
    approval = Approval(reviewer=person)
    model = people.Person(people.reply("Yes."))
    for server in (demo_server(), demo_server()):
        with syncmcp.connect(server, sampling=model, approval=approval) as client:
            for _ in range(2):
                client.call_tool("request_llm_help", {"question": "May I?"})
    # For each server once for the request, and once for the answer.
    assert len(person.asked) == 4
    assert len({each.server.name for each in person.asked}) == 1
    assert len({each.server.identity for each in person.asked}) == 2
