"""The steps of one request until its final result, without a connection."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from syncmcp._protocol.capabilities import NO_OFFER, OfferedCapabilities
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.exchange import MAX_ROUNDS, exchange, single_exchange
from syncmcp._protocol.revisions import REVISIONS, dialect_for
from syncmcp._protocol.steps import (
    AnswerInput,
    InputQuestion,
    InputRound,
    Send,
    SessionChanged,
    SessionPin,
)
from syncmcp.errors import (
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    InvalidQuestion,
    McpError,
    OutcomeUnknown,
    ProtocolError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    TooManyRounds,
    UrlElicitationRequired,
    fresh,
)
from tests.protocol.played import NEWEST, Answerer, Played

EVERYTHING = OfferedCapabilities(*(True,) * len(OfferedCapabilities._fields))

FINAL: dict[str, Any] = {"content": [], "unknown": 1}
PARAMS: dict[str, Any] = {"name": "add", "arguments": {"a": 1}}
ROOTS = {"method": "roots/list"}
FORM = {"method": "elicitation/create", "params": {"message": "who?"}}
WHO = InputQuestion("elicitation/create", {"message": "who?"})
URL = {"mode": "url", "url": "https://example.com/", "elicitationId": "1", "message": "go"}


def asks(state: str | None = None, **requests: Any) -> dict[str, Any]:
    """Return a result that asks these questions."""
    asked = {"inputRequests": requests} if requests else {}
    kept = {} if state is None else {"requestState": state}
    return {"resultType": "input_required", **asked, **kept}


def answered(ask: AnswerInput) -> dict[str, Any]:
    return {key: {"answer to": key} for key in ask.questions}


def url_needed(*entries: Any) -> UrlElicitationRequired:
    return UrlElicitationRequired("open this", data={"elicitations": list(entries or (URL,))})


def play(
    *outcomes: Any,
    answer: Answerer = answered,
    revision: str = NEWEST,
    method: str = "tools/call",
    params: dict[str, Any] | None = PARAMS,
    **options: Any,
) -> Played:
    """Return an exchange whose requests get these outcomes, in order."""
    steps = exchange(method, params, **options)
    return Played(steps, *outcomes, answer=answer, revision=revision)


def play_old(*outcomes: Any, **options: Any) -> Played:
    """Return the same in 2025-11-25, whose errors can ask for visits to URLs."""
    return play(*outcomes, revision="2025-11-25", **options)


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_request_is_sent_once_and_its_result_returned_as_it_came(revision: str) -> None:
    results = [FINAL] if revision == NEWEST else [FINAL, asks("s", k=FORM)]
    for result in results:
        played = play(result, revision=revision)
        assert played.run() is result
        assert played.effects == [Send("tools/call", PARAMS)]
        assert once(result, revision=revision) is result
    played = play("hello", revision=revision)
    assert "not an object" in str(played.fail(ProtocolError))
    assert len(played.effects) == 1
    assert next(exchange("ping")) == Send("ping", None, None)
    session = SessionPin()
    sent = next(exchange("ping", session=session))
    assert isinstance(sent, Send)
    assert sent.session is session


@pytest.mark.requirement("RPC-16")
def test_a_result_that_makes_no_sense_ends_the_call_before_anybody_is_asked() -> None:
    for result in (
        *({"resultType": kind, "content": []} for kind in ("input_required", "other", None)),
        asks("s", good=FORM, bad={"method": 5}),
    ):
        played = play(result)
        assert type(played.fail()) is ProtocolError
        assert len(played.effects) == 1


@pytest.mark.requirement("MRTR-01", "MRTR-02", "MRTR-08")
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
@pytest.mark.parametrize("params", [PARAMS, None], ids=["params", "none"])
def test_all_questions_of_a_round_are_answered_before_the_request_goes_again(
    method: str, params: dict[str, Any] | None
) -> None:
    played = play(asks("state", who=FORM, where=ROOTS), FINAL, method=method, params=params)
    assert played.run() is FINAL
    questions = {"who": WHO, "where": InputQuestion("roots/list", {})}
    answers = {"who": {"answer to": "who"}, "where": {"answer to": "where"}}
    assert played.effects == [
        Send(method, params),
        AnswerInput(method, params, questions, await_completion=False),
        Send(method, {**(params or {}), "inputResponses": answers, "requestState": "state"}),
    ]


@pytest.mark.requirement("MRTR-01", "MRTR-03", "MRTR-06", "MRTR-08")
def test_answers_of_an_earlier_round_are_not_sent_again() -> None:
    params = deepcopy(PARAMS)
    played = play(asks("1", a=FORM), asks("2", b=FORM), asks("3"), FINAL, params=params)
    played.run()
    assert played.sent == [
        PARAMS,
        {**PARAMS, "inputResponses": {"a": {"answer to": "a"}}, "requestState": "1"},
        {**PARAMS, "inputResponses": {"b": {"answer to": "b"}}, "requestState": "2"},
        {**PARAMS, "requestState": "3"},
    ]
    assert params == PARAMS
    assert [ask.params for ask in played.asked] == [PARAMS, PARAMS]
    assert played.pauses == [0.2]  # only after the round without questions
    # Nor is the state, if the next round has none. An equal question is asked again.
    played = play(asks("1", k=FORM), asks(None, k=FORM), FINAL)
    played.run()
    assert played.sent[2] == {**PARAMS, "inputResponses": {"k": {"answer to": "k"}}}
    assert len(played.asked) == 2
    assert played.pauses == []


@pytest.mark.requirement("MRTR-01")
def test_a_question_that_nobody_answers_ends_the_call_and_nothing_is_sent_again() -> None:
    refusal = RequestCancelled("no")
    for revision, first in ((NEWEST, asks("s", k=FORM)), ("2025-11-25", url_needed())):
        played = play(first, answer=lambda ask: refusal, revision=revision)
        assert played.fail() is refusal
        assert played.sent == [PARAMS]
    # An error of the server in a later round is the error of the call.
    error = ServerError("no", code=-32000)
    assert play(asks("s", k=FORM), error).fail() is error


UNSENT: list[McpError] = [
    RequestTimeout("no time is left", delivery="not_sent"),
    RequestCancelled("cancelled", delivery="not_sent"),
    ClosedError("closed", delivery="not_sent"),
    HttpError("busy", status=503, delivery="refused"),
    ConnectFailed("gone", delivery="not_sent"),
    ConnectionLost("gone", delivery="not_sent"),
]


@pytest.mark.parametrize("first", [asks("s"), asks("s", k=FORM)], ids=["pause", "question"])
@pytest.mark.parametrize("error", UNSENT, ids=[type(each).__name__ for each in UNSENT])
def test_a_call_whose_next_round_was_not_sent_was_begun_all_the_same(
    error: McpError, first: dict[str, Any]
) -> None:
    error = fresh(error)
    error.__cause__ = OSError("no route")
    ended = play(first, error).fail()
    lost = type(error) in (ConnectFailed, ConnectionLost)
    assert type(ended) is (OutcomeUnknown if lost else type(error))
    assert (ended.message, ended.method) == (error.message, "tools/call")
    assert vars(ended)["delivery"] == "unknown"
    assert isinstance(ended.__cause__, OSError)


def test_what_has_done_no_work_keeps_its_error() -> None:
    for first in (RequestTimeout("late", delivery="not_sent"), ConnectFailed("gone")):
        assert play(first).fail() is first
        assert first.delivery == "not_sent"
    late = RequestTimeout("late", delivery="not_sent")
    assert play_old(url_needed(), late).fail() is late
    assert late.delivery == "not_sent"  # the server did nothing, as the visit was missing
    for method in ("prompts/get", "resources/read"):
        for lost in (ConnectFailed("gone"), ConnectionLost("gone", delivery="not_sent")):
            assert play(asks("s", k=FORM), lost, method=method).fail() is lost
            assert vars(lost)["delivery"] == "unknown"
    unreachable = play(asks("s", k=FORM), answer=lambda ask: ConnectFailed("gone")).fail()
    assert (type(unreachable), vars(unreachable)["delivery"]) == (OutcomeUnknown, "unknown")


@pytest.mark.requirement("MRTR-04")
@pytest.mark.parametrize("limit", [None, 0, 1, 3])
def test_ten_rounds_are_allowed_or_as_many_as_the_client_says(limit: int | None) -> None:
    options: dict[str, Any] = {} if limit is None else {"max_rounds": limit}
    most = MAX_ROUNDS if limit is None else limit
    assert MAX_ROUNDS == 10
    rounds = [asks(str(number), k=FORM) for number in range(most)]
    assert play(*rounds, FINAL, **options).run() is FINAL
    for last in (asks("secret", q=FORM, r=ROOTS), asks("one more")):
        played = play(*rounds, last, **options)
        error = played.fail(TooManyRounds)
        assert (error.rounds, error.method) == (most, "tools/call")
        assert "max_rounds" in str(error)
        assert str(most) in error.message
        assert (len(played.sent), len(played.asked), played.pauses) == (most + 1, most, [])
    # The cause of the error has the last questions, but not the state.
    cause = play(*rounds, asks("secret", q=FORM, r=ROOTS), **options).fail().__cause__
    assert isinstance(cause, McpError)
    assert cause.method == "tools/call"
    assert vars(cause)["questions"] == {"q": FORM, "r": {**ROOTS, "params": {}}}
    assert "secret" not in repr(vars(cause))
    # Rounds without questions count like others.
    played = play(asks("1"), asks("2", k=FORM), asks("3"), max_rounds=2)
    played.fail(TooManyRounds)
    assert (played.pauses, len(played.asked)) == ([0.05], 1)


@pytest.mark.requirement("ELI-18")
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "acme/do"])
def test_after_its_urls_are_done_the_same_request_goes_again(method: str) -> None:
    second = {**URL, "elicitationId": "2"}
    played = play_old(url_needed(URL, second), FINAL, method=method)
    assert played.run() is FINAL
    links = {
        str(n): InputQuestion("elicitation/create", url) for n, url in enumerate((URL, second))
    }
    asked, send = AnswerInput(method, PARAMS, links, await_completion=True), Send(method, PARAMS)
    assert played.effects == [send, asked, send]


@pytest.mark.requirement("ELI-18")
def test_a_url_that_nobody_goes_to_leaves_the_error_as_it_was() -> None:
    error = url_needed()
    played = play_old(error, answer=lambda ask: None)
    assert played.fail() is error
    assert len(played.sent) == 1
    # If links must not be shown, the refusal is raised, with the error as its cause.
    refusal = InvalidQuestion("the link cannot be opened")
    assert play_old(error, answer=lambda ask: refusal).fail() is refusal
    assert refusal.__cause__ is error
    # With `single_exchange`, the program gets the error.
    by_hand = single_exchange("tools/call", PARAMS, EVERYTHING)
    assert Played(by_hand, error, answer=answered).fail() is error


@pytest.mark.requirement("ELI-18")
@pytest.mark.parametrize("data", [None, {}, {"elicitations": []}, {"elicitations": [{"a": 1}]}])
@pytest.mark.parametrize("max_rounds", [0, 10])
def test_an_error_without_usable_urls_is_an_error_like_any_other(
    data: Any, max_rounds: int
) -> None:
    error = UrlElicitationRequired("open what?", data=data)
    played = play_old(error, max_rounds=max_rounds)
    assert played.fail() is error
    assert len(played.effects) == 1


def page(number: int, **changed: Any) -> dict[str, Any]:
    """Return a link that is different for each number."""
    return {**URL, "url": f"https://example.com/{number}", "elicitationId": str(number), **changed}


def minted(number: int, url: str) -> dict[str, Any]:
    """Return a link as a server creates it for one error, with a new id in the URL."""
    id = str(UUID(int=number))
    return {"mode": "url", "message": "Sign in", "elicitationId": id, "url": url.format(id=id)}


@pytest.mark.requirement("ELI-18")
def test_a_server_that_sends_to_urls_for_ever_is_stopped() -> None:
    errors = [url_needed(page(number)) for number in range(4)]
    played = play_old(*errors, max_rounds=3)
    error = played.fail(TooManyRounds)
    assert (error.rounds, error.__cause__) == (3, errors[3])
    assert (len(played.asked), len(played.sent)) == (3, 4)


def pages(*urls: str) -> list[dict[str, Any]]:
    """Return links to these pages."""
    return [page(number, url=url) for number, url in enumerate(urls)]


# An id in the query, one in the path, several, and a link without a host.
MINTED = [
    *("https://example.com/authorize?elicit={id}&scope=all", "https://example.com/approve/{id}"),
    *("https://example.com/{id}//confirm/{id}#now", "/approve/{id}"),
]
STATE = "https://example.com/authorize?client=a&state="


@pytest.mark.requirement("ELI-18", "M-20")
def test_a_server_that_asks_for_the_same_link_again_has_its_error_raised() -> None:
    for first, again in (
        *((URL, URL), (page(1), page(2, elicitationId="1"))),
        (page(1), page(1, elicitationId="2", message="once more")),
        *((minted(1, url), minted(2, url)) for url in MINTED),
        pages(f"{STATE}0123456789abcdef-_ghij", f"{STATE}fedcba9876543210-_jihg"),
    ):
        error = url_needed(again)
        played = play_old(url_needed(first), error)
        assert played.fail() is error
        assert len(played.asked) == 1
        assert played.sent == [PARAMS, PARAMS]


TENANT, PAY = "https://tenant-0000-0000-000", "https://example.com/pay/{id}"


@pytest.mark.requirement("ELI-18")
def test_a_server_may_send_somewhere_else_after_that() -> None:
    for first, second in (
        *((page(1), page(2)), (minted(1, PAY), {**minted(2, PAY), "message": "Pay again"})),
        *(
            pages(f"{TENANT}1.example.com{end}", f"{TENANT}2.example.com{end}")
            for end in ("/in", "?in")
        ),
        pages("https://a.example/?to=b", "https://a.example/?to=c"),
        pages(
            "https://example.com/connect-the-calendar", "https://example.com/connect-the-mailboxes"
        ),
    ):
        played = play_old(url_needed(first), url_needed(second), FINAL)
        assert played.run() is FINAL
        assert links(played) == [[first], [second]]
        assert len(played.sent) == 3


@pytest.mark.requirement("ELI-18", "M-20")
def test_of_several_links_only_the_new_ones_are_asked_for() -> None:
    one, two, three = page(1), page(2), page(3)
    errors = [url_needed(one, two, one), url_needed(two, three), url_needed(three, one)]
    played = play_old(*errors)
    assert played.fail() is errors[2]
    assert links(played) == [[one, two], [three]]
    # The client waits for both ids of one error, but asks for the visit only once.
    both = [URL, {**URL, "elicitationId": "2"}]
    played = play_old(url_needed(*both), FINAL)
    played.run()
    assert links(played) == [both]


def links(played: Played) -> list[list[Any]]:
    """Return the links of each round."""
    return [[link.params for link in ask.questions.values()] for ask in played.asked]


LINK = {key: value for key, value in URL.items() if key != "elicitationId"}


def link(**changed: Any) -> dict[str, Any]:
    """Return a question that asks for a visit to a link."""
    return {"method": "elicitation/create", "params": {**LINK, **changed}}


def agreed(ask: AnswerInput) -> dict[str, Any]:
    return {key: {"action": "accept"} for key in ask.questions}


@pytest.mark.requirement("MRTR-01", "MRTR-08", "ELI-17")
def test_who_agreed_to_a_link_is_not_asked_again_while_the_server_waits_for_them() -> None:
    waits = [asks(str(number), **{f"k{number}": link()}) for number in range(3)]
    played = play(*waits, FINAL, answer=agreed)
    assert played.run() is FINAL
    assert len(played.asked) == 1
    assert played.pauses == [0.25, 0.5]
    assert [(sent or {}).get("inputResponses") for sent in played.sent] == [
        None,
        *({f"k{number}": {"action": "accept"}} for number in range(3)),
    ]
    # The pauses add up to about a minute.
    played = play(*[asks("s", k=link()) for _ in range(11)], answer=agreed)
    played.fail(TooManyRounds)
    assert len(played.asked) == 1
    assert played.pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]


@pytest.mark.requirement("ELI-10")
@pytest.mark.parametrize("changed", [{"url": "https://example.com/2"}, {"message": "more"}])
def test_consent_to_a_link_is_not_passed_on_to_another_one(changed: dict[str, Any]) -> None:
    other = link(**changed)
    played = play(asks("1", k=link()), asks("2", k=other, l=link()), FINAL, answer=agreed)
    played.run()
    assert [list(ask.questions.values()) for ask in played.asked] == [
        [InputQuestion("elicitation/create", LINK)],
        [InputQuestion("elicitation/create", other["params"])],
    ]
    assert (played.sent[2] or {})["inputResponses"].keys() == {"k", "l"}
    assert played.pauses == []


@pytest.mark.requirement("M-20")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_who_did_not_agree_to_a_link_is_not_asked_again(action: str) -> None:
    said = {"k": {"action": action}}
    played = play(asks("1", k=link()), asks("2", k=link()), answer=lambda ask: said)
    error = played.fail(TooManyRounds)
    assert error.message == "the server asks again for a link that the person did not accept"
    assert vars(error.__cause__)["questions"] == {"k": link()}
    assert str(error.__cause__) == "tools/call: the server asked for 1 more answers"
    assert (len(played.asked), len(played.sent)) == (1, 2)


def once(outcome: Any, *, revision: str = NEWEST, offer: OfferedCapabilities = EVERYTHING) -> Any:
    """Send a request without answering questions; return the outcome."""
    steps = single_exchange("tools/call", PARAMS, offer)
    assert next(steps) == Send("tools/call", PARAMS, offer)
    with pytest.raises(StopIteration) as stop:
        steps.send(Reply(outcome, dialect_for(revision, None)))
    return stop.value.value


@pytest.mark.parametrize("offer", [NO_OFFER, OfferedCapabilities(form=True), EVERYTHING])
def test_by_hand_a_question_is_returned_and_nobody_is_asked(offer: OfferedCapabilities) -> None:
    round = once(asks("s", k=FORM), offer=offer)
    assert isinstance(round, InputRound)
    assert round.questions == {"k": WHO}
    assert round.state == "s"


@dataclass
class Life:
    """A session; `close_error` is the reason of its end."""

    close_error: McpError | None = None


@pytest.mark.requirement("PAG-04")
def test_the_requests_of_one_list_are_sent_in_one_session() -> None:
    one, other = SessionPin(), Life()
    one.check(Life())  # any session is accepted before the first page
    one.check(other)
    one.pin()
    one.check(other)
    with pytest.raises(SessionChanged):
        one.check(Life())
    ended = ConnectionLost("gone")
    one = SessionPin(Life(ended))
    with pytest.raises(SessionChanged, match=r"^the session has ended \(") as caught:
        one.check(Life())
    assert caught.value.cause is ended
    assert caught.value.delivery == "not_sent"
