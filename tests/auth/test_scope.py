"""Which scope is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp.auth.discovery import AuthServer, missing_scopes, select_scope, union_scopes
from syncmcp.types.extensions import AuthorizationServerMetadata


def place(scopes: tuple[str, ...] | None = None, **server: Any) -> AuthServer:
    metadata = AuthorizationServerMetadata.from_wire({"issuer": "https://as.example", **server})
    return AuthServer("https://mcp.example", scopes, metadata)


@pytest.mark.requirement("SCO-01", "SCO-02", "SCO-03")
def test_the_scope_of_a_challenge_comes_before_that_of_the_metadata() -> None:
    assert select_scope(place(("c",)), challenged="a b") == "a b"


@pytest.mark.requirement("SCO-01")
def test_without_a_challenge_all_scopes_of_the_metadata_are_asked_for() -> None:
    assert select_scope(place(("a", "b"))) == "a b"


@pytest.mark.requirement("SCO-01")
@pytest.mark.parametrize("scopes", [None, ()])
def test_without_either_no_scope_is_named(scopes: tuple[str, ...] | None) -> None:
    assert select_scope(place(scopes, scopes_supported=["x", "offline_access"])) is None


@pytest.mark.requirement("SCO-03")
def test_scopes_of_the_user_replace_those_of_the_metadata_but_not_those_of_a_challenge() -> None:
    assert select_scope(place(("a", "b")), configured=["mine"]) == "mine"
    assert select_scope(place(("a", "b")), configured=["mine"], challenged="a") == "mine a"


@pytest.mark.requirement("SCO-04")
def test_a_step_up_asks_for_old_and_new_together() -> None:
    assert select_scope(place(("z",)), challenged="b a", earlier="a c") == "a c b"


@pytest.mark.requirement("TOK-08")
def test_offline_access_is_asked_for_where_the_server_lists_it() -> None:
    listed = place(("a",), scopes_supported=["a", "offline_access"])
    assert select_scope(listed) == "a offline_access"
    without = place(("a",), scopes_supported=["offline_access"], grant_types_supported=["implicit"])
    assert select_scope(without) == "a"


@pytest.mark.requirement("TOK-08")
@pytest.mark.parametrize("scopes", [None, ["a"]])
def test_offline_access_is_not_asked_for_elsewhere_whoever_names_it(scopes: Any) -> None:
    unlisted = place(("a", "offline_access"), scopes_supported=scopes)
    assert select_scope(unlisted) == "a"
    assert select_scope(unlisted, challenged="a offline_access") == "a"


def test_no_scope_counts_as_part_of_another() -> None:
    assert union_scopes("files files:read", "files", None, ["b"]) == "files files:read b"
    assert union_scopes(None, "") is None
    assert missing_scopes("files:read files", "files") == {"files:read"}
    assert missing_scopes(None, None) == frozenset()
