"""The tool loop over a group, with failing servers, and as the answer to a question."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

import syncmcp
from syncmcp import ClientGroup, Interceptor, Message
from syncmcp.approval import AllowAll, Approval, DenyAll, Question, ToolCall, Verdict
from syncmcp.errors import AuthError, ClosedError, RequestCancelled, UsageError
from syncmcp.group import Source
from syncmcp.handlers import HandlerContext, Sampling
from syncmcp.testing import Server, ToolContext
from syncmcp.tools import Step, ToolFinished, ToolLoop, ToolStarted
from syncmcp.types import CreateMessageRequestParams, CreateMessageResult, ToolUseContent
from tests.features.test_tool_loop import DONE, Model, adder, says, text, texts, use, wants
from tests.support.shops import MISSING
from tests.support.stage import PATIENCE, Stage, Wire, in_threads, rotated


def shop(name: str, **annotations: Any) -> Server:
    """Return a server with a tool `price`, as all servers have, and a tool of its own."""
    server = Server(name)

    @server.tool(annotations=annotations)
    def price(thing: str) -> str:
        return f"{thing} at {name}"

    server.tool(name=f"close_{name}")(lambda: f"{name} is closed")
    return server


PRICES = use("a", "fish_price", thing="eel"), use("b", "books_price", thing="atlas")


@pytest.mark.requirement("M-05", "M-30")
def test_each_tool_is_called_at_the_server_that_has_it() -> None:
    model = Model(wants(*PRICES, use("c", "close_books")), DONE)
    servers: dict[str, Source] = {"missing": MISSING, "fish": shop("fish"), "books": shop("books")}
    with ClientGroup(servers) as group:
        outcome = ToolLoop(model, group).run("go")
    assert outcome.text == "done"
    names = [tool.name for tool in model.heard[0].tools or []]
    assert names == ["fish_price", "close_fish", "books_price", "close_books"]
    assert texts(model.told(1)) == ["eel at fish", "atlas at books", "books is closed"]
    # With `tools`, the loop offers only the named tools, under their keys.
    model = Model(wants(use("a", "close_fish")), DONE)
    with ClientGroup({"fish": shop("fish"), "books": shop("books")}) as group:
        ToolLoop(model, group).run("go", tools=["books_price"])
        assert [tool.name for tool in model.heard[0].tools or []] == ["books_price"]
        assert texts(model.told(1)) == ["no tool named 'close_fish'"]
        with pytest.raises(UsageError, match="no tool named 'price'"):
            ToolLoop(Model(), group).run("go", tools=["price"])


def test_who_approves_sees_the_server_its_own_name_of_the_tool_and_what_it_claims() -> None:
    seen: list[tuple[str, str, bool | None]] = []

    class Watching:
        def review(self, question: Question) -> Verdict:
            call = question.request
            assert isinstance(call, ToolCall)
            assert call.annotations is not None
            claim = call.annotations.destructive_hint
            seen.append((question.server.name, call.tool, claim))
            return Verdict(question.server.name == "fish", reason="not there")

    hints = {"fish": False, "books": True}
    servers = {name: shop(name, destructiveHint=hint) for name, hint in hints.items()}
    model = Model(wants(*PRICES), DONE)
    with ClientGroup({**servers}) as group:
        ToolLoop(model, group, approval=Approval(reviewer=Watching())).run("go")
    assert seen == [("fish", "price", False), ("books", "price", True)]
    assert texts(model.told(1)) == ["eel at fish", "the call was not allowed: not there"]


@pytest.mark.parametrize(
    ("own", "approval", "denial"),
    [
        # Without an approval of the loop, that of each server decides.
        (({"approval": AllowAll()}, {"approval": DenyAll()}), None, "the call was not allowed"),
        # Read-only tools of a trusted server need no approval.
        (({"trusted": True}, {}), Approval(), "there is nobody to ask"),
    ],
)
def test_each_server_has_its_own_approval_and_trust(own: Any, approval: Any, denial: str) -> None:
    servers = {name: shop(name, readOnlyHint=True) for name in ("fish", "books")}
    model = Model(wants(*PRICES), DONE)
    per_server = dict(zip(servers, own, strict=True))
    with ClientGroup(servers, per_server=per_server) as group:
        ToolLoop(model, group, approval=approval).run("go")
    allowed, denied = texts(model.told(1))
    assert allowed == "eel at fish"
    assert denial in denied


def test_a_group_that_is_closed_ends_the_loop() -> None:
    stage = Stage()
    model = Model(wants(use("a", "hold", key="k")), DONE)
    group = ClientGroup({"stage": stage.server, "books": shop("books")})
    with pytest.raises(ClosedError, match="the group is not open"):
        ToolLoop(model, group).run("go")
    with group:

        def end() -> None:
            stage.inside("k")
            group.close()

        outcome, ended = in_threads(partial(ToolLoop(model, group).run, "go"), end)
    assert ended is None
    assert isinstance(outcome, ClosedError)


def test_the_model_is_told_of_a_server_that_was_removed_and_goes_on_with_the_others() -> None:
    group = ClientGroup({"fish": shop("fish"), "books": shop("books")})

    def without_fish(request: object, context: object) -> CreateMessageResult:
        group.remove("fish")
        return wants(use("a", "close_fish"), use("b", "close_books"))

    model = Model(without_fish, DONE)
    with group:
        assert ToolLoop(model, group).run("go").text == "done"
    gone, there = texts(model.told(1))
    assert gone.startswith("no server of the group has a tool 'close_fish'")
    assert there == "books is closed"


def test_no_server_gets_calls_of_a_tool_that_was_another_s() -> None:
    """A removed server's key may belong to another server while the model has the old list."""
    heard: list[str] = []
    fish, other = Server("fish"), Server("other")

    def search(word: str) -> None:
        heard.append(word)

    for server in (fish, other):
        server.tool()(search)
    with ClientGroup({"fish": fish}) as group:

        def replaced(request: object, context: object) -> CreateMessageResult:
            group.remove("fish")
            group.add("other", other)
            assert group.server_of("tools", "search") == ("other", "search")
            return wants(use("a", "search", word="for fish"))

        model = Model(replaced, DONE)
        ToolLoop(model, group).run("go")
    assert heard == []
    assert texts(model.told(1)) == ["the tool 'search' now belongs to another server"]


