"""Completion: its requests, and suggestions while a person types."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from types import SimpleNamespace
from typing import Any

import pytest

import syncmcp
from syncmcp import ClosedError, InvalidParams, Mode, RequestCancelled, RequestTimeout, UsageError
from syncmcp.completion import MAX_BYTES, Completer
from syncmcp.testing import RpcError, Server, ToolContext
from syncmcp.types import (
    Completion,
    Prompt,
    PromptArgument,
    PromptReference,
    ResourceTemplate,
    ResourceTemplateReference,
)
from tests.support.scripts import REVISIONS
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Wire, in_threads, rotated

CITIES = {"no": ["Bergen", "Bodø"], "jp": ["Beppu", "Kyoto"]}
LETTER = Prompt(name="letter", arguments=[PromptArgument(name="to"), PromptArgument(name="tone")])
METHOD = "completion/complete"


def atlas() -> Server:
    """Return a server that completes a prompt and a template; the cities depend on the country."""
    server = Server("atlas")

    @server.prompt()
    def letter(to: str, tone: str = "friendly") -> str:
        return f"{to}: {tone}"

    server.completion(prompt="letter", argument="tone")(
        lambda typed, _: [tone for tone in ("curt", "cute", "friendly") if tone.startswith(typed)]
    )

    @server.resource_template("acme://{country}/{city}")
    def city(country: str, city: str) -> str:
        return f"{city} in {country}"

    @server.completion(template="acme://{country}/{city}", argument="city")
    def cities(typed: str, settled: Any) -> list[str]:
        known = CITIES.get(settled.get("country"), [])
        return [name for name in known if name.startswith(typed)]

    return server


def noting() -> tuple[Server, list[dict[str, Any]]]:
    """Return a server that completes nothing, and the requests that it gets."""
    server, seen = atlas(), list[dict[str, Any]]()

    def complete(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        seen.append({key: params[key] for key in params if key != "_meta"})
        return {"completion": {"values": []}}

    server.on_request(METHOD, complete)
    return server, seen


class Held:
    """A server that stores what was typed, and answers when the test allows it."""

    def __init__(self) -> None:
        self.server = Server("held")
        self.server.prompt(name="letter")(lambda to="", tone="": "")
        self.server.completion(prompt="letter", argument="to")(lambda typed, _: [])
        self.server.on_request(METHOD, self._complete)
        self.came: list[str] = []
        self._changed = threading.Condition()
        self._free: set[str] = set()

    def _complete(self, params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        typed = params["argument"]["value"]
        with self._changed:
            self.came.append(typed)
            self._changed.notify_all()
        while typed not in self._free and not context.cancelled.wait(0.01):
            pass
        return {"completion": {"values": [typed + "!"]}}

    def let_go(self, *typed: str) -> None:
        self._free.update(typed)

    def wait_for(self, typed: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: typed in self.came, PATIENCE), self.came


def values(found: Completion | None) -> list[str] | None:
    return None if found is None else found.values


@rotated
@pytest.mark.requirement("M-13")
def test_arguments_of_prompts_and_templates_are_completed_with_context(wire: Wire) -> None:
    with wire.connect(atlas()) as client:
        (template,) = client.list_resource_templates().resource_templates
        (prompt,) = client.list_prompts().prompts
        untold = Prompt(name="letter")  # lists no arguments
        for ref in (prompt, untold, PromptReference(name="letter")):
            assert client.complete(ref, "tone", "cu").completion.values == ["curt", "cute"]
        for place in (template, ResourceTemplateReference(uri=template.uri_template)):
            found = client.complete(place, "city", "B", {"country": "no"}).completion
            assert (found.values, found.total, found.has_more) == (["Bergen", "Bodø"], 2, False)
            asked = client.complete.future(place, "city", "B", {"country": "jp"})
            assert asked.result().completion.values == ["Beppu"]


@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
@pytest.mark.requirement("M-13")
def test_a_string_is_sent_as_what_it_names(mode: Any) -> None:
    server, seen = noting()
    prompts = ["letter", "git:commit", "a letter / to"]
    uris = ["acme://home", "acme://{city}", "urn:isbn:{isbn}", "file:{+path}"]
    with syncmcp.connect(server, mode=mode) as client:
        for ref in prompts + uris:
            client.complete(ref, "x", "")
    assert [params["ref"] for params in seen] == [
        *({"type": "ref/prompt", "name": name} for name in prompts),
        *({"type": "ref/resource", "uri": uri} for uri in uris),
    ]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("CMP-02", "M-13")
def test_the_context_is_sent_where_the_revision_has_one(revision: Mode) -> None:
    server, seen = noting()
    with syncmcp.connect(server, mode=revision) as client:
        client.complete(LETTER, "tone", "", {"to": "Ann"})
        client.complete(LETTER, "tone", "")
    ref = {"type": "ref/prompt", "name": "letter"}
    bare = {"ref": ref, "argument": {"name": "tone", "value": ""}}
    has_context = revision not in ("2024-11-05", "2025-03-26")
    context = {"context": {"arguments": {"to": "Ann"}}} if has_context else {}
    assert seen == [{**bare, **context}, bare]


TEMPLATE = ResourceTemplate(name="city", uri_template="acme://{country}/{city}")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((LETTER, "tune", ""), "prompt 'letter' has no argument 'tune'; it has 'to', 'tone'"),
        ((LETTER, "tone", "", {"too": "Ann"}), "no argument 'too'"),
        ((TEMPLATE, "town", ""), "has no argument 'town'; it has 'country', 'city'"),
        ((TEMPLATE, "city", "", {"land": "no"}), "no argument 'land'"),
        ((LETTER, None, ""), "argument_name"),
        (("letter", "", ""), "argument_name"),
        ((LETTER, "tone", 1), "value must be a string"),
        *(((LETTER, "tone", "", said), "context") for said in ({"to": 1}, {1: "Ann"}, "Ann")),
        *(((ref, "tone", ""), "ref must be the name") for ref in (None, {"name": "letter"})),
        (("", "tone", ""), "ref must be a non-empty string"),
        *(
            ((ref, "tone", ""), f"'{ref}' may be the name of a prompt or a URI template")
            for ref in ("{country}", "to: {who}", "a acme://city")
        ),
    ],
)
@pytest.mark.requirement("CMP-01")
def test_what_has_no_completion_is_not_sent(arguments: tuple[Any, ...], problem: str) -> None:
    server = atlas()
    with syncmcp.connect(server) as client:
        for call in (client.complete, lambda *given: client.complete.future(*given).result()):
            with pytest.raises(UsageError, match=problem):
                call(*arguments)
        assert server.stats.requests[METHOD] == 0


@rotated
@pytest.mark.requirement("CMP-02", "M-13")
def test_what_is_typed_is_completed_and_remembered(wire: Wire) -> None:
    server = atlas()
    with wire.connect(server) as client:
        completer = Completer(client, TEMPLATE, pause=0)
        rows = [("B", "no", ["Bergen", "Bodø"]), ("Be", "no", ["Bergen"]), ("B", "jp", ["Beppu"])]
        for typed, country, expected in [*rows, *rows[:2]]:
            assert values(completer.suggest("city", typed, {"country": country})) == expected
        assert server.stats.requests[METHOD] == 3
        assert values(Completer(client, "letter", pause=0).suggest("tone", "cur")) == ["curt"]


def test_only_so_many_answers_are_remembered_and_no_long_one() -> None:
    server = atlas()
    with syncmcp.connect(server) as client:
        completer = Completer(client, LETTER, pause=0, remembered=2)
        for typed in ("a", "b", "a", "c", "a"):
            completer.suggest("tone", typed)
        assert server.stats.requests[METHOD] == 3
        completer.suggest("tone", "b")
        assert server.stats.requests[METHOD] == 4
    sizes = {"short": 30_000, "long": MAX_BYTES, "wide": 30_000}

    def complete(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        typed = params["argument"]["value"]
        text = ("\N{GRINNING FACE}" if typed == "wide" else "x") * sizes[typed]
        return {"completion": {"values": [text]}}

    server.on_request(METHOD, complete)
    with syncmcp.connect(server) as client:
        completer = Completer(client, LETTER, pause=0)
        for typed, requests in (("short", 1), ("long", 2), ("wide", 2)):
            before = server.stats.requests[METHOD]
            for _ in range(2):
                found = values(completer.suggest("tone", typed)) or [""]
                assert len(found[0]) == sizes[typed]
            assert server.stats.requests[METHOD] - before == requests


@pytest.mark.requirement("CMP-02")
def test_nothing_is_sent_before_the_pause_and_a_newer_question_ends_it() -> None:
    held = Held()
    held.let_go("abc")
    with syncmcp.connect(held.server) as client, ThreadPoolExecutor(2) as threads:
        patient = Completer(client, LETTER, pause=100 * PATIENCE)
        asked = {threads.submit(patient.suggest, "to", typed) for typed in ("a", "ab")}
        outdated, open_ones = wait(asked, PATIENCE, FIRST_COMPLETED)
        assert [question.result() for question in outdated] == [None]
        while open_ones:  # before it waits, `dismiss` has no effect
            patient.dismiss()
            open_ones = wait(open_ones, 0.01).not_done
        assert [question.result() for question in asked] == [None, None]
        assert values(Completer(client, LETTER).suggest("to", "abc")) == ["abc!"]
    assert held.came == ["abc"]


@rotated
@pytest.mark.requirement("CMP-02")
def test_a_request_that_is_outdated_is_cancelled(wire: Wire) -> None:
    held = Held()
    held.let_go("ab")
    with wire.connect(held.server) as client:
        completer = Completer(client, LETTER, pause=0)

        def next_one() -> Completion | None:
            held.wait_for("a")
            return completer.suggest("to", "ab")

        first, second = in_threads(lambda: completer.suggest("to", "a"), next_one)
        assert (first, values(second)) == (None, ["ab!"])
        assert held.server.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)
        # The outdated answer was not cached, so the client requests it again.
        held.let_go("a", "d")
        assert values(completer.suggest("to", "a")) == ["a!"]

        # `dismiss` ends only the open request.
        def dismiss() -> None:
            held.wait_for("c")
            completer.dismiss()

        completer.dismiss()
        assert in_threads(lambda: completer.suggest("to", "c"), dismiss) == [None, None]
        assert values(completer.suggest("to", "d")) == ["d!"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_server_that_completes_nothing_is_asked_once_at_most(revision: Mode) -> None:
    server = Server("bare")
    server.prompt(name="letter")(lambda to="": "")

    def refuse(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        raise RpcError(-32601, "no such method")

    server.on_request(METHOD, refuse)
    with syncmcp.connect(server, mode=revision) as client:
        completer = Completer(client, LETTER, pause=0)
        assert values(completer.suggest("to", "a")) == []
        assert values(completer.suggest("to", "b")) == []
        # The oldest revision has no capability for completion, so the client has to try.
        assert server.stats.requests[METHOD] == (revision == "2024-11-05")


def test_no_more_values_are_offered_than_the_protocol_allows() -> None:
    server, many = atlas(), list[str]()
    server.on_request(METHOD, lambda params, context: {"completion": {"values": many}})
    with syncmcp.connect(server) as client:
        for count, more in ((100, None), (101, True)):
            many[:] = map(str, range(count))
            found = Completer(client, LETTER, pause=0).suggest("to", "")
            assert found is not None
            assert (found.values, found.has_more) == (many[:100], more)


def test_what_goes_wrong_is_told_and_the_next_question_is_asked() -> None:
    held = Held()
    held.let_go("b")
    with syncmcp.connect(held.server) as client:
        with pytest.raises(RequestTimeout):
            Completer(client, LETTER, pause=0, timeout=0.05).suggest("to", "a")
        completer = Completer(client, LETTER, pause=0, timeout=None)
        with pytest.raises(UsageError, match="no argument 'tune'"):
            completer.suggest("tune", "a")
        assert values(completer.suggest("to", "b")) == ["b!"]
        unknown = Completer(client, PromptReference(name="none"), pause=0)
        held.server.handlers.clear()
        with pytest.raises(InvalidParams):
            unknown.suggest("to", "a")
    with pytest.raises(ClosedError):
        completer.suggest("to", "c")
    wrong: list[tuple[str, Any]] = [("pause", -1), ("pause", None), ("timeout", "soon")]
    for option, value in (*wrong, ("remembered", 0)):
        with pytest.raises(UsageError, match=option):
            Completer(client, LETTER, **{option: value})


def test_a_request_that_somebody_else_cancels_is_not_taken_for_outdated() -> None:
    def cancelled(*arguments: object, **options: object) -> None:
        raise RequestCancelled("by somebody else")

    client: Any = SimpleNamespace(complete=cancelled)
    with pytest.raises(RequestCancelled, match="somebody else"):
        Completer(client, LETTER, pause=0).suggest("to", "a")
