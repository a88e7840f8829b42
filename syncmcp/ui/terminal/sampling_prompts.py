"""What a server wants of a model, and what the model wrote, reviewed on a terminal."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import TypeVar

from syncmcp.types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    SamplingMessageContentBlock,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from syncmcp.ui.terminal.screen import Screen, named

__all__ = [
    "edit_answer",
    "edit_request",
    "show_answer",
    "show_messages",
    "show_request",
]

# A person may ask for the whole conversation; a terminal keeps only so much anyway.
_MOST_OF_A_MESSAGE = 20_000

Spoken = TypeVar("Spoken", SamplingMessage, CreateMessageResult)


def show_request(screen: Screen, request: CreateMessageRequestParams) -> None:
    """Print a summary of what a model would be given."""
    roles = Counter(message.role for message in request.messages)
    spread = ", ".join(f"{count} of the {role}" for role, count in roles.items())
    screen.say(f"Messages: {len(request.messages)}{f' ({spread})' if spread else ''}")
    screen.say(f"Most tokens: {request.max_tokens}")
    if request.temperature is not None:
        screen.say(f"Temperature: {request.temperature:g}")
    if request.include_context not in (None, "none"):
        screen.say(f"Context wanted: {named(str(request.include_context))}")
    if request.stop_sequences:
        screen.say("Stops at:")
        screen.quote(", ".join(json.dumps(stop) for stop in request.stop_sequences), limit=200)
    if preferences := request.model_preferences:
        if hints := [hint.name for hint in preferences.hints or [] if hint.name]:
            screen.say("Models it would like:")
            screen.quote(", ".join(hints), limit=200)
        for name, priority in (
            ("Low cost", preferences.cost_priority),
            ("Speed", preferences.speed_priority),
            ("Intelligence", preferences.intelligence_priority),
        ):
            if priority is not None:
                screen.say(f"{name} matters: {priority:g} of 1")
    if request.tools:
        screen.say(f"Tools for the model: {len(request.tools)}")
        for tool in request.tools[:20]:
            screen.quote(f"{tool.name}: {tool.description or ''}", limit=160)
    if request.system_prompt is not None:
        screen.say("System prompt:")
        screen.quote(request.system_prompt)
    if request.messages:
        screen.say("Last message:")
        _show_blocks(screen, request.messages[-1].blocks, limit=2000)


def show_messages(screen: Screen, request: CreateMessageRequestParams) -> None:
    """Print the system prompt and every message in full."""
    if request.system_prompt is not None:
        screen.say("System prompt:")
        screen.quote(request.system_prompt, limit=_MOST_OF_A_MESSAGE)
    for number, message in enumerate(request.messages, 1):
        screen.say(f"Message {number} of {len(request.messages)}, of the {message.role}:")
        _show_blocks(screen, message.blocks, limit=_MOST_OF_A_MESSAGE)


def show_answer(screen: Screen, answer: CreateMessageResult) -> None:
    """Print what a model wrote."""
    screen.say("Model:")
    screen.quote(answer.model, limit=200)
    if answer.stop_reason is not None:
        screen.say(f"It stopped because of: {named(answer.stop_reason)}")
    screen.say("It wrote:")
    _show_blocks(screen, answer.blocks, limit=_MOST_OF_A_MESSAGE)


def edit_request(screen: Screen, request: CreateMessageRequestParams) -> CreateMessageRequestParams:
    """Let the person change the system prompt, the last message or the limit; return a copy."""
    options = [("system", "The system prompt"), ("tokens", "The most tokens")]
    if request.messages and _texts(request.messages[-1]):
        options.insert(1, ("message", "The last message"))
    what = screen.choose("Edit what?", options)
    if what == "system":
        written = screen.write("System prompt", request.system_prompt or "", lines=True)
        return request.model_copy(update={"system_prompt": written or None})
    if what == "tokens":
        most = request.max_tokens
        tokens = screen.write("Most tokens", str(most), check=partial(_token_problem, most=most))
        return request.model_copy(update={"max_tokens": int(tokens)})
    *before, last = request.messages
    return request.model_copy(update={"messages": [*before, _edited(screen, last)]})


def edit_answer(screen: Screen, answer: CreateMessageResult) -> CreateMessageResult:
    """Let the person change the texts of an answer; return a copy."""
    return _edited(screen, answer)


def can_edit(spoken: SamplingMessage | CreateMessageResult) -> bool:
    """Whether there is a text to edit."""
    return bool(_texts(spoken))


def _edited(screen: Screen, spoken: Spoken) -> Spoken:
    blocks = list(spoken.blocks)
    for number, position in enumerate(_texts(spoken), 1):
        block = blocks[position]
        assert isinstance(block, TextContent)
        title = "Text" if number == 1 else f"Text {number}"
        blocks[position] = block.model_copy(
            update={"text": screen.write(title, block.text, lines=True)}
        )
    content = blocks if isinstance(spoken.content, list) else blocks[0]
    return spoken.model_copy(update={"content": content})


def _texts(spoken: SamplingMessage | CreateMessageResult) -> list[int]:
    return [at for at, block in enumerate(spoken.blocks) if isinstance(block, TextContent)]


def _token_problem(text: str, *, most: int) -> str | None:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) > 0):
        return "Give a whole number above 0."
    return f"The server asked for at most {most}." if int(text) > most else None


def _show_blocks(screen: Screen, blocks: list[SamplingMessageContentBlock], *, limit: int) -> None:
    for block in blocks:
        if isinstance(block, TextContent):
            screen.quote(block.text, limit=limit)
        elif isinstance(block, ImageContent | AudioContent):
            kind = "image" if isinstance(block, ImageContent) else "sound"
            size = len(block.data) * 3 // 4
            screen.say(f"[{kind} of about {size:,} bytes, {named(block.mime_type)}]")
        elif isinstance(block, ToolUseContent):
            screen.say(f"[the model calls the tool {named(block.name)} with]")
            screen.quote(json.dumps(block.input, ensure_ascii=False, indent=2), limit=limit)
        elif isinstance(block, ToolResultContent):
            screen.say(f"[{'failure' if block.is_error else 'result'} of a tool]")
            for part in block.content:
                text = part.text if isinstance(part, TextContent) else f"[{part.type}]"
                screen.quote(text, limit=limit)
        else:
            screen.say(f"[content of the kind {named(block.type)}]")
