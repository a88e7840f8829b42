"""The questions of the demo server; `test_official_client.py` tests them on transports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncmcp.testing import Server, demo_server
from syncmcp.testing.server.wire import REVISIONS
from tests.testing.talks import Open, text_of
from tests.testing.wires import MODERN


@pytest.fixture
def server() -> Iterator[Server]:
    """The demo server; at the end, it must have recorded no violations."""
    server = demo_server()
    yield server
    assert server.stats.violations == []
    assert server.stats.wait_for(lambda seen: seen.paused == 0)


@pytest.mark.requirement("M-27")
def test_files_are_counted_inside_the_roots_only(talk: Open, tmp_path: Path) -> None:
    root = tmp_path / "a root"
    (root / "deep").mkdir(parents=True)
    for name in ("one", "deep/two", "../secret"):
        (root / name).write_text(name)
    (root / "up").symlink_to(tmp_path)
    client = talk(MODERN)
    ours = {"uri": root.as_uri(), "name": "a"}

    def count(path: Path | str, *roots: dict[str, str]) -> Any:
        answer = client.tool("count_files", {"path": str(path)}, lambda *_: {"roots": roots})
        result = answer["result"]["structuredContent"]
        return result["inside"], result["files"]

    for path, files in ((root, 2), ("deep", 1), (root / "one", 1)):
        assert count(path, ours) == (True, files)
    for path in (tmp_path, root / "deep/../../secret", root / "up"):
        assert count(path, ours) == (False, None)
    assert count(root) == (False, None)
    assert {method for method, _ in client.asked} == {"roots/list"}


def test_a_person_who_declines_is_not_connected(talk: Open) -> None:
    told = talk(MODERN).tool("connect_account", answer=lambda *_: {"action": "decline"})
    assert text_of(told) == "not connected: decline"


def test_a_form_of_2025_06_18_has_only_what_that_revision_knew(talk: Open) -> None:
    client = talk("2025-06-18", {"elicitation": {}})
    client.tool("ask_user_preferences", answer=lambda *_: {"action": "decline"})
    [(_, params)] = client.asked
    assert set(params) == {"message", "requestedSchema"}
    fields = params["requestedSchema"]["properties"].values()
    assert len(fields) > 1
    for field in fields:
        assert field["type"] in ("string", "integer", "number", "boolean")
        assert "oneOf" not in field
        assert field["type"] == "boolean" or "default" not in field


ASKING = {
    "ask_user_preferences": "elicitation",
    "request_llm_help": "sampling",
    "explain_math": "sampling",
    "count_files": "roots",
    "signup_math_facts": "elicitation",
    "connect_account": "elicitation",
}
ARGUMENTS = {"question": "?", "problem": "?", "path": "/"}


@pytest.mark.requirement("M-08")
@pytest.mark.parametrize("revision", REVISIONS)
def test_nothing_is_asked_of_a_client_that_declared_nothing(talk: Open, revision: str) -> None:
    client = talk(revision, {})
    for name, feature in ASKING.items():
        error = client.tool(name, ARGUMENTS)["error"]
        why = "" if revision == MODERN else f": it needs a handler, {feature}="
        if feature == "elicitation" and revision < "2025-06-18":
            why = f": revision {revision} does not have it"
        assert error["message"] == f"The client did not declare {feature}{why}"
        assert error["code"] == (-32021 if revision == MODERN else -32600)
        if revision == MODERN:
            assert error["data"] == {"requiredCapabilities": {feature: {}}}
    assert client.asked == []
