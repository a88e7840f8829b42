"""Extensions that a program switches on: what they are called, and how each era declares them."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp._protocol.capabilities import NO_OFFER, check_extensions
from syncmcp._protocol.negotiate import ClientHello
from syncmcp._protocol.revisions import REVISIONS, STATEFUL, STATELESS, session_capabilities
from syncmcp.errors import UsageError

MAPS: dict[str, Any] = {"com.example/maps": {"scale": 3}}


@pytest.mark.requirement("VER-17")
@pytest.mark.parametrize(
    "identifier",
    ["maps", "/maps", "com.example/", "com..example/maps", "1com/maps", "a/b/c", "a b/c", "", 3],
)
def test_an_identifier_without_a_prefix_or_of_another_form_is_refused(identifier: object) -> None:
    with pytest.raises(UsageError, match="no identifier of an extension"):
        check_extensions({identifier: {}})


@pytest.mark.parametrize("given", [["com.example/maps"], "com.example/maps", 3])
def test_extensions_are_a_mapping(given: object) -> None:
    with pytest.raises(UsageError, match="extensions is a mapping"):
        check_extensions(given)


@pytest.mark.parametrize("settings", [None, True, "x", [1]])
def test_settings_are_a_mapping(settings: object) -> None:
    with pytest.raises(UsageError, match=r"settings of com\.example/maps"):
        check_extensions({"com.example/maps": settings})


def test_what_is_checked_is_a_copy() -> None:
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
        hello = ClientHello(None, NO_OFFER, extensions)
        if revision in STATEFUL:
            declared = session_capabilities(revision, NO_OFFER, hello.extensions)
        else:
            params = hello.dialect(revision).request_params("tools/list", None, 1, None, None)
            assert params is not None
            declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert declared.get("extensions", {}) == extensions
    assert set(REVISIONS) == {*STATEFUL, *STATELESS}
