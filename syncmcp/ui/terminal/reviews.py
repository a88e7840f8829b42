"""What a person may allow or deny on a terminal: a card for every kind of question."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from syncmcp.approval import Question, ToolCall, Verdict
from syncmcp.handlers.forms import Form
from syncmcp.handlers.links import Link, UnsafeLink
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
)
from syncmcp.ui.terminal import form_prompts, sampling_prompts
from syncmcp.ui.terminal.screen import Screen, named
from syncmcp.ui.text import visible

if TYPE_CHECKING:
    from syncmcp.handlers import HandlerContext

__all__ = ["review", "show_cause", "show_link"]

_ALLOW = [("allow", "Allow"), ("remember", "Allow for this session"), ("deny", "Deny")]
_NO = "a person said no"


def review(screen: Screen, question: Question) -> Verdict:
    """Show what is asked, or what would be answered, and let the person decide."""
    request, answer = question.request, question.answer
    if isinstance(request, CreateMessageRequestParams):
        if isinstance(answer, CreateMessageResult):
            return _model_answer(screen, question, answer)
        return _sampling(screen, question, request)
    if isinstance(request, ElicitRequestFormParams):
        return _form(screen, question, request)
    if isinstance(request, ElicitRequestURLParams):
        return _url(screen, question, request)
    if isinstance(request, ToolCall):
        return _tool(screen, question, request)
    screen.banner(question.server, "asks for your roots: the folders it may work in")
    show_cause(screen, question.context)
    return _decided(screen.choose("Tell it?", _ALLOW))


def show_cause(screen: Screen, context: HandlerContext | None) -> None:
    """Say which call of ours made the server ask, where that is known."""
    if context is not None and context.call is not None:
        params = context.call.params or {}
        name = params.get("name") or params.get("uri") or ""
        screen.say(f"Because of this program's call: {context.call.method} {named(str(name))}")


def show_link(screen: Screen, url: str) -> bool:
    """Print a URL in full, its host, and what is odd about it; return whether it may be opened."""
    screen.say("The address:")
    screen.quote(url, limit=len(url))
    try:
        link = Link.read(url)
    except UnsafeLink as unsafe:
        screen.warn(f"this address is never opened: {visible(str(unsafe))}")
        return False
    screen.say("Its host:")
    screen.quote(link.host, limit=len(link.host))
    for warning in link.warnings:
        screen.warn(visible(warning))
    return True


def _sampling(screen: Screen, question: Question, request: CreateMessageRequestParams) -> Verdict:
    options = [
        ("allow", "Approve"),
        ("view", "View all messages"),
        ("edit", "Edit"),
        ("remember", "Approve, and allow for this session"),
        ("deny", "Deny"),
    ]
    edited = request
    while True:
        screen.banner(question.server, "wants a model to answer it")
        show_cause(screen, question.context)
        sampling_prompts.show_request(screen, edited)
        action = screen.choose("Let the model answer?", options)
        while action == "view":
            sampling_prompts.show_messages(screen, edited)
            action = screen.choose("Let the model answer?", options)
        if action != "edit":
            changed = None if edited is request else edited
            return _decided(action, request=changed)
        edited = sampling_prompts.edit_request(screen, edited)


def _model_answer(screen: Screen, question: Question, answer: CreateMessageResult) -> Verdict:
    edited = answer
    while True:
        screen.banner(question.server, "would get this answer of the model")
        sampling_prompts.show_answer(screen, edited)
        options = [("allow", "Send"), ("deny", "Deny")]
        if sampling_prompts.can_edit(edited):
            options.insert(1, ("edit", "Edit"))
        action = screen.choose("Send it?", options)
        if action != "edit":
            return _decided(action, answer=None if edited is answer else edited)
        edited = sampling_prompts.edit_answer(screen, edited)


def _form(screen: Screen, question: Question, request: ElicitRequestFormParams) -> Verdict:
    form = Form.read(request.requested_schema)
    answer = question.answer
    if not isinstance(answer, ElicitResult):
        screen.banner(question.server, "asks this program to fill in a form")
        show_cause(screen, question.context)
        screen.message(request.message)
        screen.say("Its fields:")
        for field in form.fields:
            screen.quote(f"{field.label}{' *' if field.required else ''}", limit=200)
        return _decided(screen.choose("Let the program answer?", [_ALLOW[0], _ALLOW[2]]))
    screen.banner(question.server, "would get these answers to its form")
    screen.message(request.message)
    if answer.action != "accept":
        screen.say(f"The answer: {answer.action}")
        return _decided(screen.choose("Send it?", [("allow", "Send"), ("deny", "Deny")]))
    given = dict(answer.content or {})
    content = form_prompts.reviewed(screen, form, dict(given))
    if content is None:
        return Verdict.deny(_NO)
    edited = None if content == given else answer.model_copy(update={"content": content})
    return _decided("allow", answer=edited)


def _url(screen: Screen, question: Question, request: ElicitRequestURLParams) -> Verdict:
    screen.banner(question.server, "asks this program to open a web address")
    show_cause(screen, question.context)
    screen.message(request.message)
    if not show_link(screen, request.url):
        return Verdict.deny("the address is not safe to open")
    return _decided(screen.choose("Allow it?", [_ALLOW[0], _ALLOW[2]]))


def _tool(screen: Screen, question: Question, call: ToolCall) -> Verdict:
    screen.banner(question.server, "is about to be called: one of its tools")
    screen.say("The tool:")
    screen.quote(call.tool, limit=200)
    screen.say("Its arguments:")
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, indent=2, default=str)
    screen.quote(arguments)
    if call.annotations is not None:
        trust = "" if question.server.trusted else " (not to be relied on)"
        screen.say(f"What the server says of the tool{trust}:")
        stated = call.annotations.model_dump(mode="json", by_alias=True, exclude_none=True)
        screen.quote(json.dumps(stated, ensure_ascii=False), limit=1000)
    return _decided(screen.choose("Call it?", _ALLOW))


def _decided(
    action: str | None,
    *,
    request: CreateMessageRequestParams | None = None,
    answer: CreateMessageResult | ElicitResult | None = None,
) -> Verdict:
    if action not in ("allow", "remember"):
        return Verdict.deny(_NO)
    return Verdict(
        allowed=True, request=request, answer=answer, reason=None, remember=action == "remember"
    )
