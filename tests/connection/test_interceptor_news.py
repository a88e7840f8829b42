"""Interceptors and messages outside calls: notifications, questions, and automatic answers."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import syncmcp
from syncmcp import HandlerContext, InterceptorFailed, Message
from syncmcp.types import ElicitResult
from tests.connection.questions.asking import FORM, asked, asking_server, demanded
from tests.support.intercepting import Ask, Does, Gate, Seen, call_of, rotated_asks, throws
from tests.support.people import Person
from tests.support.stage import (
    Stage,
    Wire,
    rotated,
    rotated_stateful,
    rotated_stateless,
)


@rotated_asks
def test_news_passes_hooks_in_order(wire: Wire, ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    def double_or_refuse(message: Message) -> Message:
        if message.params["progress"] % 5 == 0:
            raise ValueError("a fifth")
        return message.with_params({**message.params, "progress": 2 * message.params["progress"]})

    heard: list[float] = []
    seen = Seen()
    chain = [Does("incoming", "notifications/progress", double_or_refuse), seen]
    with wire.connect(Stage().server, interceptors=chain) as client:
        call = call_of(client, ask)
        call("count", {"steps": 20}, on_progress=lambda done, *_: heard.append(done))
        assert heard == [2.0 * step for step in range(1, 21) if step % 5]
    assert "notifications/progress was dropped" in caplog.text
    progress = seen.of("notifications/progress")
    assert [message.params["progress"] for _, message in progress] == [*range(1, 21)]
    assert any("worker" in name for name in seen.threads)
    assert {(m.direction, m.kind, m.id) for _, m in progress} == {
        ("incoming", "notification", None)
    }


DECLINING = Person(ElicitResult.decline())


@rotated_stateful
def test_a_question_and_its_answer_pass_on_the_thread_of_the_handler(wire: Wire) -> None:
    seen, heard = Seen(), list[tuple[str, str]]()

    def handler(request: Any, context: HandlerContext) -> ElicitResult:
        heard.append((request.message, threading.current_thread().name))
        return ElicitResult.decline()

    chain = [
        seen,
        Does("incoming", "elicitation/create", lambda m: m.with_params({**FORM, "message": "Hm?"})),
        Does("outgoing", "elicitation/create", lambda m: m.with_result({"action": "cancel"})),
    ]
    with wire.connect(asking_server(), interceptors=chain, elicitation=handler) as client:
        assert asked(client, "elicitation/create", FORM)["result"] == {"action": "cancel"}
    (before, question), (after, answer) = seen.of("elicitation/create")
    assert (before, question.kind, question.direction) == ("incoming", "request", "incoming")
    assert (after, answer.kind, answer.direction) == ("outgoing", "response", "outgoing")
    assert (question.id, answer.result) == (answer.id, {"action": "decline"})
    assert answer.elapsed is not None
    ((said, thread),) = heard
    assert said == "Hm?"
    log = zip(seen.threads, seen.log, strict=True)
    hooks = [name for name, (_, _, message) in log if message.method == "elicitation/create"]
    assert hooks == [thread, thread]


@rotated_stateful.with_rows("hook", ["incoming", "outgoing"])
def test_a_question_that_is_refused_is_answered_with_an_error(wire: Wire, hook: str) -> None:
    refusals: list[Exception] = [ValueError("a slip"), syncmcp.Refused(-31999, "not today")]
    guard = Does(
        hook, "elicitation/create", lambda _: throws(refusals.pop())(_) if refusals else None
    )
    with wire.connect(asking_server(), interceptors=[guard], elicitation=DECLINING) as client:
        answers = [asked(client, "elicitation/create", FORM) for _ in range(3)]
    assert [answer["error"][0] for answer in answers[:2]] == [-31999, -32603]
    assert answers[2] == {"result": {"action": "decline"}}


@rotated_stateful
def test_a_hook_that_never_ends_is_given_up_with_its_question(wire: Wire) -> None:
    gate, seen = Gate(), Seen()
    chain = [seen, Does("incoming", "elicitation/create", gate)]
    options: dict[str, Any] = {"elicitation": DECLINING, "human_timeout": 0.1}
    with wire.connect(asking_server(), interceptors=chain, **options) as client:
        assert asked(client, "elicitation/create", FORM)["result"] == {"action": "cancel"}
        gate.open.set()
        # The result of the hook comes too late.
        answer = seen.wait("elicitation/create", "response", settled=True)
        assert answer.result == {"action": "cancel"}


@rotated_stateful
def test_a_ping_is_answered_whatever_the_hooks_do_and_shown_to_them(wire: Wire) -> None:
    seen, gate = Seen(), Gate()
    hold = Does("incoming", "ping", gate)
    chain = [seen, Does("outgoing", "ping", throws(ValueError("no"))), hold]
    with wire.connect(asking_server(), interceptors=chain) as client:
        assert demanded(client, "ping") == {"result": {}}
        gate.reached()
        gate.open.set()
        question = seen.wait("ping", "request")
        answer = seen.wait("ping", "response")
    assert question.settled
    assert answer.settled
    assert (answer.direction, answer.result, answer.id) == ("outgoing", {}, question.id)


@rotated
def test_a_cancel_notice_is_shown_and_cannot_be_held_up(wire: Wire) -> None:
    stage, seen = Stage(), Seen()
    stuck: list[type[Exception]] = []

    def hold(message: Message) -> None:
        try:
            message.pause(1)
        except syncmcp.UsageError as error:
            stuck.append(type(error))

    chain = [Does("outgoing", "notifications/cancelled", hold), seen]
    with wire.connect(stage.server, interceptors=chain) as client:
        call = client.call_tool.future("hold")
        stage.inside("")
        call.cancel()
        if wire.announces:
            notice = seen.wait("notifications/cancelled", "notification")
            assert notice.settled
            assert notice.params["requestId"] == seen.of("tools/call")[0][1].id
            assert stuck == [syncmcp.UsageError]
        else:
            assert seen.wait("tools/call", "response").error is not None
            assert seen.of("notifications/cancelled") == []


@rotated_stateful
def test_what_the_library_refuses_and_reports_by_itself_is_shown(wire: Wire) -> None:
    seen, params = Seen(), {"_meta": {"progressToken": "t"}}

    def think(params: dict[str, object], context: HandlerContext) -> dict[str, object]:
        context.report_progress(1, 2, "half")
        return {}

    with wire.connect(asking_server(), interceptors=[seen]) as client:
        assert demanded(client, "acme/nobody")["error"][0] == -32601
        answer = seen.wait("acme/nobody", "response")
        assert isinstance(answer.error, syncmcp.Refused)
        assert answer.error.code == -32601
        assert answer.settled
        client.on_request("acme/think", think)
        assert demanded(client, "acme/think", params) == {"result": {}}
        report = seen.wait("notifications/progress", "notification")
    assert report.settled
    assert report.direction == "outgoing"
    expected = {"progressToken": "t", "progress": 1, "total": 2, "message": "half"}
    assert report.params == expected


@rotated_stateless
def test_a_subscription_is_seen_when_it_begins_and_ends_and_when_it_is_refused(wire: Wire) -> None:
    seen, stage, listen = Seen(), Stage(), "subscriptions/listen"
    slips = [ValueError("a slip")]
    guard = Does("outgoing", listen, lambda m: throws(slips.pop())(m) if slips else m.pause(0.001))
    with wire.connect(stage.server, interceptors=[seen, guard]) as client:
        with pytest.raises(InterceptorFailed, match="raised ValueError"):
            client.listen(tools=True)
        assert stage.stats.requests[listen] == 0
        assert seen.hooks(listen) == [("outgoing", "request"), ("ended", "response")]
        seen.log.clear()
        with client.listen(tools=True) as events:
            assert seen.hooks(listen) == [("outgoing", "request")]
            stage.server.list_changed("tools")
            assert next(events).kind == "tools"
            news = seen.wait("notifications/tools/list_changed", "notification")
            assert news.direction == "incoming"
        end = seen.wait(listen, "response")
    assert isinstance(end.error, syncmcp.RequestCancelled)
    assert seen.hooks(listen).count(("ended", "response")) == 1
