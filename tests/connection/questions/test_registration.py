"""What may be given as a handler, and where a mistake is noticed."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from syncmcp import (
    CancelToken,
    Client,
    Elicitation,
    HandlerContext,
    Handlers,
    Roots,
    Sampling,
    UsageError,
)
from tests.connection.questions.asking import (
    BOTH,
    ELICITATION,
    FORM,
    PROMPT,
    SAMPLING,
    URL,
    asked,
    asker,
    asking_server,
    model,
    person,
    said,
    through,
    visitor,
)
from tests.support.people import nobody, reply
from tests.support.scripts import NEW, OLD
from tests.support.stage import PATIENCE, interrupted


async def later(*_: Any) -> Any:
    """A coroutine function."""


class Later:
    """Its call is a coroutine function."""

    __call__ = later


class LaterUI:
    """A user interface of coroutine functions."""

    asks_person = True
    form = url = later


COROUTINES: list[Any] = [later, Later(), LaterUI().form, partial(later, 1)]


@pytest.mark.parametrize("function", COROUTINES, ids=["function", "object", "method", "partial"])
@pytest.mark.requirement("M-08")
def test_a_coroutine_function_is_refused_where_it_is_given(function: Any) -> None:
    client = Client(asking_server())
    own: dict[str, Any] = dict.fromkeys(("sampling", "elicitation", "roots"), function)
    callbacks = ("on_log", "on_progress", "on_notification", "on_handler_error")
    attempts: list[Callable[[], object]] = [
        *(partial(make, **{kind: given})
          for make in (partial(Client, asking_server()), Handlers)
          for kind, given in [*own.items(), ("elicitation", LaterUI())]),
        *(partial(Client, asking_server(), **{option: function}) for option in callbacks),
        *(partial(given, function) for given in (
            Sampling, client.set_sampling, client.set_elicitation, CancelToken().on_cancel,
            Roots().on_change, HandlerContext(None, None, ELICITATION).on_completed,
        )),
        *(partial(given, "acme/x", function) for given in (
            client.on_request, client.on_notification
        )),
        lambda: Elicitation(form=function),
        lambda: Elicitation(url=function),
        lambda: Elicitation(person, function),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(UsageError, match="coroutine"):
            attempt()
    with client, pytest.raises(UsageError, match="coroutine"):
        client.call_tool("echo", {"text": "x"}, on_progress=function)


def test_what_makes_no_sense_is_refused() -> None:
    client = Client(asking_server())
    value: Any
    for value in (7, "x", object()):
        for make in (partial(Client, asking_server()), Handlers):
            for kind in ("sampling", "elicitation"):
                with pytest.raises(UsageError):
                    make(**{kind: value})
        with pytest.raises(UsageError, match="must be callable"):
            client.on_request("acme/x", value)
    with client:
        for value in (model, {"sampling": model}, 7):
            with pytest.raises(UsageError, match="handlers"):
                client.call_tool("echo", {"text": "x"}, handlers=value)


@BOTH
@pytest.mark.requirement("M-19")
def test_handlers_of_a_call_come_before_those_of_the_client_and_leave_the_rest(
    revision: Any,
) -> None:
    own = Handlers(sampling=lambda *_: reply("own"))
    with asker(revision, sampling=model, elicitation=person) as client:
        answer = asked(client, SAMPLING, PROMPT, handlers=own)["result"]
        assert answer["content"]["text"] == "own"
        form = asked(client, ELICITATION, FORM, handlers=own)["result"]
        assert form["content"]["name"] == "Ann"
        assert asked(client, SAMPLING, PROMPT)["result"]["content"]["text"] == "hello"
        if revision == NEW:  # forms and links are told apart
            links = Handlers(elicitation=Elicitation(url=visitor))
            assert asked(client, ELICITATION, FORM, handlers=links)["result"] == form
            link = asked(client, ELICITATION, URL, handlers=links)["result"]
            assert link == {"action": "accept"}


def test_a_pickled_client_keeps_its_handlers(tmp_path: Path) -> None:
    both = Elicitation(person, nobody)
    handlers: dict[str, Any] = {"sampling": model, "elicitation": both, "on_handler_error": nobody}
    client = Client("http://127.0.0.1:9/", roots=[tmp_path], **handlers)
    copy = pickle.loads(pickle.dumps(client))
    assert [status.path for status in copy.roots.list()] == [tmp_path]
    kept = copy._handlers.question_handlers
    assert (kept.sampling, kept.elicitation) == (model, both)
    assert copy._handlers.on_handler_error is nobody


@pytest.mark.parametrize("way", ["blocking", "future"])
@pytest.mark.requirement("M-19")
def test_calls_that_cannot_be_sent_leave_no_place_taken(way: str) -> None:
    options: Any = {"arguments": {"text": "x"}, "timeout": PATIENCE}
    with asker(OLD, max_in_flight=1) as client:

        def echo(**more: Any) -> Any:
            return through(client, way, "echo", **options, **more).text

        for _ in range(3):
            with pytest.raises(UsageError, match="did not declare 'form'"):
                echo(handlers=Handlers(elicitation=person))
            with pytest.raises(UsageError, match="JSON"):
                echo(meta={"acme.example/k": object()})
        assert echo() == "x"


def _beside(first: Callable[[], object], second: Callable[[], object], number: int) -> bool:
    """Do both, the second on a thread that comes at the `number`th line of the first.

    It is done before the first goes on, unless that one keeps it waiting. Returns whether there
    are so many lines.
    """
    thread = threading.Thread(target=second)

    def meet() -> None:
        thread.start()
        thread.join(0.01)

    there_are = interrupted(first, number, meet)
    if there_are:
        thread.join(PATIENCE)
    else:
        second()
    return there_are


def test_two_threads_that_set_handlers_or_ask_for_the_roots_first_both_succeed() -> None:
    def handlers(number: int) -> bool:
        client = Client(asking_server(), mode=OLD)
        more = _beside(
            lambda: client.set_sampling(model), lambda: client.set_elicitation(person), number
        )
        with client:
            assert said(client, "can", {"features": ["sampling", "elicitation"]}) == [True, True]
        return more

    def roots(number: int) -> bool:
        client, seen = Client(asking_server()), list[object]()
        more = _beside(lambda: seen.append(client.roots), lambda: seen.append(client.roots), number)
        one, other = seen
        assert one is other
        return more

    for both in (handlers, roots):
        number = 1
        while both(number):
            number += 2
        assert number > 3
