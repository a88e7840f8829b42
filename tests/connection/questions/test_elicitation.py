"""Elicitation: which forms and links reach the handler, and which answers reach the server."""

from __future__ import annotations

from typing import Any

import pytest

import syncmcp
from syncmcp import Elicitation, HandlerContext, Mode, UrlElicitationRequired
from syncmcp.approval import Approval, DenyAll, Question, Verdict
from syncmcp.testing import Server, ToolContext
from syncmcp.testing import UrlElicitationRequired as MustVisit
from syncmcp.testing import script as s
from syncmcp.types import ElicitRequestURLParams, ElicitResult
from tests.connection.questions.asking import (
    BOTH,
    ELICITATION,
    FORM,
    RESULT,
    SCHEMA,
    URL,
    Slow,
    asked,
    asker,
    asking_server,
    fault,
    link,
    person,
    question,
    through,
    visitor,
)
from tests.support.people import Person, nobody
from tests.support.scripts import NEW, OLD, opening, talk
from tests.support.stage import (
    PATIENCE,
    Wire,
    rotated,
    rotated_stateful,
    rotated_stateful_ways,
    rotated_with,
)
from tests.transports.http_peer import serving


def form(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"message": "Please", "requestedSchema": schema}


def without_mode(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != "mode"}


@rotated
@pytest.mark.requirement("ELI-03", "M-06")
def test_a_request_without_a_mode_is_a_form(wire: Wire) -> None:
    server, ann = asking_server(), Person()
    with wire.connect(server, elicitation=Elicitation(ann, nobody)) as client:
        answer = asked(client, ELICITATION, without_mode(FORM))["result"]
        assert answer == {"action": "accept", "content": {"name": "Ann", "loud": True}}
    (request,) = ann.requests
    assert (request.message, request.requested_schema) == ("Who are you?", SCHEMA)
    assert server.stats.violations == []


EITHER = Elicitation(nobody, nobody)
LINK_WITHOUT_MODE = without_mode({**URL, "elicitationId": "e-1"})


@pytest.mark.parametrize(
    ("revision", "given", "params", "expected"),
    [
        ("2024-11-05", nobody, FORM, -32601),
        ("2025-06-18", EITHER, URL, -32602),  # this revision has no links
        # A `url` without a mode does not make the request a link.
        (OLD, EITHER, LINK_WITHOUT_MODE, -32602),
        (NEW, EITHER, LINK_WITHOUT_MODE, -32602),
        (OLD, Elicitation(form=nobody), URL, -32602),
        (OLD, Elicitation(url=nobody), FORM, -32602),
        *((OLD, EITHER, {**FORM, "mode": mode}, -32602) for mode in ("voice", ["form"])),
    ],
)
@pytest.mark.requirement("ELI-02", "ELI-03", "ELI-04", "RPC-19")
def test_the_undeclared_is_an_error(revision: Mode, given: Any, params: Any, expected: int) -> None:
    with asker(revision, elicitation=given) as client:
        assert fault(client, ELICITATION, params)[0] == expected


@rotated_with("action", ["decline", "cancel"])
@pytest.mark.requirement("ELI-06", "M-06")
def test_who_declines_or_leaves_sends_no_content(action: Any, wire: Wire) -> None:
    result = ElicitResult(action=action, content={"name": "secret"})
    server = asking_server()
    with wire.connect(server, elicitation=lambda *_: result) as client:
        assert asked(client, ELICITATION, FORM) == {"result": {"action": action}}
    assert server.stats.violations == []


class Editor:
    """Allows each request, and replaces each answer."""

    def __init__(self) -> None:
        self.seen: list[ElicitResult] = []

    def review(self, question: Question, /) -> Verdict:
        if not isinstance(question.answer, ElicitResult):
            return Verdict.allow()
        self.seen.append(question.answer)
        return Verdict.allow(answer=ElicitResult.accept({"name": "Eve", "loud": False}))


