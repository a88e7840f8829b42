"""Reviews on a terminal: of requests, answers of a model and of a program, calls and servers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from syncmcp.approval import Question, ToolCall, Verdict
from syncmcp.handlers.forms import Form
from syncmcp.handlers.links import Link, UnsafeLink
from syncmcp.types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ImageContent,
    SamplingMessage,
    SamplingMessageContentBlock,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from syncmcp.ui import shorten, visible
from syncmcp.ui.calls import (
    RUN,
    arguments_lines,
    arguments_overview,
    arguments_text,
    server_words,
    wants_word,
)
from syncmcp.ui.everything import everything, roots_text
from syncmcp.ui.grants import grant_for
from syncmcp.ui.terminal.forms import review_answers
from syncmcp.ui.terminal.keys import WentBack, in_turn
from syncmcp.ui.terminal.screen import Screen, short_name

if TYPE_CHECKING:
    from syncmcp.handlers import HandlerContext
    from syncmcp.servers_file import ServerReview

# Sampling: the request to a model, and its answer.


# The most characters of each text of an answer that a summary shows.
_MAX_MESSAGE = 4_000

MessageT = TypeVar("MessageT", SamplingMessage, CreateMessageResult)


def show_request(screen: Screen, request: CreateMessageRequestParams) -> None:
    """Print a summary of a sampling request."""
    roles = Counter(message.role for message in request.messages)
    spread = ", ".join(f"{count} from the {role}" for role, count in roles.items())
    screen.say(f"Messages: {len(request.messages)}{f' ({spread})' if spread else ''}")
    screen.say(f"Maximum tokens: {request.max_tokens}")
    if request.temperature is not None:
        screen.say(f"Temperature: {request.temperature:g}")
    if request.include_context not in (None, "none"):
        screen.say(f"Context wanted: “{screen.name(str(request.include_context))}”")
    if request.stop_sequences:
        screen.say("Stop sequences:")
        screen.quote(", ".join(json.dumps(stop) for stop in request.stop_sequences), limit=200)
    if preferences := request.model_preferences:
        if hints := [hint.name for hint in preferences.hints or [] if hint.name]:
            screen.say("Preferred models:")
            screen.quote(", ".join(hints), limit=200)
        for name, priority in (
            ("cost", preferences.cost_priority),
            ("speed", preferences.speed_priority),
            ("intelligence", preferences.intelligence_priority),
        ):
            if priority is not None:
                screen.say(f"Priority of {name}: {priority:g} of 1")
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


def show_answer(screen: Screen, answer: CreateMessageResult) -> None:
    """Print the answer of a model."""
    screen.say("Model:")
    screen.quote(answer.model, limit=200)
    if answer.stop_reason is not None:
        screen.say(f"Stop reason: “{screen.name(answer.stop_reason)}”")
    screen.say("It wrote:")
    _show_blocks(screen, answer.blocks, limit=_MAX_MESSAGE)


# The members that a summary shows; of content, only texts. `_meta` is data for programs.
_SUMMARIZED = frozenset(
    {
        *("messages", "maxTokens", "temperature", "includeContext", "stopSequences"),
        *("systemPrompt", "modelPreferences"),
        *("role", "content", "model", "stopReason", "type", "text", "_meta"),
    }
)
_WISHES = frozenset({"hints", "costPriority", "speedPriority", "intelligencePriority"})


def _is_summarized(sent: Any) -> bool:
    """Return whether a summary omits nothing, except the rest of long texts."""
    wire = sent.to_wire()
    messages = getattr(sent, "messages", ())
    parts = (*messages, *getattr(sent, "blocks", ()))
    wishes = wire.get("modelPreferences") or {}
    return (
        len(messages) < 2
        and wire.keys() <= _SUMMARIZED
        and wishes.keys() <= _WISHES
        and all(hint.keys() <= {"name"} for hint in wishes.get("hints") or ())
        and all(map(_is_summarized, parts))
    )


def _shows_all(screen: Screen, summarized: bool, text: str) -> bool:
    """Print all of `text` below an incomplete summary, if there is room.

    A summary with more rows than the screen is incomplete, too: its first rows have scrolled off.

    Returns:
        Whether the screen shows all of it.
    """
    if summarized and not screen.cut and not screen.is_full:
        return True
    if not screen.fits(text, below=1):
        return False
    screen.say("All of it:")
    screen.quote(text, hanging=True)
    return True


def _choose(
    screen: Screen,
    message: str,
    text: str,
    options: list[tuple[str, str]],
    *,
    whole: bool,
    confirm: Callable[[], bool] | None = None,
) -> str | None:
    """Let the person choose; options that agree are offered once all of `text` was shown.

    Args:
        screen: The screen.
        message: The question.
        text: The whole content that is decided on.
        options: Those that do not agree, then those that do (their values are in `_AGREES`).
        whole: Whether all of the content was shown before.
        confirm: Asks the person who agrees to confirm that; the person can go back from it.
    """
    while True:
        offered = [one for one in options if whole or one[0] not in _AGREES]
        if not whole:
            offered.insert(1, ("view", "Read all of it before you agree"))
        action = screen.choose(message, offered)
        if action == "view":
            whole = screen.page(text, hanging=True)
        elif action not in _AGREES:
            return action
        else:
            with suppress(WentBack):
                return action if confirm is None or confirm() else None


_AGREES = frozenset({"allow", "remember", "send"})


def edit_request(screen: Screen, request: CreateMessageRequestParams) -> CreateMessageRequestParams:
    """Let the person change the system prompt, last message or token limit; return a copy.

    Raises:
        WentBack: The person went back, and changed nothing.
    """
    options = [("system", "The system prompt"), ("tokens", "The maximum number of tokens")]
    if request.messages and _text_positions(request.messages[-1]):
        options.insert(1, ("message", "The last message"))
    what = screen.choose("What do you want to edit?", options, back=True)
    if what == "system":
        written = screen.edit_text("System prompt:", request.system_prompt or "", lines=True)
        return request.model_copy(update={"system_prompt": written or None})
    if what == "tokens":
        most = request.max_tokens
        tokens = screen.edit_text(
            "Maximum tokens:", str(most), check=partial(_max_tokens_problem, most=most)
        )
        return request.model_copy(update={"max_tokens": int(tokens)})
    *before, last = request.messages
    return request.model_copy(update={"messages": [*before, edit_texts(screen, last)]})


def edit_texts(screen: Screen, message: MessageT) -> MessageT:
    """Let the person change the texts of a message or an answer; return a copy.

    Raises:
        WentBack: The person went back from the first text.
    """
    blocks = list(message.blocks)

    def edit(number: int, position: int) -> None:
        block = blocks[position]
        assert isinstance(block, TextContent)
        title = "Text:" if number == 1 else f"Text {number}:"
        written = screen.edit_text(title, block.text, lines=True)
        blocks[position] = block.model_copy(update={"text": written})

    in_turn([partial(edit, *text) for text in enumerate(_text_positions(message), 1)])
    content = blocks if isinstance(message.content, list) else blocks[0]
    return message.model_copy(update={"content": content})


def _text_positions(message: SamplingMessage | CreateMessageResult) -> list[int]:
    return [at for at, block in enumerate(message.blocks) if isinstance(block, TextContent)]


def _max_tokens_problem(text: str, *, most: int) -> str | None:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) > 0):
        return "Enter a whole number above 0."
    return f"The server asked for at most {most}." if int(text) > most else None


def _show_blocks(screen: Screen, blocks: list[SamplingMessageContentBlock], *, limit: int) -> None:
    for block in blocks:
        if isinstance(block, TextContent):
            screen.quote(block.text, limit=limit)
        elif isinstance(block, ImageContent | AudioContent):
            kind = "image" if isinstance(block, ImageContent) else "audio"
            size = len(block.data) * 3 // 4
            screen.say(f"[{kind} of about {size:,} bytes, {_named(block.mime_type)}]")
        elif isinstance(block, ToolUseContent):
            screen.say(f"[the model calls the tool {_named(block.name)} with]")
            screen.quote(json.dumps(block.input, ensure_ascii=False, indent=2), limit=limit)
        elif isinstance(block, ToolResultContent):
            screen.say(f"[{'failure' if block.is_error else 'result'} of a tool]")
            for part in block.content:
                text = part.text if isinstance(part, TextContent) else f"[{part.type}]"
                screen.quote(text, limit=limit)
        else:
            screen.say(f"[content of the kind {_named(block.type)}]")


def _named(words: str) -> str:
    """Return an untrusted word in quotation marks: it must not look like text of the program."""
    return f"“{short_name(words)}”"


# Reviews: a person decides.


_DENY, _ALLOW = ("deny", "Deny"), ("allow", "Allow")
_DECLINED = "a person said no"


def review(screen: Screen, question: Question, *, grants: bool) -> Verdict:
    """Show a request of a server, or the answer to it, and let the person decide.

    Args:
        screen: The screen.
        question: The request, or the answer to the request.
        grants: Whether the person may allow all later requests of the same kind, too.
    """
    request, answer = question.request, question.answer
    given = grant_for(question) if grants else None
    grant = [("remember", f"{given.label} while this program runs")] if given else []
    if isinstance(request, CreateMessageRequestParams):
        if isinstance(answer, CreateMessageResult):
            return _review_model_answer(screen, question, answer)
        return _review_request(screen, question, request, grant)
    if isinstance(request, ElicitRequestFormParams):
        return _review_form(screen, question, request)
    if isinstance(request, ElicitRequestURLParams):
        return _review_url(screen, question, request)
    if isinstance(request, ToolCall):
        return _review_tool_call(screen, question, request, grant)
    screen.banner(question.server, "asks for your roots: the directories it may work in")
    show_cause(screen, question.context)
    screen.say("They are:")
    screen.read(roots_text(question), hanging=True)
    return _verdict(screen.choose("Tell the server?", [_DENY, _ALLOW, *grant]))


def show_cause(screen: Screen, context: HandlerContext | None) -> None:
    """Print the call of the program to which the question belongs, if known."""
    if context is not None and context.call is not None:
        params = context.call.params or {}
        about = params.get("name") or params.get("uri")
        name = f" {_named(str(about))}" if about else ""
        screen.say(f"Because of this program's call: {context.call.method}{name}")


def show_link(screen: Screen, url: str) -> bool:
    """Print a URL in full, its host and warnings about it; return whether it may be opened.

    Raises:
        PersonCancelled: The person stopped reading.
    """
    screen.say("The address:")
    try:
        link = Link.read(url)
    except UnsafeLink as unsafe:
        screen.read(url)
        screen.warn(f"this address will not be opened: {visible(str(unsafe))}")
        return False
    host = screen.wrap_quote(link.host, limit=len(link.host))
    warnings = [visible(warning) for warning in link.warnings]
    screen.read(url, below=1 + len(host) + sum(map(screen.rows_of_warning, warnings)))
    screen.say("Its host:")
    for line in host:
        screen.quote_line(line)
    for warning in warnings:
        screen.warn(warning)
    return True


def _review_request(
    screen: Screen,
    question: Question,
    request: CreateMessageRequestParams,
    grant: list[tuple[str, str]],
) -> Verdict:
    options = [_DENY, ("edit", "Edit"), ("allow", "Approve"), *grant]
    edited = request
    while True:
        screen.banner(question.server, "asks a model for an answer")
        show_cause(screen, question.context)
        show_request(screen, edited)
        text = everything(edited)
        whole = _shows_all(screen, _is_summarized(edited), text)
        action = _choose(screen, "Let the model answer?", text, options, whole=whole)
        if action != "edit":
            changed = None if edited is request else edited
            return _verdict(action, request=changed)
        with suppress(WentBack):
            edited = edit_request(screen, edited)


def _review_model_answer(
    screen: Screen, question: Question, answer: CreateMessageResult
) -> Verdict:
    edited = answer
    while True:
        screen.banner(question.server, "will get this answer from the model, if you agree")
        show_answer(screen, edited)
        text = everything(edited)
        options = [_DENY, ("allow", "Send")]
        if _text_positions(edited):
            options.insert(1, ("edit", "Edit"))
        whole = _shows_all(screen, _is_summarized(edited), text)
        action = _choose(screen, "Send it?", text, options, whole=whole)
        if action != "edit":
            return _verdict(action, answer=None if edited is answer else edited)
        with suppress(WentBack):
            edited = edit_texts(screen, edited)


def _review_form(screen: Screen, question: Question, request: ElicitRequestFormParams) -> Verdict:
    form = Form.read(request.requested_schema)
    answer = question.answer
    if not isinstance(answer, ElicitResult):
        screen.banner(question.server, "asks this program to fill in a form")
        show_cause(screen, question.context)
        screen.message(request.message)
        screen.say("Its fields:")
        for field in form.fields:
            screen.read(f"{visible(field.label)}{' *' if field.required else ''}", hanging=True)
        return _verdict(screen.choose("Let the program answer?", [_DENY, _ALLOW]))
    screen.banner(question.server, "will get these answers to its form, if you agree")
    screen.message(request.message)
    if answer.action != "accept":
        screen.say(f"The answer: {answer.action}")
        return _verdict(screen.choose("Send it?", [_DENY, ("allow", "Send")]))
    given = dict(answer.content or {})
    content = review_answers(screen, form, dict(given))
    if content is None:
        return Verdict.deny(_DECLINED)
    edited = None if content == given else answer.model_copy(update={"content": content})
    return _verdict("allow", answer=edited)


def _review_url(screen: Screen, question: Question, request: ElicitRequestURLParams) -> Verdict:
    screen.banner(question.server, "asks this program to open a web address")
    show_cause(screen, question.context)
    screen.message(request.message)
    if not show_link(screen, request.url):
        return Verdict.deny("the address is not safe to open")
    return _verdict(screen.choose("Allow it?", [_DENY, _ALLOW]))


def _review_tool_call(
    screen: Screen, question: Question, call: ToolCall, grant: list[tuple[str, str]]
) -> Verdict:
    screen.banner(question.server, "will run one of its tools, if you agree")
    screen.say("The tool:")
    screen.read(call.tool)
    text = "\n".join(arguments_lines(call))
    claims = _claims(screen, call)
    trust = "" if question.server.trusted else " (do not rely on it)"
    whose = f"What the server says about the tool{trust}:"
    title = f"Its arguments: {len(call.arguments):,} ({len(arguments_text(call)):,} characters"
    cut = "; both ends of each"
    below = screen.rows_of(f"{title}{cut})") + screen.rows_of(whose) + len(claims)
    whole = screen.fits(text, below=below)
    if call.arguments:
        shown = text if whole else arguments_overview(call)
        screen.say(f"{title}{'' if whole else cut})")
        screen.quote(shown, limit=len(shown), hanging=True)
    else:
        screen.say("The tool has no arguments.")
    if claims:
        screen.say(whose)
        for line in claims:
            screen.quote_line(line)
    # A long overview moves the name out of sight, so the person reads it again with the arguments.
    text = f"{visible(call.tool)}\n{text}"
    if whole and not grant and wants_word(question):  # the word alone decides
        return _verdict("allow" if _types_word(screen, back=False) else None)
    options = [_DENY, ("allow", "Allow this call"), *grant]
    confirm = partial(_types_word, screen) if wants_word(question) else None
    return _verdict(_choose(screen, "Call it?", text, options, whole=whole, confirm=confirm))


def _claims(screen: Screen, call: ToolCall) -> list[str]:
    """Return the server's words about a tool, to show below the arguments, which are facts."""
    # They are a few lines at most, so that they cannot move the arguments out of sight.
    said = [" ".join(words.split()) for words in server_words(call) if words]
    return [line for words in said for line in screen.wrap_quote(words, limit=200)]


