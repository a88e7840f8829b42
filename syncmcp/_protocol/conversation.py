"""Rules for the messages of a sampling conversation (spec: "Sampling")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from syncmcp import types


def tool_uses(message: types.SamplingMessage) -> list[types.ToolUseContent]:
    """Return the tool uses in a message of the model, in order.

    The text of the `ValueError` for two uses with the same id, and for a message that is not of the
    assistant, is a sentence that is sent to the peer.
    """
    uses = [block for block in message.blocks if isinstance(block, types.ToolUseContent)]
    if not uses:
        return uses
    if message.role != "assistant":
        raise ValueError("Only messages of the assistant may use tools.")
    seen: set[str] = set()
    for use in uses:
        if use.id in seen:
            raise ValueError(f"Two tool uses in one message have the id {use.id!r}.")
        seen.add(use.id)
    return uses


def check_tool_results(messages: Sequence[types.SamplingMessage]) -> None:
    """Check that every tool use has exactly one result, in the next message.

    A message with tool uses is followed by a message of the user with one result for each use and
    nothing else (spec: sampling, "Tool Result Messages", "Tool Use and Result Balance"). The text
    of the `ValueError` for other messages is a sentence that is sent to the peer.
    """
    if not any(block.type in _TOOL_BLOCKS for message in messages for block in message.blocks):
        return
    wanted: set[str] = set()
    for message in messages:
        given = [result.tool_use_id for result in _tool_results(message)]
        if wanted or given:
            _check_results(wanted, given)
        wanted = {use.id for use in tool_uses(message)}
    _check_results(wanted, [])


_TOOL_BLOCKS = frozenset(("tool_use", "tool_result"))


def _check_results(wanted: set[str], given: list[str]) -> None:
    missing = sorted(wanted.difference(given))
    if missing:
        raise ValueError(f"Results are missing for the tool uses {', '.join(map(repr, missing))}.")
    if len(given) > len(wanted):
        times = Counter(given)
        odd = next(id for id in given if id not in wanted or times[id] > 1)
        raise ValueError(
            f"The result for {odd!r} belongs to no tool use, or to one that has a result."
        )


def _tool_results(message: types.SamplingMessage) -> list[types.ToolResultContent]:
    blocks = message.blocks
    results = [block for block in blocks if isinstance(block, types.ToolResultContent)]
    if results and len(results) < len(blocks):
        raise ValueError("A message with tool results may hold nothing else.")
    if results and message.role != "user":
        raise ValueError("Only messages of the user may hold tool results.")
    return results


def single_block(
    result: types.CreateMessageResult, kinds: Collection[str]
) -> types.CreateMessageResult:
    """Convert a model's answer to the form used before 2025-11-25: one block instead of a list.

    Several text blocks become one, as in `CreateMessageResult.text`. `ValueError` if the answer
    does not fit into one block of the types in `kinds`, those of the revision.
    """
    blocks = result.blocks
    for block in blocks:
        if block.type not in kinds:
            raise ValueError(f"The revision has no {block.type!r} blocks in sampling.")
    if not isinstance(result.content, list):
        return result
    if len(blocks) == 1:
        return result.model_copy(update={"content": blocks[0]})
    if blocks and all(isinstance(block, types.TextContent) for block in blocks):
        return result.model_copy(update={"content": types.TextContent(text=result.text)})
    raise ValueError(f"The revision allows one block in an answer, but this one has {len(blocks)}.")
