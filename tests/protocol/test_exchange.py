"""One request, driven by hand until its final result."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any
from uuid import UUID

import pytest

from syncmcp._protocol.capabilities import NO_OFFER, OfferedCapabilities
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.exchange import MAX_ROUNDS, exchange, single_exchange
from syncmcp._protocol.jsonrpc import RequestTable
from syncmcp._protocol.revisions import REVISIONS, STATEFUL, dialect_for
from syncmcp._protocol.steps import AnswerInput, Effect, InputQuestion, InputRound, Pause, Send
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

EVERYTHING = OfferedCapabilities(*(True,) * len(OfferedCapabilities._fields))

NEWEST = "2026-07-28"
FINAL: dict[str, Any] = {"content": [], "unknown": 1}
PARAMS: dict[str, Any] = {"name": "add", "arguments": {"a": 1}}
ROOTS = {"method": "roots/list"}
FORM = {"method": "elicitation/create", "params": {"message": "who?"}}
ROUND = ("inputResponses", "requestState")
URL = {"mode": "url", "url": "https://example.com/", "elicitationId": "1", "message": "go"}

Answerer = Callable[[AnswerInput], Any]
"""Whoever answers questions: the answers by key, `None`, or an error to be raised."""


def asks(state: str | None = None, **requests: Any) -> dict[str, Any]:
    """A result that asks these questions."""
    result: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        result["inputRequests"] = requests
    if state is not None:
        result["requestState"] = state
    return result


def answered(ask: AnswerInput) -> dict[str, Any]:
    return {key: {"answer to": key} for key in ask.questions}


def url_needed(*entries: Any) -> UrlElicitationRequired:
    return UrlElicitationRequired("open this", data={"elicitations": list(entries or (URL,))})


class Played:
    """An exchange with a server that says these things, one after the other."""

    def __init__(
        self,
        *outcomes: Any,
        answer: Answerer = answered,
        revision: str = NEWEST,
        method: str = "tools/call",
        params: dict[str, Any] | None = PARAMS,
        **options: Any,
    ) -> None:
        self.effects: list[Effect] = []
        self._outcomes = list(outcomes)
        self._answer = answer
        self._dialect = dialect_for(revision, None)
        self._steps = exchange(method, params, **options)

    def run(self) -> dict[str, Any]:
        effect = next(self._steps)
        while True:
            self.effects.append(effect)
            try:
                effect = self._go_on(effect)
            except StopIteration as stop:
                assert not self._outcomes, "not every outcome was asked for"
                returned: dict[str, Any] = stop.value
                return returned

    def _go_on(self, effect: Effect) -> Effect:
        if isinstance(effect, Pause):
            return self._steps.send(None)
        outcome = self._answer(effect) if isinstance(effect, AnswerInput) else self._outcomes.pop(0)
        if isinstance(outcome, McpError):
            return self._steps.throw(outcome)
        if isinstance(effect, Send):
            outcome = Reply(outcome, self._dialect)
        return self._steps.send(outcome)

    def fail(self) -> McpError:
        with pytest.raises(McpError) as caught:
            self.run()
        assert not self._outcomes, "not every outcome was asked for"
        return caught.value

    @property
    def sent(self) -> list[dict[str, Any] | None]:
        """The parameters of each request."""
        return [effect.params for effect in self.effects if isinstance(effect, Send)]

    @property
    def asked(self) -> list[AnswerInput]:
        return [effect for effect in self.effects if isinstance(effect, AnswerInput)]

    @property
    def pauses(self) -> list[float]:
        return [effect.seconds for effect in self.effects if isinstance(effect, Pause)]


# -- without a question ----------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_request_is_sent_once_and_its_result_returned_as_it_came(revision: str) -> None:
    result = {"content": [], "unknown": 1}
    played = Played(result, revision=revision)
    assert played.run() is result
    assert played.effects == [Send("tools/call", PARAMS)]


def test_params_may_be_left_out() -> None:
    assert next(exchange("ping")) == Send("ping", None)


def test_a_request_offers_what_its_handlers_can_answer() -> None:
    effect = next(exchange("ping"))
    assert isinstance(effect, Send)
    assert effect.offer is None


@pytest.mark.requirement("RPC-16")
@pytest.mark.parametrize("kind", ["input_required", "something else", None])
def test_the_kind_of_a_result_is_read_before_any_model_sees_it(kind: Any) -> None:
    error = Played({"resultType": kind, "content": []}).fail()
    assert type(error) is ProtocolError


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_result_that_is_no_object_ends_the_exchange_with_an_error(revision: str) -> None:
    played = Played("hello", revision=revision)
    assert "not an object" in str(played.fail())
    assert len(played.effects) == 1


def test_an_error_thrown_in_passes_through() -> None:
    steps = exchange("tools/call")
    next(steps)
    with pytest.raises(ProtocolError, match="thrown"):
        steps.throw(ProtocolError("thrown"))


@pytest.mark.parametrize("revision", STATEFUL)
def test_a_stateful_result_is_final_whatever_it_looks_like(revision: str) -> None:
    result = asks("s", k=FORM)
    played = Played(result, revision=revision)
    assert played.run() is result
    assert len(played.effects) == 1


# -- rounds of input -------------------------------------------------------------------------


@pytest.mark.requirement("MRTR-01", "MRTR-02", "MRTR-08")
def test_all_questions_of_a_round_are_answered_before_the_request_goes_again() -> None:
    played = Played(asks("state", who=FORM, where=ROOTS), FINAL)
    assert played.run() is FINAL
    assert played.effects == [
        Send("tools/call", PARAMS),
        AnswerInput(
            "tools/call",
            PARAMS,
            {
                "who": InputQuestion("elicitation/create", {"message": "who?"}),
                "where": InputQuestion("roots/list", {}),
            },
        ),
        Send(
            "tools/call",
            {
                **PARAMS,
                "inputResponses": {
                    "who": {"answer to": "who"},
                    "where": {"answer to": "where"},
                },
                "requestState": "state",
            },
        ),
    ]


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
def test_prompts_and_resources_go_on_the_same_way(method: str) -> None:
    played = Played(asks("s", k=FORM), FINAL, method=method, params={"uri": "x:y"})
    assert played.run() is FINAL
    assert [
        effect.method for effect in played.effects if isinstance(effect, AnswerInput | Send)
    ] == ([method] * 3)
    assert played.sent[1] == {
        "uri": "x:y",
        "inputResponses": {"k": {"answer to": "k"}},
        "requestState": "s",
    }


@pytest.mark.requirement("MRTR-07")
@pytest.mark.parametrize("method", ["tools/list", "server/discover", "completion/complete", "x/y"])
def test_no_other_request_is_repeated_and_nobody_is_asked(method: str) -> None:
    played = Played(asks("s", k=FORM), method=method)
    error = played.fail()
    assert type(error) is ProtocolError
    assert error.method == method
    assert len(played.effects) == 1


@pytest.mark.requirement("MRTR-01", "MRTR-06", "MRTR-08")
def test_answers_of_an_earlier_round_are_not_sent_again() -> None:
    played = Played(asks("1", first=FORM), asks("2", second=FORM), asks("3"), FINAL)
    played.run()
    rounds = [{key: (sent or {}).get(key) for key in ROUND} for sent in played.sent]
    assert rounds == [
        {"inputResponses": None, "requestState": None},
        {"inputResponses": {"first": {"answer to": "first"}}, "requestState": "1"},
        {"inputResponses": {"second": {"answer to": "second"}}, "requestState": "2"},
        {"inputResponses": None, "requestState": "3"},
    ]
    assert "inputResponses" not in (played.sent[3] or {})


@pytest.mark.requirement("MRTR-03")
def test_the_state_of_an_earlier_round_is_not_sent_again_when_the_next_has_none() -> None:
    played = Played(asks("1", first=FORM), asks(None, second=FORM), FINAL)
    played.run()
    assert played.sent[2] == {**PARAMS, "inputResponses": {"second": {"answer to": "second"}}}


@pytest.mark.requirement("MRTR-03")
def test_no_state_is_sent_where_none_was_given() -> None:
    played = Played(asks(None, k=FORM), FINAL)
    played.run()
    assert played.sent[1] == {**PARAMS, "inputResponses": {"k": {"answer to": "k"}}}


@pytest.mark.requirement("MRTR-02")
def test_an_empty_state_goes_back_too() -> None:
    played = Played(asks("", k=FORM), asks(""), FINAL)
    played.run()
    assert [(sent or {}).get("requestState") for sent in played.sent] == [None, "", ""]


@pytest.mark.requirement("MRTR-04")
def test_a_state_that_looks_like_json_goes_back_with_its_blanks_and_its_order() -> None:
    state = ' {"b": 1,\n "a" : 1.0} '
    played = Played(asks(state, k=FORM), FINAL)
    played.run()
    assert (played.sent[1] or {})["requestState"] == state


def test_the_original_params_are_the_same_in_every_round_and_never_changed() -> None:
    params = deepcopy(PARAMS)
    played = Played(asks("1", k=FORM), asks("2"), asks("3", l=ROOTS), FINAL, params=params)
    played.run()
    assert params == PARAMS
    for sent in played.sent:
        assert {key: (sent or {})[key] for key in PARAMS} == PARAMS
    assert [ask.params for ask in played.asked] == [PARAMS, PARAMS]


def test_a_request_without_params_goes_on_with_the_round_alone() -> None:
    played = Played(asks("s", k=FORM), FINAL, params=None)
    played.run()
    assert played.sent == [
        None,
        {"inputResponses": {"k": {"answer to": "k"}}, "requestState": "s"},
    ]


def test_a_round_without_questions_waits_longer_each_time() -> None:
    played = Played(*[asks(str(number)) for number in range(5)], FINAL)
    assert played.run() is FINAL
    assert played.pauses == [0.05, 0.1, 0.2, 0.25, 0.25]
    assert played.asked == []
    assert played.sent == [PARAMS] + [{**PARAMS, "requestState": str(n)} for n in range(5)]


def test_a_round_with_questions_goes_on_at_once() -> None:
    played = Played(asks("s", k=FORM), FINAL)
    played.run()
    assert played.pauses == []


def test_questions_that_are_none_are_not_asked() -> None:
    played = Played({**asks("s"), "inputRequests": {}}, FINAL)
    played.run()
    assert played.asked == []
    assert played.pauses == [0.05]
    assert played.sent[1] == {**PARAMS, "requestState": "s"}


@pytest.mark.requirement("MRTR-01")
def test_a_question_that_nobody_answers_ends_the_call_and_nothing_is_sent_again() -> None:
    refusal = RequestCancelled("no")
    played = Played(asks("s", k=FORM), answer=lambda ask: refusal)
    assert played.fail() is refusal
    assert played.sent == [PARAMS]


def test_an_error_of_a_later_round_ends_the_call() -> None:
    refusal = ServerError("no", code=-32000)
    played = Played(asks("s", k=FORM), refusal)
    assert played.fail() is refusal
    assert len(played.sent) == 2


UNSENT: list[tuple[McpError, type[McpError]]] = [
    (RequestTimeout("no time is left", delivery="not_sent"), RequestTimeout),
    (RequestCancelled("cancelled", delivery="not_sent"), RequestCancelled),
    (ClosedError("closed", delivery="not_sent"), ClosedError),
    (HttpError("busy", status=503, delivery="refused"), HttpError),
    (ConnectFailed("gone", delivery="not_sent"), OutcomeUnknown),
    (ConnectionLost("gone", delivery="not_sent"), OutcomeUnknown),
]


@pytest.mark.parametrize("first", [asks("s"), asks("s", k=FORM)], ids=["pause", "question"])
@pytest.mark.parametrize(("error", "kind"), UNSENT, ids=[type(each).__name__ for each, _ in UNSENT])
def test_a_call_whose_next_round_was_not_sent_was_begun_all_the_same(
    error: McpError, kind: type[McpError], first: dict[str, Any]
) -> None:
    error = fresh(error)
    error.__cause__ = OSError("no route")
    ended = Played(first, error).fail()
    assert type(ended) is kind
    assert (ended.message, ended.method) == (error.message, "tools/call")
    assert vars(ended)["delivery"] == "unknown"
    assert isinstance(ended.__cause__, OSError)


def test_a_server_that_cannot_be_reached_while_questions_are_answered_has_begun_the_call() -> None:
    played = Played(asks("s", k=FORM), answer=lambda ask: ConnectFailed("gone"))
    ended = played.fail()
    assert (type(ended), vars(ended)["delivery"]) == (OutcomeUnknown, "unknown")


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
def test_what_only_asks_does_no_work_though_its_outcome_is_unknown(method: str) -> None:
    for lost in (ConnectFailed("gone"), ConnectionLost("gone", delivery="not_sent")):
        ended = Played(asks("s", k=FORM), lost, method=method).fail()
        assert ended is lost
        assert vars(ended)["delivery"] == "unknown"


def test_a_call_that_ends_before_its_first_round_is_what_became_of_that() -> None:
    for first in (RequestTimeout("late", delivery="not_sent"), ConnectFailed("gone")):
        ended = Played(first).fail()
        assert ended is first
        assert first.delivery == "not_sent"
    late = RequestTimeout("late", delivery="not_sent")
    assert Played(url_needed(), late, revision="2025-11-25").fail() is late
    assert late.delivery == "not_sent"  # for want of the visit, nothing was done


def test_a_malformed_question_ends_the_call_before_anybody_is_asked() -> None:
    played = Played(asks("s", good=FORM, bad={"method": 5}))
    assert type(played.fail()) is ProtocolError
    assert len(played.effects) == 1


@pytest.mark.requirement("MRTR-06")
def test_calls_side_by_side_keep_their_rounds_to_themselves() -> None:
    dialect = dialect_for(NEWEST, None)
    one, two, three = (exchange("tools/call", {"name": name}) for name in ("one", "two", "three"))
    next(one)
    next(two)
    one.send(Reply(asks("state of one", k=FORM), dialect))
    two.send(Reply(asks(None, k=FORM), dialect))
    assert one.send({"k": {"said to": "one"}}) == Send(
        "tools/call",
        {
            "name": "one",
            "inputResponses": {"k": {"said to": "one"}},
            "requestState": "state of one",
        },
    )
    assert next(three) == Send("tools/call", {"name": "three"})
    assert two.send({"k": {"said to": "two"}}) == Send(
        "tools/call", {"name": "two", "inputResponses": {"k": {"said to": "two"}}}
    )
    assert next(exchange("tools/list")) == Send("tools/list", None)


class Leg:
    """A request on its way."""

    id = 0
    method = "tools/call"


@pytest.mark.requirement("MRTR-05")
def test_each_leg_is_a_request_with_an_id_and_a_progress_token_of_its_own() -> None:
    table: RequestTable[Leg] = RequestTable(1, 8)
    dialect = dialect_for(NEWEST, None)
    played = Played(asks("1", k=FORM), asks("2"), asks(None, k=ROOTS), FINAL)
    played.run()
    ids, tokens = [], []
    for params in played.sent:
        leg = Leg()
        table.register(leg)
        made = dialect.request("tools/call", params, leg.id, None, None)[1]
        assert made is not None
        ids.append(leg.id)
        tokens.append(made["_meta"]["progressToken"])
        assert table.take(leg.id) is leg
    assert ids == tokens == [1, 2, 3, 4]


# -- how often -------------------------------------------------------------------------------


def test_ten_rounds_are_allowed_and_an_eleventh_is_not() -> None:
    assert MAX_ROUNDS == 10
    rounds = [asks(str(number), k=FORM) for number in range(10)]
    assert Played(*rounds, FINAL).run() is FINAL
    played = Played(*rounds, asks("one more", k=FORM))
    error = played.fail()
    assert isinstance(error, TooManyRounds)
    assert error.rounds == 10
    assert error.method == "tools/call"
    assert "max_rounds" in str(error)
    assert len(played.sent) == 11
    assert len(played.asked) == 10


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_client_may_allow_another_number_of_rounds(limit: int) -> None:
    rounds = [asks(str(number), k=FORM) for number in range(limit)]
    assert Played(*rounds, FINAL, max_rounds=limit).run() is FINAL
    played = Played(*rounds, asks("one more"), max_rounds=limit)
    error = played.fail()
    assert isinstance(error, TooManyRounds)
    assert error.rounds == limit
    assert str(limit) in error.message
    assert played.pauses == []


def test_rounds_without_questions_count_as_much_as_others() -> None:
    played = Played(asks("1"), asks("2", k=FORM), asks("3"), max_rounds=2)
    assert isinstance(played.fail(), TooManyRounds)
    assert played.pauses == [0.05]
    assert len(played.asked) == 1


# -- URLs in an error ------------------------------------------------------------------------


@pytest.mark.requirement("ELI-18")
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "acme/do"])
def test_after_its_urls_are_done_the_same_request_goes_again(method: str) -> None:
    second = {**URL, "elicitationId": "2"}
    played = Played(url_needed(URL, second), FINAL, revision="2025-11-25", method=method)
    assert played.run() is FINAL
    assert played.effects == [
        Send(method, PARAMS),
        AnswerInput(
            method,
            PARAMS,
            {
                "0": InputQuestion("elicitation/create", URL),
                "1": InputQuestion("elicitation/create", second),
            },
            await_completion=True,
        ),
        Send(method, PARAMS),
    ]


def test_only_the_urls_of_an_error_are_waited_for() -> None:
    played = Played(asks("s", k=FORM), FINAL)
    played.run()
    assert [ask.await_completion for ask in played.asked] == [False]


@pytest.mark.requirement("ELI-18")
def test_a_url_that_nobody_goes_to_leaves_the_error_as_it_was() -> None:
    error = url_needed()
    played = Played(error, answer=lambda ask: None, revision="2025-11-25")
    assert played.fail() is error
    assert len(played.sent) == 1


@pytest.mark.requirement("ELI-18")
@pytest.mark.parametrize("data", [None, {}, {"elicitations": []}, {"elicitations": [{"a": 1}]}])
@pytest.mark.parametrize("max_rounds", [0, 10])
def test_an_error_without_usable_urls_is_an_error_like_any_other(
    data: Any, max_rounds: int
) -> None:
    error = UrlElicitationRequired("open what?", data=data)
    played = Played(error, revision="2025-11-25", max_rounds=max_rounds)
    assert played.fail() is error
    assert len(played.effects) == 1


def test_an_error_while_the_urls_are_gone_to_ends_the_call() -> None:
    refusal = RequestCancelled("no")
    played = Played(url_needed(), answer=lambda ask: refusal, revision="2025-11-25")
    assert played.fail() is refusal
    assert len(played.sent) == 1


@pytest.mark.requirement("ELI-18")
def test_an_error_whose_links_must_not_be_shown_is_the_cause_of_the_refusal() -> None:
    error, refusal = url_needed(), InvalidQuestion("the link cannot be opened")
    played = Played(error, answer=lambda ask: refusal, revision="2025-11-25")
    assert played.fail() is refusal
    assert refusal.__cause__ is error
    assert len(played.sent) == 1


def page(number: int, **changed: Any) -> dict[str, Any]:
    """A link unlike those of other numbers."""
    return {**URL, "url": f"https://example.com/{number}", "elicitationId": str(number), **changed}


def minted(number: int, url: str) -> dict[str, Any]:
    """A link as a server makes it anew for each error, with an id of its own in the URL."""
    id = str(UUID(int=number))
    return {"mode": "url", "message": "Sign in", "elicitationId": id, "url": url.format(id=id)}


@pytest.mark.requirement("ELI-18")
def test_a_server_that_sends_to_urls_for_ever_is_stopped() -> None:
    errors = [url_needed(page(number)) for number in range(4)]
    played = Played(*errors, revision="2025-11-25", max_rounds=3)
    error = played.fail()
    assert isinstance(error, TooManyRounds)
    assert error.rounds == 3
    assert error.__cause__ is errors[3]
    assert len(played.asked) == 3
    assert len(played.sent) == 4


AGAIN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the same": (URL, URL),
    "the same id": (page(1), page(2, elicitationId="1")),
    "the same page": (page(1), page(1, elicitationId="2", message="once more")),
    "an id in the query": (
        minted(1, "https://example.com/authorize?elicit={id}&scope=all"),
        minted(2, "https://example.com/authorize?elicit={id}&scope=all"),
    ),
    "an id in the path": (
        minted(1, "https://example.com/approve/{id}"),
        minted(2, "https://example.com/approve/{id}"),
    ),
    "a state": (
        page(1, url="https://example.com/authorize?client=a&state=0123456789abcdef-_ghij"),
        page(2, url="https://example.com/authorize?client=a&state=fedcba9876543210-_jihg"),
    ),
}


@pytest.mark.parametrize("case", AGAIN)
@pytest.mark.requirement("ELI-18", "M-20")
def test_a_server_that_asks_for_the_same_link_again_has_its_error_raised(case: str) -> None:
    first, again = AGAIN[case]
    error = url_needed(again)
    played = Played(url_needed(first), error, revision="2025-11-25")
    assert played.fail() is error
    assert len(played.asked) == 1
    assert played.sent == [PARAMS, PARAMS]


ELSEWHERE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another path": (page(1), page(2)),
    "another host": (
        page(1, url="https://tenant-0000-0000-0001.example.com/in"),
        page(2, url="https://tenant-0000-0000-0002.example.com/in"),
    ),
    "another query": (
        page(1, url="https://a.example/?to=b"),
        page(2, url="https://a.example/?to=c"),
    ),
    "other words": (
        minted(1, "https://example.com/pay/{id}"),
        {**minted(2, "https://example.com/pay/{id}"), "message": "Pay again"},
    ),
    "a long name": (
        page(1, url="https://example.com/connect-the-calendar"),
        page(2, url="https://example.com/connect-the-mailboxes"),
    ),
}


@pytest.mark.parametrize("case", ELSEWHERE)
@pytest.mark.requirement("ELI-18")
def test_a_server_may_send_somewhere_else_after_that(case: str) -> None:
    first, second = ELSEWHERE[case]
    played = Played(url_needed(first), url_needed(second), FINAL, revision="2025-11-25")
    assert played.run() is FINAL
    assert [[one.params for one in ask.questions.values()] for ask in played.asked] == [
        [first],
        [second],
    ]
    assert len(played.sent) == 3


@pytest.mark.requirement("ELI-18", "M-20")
def test_of_several_links_only_the_new_ones_are_asked_for() -> None:
    one, two, three = page(1), page(2), page(3)
    errors = [url_needed(one, two, one), url_needed(two, three), url_needed(three, one)]
    played = Played(*errors, revision="2025-11-25")
    assert played.fail() is errors[2]
    assert [[link.params for link in ask.questions.values()] for ask in played.asked] == [
        [one, two],
        [three],
    ]


@pytest.mark.requirement("ELI-18")
def test_two_ids_of_one_error_may_lead_to_one_page() -> None:
    """Both are to be waited for; whoever asks the person asks for the page once."""
    links = [URL, {**URL, "elicitationId": "2"}]
    played = Played(url_needed(*links), FINAL, revision="2025-11-25")
    played.run()
    assert [link.params for link in played.asked[0].questions.values()] == links


# -- links in a result -----------------------------------------------------------------------

LINK = {key: value for key, value in URL.items() if key != "elicitationId"}


def link(**changed: Any) -> dict[str, Any]:
    """A question of a result that sends somebody somewhere."""
    return {"method": "elicitation/create", "params": {**LINK, **changed}}


def agreed(ask: AnswerInput) -> dict[str, Any]:
    return {key: {"action": "accept"} for key in ask.questions}


@pytest.mark.requirement("MRTR-01", "MRTR-08", "ELI-17")
def test_who_agreed_to_a_link_is_not_asked_again_while_the_server_waits_for_them() -> None:
    waits = [asks(str(number), **{f"k{number}": link()}) for number in range(3)]
    played = Played(*waits, FINAL, answer=agreed)
    assert played.run() is FINAL
    assert len(played.asked) == 1
    assert played.pauses == [0.25, 0.5]
    assert [(sent or {}).get("inputResponses") for sent in played.sent] == [
        None,
        *({f"k{number}": {"action": "accept"}} for number in range(3)),
    ]


def test_the_pauses_for_a_person_who_is_at_a_link_are_a_minute_in_all() -> None:
    waits = [asks("s", k=link()) for _ in range(11)]
    played = Played(*waits, answer=agreed)
    error = played.fail()
    assert isinstance(error, TooManyRounds)
    assert len(played.asked) == 1
    assert played.pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]


@pytest.mark.requirement("ELI-10")
@pytest.mark.parametrize("changed", [{"url": "https://example.com/2"}, {"message": "more"}])
def test_consent_to_a_link_is_not_passed_on_to_another_one(changed: dict[str, Any]) -> None:
    other = link(**changed)
    played = Played(asks("1", k=link()), asks("2", k=other, l=link()), FINAL, answer=agreed)
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
    played = Played(asks("1", k=link()), asks("2", k=link()), answer=lambda ask: said)
    error = played.fail()
    assert isinstance(error, TooManyRounds)
    assert "nobody agreed" in error.message
    assert vars(error.__cause__)["questions"] == {"k": link()}
    assert len(played.asked) == 1
    assert len(played.sent) == 2


@pytest.mark.requirement("MRTR-04")
def test_too_many_rounds_say_what_was_asked_last_but_not_the_state() -> None:
    played = Played(asks("one", k=FORM), asks("secret", q=FORM, r=ROOTS), max_rounds=1)
    cause = played.fail().__cause__
    assert isinstance(cause, McpError)
    assert cause.method == "tools/call"
    assert vars(cause)["questions"] == {"q": FORM, "r": {**ROOTS, "params": {}}}
    assert "secret" not in repr(vars(cause))


def test_a_form_may_be_asked_again_with_the_same_words() -> None:
    played = Played(asks("1", k=FORM), asks("1", k=FORM), FINAL)
    assert played.run() is FINAL
    assert len(played.asked) == 2
    assert played.pauses == []


# -- by hand ---------------------------------------------------------------------------------


def once(outcome: Any, *, revision: str = NEWEST, offer: OfferedCapabilities = EVERYTHING) -> Any:
    """Send a request by hand and return what comes of it."""
    steps = single_exchange("tools/call", PARAMS, offer)
    assert next(steps) == Send("tools/call", PARAMS, offer)
    with pytest.raises(StopIteration) as stop:
        steps.send(Reply(outcome, dialect_for(revision, None)))
    return stop.value.value


@pytest.mark.parametrize("revision", REVISIONS)
def test_by_hand_a_final_result_is_returned_as_it_came(revision: str) -> None:
    assert once(FINAL, revision=revision) is FINAL


@pytest.mark.parametrize("offer", [NO_OFFER, OfferedCapabilities(form=True), EVERYTHING])
def test_by_hand_a_question_is_returned_and_nobody_is_asked(offer: OfferedCapabilities) -> None:
    round = once(asks("s", k=FORM), offer=offer)
    assert isinstance(round, InputRound)
    assert round.questions == {"k": InputQuestion("elicitation/create", {"message": "who?"})}
    assert round.state == "s"


@pytest.mark.requirement("MRTR-07")
def test_by_hand_too_no_other_request_has_rounds() -> None:
    steps = single_exchange("tools/list", None, EVERYTHING)
    next(steps)
    with pytest.raises(ProtocolError, match="may not ask for input here"):
        steps.send(Reply(asks("s", k=FORM), dialect_for(NEWEST, None)))


def test_by_hand_urls_of_an_error_stay_in_the_error() -> None:
    error = url_needed()
    steps = single_exchange("tools/call", PARAMS, EVERYTHING)
    next(steps)
    with pytest.raises(UrlElicitationRequired) as caught:
        steps.throw(error)
    assert caught.value is error