def test_a_server_that_lets_nobody_in_any_more_does_not_end_the_loop() -> None:
    class Locked(Interceptor):
        def outgoing(self, message: Message) -> Message | None:
            if message.method == "tools/call":
                raise AuthError("sign in again")
            return None

    model = Model(wants(use("a", "close_fish"), use("b", "close_books")), DONE)
    locked = {"fish": {"interceptors": [Locked()]}}
    with ClientGroup({"fish": shop("fish"), "books": shop("books")}, per_server=locked) as group:
        assert ToolLoop(model, group).run("go").text == "done"
    assert texts(model.told(1)) == ["sign in again", "books is closed"]
    alone = Model(wants(use("a", "close_fish")))
    with (
        syncmcp.connect(shop("fish"), interceptors=[Locked()]) as client,
        pytest.raises(AuthError, match="sign in again"),
    ):
        ToolLoop(alone, client).run("go")


def test_a_question_of_a_server_that_a_loop_over_a_group_answers_stays_that_server_s() -> None:
    asking = Server("asking")

    @asking.tool()
    def ask(context: ToolContext) -> str:
        return str(context.sample("what is it?", max_tokens=9)["content"])

    seen: list[Any] = []

    def named(request: object, context: HandlerContext) -> CreateMessageResult:
        seen.append(context.server.name)
        context.show("so far")
        return says(text("an eel"))

    def unnamed(request: object, context: HandlerContext) -> CreateMessageResult:
        assert repr(context) == "<HandlerContext sampling/createMessage from a group>"
        with pytest.raises(UsageError, match="works for a group"):
            _ = context.client
        with pytest.raises(UsageError, match="not for one server"):
            _ = context.server
        context.show("It")
        context.show("It is")
        return within.run("and what do you say?", context=context).result

    def written(so_far: str) -> None:
        seen.append((threading.current_thread(), so_far))

    with ClientGroup({"fish": shop("fish")}) as group:

        def answer(request: CreateMessageRequestParams, context: HandlerContext) -> Any:
            loop = ToolLoop(named, group, on_text=seen.append)
            return loop.run(request, context=context).result

        options: dict[str, Any] = {"sampling": answer, "approval": Approval(AllowAll())}
        with syncmcp.connect(asking, name="asker", **options) as client:
            assert "an eel" in client.call_tool("ask").text
            assert seen == ["asker", "so far"]
            # A model of a group's loop has no client in its context, but may use another loop.
            within = ToolLoop(Model(then=DONE), client)
            seen.clear()
            assert ToolLoop(unnamed, group, on_text=written).run("go").text == "done"
    assert seen == [(threading.current_thread(), words) for words in ("It", "It is")]


