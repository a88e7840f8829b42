"""The chat of `examples/agents/agent.py`, with a simulated person at a real terminal."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from syncmcp.testing import Server, ToolContext, serve_http
from tests.cli.running import CTRL_C, CTRL_D, DOWN, ENTER, AtTerminal, at_terminal
from tests.llm.double import Turn, double
from tests.llm.providers import ANTHROPIC, RESPONSES, Call, Provider
from tests.support.stage import PATIENCE
from tests.system.test_examples import environment, example

# Seconds that a program may take to start on a busy machine, with a provider's package to load.
STARTED = 9 * PATIENCE

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

# The keys that answer the question before a call.
YES, NO = (DOWN, ENTER, "run", ENTER), (ENTER,)


class Shop:
    """A server with a price list and a slow tool, on loopback."""

    def __init__(self) -> None:
        self.server = Server("shop")
        self.url = ""
        self._inside: SimpleQueue[ToolContext] = SimpleQueue()
        self.server.tool()(self.price)
        self.server.tool()(self.slow)

    def price(self, fruit: str) -> str:
        """Return the price of a fruit, with a control sequence that clears the screen."""
        return f"{fruit}s cost 30\x1b[2J"

    def slow(self, context: ToolContext) -> str:
        """Block until the call is cancelled."""
        context.report_progress(1, 3, "one of three")
        self._inside.put(context)
        context.cancelled.wait(2 * STARTED)
        return "cancelled"

    def held(self) -> ToolContext:
        """Wait for a call of `slow`; return its context."""
        return self._inside.get(timeout=STARTED)


@pytest.fixture
def shop() -> Iterator[Shop]:
    there = Shop()
    with serve_http(there.server) as http:
        there.url = http.url
        yield there


@contextmanager
def chat(*words: str, **env: str) -> Iterator[AtTerminal]:
    """Run the chat with a person; at the end of the block, Ctrl-D must end it with exit code 0."""
    command = [sys.executable, "-W", "error", example("agent.py"), *words]
    variables: dict[str, Any] = {**environment(**env)}
    with at_terminal(shell=f"exec {shlex.join(command)}", patience=STARTED, **variables) as person:
        yield person
        prompted(person)
        person.types(CTRL_D)
        assert person.ends() == 0, person.screen
        assert "Traceback" not in person.screen


def prompted(person: AtTerminal) -> None:
    """Wait for the prompt."""
    while not person.screen.endswith("you>"):
        person.changes(person.screen)


def says(person: AtTerminal, line: str, *keys: str) -> None:
    """Type a line; if there are keys, wait for the question about a call and type them."""
    prompted(person)
    asked = person.screen.count("Call it?")
    person.types(line, ENTER)
    if keys:
        while person.screen.count("Call it?") == asked:
            person.changes(person.screen)
        person.types(*keys)


def test_without_a_key_tools_are_called_after_a_yes_ctrl_c_ends_a_call_and_commands_answer(
    shop: Shop, tmp_path: Path
) -> None:
    command = {"command": sys.executable, "args": ["-m", "syncmcp.testing"]}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"mine": command}}))
    broken = "http://127.0.0.1:1/mcp"
    servers = ["--servers", str(file), "--url", shop.url, "--url", broken, "--root", "/usr"]
    home = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    with chat(*servers, **home) as person:
        person.answers("Use it?", DOWN, ENTER)  # No comes first
        says(person, "/servers")
        person.sees("127.0.0.1:1: failed, ")
        person.sees("mine: open, revision ")

        says(person, 'price {"fruit": "pear"}', *NO)
        person.sees("-> the call was not allowed: a person said no")
        person.sees("agent: The result is: the call was not allowed")
        says(person, 'price {"fruit": "plum"}', *YES)
        person.sees("-> plums cost 30")
        person.sees("agent: The result is: plums cost 30␛[2J")  # the screen was not cleared
        assert b"\x1b[2J" not in person.raw
        assert "pears cost" not in person.screen
        says(person, "price {fruit")
        person.sees("stopped: the text after price is not JSON: ")
        says(person, "price 5")
        person.sees('stopped: the text after price must be an object, such as {"a": 1}')
        says(person, "Good day.")
        person.sees("agent: You said: Good day.")

        says(person, "slow", *YES)
        person.sees("slow one of three ━")
        held = shop.held()
        person.types(CTRL_C)
        assert held.cancelled.wait(PATIENCE)
        person.sees("stopped: the tool loop was cancelled")
        assert "one of three ━" not in person.screen
        says(person, 'price {"fruit": "fig"}', *YES)
        person.sees("agent: The result is: figs cost 30")

        shop.server.tool(name="sell")(lambda: "sold")
        for line, answer in {
            "/tools": "add (mine): Add two integers.",
            "/refresh": "17 tools",
            f"/roots add {tmp_path}": f"{tmp_path} (ok)",
            "/roots remove /nowhere": "/roots: no such root: file:///nowhere",
            "/model": "the model is scripted",
            "/model parrot": "/model: no model 'parrot': there are anthropic, openai,",
            "/help": "/refresh   Fetch all lists of the servers again.",
            "/dance": "unknown command /dance; /help lists the commands",
        }.items():
            says(person, line)
            person.sees(answer)
        prompted(person)
        before = person.screen.count("you>")
        person.types("half a line", CTRL_C)
        while person.screen.count("you>") == before:  # Ctrl-D is for the next prompt
            person.changes(person.screen)


# -- with the real packages, against providers on loopback


def uses(provider: Provider, id: str, fruit: str, answer: str) -> list[list[str]]:
    """Return two turns of a model: a call of `price`, and an answer after its result."""
    call = Call(id, "price", {"fruit": fruit})
    return [provider.turn(calls=[call], reason="toolUse"), provider.turn(answer)]


def test_the_model_is_changed_in_the_middle_of_a_conversation(shop: Shop) -> None:
    with double() as claude, double() as gpt:
        claude.say(*uses(ANTHROPIC, "toolu_1", "pear", "Pears, says Claude."))
        refusal = Turn(['{"error": {"message": "no such model"}}'], status=404)
        gpt.say(refusal, *uses(RESPONSES, "call_1", "fig", "Figs, says GPT."))
        env = {"ANTHROPIC_BASE_URL": claude.url, "OPENAI_BASE_URL": f"{gpt.url}/v1"}
        env |= {"ANTHROPIC_API_KEY": "key", "OPENAI_API_KEY": "key"}
        with chat("--url", shop.url, "--model", "anthropic", **env) as person:
            says(person, "Which fruit?", *YES)
            person.sees("agent: Pears, says Claude.")
            says(person, "/model openai")
            says(person, "Who is there?")
            person.sees("no such model")
            says(person, "And then?", *YES)
            person.sees("agent: Figs, says GPT.")
        told = str(gpt.body["input"])
        assert "Who is there?" not in told
        for said in ("Which fruit?", "pears cost 30", "Pears, says Claude.", "figs cost 30"):
            assert said in told
