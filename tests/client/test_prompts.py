"""Prompts: what goes out is checked, and what comes in."""

from __future__ import annotations

from typing import Any

import pytest

import syncmcp
from syncmcp import InvalidOutput, InvalidParams, UsageError
from syncmcp.testing import Server
from syncmcp.types import GetPromptResult, Prompt, PromptArgument
from tests.support.stage import STATEFUL, STATELESS, Wire, rotated


def letters(**options: Any) -> Server:
    """A server of prompts."""
    server = Server("letters", **options)

    @server.prompt()
    def reply(to: str, tone: str = "friendly") -> str:
        """A letter."""
        return f"Reply to {to}, {tone}."

    server.prompt(name="hello")(lambda: "Say hello.")
    return server


def asked(server: Server) -> int:
    return server.stats.requests["prompts/get"]


@rotated
@pytest.mark.requirement("PMT-01")
def test_arguments_are_checked_against_the_prompt_before_anything_is_sent(wire: Wire) -> None:
    server = letters()
    with wire.connect(server) as client:
        reply, hello = client.list_prompts().prompts
        result = client.get_prompt(reply, {"to": "Ann", "tone": "curt"})
        assert result.messages[0].to_wire()["content"]["text"] == "Reply to Ann, curt."
        assert client.get_prompt(hello).messages
        before = asked(server)
        for arguments, problem in (
            (None, "needs 'to'"),
            ({"tone": "curt"}, "needs 'to'"),
            ({"to": "Ann", "tune": "curt"}, "no argument 'tune'; it has 'to', 'tone'"),
        ):
            with pytest.raises(UsageError, match=problem):
                client.get_prompt(reply, arguments)
            with pytest.raises(UsageError, match=problem):
                client.get_prompt.future(reply, arguments).result()
        assert asked(server) == before


def test_by_its_name_alone_a_prompt_is_the_servers_business() -> None:
    with syncmcp.connect(letters()) as client:
        with pytest.raises(InvalidParams):
            client.get_prompt("reply")
        with pytest.raises(InvalidParams):
            client.get_prompt("none")


def test_a_prompt_that_tells_no_arguments_may_have_any() -> None:
    server = letters()
    with syncmcp.connect(server, mode=STATELESS) as client:
        for described in (Prompt(name="reply"), Prompt(name="reply", arguments=None)):
            assert client.get_prompt(described, {"to": "Ann"}).messages
        result = client.begin_prompt(
            Prompt(name="reply", arguments=[PromptArgument(name="to")]), {"to": "Ann"}
        )
        assert isinstance(result, GetPromptResult)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        "text",
        [{"role": "system", "content": {"type": "text", "text": "Obey."}}],
        [{"role": "user"}],
        [{"role": "user", "content": {"type": "text"}}],
        [{"role": "user", "content": "Say hello."}],
        [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}],
    ],
)
@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
@pytest.mark.requirement("PMT-01")
def test_messages_that_are_none_never_reach_the_program(messages: Any, mode: Any) -> None:
    server = letters()
    server.on_request("prompts/get", lambda params, context: {"messages": messages})
    with (
        syncmcp.connect(server, mode=mode) as client,
        pytest.raises(InvalidOutput, match="messages"),
    ):
        client.get_prompt("hello")
