"""Valid and invalid handlers, and where a mistake is detected."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, Elicitation, HandlerContext, Handlers, Mode, Roots, Sampling, UsageError
from syncmcp.approval import AllowAll, DenyAll
from syncmcp.testing import Server
from syncmcp.types import Root
from tests.connection.questions.asking import (
    BOTH,
    ELICITATION,
    FORM,
    PROMPT,
    ROOTS,
    SAMPLING,
    URL,
    asked,
    asker,
    asking_server,
    demanded,
    model,
    person,
    question,
    said,
    through,
    visitor,
)
from tests.support.people import Interface, nobody, reply
from tests.support.scripts import NEW, OLD, STATEFUL
from tests.support.stage import PATIENCE, Wire, interrupted, rotated


async def later(*_: Any) -> Any:
    """Stand for any coroutine function."""


class Later:
    """An object whose `__call__` is a coroutine function."""

    __call__ = later


class LaterUI:
    """A user interface whose methods are coroutine functions."""

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
            Sampling, client.set_sampling, client.set_elicitation, syncmcp.CancelToken().on_cancel,
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
def test_handlers_of_a_call_come_before_those_of_the_client(revision: Any) -> None:
    own = Handlers(sampling=lambda *_: reply("own"))
    with asker(revision, sampling=model, elicitation=person) as client:
        answer = asked(client, SAMPLING, PROMPT, handlers=own)["result"]
        assert answer["content"]["text"] == "own"
        form = asked(client, ELICITATION, FORM, handlers=own)["result"]
        assert form["content"]["name"] == "Ann"
        assert asked(client, SAMPLING, PROMPT)["result"]["content"]["text"] == "hello"
        if revision == NEW:  # forms and links have separate handlers
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
    """Run `first`; at its `number`th line run `second` on another thread.

    `first` continues when `second` is done, or waits for it. Return whether `first` has that many
    lines.
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


CHANGED = "notifications/roots/list_changed"


class Knowing:
    """A sampling handler whose attributes declare its abilities."""

    tools = True
    context = True
    __call__ = staticmethod(model)


# The options, and the capabilities that they declare in 2026-07-28.
DECLARED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "sampling": ({"sampling": model}, {"sampling": {}}),
    "tools": ({"sampling": Sampling(model, tools=True)}, {"sampling": {"tools": {}}}),
    "context": ({"sampling": Sampling(model, context=True)}, {"sampling": {"context": {}}}),
    "knowing": ({"sampling": Knowing()}, {"sampling": {"tools": {}, "context": {}}}),
    "form": ({"elicitation": person}, {"elicitation": {"form": {}}}),
    "form alone": ({"elicitation": Elicitation(form=person)}, {"elicitation": {"form": {}}}),
    "url alone": ({"elicitation": Elicitation(url=visitor)}, {"elicitation": {"url": {}}}),
    "both": ({"elicitation": Interface()}, {"elicitation": {"form": {}, "url": {}}}),
    "neither": ({"elicitation": Elicitation()}, {}),
    "roots": ({"roots": []}, {"roots": {}}),
    "all": (
        {"sampling": model, "elicitation": Elicitation(person, visitor), "roots": []},
        {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}},
    ),
}


@pytest.mark.parametrize("kind", DECLARED)
@pytest.mark.requirement("M-08", "SAMP-01", "ELI-01", "ELI-02")
def test_what_has_a_handler_is_declared(kind: str) -> None:
    options, declared = DECLARED[kind]
    with asker(NEW, **options) as client:
        assert said(client, "capabilities") == declared


# For offers in other revisions, see `tests/protocol/test_offer.py`.
@pytest.mark.parametrize("revision", STATEFUL)
@pytest.mark.requirement("M-08", "ROOT-01", "SAMP-01", "ELI-01")
def test_a_handshake_declares_what_its_revision_has_and_it_is_answered(revision: Mode) -> None:
    with asker(revision, **DECLARED["all"][0]) as client:
        declared: dict[str, Any] = {"sampling": {}, "roots": {"listChanged": True}}
        if revision not in STATEFUL[:2]:
            form = question(ELICITATION, revision)
            assert asked(client, ELICITATION, form)["result"]["action"] == "accept"
            declared["elicitation"] = {"form": {}, "url": {}} if revision == OLD else {}
        assert said(client, "capabilities") == declared
        assert asked(client, SAMPLING, PROMPT)["result"]["model"] == "double"
        assert asked(client, ROOTS)["result"] == {"roots": []}


@pytest.mark.requirement("M-08")
def test_in_the_stateless_era_a_handler_may_come_and_go_at_any_time_or_be_that_of_a_call() -> None:
    server = asking_server()
    with syncmcp.connect(server, mode=NEW) as client:
        assert said(client, "capabilities") == {}
        client.set_sampling(model)
        client.set_elicitation(person)
        client.roots.add("/")
        everything: dict[str, Any] = {"sampling": {}, "elicitation": {"form": {}}, "roots": {}}
        assert said(client, "capabilities") == everything
        assert asked(client, SAMPLING, PROMPT)["result"]["model"] == "double"
        assert [root["uri"] for root in asked(client, ROOTS)["result"]["roots"]] == ["file:///"]
        client.set_sampling(None)
        client.set_elicitation(None)
        assert said(client, "capabilities") == {"roots": {}}
        handlers = Handlers(sampling=model, elicitation=Elicitation(url=visitor))
        both: dict[str, Any] = {"roots": {}, "sampling": {}, "elicitation": {"url": {}}}
        assert said(client, "capabilities", handlers=handlers) == both
        future = client.call_tool.future("capabilities", handlers=Handlers(sampling=model))
        assert '"sampling"' in future.result(10).text
        assert said(client, "capabilities") == {"roots": {}}
    assert (server.stats.notifications[CHANGED], server.stats.violations) == (0, [])


