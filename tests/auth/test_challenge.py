"""What a 401 or 403 says about itself."""

from __future__ import annotations

import pytest

from syncmcp.auth.steps import (
    MAX_CHALLENGE,
    AuthChallenge,
    Challenge,
    auth_challenge,
    parse_challenges,
)

pytestmark = pytest.mark.requirement("AUD-02")


def test_quoted_values_may_hold_commas_escapes_and_the_names_of_schemes() -> None:
    header = r'Bearer realm="a, \"b\", Basic c=d\\", scope="x y"'
    assert parse_challenges(header) == [
        Challenge("bearer", {"realm": r'a, "b", Basic c=d\ '[:-1], "scope": "x y"})
    ]


def test_several_challenges_in_one_value_are_told_apart() -> None:
    header = 'Basic realm="r", Bearer error="invalid_token", scope="a" , DPoP algs="ES256"'
    assert parse_challenges(header) == [
        Challenge("basic", {"realm": "r"}),
        Challenge("bearer", {"error": "invalid_token", "scope": "a"}),
        Challenge("dpop", {"algs": "ES256"}),
    ]


def test_schemes_and_names_are_told_apart_in_any_case() -> None:
    assert auth_challenge('BEARER Scope="a", RESOURCE_METADATA="https://h/x"') == AuthChallenge(
        "https://h/x", "a"
    )


def test_credentials_without_a_name_are_no_scheme_of_their_own() -> None:
    assert parse_challenges("Negotiate YWJj==, Bearer scope=a") == [
        Challenge("negotiate"),
        Challenge("bearer", {"scope": "a"}),
    ]


@pytest.mark.parametrize(
    "header",
    [
        "Bearer resource_metadata=https://h/.well-known/x?a=b, scope=a",
        'Bearer resource_metadata="https://h/.well-known/x?a=b" scope="a"',
        'Bearer\tresource_metadata = "https://h/.well-known/x?a=b",, scope = a',
        'nonsense" ;, Bearer scope="a", resource_metadata="https://h/.well-known/x?a=b"',
        'scope="lost", Bearer scope="a", resource_metadata=https://h/.well-known/x?a=b',
    ],
)
def test_what_servers_write_is_understood_though_it_is_not_quite_right(header: str) -> None:
    found = auth_challenge(header)
    assert found is not None
    assert found.scope == "a"
    assert found.resource_metadata is not None
    assert found.resource_metadata.startswith("https://h/.well-known/x")


def test_of_a_parameter_given_twice_the_first_counts() -> None:
    assert auth_challenge('Bearer scope="a", scope="b"') == AuthChallenge(scope="a")


def test_what_one_challenge_leaves_out_another_may_say() -> None:
    header = 'DPoP algs="ES256", resource_metadata="https://h/m", Bearer scope="a", error="e"'
    assert auth_challenge(header) == AuthChallenge("https://h/m", "a", "e")


@pytest.mark.parametrize("header", [None, "", 'Basic realm="r"', "Negotiate", '"', "= , ="])
def test_a_response_without_a_challenge_for_tokens_demands_nothing(header: str | None) -> None:
    assert auth_challenge(header) is None


def test_a_bare_challenge_demands_a_token_and_no_more() -> None:
    assert auth_challenge("Bearer") == AuthChallenge()


def test_an_unending_quote_takes_no_time() -> None:
    assert parse_challenges("Bearer x=" + '"\\' * 200_000) == [Challenge("bearer")]


def test_only_the_beginning_of_a_long_header_is_read() -> None:
    assert len(parse_challenges("a," * 300_000)) == MAX_CHALLENGE // 2
    assert auth_challenge("a," * (MAX_CHALLENGE // 2) + "Bearer") is None
