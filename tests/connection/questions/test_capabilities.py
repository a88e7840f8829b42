"""What a client declares: what there are handlers for, as its revision has it, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import Elicitation, Handlers, Mode, Sampling, UsageError
from syncmcp.testing import script as s
from tests.connection.questions.asking import (
    DONE,
    ELICITATION,
    PROMPT,
    ROOTS,
    SAMPLING,
    asked,
    asker,
    asking_server,
    demanded,
    model,
    person,
    question,
    said,
    visitor,
)
from tests.support.people import Interface, nobody
from tests.support.scripts import NEW, OLD, STATEFUL, opening, talk

MODES = (OLD, NEW)


class Knowing:
    """A sampling handler that says by its attributes what it can do."""

    tools = True
    context = True
    __call__ = staticmethod(model)


# What is given, and what is declared from 2025-11-25 on.
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


def as_of(revision: str, declared: dict[str, Any]) -> dict[str, Any]:
    """What an earlier revision has of a declaration."""
    declared = dict(declared)
    if "roots" in declared and revision != NEW:
        declared["roots"] = {"listChanged": True}
    if revision in MODES:
        return declared
    if "sampling" in declared:
        declared["sampling"] = {}
    modes = declared.pop("elicitation", {})
    if "form" in modes and revision == "2025-06-18":
        declared["elicitation"] = {}
    return declared


@pytest.mark.parametrize(
    ("revision", "kind"),
    [
        *((revision, kind) for revision in MODES for kind in DECLARED),
        *((old, kind) for old in STATEFUL[:-1] for kind in ("tools", "url alone", "both", "all")),
    ],
)
@pytest.mark.requirement("M-08", "ROOT-01", "SAMP-01", "ELI-01", "ELI-02")
def test_what_has_a_handler_is_declared_as_the_revision_has_it(kind: str, revision: Mode) -> None:
    options, declared = DECLARED[kind]
    with asker(revision, **options) as client:
        assert said(client, "capabilities") == as_of(revision, declared)
        if kind != "all":
            return
        assert asked(client, SAMPLING, PROMPT)["result"]["model"] == "double"
        assert asked(client, ROOTS)["result"] == {"roots": []}
        if revision not in STATEFUL[:2]:
            form = question(ELICITATION, revision)
            assert asked(client, ELICITATION, form)["result"]["action"] == "accept"


@pytest.mark.parametrize("kind", ["nothing", "all"])
@pytest.mark.requirement("M-08", "ELI-02")
def test_in_the_stateless_era_each_request_declares_it_again(kind: str) -> None:
    options, declared = DECLARED[kind]
    listed = s.reply({"resultType": "complete", "tools": []})
    script = [*opening(NEW), s.expect("tools/list"), listed, s.expect("tools/call"), s.reply(DONE)]
    with talk(script, mode=NEW, **options) as (peer, client):
        client.list_tools()
        client.call_tool("x")
        for method in ("server/discover", "tools/list", "tools/call"):
            (sent,) = peer.requests(method)
            meta = sent["params"]["_meta"]
            assert meta["io.modelcontextprotocol/clientCapabilities"] == declared


def test_handlers_of_one_call_are_declared_by_its_requests_alone() -> None:
    with asker(NEW, roots=[]) as client:
        handlers = Handlers(sampling=model, elicitation=Elicitation(url=visitor))
        both: dict[str, Any] = {"roots": {}, "sampling": {}, "elicitation": {"url": {}}}
        assert said(client, "capabilities", handlers=handlers) == both
        assert said(client, "capabilities") == {"roots": {}}
        future = client.call_tool.future("capabilities", handlers=Handlers(sampling=model))
        assert '"sampling"' in future.result(10).text
        assert said(client, "capabilities") == {"roots": {}}


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
        else:  # it has none
            client.set_elicitation(person)
        for offer in offers:
            with pytest.raises(UsageError, match="did not declare"):
                offer()
        with server.stats as stats:
            assert stats.requests["tools/call"] == 0
        assert said(client, "capabilities") == {}


@pytest.mark.requirement("M-08")
def test_in_the_stateless_era_a_handler_may_come_and_go_at_any_time() -> None:
    with asker(NEW) as client:
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


@pytest.mark.requirement("M-08")
def test_a_handler_set_between_two_openings_is_in_the_next_handshake() -> None:
    client = syncmcp.Client(asking_server(), mode=OLD)
    with client:
        assert said(client, "capabilities") == {}
    client.set_sampling(nobody)
    client.set_sampling(model)
    client.set_elicitation(person)
    client.set_elicitation(None)
    with client:
        assert said(client, "capabilities") == {"sampling": {}}
        assert asked(client, SAMPLING, PROMPT)["result"]["model"] == "double"


def test_a_handler_may_be_replaced_and_removed_while_a_session_lasts() -> None:
    with asker(OLD, sampling=model) as client:
        client.set_sampling(Sampling(model))
        assert asked(client, SAMPLING, PROMPT)["result"]["model"] == "double"
        with pytest.raises(UsageError, match="sampling tools"):
            client.set_sampling(Sampling(model, tools=True))
        client.set_sampling(None)
        assert demanded(client, SAMPLING, PROMPT)["error"][0] == -32601
