"""What cannot be asked of a server, and the reason that is given."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp._protocol.capabilities import NO_OFFER, OfferedCapabilities, Unavailable
from syncmcp._protocol.revisions import (
    KNOWN_REQUESTS,
    REVISIONS,
    dialect_for,
    every_capability,
    unavailable_requests,
    undeclared_offer,
)

EVERYTHING: dict[str, Any] = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True},
    "tasks": {"list": {}, "cancel": {}},
    "tools": {},
}


def closed(revision: str, capabilities: dict[str, Any]) -> dict[str, Unavailable]:
    return unavailable_requests(dialect_for(revision, None), capabilities)


@pytest.mark.requirement("VER-06")
@pytest.mark.parametrize("revision", REVISIONS)
def test_a_server_that_declares_everything_can_be_asked_what_the_revision_has(
    revision: str,
) -> None:
    dialect = dialect_for(revision, None)
    lacking = {method for method in KNOWN_REQUESTS if dialect.required_capability(method) is None}
    for method, (reason, untried) in closed(revision, EVERYTHING).items():
        lacking.remove(method)
        assert not untried
        if revision == "2026-07-28" and method in ("tasks/cancel", "tasks/get", "tasks/update"):
            assert reason.startswith("the extension io.modelcontextprotocol/tasks is not switched")
        else:
            assert reason == f"revision {revision} has no such request"
    assert not lacking


@pytest.mark.requirement("VER-06")
@pytest.mark.parametrize("revision", REVISIONS)
def test_a_server_that_declares_nothing_can_be_asked_what_needs_nothing(revision: str) -> None:
    dialect = dialect_for(revision, None)
    free = {method for method in KNOWN_REQUESTS if dialect.required_capability(method) == ()}
    gated = closed(revision, {})
    assert KNOWN_REQUESTS - gated.keys() == free
    asked = {method for method in KNOWN_REQUESTS if dialect.required_capability(method)}
    assert {method for method, gate in gated.items() if gate.undeclared} == asked


@pytest.mark.requirement("VER-06")
def test_the_whole_name_of_a_missing_capability_is_said() -> None:
    reasons = closed("2025-11-25", {"tools": {}, "resources": {}})
    assert "tools/call" not in reasons
    assert "resources/read" not in reasons
    for method, name in (
        ("prompts/get", "prompts"),
        ("resources/subscribe", "resources.subscribe"),
    ):
        assert reasons[method].reason == (
            f"the server does not declare the capability {name}"
            ' (undeclared="try" asks for it all the same)'
        )


@pytest.mark.parametrize("said", [{}, {"x": 1}, True, "yes", 1])
def test_whatever_a_server_writes_for_yes_is_a_yes(said: Any) -> None:
    assert "tools/call" not in closed("2025-11-25", {"tools": said})


@pytest.mark.parametrize("said", [None, False])
def test_whatever_a_server_writes_for_no_is_a_no(said: Any) -> None:
    assert "tools/call" in closed("2025-11-25", {"tools": said})
    assert "resources/subscribe" in closed("2025-11-25", {"resources": {"subscribe": said}})


@pytest.mark.parametrize("said", [True, "subscribe", ["subscribe"], 5, None])
def test_a_capability_without_parts_lacks_all_its_parts(said: Any) -> None:
    assert "resources/subscribe" in closed("2025-11-25", {"resources": said})


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_server_of_which_nothing_is_known_can_be_asked_what_the_revision_has(
    revision: str,
) -> None:
    capabilities = every_capability(dialect_for(revision, None))
    assert closed(revision, capabilities) == closed(revision, EVERYTHING)


def test_what_a_handshake_did_not_offer_is_named() -> None:
    dialect = dialect_for("2025-11-25", None)
    assert (
        undeclared_offer(
            dialect, OfferedCapabilities(form=True), OfferedCapabilities(form=True, url=True)
        )
        is None
    )
    assert (
        undeclared_offer(
            dialect, OfferedCapabilities(form=True, url=True), OfferedCapabilities(form=True)
        )
        == "url"
    )
    assert undeclared_offer(
        dialect,
        OfferedCapabilities(sampling=True, sampling_tools=True),
        OfferedCapabilities(sampling=True),
    ) == ("sampling tools")


def test_without_a_handshake_everything_can_be_offered_later() -> None:
    assert undeclared_offer(None, OfferedCapabilities(form=True), NO_OFFER) is None
    assert (
        undeclared_offer(dialect_for("2026-07-28", None), OfferedCapabilities(form=True), NO_OFFER)
        is None
    )
    assert (
        undeclared_offer(dialect_for("2025-11-25", None), OfferedCapabilities(form=True), None)
        is None
    )
