"""The challenges in responses with status 401 or 403."""

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


@pytest.mark.parametrize(
    ("header", "challenges"),
    [
        (
            r'Bearer realm="a, \"b\", Basic c=d\\", scope="x y"',
            [Challenge("bearer", {"realm": 'a, "b", Basic c=d\\', "scope": "x y"})],
        ),
        (
            'Basic realm="r", Bearer error="invalid_token", scope="a" , DPoP algs="ES256"',
            [
                Challenge("basic", {"realm": "r"}),
                Challenge("bearer", {"error": "invalid_token", "scope": "a"}),
                Challenge("dpop", {"algs": "ES256"}),
            ],
        ),
        *(
            (
                f"Negotiate {credentials}, Bearer scope=a",
                [Challenge("negotiate"), Challenge("bearer", {"scope": "a"})],
            )
            for credentials in ("YWJj==", "YWJj")
        ),
        ("Bearer x=" + '"\\' * 200_000, [Challenge("bearer")]),
    ],
    ids=["quoted", "several", "credentials without a name", "like one", "a quote without end"],
)
def test_challenges_are_told_apart(header: str, challenges: list[Challenge]) -> None:
    assert parse_challenges(header) == challenges


@pytest.mark.parametrize(
    ("header", "demand"),
    [
        ('BEARER Scope="a", RESOURCE_METADATA="https://h/x"', AuthChallenge("https://h/x", "a")),
        ('Bearer scope="a", scope="b"', AuthChallenge(scope="a")),
        (
            'DPoP algs="ES256", resource_metadata="https://h/m", Bearer scope="a", error="e"',
            AuthChallenge("https://h/m", "a", "e"),
        ),
        ("Bearer", AuthChallenge()),
        *((header, None) for header in (None, "", 'Basic realm="r"', "Negotiate", '"', "= , =")),
        pytest.param("a," * (MAX_CHALLENGE // 2) + "Bearer", None, id="long"),
    ],
)
def test_what_a_response_demands(header: str | None, demand: AuthChallenge | None) -> None:
    assert auth_challenge(header) == demand


def test_only_the_beginning_of_a_long_header_is_read() -> None:
    assert len(parse_challenges("a," * 300_000)) == MAX_CHALLENGE // 2


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
