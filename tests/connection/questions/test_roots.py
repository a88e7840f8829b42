"""Roots on the wire: listed on request, announced when they change, and only what may be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Handlers, Mode, UsageError
from syncmcp.approval import AllowAll, DenyAll
from syncmcp.handlers.roots import Roots
from syncmcp.testing import Server
from syncmcp.types import Root
from tests.connection.questions.asking import (
    BOTH,
    ROOTS,
    asked,
    asker,
    asking_server,
    demanded,
    every_revision,
    model,
)
from tests.support.scripts import NEW, OLD, STATEFUL
from tests.support.stage import PATIENCE, Wire, rotated

CHANGED = "notifications/roots/list_changed"


def uris(client: syncmcp.Client, **options: Any) -> list[str]:
    """The roots that the server sees now."""
    return [root["uri"] for root in asked(client, ROOTS, **options)["result"]["roots"]]


@every_revision
@pytest.mark.requirement("ROOT-01", "ROOT-02")
def test_roots_are_listed_as_file_uris_with_what_belongs_to_them(
    revision: Mode, tmp_path: Path
) -> None:
    odd, file = tmp_path / "a b%#\u00e9", tmp_path / "notes.txt"
    odd.mkdir()
    file.write_text("x")
    notes = {"uri": file.as_uri(), "name": "Notes", "_meta": {"k": 1}}
    given, server = [odd, Root.from_wire(notes), str(tmp_path)], asking_server()
    with syncmcp.connect(server, mode=revision, roots=given) as client:
        listed = [{"uri": odd.as_uri()}, notes, {"uri": tmp_path.as_uri()}]
        assert asked(client, ROOTS)["result"]["roots"] == listed
    assert server.stats.violations == []


@every_revision
@pytest.mark.requirement("ROOT-03", "M-03")
def test_what_changes_is_announced_once_and_what_does_not_is_not(
    revision: Mode, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    server = asking_server()
    with syncmcp.connect(server, mode=revision, roots=[tmp_path]) as client:
        client.roots.replace([tmp_path])  # nothing new
        client.roots.add(tmp_path)
        client.roots.replace([first, second])
        assert uris(client) == [first.as_uri(), second.as_uri()]
        with pytest.raises(UsageError):
            client.roots.replace([tmp_path, tmp_path / "nowhere"])
        assert uris(client) == [first.as_uri(), second.as_uri()]
        client.roots.add(tmp_path)
        told = 0 if revision == NEW else 2  # of the list, and of what was added
        assert server.stats.wait_for(lambda seen: seen.notifications[CHANGED] >= told, PATIENCE)
        client.list_tools()
    with server.stats as stats:
        assert stats.notifications[CHANGED] == told
        assert stats.violations == []


@pytest.mark.requirement("ROOT-03")
def test_roots_shared_by_two_clients_tell_both_servers(tmp_path: Path) -> None:
    shared, servers = Roots(), [asking_server(), asking_server()]

    def told(times: int, *servers: Server) -> bool:
        return all(
            server.stats.wait_for(lambda seen: seen.notifications[CHANGED] == times, PATIENCE)
            for server in servers
        )

    with syncmcp.connect(servers[0], mode=OLD, roots=shared) as one:
        with syncmcp.connect(servers[1], mode=OLD, roots=shared) as other:
            shared.add(tmp_path)
            assert told(1, *servers)
            assert uris(one) == uris(other) == [tmp_path.as_uri()]
            shared.replace([tmp_path, "/"])
            assert told(2, *servers)
        shared.remove(tmp_path)
        assert told(3, servers[0])
    assert servers[1].stats.notifications[CHANGED] == 2


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
        for _ in range(2):
            assert demanded(client, ROOTS)["error"][0] == -32601
            with pytest.raises(UsageError, match="did not declare 'roots'"):
                client.roots.list()


@BOTH
def test_a_client_that_is_not_open_yet_may_be_given_roots_and_one_call_its_own(
    revision: Mode, tmp_path: Path
) -> None:
    client = syncmcp.Client(asking_server(), mode=revision)
    client.roots.add(tmp_path)
    assert client.roots is client.roots
    with client:
        assert uris(client) == [tmp_path.as_uri()]
        assert uris(client, handlers=Handlers(roots=lambda context: ["/"])) == ["file:///"]
        assert uris(client) == [tmp_path.as_uri()]
