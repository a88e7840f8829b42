"""Every request that a client can make, each written once as a generator; see `operation`.

All take the options of `CallOptions` by keyword. All raise `NotSupported` before anything is sent
where the revision lacks the feature, or the server does not declare it (option `undeclared`),
`ServerError` when the server refuses, `RequestTimeout`, `RequestCancelled`, and a `TransportError`
when the wire fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import Unpack

from syncmcp import types
from syncmcp._base.checks import text, validate
from syncmcp._client.operation import operation
from syncmcp._client.pages import ALL_PAGES, AllPages, cached_or_exchange, iterate, pages
from syncmcp._client.requests import result_or_questions
from syncmcp._client.tool_calls import (
    ask_for_task,
    check_input,
    check_output,
    get_negotiated,
    retry_on_header_mismatch,
    tool_params,
)
from syncmcp._connection.options import CallOptions, check_log_level
from syncmcp._protocol.exchange import exchange, single_exchange
from syncmcp._protocol.jsonrpc import INVALID_PARAMS
from syncmcp._protocol.steps import Steps
from syncmcp.errors import McpError, NotSupported, ResourceNotFound, ServerError, UsageError
from syncmcp.handlers.pending import BY_HAND, Answerable, InputRequired, as_offer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from syncmcp._client.core import ClientCore, HasCore
    from syncmcp._connection.tool_schemas import OutputCheck
    from syncmcp.types import (
        CallToolResult,
        CompleteResult,
        CompletionReference,
        GetPromptResult,
        ListPromptsResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        ListToolsResult,
        LoggingLevel,
        Prompt,
        PromptReference,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
        ResourceTemplateReference,
        Tool,
    )

__all__ = ["Completable", "completion_params", "prompt_params", "uri_of"]


# What a caller names a resource, a prompt or an argument with, checked before anything is sent.
#
# The server's own description, where the caller has it at hand, checks more than a bare name can.


Completable: TypeAlias = "CompletionReference | Prompt | ResourceTemplate | str"
"""What has arguments that can be completed; a string names a prompt, or is a URI template."""

# Two ways to be sure that a string is no name: `demo://...`, and `urn:isbn:{isbn}`.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://|[^{}\s]*\{)")
_LIKE_URI = re.compile(r"[{}]|://")


def uri_of(resource: str | Resource) -> str:
    """The URI of a resource, which is sent exactly as it is.

    Raises:
        UsageError: It is neither a resource nor a URI.
    """
    if not isinstance(resource, str):
        if not isinstance(resource, types.Resource):
            raise UsageError(f"uri is a string, a Resource or a ResourceLink, not {resource!r}")
        resource = resource.uri
    text(resource, "uri")
    return resource


def prompt_params(prompt: str | Prompt, arguments: Mapping[str, str] | None) -> dict[str, Any]:
    """The parameters that ask for a prompt (server/prompts#getting-a-prompt).

    Raises:
        UsageError: An argument is no string. By a `Prompt`: one is missing, or there is no such.
    """
    described = prompt if isinstance(prompt, types.Prompt) else None
    name: Any = prompt if described is None else described.name
    text(name, "name")
    if arguments is not None:
        arguments = _strings(arguments, "arguments")
    if described is not None and described.arguments is not None:
        given = arguments or {}
        _known(given, (argument.name for argument in described.arguments), f"prompt {name!r}")
        missing = [
            argument.name
            for argument in described.arguments
            if argument.required and argument.name not in given
        ]
        if missing:
            raise UsageError(f"prompt {name!r} needs {', '.join(map(repr, missing))}")
    return {"name": name} if arguments is None else {"name": name, "arguments": arguments}


def completion_params(
    ref: Completable, argument_name: str, value: str, context: Mapping[str, str] | None
) -> dict[str, Any]:
    """The parameters that ask for completions (server/utilities/completion).

    Raises:
        UsageError: One is none that can be. By a `Prompt` or a `ResourceTemplate`: it has no such
            argument.
    """
    text(argument_name, "argument_name")
    if not isinstance(value, str):
        raise UsageError(f"value is a string, not {value!r}")
    settled = None if context is None else _strings(context, "context")
    params: dict[str, Any] = {
        "ref": _reference(ref, (argument_name, *(settled or ()))).to_wire(),
        "argument": {"name": argument_name, "value": value},
    }
    if settled is not None:
        params["context"] = {"arguments": settled}
    return params


def _named(ref: str) -> PromptReference | ResourceTemplateReference:
    """What a string refers to: a prompt by its name, or a template by its text.

    A scheme that ``//`` follows, or a scheme and an expression in braces, make it a URI template.

    Raises:
        UsageError: It is empty, or may be either.
    """
    text(ref, "ref")
    if _URI.match(ref):
        return types.ResourceTemplateReference(uri=ref)
    if _LIKE_URI.search(ref):
        raise UsageError(
            f"{ref!r} may be the name of a prompt or a URI template: say which, with"
            " PromptReference(name=...) or ResourceTemplateReference(uri=...)"
        )
    return types.PromptReference(name=ref)


def _reference(
    ref: Completable, names: Iterable[str]
) -> PromptReference | ResourceTemplateReference:
    if isinstance(ref, str):
        return _named(ref)
    if isinstance(ref, types.Prompt):
        if ref.arguments is not None:
            known = (argument.name for argument in ref.arguments)
            _known(names, known, f"prompt {ref.name!r}")
        return types.PromptReference(name=ref.name)
    if isinstance(ref, types.ResourceTemplate):
        _known(names, ref.template.variables, f"template {ref.uri_template!r}")
        return types.ResourceTemplateReference(uri=ref.uri_template)
    if not isinstance(ref, types.PromptReference | types.ResourceTemplateReference):
        raise UsageError(
            "ref is the name of a prompt, a URI template, a Prompt, a ResourceTemplate, a"
            f" PromptReference or a ResourceTemplateReference, not {ref!r}"
        )
    return ref


def _known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    possible = list(known)
    for name in names:
        if name not in possible:
            has = ", ".join(map(repr, possible)) or "none"
            raise UsageError(f"{what} has no argument {name!r}; it has {has}")


def _strings(arguments: object, name: str) -> dict[str, str]:
    if not isinstance(arguments, Mapping):
        raise UsageError(f"{name} is a mapping or None, not {arguments!r}")
    for key, value in arguments.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(f"{name} are strings by name, and {key!r} is {value!r}")
    return dict(arguments)


# -- tools


@operation
def call_tool(
    core: ClientCore,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    validate_output: OutputCheck | None = None,
    validate_input: bool | None = None,
    **options: Unpack[CallOptions],
) -> Steps[CallToolResult]:
    """Call a tool (spec: tools, "Calling Tools").

    A call that becomes a task, because the tool runs in no other way or the server wants it,
    is followed to its end: within `timeout`, or the task is cancelled. See `start_task`.

    A tool that ran and failed is a result with `is_error`; see
    `CallToolResult.raise_for_error`.

    Args:
        name: The tool's name.
        arguments: Its arguments.
        validate_output: What becomes of structured content that does not fit the tool's
            output schema; the client's `validate_output` by default. Where the tool is not
            known yet, or the schema seems outdated, the tools are listed, once.
        validate_input: Whether the arguments are checked by the tool's input schema; the
            client's `validate_input` by default.
        options: See `CallOptions`.

    Raises:
        InvalidOutput: The result does not fit; the error keeps it.
        InvalidArguments: The arguments do not fit; nothing was sent.
        UnsupportedSchema: Nothing can be checked with the tool's schema.
        InvalidParams: There is no such tool, or the arguments are not accepted.
        OutcomeUnknown: The connection broke after the call was sent; it may have been done.
    """
    params = tool_params(name, arguments)
    checks = core.validation.but(validate_output, validate_input)
    yield from check_input(core, name, arguments, checks)
    yield from ask_for_task(core, name, params)
    call = partial(exchange, "tools/call", params, max_rounds=core.settings.max_rounds)
    raw = yield from retry_on_header_mismatch(call, core)
    result = validate(types.CallToolResult, raw, "tools/call")
    types.set_origin(result, name, core.label)
    yield from check_output(core, name, result, checks)
    return result


@operation
def list_tools(
    core: ClientCore,
    *,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    **options: Unpack[CallOptions],
) -> Steps[ListToolsResult]:
    """List the server's tools: all of them, or one page (spec: tools, "Listing Tools").

    All pages are of one session: if it ends in the middle, because the server's process died or
    the server forgot it, the list begins anew at its first page. So it does, once, if the
    server refuses a cursor (spec 2026-07-28: caching, "Interaction with Pagination"). `timeout`
    counts for all of it.

    Args:
        cursor: Where to start one page: `None` for the first, a page's `next_cursor` for the
            one after it. Left out, all pages are fetched and put together.
        max_pages: The most pages of the list, counted anew where it begins anew; the client's
            `max_pages` by default.
        options: See `CallOptions`.

    Raises:
        LimitExceeded: There are more pages.
        ProtocolError: The server's cursors go round in circles.
        SessionLost: The session ended in the middle of the list, more often than `Retry` sends
            a request; or it ended before the page at `cursor` was there (until 2025-11-25).
        InvalidParams: The server refused `cursor`, or two cursors of its own.
    """
    return (yield from pages("tools/list", types.ListToolsResult, "tools", core, cursor, max_pages))


def iter_tools(
    self: HasCore, *, max_pages: int | None = None, **options: Unpack[CallOptions]
) -> Iterator[Tool]:
    """Iterate over the server's tools, fetching a page when it is needed.

    Pages that are kept are taken all together, before the first tool is given, or not at all.

    Takes what `list_tools` takes, and raises what it raises, when a page is fetched;
    `timeout` counts for each page.

    Where the list begins anew, as that of `list_tools` does, tools that were given already are
    skipped: they are known by their names (resources by their URIs, templates by their URI
    templates, tasks by their ids). What the iterator cannot do is to take back a tool that is
    not on the new list, or to give one again that has changed. `list_tools` is one list.
    """
    return iterate("tools/list", types.ListToolsResult, "tools", "name", self, max_pages, options)


# -- resources


@operation
def list_resources(
    core: ClientCore,
    *,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    **options: Unpack[CallOptions],
) -> Steps[ListResourcesResult]:
    """List the server's resources: all of them, or one page; see `list_tools`."""
    return (
        yield from pages(
            "resources/list", types.ListResourcesResult, "resources", core, cursor, max_pages
        )
    )


def iter_resources(
    self: HasCore, *, max_pages: int | None = None, **options: Unpack[CallOptions]
) -> Iterator[Resource]:
    """Iterate over the server's resources, page by page; see `iter_tools`."""
    return iterate(
        "resources/list",
        types.ListResourcesResult,
        "resources",
        "uri",
        self,
        max_pages,
        options,
    )


@operation
def list_resource_templates(
    core: ClientCore,
    *,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    **options: Unpack[CallOptions],
) -> Steps[ListResourceTemplatesResult]:
    """List the server's resource templates: all of them, or one page; see `list_tools`."""
    return (
        yield from pages(
            "resources/templates/list",
            types.ListResourceTemplatesResult,
            "resource_templates",
            core,
            cursor,
            max_pages,
        )
    )


def iter_resource_templates(
    self: HasCore, *, max_pages: int | None = None, **options: Unpack[CallOptions]
) -> Iterator[ResourceTemplate]:
    """Iterate over the server's resource templates, page by page; see `iter_tools`."""
    return iterate(
        "resources/templates/list",
        types.ListResourceTemplatesResult,
        "resource_templates",
        "uri_template",
        self,
        max_pages,
        options,
    )


@operation
def read_resource(
    core: ClientCore, uri: str | Resource, **options: Unpack[CallOptions]
) -> Steps[ReadResourceResult]:
    """Read a resource (spec: resources, "Reading Resources").

    Args:
        uri: The resource's URI, of any scheme, sent exactly as it is; or the resource itself,
            from a list or, as a `ResourceLink`, from what a tool gave. The server is asked
            whatever it is: nothing is fetched from elsewhere, no file is opened.
        options: See `CallOptions`.

    Raises:
        ResourceNotFound: The server has no such resource, whichever of the two codes that
            the revisions use for it the server chose.
    """
    params = {"uri": uri_of(uri)}
    try:
        raw = yield from cached_or_exchange(core, "resources/read", params)
    except ServerError as error:
        if error.code == INVALID_PARAMS:
            raise ResourceNotFound(*error.args, **error.__dict__) from error
        raise
    return validate(types.ReadResourceResult, raw, "resources/read")


@operation
def subscribe_resource(core: ClientCore, uri: str, **options: Unpack[CallOptions]) -> Steps[None]:
    """Ask to be told when a resource changes (until 2025-11-25).

    The server then sends ``notifications/resources/updated``; see `Client.on_notification`.
    It is asked again by itself in each new session, until the client is closed.
    """
    text(uri, "uri")
    uris = core.session_state.resources
    new = uris.add_explicit(uri, core.resolve(options).undeclared)
    try:
        yield from exchange("resources/subscribe", {"uri": uri})
    except McpError:
        if new:
            uris.remove_explicit(uri)
        raise
    uris.confirm_explicit(uri)


@operation
def unsubscribe_resource(core: ClientCore, uri: str, **options: Unpack[CallOptions]) -> Steps[None]:
    """Take `subscribe_resource` back (until 2025-11-25).

    While somebody listens to the resource (see `Client.listen`), the server goes on telling.
    """
    text(uri, "uri")
    undeclared, method = core.resolve(options).undeclared, "resources/unsubscribe"
    # What is refused leaves everything as it is.
    (yield from get_negotiated(core, method)).check(method, undeclared)
    uris = core.session_state.resources
    if not uris.remove_explicit(uri):
        return  # somebody listens to it
    yield from exchange(method, {"uri": uri})
    if uris.has_listeners(uri):  # since a moment ago: that request may have come before this one
        yield from exchange("resources/subscribe", {"uri": uri})


# -- prompts


@operation
def list_prompts(
    core: ClientCore,
    *,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    **options: Unpack[CallOptions],
) -> Steps[ListPromptsResult]:
    """List the server's prompts: all of them, or one page; see `list_tools`."""
    return (
        yield from pages(
            "prompts/list", types.ListPromptsResult, "prompts", core, cursor, max_pages
        )
    )


def iter_prompts(
    self: HasCore, *, max_pages: int | None = None, **options: Unpack[CallOptions]
) -> Iterator[Prompt]:
    """Iterate over the server's prompts, page by page; see `iter_tools`."""
    return iterate(
        "prompts/list", types.ListPromptsResult, "prompts", "name", self, max_pages, options
    )


@operation
def get_prompt(
    core: ClientCore,
    name: str | Prompt,
    arguments: Mapping[str, str] | None = None,
    **options: Unpack[CallOptions],
) -> Steps[GetPromptResult]:
    """Get a prompt with its arguments filled in (spec: prompts, "Getting a Prompt").

    Args:
        name: The prompt's name; or the prompt itself, from a list, by which the names of the
            arguments are checked before anything is sent.
        arguments: Its arguments, all strings.
        options: See `CallOptions`.

    Raises:
        UsageError: An argument is missing, unknown or no string.
    """
    params = prompt_params(name, arguments)
    raw = yield from exchange("prompts/get", params, max_rounds=core.settings.max_rounds)
    return validate(types.GetPromptResult, raw, "prompts/get")


# -- questions answered by hand


@operation
def begin_tool(
    core: ClientCore,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    can: tuple[Answerable, ...] = BY_HAND,
    **options: Unpack[CallOptions],
) -> Steps[CallToolResult | InputRequired[CallToolResult]]:
    """Call a tool, and come back with what the server asks instead of having it answered.

    In 2026-07-28 only; before, servers ask by requests of their own, which go to the handlers.

    Args:
        name: The tool's name.
        arguments: Its arguments.
        can: The kinds of questions that the server may ask.
        options: See `CallOptions`.

    Returns:
        The result, or what `resume` can go on with.
    """
    params = tool_params(name, arguments)
    yield from check_input(core, name, arguments, core.validation)
    yield from ask_for_task(core, name, params)
    call = partial(_begin, "tools/call", params, can, core)
    result: CallToolResult | InputRequired[CallToolResult]
    result = yield from retry_on_header_mismatch(call, core)
    if isinstance(result, types.CallToolResult):
        yield from check_output(core, name, result, core.validation)
    return result


@operation
def begin_prompt(
    core: ClientCore,
    name: str | Prompt,
    arguments: Mapping[str, str] | None = None,
    *,
    can: tuple[Answerable, ...] = BY_HAND,
    **options: Unpack[CallOptions],
) -> Steps[GetPromptResult | InputRequired[GetPromptResult]]:
    """Get a prompt, and come back with what the server asks; see `begin_tool`."""
    result: GetPromptResult | InputRequired[GetPromptResult] = yield from _begin(
        "prompts/get", prompt_params(name, arguments), can, core
    )
    return result


@operation
def begin_read(
    core: ClientCore,
    uri: str | Resource,
    *,
    can: tuple[Answerable, ...] = BY_HAND,
    **options: Unpack[CallOptions],
) -> Steps[ReadResourceResult | InputRequired[ReadResourceResult]]:
    """Read a resource, and come back with what the server asks; see `begin_tool`."""
    result: ReadResourceResult | InputRequired[ReadResourceResult] = yield from _begin(
        "resources/read", {"uri": uri_of(uri)}, can, core
    )
    return result


# -- the rest


@operation
def complete(
    core: ClientCore,
    ref: Completable,
    argument_name: str,
    value: str,
    context: Mapping[str, str] | None = None,
    **options: Unpack[CallOptions],
) -> Steps[CompleteResult]:
    """Ask for completions of an argument (spec: "Completion").

    Args:
        ref: The prompt or resource template, from a list: then the names of arguments are
            checked. Or the name of a prompt; a URI template, which begins with a scheme and
            has ``://`` or an expression in braces; or a `PromptReference` or
            `ResourceTemplateReference`.
        argument_name: Which of its arguments is being typed.
        value: What has been typed.
        context: Arguments settled already (since 2025-06-18; left out before).
        options: See `CallOptions`.

    Raises:
        UsageError: An argument is unknown or no string; or `ref` may be the name of a prompt
            as well as a template.
    """
    params = completion_params(ref, argument_name, value, context)
    raw = yield from exchange("completion/complete", params)
    return validate(types.CompleteResult, raw, "completion/complete")


@operation
def ping(core: ClientCore, **options: Unpack[CallOptions]) -> Steps[None]:
    """Ask the server whether it is there (until 2025-11-25)."""
    yield from exchange("ping")


@operation
def set_log_level(
    core: ClientCore, level: LoggingLevel, **options: Unpack[CallOptions]
) -> Steps[None]:
    """Ask the server to log at this level and above (spec: "Logging").

    Until 2025-11-25 it is a request of its own, sent again by itself in each new session. In
    2026-07-28 every request carries the level from now on; nothing is sent at once.
    """
    standing = core.session_state
    earlier = standing.log_level, standing.log_level_undeclared
    core.remember_log_level(check_log_level(level), core.resolve(options).undeclared)
    try:
        yield from exchange("logging/setLevel", {"level": level})
    except NotSupported:
        connection = core.live_connection()
        if connection is None or connection.dialect.stateful:
            core.remember_log_level(*earlier)
            raise
    except ServerError:
        core.remember_log_level(*earlier)
        raise


def _begin(
    method: str, params: dict[str, Any], can: tuple[Answerable, ...], core: ClientCore
) -> Steps[Any]:
    offer = as_offer(can)
    reply = yield from single_exchange(method, params, offer, max_rounds=core.settings.max_rounds)
    return result_or_questions(method, params, reply, offer, core.label)
