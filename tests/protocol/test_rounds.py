"""A result that is a question: how it is read, and the request that goes on from there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp._protocol.exchange import AnsweredLinks, repeat_delay
from syncmcp._protocol.revisions import (
    KNOWN_QUESTIONS,
    KNOWN_REQUESTS,
    STATEFUL,
    STATELESS,
    dialect_for,
)
from syncmcp._protocol.steps import (
    INPUT_METHODS,
    InputQuestion,
    InputRound,
    read_round,
    url_questions,
)
from syncmcp.errors import ProtocolError

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
    """Read an `input_required` result with these parts, as a client of the newest revision does."""
    result = {"resultType": "input_required", **parts}
    outcome = dialect_for(STATELESS[0], None).read_result(method, result)
    assert isinstance(outcome, InputRound)
    return outcome


def refused(method: str = "tools/call", **parts: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        read(method, **parts)
    assert caught.value.method == method
    return caught.value


# -- reading ---------------------------------------------------------------------------------


def test_questions_are_read_under_their_keys_with_what_they_ask() -> None:
    round = read(inputRequests={"a b": ASKED, "": ROOTS}, requestState="s")
    assert round.questions == {
        "a b": InputQuestion("elicitation/create", {"message": "who?"}),
        "": InputQuestion("roots/list", {}),
    }
    assert round.state == "s"


@pytest.mark.parametrize("params", [{}, {"params": None}, {"params": {}}])
def test_a_question_may_have_no_params(params: dict[str, Any]) -> None:
    assert read(inputRequests={"k": {"method": "roots/list", **params}}).questions == {
        "k": InputQuestion("roots/list", {})
    }


@pytest.mark.parametrize("parts", [{}, {"requestState": None}])
def test_questions_may_come_without_a_state(parts: dict[str, Any]) -> None:
    assert read(inputRequests={"k": ROOTS}, **parts).state is None


@pytest.mark.parametrize("parts", [{}, {"inputRequests": None}, {"inputRequests": {}}])
def test_a_state_may_come_without_questions(parts: dict[str, Any]) -> None:
    round = read(requestState="s", **parts)
    assert round.questions == {}
    assert round.state == "s"


@pytest.mark.requirement("MRTR-02")
def test_an_empty_state_is_a_state() -> None:
    assert read(requestState="").state == ""
    assert read(inputRequests={"k": ROOTS}, requestState="").state == ""


@pytest.mark.requirement("RPC-16")
@pytest.mark.parametrize(
    "parts", [{}, {"inputRequests": None}, {"requestState": None, "inputRequests": None}]
)
def test_neither_questions_nor_a_state_is_nothing_to_go_on_from(parts: dict[str, Any]) -> None:
    assert "asks for input without a question" in str(refused(**parts))


@pytest.mark.parametrize("state", [0, 5, True, False, 1.5, [], ["s"], {}, {"s": 1}])
def test_a_state_that_is_no_string_fails_the_call_without_being_shown(state: Any) -> None:
    error = refused(requestState=state, inputRequests={"k": ROOTS})
    assert error.message == "the state of an input request is no string"


@pytest.mark.parametrize("requests", [0, False, "", "text", [], [ASKED], 1.5])
def test_questions_that_are_no_object_fail_the_call(requests: Any) -> None:
    assert "are no object" in str(refused(inputRequests=requests, requestState="s"))


@pytest.mark.parametrize(
    "request_",
    [
        None,
        5,
        "roots/list",
        [],
        {},
        {"params": {}},
        {"method": None},
        {"method": 5},
        {"method": ["roots/list"]},
        {"method": "roots/list", "params": []},
        {"method": "roots/list", "params": "text"},
        {"method": "roots/list", "params": False},
        {"method": "roots/list", "params": 0},
    ],
    ids=repr,
)
def test_one_question_that_makes_no_sense_fails_the_call(request_: Any) -> None:
    error = refused(inputRequests={"good": ASKED, "bad": request_}, requestState="secret")
    assert error.message == "an input request contains an invalid question"


def test_sixty_four_questions_are_read_and_one_more_is_too_many() -> None:
    requests = {str(number): ASKED for number in range(64)}
    assert list(read(inputRequests=requests).questions) == list(requests)
    error = refused(inputRequests={**requests, "one more": ASKED})
    assert "asks 65 questions at once" in str(error)


@pytest.mark.requirement("MRTR-07")
def test_three_requests_may_be_answered_with_a_question() -> None:
    for method in ("tools/call", "prompts/get", "resources/read"):
        assert read(method, requestState="s").state == "s"


@pytest.mark.requirement("MRTR-07")
@pytest.mark.parametrize(
    "method",
    [
        *sorted(
            (KNOWN_REQUESTS | KNOWN_QUESTIONS) - {"tools/call", "prompts/get", "resources/read"}
        ),
        "acme/do",
        "",
        "Tools/Call",
    ],
)
def test_a_question_in_the_result_of_any_other_request_fails_it(method: str) -> None:
    for parts in ({"inputRequests": {"k": ASKED}}, {"requestState": "s"}, {}):
        assert refused(method, **parts).message == "the server may not ask for input here"


@pytest.mark.requirement("MRTR-07")
@pytest.mark.parametrize("revision", STATEFUL)
@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_a_stateful_result_is_never_a_question(revision: str, method: str) -> None:
    result = {"resultType": "input_required", "requestState": "s", "inputRequests": {"k": ASKED}}
    assert dialect_for(revision, None).read_result(method, result) is result


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


# -- going on --------------------------------------------------------------------------------


@pytest.mark.requirement("MRTR-02", "MRTR-04")
@pytest.mark.parametrize(
    "state",
    [
        "",
        " padded\t\r\n",
        '{"b": 1,\n "a" : 1.0}',
        "e30=",
        "null",
        "\x00\x1b[2J",
        "\ufeffgrüße e\u0301 \u202e \U0001f600",
        "%7B%22a%22%3A1%7D",
        "x" * 100_000,
    ],
    ids=lambda state: repr(state)[:20],
)
def test_a_state_goes_back_exactly_as_it_came(state: str) -> None:
    assert read(requestState=state).retry({}, None)["requestState"] == state
    assert read(requestState=state, inputRequests={"k": ROOTS}).retry({}, {"k": {}}) == {
        "inputResponses": {"k": {}},
        "requestState": state,
    }


@pytest.mark.requirement("MRTR-02", "MRTR-04")
@given(st.text())
def test_any_text_is_a_state_that_goes_back_as_it_came(state: str) -> None:
    assert read(requestState=state).retry({"name": "x"}, None) == {
        "name": "x",
        "requestState": state,
    }


@pytest.mark.requirement("MRTR-03")
def test_no_state_goes_back_where_none_came() -> None:
    retried = read(inputRequests={"k": ROOTS}).retry({"name": "x"}, {"k": {"roots": []}})
    assert retried == {"name": "x", "inputResponses": {"k": {"roots": []}}}


@pytest.mark.requirement("MRTR-08")
def test_answers_go_back_under_the_keys_of_their_questions() -> None:
    round = read(inputRequests={"z": ASKED, "a": ROOTS, "": ROOTS})
    answers = {"": {"roots": []}, "z": {"action": "decline"}, "a": {"roots": []}}
    assert round.retry(None, answers) == {"inputResponses": answers}


def test_nothing_goes_back_for_questions_that_were_not_asked() -> None:
    assert read(requestState="s").retry(None, None) == {"requestState": "s"}


def test_going_on_leaves_the_original_params_and_the_answers_as_they_were() -> None:
    params = {"name": "x", "arguments": {"a": 1}}
    answers = {"k": {"action": "cancel"}}
    retried = read(inputRequests={"k": ASKED}, requestState="s").retry(params, answers)
    retried["inputResponses"]["other"] = {}
    assert params == {"name": "x", "arguments": {"a": 1}}
    assert answers == {"k": {"action": "cancel"}}
    assert retried["name"] == "x"
    assert retried["arguments"] is params["arguments"]


# -- URLs in an error ------------------------------------------------------------------------

URL = {"mode": "url", "url": "https://example.com/", "elicitationId": "1", "message": "go"}


@pytest.mark.requirement("ELI-18")
def test_the_urls_of_an_error_are_read_as_questions_in_their_order() -> None:
    second = {**URL, "elicitationId": "2"}
    assert url_questions({"elicitations": [URL, second]}) == {
        "0": InputQuestion("elicitation/create", URL),
        "1": InputQuestion("elicitation/create", second),
    }


@pytest.mark.requirement("ELI-18")
@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "text",
        [],
        [URL],
        {},
        {"elicitations": None},
        {"elicitations": URL},
        {"elicitations": "url"},
        {"elicitations": []},
        {"elicitations": [None]},
        {"elicitations": ["https://example.com/"]},
        {"elicitations": [[URL]]},
        {"elicitations": [{}]},
        {"elicitations": [{**URL, "mode": "form"}]},
        {"elicitations": [{**URL, "mode": None}]},
        {"elicitations": [{**URL, "mode": ["url"]}]},
        {"elicitations": [{key: URL[key] for key in URL if key != "mode"}]},
        pytest.param({"elicitations": [URL, {**URL, "mode": "form"}]}, id="a form among URLs"),
        pytest.param({"elicitations": [URL] * 65}, id="65 URLs"),
    ],
    ids=lambda data: repr(data)[:60],
)
def test_an_error_whose_data_are_not_urls_alone_asks_for_nothing(data: Any) -> None:
    assert url_questions(data) == {}


def test_sixty_four_urls_are_not_too_many() -> None:
    assert list(url_questions({"elicitations": [URL] * 64})) == [str(n) for n in range(64)]


# -- pauses ----------------------------------------------------------------------------------


def test_pauses_double_up_to_a_quarter_of_a_second() -> None:
    pauses = [repeat_delay(number) for number in (1, 2, 3, 4, 5, 16, 17, 100_000)]
    assert pauses == [0.05, 0.1, 0.2, 0.25, 0.25, 0.25, 0.25, 0.25]
    assert all(type(pause) is float for pause in pauses)


def test_the_methods_with_rounds_are_requests_of_the_stateless_revision() -> None:
    assert all(
        dialect_for(STATELESS[0], None).required_capability(method) for method in INPUT_METHODS
    )


@pytest.mark.parametrize(
    "entry",
    [
        {"mode": "url", "elicitationId": "a"},
        {"mode": "url", "elicitationId": "a", "url": 7, "message": "go"},
        {"mode": "url", "url": "https://example.com/x"},
        {"mode": "url", "url": "https://example.com/x", "message": None},
    ],
)
def test_a_link_that_lacks_words_or_an_address_is_known_by_what_it_has(
    entry: dict[str, Any],
) -> None:
    links, questions = AnsweredLinks(), url_questions({"elicitations": [entry]})
    assert links.unseen(questions) == questions
    assert links.unseen(questions) == {}