@BOTH
@pytest.mark.requirement("ELI-07", "M-06")
def test_a_reviewer_may_change_an_answer_and_a_policys_no_is_a_decline(revision: Mode) -> None:
    editor = Editor()
    with asker(revision, elicitation=person, approval=Approval(reviewer=editor)) as client:
        answer = asked(client, ELICITATION, question(ELICITATION, revision))["result"]
    assert [seen.content for seen in editor.seen] == [{"name": "Ann", "loud": True}]
    assert answer == {"action": "accept", "content": {"name": "Eve", "loud": False}}
    with asker(revision, elicitation=nobody, approval=DenyAll()) as client:
        assert asked(client, ELICITATION, form({})) == {"result": {"action": "decline"}}


# For the rules of forms, see `tests/handlers/test_forms.py`.
OUTSIDE: dict[str, Any] = {
    "nested": form({"address": {"type": "object", "properties": {}}}),
    "no object": {"message": "Please", "requestedSchema": {"type": "array"}},
    "no schema": {"message": "Please"},
    "no message": {"requestedSchema": SCHEMA},
}


@BOTH
@pytest.mark.requirement("M-06")
def test_a_schema_outside_the_subset_is_refused_and_nobody_is_asked(revision: Mode) -> None:
    with asker(revision, elicitation=Elicitation(nobody, visitor)) as client:
        for case, params in OUTSIDE.items():
            code, text = fault(client, ELICITATION, params)
            assert code == -32602
            assert ("address" if case == "nested" else "") in text


@BOTH
@pytest.mark.requirement("ELI-10")
def test_nobody_is_sent_to_what_is_no_safe_url(revision: Mode) -> None:
    with asker(revision, elicitation=Elicitation(url=nobody)) as client:
        for url in ("javascript:alert(1)", ""):  # for others, see `tests/handlers/test_links.py`
            assert fault(client, ELICITATION, link(url=url))[0] == -32602


@rotated_with("result", ["accept", "decline", "cancel"])
@pytest.mark.requirement("ELI-06", "ELI-09", "ELI-10")
def test_nothing_behind_a_link_is_fetched_whatever_the_person_says(result: Any, wire: Wire) -> None:
    answer = ElicitResult(action=result, content={"x": 1})
    with (
        serving(lambda request: request.connection.respond(204)) as site,
        wire.connect(asking_server(), elicitation=Elicitation(url=lambda *_: answer)) as client,
    ):
        assert asked(client, ELICITATION, link(url=site.url)) == {"result": {"action": result}}
        assert site.requests == []


def visiting_server(*identifiers: str) -> tuple[Server, list[ToolContext]]:
    """Return a server whose tool first demands these visits, and the contexts of its calls."""
    server, calls = Server("visits"), list[ToolContext]()

    @server.tool()
    def locked(context: ToolContext, key: str) -> str:
        calls.append(context)
        if len(calls) > 1:
            return f"open {key}"
        raise MustVisit({name: ("Sign in", URL["url"] + name) for name in identifiers})

    return server, calls


@rotated_stateful_ways
@pytest.mark.requirement("ELI-18", "M-07")
def test_an_error_that_needs_a_visit_leads_there_and_calls_again(way: str, wire: Wire) -> None:
    server, calls = visiting_server("one", "two")
    agreeing, meta = Person(), {"acme.example/k": 1}

    def handler(request: ElicitRequestURLParams, context: HandlerContext) -> Any:
        agreed = agreeing(request, context)
        if len(agreeing.requests) == 2:
            for name in ("one", "two"):
                calls[0].complete_elicitation(name)
        return agreed

    options: dict[str, Any] = {"elicitation": Elicitation(url=handler), "max_handlers": 1}
    with wire.connect(server, **options) as client:
        assert through(client, way, "locked", {"key": "a"}, meta=meta).text == "open a"
    first, second = calls
    assert first.request_id != second.request_id
    assert [call.meta["acme.example/k"] for call in calls] == [1, 1]
    visited = {request.elicitation_id: request.url for request in agreeing.requests}
    assert visited == {name: f"{URL['url']}{name}" for name in ("one", "two")}
    params = {"name": "locked", "arguments": {"key": "a"}}
    for context in agreeing.contexts:
        assert context.resumes_call
        assert context.call is not None
        assert (context.call.method, context.call.params) == ("tools/call", params)


