"""The operations of a client, each written once as a generator of steps; see `operation`.

Each operation takes the options of `CallOptions` as keyword arguments. Each raises `NotSupported`
before anything is sent if the revision lacks the feature, or if the server does not declare it
(option `undeclared`). Each may raise `RequestTimeout`, `RequestCancelled`, `ServerError` if the
server returns an error, and a `TransportError` if the connection fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from typing_extensions import Unpack

from syncmcp import types
from syncmcp._base.checks import text, validate
from syncmcp._base.similar import comparable, did_you_mean
from syncmcp._client.arguments import Completable, completion_params, prompt_params, uri_of
from syncmcp._client.core import ClientCore, HasCore
from syncmcp._client.operation import operation
from syncmcp._client.pages import ALL_PAGES, AllPages, cached_or_exchange, iterate, pages
from syncmcp._client.requests import ask
from syncmcp._client.tool_calls import (
    ask_for_task,
    check_input,
    checked_result,
    get_negotiated,
    learn_headers,
    suggest_tools,
    tool_params,
)
from syncmcp._connection.options import CallOptions, check_log_level
from syncmcp._connection.tool_schemas import OutputCheck
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.steps import Steps
from syncmcp.errors import HeaderMismatch, InvalidParams, NotSupported, ServerError
from syncmcp.handlers.pending import BY_HAND, Answerable, InputRequired, as_offer

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
) -> Steps[types.CallToolResult]:
    """Call a tool (spec: tools, "Calling Tools").

    >>> client.call_tool("add", {"a": 1, "b": 2}, timeout=5).raise_for_error().text
    '3'
    >>> client.call_tool("weather", {"city": "Bergen"}).data["celsius"]
    9.5

    A call may become a task, because the tool requires a task or the server decides so. The client
    then polls the task until it ends. A task that does not end within `timeout` is cancelled. See
    `start_task`.

    A tool that ran and failed returns a result with `is_error`; see
    `CallToolResult.raise_for_error`.

    Args:
        name: The tool's name.
        arguments: The tool's arguments.
        validate_output: What happens to structured content that does not match the tool's
            output schema: ``"raise"``, ``"warn"`` or ``"off"``. The default is the client's
            `validate_output`. If the schema is not known yet, or seems outdated, the client lists
            the tools once.
        validate_input: Whether the client checks the arguments against the tool's input schema. The
            default is the client's `validate_input`.
        options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

    Returns:
        The result: `text`, `data`, `json()`, `parse()`, `content`, `is_error` and others.

    Raises:
        InvalidOutput: The result does not match the output schema; the error has the result.
        InvalidArguments: The arguments do not match the input schema; nothing was sent.
        UnsupportedSchema: The tool's schema cannot be used for validation.
        InvalidParams: The server has no such tool, or rejects the arguments.
        OutcomeUnknown: The connection broke after the call was sent; the tool may have run.
        McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
    """
    params = tool_params(name, arguments)
    checks = core.validation
    if validate_output is not None or validate_input is not None:
        checks = checks.but(validate_output, validate_input)
    if checks.input:
        yield from check_input(core, name, arguments)
    connection = core.connection
    if connection is None or connection.agreed.tasks is not None:
        yield from ask_for_task(core, name, params)
    call = partial(exchange, "tools/call", params, max_rounds=core.settings.max_rounds)
    try:
        raw = yield from call()
    except HeaderMismatch as mismatch:
        yield from learn_headers(core, mismatch)
        raw = yield from call()
    except InvalidParams as error:
        suggest_tools(core, name, error)
        raise
    return (yield from checked_result(core, name, raw, checks))


@operation
def list_tools(
    core: ClientCore,
    *,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    **options: Unpack[CallOptions],
) -> Steps[types.ListToolsResult]:
    """List the server's tools: all of them, or one page (spec: tools, "Listing Tools").

    >>> tools = client.list_tools().tools
    >>> [tool.name for tool in tools][:3]
    ['add', 'echo', 'greet']
    >>> tools[0].description
    'Add two integers.'

    All pages belong to one session. If the session ends in the middle, because the server's
    process died or the server forgot the session, the list restarts at its first page. It also
    restarts, once, if the server rejects a cursor (spec 2026-07-28: caching, "Interaction with
    Pagination"). `timeout` limits all pages together.

    Args:
        cursor: The page to fetch: `None` for the first page, or the `next_cursor` of a page for the
            page after it. By default all pages are fetched and returned as one result.
        max_pages: The maximum number of pages of the list, which are counted again after a restart.
            The default is the client's `max_pages`.
        options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

    Raises:
        LimitExceeded: The list has more pages than `max_pages`, or is too large.
        ProtocolError: The server repeated a cursor.
        SessionLost: The session ended in the middle of the list more often than `Retry` sends a
            request. Or the session ended before the page at `cursor` was fetched (before
            2026-07-28).
        InvalidParams: The server rejected `cursor`, or rejected two of its own cursors.
        McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
    """
    return (yield from pages("tools/list", types.ListToolsResult, core, cursor, max_pages))


def iter_tools(
    self: HasCore, *, max_pages: int | None = None, **options: Unpack[CallOptions]
) -> Iterator[types.Tool]:
    """Iterate over the server's tools, and fetch each page when it is needed.

    >>> next(tool.name for tool in client.iter_tools() if tool.output_schema)
    'weather'

    Cached pages are used only if all pages are cached. The iterator looks for them before it
    returns the first tool.

    The function takes the options of `list_tools`. The iterator raises the errors of `list_tools`
    when it fetches a page. `timeout` limits each page.

    If the list restarts, as described at `list_tools`, the iterator skips tools that it has
    returned already. It identifies a tool by its name (a resource by its URI, a template by its URI
    template, a task by its id). The iterator cannot take back a tool that the new list does not
    have, or return a tool again that has changed. `list_tools` returns one consistent list.
    """
    return iterate("tools/list", types.ListToolsResult, self, max_pages, options)


# -- resources


@operation
def list_resources(
    core: ClientCore,
    *,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    **options: Unpack[CallOptions],
) -> Steps[types.ListResourcesResult]:
    """List the server's resources: all of them, or one page; see `list_tools`."""
    return (yield from pages("resources/list", types.ListResourcesResult, core, cursor, max_pages))


def iter_resources(
    self: HasCore, *, max_pages: int | None = None, **options: Unpack[CallOptions]
) -> Iterator[types.Resource]:
    """Iterate over the server's resources, page by page; see `iter_tools`."""
    return iterate("resources/list", types.ListResourcesResult, self, max_pages, options)


@operation
def list_resource_templates(
    core: ClientCore,
    *,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    **options: Unpack[CallOptions],
) -> Steps[types.ListResourceTemplatesResult]:
    """List the server's resource templates: all of them, or one page; see `list_tools`."""
    method, model = "resources/templates/list", types.ListResourceTemplatesResult
    return (yield from pages(method, model, core, cursor, max_pages))


def iter_resource_templates(
    self: HasCore, *, max_pages: int | None = None, **options: Unpack[CallOptions]
) -> Iterator[types.ResourceTemplate]:
    """Iterate over the server's resource templates, page by page; see `iter_tools`."""
    method, model = "resources/templates/list", types.ListResourceTemplatesResult
    return iterate(method, model, self, max_pages, options)


@operation
def read_resource(
    core: ClientCore, uri: str | types.Resource, **options: Unpack[CallOptions]
) -> Steps[types.ReadResourceResult]:
    """Read a resource (spec: resources, "Reading Resources").

    >>> client.read_resource("demo://readme").contents[0].text
    'This is the demo server.'
    >>> for resource in client.list_resources().resources:
    ...     print(resource.uri, client.read_resource(resource).contents[0].mime_type)
    demo://readme text/plain
    demo://pixel.png image/png
    demo://cities text/plain

    Args:
        uri: The URI of the resource, of any scheme, which is sent unchanged. A `Resource` from a
            list, or a `ResourceLink` from the result of a tool, stands for its URI. The URI always
            goes to the server: the client fetches nothing from elsewhere and opens no file.
        options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

    Raises:
        ResourceNotFound: The server has no such resource. Both error codes that the revisions
            define for this raise it.
        McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
    """
    params = {"uri": uri_of(uri)}
    try:
        raw = yield from cached_or_exchange(core, "resources/read", params)
    except ServerError as error:
        if "{" in params["uri"]:
            error.hint = "expand a URI template with syncmcp.templates.UriTemplate"
        raise
    return validate(types.ReadResourceResult, raw, "resources/read")


@operation
def subscribe_resource(core: ClientCore, uri: str, **options: Unpack[CallOptions]) -> Steps[None]:
    """Subscribe to changes of a resource (before 2026-07-28).

    The server then sends ``notifications/resources/updated``; see `Client.on_notification`.
    The client subscribes again in each new session, until it is closed.

    >>> from queue import Queue
    >>> seen = Queue()
    >>> with syncmcp.connect(server, mode="2025-11-25") as client:
    ...     client.on_notification("notifications/resources/updated", seen.put)
    ...     client.subscribe_resource("demo://readme")
    ...     server.resource_updated("demo://readme")  # at the server
    ...     print(seen.get(timeout=5))
    {'uri': 'demo://readme'}

    Args:
        uri: The URI of the resource.
        options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

    Raises:
        McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
    """
    text(uri, "uri")
    with core.session_state.resources.explicit(uri, core.resolve(options).undeclared):
        yield from exchange("resources/subscribe", {"uri": uri})


@operation
def unsubscribe_resource(core: ClientCore, uri: str, **options: Unpack[CallOptions]) -> Steps[None]:
    """Undo `subscribe_resource` (before 2026-07-28).

    While there are listeners of the resource (see `Client.listen`), the server stays subscribed.

    Args:
        uri: The URI of the resource.
        options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

    Raises:
        McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
    """
    text(uri, "uri")
    undeclared, method = core.resolve(options).undeclared, "resources/unsubscribe"
    # Checked first: a refused call changes nothing.
    (yield from get_negotiated(core, method)).check(method, undeclared)
    uris = core.session_state.resources
    if not uris.remove_explicit(uri):
        return  # the resource has listeners
    yield from exchange(method, {"uri": uri})
    if uris.has_listeners(uri):  # a new listener may have subscribed before this request
        yield from exchange("resources/subscribe", {"uri": uri})


# -- prompts


@operation
def list_prompts(
    core: ClientCore,
    *,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    **options: Unpack[CallOptions],
) -> Steps[types.ListPromptsResult]:
    """List the server's prompts: all of them, or one page; see `list_tools`."""
    listed = yield from pages("prompts/list", types.ListPromptsResult, core, cursor, max_pages)
    core.prompt_names = comparable(prompt.name for prompt in listed.prompts)
    return listed


def iter_prompts(
    self: HasCore, *, max_pages: int | None = None, **options: Unpack[CallOptions]
) -> Iterator[types.Prompt]:
    """Iterate over the server's prompts, page by page; see `iter_tools`."""
    return iterate("prompts/list", types.ListPromptsResult, self, max_pages, options)


@operation
def get_prompt(
    core: ClientCore,
    name: str | types.Prompt,
    arguments: Mapping[str, str] | None = None,
    **options: Unpack[CallOptions],
) -> Steps[types.GetPromptResult]:
    """Get a prompt with its arguments filled in (spec: prompts, "Getting a Prompt").

    >>> result = client.get_prompt("translate", {"text": "fisk", "language": "French"})
    >>> [message.content.text for message in result.messages]
    ['Translate into French:', 'fisk']

    Args:
        name: The name of the prompt, or a `Prompt` from a list. If a `Prompt` lists its arguments,
            the names of the arguments are checked before anything is sent.
        arguments: The arguments of the prompt, all strings.
        options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

    Raises:
        UsageError: An argument is missing, unknown or not a string.
        McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
    """
    params = prompt_params(name, arguments)
    try:
        raw = yield from exchange("prompts/get", params, max_rounds=core.settings.max_rounds)
    except ServerError as error:  # servers use different codes
        if params["name"] not in core.prompt_names:
            error.hint = did_you_mean(params["name"], core.prompt_names) or error.hint
        raise
    return validate(types.GetPromptResult, raw, "prompts/get")


# -- calls that return the questions of the server to the program


@operation
def begin_tool(
    core: ClientCore,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    can: tuple[Answerable, ...] = BY_HAND,
    **options: Unpack[CallOptions],
) -> Steps[types.CallToolResult | InputRequired[types.CallToolResult]]:
    """Call a tool, and return the server's questions instead of passing them to handlers.

    >>> pending = client.begin_tool("ask_user_preferences")
    >>> [question.params["message"] for question in pending.questions.values()]
    ['How should answers look?']

    This applies to revision 2026-07-28. In older revisions servers ask by requests of their own,
    and the client passes these requests to the handlers.

    Args:
        name: The tool's name.
        arguments: The tool's arguments.
        can: The kinds of questions that the server may ask.
        options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

    Returns:
        The result, or an `InputRequired` for `Client.resume`.

    Raises:
        McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
    """
    params = tool_params(name, arguments)
    if core.validation.input:
        yield from check_input(core, name, arguments)
    connection = core.connection
    if connection is None or connection.agreed.tasks is not None:
        yield from ask_for_task(core, name, params)
    call = partial(ask, core, "tools/call", params, params, as_offer(can))
    result: types.CallToolResult | InputRequired[types.CallToolResult]
    try:
        result = yield from call()
    except HeaderMismatch as mismatch:
        yield from learn_headers(core, mismatch)
        result = yield from call()
    except InvalidParams as error:
        suggest_tools(core, name, error)
        raise
    return result


@operation
def begin_prompt(
    core: ClientCore,
    name: str | types.Prompt,
    arguments: Mapping[str, str] | None = None,
    *,
    can: tuple[Answerable, ...] = BY_HAND,
    **options: Unpack[CallOptions],
) -> Steps[types.GetPromptResult | InputRequired[types.GetPromptResult]]:
    """Get a prompt, or return the server's questions; see `begin_tool`."""
    params = prompt_params(name, arguments)
    result: types.GetPromptResult | InputRequired[types.GetPromptResult]
    result = yield from ask(core, "prompts/get", params, params, as_offer(can))
    return result


@operation
def begin_read(
    core: ClientCore,
    uri: str | types.Resource,
    *,
    can: tuple[Answerable, ...] = BY_HAND,
    **options: Unpack[CallOptions],
) -> Steps[types.ReadResourceResult | InputRequired[types.ReadResourceResult]]:
    """Read a resource, or return the server's questions; see `begin_tool`."""
    params = {"uri": uri_of(uri)}
    result: types.ReadResourceResult | InputRequired[types.ReadResourceResult]
    result = yield from ask(core, "resources/read", params, params, as_offer(can))
    return result


# -- completion, ping, logging


@operation
def complete(
    core: ClientCore,
    ref: Completable,
    argument_name: str,
    value: str,
    context: Mapping[str, str] | None = None,
    **options: Unpack[CallOptions],
) -> Steps[types.CompleteResult]:
    """Ask for completions of an argument (spec: "Completion").

    >>> client.complete("translate", "language", "G").completion.values
    ['German']

    Args:
        ref: A `Prompt` or `ResourceTemplate` from a list, the name of a prompt, a URI template, a
            `PromptReference` or a `ResourceTemplateReference`. A URI template begins with a scheme
            and has ``://`` or an expression in braces. If a `Prompt` or `ResourceTemplate` lists
            its arguments, the names of the arguments are checked.
        argument_name: The argument to complete.
        value: The beginning of the argument's value, as typed so far.
        context: The values of other arguments (since 2025-06-18; not sent in earlier revisions).
        options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

    Raises:
        UsageError: An argument is unknown or not a string. Or `ref` is ambiguous, because it may be
            the name of a prompt or a URI template.
        McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
    """
    params = completion_params(ref, argument_name, value, context)
    raw = yield from exchange("completion/complete", params)
    return validate(types.CompleteResult, raw, "completion/complete")


@operation
def ping(core: ClientCore, **options: Unpack[CallOptions]) -> Steps[None]:
    """Check that the server responds (before 2026-07-28).

    >>> with syncmcp.connect(server, mode="2025-11-25") as client:
    ...     print(client.ping(timeout=5))
    None

    Args:
        options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

    Raises:
        McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
    """
    yield from exchange("ping")


@operation
def set_log_level(
    core: ClientCore, level: types.LoggingLevel, **options: Unpack[CallOptions]
) -> Steps[None]:
    """Set the lowest level of the log messages that the server sends (spec: "Logging").

    >>> client.set_log_level("warning")

    Before 2026-07-28 the client sends a request for this, and repeats it in each new session. In
    2026-07-28 the client sends nothing at once; every later request carries the level.

    Args:
        level: The level, from ``"debug"`` to ``"emergency"``.
        options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

    Raises:
        McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
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
