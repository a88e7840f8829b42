"""The request for a subscription, and the meaning of its notifications."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp._protocol.subscription import ChangeEvent, ChangeFilter, read_event, subscription_id

TAG = "io.modelcontextprotocol/subscriptionId"
LISTS = {"listChanged": True}
ALL = ChangeFilter(tools=True, prompts=True, resources=True, uris=("a:1", "a:2"))


def saying(**wanted: Any) -> dict[str, Any]:
    return {"notifications": wanted}


@pytest.mark.requirement("SUB-02")
def test_the_filter_names_what_is_wanted_and_nothing_else() -> None:
    assert ChangeFilter().params() == {"notifications": {}}
    assert ChangeFilter(prompts=True).params() == saying(promptsListChanged=True)
    assert ChangeFilter(uris=("a:1",)).params() == saying(resourceSubscriptions=["a:1"])
    lists = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
    assert ALL.params() == saying(**lists, resourceSubscriptions=["a:1", "a:2"])


def test_the_first_capability_that_is_needed_and_not_declared_is_named() -> None:
    capabilities: Any
    for wanted, capabilities, lacking in (
        (ChangeFilter(tools=True), {"tools": {}}, "tools listChanged"),
        (ChangeFilter(tools=True), {"tools": {"listChanged": False}}, "tools listChanged"),
        (ChangeFilter(prompts=True), {}, "prompts listChanged"),
        (ChangeFilter(resources=True), {"resources": {"subscribe": True}}, "resources listChanged"),
        (ChangeFilter(uris=("a:1",)), {"resources": LISTS}, "resources subscribe"),
        (ChangeFilter(uris=("a:1",)), {"resources": {"subscribe": True}}, None),
        (ALL, dict.fromkeys(ALL.kinds, LISTS), "resources subscribe"),
        (ChangeFilter(), {}, None),
    ):
        missing = tuple(lacking.split()) if lacking else None
        assert wanted.missing_capability(capabilities) == missing


@pytest.mark.requirement("SUB-01")
def test_what_a_server_agrees_to_is_what_was_asked_for_and_it_names() -> None:
    for said, granted in (
        *((ALL.params(), ALL), ({"notifications": {}}, ChangeFilter()), ({}, ChangeFilter())),
        ({"notifications": None}, ChangeFilter()),
        (saying(toolsListChanged=True), ChangeFilter(tools=True)),
        (saying(toolsListChanged="yes"), ChangeFilter()),
        (saying(resourceSubscriptions=["a:2", "a:9", 5]), ChangeFilter(uris=("a:2",))),
        (saying(resourceSubscriptions="a:1"), ChangeFilter()),
    ):
        assert ALL.granted(said) == granted
        assert ChangeFilter().granted(said) == ChangeFilter()


@pytest.mark.requirement("SUB-01")
def test_what_was_asked_for_and_not_agreed_to_is_known() -> None:
    granted = ChangeFilter(tools=True, uris=("a:2",))
    assert ALL.difference(granted) == ChangeFilter(prompts=True, resources=True, uris=("a:1",))
    assert ALL.difference(ALL) == ChangeFilter()
    assert str(ALL.difference(granted)) == "prompts, resources, a:1"
    assert str(ChangeFilter()) == "nothing"


def test_an_update_may_be_of_something_below_what_was_subscribed_to() -> None:
    for uri, subscribed, within in (
        *(("a:1", "a:1", True), ("a:1/x", "a:1", True), ("a:1?x", "a:1", True)),
        *(("a:1#x", "a:1", True), ("a:12", "a:1", False), ("a:", "a:1", False)),
        *(("file:///d/x", "file:///d/", True), ("file:///e/x", "file:///d/", False)),
    ):
        assert ChangeFilter(uris=("b:9", subscribed)).covers(ChangeEvent("resource", uri)) is within


def test_a_list_is_covered_if_it_is_wanted_and_may_have_changed_after_an_interruption() -> None:
    assert ChangeFilter(tools=True).covers(ChangeEvent("tools"))
    assert not ChangeFilter(tools=True).covers(ChangeEvent("prompts"))
    assert not ChangeFilter(uris=("tools",)).covers(ChangeEvent("tools"))
    assert list(ChangeFilter(prompts=True, uris=("a:1",)).missed_events()) == [
        ChangeEvent("prompts", missed=True),
        ChangeEvent("resource", "a:1", missed=True),
    ]


def test_a_notification_says_what_has_changed() -> None:
    for method, params, event in (
        ("notifications/tools/list_changed", {}, ChangeEvent("tools")),
        ("notifications/prompts/list_changed", {"uri": "a:1"}, ChangeEvent("prompts")),
        ("notifications/resources/list_changed", {}, ChangeEvent("resources")),
        ("notifications/resources/updated", {"uri": "a:1"}, ChangeEvent("resource", "a:1")),
        ("notifications/resources/updated", {}, None),
        ("notifications/resources/updated", {"uri": 5}, None),
        ("notifications/message", {"uri": "a:1"}, None),
    ):
        assert read_event(method, params) == event


@pytest.mark.requirement("STD-04")
def test_an_event_belongs_to_the_request_that_it_names() -> None:
    assert subscription_id({"_meta": {TAG: 7}}) == 7
    assert subscription_id({"_meta": {TAG: 7}}, own=8) == 7
    assert subscription_id({"_meta": {}}, own=8) == 8
    assert subscription_id({}, own=8) == 8
    assert subscription_id({"_meta": [TAG]}) is None
    assert subscription_id({}) is None
