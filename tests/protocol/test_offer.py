"""What a client declares: what somebody is there to answer, in the words of each revision."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp._protocol.capabilities import NO_OFFER, OfferedCapabilities
from syncmcp._protocol.revisions import REVISIONS, STATEFUL, dialect_for, session_capabilities

EVERYTHING = OfferedCapabilities(*(True,) * len(OfferedCapabilities._fields))

NEWEST = "2026-07-28"
WITH_MODES = (NEWEST, "2025-11-25")
"""The revisions in which elicitation has modes and models may use tools."""
WITHOUT_ELICITATION = ("2025-03-26", "2024-11-05")

OFFERS = st.builds(OfferedCapabilities, *[st.booleans()] * len(OfferedCapabilities._fields))
"""Every offer there can be, the ones that contradict themselves included."""


def declared(revision: str, offer: OfferedCapabilities) -> dict[str, Any]:
    """The capabilities that reach a server: in the handshake, or in each request."""
    if revision in STATEFUL:
        return session_capabilities(revision, offer)
    made = dialect_for(revision, None).request_params("tools/list", None, 7, None, None, offer)
    assert made is not None
    capabilities: dict[str, Any] = made["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    return capabilities


@pytest.mark.parametrize("revision", REVISIONS)
def test_who_offers_nothing_declares_nothing(revision: str) -> None:
    assert not any(NO_OFFER)
    assert declared(revision, NO_OFFER) == {}


EVERYTHING_DECLARED = {
    "2026-07-28": {
        "roots": {},
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
    },
    "2025-11-25": {
        "roots": {"listChanged": True},
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
    },
    "2025-06-18": {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}},
    "2025-03-26": {"roots": {"listChanged": True}, "sampling": {}},
    "2024-11-05": {"roots": {"listChanged": True}, "sampling": {}},
}


@pytest.mark.requirement("ROOT-01", "SAMP-01", "ELI-01", "ELI-02")
@pytest.mark.parametrize("revision", REVISIONS)
def test_who_offers_everything_declares_what_the_revision_has(revision: str) -> None:
    assert all(EVERYTHING)
    assert declared(revision, EVERYTHING) == EVERYTHING_DECLARED[revision]


@pytest.mark.requirement("SAMP-01")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(("tools", "context"), list(product([False, True], repeat=2)))
def test_sampling_is_declared_with_its_parts_where_it_has_parts(
    revision: str, tools: bool, context: bool
) -> None:
    offer = OfferedCapabilities(sampling=True, sampling_tools=tools, sampling_context=context)
    parts: dict[str, Any] = {}
    if tools and revision in WITH_MODES:
        parts["tools"] = {}
    if context and revision in WITH_MODES:
        parts["context"] = {}
    assert declared(revision, offer) == {"sampling": parts}


@pytest.mark.requirement("SAMP-01")
@pytest.mark.parametrize("revision", REVISIONS)
def test_tools_of_a_model_without_the_model_are_no_capability(revision: str) -> None:
    assert declared(revision, OfferedCapabilities(sampling_tools=True, sampling_context=True)) == {}


@pytest.mark.requirement("ELI-01", "ELI-02")
@pytest.mark.parametrize("revision", WITH_MODES)
def test_each_mode_of_elicitation_is_declared_by_itself(revision: str) -> None:
    assert declared(revision, OfferedCapabilities(form=True)) == {"elicitation": {"form": {}}}
    assert declared(revision, OfferedCapabilities(url=True)) == {"elicitation": {"url": {}}}
    assert declared(revision, OfferedCapabilities(form=True, url=True)) == {
        "elicitation": {"form": {}, "url": {}}
    }


@pytest.mark.requirement("ELI-01")
def test_before_there_were_modes_elicitation_means_forms() -> None:
    assert declared("2025-06-18", OfferedCapabilities(form=True)) == {"elicitation": {}}
    assert declared("2025-06-18", OfferedCapabilities(form=True, url=True)) == {"elicitation": {}}
    assert declared("2025-06-18", OfferedCapabilities(url=True)) == {}


@pytest.mark.requirement("ELI-01")
@pytest.mark.parametrize("revision", WITHOUT_ELICITATION)
def test_before_there_was_elicitation_none_is_declared(revision: str) -> None:
    assert declared(revision, OfferedCapabilities(form=True, url=True)) == {}


@pytest.mark.requirement("ROOT-01")
def test_changes_of_the_roots_are_announced_only_where_there_is_a_session() -> None:
    offer = OfferedCapabilities(roots=True)
    for revision in STATEFUL:
        assert declared(revision, offer) == {"roots": {"listChanged": True}}
    assert declared(NEWEST, offer) == {"roots": {}}


@pytest.mark.requirement("ROOT-01", "SAMP-01", "ELI-01")
@given(OFFERS, st.sampled_from(REVISIONS))
def test_nothing_is_declared_that_was_not_offered(
    offer: OfferedCapabilities, revision: str
) -> None:
    capabilities = declared(revision, offer)
    assert ("roots" in capabilities) is offer.roots
    assert ("sampling" in capabilities) is offer.sampling
    sampling = capabilities.get("sampling", {})
    assert "tools" not in sampling or offer.sampling_tools
    assert "context" not in sampling or offer.sampling_context
    elicitation = capabilities.get("elicitation")
    assert elicitation is None or offer.form or (offer.url and elicitation == {"url": {}})
    assert "form" not in (elicitation or {}) or offer.form
    assert "url" not in (elicitation or {}) or offer.url
    assert set(capabilities) <= {"roots", "sampling", "elicitation"}


@given(OFFERS, st.sampled_from(REVISIONS))
def test_only_what_is_left_of_an_offer_in_a_revision_is_declared_there(
    offer: OfferedCapabilities, revision: str
) -> None:
    left = dialect_for(revision, None).supported_part(offer)
    assert declared(revision, left) == declared(revision, offer)
    assert all(had or not has for has, had in zip(left, offer, strict=True))
    assert dialect_for(revision, None).supported_part(left) == left


@pytest.mark.parametrize(
    ("revision", "left"),
    [
        ("2026-07-28", EVERYTHING),
        ("2025-11-25", EVERYTHING),
        ("2025-06-18", OfferedCapabilities(sampling=True, form=True, roots=True)),
        ("2025-03-26", OfferedCapabilities(sampling=True, roots=True)),
        ("2024-11-05", OfferedCapabilities(sampling=True, roots=True)),
    ],
)
def test_an_offer_shrinks_to_what_the_revision_has(
    revision: str, left: OfferedCapabilities
) -> None:
    assert dialect_for(revision, None).supported_part(EVERYTHING) == left


@pytest.mark.parametrize("revision", REVISIONS)
def test_capabilities_are_objects_all_the_way_but_for_one_switch(revision: str) -> None:
    for name, capability in declared(revision, EVERYTHING).items():
        assert type(capability) is dict
        parts = {key: part for key, part in capability.items() if key != "listChanged"}
        assert all(part == {} and type(part) is dict for part in parts.values()), name


@pytest.mark.requirement("VER-09")
def test_each_stateless_request_declares_its_own_offer() -> None:
    dialect = dialect_for(NEWEST, None)
    offers = [
        NO_OFFER,
        OfferedCapabilities(form=True),
        EVERYTHING,
        OfferedCapabilities(form=True),
        NO_OFFER,
    ]
    made = [dialect.request_params("tools/call", None, 7, None, None, offer) for offer in offers]
    said = [
        one["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        for one in made
        if one is not None
    ]
    assert said == [declared(NEWEST, offer) for offer in offers]


@pytest.mark.parametrize("revision", STATEFUL)
def test_a_stateful_request_says_nothing_of_an_offer(revision: str) -> None:
    dialect = dialect_for(revision, None)
    with_offer = dialect.request_params("tools/call", {"name": "x"}, 7, None, None, EVERYTHING)
    assert with_offer == dialect.request_params("tools/call", {"name": "x"}, 7, None, None)
    assert with_offer == {"name": "x", "_meta": {"progressToken": 7}}