def _types_word(screen: Screen, *, back: bool = True) -> bool:
    """Ask the person to type the word for a call that may change something.

    Keys that are pressed by reflex do not type the word, and Enter alone denies the call.
    """
    screen.say("The tool may change something, so a word confirms the call.")
    message = f"Type “{RUN}” to call it, or press Enter to deny:"
    while (typed := screen.edit_text(message, empty="(denied)", back=back)) not in (RUN, ""):
        screen.say(f"“{short_name(typed)}” is not “{RUN}”, so nothing was called.")
    return typed == RUN


# Servers that a file names: the longest description that a person can be expected to read, in
# characters, and the most warnings that are repeated with it: an entry can have thousands.
_MOST_READ = 20_000
_MOST_WARNINGS = 10


def review_server(screen: Screen, review: ServerReview) -> bool:
    """Show the whole description of a server in a file, and let the person approve it."""
    text = str(review)
    warnings = [visible(shorten(warning, 200)) for warning in review.warnings[:_MOST_WARNINGS]]
    if (more := len(review.warnings) - _MOST_WARNINGS) > 0:
        warnings.append(f"there are {more:,} more warnings, at the end of the text.")
    if len(text) > _MOST_READ:
        warnings.append(
            f"the text has {len(text):,} characters, too many to read (over {_MOST_READ:,})."
        )
    screen.say()
    screen.headline("A file names a server")
    above = screen.printed
    for warning in warnings:
        screen.warn(warning)
    if not screen.page(text, below=screen.printed - above, hanging=True):
        screen.say("Not approved: you have not seen all of it.", "bold")
        return False
    for warning in warnings:
        screen.warn(warning)
    message = "Use it? A yes is remembered until this changes."
    return screen.choose(message, [("no", "No"), ("yes", "Yes, use exactly this")]) == "yes"


def _verdict(
    action: str | None,
    *,
    request: CreateMessageRequestParams | None = None,
    answer: CreateMessageResult | ElicitResult | None = None,
) -> Verdict:
    if action not in ("allow", "remember"):
        return Verdict.deny(_DECLINED)
    return Verdict(
        allowed=True, request=request, answer=answer, reason=None, remember=action == "remember"
    )
