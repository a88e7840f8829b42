"""The tool loop: a scripted model, real tools on a server, and each way to end."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

import pytest

import syncmcp
from syncmcp import CancelToken
from syncmcp.approval import AllowAll, Approval, DenyAll, Question, Verdict
from syncmcp.errors import ClosedError, RequestCancelled, RequestTimeout, UsageError
from syncmcp.handlers import HandlerContext
from syncmcp.testing import RpcError, Server, ToolContext
from syncmcp.tools import ModelTurn, Step, ToolFinished, ToolLoop, ToolStarted
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    ToolChoice,
    ToolResultContent,
)
from tests.support.moved_time import MovedTime
from tests.support.stage import PATIENCE, Stage, Wire, in_threads, rotated, rotated_with

Turn: TypeAlias = (
    CreateMessageResult
    | Callable[[CreateMessageRequestParams, HandlerContext], CreateMessageResult]
)

pytestmark = pytest.mark.requirement("M-05")


class Model:
    """A model with scripted turns, which stores its requests."""

    def __init__(self, *turns: Turn, then: Turn | None = None) -> None:
        self._turns = list(turns)
        self._then = then
        self.heard: list[CreateMessageRequestParams] = []
        self.contexts: list[HandlerContext] = []
        self.threads: list[threading.Thread] = []

    def __call__(
        self, request: CreateMessageRequestParams, context: HandlerContext
    ) -> CreateMessageResult:
        self.heard.append(request)
        self.contexts.append(context)
        self.threads.append(threading.current_thread())
        turn = self._turns.pop(0) if self._turns else self._then
        assert turn is not None, "the model was asked too often"
        return turn if isinstance(turn, CreateMessageResult) else turn(request, context)

    @property
    def choices(self) -> list[str | None]:
        """The mode of `tool_choice` in each turn."""
        return [getattr(request.tool_choice, "mode", None) for request in self.heard]

    def told(self, turn: int) -> list[ToolResultContent]:
        """Return the tool results at the beginning of a turn, counted from 0."""
        blocks = self.heard[turn].messages[-1].blocks
        results = [block for block in blocks if isinstance(block, ToolResultContent)]
        assert len(results) == len(blocks)
        return results


def says(*blocks: Mapping[str, Any], stop: str = "endTurn") -> CreateMessageResult:
    return CreateMessageResult.from_wire(
        {"role": "assistant", "model": "double", "content": list(blocks), "stopReason": stop}
    )


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(id: str, name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def wants(*uses: Mapping[str, Any], stop: str = "toolUse") -> CreateMessageResult:
    return says(*uses, stop=stop)


DONE = says(text("done"))


def texts(results: Iterable[ToolResultContent]) -> list[str]:
    return ["".join(getattr(block, "text", "?") for block in one.content) for one in results]


def adder(name: str = "adder") -> Server:
    server = Server(name)

    @server.tool(annotations={"readOnlyHint": True})
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def fail() -> str:
        raise ValueError("no luck today")

    @server.tool()
    def refuse() -> str:
        raise RpcError(-32602, "the moon is in the wrong phase")

    return server


@rotated
def test_the_model_asks_for_a_tool_and_is_asked_again_with_its_result(wire: Wire) -> None:
    model = Model(wants(text("let me see"), use("u1", "add", a=2, b=3)), says(text("it is 5")))
    with wire.connect(adder()) as client:
        outcome = ToolLoop(model, client).run("what is 2 + 3?")
    assert (outcome.text, outcome.iterations) == ("it is 5", 2)
    assert [(message.role, message.text) for message in outcome.messages] == [
        *(("user", "what is 2 + 3?"), ("assistant", "let me see")),
        *(("user", ""), ("assistant", "it is 5")),
    ]
    first, second = model.heard
    assert (len(first.messages), first.max_tokens) == (1, 4096)
    assert [tool.name for tool in first.tools or []] == ["add", "fail", "refuse"]
    assert (first.tools or [])[0].input_schema["required"] == ["a", "b"]
    assert second.messages == outcome.messages[:3]
    (result,) = model.told(1)
    assert (result.tool_use_id, texts([result]), result.is_error or False) == ("u1", ["5"], False)


@pytest.mark.requirement("M-14")
@pytest.mark.parametrize("trusted", [True, False])
def test_what_a_trusted_server_means_for_the_user_alone_is_not_for_the_model(trusted: bool) -> None:
    server = Server()
    hints = {"for the user": {"audience": ["user"]}, "for both": {}, "first": {"priority": 1}}

    @server.tool()
    def report() -> Any:
        return {"content": [{**text(words), "annotations": hints[words]} for words in hints]}

    @server.tool()
    def picture() -> Any:
        return {"content": [{**text("seen"), "annotations": hints["for the user"]}]}

    model = Model(wants(use("a", "report"), use("b", "picture")), DONE)
    with syncmcp.connect(server, trusted=trusted) as client:
        ToolLoop(model, client).run("go")
    told, alone = model.told(1)
    assert texts([told]) == ["".join(["first", "for both"] if trusted else hints)]
    assert texts([alone]) == ["seen"]


def test_a_whole_request_goes_to_the_model_with_the_loop_s_own_tools_and_goes_on() -> None:
    answer = says(text("well"), stop="toolUse")  # although it calls no tool
    model = Model(wants(use("u", "add", a=1, b=1)), DONE, wants(use("u", "add", a=2, b=2)), answer)
    kept = {"temperature": 0.5, "modelPreferences": {"hints": [{"name": "double"}]}}
    kept |= {"vendor": {"kept": True}}
    tools = [{"name": "server-side", "inputSchema": {"type": "object"}}]
    asked = {"messages": [{"role": "user", "content": text("hello")}], "maxTokens": 50}
    request = CreateMessageRequestParams.from_wire({**asked, **kept, "tools": tools})
    before = request.to_wire()
    with syncmcp.connect(adder()) as client:
        loop = ToolLoop(model, client, timeout=None)
        first = loop.run(request, max_tokens=40, tools=["refuse", "add"], system_prompt="be brief")
        again = SamplingMessage.from_wire({"role": "user", "content": text("two")})
        second = loop.run([*first.messages, again])
    assert request.to_wire() == before
    for heard in model.heard[:2]:
        wire = heard.to_wire()
        assert {key: wire[key] for key in kept} == kept
        assert (wire["maxTokens"], wire["systemPrompt"]) == (40, "be brief")
        assert [tool["name"] for tool in wire["tools"]] == ["refuse", "add"]
        assert "toolChoice" not in wire
    assert model.threads == [threading.current_thread()] * 4
    assert [context.time_left() for context in model.contexts] == [None] * 4
    assert len(first.messages) == 4
    assert second.messages[:5] == [*first.messages, again]
    assert (second.iterations, second.result) == (2, answer)
    assert texts(model.told(3)) == ["4"]


def test_meta_and_structured_content_survive_both_ways() -> None:
    server = Server("rich")
    content = [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    rich = {"content": content, "structuredContent": {"n": None}}
    server.tool(name="rich")(lambda: {**rich, "_meta": {"example.com/cache": "r"}})
    wish = {**use("u", "rich"), "_meta": {"example.com/cache": "u"}}
    turn = {"role": "assistant", "model": "double", "content": [wish], "_meta": {"turn": 1}}
    model = Model(CreateMessageResult.from_wire(turn), DONE)
    with syncmcp.connect(server) as client:
        ToolLoop(model, client).run("go")
    asked, told = (message.to_wire() for message in model.heard[1].messages[1:])
    assert asked == {"role": "assistant", "content": [wish], "_meta": {"turn": 1}}
    assert told["role"] == "user"
    (result,) = told["content"]
    assert result.pop("_meta")["example.com/cache"] == "r"
    assert result == {"type": "tool_result", "toolUseId": "u", **rich}


@rotated
def test_tools_of_one_turn_run_at_the_same_time_and_answer_in_order(wire: Wire) -> None:
    server = Server("pair")
    meeting, second_done = threading.Barrier(2), threading.Event()

    @server.tool()
    def meet(key: str) -> str:
        meeting.wait(PATIENCE)
        if key == "first":
            assert second_done.wait(PATIENCE)
        return key

    steps: list[Step] = []
    threads: set[threading.Thread] = set()

    def on_step(step: Step) -> None:
        steps.append(step)
        threads.add(threading.current_thread())
        if isinstance(step, ToolFinished) and step.use.id == "b":
            second_done.set()

    model = Model(wants(use("a", "meet", key="first"), use("b", "meet", key="second")), DONE)
    with wire.connect(server) as client:
        ToolLoop(model, client, on_step=on_step).run("go")
    assert [result.tool_use_id for result in model.told(1)] == ["a", "b"]
    assert texts(model.told(1)) == ["first", "second"]
    asked, *tools, answered = cast("list[Any]", steps)
    assert (type(asked), type(answered)) == (ModelTurn, ModelTurn)
    assert (asked.iteration, asked.result.stop_reason, answered.iteration) == (1, "toolUse", 2)
    kinds = [ToolStarted, ToolStarted, ToolFinished, ToolFinished]
    assert [(type(step), step.use.id) for step in tools] == [*zip(kinds, "abba", strict=True)]
    assert texts([tools[2].result]) == ["second"]
    assert threads == {threading.current_thread()}


def test_no_more_tools_run_at_one_time_than_allowed() -> None:
    stage, order = Stage(), list[str]()
    model = Model(wants(*(use(key, "hold", key=key) for key in "abc")), DONE)

    def on_step(step: Step) -> None:
        if not isinstance(step, ModelTurn):
            order.append(f"{type(step).__name__} {step.use.id}")

    def open_gates() -> None:
        stage.inside("a", "b")
        stage.let_go("b")
        stage.inside("c")
        stage.let_go("c")
        assert stage.stats.wait_for(lambda stats: stats.running == 1)
        stage.let_go("a")

    with syncmcp.connect(stage.server) as client:
        loop = ToolLoop(model, client, max_parallel=2, on_step=on_step)
        outcome, opened = in_threads(partial(loop.run, "go"), open_gates)
    assert (outcome.text, opened) == ("done", None)
    assert order.index("ToolFinished b") < order.index("ToolStarted c")
    assert texts(model.told(1)) == ["a", "b", "c"]


def test_what_goes_wrong_is_told_to_the_model_and_what_is_not_offered_or_whole_is_not_run() -> None:
    rows = [
        (use("fails", "fail"), "no luck today"),
        (use("refuses", "refuse"), "the moon is in the wrong phase"),
        (use("wrong", "add", a="two"), ""),
        (use("unknown", "divide", a=1), "no tool named 'divide'"),
        (use("nameless", ""), "no tool named ''"),
    ]
    model = Model(wants(*(wish for wish, _ in rows), use("good", "add", a=1, b=1)), DONE)
    server = adder()
    with syncmcp.connect(server) as client:
        assert ToolLoop(model, client).run("go").text == "done"
        *bad, good = model.told(1)
        assert [one.is_error for one in bad] == [True] * 5
        assert not good.is_error
        for told, (_, words) in zip(texts(bad), rows, strict=True):
            assert told
            assert words in told
        called = server.stats.requests["tools/call"]
        whole = use("u", "add", a=1, b=1)
        for wish, words in (
            (wants(use("u", "fail")), "no tool named 'fail'"),
            (wants(whole, stop="maxTokens"), "cut off"),
        ):
            model = Model(wish, DONE)
            ToolLoop(model, client).run("go", tools=["add"])
            assert model.told(1)[0].is_error
            assert words in texts(model.told(1))[0]
        with pytest.raises(UsageError, match="Two tool uses in one message have the id 'u'"):
            ToolLoop(Model(wants(whole, use("u", "fail"))), client).run("go")
        assert server.stats.requests["tools/call"] == called


@pytest.mark.requirement("CAN-01")
def test_a_tool_that_takes_too_long_is_given_up_and_the_model_told() -> None:
    stage, model = Stage(), Model(wants(use("u", "hold")), DONE)
    with syncmcp.connect(stage.server, timeout=1.0) as client:
        ToolLoop(model, client).run("go")
        assert stage.stats.wait_for(lambda stats: stats.cancelled == 1)
    (result,) = model.told(1)
    assert result.is_error
    assert texts([result]) == ["no response within 1 s (the outcome is unknown)"]


@pytest.mark.requirement("M-14")
@pytest.mark.parametrize(
    ("of_client", "of_loop", "allowed"),
    [
        (None, None, True),  # without an approval, calls are allowed
        (DenyAll(), None, False),
        (DenyAll(), AllowAll(), True),
        (None, DenyAll(), False),
    ],
)
def test_the_loop_s_approval_comes_first(of_client: Any, of_loop: Any, allowed: bool) -> None:
    server, model = adder(), Model(wants(use("u", "fail")), DONE)
    with syncmcp.connect(server, approval=of_client) as client:
        ToolLoop(model, client, approval=of_loop).run("go")
        assert server.stats.requests["tools/call"] == allowed
    told = "no luck today" if allowed else "the call was not allowed: the policy denied it"
    assert texts(model.told(1)) == [told]


class Absent:
    """A reviewer who calls `busy`, and decides only after the question has ended."""

    def __init__(self, busy: Callable[[], object] = bool) -> None:
        self._busy, self.asked = busy, list[HandlerContext]()

    def review(self, question: Question, /) -> Verdict:
        assert question.context is not None
        assert question.context.time_left() is not None
        self.asked.append(question.context)
        self._busy()
        assert question.context.cancel.wait(PATIENCE)
        return Verdict.allow()


@pytest.mark.requirement("M-14")
@pytest.mark.parametrize(("timeout", "struck"), [(2 * PATIENCE, False), (None, True)])
def test_a_person_who_does_not_decide_in_time_has_denied_the_call(
    timeout: float | None, struck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = CancelToken.after

    def after_and_struck(seconds: float, reason: str | None = None) -> CancelToken:
        # The time is over before the loop gets the token.
        token = after(seconds, reason)
        assert token.wait(PATIENCE)
        return token

    if struck:
        monkeypatch.setattr(CancelToken, "after", after_and_struck)
    server, model, busy = adder(), Model(wants(use("u", "fail")), DONE), threading.Event()
    approval = Approval(reviewer=Absent(busy.set))
    with syncmcp.connect(server, approval=approval, human_timeout=0.05) as client:
        ToolLoop(model, client, timeout=timeout).run("go")
        assert server.stats.requests["tools/call"] == 0
    assert busy.is_set() is not struck  # if the time is already over, no reviewer is asked
    [told] = texts(model.told(1))
    assert "human_timeout" in told


def test_a_review_ends_when_the_loop_is_cancelled() -> None:
    server, token = adder(), CancelToken()
    busy = Approval(reviewer=Absent(lambda: token.cancel("enough")))
    with syncmcp.connect(server) as client:
        loop = ToolLoop(Model(wants(use("u", "fail"))), client, approval=busy)
        with pytest.raises(RequestCancelled) as caught:
            loop.run("go", cancel=token)
        assert server.stats.requests["tools/call"] == 0
    assert caught.value.reason == "enough"


SUM = wants(use("u", "add", a=1, b=1))


@pytest.mark.requirement("SAMP-09")
@pytest.mark.parametrize(
    ("turns", "most", "options", "choices"),
    [
        ([SUM, SUM, DONE], 3, {}, [None, None, "none"]),  # the last turn may use no tools
        # With "required", only the first turn must use a tool.
        ([SUM, DONE], 9, {"tool_choice": ToolChoice(mode="required")}, ["required", "auto"]),
        ([DONE], 1, {"tools": []}, [None]),
    ],
)
def test_each_turn_is_told_whether_it_may_use_tools(
    turns: list[Turn], most: int, options: dict[str, Any], choices: list[str | None]
) -> None:
    model = Model(*turns)
    with syncmcp.connect(adder()) as client:
        outcome = ToolLoop(model, client, max_iterations=most).run("go", **options)
    assert (outcome.iterations, model.choices) == (len(turns), choices)
    offered = len(options.get("tools", "abc"))
    assert {len(request.tools or []) for request in model.heard} == {offered}


@pytest.mark.requirement("SAMP-09")
def test_a_model_that_never_stops_is_stopped_and_its_last_wish_not_run() -> None:
    server, model = adder(), Model(then=SUM)
    with syncmcp.connect(server) as client:
        with pytest.raises(syncmcp.TooManyRounds, match="max_iterations") as caught:
            ToolLoop(model, client).run("go")
        assert server.stats.requests["tools/call"] == 9
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.rounds, len(model.heard)) == (10, 10)
        messages = error.messages or []
        assert len(messages) == 20
        # The conversation can be continued: the pending tool call is made first.
        model = Model(DONE)
        outcome = ToolLoop(model, client).run(messages)
        assert server.stats.requests["tools/call"] == 10
    assert outcome.messages[:20] == messages
    assert texts(model.told(0)) == ["2"]


def test_a_model_learns_that_its_time_is_up_and_what_it_raises_is_the_cause() -> None:
    def waits(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        left = context.time_left()
        assert left is not None
        assert left <= 0.05
        assert context.cancel.wait(PATIENCE)
        raise RuntimeError("the provider hung up")

    with syncmcp.connect(adder()) as client:
        client.list_tools()
        with pytest.raises(RequestTimeout) as caught:
            ToolLoop(Model(waits), client, timeout=0.05).run("go")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_run_that_goes_on_repeats_no_tool_that_may_have_run() -> None:
    stage, token, server = Stage(), CancelToken(), adder()
    stage.server.tool()(server.features.tools["add"]._function)
    first, second, last = (use(id, "add", a=1, b=1) for id in "abd")
    asked = wants(first, second, use("c", "hold", key="c"), last)

    with syncmcp.connect(stage.server) as client:

        def stop() -> None:
            stage.inside("c")
            token.cancel()

        stopping = threading.Thread(target=stop)
        stopping.start()
        with pytest.raises(RequestCancelled) as caught:
            ToolLoop(Model(asked), client, max_parallel=1).run("go", cancel=token)
        stopping.join(PATIENCE)
        calls = stage.stats.requests["tools/call"]
        model = Model(DONE)
        ToolLoop(model, client, timeout=PATIENCE).run(caught.value.messages or [])
        assert stage.stats.requests["tools/call"] == calls == 3
    stopped = ": the tool loop was stopped"
    told = ["2", "2", f"no result, but it may have run{stopped}", f"not run{stopped}"]
    assert texts(model.told(0)) == told


@pytest.mark.parametrize("failing", ["model", "on_step", "closed client"])
def test_every_exception_has_the_conversation_so_no_tool_runs_again(failing: str) -> None:
    server = adder()
    client = syncmcp.connect(server)
    failure = ConnectionError("529 overloaded")

    def model(request: CreateMessageRequestParams, _: HandlerContext) -> CreateMessageResult:
        if len(request.messages) == 1:
            return wants(use("a", "add", a=1, b=1))
        if failing == "closed client":
            client.close()
            return wants(use("b", "add", a=1, b=1))
        raise failure

    def on_step(step: Step) -> None:
        if failing == "on_step" and isinstance(step, ToolFinished):
            raise failure

    with client:
        with pytest.raises((ConnectionError, ClosedError)) as caught:
            ToolLoop(model, client, on_step=on_step).run("go")
        assert server.stats.requests["tools/call"] == 1
    messages = vars(caught.value)["messages"]
    going_on = Model(DONE)
    with syncmcp.connect(server) as client:
        ToolLoop(going_on, client).run(messages)
    assert server.stats.requests["tools/call"] == 1
    stopped = "no result, but it may have run: the tool loop was stopped"
    assert texts(going_on.told(0)) == ["2" if failing == "model" else stopped]


@pytest.mark.requirement("CAN-01", "SAMP-09")
@rotated_with("end", ["token", "event", "time"])
def test_the_end_of_a_run_stops_the_loop_and_each_running_tool_once(
    wire: Wire, end: str, moved: MovedTime
) -> None:
    stage, token, event = Stage(), CancelToken(), threading.Event()
    model = Model(wants(use("u", "hold", key="u"), use("v", "hold", key="v")))
    with wire.connect(stage.server, timeout=None, idle_timeout=None) as client:
        client.list_tools()
        loop = ToolLoop(model, client, timeout=600)
        run = partial(loop.run, "go", cancel=event if end == "event" else token)
        if end == "time":
            outcome = moved.ending(600, run, lambda: stage.inside("u", "v"))
        else:
            ended = moved.start(run)
            stage.inside("u", "v")
            token.cancel("changed my mind")
            event.set()
            moved.advance(1.0)  # events are polled
            outcome = ended.get(timeout=PATIENCE)
        assert stage.stats.wait_for(lambda stats: stats.cancelled == 2)
        client.list_tools()
        with stage.stats as stats:
            assert len(stats.cancels) == (2 if wire.announces else 0)
    if end == "time":
        assert isinstance(outcome, RequestTimeout)
        assert "longer than 600 s" in str(outcome)
        assert outcome.seconds == 600
    else:
        assert isinstance(outcome, RequestCancelled)
        if end == "token":
            assert outcome.reason == "changed my mind"
    assert outcome.messages is not None
    assert [message.role for message in outcome.messages] == ["user", "assistant", "user"]
    assert (
        texts(cast("Any", outcome.messages[-1].blocks))
        == ["no result, but it may have run: the tool loop was stopped"] * 2
    )


@pytest.mark.parametrize("when", ["before", "meanwhile", "never"])
def test_tools_that_cannot_be_listed_end_the_loop(when: str) -> None:
    server, token = adder(), CancelToken()

    def list_tools(params: object, context: ToolContext) -> dict[str, Any]:
        if when == "meanwhile":
            token.cancel()
            assert context.cancelled.wait(PATIENCE)
        raise RpcError(-32603, "out of order")

    server.on_request("tools/list", list_tools)
    if when == "before":
        token.cancel()
    with syncmcp.connect(server) as client:
        with pytest.raises(syncmcp.InternalError if when == "never" else RequestCancelled):
            ToolLoop(Model(), client).run("go", cancel=token)
        assert server.stats.requests["tools/list"] == (when != "before")


def test_a_model_that_answers_after_a_cancel_is_kept_in_the_conversation() -> None:
    token = CancelToken()

    def late(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        token.cancel()
        assert context.cancel.cancelled
        return DONE

    with syncmcp.connect(adder()) as client, pytest.raises(RequestCancelled) as caught:
        ToolLoop(Model(late), client).run("go", cancel=token)
    assert [message.text for message in caught.value.messages or []] == ["go", "done"]


@pytest.mark.parametrize("where", ["model", "step"])
def test_what_the_program_raises_ends_the_loop_as_it_is(where: str) -> None:
    stage = Stage()

    def fail(*_: object) -> CreateMessageResult:
        stage.inside("u")
        raise ZeroDivisionError("a mistake of the program's")

    def on_step(step: Step) -> None:
        if isinstance(step, ToolStarted) and step.use.id == "v":
            fail()

    held = wants(use("u", "hold", key="u"), use("v", "hold", key="v"))
    wish = held if where == "step" else wants(use("u", "hold", key="u"))
    stage.let_go("u" if where == "model" else "nobody")
    with syncmcp.connect(stage.server) as client:
        loop = ToolLoop(Model(wish, fail), client, on_step=on_step)
        with pytest.raises(ZeroDivisionError):
            loop.run("go")
        cancelled = 1 if where == "step" else 0
        assert stage.stats.wait_for(lambda stats: stats.cancelled == cancelled)
    assert stage.stats.requests["tools/call"] == 1  # `on_step` runs before the call


@pytest.mark.requirement("SAMP-05")
def test_a_loop_of_impossible_parts_is_refused() -> None:
    async def coroutine(request: Any, context: Any) -> Any: ...

    unanswered = {"role": "assistant", "content": [use("u", "add")]}
    conversations: list[tuple[list[dict[str, Any]], str]] = [
        ([], "at least one message"),
        ([unanswered, {"role": "user", "content": text("never mind")}], "Results are missing"),
        ([{**unanswered, "role": "user"}], "assistant"),
    ]
    with syncmcp.connect(adder()) as client:
        mistakes: list[dict[str, Any]] = [
            *({name: coroutine} for name in ("on_step", "on_text", "on_progress")),
            *({"max_iterations": 0}, {"max_parallel": 0}, {"timeout": -1}, {"approval": "yes"}),
        ]
        for wrong in mistakes:
            with pytest.raises(UsageError):
                ToolLoop(Model(), client, **wrong)
        odd: Any = lambda request, context: "done"  # noqa: E731
        with pytest.raises(UsageError, match="CreateMessageResult"):
            ToolLoop(odd, client).run("go")
        for messages, problem in conversations:
            with pytest.raises(UsageError, match=problem):
                ToolLoop(Model(), client).run([SamplingMessage.from_wire(one) for one in messages])
