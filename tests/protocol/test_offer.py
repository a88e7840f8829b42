"""The capabilities that a client declares in each revision, and the unavailable requests."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from syncmcp._protocol.capabilities import (
    NO_OFFER,
    OfferedCapabilities,
    Unavailable,
    check_extensions,
    server_error,
)
from syncmcp._protocol.negotiate import ClientHello
from syncmcp._protocol.revisions import (
    KNOWN_REQUESTS,
    REVISIONS,
    STATEFUL,
    dialect_for,
    every_capability,
    session_capabilities,
    unavailable_requests,
    undeclared_offer,
)
from syncmcp.errors import UsageError

EVERYTHING = OfferedCapabilities(*(True,) * len(OfferedCapabilities._fields))
NEWEST = "2026-07-28"


def declared(
    revision: str, offer: OfferedCapabilities, extensions: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the capabilities that a server gets: in the handshake, or in each request."""
    hello = ClientHello(None, offer, extensions or {})
    if revision in STATEFUL:
        return session_capabilities(revision, offer, hello.extensions)
    made = hello.dialect(revision).request_params("tools/list", None, 7, None, None, offer)
    assert made is not None
    capabilities: dict[str, Any] = made["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    return capabilities


PARTS: dict[str, Any] = {
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
}
OLDER_DECLARED: dict[str, Any] = {"roots": {"listChanged": True}, "sampling": {}}
EVERYTHING_DECLARED: dict[str, dict[str, dict[str, Any]]] = {
    "2026-07-28": {"roots": {}, **PARTS},
    "2025-11-25": {**OLDER_DECLARED, **PARTS},
    "2025-06-18": {**OLDER_DECLARED, "elicitation": {}},
    **dict.fromkeys(("2025-03-26", "2024-11-05"), OLDER_DECLARED),
}


def to_declare(revision: str, offer: OfferedCapabilities) -> dict[str, Any]:
    """Return the capabilities of the revision that are declared with this offer."""
    capabilities = EVERYTHING_DECLARED[revision]
    offered = {
        "roots": offer.roots,
        "sampling": offer.sampling,
        "tools": offer.sampling_tools,
        "context": offer.sampling_context,
        # Before elicitation had modes, it meant forms.
        "elicitation": offer.form or (offer.url and bool(capabilities.get("elicitation"))),
        "form": offer.form,
        "url": offer.url,
        "listChanged": True,
    }
    return {
        name: {part: value for part, value in parts.items() if offered[part]}
        for name, parts in capabilities.items()
        if offered[name]
    }


@pytest.mark.requirement("ROOT-01", "SAMP-01", "ELI-01", "ELI-02")
@pytest.mark.parametrize("revision", REVISIONS)
def test_what_is_offered_is_declared_where_the_revision_has_it(revision: str) -> None:
    dialect = dialect_for(revision, None)
    assert declared(revision, EVERYTHING) == EVERYTHING_DECLARED[revision]
    assert declared(revision, NO_OFFER) == {}
    for fields in product([False, True], repeat=len(EVERYTHING)):
        offer = OfferedCapabilities(*fields)
        assert declared(revision, offer) == to_declare(revision, offer)
        left = dialect.supported_part(offer)
        assert declared(revision, left) == declared(revision, offer)
        assert all(had or not has for has, had in zip(left, offer, strict=True))
        assert dialect.supported_part(left) == left


def test_an_offer_shrinks_to_what_the_revision_has() -> None:
    oldest = OfferedCapabilities(sampling=True, roots=True)
    lefts = [EVERYTHING, EVERYTHING, oldest._replace(form=True), oldest, oldest]
    assert [dialect_for(one, None).supported_part(EVERYTHING) for one in REVISIONS] == lefts


def test_a_handshake_is_asked_for_what_it_did_not_offer() -> None:
    form, both = OfferedCapabilities(form=True), OfferedCapabilities(form=True, url=True)
    model = OfferedCapabilities(sampling=True)
    dialect = dialect_for("2025-11-25", None)
    for offer, then, lacking in (
        (form, both, None),
        (both, form, "url"),
        (model._replace(sampling_tools=True), model, "sampling tools"),
        (form, None, None),
    ):
        assert undeclared_offer(dialect, offer, then) == lacking
    # Without a handshake everything can be offered later.
    assert undeclared_offer(None, form, NO_OFFER) is None
    assert undeclared_offer(dialect_for(NEWEST, None), form, NO_OFFER) is None


MAPS: dict[str, Any] = {"com.example/maps": {"scale": 3}}


@pytest.mark.requirement("VER-17")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        *(
            ({identifier: {}}, "is not an extension identifier: write")
            for identifier in (
                *("maps", "/maps", "com.example/", "com..example/maps", "1com/maps"),
                *("a/b/c", "a b/c", "", 3),
            )
        ),
        *((given, "extensions must be a mapping") for given in (["com.example/maps"], "a.b/c", 3)),
        *(
            ({"com.example/maps": settings}, r"settings of com\.example/maps must be a mapping")
            for settings in (None, True, "x", [1])
        ),
    ],
)
def test_extensions_are_settings_by_identifiers_with_a_prefix(given: object, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        check_extensions(given)


def test_extensions_that_were_checked_are_a_copy() -> None:
    settings = {"scale": 3}
    given = {"com.example/maps": settings}
    checked = check_extensions(given)
    given.clear()
    settings.clear()
    assert checked == MAPS


@pytest.mark.requirement("VER-20")
@pytest.mark.parametrize("revision", REVISIONS)
def test_an_extension_is_declared_when_it_is_switched_on_and_not_otherwise(revision: str) -> None:
    for extensions in ({}, MAPS):
        assert declared(revision, NO_OFFER, extensions).get("extensions", {}) == extensions


ALL_DECLARED: dict[str, Any] = {
    **{name: {} for name in ("completions", "logging", "tools")},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True},
    "tasks": {"list": {}, "cancel": {}},
}
# The replacements of requests in the newest revision.
INSTEAD = {
    "ping": ": any other request shows whether the server answers",
    "resources/subscribe": ": listen(uris=...) watches resources",
    "resources/unsubscribe": ": listen(uris=...) watches resources",
}


