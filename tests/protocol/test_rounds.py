"""Results that ask questions: how they are read, and the request that continues the call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from syncmcp._protocol.exchange import AnsweredLinks, repeat_delay
from syncmcp._protocol.revisions import KNOWN_QUESTIONS, KNOWN_REQUESTS, STATELESS, dialect_for
from syncmcp._protocol.steps import (
    INPUT_METHODS,
    InputQuestion,
    InputRound,
    read_round,
    url_questions,
)
from syncmcp.errors import ProtocolError

MAY_ASK = {"tools/call", "prompts/get", "resources/read"}
ROOTS = {"method": "roots/list"}
ASKED = {"method": "elicitation/create", "params": {"message": "who?"}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def read(method: str = "tools/call", **parts: Any) -> InputRound:
    """Read an `input_required` result with these members, in the newest revision."""
    result = {"resultType": "input_required", **parts}
    outcome = dialect_for(STATELESS[0], None).read_result(method, result)
    assert isinstance(outcome, InputRound)
    return outcome


def refused(method: str = "tools/call", **parts: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        read(method, **parts)
    assert caught.value.method == method
    return caught.value


@pytest.mark.requirement("MRTR-02", "MRTR-07")
@pytest.mark.parametrize("method", sorted(MAY_ASK))
def test_questions_are_read_under_their_keys_with_what_they_ask(method: str) -> None:
    assert MAY_ASK == INPUT_METHODS
    round = read(method, inputRequests={"a b": ASKED, "": ROOTS}, requestState="s")
    assert round.questions == {
        "a b": InputQuestion("elicitation/create", {"message": "who?"}),
        "": InputQuestion("roots/list", {}),
    }
    assert round.state == "s"
    params: Any
    for params in ({}, {"params": None}, {"params": {}}):
        bare = read(method, inputRequests={"k": {"method": "roots/list", **params}})
        assert bare.questions == {"k": InputQuestion("roots/list", {})}
    # State or questions may be missing; an empty state counts as a state.
    for absent in ({}, {"requestState": None}):
        assert read(method, inputRequests={"k": ROOTS}, **absent).state is None
    assert read(method, inputRequests={"k": ROOTS}, requestState="").state == ""
    no_questions: list[dict[str, Any]] = [{}, {"inputRequests": None}, {"inputRequests": {}}]
    for none in no_questions:
        round = read(method, requestState="", **none)
        assert (round.questions, round.state) == ({}, "")


NO_QUESTIONS: list[Any] = [
    *(None, 5, "roots/list", [], {}, {"params": {}}, {"method": None}, {"method": 5}),
    *({"method": ["roots/list"]}, {"method": "roots/list", "params": []}),
    *({"method": "roots/list", "params": "text"}, {"method": "roots/list", "params": False}),
    {"method": "roots/list", "params": 0},
]


@pytest.mark.requirement("RPC-16")
def test_what_is_no_round_fails_the_call_without_showing_its_state() -> None:
    nothing: Any
    for nothing in ({}, {"inputRequests": None}, {"requestState": None, "inputRequests": None}):
        assert "asks for input without a question" in refused(**nothing).message
    states: tuple[Any, ...] = (0, 5, True, False, 1.5, [], ["s"], {}, {"s": 1})
    for state in states:
        message = refused(requestState=state, inputRequests={"k": ROOTS}).message
        assert "the state of an input request is not a string" in message
    invalid = ({"good": ASKED, "bad": question} for question in NO_QUESTIONS)
    for problem, several in (
        ("are not an object", (0, False, "", "text", [], [ASKED], 1.5)),
        ("an input request contains an invalid question", invalid),
    ):
        for requests in several:
            message = refused(inputRequests=requests, requestState="secret").message
            assert problem in message
            assert "secret" not in message


def test_sixty_four_questions_are_read_and_one_more_is_too_many() -> None:
    requests = {str(number): ASKED for number in range(64)}
    assert list(read(inputRequests=requests).questions) == list(requests)
    error = refused(inputRequests={**requests, "one more": ASKED})
    assert "asks 65 questions at once" in str(error)


OTHERS = [*sorted((KNOWN_REQUESTS | KNOWN_QUESTIONS) - MAY_ASK), "acme/do", "", "Tools/Call"]


@pytest.mark.requirement("MRTR-07")
@pytest.mark.parametrize("method", OTHERS)
def test_a_question_in_the_result_of_any_other_request_fails_it(method: str) -> None:
    for parts in ({"inputRequests": {"k": ASKED}}, {"requestState": "s"}, {}):
        assert refused(method, **parts).message == "the server may not ask for input here"


@given(st.dictionaries(st.sampled_from(["inputRequests", "requestState", "_meta"]), JSON))
def test_whatever_a_server_sends_is_read_or_refused(parts: dict[str, Any]) -> None:
    try:
        round = read_round("tools/call", parts)
    except ProtocolError:
        return
    assert round.state is None or type(round.state) is str
    assert all(type(params) is dict for _, params in round.questions.values())
    assert round.questions.keys() == (parts.get("inputRequests") or {}).keys()


def test_a_round_shows_the_keys_of_its_questions_and_nothing_secret() -> None:
    asked = read(inputRequests={"name": ASKED, "where": ROOTS}, requestState="secret")
    assert repr(asked) == "<InputRound name, where>"
    assert repr(read(requestState="secret")) == "<InputRound without questions>"


@pytest.mark.requirement("MRTR-02", "MRTR-03", "MRTR-04", "MRTR-08")
@given(st.none() | st.text(), st.none() | st.dictionaries(st.text(max_size=3), st.just(ASKED)))
@example("", {"k": ROOTS})
@example(" padded\t\r\n", None)
@example('{"b": 1,\n "a" : 1.0}', {"z": ASKED, "": ROOTS})
@example("\ufeffgrüße e\u0301 \u202e \U0001f600", None)
@example("\x00\x1b[2J%7B%22a%22%3A1%7D", None)
@example("x" * 100_000, None)
def test_state_and_answers_go_back_exactly_as_they_came(
    state: str | None, requests: dict[str, Any] | None
) -> None:
    assume(state is not None or requests)
    answers = {key: {"answer to": key} for key in requests} if requests else None
    expected: dict[str, Any] = {"inputResponses": answers} if answers else {}
    if state is not None:
        expected["requestState"] = state
    round = read(inputRequests=requests, requestState=state)
    assert round.retry({"name": "x"}, answers) == {"name": "x", **expected}
    assert round.retry(None, answers) == expected


def test_going_on_leaves_the_original_params_and_the_answers_as_they_were() -> None:
    params = {"name": "x", "arguments": {"a": 1}}
    answers = {"k": {"action": "cancel"}}
    retried = read(inputRequests={"k": ASKED}, requestState="s").retry(params, answers)
    retried["inputResponses"]["other"] = {}
    assert params == {"name": "x", "arguments": {"a": 1}}
    assert answers == {"k": {"action": "cancel"}}
    assert retried["name"] == "x"
    assert retried["arguments"] is params["arguments"]


URL = {"mode": "url", "url": "https://example.com/", "elicitationId": "1", "message": "go"}


@pytest.mark.requirement("ELI-18")
def test_the_urls_of_an_error_are_read_as_questions_in_their_order() -> None:
    links = [{**URL, "elicitationId": str(number)} for number in range(64)]
    questions = [
        (str(n), InputQuestion("elicitation/create", link)) for n, link in enumerate(links)
    ]
    assert list(url_questions({"elicitations": links}).items()) == questions


NO_LINKS: list[Any] = [
    *(None, URL, "url", [], [None], ["https://example.com/"], [[URL]], [{}]),
    *([{**URL, "mode": "form"}], [{**URL, "mode": None}], [{**URL, "mode": ["url"]}]),
    *([{key: URL[key] for key in URL if key != "mode"}], [URL, {**URL, "mode": "form"}]),
    [URL] * 65,
]


@pytest.mark.requirement("ELI-18")
def test_an_error_whose_data_are_not_urls_alone_asks_for_nothing() -> None:
    for data in (None, 5, "text", [], [URL], {}, *({"elicitations": links} for links in NO_LINKS)):
        assert url_questions(data) == {}


def test_pauses_double_up_to_a_quarter_of_a_second() -> None:
    pauses = [repeat_delay(number) for number in (1, 2, 3, 4, 5, 16, 17, 100_000)]
    assert pauses == [0.05, 0.1, 0.2, 0.25, 0.25, 0.25, 0.25, 0.25]
    assert all(type(pause) is float for pause in pauses)


def test_a_link_that_lacks_words_or_an_address_is_known_by_what_it_has() -> None:
    nowhere = {"mode": "url", "elicitationId": "a"}
    wordless = {"mode": "url", "url": "https://example.com/x"}
    odd = {**nowhere, "url": 7, "message": "go"}
    for entry in (nowhere, odd, wordless, {**wordless, "message": None}):
        links, questions = AnsweredLinks(), url_questions({"elicitations": [entry]})
        assert links.unseen(questions) == questions
        assert links.unseen(questions) == {}
