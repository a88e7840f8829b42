"""Every request that a client can make, each written once as a generator; see `_operation`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import Unpack

from syncmcp import types
from syncmcp._operation import OperationHost, check_mapping, operation
from syncmcp._options import CallOptions, check_log_level, text
from syncmcp._pagination import ALL_PAGES, AllPages, iterate, pages
from syncmcp._protocol.exchange import exchange, single_exchange
from syncmcp._protocol.jsonrpc import INVALID_PARAMS
from syncmcp._protocol.steps import Steps
from syncmcp._results import validate
from syncmcp._resume import outcome
from syncmcp.errors import (
    HeaderMismatch,
    McpError,
    NotSupported,
    ResourceNotFound,
    ServerError,
    UsageError,
)
from syncmcp.pending import BY_HAND, Answerable, InputRequired, as_offer

if TYPE_CHECKING:
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
        ReadResourceResult,
        Resource,
        ResourceTemplate,
        Tool,
    )

__all__ = ["Operations"]


class Operations(OperationHost, Protocol):
    """The operations of a client. Each blocks; its `.future(...)` returns a `RequestFuture`.

    All take the options of `CallOptions` by keyword. All raise `NotSupported` before anything is
    sent where the server or its revision lacks the feature, `ServerError` when the server refuses,
    `RequestTimeout`, `RequestCancelled`, and a `TransportError` when the wire fails.
    """

    # -- tools -------------------------------------------------------------------------------

    @operation
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> Steps[CallToolResult]:
        """Call a tool (spec: tools, "Calling Tools").

        A tool that ran and failed is a result with `is_error`; see
        `CallToolResult.raise_for_error`.

        Args:
            name: The tool's name.
            arguments: Its arguments.
            options: See `CallOptions`.

        Raises:
            InvalidParams: There is no such tool, or the arguments are not accepted.
            OutcomeUnknown: The connection broke after the call was sent; it may have been done.
        """
        params = _named(name, arguments)
        raw = yield from _tool_exchange(params, self)
        result = validate(types.CallToolResult, raw, "tools/call")
        result._came_from(name, self._label)
        return result

    @operation
    def list_tools(
        self,
        *,
        cursor: str | AllPages | None = ALL_PAGES,
        max_pages: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Steps[ListToolsResult]:
        """List the server's tools: all of them, or one page (spec: tools, "Listing Tools").

        Args:
            cursor: Where to start one page: `None` for the first, a page's `next_cursor` for the
                one after it. Left out, all pages are fetched and put together.
            max_pages: The most pages to fetch; the client's `max_pages` by default.
            options: See `CallOptions`.

        Raises:
            LimitExceeded: There are more pages.
            ProtocolError: The server's cursors go round in circles.
        """
        return (
            yield from pages("tools/list", types.ListToolsResult, "tools", self, cursor, max_pages)
        )

    def iter_tools(
        self, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> Iterator[Tool]:
        """Iterate over the server's tools, fetching a page when it is needed.

        Takes what `list_tools` takes, and raises what it raises, when a page is fetched;
        `timeout` counts for each page.
        """
        return iterate("tools/list", self.list_tools, "tools", self, max_pages, options)

    # -- resources -----------------------------------------------------------------------------

    @operation
    def list_resources(
        self,
        *,
        cursor: str | AllPages | None = ALL_PAGES,
        max_pages: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Steps[ListResourcesResult]:
        """List the server's resources: all of them, or one page; see `list_tools`."""
        return (
            yield from pages(
                "resources/list", types.ListResourcesResult, "resources", self, cursor, max_pages
            )
        )

    def iter_resources(
        self, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> Iterator[Resource]:
        """Iterate over the server's resources, fetching a page when it is needed."""
        return iterate("resources/list", self.list_resources, "resources", self, max_pages, options)

    @operation
    def list_resource_templates(
        self,
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
                self,
                cursor,
                max_pages,
            )
        )

    def iter_resource_templates(
        self, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> Iterator[ResourceTemplate]:
        """Iterate over the server's resource templates, fetching a page when it is needed."""
        return iterate(
            "resources/templates/list",
            self.list_resource_templates,
            "resource_templates",
            self,
            max_pages,
            options,
        )

    @operation
    def read_resource(self, uri: str, **options: Unpack[CallOptions]) -> Steps[ReadResourceResult]:
        """Read a resource (spec: resources, "Reading Resources").

        Args:
            uri: The resource's URI.
            options: See `CallOptions`.

        Raises:
            ResourceNotFound: The server has no such resource, whichever of the two codes that
                the revisions use for it the server chose.
        """
        text(uri, "uri")
        try:
            raw = yield from exchange("resources/read", {"uri": uri}, max_rounds=self._round_limit)
        except ServerError as error:
            if error.code == INVALID_PARAMS:
                raise ResourceNotFound(*error.args, **error.__dict__) from error
            raise
        return validate(types.ReadResourceResult, raw, "resources/read")

    @operation
    def subscribe_resource(self, uri: str, **options: Unpack[CallOptions]) -> Steps[None]:
        """Ask to be told when a resource changes (until 2025-11-25).

        The server then sends ``notifications/resources/updated``; see `Client.on_notification`.
        It is asked again by itself in each new session, until the client is closed.
        """
        text(uri, "uri")
        new = self._standing.subscribe(uri)
        try:
            yield from exchange("resources/subscribe", {"uri": uri})
        except McpError:
            if new:
                self._standing.unsubscribe(uri)
            raise

    @operation
    def unsubscribe_resource(self, uri: str, **options: Unpack[CallOptions]) -> Steps[None]:
        """Take `subscribe_resource` back (until 2025-11-25)."""
        text(uri, "uri")
        self._standing.unsubscribe(uri)
        yield from exchange("resources/unsubscribe", {"uri": uri})

    # -- prompts -------------------------------------------------------------------------------

    @operation
    def list_prompts(
        self,
        *,
        cursor: str | AllPages | None = ALL_PAGES,
        max_pages: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Steps[ListPromptsResult]:
        """List the server's prompts: all of them, or one page; see `list_tools`."""
        return (
            yield from pages(
                "prompts/list", types.ListPromptsResult, "prompts", self, cursor, max_pages
            )
        )

    def iter_prompts(
        self, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> Iterator[Prompt]:
        """Iterate over the server's prompts, fetching a page when it is needed."""
        return iterate("prompts/list", self.list_prompts, "prompts", self, max_pages, options)

    @operation
    def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> Steps[GetPromptResult]:
        """Get a prompt with its arguments filled in (spec: prompts, "Getting a Prompt").

        Args:
            name: The prompt's name.
            arguments: Its arguments, all strings.
            options: See `CallOptions`.
        """
        params = _named(name, arguments)
        raw = yield from exchange("prompts/get", params, max_rounds=self._round_limit)
        return validate(types.GetPromptResult, raw, "prompts/get")

    # -- questions answered by hand ------------------------------------------------------------

    @operation
    def begin_tool(
        self,
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
        result: CallToolResult | InputRequired[CallToolResult] = yield from _begin(
            "tools/call", _named(name, arguments), can, self._label
        )
        return result

    @operation
    def begin_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        can: tuple[Answerable, ...] = BY_HAND,
        **options: Unpack[CallOptions],
    ) -> Steps[GetPromptResult | InputRequired[GetPromptResult]]:
        """Get a prompt, and come back with what the server asks; see `begin_tool`."""
        result: GetPromptResult | InputRequired[GetPromptResult] = yield from _begin(
            "prompts/get", _named(name, arguments), can, self._label
        )
        return result

    @operation
    def begin_read(
        self,
        uri: str,
        *,
        can: tuple[Answerable, ...] = BY_HAND,
        **options: Unpack[CallOptions],
    ) -> Steps[ReadResourceResult | InputRequired[ReadResourceResult]]:
        """Read a resource, and come back with what the server asks; see `begin_tool`."""
        text(uri, "uri")
        result: ReadResourceResult | InputRequired[ReadResourceResult] = yield from _begin(
            "resources/read", {"uri": uri}, can, self._label
        )
        return result

    # -- the rest ------------------------------------------------------------------------------

    @operation
    def complete(
        self,
        ref: CompletionReference,
        argument_name: str,
        value: str,
        context: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> Steps[CompleteResult]:
        """Ask for completions of an argument (spec: "Completion").

        Args:
            ref: The prompt or resource template: a `PromptReference` or
                `ResourceTemplateReference`.
            argument_name: Which of its arguments is being typed.
            value: What has been typed.
            context: Arguments settled already (since 2025-06-18; left out before).
            options: See `CallOptions`.
        """
        if not isinstance(ref, types.PromptReference | types.ResourceTemplateReference):
            raise UsageError(f"ref is a PromptReference or ResourceTemplateReference, not {ref!r}")
        params: dict[str, Any] = {
            "ref": ref.to_wire(),
            "argument": {"name": argument_name, "value": value},
        }
        if context is not None:
            params["context"] = {"arguments": dict(context)}
        raw = yield from exchange("completion/complete", params)
        return validate(types.CompleteResult, raw, "completion/complete")

    @operation
    def ping(self, **options: Unpack[CallOptions]) -> Steps[None]:
        """Ask the server whether it is there (until 2025-11-25)."""
        yield from exchange("ping")

    @operation
    def set_log_level(self, level: LoggingLevel, **options: Unpack[CallOptions]) -> Steps[None]:
        """Ask the server to log at this level and above (spec: "Logging").

        Until 2025-11-25 it is a request of its own, sent again by itself in each new session. In
        2026-07-28 every request carries the level from now on; nothing is sent at once.
        """
        earlier = self._standing.log_level
        self._remember_log_level(check_log_level(level))
        try:
            yield from exchange("logging/setLevel", {"level": level})
        except NotSupported:
            connection = self._live()
            if connection is None or connection.dialect.stateful:
                self._remember_log_level(earlier)
                raise
        except ServerError:
            self._remember_log_level(earlier)
            raise


def _tool_exchange(params: dict[str, Any], host: OperationHost) -> Steps[dict[str, Any]]:
    """Call a tool; if the headers did not repeat what they should, list the tools and try again.

    A call with such headers was refused before it was read (spec: transports, "Client Behavior").
    """
    call = partial(exchange, "tools/call", params, max_rounds=host._round_limit)
    try:
        return (yield from call())
    except HeaderMismatch as mismatch:
        try:
            yield from pages("tools/list", types.ListToolsResult, "tools", host, ALL_PAGES, None)
        except McpError as error:
            raise mismatch from error
    return (yield from call())


def _named(name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    text(name, "name")
    check_mapping(arguments, "arguments")
    params: dict[str, Any] = {"name": name}
    if arguments is not None:
        params["arguments"] = arguments
    return params


def _begin(
    method: str, params: dict[str, Any], can: tuple[Answerable, ...], server: str
) -> Steps[Any]:
    offer = as_offer(can)
    reply = yield from single_exchange(method, params, offer)
    return outcome(method, params, reply, offer, server)
