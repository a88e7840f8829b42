"""Roots on the wire: listed on request, announced when they change, and only what may be seen."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Handlers, Mode, Refused, UsageError
from syncmcp.approval import AllowAll, DenyAll
from syncmcp.handlers.roots import Roots
from syncmcp.testing import script as s
from syncmcp.types import Root
from tests.connection.questions.asking import (
    ROOTS,
    asked,
    asker,
    asking_server,
    demanded,
    every_revision,
    fault,
    model,
    said,
)
from tests.support.scripts import NEW, OLD, STATEFUL, WIRES, opening, talk
from tests.support.stage import PATIENCE, Wire, rotated

BOTH = pytest.mark.parametrize("revision", [OLD, NEW])
CHANGED = "notifications/roots/list_changed"


def uris(client: syncmcp.Client, **options: Any) -> list[str]:
    """The roots that the server sees now."""
    return [root["uri"] for root in asked(client, ROOTS, **options)["result"]["roots"]]


@every_revision
@pytest.mark.requirement("ROOT-01", "ROOT-02")
def test_roots_are_listed_as_file_uris_with_what_belongs_to_them(
    revision: Mode, tmp_path: Path
) -> None:
    odd = tmp_path / "a b%#\u00e9"
    odd.mkdir()
    file = tmp_path / "notes.txt"
    file.write_text("x")
    named = Root.from_wire({"uri": file.as_uri(), "name": "Notes", "_meta": {"k": 1}})
    server = asking_server()
    with syncmcp.connect(server, mode=revision, roots=[odd, named, str(tmp_path)]) as client:
        assert asked(client, ROOTS)["result"]["roots"] == [
            {"uri": odd.as_uri()},
            {"uri": file.as_uri(), "name": "Notes", "_meta": {"k": 1}},
            {"uri": tmp_path.as_uri()},
        ]
    with server.stats as stats:
        assert stats.violations == []


@rotated
@pytest.mark.requirement("ROOT-03", "M-03")
def test_a_new_list_as_a_whole_is_announced_once(wire: Wire, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    server = asking_server()
    with wire.connect(server, roots=[tmp_path]) as client:
        client.roots.replace([tmp_path])  # nothing new
        client.roots.replace([first, second])
        assert uris(client) == [first.as_uri(), second.as_uri()]
        with pytest.raises(UsageError):
            client.roots.replace([tmp_path, tmp_path / "nowhere"])
        assert uris(client) == [first.as_uri(), second.as_uri()]
        client.roots.add(tmp_path)
        told = 0 if wire.revision == NEW else 2  # of the list, and of what was added
        assert server.stats.wait_for(lambda seen: seen.notifications[CHANGED] >= told, PATIENCE)
    with server.stats as stats:
        assert stats.notifications[CHANGED] == told


@WIRES
@pytest.mark.requirement("ROOT-03")
def test_a_change_that_changes_nothing_is_not_announced(wire: str, tmp_path: Path) -> None:
    script = [*opening(), s.expect(CHANGED), s.expect("ping"), s.reply({})]
    with talk(script, wire, roots=[tmp_path]) as (peer, client):
        client.roots.add(tmp_path)
        client.roots.add(tmp_path, name="named")
        peer.requests(CHANGED)
        client.ping()
        assert peer.methods(4).count(CHANGED) == 1
        assert "id" not in peer.requests(CHANGED)[0]


@pytest.mark.parametrize("revision", STATEFUL)
@pytest.mark.requirement("ROOT-03")
def test_every_stateful_revision_is_told_of_changes(revision: Mode, tmp_path: Path) -> None:
    server = asking_server()
    with syncmcp.connect(server, mode=revision, roots=[]) as client:
        assert said(client, "capabilities") == {"roots": {"listChanged": True}}
        client.roots.add(tmp_path)
        assert server.stats.wait_for(lambda seen: seen.notifications[CHANGED] == 1, PATIENCE)


@pytest.mark.requirement("ROOT-03")
def test_roots_shared_by_two_clients_tell_both_servers(tmp_path: Path) -> None:
    shared, servers = Roots(), [asking_server(), asking_server()]
    with syncmcp.connect(servers[0], mode=OLD, roots=shared) as one:
        with syncmcp.connect(servers[1], mode=OLD, roots=shared) as other:
            shared.add(tmp_path)
            for server in servers:
                assert server.stats.wait_for(
                    lambda seen: seen.notifications[CHANGED] == 1, PATIENCE
                )
            assert uris(one) == uris(other) == [tmp_path.as_uri()]
            shared.replace([tmp_path, "/"])
            for server in servers:
                assert server.stats.wait_for(
                    lambda seen: seen.notifications[CHANGED] == 2, PATIENCE
                )
        shared.remove(tmp_path)
        assert servers[0].stats.wait_for(lambda seen: seen.notifications[CHANGED] == 3, PATIENCE)
    with servers[1].stats as stats:
        assert stats.notifications[CHANGED] == 2


@rotated
@pytest.mark.requirement("ROOT-01")
def test_a_function_is_asked_each_time_and_sees_who_asks(wire: Wire, tmp_path: Path) -> None:
    contexts: list[syncmcp.HandlerContext] = []

    def list_them(context: syncmcp.HandlerContext) -> list[Any]:
        contexts.append(context)
        return [tmp_path, "/"][: len(contexts)]

    with wire.connect(asking_server(), roots=list_them, name="mine") as client:
        assert uris(client) == [tmp_path.as_uri()]
        assert uris(client) == [tmp_path.as_uri(), "file:///"]
    assert [context.method for context in contexts] == [ROOTS] * 2
    assert contexts[0].server.name == "mine"
    assert contexts[0].client is client


def _fail(context: Any) -> list[Any]:
    raise OSError("swordfish")


def _elsewhere(context: Any) -> list[Any]:
    return ["https://example.org/"]


def _missing(context: Any) -> list[Any]:
    return ["/swordfish/is/not/here"]


def _no_list(context: Any) -> Any:
    return 7


@BOTH
@pytest.mark.parametrize("roots", [_fail, _elsewhere, _missing, _no_list])
@pytest.mark.requirement("ROOT-06", "ROOT-02", "ROOT-04")
def test_a_function_that_fails_is_an_internal_error_and_says_nothing(
    roots: Any, revision: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), asker(revision, roots=roots) as client:
        if revision == OLD:
            code, text, data = asked(client, ROOTS)["error"]
            assert (code, data) == (-32603, None)
            assert "swordfish" not in text
        else:
            with pytest.raises((Refused, UsageError)):
                asked(client, ROOTS)
    assert ROOTS in caplog.text


@BOTH
def test_a_refusal_of_the_function_is_its_own(revision: Mode) -> None:
    def refuse(context: Any) -> list[Any]:
        raise Refused(-32099, "not now")

    with asker(revision, roots=refuse) as client:
        assert fault(client, ROOTS) == (-32099, "not now")


@BOTH
@pytest.mark.requirement("ROOT-05", "M-03")
def test_a_policy_may_keep_the_roots_to_itself(revision: Mode, tmp_path: Path) -> None:
    for approval, shown in ((DenyAll(), []), (AllowAll(), [tmp_path.as_uri()])):
        with asker(revision, roots=[tmp_path], approval=approval) as client:
            assert uris(client) == shown


@pytest.mark.parametrize("revision", STATEFUL)
@pytest.mark.requirement("ROOT-06")
def test_without_roots_the_method_is_unknown(revision: Mode) -> None:
    with asker(revision, sampling=model) as client:
        assert demanded(client, ROOTS)["error"][0] == -32601
        with pytest.raises(UsageError, match="handshake"):
            client.roots.list()
        assert demanded(client, ROOTS)["error"][0] == -32601


@BOTH
def test_a_client_that_is_not_open_yet_may_be_given_roots(revision: Mode, tmp_path: Path) -> None:
    client = syncmcp.Client(asking_server(), mode=revision)
    client.roots.add(tmp_path)
    assert client.roots is client.roots
    with client:
        assert uris(client) == [tmp_path.as_uri()]


def test_one_call_may_have_roots_of_its_own(tmp_path: Path) -> None:
    with asker(NEW, roots=["/"]) as client:
        own = Handlers(roots=lambda context: [tmp_path])
        assert uris(client, handlers=own) == [tmp_path.as_uri()]
        assert uris(client) == ["file:///"]
