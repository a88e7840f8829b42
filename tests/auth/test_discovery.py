"""Discovery: which metadata the client fetches, in which order, and which it accepts.

Also the scope that it requests.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from syncmcp.auth.discovery import (
    AuthServer,
    canonical_resource,
    covers,
    discover,
    find_resource,
    find_server,
    missing_scopes,
    require_pkce,
    select_scope,
    union_scopes,
)
from syncmcp.auth.steps import HttpResponse
from syncmcp.errors import DiscoveryFailed
from syncmcp.types.extensions import AuthorizationServerMetadata
from tests.auth.stepping import NOTHING, Walk, told

SERVER = "https://mcp.example/mcp"
PATH_FORM = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
ROOT_FORM = "https://mcp.example/.well-known/oauth-protected-resource"
ISSUER = "https://as.example"
OAUTH_FORM = "https://as.example/.well-known/oauth-authorization-server"
OPENID_FORM = "https://as.example/.well-known/openid-configuration"
HTML = HttpResponse(200, {}, b"<html>welcome</html>")


def resource(**more: Any) -> HttpResponse:
    return told({"resource": SERVER, "authorization_servers": [ISSUER], **more})


def server(issuer: str = ISSUER, **more: Any) -> HttpResponse:
    return told({"issuer": issuer, "token_endpoint": f"{issuer}/token", **more})


CUSTOM, GONE = "https://mcp.example/custom", "https://mcp.example/gone"


@pytest.mark.requirement("AUD-03")
@pytest.mark.parametrize(
    ("url", "hint", "there", "asked"),
    [
        (SERVER, CUSTOM, CUSTOM, [CUSTOM]),
        (SERVER, None, ROOT_FORM, [PATH_FORM, ROOT_FORM]),
        (SERVER, GONE, PATH_FORM, [GONE, PATH_FORM]),
        ("https://mcp.example", None, None, [ROOT_FORM]),
        ("https://mcp.example/", None, None, [ROOT_FORM]),
    ],
    ids=["challenge", "path, then root", "challenge that leads nowhere", "root", "root/"],
)
def test_metadata_of_a_resource_are_looked_for_in_this_order(
    url: str, hint: str | None, there: str | None, asked: list[str]
) -> None:
    walk = Walk({there: resource()} if there else {})
    assert (walk.run(find_resource(url, hint)) is None) == (there is None)
    assert walk.urls == asked


@pytest.mark.requirement("AUD-01")
@pytest.mark.parametrize(
    "absent",
    [
        *(NOTHING, told({}, 302), told({}, 401), HTML, told(["a"]), told({"a": 1})),
        pytest.param(HttpResponse(200, {}, b"[" * 200_000), id="without end"),
        pytest.param(resource(x="\ud800"), id="half a character"),  # cannot be encoded in a request
    ],
)
def test_what_is_no_document_counts_as_absent(absent: HttpResponse) -> None:
    walk = Walk({PATH_FORM: absent, ROOT_FORM: resource()})
    assert walk.run(find_resource(SERVER)) is not None
    assert walk.urls == [PATH_FORM, ROOT_FORM]


@pytest.mark.requirement("AUD-01")
@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_metadata_that_cannot_be_had_now_do_not_count_as_absent(status: int) -> None:
    walk = Walk({PATH_FORM: told({}, status)})
    with pytest.raises(DiscoveryFailed) as caught:
        walk.run(discover(SERVER))
    assert caught.value.status == status
    assert caught.value.message == "the authorization metadata is temporarily unavailable"
    assert walk.urls == [PATH_FORM]


@pytest.mark.requirement("AUD-01", "AUD-07")
@pytest.mark.parametrize(
    ("form", "metadata"),
    [
        (PATH_FORM, {"resource": ["canary"], "authorization_servers": []}),
        (OAUTH_FORM, {"token_endpoint": "https://as.example/canary"}),  # without an issuer
    ],
)
def test_malformed_metadata_are_an_error_that_quotes_nothing(form: str, metadata: Any) -> None:
    walk = Walk({PATH_FORM: resource(), form: told(metadata)})
    with pytest.raises(DiscoveryFailed, match=r"malformed: \w+ has 1 error") as caught:
        walk.run(discover(SERVER))
    assert "canary" not in str(caught.value)


@pytest.mark.requirement("AUD-12", "FLW-05")
@pytest.mark.parametrize(
    "identifier",
    [
        *(f"https://mcp.example{path}" for path in ("/mcp", "/mcp/", "", "/")),
        "HTTPS://MCP.example:443/mcp",
    ],
)
def test_the_resource_is_taken_letter_by_letter_when_it_covers_the_server(identifier: str) -> None:
    walk = Walk(
        {CUSTOM: resource(resource=identifier, scopes_supported=["a"]), OAUTH_FORM: server()}
    )
    found = walk.run(discover(SERVER, CUSTOM))
    assert (found.resource, found.scopes) == (identifier, ("a",))


@pytest.mark.requirement("AUD-12")
@pytest.mark.parametrize(
    "identifier",
    [
        *("https://evil.example/mcp", "http://mcp.example/mcp", "https://mcp.example:8443/mcp"),
        *(f"https://mcp.example/{end}" for end in ("mc", "mcp/below", "mcp?tenant=1", "mcp#part")),
        *("https://user@mcp.example/mcp", "https://mcp.example:port/mcp"),
        *("https://mcp.example/m\tcp", "\n https://mcp.example/mcp"),
        *("https://mcp.example/\u200bmcp", "mcp.example/mcp", ""),
    ],
)
def test_metadata_about_another_resource_are_refused(identifier: str) -> None:
    walk = Walk({PATH_FORM: resource(resource=identifier), OAUTH_FORM: server()})
    with pytest.raises(DiscoveryFailed, match="describes another server"):
        walk.run(discover(SERVER))
    assert walk.urls == [PATH_FORM]


def test_metadata_with_a_host_that_takes_seconds_to_normalize_are_refused_at_once() -> None:
    marks = "\u0301\u0316" * 30_000
    walk = Walk({PATH_FORM: resource(resource=f"https://mcp.example{marks}/mcp")})
    before = time.process_time()
    with pytest.raises(DiscoveryFailed, match="describes another server"):
        walk.run(discover(SERVER))
    walk = Walk({PATH_FORM: resource(authorization_servers=[f"https://issuer.example{marks}"])})
    with pytest.raises(DiscoveryFailed, match="not the identifier"):
        walk.run(discover(SERVER))
    assert time.process_time() - before < 0.5


@pytest.mark.parametrize("character", [" ", "\\", "\x7f", "\u202e"])
def test_an_address_that_parsers_read_differently_covers_nothing(character: str) -> None:
    assert not covers(f"https://h/a{character}b", f"https://h/a{character}b")


def test_a_resource_with_a_query_covers_just_that() -> None:
    assert covers("https://h/mcp?tenant=1", "https://h/mcp?tenant=1")
    assert not covers("https://h/mcp?tenant=1", "https://h/mcp?tenant=2")


TENANT = f"{ISSUER}/tenant1"


@pytest.mark.requirement("AUD-04", "AUD-05", "AUD-06")
@pytest.mark.parametrize(
    ("issuer", "asked"),
    [
        *((issuer, [OAUTH_FORM, OPENID_FORM]) for issuer in (ISSUER, f"{ISSUER}/")),  # no path
        (
            TENANT,
            [
                *(f"{form}/tenant1" for form in (OAUTH_FORM, OPENID_FORM)),
                f"{TENANT}/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_metadata_of_an_issuer_are_looked_for_in_this_order(issuer: str, asked: list[str]) -> None:
    walk = Walk({asked[-1]: server(issuer)})
    found = walk.run(find_server(issuer))
    assert found is not None
    assert found.issuer == issuer
    assert walk.urls == asked


@pytest.mark.requirement("AUD-07")
@pytest.mark.parametrize(
    "other", [f"{ISSUER}/", "https://AS.example", "https://as.example:443", "x"]
)
def test_metadata_of_another_issuer_are_not_used_nor_is_another_address_tried(other: str) -> None:
    walk = Walk({PATH_FORM: resource(), OAUTH_FORM: server(other), OPENID_FORM: server()})
    with pytest.raises(DiscoveryFailed, match="another issuer"):
        walk.run(discover(SERVER))
    assert walk.urls == [PATH_FORM, OAUTH_FORM]


@pytest.mark.parametrize(
    "issuer",
    [
        *("", "as.example", "https://", "https://as.example?x", "https://as.example#x"),
        *("https://[as", "https://as.example:0"),
    ],
)
def test_what_is_no_issuer_is_not_asked(issuer: str) -> None:
    walk = Walk({PATH_FORM: resource(authorization_servers=[issuer])})
    with pytest.raises(DiscoveryFailed, match="not the identifier"):
        walk.run(discover(SERVER))
    assert walk.urls == [PATH_FORM]


@pytest.mark.parametrize("servers", [None, [], "https://as.example"])
def test_a_resource_that_names_no_authorization_server_is_an_error(servers: Any) -> None:
    walk = Walk({PATH_FORM: resource(authorization_servers=servers)})
    with pytest.raises(DiscoveryFailed) as caught:
        walk.run(discover(SERVER))
    assert caught.value.message == "the server's metadata names no authorization server"


def test_of_several_authorization_servers_the_one_of_the_last_login_is_taken() -> None:
    other = "https://other.example"
    pages = {
        PATH_FORM: resource(authorization_servers=[ISSUER, other]),
        OAUTH_FORM: server(),
        f"{other}/.well-known/oauth-authorization-server": server(other),
    }
    for known, taken in (((), ISSUER), ([other], other), (["https://gone.example"], ISSUER)):
        assert Walk(pages).run(discover(SERVER, known=known)).metadata.issuer == taken


@pytest.mark.requirement("REG-08")
def test_a_server_that_names_others_than_the_configured_issuer_is_refused() -> None:
    walk = Walk({PATH_FORM: resource(), OAUTH_FORM: server()})
    assert walk.run(discover(SERVER, issuer=ISSUER)).metadata.issuer == ISSUER
    for mine, end in (
        ("https://mine.example", ""),
        (f"{ISSUER}/", " (the / at the end differs)"),
        (f"{ISSUER}//", " (the / at the end differs)"),
    ):
        with pytest.raises(DiscoveryFailed) as caught:
            walk.run(discover(SERVER, issuer=mine))
        assert caught.value.message == (
            f"the server accepts tokens from {ISSUER!r}, but not from the issuer that was named,"
            f" {mine!r}{end}"
        )


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "nobody"),
        (2, "'https://as-0', 'https://as-1'"),
        (3, "'https://as-0', 'https://as-1', 'https://as-2'"),
        (4, "'https://as-0', 'https://as-1', 'https://as-2' and 1 other"),
        (1000, "'https://as-0', 'https://as-1', 'https://as-2' and 997 others"),
    ],
)
def test_an_error_names_a_few_of_many_authorization_servers(number: int, shown: str) -> None:
    listed = [f"https://as-{one}" for one in range(number)]
    walk = Walk({PATH_FORM: resource(authorization_servers=listed)})
    with pytest.raises(DiscoveryFailed) as caught:
        walk.run(discover(SERVER, issuer="https://mine.example"))
    assert caught.value.message.startswith(f"the server accepts tokens from {shown}, but not from")


@pytest.mark.parametrize(("length", "shown"), [(200, True), (201, False)])
def test_a_long_issuer_is_not_shown(length: int, shown: bool) -> None:
    issuer = f"{ISSUER}/".ljust(length, "x")
    walk = Walk({PATH_FORM: resource(authorization_servers=[issuer])})
    with pytest.raises(DiscoveryFailed) as caught:
        walk.run(discover(SERVER, issuer=ISSUER))
    assert (repr(issuer) if shown else "tokens from (too long to be shown),") in str(caught.value)


@pytest.mark.requirement("AUD-08", "AUD-09")
@pytest.mark.parametrize("slash", ["", "/"])  # of its issuer, which no other document names
def test_an_old_server_is_its_own_authorization_server(slash: str) -> None:
    origin = "https://mcp.example"
    walk = Walk({f"{origin}/.well-known/oauth-authorization-server": server(f"{origin}{slash}")})
    place = walk.run(discover(SERVER))
    assert place.metadata.issuer == f"{origin}{slash}"
    assert place.metadata.token_endpoint == f"{origin}{slash}/token"
    assert place.published
    assert walk.urls == [PATH_FORM, ROOT_FORM, f"{origin}/.well-known/oauth-authorization-server"]
    assert {fetch.headers["MCP-Protocol-Version"] for fetch in walk.asked} == {"2025-11-25"}


@pytest.mark.requirement("AUD-07", "AUD-08")
@pytest.mark.parametrize(
    "issuer", ["https://mcp.example//", "https://mcp.example/mcp", "https://evil.example/"]
)
def test_an_old_server_cannot_speak_for_another_issuer(issuer: str) -> None:
    place = "https://mcp.example/.well-known/oauth-authorization-server"
    with pytest.raises(DiscoveryFailed, match="another issuer"):
        Walk({place: server(issuer)}).run(discover(SERVER))


@pytest.mark.requirement("AUD-08")
def test_an_old_server_without_any_metadata_has_the_three_customary_addresses() -> None:
    origin = "https://mcp.example:8443"
    found = Walk().run(discover(f"{origin}/mcp"))
    assert found.metadata.authorization_endpoint == f"{origin}/authorize"
    assert found.metadata.token_endpoint == f"{origin}/token"
    assert found.metadata.registration_endpoint == f"{origin}/register"
    assert found.resource == f"{origin}/mcp"
    assert not found.published
    require_pkce(found)


def test_the_configured_issuer_of_an_old_server_is_asked_and_who_has_no_metadata_not_used() -> None:
    walk = Walk({OAUTH_FORM: server()})
    assert walk.run(discover(SERVER, issuer=ISSUER)).metadata.issuer == ISSUER
    with pytest.raises(DiscoveryFailed, match="has no metadata"):
        Walk().run(discover(SERVER, issuer=ISSUER))
    with pytest.raises(DiscoveryFailed, match="has no metadata"):
        Walk({PATH_FORM: resource()}).run(discover(SERVER))


@pytest.mark.requirement("FLW-03")
@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256"])
def test_a_server_that_does_not_offer_pkce_is_refused(methods: Any) -> None:
    metadata = AuthorizationServerMetadata.from_wire(
        {"issuer": ISSUER, "code_challenge_methods_supported": methods}
    )
    with pytest.raises(DiscoveryFailed, match="PKCE"):
        require_pkce(AuthServer(SERVER, None, metadata))


@pytest.mark.requirement("FLW-05")
@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("https://h/mcp", "https://h/mcp"),
        ("HTTPS://H.Example:443/Mcp", "https://h.example/Mcp"),
        ("http://h:8080/", "http://h:8080"),
        ("https://h", "https://h"),
        ("https://u:p@h/mcp/?key=secret#part", "https://h/mcp/"),
        ("http://[::1]:8000/mcp", "http://[::1]:8000/mcp"),
    ],
)
def test_the_canonical_address_of_a_server(url: str, canonical: str) -> None:
    assert canonical_resource(url) == canonical


def test_members_that_nobody_knows_are_kept_and_malformed_hints_are_dropped() -> None:
    found = AuthorizationServerMetadata.from_wire(
        {"issuer": ISSUER, "x_new": 1, "scopes_supported": "a b", "revocation_endpoint": 7}
    )
    assert found.scopes_supported is None
    assert found.revocation_endpoint is None
    assert found.to_wire()["x_new"] == 1


# -- the requested scope


def place(scopes: tuple[str, ...] | None = None, **more: Any) -> AuthServer:
    return AuthServer(
        SERVER, scopes, AuthorizationServerMetadata.from_wire({"issuer": ISSUER, **more})
    )


@pytest.mark.requirement("SCO-01", "SCO-02", "SCO-03", "SCO-04")
@pytest.mark.parametrize(
    ("scopes", "options", "selected"),
    [
        (("c",), {"challenged": "a b"}, "a b"),  # a challenge replaces the metadata
        (("a", "b"), {}, "a b"),
        (None, {}, None),
        ((), {}, None),
        # The program's scopes replace those of the metadata, but are added to a challenge's.
        (("a", "b"), {"configured": ["mine"]}, "mine"),
        (("a", "b"), {"configured": ["mine"], "challenged": "a"}, "mine a"),
        # The scope requested before is requested again.
        (("z",), {"challenged": "b a", "earlier": "a c"}, "a c b"),
        (("z",), {"configured": ["mine"], "earlier": "a"}, "a mine"),
        (("z",), {"earlier": "a"}, "a z"),
    ],
)
def test_which_scope_is_asked_for(scopes: Any, options: Any, selected: str | None) -> None:
    supported = None if scopes else ["x", "offline_access"]
    assert select_scope(place(scopes, scopes_supported=supported), **options) == selected


@pytest.mark.requirement("TOK-08")
def test_offline_access_is_asked_for_where_the_server_lists_it() -> None:
    listed = place(("a",), scopes_supported=["a", "offline_access"])
    assert select_scope(listed) == "a offline_access"
    without = place(("a",), scopes_supported=["offline_access"], grant_types_supported=["implicit"])
    assert select_scope(without) == "a"
    granted = ["implicit", "refresh_token"]
    renewed = place(("a",), scopes_supported=["offline_access"], grant_types_supported=granted)
    assert select_scope(renewed) == "a offline_access"


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
