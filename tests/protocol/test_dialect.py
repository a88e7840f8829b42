"""The features of each revision, and how its messages express them."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp._protocol.capabilities import NO_OFFER, OfferedCapabilities
from syncmcp._protocol.dialect import Dialect
from syncmcp._protocol.revisions import (
    KNOWN_NOTIFICATIONS,
    KNOWN_QUESTIONS,
    KNOWN_REQUESTS,
    REVISIONS,
    STATEFUL,
    STATELESS,
    dialect_for,
    newest_common,
    tool_failed,
)
from syncmcp.errors import ProtocolError, UsageError

PREFIX = "io.modelcontextprotocol/"
INFO = {"name": "tests", "version": "1"}
OFFER = OfferedCapabilities(sampling=True, sampling_tools=True)
CAPABILITIES: dict[str, Any] = {"sampling": {"tools": {}}}
NEWEST = "2026-07-28"
STATELESS_ONLY = {"server/discover", "subscriptions/listen", "tasks/update"}
TASKS = {"tasks/cancel", "tasks/get", "tasks/list", "tasks/result"}
SUBSCRIBING = {"resources/subscribe", "resources/unsubscribe"}
SESSION_ONLY = {"initialize", "ping", "logging/setLevel"} | SUBSCRIBING


def speaking(revision: str) -> Dialect:
    return dialect_for(revision, INFO)


def params(
    revision: str, method: str, given: Any = None, meta: Any = None, log_level: str | None = None
) -> dict[str, Any]:
    made = speaking(revision).request_params(method, given, 7, meta, log_level, OFFER)
    assert made is not None
    return made


def test_all_five_revisions_are_there_newest_first_each_in_one_era() -> None:
    assert STATELESS == ("2026-07-28",)
    assert STATEFUL == ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
    assert REVISIONS == STATELESS + STATEFUL
    dialects = [speaking(revision) for revision in REVISIONS]
    assert [dialect.revision for dialect in dialects] == list(REVISIONS)
    assert [dialect.stateful for dialect in dialects] == [False, *[True] * 4]
    assert [dialect.batches for dialect in dialects] == [False, False, False, True, False]
    assert [dialect.content_lists for dialect in dialects] == [True, True, False, False, False]
    questions = {"elicitation/create", "ping", "roots/list", "sampling/createMessage", "tasks/get"}
    assert questions < KNOWN_QUESTIONS
    assert not KNOWN_QUESTIONS & {"tools/call", "acme/ask"}


def test_the_newest_shared_revision_is_found_by_our_order_not_by_comparing_text() -> None:
    for offered, expected in (
        (["2024-11-05", "2025-06-18", "2026-07-28"], "2025-06-18"),
        *((("2024-11-05",), "2024-11-05"), (["2099-01-01", "9999"], None), ([], None)),
        *(([None, 5, {}], None), ("2025-06-18", None), ({"2025-06-18": 1}, None), (None, None)),
    ):
        assert newest_common(offered, STATEFUL) == expected


@pytest.mark.requirement("VER-06")
def test_what_a_revision_lacks_is_missing_from_its_table() -> None:
    for revision, lacking in (
        *((revision, TASKS | STATELESS_ONLY) for revision in STATEFUL[1:]),
        ("2025-11-25", STATELESS_ONLY),
        ("2026-07-28", TASKS | SESSION_ONLY | {"tasks/update"}),
    ):
        dialect = speaking(revision)
        needs = dialect.required_capability
        assert {method for method in KNOWN_REQUESTS if needs(method) is None} == lacking
        assert needs("acme/do") is None
        assert not dialect.supports_notification("notifications/acme")


@pytest.mark.requirement("VER-06")
def test_requests_name_the_server_capability_they_need() -> None:
    for revision in REVISIONS:
        needs = speaking(revision).required_capability
        assert needs("tools/call") == ("tools",)
        assert needs("prompts/get") == ("prompts",)
        assert needs("resources/templates/list") == ("resources",)
        completions = () if revision == "2024-11-05" else ("completions",)
        assert needs("completion/complete") == completions
    needs = speaking("2025-11-25").required_capability
    assert needs("resources/subscribe") == ("resources", "subscribe")
    assert needs("logging/setLevel") == ("logging",)
    assert needs("ping") == ()
    assert needs("tasks/list") == ("tasks", "list")
    assert speaking(NEWEST).required_capability("server/discover") == ()


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_stateful_client_may_send_the_notifications_of_its_revision(revision: str) -> None:
    own = set(filter(speaking(revision).supports_notification, KNOWN_NOTIFICATIONS))
    if revision == NEWEST:
        assert own == set()
    else:
        later = set() if revision == "2025-11-25" else {"notifications/tasks/status"}
        assert own == KNOWN_NOTIFICATIONS - later
        assert "notifications/roots/list_changed" in own


@pytest.mark.requirement("PRG-01", "PRG-02")
@pytest.mark.pitfall("20")
@pytest.mark.parametrize("revision", REVISIONS)
def test_each_request_asks_for_progress_with_its_own_integer_id(revision: str) -> None:
    dialect = speaking(revision)
    made = [dialect.request_params("tools/call", {"name": "x"}, id, None, None) for id in (7, 8)]
    tokens = [one["_meta"]["progressToken"] for one in made if one is not None]
    assert tokens == [7, 8]
    assert [type(token) for token in tokens] == [int, int]


@pytest.mark.parametrize("revision", STATEFUL)
@pytest.mark.parametrize("method", ["initialize", "ping"])
def test_the_handshake_and_a_ping_go_without_progress(revision: str, method: str) -> None:
    dialect = speaking(revision)
    assert dialect.request_params(method, None, 7, None, None) is None
    assert dialect.request_params(method, {"a": 1}, 7, None, None) == {"a": 1}
    both = {"a": 1, "_meta": {"k": 2}}
    assert dialect.request_params(method, {"a": 1}, 7, {"k": 2}, None) == both


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_caller_s_params_and_meta_are_merged_and_left_as_they_were(revision: str) -> None:
    given = {"name": "x", "_meta": {"a": 1, "b": 1, "progressToken": "mine"}}
    meta = {"b": 2}
    made = params(revision, "tools/call", given, meta)
    assert made["name"] == "x"
    assert {"a": 1, "b": 2, "progressToken": 7}.items() <= made["_meta"].items()
    assert given == {"name": "x", "_meta": {"a": 1, "b": 1, "progressToken": "mine"}}
    assert meta == {"b": 2}


@pytest.mark.requirement("RPC-21")
@pytest.mark.parametrize("revision", REVISIONS)
def test_a_meta_key_that_is_not_valid_goes_nowhere(revision: str) -> None:
    with pytest.raises(UsageError, match="not a valid _meta key"):
        params(revision, "tools/call", {"_meta": {"not a key": 1}})


def test_the_context_of_a_completion_goes_only_where_there_is_one() -> None:
    given: dict[str, Any] = {"argument": {}, "context": {"arguments": {}}}
    made = {revision: params(revision, "completion/complete", given) for revision in REVISIONS}
    assert [one for one in REVISIONS if "context" in made[one]] == [*REVISIONS[:3]]
    assert "context" in params("2024-11-05", "acme/other", given)
    assert "context" in given


@pytest.mark.requirement("VER-08", "VER-09", "VER-10", "RPC-27")
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "acme/do"])
def test_every_stateless_request_says_revision_capabilities_and_client(method: str) -> None:
    dialect = speaking(NEWEST)
    for id, offer, said in ((7, OFFER, CAPABILITIES), (8, NO_OFFER, {})):  # for each request
        made = dialect.request_params(method, None, id, None, None, offer)
        assert made is not None
        assert made["_meta"][PREFIX + "protocolVersion"] == NEWEST
        assert made["_meta"][PREFIX + "clientCapabilities"] == said
        assert made["_meta"][PREFIX + "clientInfo"] == INFO
        # A probe requests no progress.
        assert ("progressToken" in made["_meta"]) is (method != "server/discover")
    nameless = dialect_for(NEWEST, None).request_params(method, None, 7, None, None)
    assert nameless is not None
    assert PREFIX + "clientInfo" not in nameless["_meta"]
    assert nameless["_meta"][PREFIX + "clientCapabilities"] == {}


@pytest.mark.requirement("VER-08", "VER-09")
def test_a_caller_cannot_replace_what_the_protocol_says_in_meta() -> None:
    own = {PREFIX + "protocolVersion": "1999-01-01", PREFIX + "clientCapabilities": {"x": {}}}
    meta = params(NEWEST, "tools/call", {"_meta": own}, own)["_meta"]
    assert meta[PREFIX + "protocolVersion"] == NEWEST
    assert meta[PREFIX + "clientCapabilities"] == CAPABILITIES


def test_the_log_level_travels_with_a_stateless_request_and_only_there() -> None:
    level = PREFIX + "logLevel"
    assert params(NEWEST, "tools/call", None, None, "debug")["_meta"][level] == "debug"
    assert level not in params(NEWEST, "tools/call")["_meta"]
    assert params(NEWEST, "tools/call", None, {level: "info"})["_meta"][level] == "info"
    older = params("2025-11-25", "tools/call", None, None, "debug")
    assert older == {"_meta": {"progressToken": 7}}


@pytest.mark.requirement("HTM-03", "HTM-04")
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "acme/do"])
def test_a_stateless_request_repeats_revision_and_method_in_its_headers(method: str) -> None:
    dialect = speaking(NEWEST)
    made = dialect.request_params(method, {}, 7, None, None)
    assert made is not None
    headers = dialect.headers(method, made)
    assert headers["MCP-Protocol-Version"] == made["_meta"][PREFIX + "protocolVersion"] == NEWEST
    assert headers["Mcp-Method"] == method


@pytest.mark.requirement("HTM-05", "HTM-06", "TSX-06")
@pytest.mark.parametrize(
    ("method", "key"),
    [
        *(("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")),
        *((f"tasks/{verb}", "taskId") for verb in ("get", "update", "cancel")),
    ],
)
def test_the_name_of_what_is_used_is_repeated_in_a_header(method: str, key: str) -> None:
    headers = speaking(NEWEST).headers
    for name, header in (("a b#c", "a b#c"), ("grüße\r\n", "=?base64?Z3LDvMOfZQ0K?="), ("", "")):
        used = {"name": "x", "uri": "x", "taskId": "x", key: name}
        assert headers(method, used)["Mcp-Name"] == header
    for strange in (None, {}, {key: None}, {key: 5}):
        assert "Mcp-Name" not in headers(method, strange)
    assert "Mcp-Name" not in headers("tools/list", {key: "x"})


@pytest.mark.requirement("HTL-14", "HTM-11")
def test_a_stateful_client_names_its_revision_after_the_start() -> None:
    for revision in STATEFUL:
        assert speaking(revision).session_headers() == {"MCP-Protocol-Version": revision}
        assert speaking(revision).headers("tools/call", {"name": "x"}) == {}
    assert speaking(NEWEST).session_headers() == {}


@pytest.mark.requirement("STD-05", "HTM-09", "HTL-06")
def test_a_cancel_is_said_unless_closing_a_stateless_request_s_own_stream_says_it() -> None:
    for revision in REVISIONS:
        assert speaking(revision).notifies_cancel(own_stream=True) is (revision != NEWEST)
        assert speaking(revision).notifies_cancel(own_stream=False)


@pytest.mark.requirement("RPC-15")
@pytest.mark.parametrize("result", [{}, {"tools": []}, {"resultType": "complete"}])
def test_a_stateless_result_without_a_kind_is_a_finished_one(result: dict[str, Any]) -> None:
    assert speaking(NEWEST).read_result("tools/call", result) is result


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_result_is_an_object_and_has_a_kind_in_the_newest_revision_alone(revision: str) -> None:
    no_objects: list[Any] = [None, 5, "text", [], True]
    for result in no_objects:
        with pytest.raises(ProtocolError, match="not an object") as caught:
            speaking(revision).read_result("tools/list", result)
        assert caught.value.method == "tools/list"
    if revision != NEWEST:
        later = {"resultType": "of a later revision"}
        assert speaking(revision).read_result("tools/call", later) is later


@pytest.mark.requirement("RPC-16")
@pytest.mark.parametrize("kind", ["task", "Complete", "", None, 5, ["complete"], {}])
def test_a_stateless_result_of_an_unknown_kind_fails_the_call(kind: Any) -> None:
    with pytest.raises(ProtocolError, match="unknown type") as caught:
        speaking(NEWEST).read_result("tools/call", {"resultType": kind, "content": []})
    assert repr(kind) in str(caught.value)
    assert caught.value.method == "tools/call"


def test_a_tool_failed_if_its_result_says_so() -> None:
    failed = [tool_failed({"isError": said}) for said in (True, False, "true")]
    assert [*failed, tool_failed({})] == [True, False, False, False]
