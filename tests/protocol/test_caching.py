"""Which results are cached, for how long, and what outdates them; no clock, no store."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp._protocol.caching import (
    LONGEST_URI,
    MAX_TTL,
    MAX_URIS,
    InvalidationLog,
    first_page_params,
    is_cacheable,
    is_public,
    list_of_refused_cursor,
    ttl_seconds,
)
from syncmcp._protocol.subscription import ChangeEvent
from syncmcp.errors import InvalidParams, McpError, MethodNotFound, RequestTimeout

TOOLS = ChangeEvent("tools")
LIST, READ = "tools/list", "resources/read"


def updated(uri: str) -> ChangeEvent:
    return ChangeEvent("resource", uri)


@pytest.mark.requirement("CCH-04")
def test_a_positive_number_of_milliseconds_is_a_lifetime_and_nothing_else_is() -> None:
    for hint, seconds in (
        *((1, 0.001), (60_000, 60.0), (1.5, 0.0015), (0, 0.0), (-1, 0.0), (-0.0, 0.0)),
        *((float("nan"), 0.0), (float("inf"), MAX_TTL), (10**400, MAX_TTL)),
        *((MAX_TTL * 1000 + 1, MAX_TTL), (None, 0.0), (True, 0.0), ("60000", 0.0), ([], 0.0)),
    ):
        assert ttl_seconds({"ttlMs": hint}) == seconds
        assert ttl_seconds({"ttlMs": hint, "resultType": "complete"}) == seconds


def test_a_question_has_no_lifetime_and_only_what_says_that_it_is_public_is() -> None:
    assert ttl_seconds({}) == 0.0
    for kind in ("input_required", None):
        assert ttl_seconds({"ttlMs": 1000, "resultType": kind}) == 0.0
    assert is_public({"cacheScope": "public"})
    for scope in ("private", "PUBLIC", "", None, True, ["public"]):
        assert not is_public({"cacheScope": scope})
    assert not is_public({})


@pytest.mark.requirement("CCH-02")
def test_answers_to_questions_and_own_metadata_make_a_request_that_is_not_kept() -> None:
    assert is_cacheable(READ, {"uri": "a:1"})
    assert is_cacheable(LIST, None)
    assert not is_cacheable("tools/call", {"name": "a"})
    assert not is_cacheable("prompts/get", {"name": "a"})
    for name in ("inputResponses", "requestState", "_meta"):
        assert not is_cacheable(READ, {"uri": "a:1", name: {}})


def test_the_first_page_is_asked_for_with_all_that_is_no_cursor() -> None:
    later = {"cursor": "x", "filter": 1}
    assert first_page_params(LIST, later) == {"filter": 1}
    assert later == {"cursor": "x", "filter": 1}
    for method, params in ((LIST, {"filter": 1}), (LIST, None), (READ, later), ("a/b", later)):
        assert first_page_params(method, params) is None


@pytest.mark.requirement("CCH-07")
def test_a_refused_cursor_names_the_list_it_belongs_to() -> None:
    refused = InvalidParams("Invalid cursor", code=-32602)
    lists = {LIST: "tools", "resources/templates/list": "resources", "skills/list": "skills"}
    for method, name in lists.items():
        assert list_of_refused_cursor(method, {"cursor": "x"}, refused) == name
    assert list_of_refused_cursor(LIST, None, refused) is None
    assert list_of_refused_cursor(READ, {"uri": "a:1"}, refused) is None
    others: list[McpError] = [MethodNotFound("?", code=-32601), RequestTimeout("late")]
    for error in others:
        assert list_of_refused_cursor(LIST, {"cursor": "x"}, error) is None
    # A refused cursor outdates only the pages of its list.
    changes = InvalidationLog()
    changes.record_refused_cursor("tools", 5.0)
    assert changes.is_outdated(LIST, {"cursor": "x"}, 4.9)
    assert not changes.is_outdated(LIST, None, 5.1)
    assert not changes.is_outdated("prompts/list", None, 1.0)


@pytest.mark.requirement("CCH-06")
def test_a_change_outdates_what_was_asked_for_before_it_and_nothing_else() -> None:
    changes = InvalidationLog()
    assert not changes.is_outdated(LIST, None, 1.0)
    changes.record_change(TOOLS, 5.0)
    assert changes.is_outdated(LIST, None, 4.9)
    assert changes.is_outdated(LIST, None, 5.0)  # at the same tick, the order is unknown
    assert not changes.is_outdated(LIST, None, 5.1)
    assert not changes.is_outdated("prompts/list", None, 1.0)
    assert not changes.is_outdated("server/discover", None, 1.0)
    changes.record_change(ChangeEvent("resources"), 6.0)
    assert changes.is_outdated("resources/list", None, 5.5)
    assert changes.is_outdated("resources/templates/list", {"cursor": "x"}, 5.5)
    assert not changes.is_outdated(READ, {"uri": "a:1"}, 5.5)
    changes.invalidate_all(9.0)
    for method in (LIST, READ, "server/discover", "prompts/list"):
        assert changes.is_outdated(method, {"uri": "a:1"}, 8.0)
        assert not changes.is_outdated(method, {"uri": "a:1"}, 9.5)


@pytest.mark.requirement("CCH-06")
def test_a_resource_is_outdated_by_its_own_changes_and_those_below_it() -> None:
    changes = InvalidationLog()
    changes.record_change(updated("a:/b/c"), 5.0)
    for uri in ("a:/b/c", "a:/b", "a:/b/"):
        assert changes.is_outdated(READ, {"uri": uri}, 4.0)
    for other in ("a:/b/c/d", "a:/b/cc", "a:/x", 7, None):
        assert not changes.is_outdated(READ, {"uri": other}, 4.0)
    assert not changes.is_outdated(READ, {}, 4.0)
    assert not changes.is_outdated(READ, None, 4.0)
    assert not changes.is_outdated("resources/list", None, 4.0)
    changes.record_change(updated("a:/b"), 7.0)
    changes.record_change(updated("a:/b/x"), 3.0)
    assert changes.is_outdated(READ, {"uri": "a:/b"}, 6.0)


def test_more_changed_resources_than_are_known_outdate_too_much_and_never_too_little() -> None:
    changes, never = InvalidationLog(), {"uri": "a:never"}
    for number in range(MAX_URIS):
        changes.record_change(updated(f"a:{number}"), float(number))
    assert not changes.is_outdated(READ, never, 0.0)
    # With one more URI, the older half of the changes applies to every resource.
    changes.record_change(updated("a:one more"), float(MAX_URIS))
    assert changes.is_outdated(READ, never, MAX_URIS // 2 - 1.0)
    assert not changes.is_outdated(READ, never, MAX_URIS // 2 - 0.5)
    for number in range(MAX_URIS):
        assert changes.is_outdated(READ, {"uri": f"a:{number}"}, number - 0.5)
    for number in range(2 * MAX_URIS):
        changes.record_change(updated(f"b:{number}"), 1000.0 + number)
    assert changes.is_outdated(READ, never, 1000.0)
    assert not changes.is_outdated(READ, never, 3000.0)


def test_a_uri_that_is_too_long_to_be_known_outdates_too_much_and_never_too_little() -> None:
    changes, longest = InvalidationLog(), "a:" + "x" * (LONGEST_URI - 2)
    changes.record_change(updated(longest), 1.0)
    assert changes.is_outdated(READ, {"uri": longest}, 0.5)
    assert not changes.is_outdated(READ, {"uri": "a:"}, 0.5)
    changes.record_change(updated(f"{longest}x"), 3.0)
    changes.record_change(updated(f"{longest}y"), 2.0)
    for uri in (f"{longest}x", longest, "a:other"):
        assert changes.is_outdated(READ, {"uri": uri}, 3.0)
        assert not changes.is_outdated(READ, {"uri": uri}, 3.5)
    assert set(changes._uris) == {longest}


CHANGED = st.sampled_from(["tools", "a:", "a:1", "a:1/2", "all"])


@given(
    st.lists(st.tuples(CHANGED, st.integers(0, 20).map(float))),
    st.sampled_from([LIST, "a:", "a:1", "a:1/2", "a:1/2/3"]),
    st.integers(0, 20),
)
def test_it_says_what_a_look_at_the_whole_history_would(
    history: list[tuple[str, float]], wanted: str, asked: int
) -> None:
    changes = InvalidationLog()
    for what, when in sorted(history, key=lambda pair: pair[1]):
        if what == "all":
            changes.invalidate_all(when)
        else:
            changes.record_change(TOOLS if what == "tools" else updated(what), when)
    below = {"a:": ("a:",), "a:1": ("a:1", "a:1/2"), "a:1/2": ("a:1/2",), "a:1/2/3": ()}
    concerns = {"all", *(("tools",) if wanted == LIST else below[wanted])}
    late = any(what in concerns and when >= asked for what, when in history)
    params: dict[str, Any] | None = None if wanted == LIST else {"uri": wanted}
    assert changes.is_outdated(LIST if wanted == LIST else READ, params, float(asked)) == late
