"""The demo server's tools that ask, in both eras; `test_official_client.py` has them on wires."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncmcp.testing import Server, demo_server
from syncmcp.testing.server.wire import REVISIONS
from tests.testing.talks import MODEL, NEWEST_STATEFUL, Open, both_eras, text_of
from tests.testing.wires import MODERN


@pytest.fixture
def server() -> Iterator[Server]:
    """The demo server, which has nothing to complain of in the end."""
    server = demo_server()
    yield server
    assert server.stats.violations == []
    assert server.stats.wait_for(lambda seen: seen.paused == 0)


@pytest.mark.requirement("M-21", "M-26")
@both_eras
def test_the_demo_server_asks_a_person_and_a_model(talk: Open, revision: str) -> None:
    client = talk(revision)
    stateful = revision == NEWEST_STATEFUL
    given = {"outputFormat": "json", "verbosity": "low", "includeTimestamps": False}
    reply = {"action": "accept", "content": given}
    answer = client.tool("ask_user_preferences", answer=lambda *_: reply)
    assert answer["result"]["structuredContent"] == reply
    assert client.rounds == (0 if stateful else 1)
    helped = client.tool("request_llm_help", {"question": "6*7?"}, lambda *_: MODEL)
    explained = client.tool("explain_math", {"problem": "1/3+1/6"}, lambda *_: MODEL)
    assert text_of(helped) == text_of(explained) == "42"
    for action, said in (("decline", "not connected: decline"), ("accept", "connected to example")):
        reply = {"action": action}
        assert text_of(client.tool("connect_account", answer=lambda *_: reply)) == said  # noqa: B023

    form, question, problem, page, last = client.asked
    assert (form[0], form[1]["mode"]) == ("elicitation/create", "form")
    schema = form[1]["requestedSchema"]
    fields = schema["properties"]
    assert schema["required"] == ["outputFormat"]
    assert fields["outputFormat"]["enum"] == ["json", "markdown", "plain"]
    assert [option["const"] for option in fields["verbosity"]["oneOf"]] == ["low", "medium", "high"]
    assert fields["includeTimestamps"]["default"] is True
    message = {"role": "user", "content": {"type": "text", "text": "6*7?"}}
    assert question == ("sampling/createMessage", {"messages": [message], "maxTokens": 500})
    assert "tutor" in problem[1]["systemPrompt"]
    assert "1/3+1/6" in problem[1]["messages"][0]["content"]["text"]
    assert (page[0], page[1]["mode"]) == ("elicitation/create", "url")
    assert page[1]["url"].startswith("https://example.com/connect?ticket=")
    assert ("elicitationId" in page[1]) == stateful
    told = {
        "jsonrpc": "2.0",
        "method": "notifications/elicitation/complete",
        "params": {"elicitationId": last[1].get("elicitationId")},
    }
    assert client.notes == ([told] if stateful else [])


@pytest.mark.requirement("M-27")
@both_eras
def test_files_are_counted_inside_the_roots_only(talk: Open, revision: str, tmp_path: Path) -> None:
    root = tmp_path / "a root"
    (root / "deep").mkdir(parents=True)
    for name in ("one", "deep/two", "deep/three", "../secret"):
        (root / name).write_text(name)
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    client = talk(revision)
    ours = {"uri": root.as_uri(), "name": "a"}

    def count(path: Path | str, *roots: dict[str, str]) -> Any:
        answer = client.tool("count_files", {"path": str(path)}, lambda *_: {"roots": roots})
        result = answer["result"]["structuredContent"]
        return result["inside"], result["files"]

    for path, files in ((root, 3), ("deep", 2), (root / "one", 1)):
        assert count(path, ours) == (True, files)
    for path in (tmp_path, root / "deep/../../secret", root / "up"):
        assert count(path, ours) == (False, None)
    assert count(root) == (False, None)
    assert {method for method, _ in client.asked} == {"roots/list"}


@pytest.mark.requirement("M-28")
@both_eras
def test_a_person_signs_up_or_does_not(talk: Open, revision: str) -> None:
    client = talk(revision)
    accepted = {"action": "accept", "content": {"name": "Ada", "email": "ada@example.com"}}
    for reply in (accepted, {"action": "decline"}, {"action": "cancel"}):
        answer = client.tool("signup_math_facts", answer=lambda *_: reply)  # noqa: B023
        assert answer["result"]["structuredContent"] == reply
    schema = client.asked[0][1]["requestedSchema"]
    assert schema["required"] == ["name", "email"]
    assert schema["properties"]["email"]["format"] == "email"
    assert schema["properties"]["favouriteNumber"]["type"] == "integer"


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