@rotated_stateful.with_rows(
    "given",
    {
        "declines": Elicitation(url=Person(ElicitResult.decline())),
        "forms": person,
    },
)
@pytest.mark.requirement("ELI-18", "ELI-10")
def test_where_nobody_goes_there_the_caller_gets_the_error(wire: Wire, given: Any) -> None:
    server, calls = visiting_server("one")
    with wire.connect(server, elicitation=given) as client:
        with pytest.raises(UrlElicitationRequired) as caught:
            client.call_tool("locked", {"key": "a"})
        caught_ids = [each["elicitationId"] for each in caught.value.data["elicitations"]]
        assert (caught.value.code, caught_ids) == (-32042, ["one"])
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("changed", "why", "way"),
    [
        ({"url": "javascript:alert(1)"}, "cannot be opened", "blocking"),
        ({"url": 5}, "url", "future"),
    ],
)
@pytest.mark.requirement("ELI-18", "ELI-10")
def test_an_unsafe_link_in_an_error_is_told(changed: dict[str, Any], why: str, way: str) -> None:
    data = {"elicitations": [{**link(), **changed}]}
    script = [*opening(), s.expect("tools/call"), s.error(-32042, "visit", data)]
    with (
        talk(script, elicitation=Elicitation(url=nobody)) as (_, client),
        pytest.raises(syncmcp.InvalidQuestion, match=why) as caught,
    ):
        through(client, way)
    said = caught.value.__cause__
    assert isinstance(said, UrlElicitationRequired)
    assert (said.code, said.message, said.data) == (-32042, "visit", data)


PAGES = "https://example.org"


@pytest.mark.parametrize("enough", [True, False])
@pytest.mark.requirement("ELI-18", "ELI-17", "M-07")
def test_where_nobody_says_that_it_is_done_the_call_is_made_again_once(enough: bool) -> None:
    error = s.error(-32042, "visit", {"elicitations": [link()]})
    again = s.reply(RESULT) if enough else error
    script = [*opening(), s.expect("tools/call"), error, s.expect("tools/call"), again]
    with talk(script, elicitation=Elicitation(url=visitor), human_timeout=0.05) as (peer, client):
        if enough:
            assert client.call_tool("x", timeout=PATIENCE).text == "done"
        else:
            with pytest.raises(UrlElicitationRequired) as caught:
                client.call_tool("x", timeout=PATIENCE)
            assert caught.value.data == {"elicitations": [link()]}
        assert len(peer.requests("tools/call", 2)) == 2


@rotated_stateful
@pytest.mark.requirement("ELI-18", "TMO-01", "M-20")
def test_links_share_one_time_limit(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    server, calls = Server("greedy"), list[Any]()
    slow = Slow(monkeypatch, 60.0, 60.0, 60.0)  # person and call have 130 s together

    @server.tool()
    def locked(context: ToolContext) -> str:
        calls.append(context.request_id)
        name = f"{len(calls)}"
        raise MustVisit({name: ("Go there", f"{PAGES}/{name}")})

    def visit(request: ElicitRequestURLParams, context: HandlerContext) -> ElicitResult:
        slow.think(context)
        context.completed()
        return ElicitResult.accept()

    options: dict[str, Any] = {"timeout": 30.0, "human_timeout": 100.0}
    with wire.connect(server, elicitation=Elicitation(url=visit), **options) as client:
        with pytest.raises(syncmcp.RequestTimeout) as caught:
            client.call_tool("locked")
        assert slow.left.wait(PATIENCE)
    assert (caught.value.kind, caught.value.seconds) == ("total", 30.0)
    assert caught.value.method == "tools/call"
    assert "human_timeout" in caught.value.message
    assert len(calls) == 3
