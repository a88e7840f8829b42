"""Completions of visits to links: when they arrive, whom they reach, and what ends the wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp.testing import Server, ToolContext, serve_http
from syncmcp.testing import script as s
from syncmcp.types import ElicitResult
from tests.connection.questions.asking import (
    COMPLETE,
    ELICITATION,
    FORM,
    READ,
    RESULT,
    URL,
    Agreeing,
    ask,
    asked,
    asker,
    asking_server,
    complete,
    link,
)
from tests.support.moved_time import MovedTime
from tests.support.parts import without_pauses
from tests.support.scripts import NEW, OLD, Scripted, opening, talk
from tests.support.session_server import SessionServer, session_server
from tests.support.shops import known
from tests.support.stage import PATIENCE, Clock, Wire, elsewhere, is_gone, rotated_stateful
from tests.transports.http_peer import Request


@rotated_stateful.with_rows("ended", [False, True])
@pytest.mark.requirement("ELI-15", "M-07")
def test_a_completion_after_consent_reaches_waits_and_callbacks(wire: Wire, ended: bool) -> None:
    server, agreeing, contexts = Server("links"), Agreeing(), list[ToolContext]()
    told = Future[tuple[bool, str, int]]()

    @server.tool()
    def visit(context: ToolContext) -> str:
        contexts.append(context)
        action = context.elicit_url("Look", URL["url"], "e-1")["action"]
        for _ in range(0 if ended else 2):
            context.complete_elicitation("e-1")  # not before the consent
        return str(action)

    def call(done: bool) -> None:
        tools = len(client.list_tools().tools)
        told.set_result((done, threading.current_thread().name, tools))

    def handler(request: Any, context: syncmcp.HandlerContext) -> ElicitResult:
        context.on_completed(call)
        return agreeing(request, context)

    with wire.connect(server, name="links", elicitation=syncmcp.Elicitation(url=handler)) as client:
        assert client.call_tool("visit").raise_for_error().text == "accept"
        if ended:
            contexts[0].complete_elicitation("e-1")
        assert agreeing.outcomes() == [True]
        assert not agreeing.contexts[0].cancel.cancelled
        done, thread, tools = told.result(PATIENCE)
    assert (done, tools) == (True, 1)
    assert thread.startswith("syncmcp-worker[links]")
    # The end of the session does not change the outcome.
    assert agreeing.contexts[0].wait_completed(0)


# Messages of the server: "a" asks about the link with id a, "done-a" reports its completion, "odd"
# sends invalid completions; the client answers each question first. Then: does each handler (+, -),
# and does a wait at the end, find the visit completed; and which questions are declined. The client
# remembers three visits.
TALKS: dict[str, tuple[str, str, str, set[int]]] = {
    "after the consent": ("a done-a", "-", "+", set()),
    "before the question": ("done-a a", "-", "-", set()),
    "again": ("a done-a done-a a b", "-+-", "++-", set()),
    "of one whose id looks like others": ("b c d odd done-c", "---", "-+-", set()),
    "of two with one id": ("a b a done-a", "---", "+-+", set()),
    "of a question that was declined": ("a done-a a", "-+", "-+", {0}),
    "beside one that was declined": ("a a done-a", "--", "-+", {0}),
    "the oldest of four": ("a b c d done-a done-b", "----", "-+--", set()),
    "of many that were declined": ("a a a a a done-a", "-----", "+---+", {1, 2, 3}),
}


def signs(found: list[bool]) -> str:
    return "".join("-+"[each] for each in found)


@pytest.mark.parametrize("name", TALKS)
@pytest.mark.requirement("ELI-15", "ELI-16", "M-07")
def test_a_completion_reaches_those_who_agreed_to_its_id(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said, during, after, declined = TALKS[name]
    alike = ' "\u00e9"/../1 '
    # An empty id is valid, too.
    ids = {"a": "", "b": alike, "c": alike.strip(), "d": alike.replace("\u00e9", "e\u0301")}
    monkeypatch.setattr("syncmcp.handlers.url_completion.MAX_VISITS", 3)
    Clock(monkeypatch, "syncmcp._concurrency.limited_log", stands=True)
    caplog.set_level(logging.DEBUG, "syncmcp.connection")
    script, number = [*opening()], 0
    for word in said.split():
        if word.startswith("done-"):
            script.append(complete(ids[word.removeprefix("done-")]))
            continue
        if word == "odd":
            wrong: list[Any] = [{"elicitationId": 1}, {"elicitationId": [alike]}, {}, None]
            script += [s.notify(COMPLETE, params) for params in wrong]
            continue
        script += [ask(ids[word], request=number), s.expect("response")]
        if number in declined:  # its handler may still be running when its answer arrives
            script.append(s.gate(f"over {number}"))
        number += 1
    found, contexts, peers = list[bool](), list[syncmcp.HandlerContext](), Future[Scripted]()

    def handler(request: Any, context: syncmcp.HandlerContext) -> ElicitResult:
        number = len(contexts)
        found.append(context.wait_completed(0))
        contexts.append(context)
        if number not in declined:
            return ElicitResult.accept()
        context.on_completed(lambda done: peers.result(PATIENCE).open(f"over {number}"))
        return ElicitResult.decline()

    url = syncmcp.Elicitation(url=handler)
    with talk([*script, *READ], name="bank", elicitation=url) as (peer, _):
        peers.set_result(peer)
        peer.requests("response", len(during) + 1)
        assert signs([context.wait_completed(0) for context in contexts]) == after
        full = name == "the oldest of four"
        if full:
            assert contexts[0].cancel.wait(PATIENCE)
        agreed = [each for number, each in enumerate(contexts) if number not in declined]
        assert not any(context.cancel.cancelled for context in agreed[full:])
    assert signs(found) == during
    told = [each.getMessage() for each in caplog.records if "never asked for" in each.message]
    ignored = "[bank] completed a visit that it never asked for"
    more = [f"{ignored} (and 2 more like it since the last record)"] if "odd" in said else []
    assert told == ([ignored, *more] if full or more or said.startswith("done") else [])


@pytest.mark.requirement("ELI-15", "ELI-18", "M-07")
def test_one_page_under_two_ids_is_asked_for_once_and_both_are_waited_for() -> None:
    page, other = URL["url"], "https://example.org/other"
    links = [link("a"), link("b"), {**link("c"), "url": other}]
    visit, again = s.error(-32042, "visit", {"elicitations": links}), s.expect("tools/call")
    script = [*opening(), s.expect("tools/call"), visit, s.gate("agreed"), complete("a")]
    script += [complete("c"), *READ, s.gate("read"), complete("b"), again, s.reply(RESULT)]
    agreeing, visits = Agreeing(), list[tuple[str, syncmcp.HandlerContext]]()

    def agree(request: Any, context: syncmcp.HandlerContext) -> ElicitResult:
        visits.append((request.url, context))
        return agreeing(request, context)

    with talk(script, elicitation=syncmcp.Elicitation(url=agree)) as (peer, client):
        call = client.call_tool.future("x")
        for _ in range(2):
            agreeing.asked()
        peer.open("agreed")
        peer.requests("response")
        done = sorted((url, context.wait_completed(0)) for url, context in visits)
        assert done == [(page, False), (other, True)]
        peer.open("read")
        assert call.result(PATIENCE).text == "done"
        assert agreeing.outcomes() == [True, True]


class Overtaken(syncmcp.Interceptor):
    """Delays an error until the completion that followed it has been read."""

    def __init__(self) -> None:
        self._heard = threading.Event()

    def incoming(self, message: syncmcp.Message) -> None:
        if message.method == COMPLETE:
            self._heard.set()
        elif message.error is not None:
            assert self._heard.wait(PATIENCE)


@pytest.mark.requirement("ELI-15", "ELI-18", "M-07")
def test_a_completion_that_is_read_before_the_error_is_looked_at_is_not_lost() -> None:
    visit = s.error(-32042, "visit", {"elicitations": [link()]})
    script = [*opening(), s.expect("tools/call"), visit, complete()]
    script += [s.expect("tools/call"), s.reply(RESULT)]
    agreeing = Agreeing()
    options: Any = {"elicitation": agreeing.elicitation, "interceptors": [Overtaken()]}
    with talk(script, **options) as (_, client):
        assert client.call_tool.future("x").result(PATIENCE).text == "done"
        assert agreeing.outcomes() == [True]


@pytest.mark.parametrize(("action", "revision"), [("decline", OLD), ("cancel", NEW), ("form", OLD)])
@pytest.mark.requirement("M-07")
def test_without_consent_there_is_nothing_to_wait_for(action: Any, revision: syncmcp.Mode) -> None:
    waits, contexts = list[Future[bool]](), list[syncmcp.HandlerContext]()
    told = [Future[tuple[bool, str]]() for _ in range(2)]

    def hear(number: int) -> Callable[[bool], None]:
        return lambda done: told[number].set_result((done, threading.current_thread().name))

    def answer(request: Any, context: syncmcp.HandlerContext) -> ElicitResult:
        contexts.append(context)
        waits.append(elsewhere(context.wait_completed))
        context.on_completed(hear(0))
        if action == "form":  # a form has no visit
            return ElicitResult.accept({"name": "Ada"})
        return ElicitResult(action=action)

    with asker(revision, name="forms", elicitation=syncmcp.Elicitation(answer, answer)) as client:
        asked(client, ELICITATION, FORM if action == "form" else link())
        assert not waits[0].result(PATIENCE)
        told[0].result(PATIENCE)
        contexts[0].on_completed(hear(1))  # after the question, the outcome is known at once
        for done, thread in (each.result(PATIENCE) for each in told):
            assert not done
            assert thread.rsplit("-", 1)[0] == "syncmcp-worker[forms]"


def test_a_callback_may_come_late_be_taken_away_or_fail(caplog: pytest.LogCaptureFixture) -> None:
    script = [*opening(), ask(request=1), s.expect("response"), s.gate("taken"), complete()]
    agreeing, told = Agreeing(), SimpleQueue[str]()

    def hear(name: str) -> Callable[[bool], None]:
        return lambda done: told.put(f"{name} {done}")

    def fail(done: bool) -> None:
        raise RuntimeError("a mistake of the program's")

    with talk(script, elicitation=agreeing.elicitation) as (peer, _):
        context = agreeing.asked()
        take_away = context.on_completed(hear("taken"))
        context.on_completed(fail)
        context.on_completed(hear("kept"))
        take_away()
        peer.open("taken")
        assert told.get(timeout=PATIENCE) == "kept True"
        context.on_completed(hear("late"))
        assert told.get(timeout=PATIENCE) == "late True"
        assert agreeing.outcomes() == [True]
        known(lambda: "a mistake of the program's" in caplog.text)  # another thread logs it
    assert told.empty()


@pytest.mark.parametrize(
    ("end", "over_http", "revision"),
    [
        ("close", False, OLD),
        ("close", True, NEW),
        ("session", True, OLD),
        ("server", True, OLD),  # no call of the program is in flight
    ],
)
@pytest.mark.requirement("M-07")
def test_after_the_consent_a_wait_ends_with_whoever_would_bring_the_news(
    end: str, over_http: bool, revision: syncmcp.Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pauses(monkeypatch)
    agreeing, told, server = Agreeing(), Future[bool](), asking_server()
    with (
        serve_http(server) as http,
        syncmcp.connect(
            http.url if over_http else server, mode=revision, elicitation=agreeing.elicitation
        ) as client,
    ):
        ends = {
            "close": client.close, "session": http.endpoint.forget_sessions, "server": http.close
        }  # fmt: skip
        assert asked(client, ELICITATION, link()) == {"result": {"action": "accept"}}
        context = agreeing.asked()
        context.on_completed(told.set_result)
        assert not context.wait_completed(0)
        assert not context.cancel.cancelled
        ends[end]()
        assert agreeing.outcomes() == [False]
        assert not told.result(PATIENCE)
        # A handler that checks both in turn sees the end, too.
        assert context.cancel.wait(PATIENCE)
        assert not context.wait_completed()
        if end == "session":  # a new session has no visits of the old one
            assert asked(client, ELICITATION, link()) == {"result": {"action": "accept"}}
            assert not agreeing.contexts[1].wait_completed(0)


class Streams:
    """Controls when a server over HTTP sends messages on its streams.

    Each tool call gets a stream that asks for a visit, whose id is the name of the tool.

    Args:
        server: The server.
        listens: Whether it offers a stream outside calls, which cannot be opened again once cut.
    """

    def __init__(self, server: SessionServer, *, listens: bool) -> None:
        self._listens = listens
        self._cut = threading.Event()
        self._calls: dict[str, Request] = {}
        server.before = self._answer
        server.capabilities = {"tools": {"listChanged": True}}

    def _answer(self, one: Request) -> bool:
        connection = one.connection
        if one.method == "GET" and self._listens:
            self._listens = False
            connection.start_events()
            connection.chunk(b"retry: 1\n\n")
            assert self._cut.wait(PATIENCE)
            connection.close()
            return True
        if b'"tools/call"' in one.body:
            name = one.message["params"]["name"]
            self._calls[name] = one
            question = {"id": f"question {name}", "method": ELICITATION, "params": link(name)}
            connection.start_events()
            connection.event({"jsonrpc": "2.0", **question})
            return True
        if one.body and "method" not in one.message:
            connection.respond(202)
            return True
        return False

    def cut(self) -> None:
        """End the stream that is outside calls."""
        self._cut.set()

    def complete(self, name: str, *, on: str) -> None:
        """Report on the stream of a call that a visit is completed."""
        news = {"method": COMPLETE, "params": {"elicitationId": name}}
        self._calls[on].connection.event({"jsonrpc": "2.0", **news})

    def end(self, name: str) -> None:
        call = self._calls[name]
        call.connection.event({"jsonrpc": "2.0", "id": call.id, "result": RESULT})
        call.connection.end_events()


@pytest.mark.requirement("M-07")
def test_a_wait_goes_on_as_long_as_the_stream_of_a_call_may_bring_the_news() -> None:
    agreeing = Agreeing()
    with session_server() as server:
        streams = Streams(server, listens=True)
        with syncmcp.connect(server.url, mode=OLD, elicitation=agreeing.elicitation) as client:
            events = client.listen(tools=True)
            a, b = client.call_tool.future("a"), client.call_tool.future("b")
            for _ in range(2):
                agreeing.asked()
            streams.cut()
            with pytest.raises(syncmcp.SubscriptionLost):
                next(events)  # only the streams of the two calls are open
            streams.complete("a", on="a")
            streams.end("a")
            assert a.result(PATIENCE).text == "done"
            done = [context.wait_completed(0) for context in agreeing.contexts]
            assert sorted(done) == [False, True]
            assert not any(context.cancel.cancelled for context in agreeing.contexts)
            streams.end("b")
            assert b.result(PATIENCE).text == "done"
            assert sorted(agreeing.outcomes()) == [False, True]


@pytest.mark.requirement("M-07")
def test_a_wait_goes_on_where_there_never_was_a_stream_but_those_of_calls() -> None:
    agreeing = Agreeing()
    with session_server() as server:
        streams = Streams(server, listens=False)
        with syncmcp.connect(server.url, mode=OLD, elicitation=agreeing.elicitation) as client:
            with pytest.raises(syncmcp.NotSupported, match="no stream"):
                client.listen(tools=True)
            for name in ("a", "b"):
                call = client.call_tool.future(name)
                context = agreeing.asked()
                if name == "b":
                    streams.complete("a", on="b")
                streams.end(name)
                assert call.result(PATIENCE).text == "done"
                assert not context.cancel.cancelled
            assert agreeing.contexts[0].wait_completed(PATIENCE)
            assert not agreeing.contexts[1].wait_completed(0)


@pytest.mark.requirement("M-07")
def test_the_time_for_an_answer_is_no_limit_after_the_answer(moved: MovedTime) -> None:
    script = [*opening(), ask(request=1), s.expect("response"), s.gate("late"), complete()]
    agreeing = Agreeing()
    with talk(script, elicitation=agreeing.elicitation, human_timeout=300.0) as (peer, _):
        context = agreeing.asked()
        peer.requests("response")
        moved.advance(301)
        begun_late = elsewhere(context.wait_completed)
        for wait in (*agreeing.waits, begun_late):
            with pytest.raises(NotYet):
                wait.result(0.05)
        peer.open("late")
        assert begun_late.result(PATIENCE)
        assert agreeing.outcomes() == [True]


@pytest.mark.parametrize(("done", "revision"), [(True, NEW), (False, OLD)])
@pytest.mark.requirement("ELI-17", "M-07")
def test_a_person_who_is_done_or_gives_up_ends_the_wait(done: bool, revision: syncmcp.Mode) -> None:
    agreeing = Agreeing()
    with asker(revision, elicitation=agreeing.elicitation) as client:
        assert asked(client, ELICITATION, link()) == {"result": {"action": "accept"}}
        context = agreeing.asked()
        assert context.resumes_call == (revision == NEW)
        if done:
            context.completed()
        else:
            context.cancel.cancel("no more")
        assert agreeing.outcomes() == [done]
        assert client.list_tools().tools


@pytest.mark.requirement("M-07")
@pytest.mark.filterwarnings("ignore:a client of .* was never closed:ResourceWarning")
def test_a_visit_that_nobody_calls_done_keeps_no_client() -> None:
    told = Future[bool]()

    def handler(request: Any, context: syncmcp.HandlerContext) -> Any:
        context.on_completed(told.set_result)
        return ElicitResult.accept()

    client = asker(OLD, elicitation=syncmcp.Elicitation(url=handler))
    assert asked(client, ELICITATION, link()) == {"result": {"action": "accept"}}
    assert not told.done()
    gone = is_gone(client)
    del client
    assert gone()
    assert not told.result(PATIENCE)