def test_how_far_a_tool_is_is_told_with_the_wish_that_it_is_for() -> None:
    stages = {"one": Stage(), "two": Stage()}
    reports: dict[str, list[tuple[Any, ...]]] = {"a": [], "b": []}
    started, finished = list[str](), dict[str, int]()

    def far(wish: ToolUseContent, *report: Any) -> None:
        reports[wish.id].append(report)

    def step(step: Step) -> None:
        if isinstance(step, ToolStarted):
            started.append(step.use.name)
        elif isinstance(step, ToolFinished):
            finished[step.use.id] = len(reports[step.use.id])

    model = Model(wants(use("a", "one_count", steps=2), use("b", "two_count", steps=1)), DONE)
    with ClientGroup({name: stage.server for name, stage in stages.items()}) as group:
        ToolLoop(model, group, on_progress=far, on_step=step).run("go")
    assert reports == {"a": [(1, 2, "step 1"), (2, 2, "step 2")], "b": [(1, 1, "step 1")]}
    assert started == ["one_count", "two_count"]
    assert finished == {"a": 2, "b": 1}  # all reports came before the result


@pytest.mark.requirement("M-05", "M-03")
@rotated
def test_a_server_s_question_can_be_answered_by_a_loop_over_other_tools(wire: Wire) -> None:
    asking = Server("asking")

    @asking.tool()
    def ask(context: ToolContext) -> str:
        mine = [{"name": "mine", "inputSchema": {"type": "object"}}]
        return str(context.sample("what is 2 + 3?", max_tokens=100, tools=mine)["content"])

    model = Model(wants(use("u", "add", a=2, b=3)), says(text("it is 5")))
    asked: list[HandlerContext] = []

    def handler(request: CreateMessageRequestParams, context: HandlerContext) -> Any:
        asked.append(context)
        return ToolLoop(model, sums).run(request, context=context).result

    with (
        syncmcp.connect(adder()) as sums,
        wire.connect(asking, sampling=Sampling(handler, tools=True)) as client,
    ):
        assert "it is 5" in client.call_tool("ask").raise_for_error().text
    (outer,) = asked
    for inner in model.contexts:
        assert (inner.client, inner.server) == (outer.client, outer.server)
        assert inner.time_left() is not None
    assert [tool.name for tool in model.heard[0].tools or []] == ["add", "fail", "refuse"]
    assert model.heard[0].max_tokens == 100
    assert not asking.stats.violations


@rotated
def test_a_loop_that_waits_for_a_tool_keeps_no_other_question_from_its_answer(wire: Wire) -> None:
    server = Server("nested")

    for name in ("outer", "inner"):

        @server.tool(name=name)
        def ask(context: ToolContext, name: str = name) -> str:
            return str(context.sample(name, max_tokens=10)["content"])

    def handler(request: CreateMessageRequestParams, context: HandlerContext) -> Any:
        words = "from within"
        if request.messages[0].text == "outer":
            model = Model(wants(use("i", "inner")), DONE)
            ToolLoop(model, context.client).run("go", tools=["inner"], context=context)
            (words,) = texts(model.told(1))
        answer = {"role": "assistant", "model": "double", "content": text(words)}
        return CreateMessageResult.from_wire(answer)

    with wire.connect(server, sampling=handler, max_handlers=1, timeout=PATIENCE) as client:
        assert "from within" in client.call_tool("outer").raise_for_error().text


def test_a_withdrawn_question_ends_the_loop_that_answers_it_and_so_does_a_closed_client() -> None:
    stage = Stage()
    shown: list[str] = []

    def shows(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        context.show("half a sent")
        return wants(use("u", "hold", key="u"))

    with syncmcp.connect(stage.server, timeout=PATIENCE) as client:
        asked = client, client.server, "sampling/createMessage"
        outer = HandlerContext(*asked, timeout=60, show=shown.append)
        loop = ToolLoop(Model(shows), client)

        def withdraw() -> None:
            stage.inside("u")
            outer.cancel.cancel("no longer wanted")

        outcome, withdrawn = in_threads(partial(loop.run, "go", context=outer), withdraw)
        assert (type(outcome), withdrawn) == (RequestCancelled, None)
        assert outcome.reason == "no longer wanted"
        assert stage.stats.wait_for(lambda stats: stats.cancelled == 1)

        def close() -> None:
            stage.inside("v")
            client.close()

        model = Model(wants(use("v", "hold", key="v")))
        outcome, closed = in_threads(partial(ToolLoop(model, client).run, "go"), close)
        assert (type(outcome), closed) == (ClosedError, None)
    assert shown == ["half a sent"]
