"""Sampling with the real packages of the providers, against simulated providers."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken, HandlerContext, Refused, RequestCancelled, UsageError
from syncmcp.errors import InvalidOutput
from syncmcp.llm import AnthropicSampling, GeminiSampling, Model, OpenAISampling
from syncmcp.testing import Server, ToolContext
from syncmcp.types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from tests.llm.double import Double, Turn, double
from tests.llm.providers import ANTHROPIC, CHAT, GEMINI, PROVIDERS, RESPONSES, Call, Provider, sse
from tests.support.stage import PATIENCE, in_threads
from tests.system.test_examples import environment

every_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=str)

# Seconds: at its first use, a package loads hundreds of modules before it sends a request.
LOADED = 6 * PATIENCE

WEATHER = Tool(
    name="weather.today!",
    description="What the weather is like",
    input_schema={
        "type": "object",
        "properties": {"the city": {"type": "string"}},
        "required": ["the city"],
    },
)


@pytest.fixture
def there() -> Iterator[Double]:
    with double() as provider:
        yield provider


class Watch:
    """Records the parts of an answer, and the progress, while the answer is written."""

    def __init__(self, cancel: CancelToken | None = None) -> None:
        self.shown: list[str] = []
        self.progress: list[tuple[float, str | None]] = []
        with syncmcp.connect(Server("asking")) as client:
            self.context = HandlerContext(
                client,
                client.server,
                "sampling/createMessage",
                cancel=cancel,
                show=self.shown.append,
                progress=self._report,
            )

    def _report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, message))


def user(content: Any) -> SamplingMessage:
    return SamplingMessage(role="user", content=content)


def assistant(content: Any) -> SamplingMessage:
    return SamplingMessage(role="assistant", content=content)


def asking(*messages: SamplingMessage, **more: Any) -> CreateMessageRequestParams:
    said = messages or (user(TextContent(text="Hello?")),)
    more.setdefault("max_tokens", 100)
    return CreateMessageRequestParams(messages=list(said), **more)


def ask(
    provider: Provider, there: Double, request: CreateMessageRequestParams, **settings: Any
) -> CreateMessageResult:
    """Return the answer of a handler with these settings."""
    with provider.sampling(there.url, **settings) as model:
        return model(request, Watch().context)


@contextmanager
def cancelling(cancel: CancelToken, when: threading.Event, reason: str = "") -> Iterator[None]:
    """Cancel on another thread once `when` is set."""

    def stop() -> None:
        when.wait(LOADED)
        cancel.cancel(reason)

    stopper = threading.Thread(target=stop)
    stopper.start()
    yield
    stopper.join()


def readers() -> list[threading.Thread]:
    """Return the threads that read answers of providers."""
    return [thread for thread in threading.enumerate() if thread.name == "syncmcp-llm"]


def spelt(provider: Provider, tool: Tool = WEATHER) -> tuple[str, str]:
    """Return the names of the tool and of its argument in the format of a provider."""
    text = str(provider.format([tool]).render_tools())
    keys = [word for word in text.split("'") if word.startswith(("the city", "the_city"))]
    names = [word for word in text.split("'") if word.startswith("weather")]
    return names[0], keys[0]


# -- one answer


@every_provider
def test_an_answer_is_shown_while_it_is_written(provider: Provider, there: Double) -> None:
    there.say(provider.turn("Good ", "day", "!"))
    watch = Watch()
    with provider.sampling(there.url) as model:
        answer = model(asking(), watch.context)
    assert answer.content == TextContent(text="Good day!")
    assert (answer.role, answer.model) == ("assistant", "model-1-dated")
    assert watch.shown == ["Good ", "Good day", "Good day!"]
    assert watch.progress[0] == (5, "model-1 has written 5 characters")
    # The text ends before a stop sequence, even if providers accept fewer sequences.
    stops = [*"ABCDEF", "END"]
    there.say(provider.turn("one, two", " END three"))
    answer = ask(provider, there, asking(stop_sequences=stops))
    assert (answer.text, answer.stop_reason) == ("one, two ", "stopSequence")


@every_provider
def test_why_the_model_stopped_is_told(provider: Provider, there: Double) -> None:
    with provider.sampling(there.url) as model:
        for reason in provider.reasons:
            calls = [Call("1", "unknown", {})] if reason == "toolUse" else []
            there.say(provider.turn("Well", calls=calls, reason=reason))
            assert model(asking(), Watch().context).stop_reason == reason


@every_provider
def test_tools_go_by_allowed_names_and_return_by_theirs(provider: Provider, there: Double) -> None:
    name, key = spelt(provider)
    calls = [Call("call-1", name, {key: "Bergen"}), Call("call-2", name, {key: "Oslo"})]
    there.say(provider.turn("Let me look.", calls=calls, reason="toolUse"))
    answer = ask(provider, there, asking(tools=[WEATHER]))
    assert name != WEATHER.name
    assert name in str(there.body["tools"])
    assert answer.stop_reason == "toolUse"
    assert answer.blocks == [
        TextContent(text="Let me look."),
        ToolUseContent(id="call-1", name="weather.today!", input={"the city": "Bergen"}),
        ToolUseContent(id="call-2", name="weather.today!", input={"the city": "Oslo"}),
    ]


def test_a_server_asks_and_the_model_answers(there: Double) -> None:
    server = Server("asking")

    @server.tool()
    def ask(context: ToolContext) -> str:
        params = asking(system_prompt="Be kind.", temperature=0.5).to_wire()
        return str(context.ask_all({"it": ("sampling/createMessage", params)})["it"]["content"])

    @server.tool()
    def declared(context: ToolContext) -> str:
        return str(context.client_capabilities.get("sampling"))

    there.say(ANTHROPIC.turn("With pleasure."))
    for tools, said in ((False, "{}"), (True, "{'tools': {}}")):
        with (
            ANTHROPIC.sampling(there.url, "m", tools=tools) as model,
            syncmcp.connect(server, sampling=model) as client,
        ):
            assert client.call_tool("declared").text == said
            assert repr(model) == "<AnthropicSampling m>"
            if tools:
                assert "With pleasure." in client.call_tool("ask").text
    assert "Be kind." in str(there.body)
    assert "0.5" in str(there.body)


@every_provider
def test_images_and_uses_of_gone_tools_reach_the_model(provider: Provider, there: Double) -> None:
    def picture(data: str) -> ImageContent:
        return ImageContent(data=data, mime_type="image/png")

    there.say(provider.turn("A cat."))
    use = ToolUseContent(id="1", name="gone", input={})
    result = ToolResultContent(tool_use_id="1", content=[picture("BBBB")])
    question = [TextContent(text="What is it?"), picture("AAAA")]
    ask(provider, there, asking(user(question), assistant(use), user(result)))
    assert "AAAA" in str(there.body)
    assert "BBBB" in str(there.body)
    assert "gone" in str(there.body["tools"])
    assert "none" in str(there.body.get("tool_choice", there.body.get("toolConfig"))).lower()


def test_a_sound_for_a_model_that_hears_nothing_is_refused(there: Double) -> None:
    sound = AudioContent(data="AAAA", mime_type="audio/wav")
    with pytest.raises(Refused, match="audio") as caught:
        ask(ANTHROPIC, there, asking(user(sound)))
    assert caught.value.code == -32602
    assert there.asked == []


# -- requests


@every_provider
def test_limits_and_fields_of_the_host_hold_in_any_case(provider: Provider, there: Double) -> None:
    there.say(provider.turn("Yes"), provider.turn("Yes"))
    wanted = asking(max_tokens=5000, temperature=0.75)
    ask(provider, there, wanted, max_tokens=20, max_temperature=0.25)
    said = str(there.body)
    assert [word in said for word in ("5000", "0.75", "0.25", "20")] == [False, False, True, True]
    top_p = "topP" if provider is GEMINI else "top_p"
    options: dict[str, Any] = {"temperature": None, top_p: 0.125}
    if provider is CHAT:  # fields that the package does not know are sent
        options |= {"extra_body": {"one": 1}, "of_tomorrow": 2}
    ask(provider, there, asking(temperature=0.5), options=options)
    assert "0.125" in str(there.body)
    assert "temperature" not in str(there.body)
    if provider is CHAT:
        assert (there.body["one"], there.body["of_tomorrow"]) == (1, 2)


def test_the_host_decides_about_a_system_prompt(there: Double) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({}, "theirs"),
        ({"system": "ours"}, "theirs"),
        ({"system": "ours", "system_prompt": "append"}, "ours\\n\\ntheirs"),
        ({"system": "ours", "system_prompt": "ignore"}, "ours"),
        ({"system_prompt": "append"}, "theirs"),
    ]
    for settings, sent in rows:
        there.say(ANTHROPIC.turn("Yes"))
        ask(ANTHROPIC, there, asking(system_prompt="theirs"), **settings)
        assert f"'{sent}'" in str(there.body), settings


@every_provider
def test_hints_and_priorities_choose_the_model(provider: Provider, there: Double) -> None:
    models = [
        Model("large-1", intelligence=1.0, cheapness=0.1, speed=0.2),
        Model("small-1", intelligence=0.3, cheapness=0.9, speed=0.9, aliases=("haiku",)),
    ]
    wishes: list[tuple[dict[str, Any] | None, str]] = [
        (None, "large-1"),
        ({"hints": [{"name": "nobody's"}, {"name": "Small"}]}, "small-1"),
        ({"hints": [{"name": "claude-haiku"}, {"name": "haiku"}]}, "small-1"),
        ({"hints": [{"name": ""}, {}], "costPriority": 1}, "small-1"),
        ({"costPriority": 0.2, "speedPriority": 0.1, "intelligencePriority": 1}, "large-1"),
        ({"hints": [{"name": "large"}], "costPriority": 1}, "large-1"),
    ]
    with provider.sampling(there.url, models) as model:
        for preferences, chosen in wishes:
            there.say(provider.turn("Yes"))
            request = asking().to_wire() | {"modelPreferences": preferences}
            model(CreateMessageRequestParams.from_wire(request), Watch().context)
            asked = there.asked[-1]
            assert chosen in (asked.message.get("model") or asked.path), preferences


# -- cancelling


@every_provider
@pytest.mark.parametrize("held_before", [-1, 2], ids=["before the answer", "within it"])
def test_who_cancels_ends_the_answer_at_once_and_the_request_at_its_next_event(
    provider: Provider, held_before: int, there: Double
) -> None:
    turn = there.say(Turn(provider.turn("Once ", "upon"), held_before=held_before))
    cancel = CancelToken()
    watch = Watch(cancel)
    with provider.sampling(there.url) as model:
        with cancelling(cancel, turn.held, "enough"), pytest.raises(RequestCancelled) as caught:
            model(asking(), watch.context)
        assert caught.value.reason == "enough"
        # The thread has ended already if an event arrived just after the cancel.
        reading = readers()
        assert all(reader.daemon for reader in reading)
        shown = list(watch.shown)
        # The package's client remains usable.
        there.say(provider.turn("Still here"))
        assert model(asking(), Watch().context).text == "Still here"
        turn.goes_on.set()
        assert turn.gone.wait(PATIENCE), "the request is left open"
        for reader in reading:
            reader.join(PATIENCE)
            assert not reader.is_alive()
    assert watch.shown == shown
    assert len(there.asked) == 2


@every_provider
def test_what_a_package_raises_after_a_cancel_is_dropped(provider: Provider, there: Double) -> None:
    turn = there.say(Turn(['{"error": {"message": "bad request"}}'], status=400, held_before=-1))
    cancel = CancelToken()
    with provider.sampling(there.url) as model:
        with cancelling(cancel, turn.held), pytest.raises(RequestCancelled):
            model(asking(), Watch(cancel).context)
        [reading] = readers()
        turn.goes_on.set()
        reading.join(PATIENCE)
        assert not reading.is_alive()
        # After a cancel, the handler sends no request.
        with pytest.raises(RequestCancelled):
            model(asking(), Watch(cancel).context)
    assert len(there.asked) == 1


# -- failures


@every_provider
def test_an_answer_that_breaks_off_is_no_answer(provider: Provider, there: Double) -> None:
    there.say(provider.turn("Once ", "upon")[:2])
    with pytest.raises(InvalidOutput, match="the model's answer is incomplete"):
        ask(provider, there, asking())
    # An error of the package reaches the program.
    there.say(Turn(['{"error": {"message": "no such model", "code": 404}}'], status=404))
    with pytest.raises(Exception, match="no such model"):
        ask(provider, there, asking())


def test_why_there_is_no_answer_is_said(there: Double) -> None:
    failed = {"status": "failed", "error": {"code": "x", "message": "too busy"}, "output": []}
    event = {"type": "response.failed", "sequence_number": 1, "response": failed}
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "g"}
    there.say([sse(event, "response.failed")], [sse(blocked)])
    with pytest.raises(InvalidOutput, match="too busy"):
        ask(RESPONSES, there, asking())
    with pytest.raises(InvalidOutput, match="SAFETY"):
        ask(GEMINI, there, asking())


@pytest.mark.parametrize("provider", [ANTHROPIC, CHAT, RESPONSES], ids=str)
def test_arguments_must_be_an_object_unless_cut_off(provider: Provider, there: Double) -> None:
    calls = [Call("1", "it", '{"a": [1,')]
    there.say(provider.turn(calls=calls, reason="toolUse"))
    with pytest.raises(InvalidOutput, match="not a JSON object"):
        ask(provider, there, asking())
    there.say(provider.turn("So", calls=calls, reason="maxTokens"))
    answer = ask(provider, there, asking())
    assert (answer.blocks, answer.stop_reason) == ([TextContent(text="So")], "maxTokens")


def test_calls_are_told_apart_that_share_an_index_or_have_none(there: Double) -> None:
    def piece(**call: Any) -> str:
        choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
        return sse({"model": "m", "choices": [choice]})

    there.say(
        [
            piece(index=0, id="1", function={"name": "a", "arguments": '{"x"'}),
            piece(index=0, function={"arguments": ": 1}"}),
            piece(index=0, id="2", function={"name": "b", "arguments": "{}"}),
            piece(index=1, function={"name": "c", "arguments": "{}"}),
            *CHAT.turn(reason="toolUse")[-2:],
        ]
    )
    uses: list[Any] = ask(CHAT, there, asking()).blocks
    assert [(use.name, use.input) for use in uses] == [("a", {"x": 1}), ("b", {}), ("c", {})]
    assert len({use.id for use in uses if use.id}) == 3


def test_what_the_provider_s_own_tools_did_is_left_out(there: Double) -> None:
    searched: Any = ({"type": "server_tool_use", "id": "1", "name": "web", "input": {}}, [])
    said: Any = ({"type": "text", "text": "Found."}, [])
    there.say(ANTHROPIC.events([searched, said], "endTurn"))
    assert ask(ANTHROPIC, there, asking()).content == TextContent(text="Found.")
    ran = {"executableCode": {"code": "1", "language": "PYTHON"}}
    there.say(GEMINI.events([ran, {"text": "Found."}], "endTurn"))
    assert ask(GEMINI, there, asking()).content == TextContent(text="Found.")


# -- thoughts


def go_on(provider: Provider, there: Double) -> None:
    """Have the model use one tool, and send it the result."""
    watch = Watch()
    with provider.sampling(there.url) as model:
        use: Any
        (use,) = model(asking(), watch.context).blocks
        assert (watch.shown, use.type) == ([], "tool_use")
        result = ToolResultContent(tool_use_id=use.id, content=[TextContent(text="ok")])
        said = user(TextContent(text="Do it")), assistant(use), user(result)
        model(asking(*said), Watch().context)


def test_thoughts_before_a_tool_use_go_back_to_anthropic(there: Double) -> None:
    empty = {"type": "thinking", "thinking": "", "signature": ""}
    parts = {"thinking": "Hm.", "signature": "abc"}
    thinking: Any = (empty, [{"type": f"{kind}_delta", kind: of} for kind, of in parts.items()])
    use: Any = ({"type": "tool_use", "id": "1", "name": "it", "input": {}}, [])
    there.say(ANTHROPIC.events([thinking, use], "toolUse"), ANTHROPIC.turn("Done"))
    go_on(ANTHROPIC, there)
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "abc"}
    assert there.body["messages"][1]["content"][0] == thought


def test_the_signature_of_a_function_call_goes_back_to_gemini(there: Double) -> None:
    call = {"functionCall": {"name": "it", "args": {"a": 1}}, "thoughtSignature": "-_8="}
    thought = {"text": "Hm.", "thought": True}
    there.say(GEMINI.events([thought, call], "toolUse"), GEMINI.turn("Done"))
    go_on(GEMINI, there)
    sent = there.body["contents"][1]["parts"][0]
    assert sent["thoughtSignature"].replace("+", "-").replace("/", "_") == "-_8="


def test_encrypted_reasoning_goes_back_to_openai(there: Double) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"}
    call = {"type": "function_call", "call_id": "1", "name": "it", "arguments": "{}"}
    there.say(RESPONSES.events([reasoning, call], (), "toolUse"), RESPONSES.turn("Done"))
    go_on(RESPONSES, there)
    assert there.body["input"][1] == reasoning


# -- the handler itself


class AsyncSomething:
    messages = chat = models = None


@pytest.mark.parametrize("kind", [AnthropicSampling, OpenAISampling, GeminiSampling])
def test_what_makes_no_sense_is_refused_at_once(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([], {}, "at least one model"),
        ("", {}, "a model must have a name"),
        ("m", {"system_prompt": "maybe"}, "system_prompt must be"),
        ("m", {"max_tokens": 0}, "max_tokens"),
        ("m", {"max_temperature": -1}, "max_temperature"),
        ("m", {"client": object()}, "is not a client of the package"),
        ("m", {"client": AsyncSomething()}, "event loop"),
    ]
    if kind is OpenAISampling:
        wrong.append(("m", {"api": "completions"}, "api must be"))
    for model, settings, words in wrong:
        with pytest.raises(UsageError, match=words):
            kind(model, **settings)
    with pytest.raises(UsageError, match="speed must be from 0 to 1"):
        Model("m", speed=2)
    monkeypatch.setattr("syncmcp.llm._sampling.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=rf"install syncmcp-client\[{kind._extra}\]"):
        kind("m")


def keys_and_places(anthropic: str, openai: str, gemini: str) -> dict[str, str]:
    """Return the environment variables that the packages read."""
    keys = {f"{name}_API_KEY": "key" for name in ("ANTHROPIC", "OPENAI", "GEMINI")}
    places = {"ANTHROPIC_BASE_URL": anthropic, "OPENAI_BASE_URL": f"{openai}/v1"}
    return {**keys, **places, "GOOGLE_GEMINI_BASE_URL": gemini}


@every_provider
def test_without_a_client_one_is_made_from_the_environment(
    provider: Provider, there: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in keys_and_places(*[there.url] * 3).items():
        monkeypatch.setenv(name, value)
    there.say(provider.turn("Yes"), provider.turn("Yes again"))
    model = provider.handler("m", None)
    copy = pickle.loads(pickle.dumps(model))
    try:
        assert model(asking(), Watch().context).text == "Yes"
        assert pickle.loads(pickle.dumps(model))._default_client is None
        assert copy(asking(), Watch().context).text == "Yes again"
    finally:
        for one in (model, copy):
            one._default_client.close()


def test_many_threads_use_one_handler(there: Double) -> None:
    there.say(*(ANTHROPIC.turn("Yes") for _ in range(8)))
    with ANTHROPIC.sampling(there.url) as model:
        answers = in_threads(*[lambda: model(asking(), Watch().context).text] * 8)
    assert answers == ["Yes"] * 8


# -- programs


EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "multiple_models.py"


@pytest.mark.slow
@pytest.mark.requirement("M-29")
def test_the_example_asks_every_model_that_it_has_a_key_for(tmp_path: Path) -> None:
    call = Call("1", "weather", {"city": "Bergen"})
    with double() as claude, double() as gpt, double() as gemini:
        for there, provider in ((claude, ANTHROPIC), (gpt, RESPONSES), (gemini, GEMINI)):
            there.say(
                provider.turn(calls=[call], reason="toolUse"), provider.turn(f"By {provider}.")
            )
        ended = subprocess.run(
            [sys.executable, "-W", "error", str(EXAMPLE), "How is Bergen?"],
            cwd=tmp_path,
            env=environment(**keys_and_places(claude.url, gpt.url, gemini.url)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert "model-1-dated: By anthropic.\n" in ended.stdout
        assert "model-1-dated: By openai-responses.\n" in ended.stdout
        assert ended.stdout.endswith("model-1-dated: By gemini.\n12 messages\n")
        assert "9.5" in str(gemini.body)


@pytest.mark.slow
def test_neither_formats_nor_handlers_load_a_package_before_it_is_used() -> None:
    code = """
import sys
from syncmcp.llm import AnthropicFormat, AnthropicSampling, GeminiSampling, OpenAISampling
from syncmcp.types import Tool
AnthropicFormat([Tool(name="a", input_schema={})]).render_tools()
for handler in (AnthropicSampling, OpenAISampling, GeminiSampling):
    handler("m")
loaded = {"anthropic", "openai", "google.genai", "httpx", "httpx2"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
