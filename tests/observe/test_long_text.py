"""How much of a server's text an error quotes, wherever the server puts it."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp import Client, McpError, types
from syncmcp.skills import Skills, problem
from syncmcp.testing import ScriptedPeer, Server
from syncmcp.testing import script as s
from tests.support.scripts import EVERYTHING, NEW, OLD

MOST_QUOTED = 16 * 1024
LONG = "\xe9" * 100_000


def check_text(error: McpError) -> None:
    assert len(error.message) < 2 * MOST_QUOTED
    assert len(str(error)) < 2 * MOST_QUOTED


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": LONG},
        {"resultType": {"a": [LONG]}},
        {"resultType": "input_required", "inputRequests": {"a": {"method": LONG}}},
    ],
    ids=["kind of result", "kind that is no string", "question"],
)
def test_an_error_about_a_result_quotes_little_of_it(result: dict[str, Any]) -> None:
    steps = [*s.handshake(NEW, capabilities=EVERYTHING), s.expect("tools/call"), s.reply(result)]
    with ScriptedPeer(steps) as peer, Client(peer, mode=NEW, retry=None) as client:
        with pytest.raises(McpError) as caught:
            client.call_tool("t")
        check_text(caught.value)


@pytest.mark.parametrize(
    ("mode", "method", "result"),
    [
        (OLD, "initialize", {"protocolVersion": LONG}),
        (OLD, "initialize", {"protocolVersion": [LONG]}),
        (NEW, "server/discover", {"supportedVersions": [LONG]}),
        ("auto", "server/discover", {"supportedVersions": [LONG]}),
    ],
)
def test_an_error_about_a_revision_quotes_little_of_it(
    mode: Any, method: str, result: dict[str, Any]
) -> None:
    steps = [s.expect(method), s.reply({"capabilities": {}, **result})]
    with ScriptedPeer(steps) as peer, pytest.raises(McpError) as caught:
        Client(peer, mode=mode, retry=None).open()
    check_text(caught.value)


def test_an_error_about_a_skill_quotes_little_of_it() -> None:
    frontmatter = {"name": "a", "description": "b"}
    entry = {"uri": f"skill://{LONG}/SKILL.md", "frontmatter": frontmatter, "resources": []}
    skill = types.Skill.from_wire(entry)
    assert problem(skill) is not None
    with Client(Server(), extensions={"io.modelcontextprotocol/skills": {}}) as client:
        with pytest.raises(McpError) as caught:
            Skills(client).load(skill, undeclared="try")
        check_text(caught.value)


def test_a_long_message_is_cut_between_two_words() -> None:
    assert McpError("x" * MOST_QUOTED).message == "x" * MOST_QUOTED
    words = McpError("word " * 10_000).message
    assert words.endswith("word… (33,621 more characters)")
    assert McpError(f"a {'x' * 50_000}").message == "a… (50,001 more characters)"