def closed(revision: str, capabilities: dict[str, Any]) -> dict[str, Unavailable]:
    return unavailable_requests(dialect_for(revision, None), capabilities)


@pytest.mark.requirement("VER-06")
@pytest.mark.parametrize("revision", REVISIONS)
def test_a_server_can_be_asked_what_the_revision_has_and_it_declares(revision: str) -> None:
    dialect = dialect_for(revision, None)
    needs = {method: dialect.required_capability(method) for method in KNOWN_REQUESTS}
    gated = closed(revision, ALL_DECLARED)
    assert gated.keys() == {method for method, path in needs.items() if path is None}
    for method, (reason, undeclared) in gated.items():
        assert not undeclared
        if revision == NEWEST and method in ("tasks/cancel", "tasks/get", "tasks/update"):
            assert reason.startswith("the extension io.modelcontextprotocol/tasks is not enabled")
        else:
            hint = INSTEAD.get(method, "") if revision == NEWEST else ""
            assert reason == f"revision {revision} has no such request{hint}"
    # A server whose capabilities are unknown may have all of them.
    assert closed(revision, every_capability(dialect)) == gated
    # A server that declares nothing can get the requests that need no capability.
    gated = closed(revision, {})
    assert KNOWN_REQUESTS - gated.keys() == {m for m, path in needs.items() if path == ()}
    assert {m for m, gate in gated.items() if gate.undeclared} == {m for m in needs if needs[m]}


@pytest.mark.requirement("VER-06")
def test_the_whole_name_of_a_missing_capability_is_said() -> None:
    reasons = closed("2025-11-25", {"tools": {}, "resources": {}})
    assert not reasons.keys() & {"tools/call", "resources/read"}
    remedy = "; in a test, register the first prompt before the client connects"
    names = {
        "prompts/get": ("prompts", remedy),
        "resources/subscribe": ("resources.subscribe", ""),
    }
    for method, (name, more) in names.items():
        assert reasons[method].reason == (
            f"the server does not declare the capability {name}"
            f' (undeclared="try" sends the request anyway{more})'
        )


def test_whatever_a_server_writes_for_yes_or_no_is_one() -> None:
    for said in ({}, {"x": 1}, True, "yes", 1):
        assert "tools/call" not in closed("2025-11-25", {"tools": said})
    for no in (None, False):
        assert "tools/call" in closed("2025-11-25", {"tools": no})
        assert "resources/subscribe" in closed("2025-11-25", {"resources": {"subscribe": no}})
    for partless in (True, "subscribe", ["subscribe"], 5, None):
        assert "resources/subscribe" in closed("2025-11-25", {"resources": partless})


@pytest.mark.parametrize(
    ("required", "hint"),
    [
        ({"elicitation": {"form": {}}}, "pass the client a handler: elicitation="),
        (
            {"elicitation": {"url": {}}, "roots": {}},
            "pass the client a handler: elicitation=Elicitation(form=..., url=...), roots=",
        ),
        (
            {"sampling": {"tools": {}}},
            "pass the client a handler: sampling=Sampling(model, tools=True)",
        ),
        ({"extensions": {"io.example/tasks": {}}}, "enable it with extensions={NAME: {}}"),
        ({"extensions": 1, "other": {}}, None),
        ("all", None),
    ],
)
def test_a_missing_capability_names_the_option_that_declares_it(
    required: Any, hint: str | None
) -> None:
    assert server_error(-32021, "no", {"requiredCapabilities": required}).hint == hint
    assert server_error(-32021, "no", required).hint is None
    assert server_error(-32021, "no", required, server="shop").server == "shop"
    assert server_error(-32020, "no", {"requiredCapabilities": required}).hint is None
