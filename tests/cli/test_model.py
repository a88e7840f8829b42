"""`--model`: a provider's model answers for the server, after somebody agreed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from syncmcp.cli.parsing import PROVIDERS, sampling_model
from syncmcp.llm import OpenAISampling
from tests.cli.running import DOWN, ENTER, Command, at_terminal
from tests.llm.double import Double, double
from tests.llm.providers import OpenAIChat, OpenAIResponses

ASKED = ("request_llm_help", "question=Why?")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    """A provider that answers, whose clients are closed as the end of the program would do it."""
    with double() as there, ExitStack() as clients:
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{there.url}/v1")
        new_client = OpenAISampling._new_client
        monkeypatch.setattr(
            OpenAISampling, "_new_client", lambda self: clients.enter_context(new_client(self))
        )
        yield there


@pytest.mark.parametrize(
    ("name", "path", "kind"),
    [("openai", "/responses", OpenAIResponses), ("openai-chat", "/chat/completions", OpenAIChat)],
)
def test_a_model_answers_for_the_server(
    command: Command, demo: str, provider: Double, name: str, path: str, kind: type[OpenAIChat]
) -> None:
    provider.say(kind().turn("Because."))
    ran = command("call", demo, *ASKED, "--model", f"{name}:m-1", "--yes")
    assert (ran.code, ran.out) == (0, "Because.\n")
    assert provider.asked[-1].path.endswith(path)
    assert provider.body["model"] == "m-1"


def test_without_a_model_or_without_anybody_to_agree_nothing_is_offered(
    command: Command, demo: str, provider: Double
) -> None:
    for words in ([], ["--model", "openai:m"], ["--yes"]):
        ran = command("call", demo, *ASKED, *words)
        assert (ran.code, ran.error["kind"]) == (1, "MissingCapability")
        assert "--model" in ran.error["hint"]
    assert provider.asked == []


def test_a_person_agrees_to_what_is_asked_and_to_what_is_answered(
    demo: str, provider: Double, elsewhere: object
) -> None:
    provider.say(OpenAIResponses().turn("Because."))
    with at_terminal("call", demo, *ASKED, "-m", "openai:m") as terminal:
        terminal.sees("Let the model answer?")
        assert "Why?" in terminal.screen
        terminal.types(DOWN, DOWN, ENTER)
        terminal.sees("Send it?")
        assert "Because." in terminal.screen
        terminal.types(DOWN, DOWN, ENTER)
        assert terminal.ends() == 0
    assert terminal.screen.splitlines()[-1] == "Because."


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("opanai:m", "did you mean openai:m?"),
        ("zzz:m", "the providers are anthropic, gemini, openai, openai-chat"),
        ("openai", "write --model openai:NAME"),
        ("openai:", "write --model openai:NAME"),
    ],
)
def test_a_model_that_is_none_is_refused(command: Command, demo: str, word: str, hint: str) -> None:
    ran = command("tools", demo, "--model", word)
    assert (ran.code, ran.error["hint"]) == (2, hint)


def test_every_provider_makes_a_handler() -> None:
    kinds = {name: type(sampling_model(f"{name}:m")).__name__ for name in PROVIDERS}
    assert kinds == {
        "anthropic": "AnthropicSampling",
        "gemini": "GeminiSampling",
        "openai": "OpenAISampling",
        "openai-chat": "OpenAISampling",
    }