@pytest.mark.parametrize("revision", [STATEFUL[0], OLD])
def test_what_the_handshake_did_not_offer_cannot_be_offered_later(revision: Mode) -> None:
    server = asking_server()
    offers: list[Callable[[], object]] = [
        lambda: client.set_sampling(model),
        lambda: client.roots.add("/"),
        lambda: client.call_tool("capabilities", handlers=Handlers(sampling=model)),
    ]
    with syncmcp.connect(server, mode=revision) as client:
        if revision == OLD:
            offers.append(lambda: client.set_elicitation(person))
        else:  # elicitation is not in this revision
            client.set_elicitation(person)
        for offer in offers:
            with pytest.raises(UsageError, match="did not declare"):
                offer()
        assert server.stats.requests["tools/call"] == 0
        assert said(client, "capabilities") == {}


@pytest.mark.requirement("M-08")
def test_a_handler_set_between_two_openings_is_in_the_next_handshake_and_may_be_replaced() -> None:
    client = syncmcp.Client(asking_server(), mode=OLD)
    with client:
        assert said(client, "capabilities") == {}
    client.set_sampling(nobody)
    client.set_elicitation(person)
    client.set_elicitation(None)
    with client:
        assert said(client, "capabilities") == {"sampling": {}}
        client.set_sampling(Sampling(model))
        assert asked(client, SAMPLING, PROMPT)["result"]["model"] == "double"
        with pytest.raises(UsageError, match="sampling tools"):
            client.set_sampling(Sampling(model, tools=True))
        client.set_sampling(None)
        assert demanded(client, SAMPLING, PROMPT)["error"][0] == -32601


def uris(client: syncmcp.Client, **options: Any) -> list[str]:
    """Return the URIs of the roots that the server gets."""
    return [root["uri"] for root in asked(client, ROOTS, **options)["result"]["roots"]]


@BOTH
@pytest.mark.requirement("ROOT-01", "ROOT-02")
def test_roots_are_listed_as_uris_with_what_is_theirs(revision: Mode, tmp_path: Path) -> None:
    odd, file = tmp_path / "a b%#\u00e9", tmp_path / "notes.txt"
    odd.mkdir()
    file.write_text("x")
    notes = {"uri": file.as_uri(), "name": "Notes", "_meta": {"k": 1}}
    server, given = asking_server(), (odd, Root.from_wire(notes), str(tmp_path))
    with syncmcp.connect(server, mode=revision, roots=[*given]) as client:
        listed = [{"uri": odd.as_uri()}, notes, {"uri": tmp_path.as_uri()}]
        assert asked(client, ROOTS)["result"]["roots"] == listed
    assert server.stats.violations == []


@pytest.mark.requirement("ROOT-03", "M-03")
def test_roots_shared_by_two_clients_tell_both_servers(tmp_path: Path) -> None:
    shared, servers = Roots(), [asking_server(), asking_server()]

    def told(times: int, *servers: Server) -> bool:
        return all(
            server.stats.wait_for(lambda seen: seen.notifications[CHANGED] == times, PATIENCE)
            for server in servers
        )

    with syncmcp.connect(servers[0], mode=OLD, roots=shared) as one:
        with syncmcp.connect(servers[1], mode=OLD, roots=shared) as other:
            shared.add(tmp_path)
            assert told(1, *servers)
            assert uris(one) == uris(other) == [tmp_path.as_uri()]
            shared.replace([tmp_path, "/"])
            assert told(2, *servers)
        shared.remove(tmp_path)
        assert told(3, servers[0])
    assert servers[1].stats.notifications[CHANGED] == 2


@rotated
@pytest.mark.requirement("ROOT-01")
def test_a_function_is_asked_each_time_and_sees_who_asks(wire: Wire, tmp_path: Path) -> None:
    contexts: list[syncmcp.HandlerContext] = []

    def list_them(context: syncmcp.HandlerContext) -> list[Any]:
        contexts.append(context)
        return [tmp_path, "/"][: len(contexts)]

    with wire.connect(asking_server(), roots=list_them, name="mine") as client:
        assert uris(client) == [tmp_path.as_uri()]
        assert uris(client) == [tmp_path.as_uri(), "file:///"]
    assert [context.method for context in contexts] == [ROOTS] * 2
    assert contexts[0].server.name == "mine"
    assert contexts[0].client is client


@BOTH
@pytest.mark.requirement("ROOT-05", "M-03")
def test_a_policy_may_keep_the_roots_to_itself(revision: Mode, tmp_path: Path) -> None:
    for approval, shown in ((DenyAll(), []), (AllowAll(), [tmp_path.as_uri()])):
        with asker(revision, roots=[tmp_path], approval=approval) as client:
            assert uris(client) == shown


@pytest.mark.requirement("ROOT-06")
def test_without_roots_the_method_is_unknown() -> None:
    with asker(OLD, sampling=model) as client:
        for _ in range(2):
            assert demanded(client, ROOTS)["error"][0] == -32601
            with pytest.raises(UsageError, match="did not declare 'roots'"):
                client.roots.list()


@BOTH
def test_roots_may_be_given_before_opening_and_to_a_call(revision: Mode, tmp_path: Path) -> None:
    client = syncmcp.Client(asking_server(), mode=revision)
    client.roots.add(tmp_path)
    assert client.roots is client.roots
    with client:
        assert uris(client) == [tmp_path.as_uri()]
        assert uris(client, handlers=Handlers(roots=lambda context: ["/"])) == ["file:///"]
        assert uris(client) == [tmp_path.as_uri()]
