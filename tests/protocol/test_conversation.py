"""Tool uses and their results, and answers for older revisions."""

from __future__ import annotations

import time
from typing import Any

import pytest

from syncmcp._protocol.conversation import check_tool_results, single_block, tool_uses
from syncmcp.types import CreateMessageResult, SamplingMessage

TEXT = {"type": "text", "text": "hello"}
ALL = frozenset({"text", "image", "audio"})
STOP = {"stopReason": "endTurn"}


def use(id: str, name: str = "add") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def result(id: str) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": id, "content": [TEXT]}


def said(role: str, *blocks: dict[str, Any]) -> SamplingMessage:
    return SamplingMessage.from_wire({"role": role, "content": list(blocks)})


def answer(content: Any) -> CreateMessageResult:
    said = {"role": "assistant", "model": "m", "content": content}
    return CreateMessageResult.from_wire({**said, **STOP})


QUESTION = said("user", TEXT)


NOTHING_ELSE = "^A message with tool results may hold nothing else.$"
USED, DONE = said("assistant", use("a")), said("user", result("a"))


@pytest.mark.requirement("SAMP-05")
def test_a_conversation_whose_tool_uses_all_have_their_result_is_balanced() -> None:
    for messages in (
        *([], [QUESTION]),
        [SamplingMessage.from_wire({"role": "user", "content": TEXT}), said("assistant", TEXT)],
        [QUESTION, USED, DONE],
        [QUESTION, said("assistant", TEXT, use("a"), use("b")), said("user", *map(result, "ba"))],
        # An id may be repeated in a later turn: some models restart their counter.
        [*(QUESTION, USED, DONE), *(USED, DONE, said("assistant", TEXT))],
        [QUESTION, USED, said("user", {**result("a"), "isError": True})],
    ):
        check_tool_results(messages)


@pytest.mark.requirement("SAMP-05", "SAMP-06")
@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([QUESTION, USED], "missing for the tool uses 'a'"),
        ([USED, said("user", TEXT)], "missing for the tool uses 'a'"),
        (
            [said("assistant", use("b"), use("a")), said("user", result("c"))],
            "missing for the tool uses 'a', 'b'",
        ),
        ([USED, said("assistant", TEXT), DONE], "missing for the tool uses 'a'"),
        ([QUESTION, DONE], "'a' belongs to no tool use"),
        ([USED, said("user", *map(result, "ab"))], "'b' belongs to no tool"),
        ([USED, said("user", *map(result, "aa"))], "'a' belongs to no tool"),
        ([USED, DONE, DONE], "'a' belongs to no tool use"),
        ([USED, said("user", result("a"), TEXT)], NOTHING_ELSE),
        ([USED, said("user", result("a"), {"type": "odd"})], NOTHING_ELSE),
        (
            [USED, said("assistant", result("a"))],
            "^Only messages of the user may hold tool results.$",
        ),
        ([said("user", use("a")), DONE], "^Only messages of the assistant may use tools.$"),
        ([said("assistant", use("a"), use("a"))], "Two tool uses in one message have the id 'a'"),
    ],
)
def test_a_tool_use_without_its_result_or_a_result_without_its_use_is_told(
    messages: list[SamplingMessage], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        check_tool_results(messages)


def test_the_one_result_too_many_is_found_in_linear_time() -> None:
    ids = [str(number) for number in range(30_000)]
    messages = [
        said("assistant", *map(use, ids)),
        said("user", *({**result(id), "content": []} for id in (*ids, ids[-1]))),
    ]
    started = time.thread_time()
    problem = "'29999' belongs to no tool use, or to one that has a result"
    with pytest.raises(ValueError, match=problem):
        check_tool_results(messages)
    assert time.thread_time() - started < 2


def test_the_tool_uses_of_a_message_come_in_its_order() -> None:
    message = said("assistant", use("b", "second"), TEXT, use("a", "first"))
    uses = [(block.id, block.name) for block in tool_uses(message)]
    assert uses == [("b", "second"), ("a", "first")]
    assert tool_uses(QUESTION) == []


@pytest.mark.requirement("SAMP-07")
def test_an_answer_of_one_block_goes_to_an_older_server_without_a_list() -> None:
    block = {**TEXT, "_meta": {"kept": 1}}
    listed = answer([block])
    assert single_block(listed, ALL).to_wire() == answer(block).to_wire()
    assert isinstance(listed.content, list)
    plain = answer(TEXT)
    assert plain.to_wire() == {"role": "assistant", "model": "m", "content": TEXT, **STOP}
    assert single_block(plain, ALL) is plain
    # Several texts are joined.
    single = single_block(answer([TEXT, {"type": "text", "text": "again"}]), ALL)
    assert single.to_wire()["content"] == {"type": "text", "text": "hello\nagain"}


@pytest.mark.requirement("SAMP-07")
@pytest.mark.parametrize(
    ("content", "kinds", "problem"),
    [
        ([], ALL, "this one has 0"),
        ([TEXT, {"type": "image", "data": "", "mimeType": "image/png"}], ALL, "this one has 2"),
        (
            {"type": "audio", "data": "", "mimeType": "audio/wav"},
            frozenset({"text", "image"}),
            "no 'audio' blocks",
        ),
        ([use("a")], ALL, "no 'tool_use' blocks"),
    ],
)
def test_what_an_older_revision_cannot_say_is_refused(
    content: Any, kinds: frozenset[str], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        single_block(answer(content), kinds)
