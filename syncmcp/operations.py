"""Every request that a client can make, each written once.

An operation is a generator: it yields requests and returns its result. The `operation` decorator
makes a callable of it that blocks, with a `future` beside it that does not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Protocol, TypeVar, overload

from typing_extensions import ParamSpec, Unpack

from syncmcp import types
from syncmcp._options import OPTION_NAMES, CallOptions, Options, check_log_level, text, whole_number
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.jsonrpc import INVALID_PARAMS
from syncmcp._protocol.steps import Steps
from syncmcp._runner import Host, run, submit
from syncmcp._threads import Deadline
from syncmcp.errors import (
    InvalidOutput,
    LimitExceeded,
    NotSupported,
    ProtocolError,
    ResourceNotFound,
    ServerError,
    UsageError,
)
from syncmcp.futures import RequestFuture

if TYPE_CHECKING:
    from pydantic import BaseModel

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
        PaginatedResult,
        Prompt,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
        Tool,
    )

__all__ = ["ALL_PAGES", "Operation", "OperationHost", "Operations", "Request"]

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound="BaseModel")
L = TypeVar("L", bound="PaginatedResult")


class _AllPages:
    """The type of `ALL_PAGES`."""

    def __repr__(self) -> str:
        return "ALL_PAGES"


ALL_PAGES: Final = _AllPages()
"""As `cursor` of a list operation: fetch every page. (`None` is the first page alone.)"""


class OperationHost(Host, Protocol):
    """What an operation needs of a client."""

    def _resolve(self, given: CallOptions) -> Options:
        """The options of a call: what was given, and the client's settings for the rest."""
        ...

    _page_limit: int
    """How many pages of a list are fetched at most."""

    def _remember_log_level(self, level: str) -> None:
        """Ask for this level in each request from now on, where that is how it is asked for."""
        ...


class Operation(Generic[P, R]):
    """One operation of a client; as an attribute of a client it is `BoundOperation`."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[R]]) -> None:
        self.steps = steps
        self.__name__ = steps.__name__
        self.__qualname__ = steps.__qualname__
        self.__doc__ = steps.__doc__
        self.__module__ = steps.__module__
        signature = inspect.signature(steps)
        # What the generator returns in the end is what its caller gets: `R` of `Steps[R]`.
        result = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
        self.__signature__ = signature.replace(return_annotation=result)
        self.names = frozenset(signature.parameters) - {"self", "options"}

    @overload
    def __get__(self, host: None, owner: type) -> Operation[P, R]: ...
    @overload
    def __get__(self, host: OperationHost, owner: type) -> BoundOperation[P, R]: ...
    def __get__(
        self, host: OperationHost | None, owner: type
    ) -> Operation[P, R] | BoundOperation[P, R]:
        return self if host is None else BoundOperation(self, host)

    def __call__(self, host: OperationHost, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `Client.call_tool(client, ...)`: block until the result is there."""
        return BoundOperation(self, host)(*args, **kwargs)


class BoundOperation(Generic[P, R]):
    """An operation of one client: call it and wait, or take its `future`."""

    __slots__ = ("_host", "_operation")

    def __init__(self, operation: Operation[P, R], host: OperationHost) -> None:
        self._operation = operation
        self._host = host

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the request and block until its result is there."""
        host = self._host
        options = _take_options(self._operation, host, kwargs) if kwargs else host._resolve({})
        steps = self._operation.steps(host, *args, **kwargs)
        return run(steps, host, options, Deadline(options.timeout))

    def future(self, *args: P.args, **kwargs: P.kwargs) -> RequestFuture[R]:
        """Make the request and return at once; the result comes through the future."""
        host = self._host
        options = _take_options(self._operation, host, kwargs) if kwargs else host._resolve({})
        steps = self._operation.steps(host, *args, **kwargs)
        return submit(steps, host, options, Deadline(options.timeout))

    def __get__(self, host: object, owner: type) -> BoundOperation[P, R]:
        # Having this makes `help()` and editors take it for the method that it is.
        return self

    @property
    def __name__(self) -> str:
        return self._operation.__name__

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._operation.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        signature = self._operation.__signature__
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __repr__(self) -> str:
        return f"<operation {self._operation.__name__} of {self._host!r}>"


def _take_options(
    operation: Operation[..., Any], host: OperationHost, kwargs: dict[str, Any]
) -> Options:
    """Take the call's options out of `kwargs`; what stays are arguments of the operation."""
    given: Any = {name: kwargs.pop(name) for name in OPTION_NAMES.intersection(kwargs)}
    unknown = kwargs.keys() - operation.names
    if unknown:
        raise TypeError(
            f"{operation.__name__}() got an unexpected keyword argument {min(unknown)!r}"
        )
    return host._resolve(given)


def operation(steps: Callable[Concatenate[Any, P], Steps[R]]) -> Operation[P, R]:
    """Make an operation of a generator method."""
    return Operation(steps)


class Request:
    """`client.request`: any method at all, with its own typing."""

    def __init__(self, host: OperationHost) -> None:
        self._host = host

    @overload
    def __call__(
        self,
        method: str,
        params: Mapping[str, Any] | None = ...,
        *,
        result: type[M],
        **options: Unpack[CallOptions],
    ) -> M: ...
    @overload
    def __call__(
        self,
        method: str,
        params: Mapping[str, Any] | None = ...,
        *,
        result: type[dict[str, Any]] = ...,
        **options: Unpack[CallOptions],
    ) -> dict[str, Any]: ...
    def __call__(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[Any] = dict,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Send a request of any method and block until its result is there.

        It has an id, a deadline, cancellation and `_meta` like every other request.

        Args:
            method: The JSON-RPC method.
            params: Its parameters.
            result: The pydantic model of the result, or `dict` for the result as it came.
            options: See `CallOptions`.

        Raises:
            NotSupported: The library knows the method, and the server or its revision lacks it.
            InvalidOutput: The result does not fit the model.
            McpError: Whatever else can become of a request.
        """
        resolved = self._host._resolve(options)
        deadline = Deadline(resolved.timeout)
        return run(_any_request(method, params, result), self._host, resolved, deadline)

    @overload
    def future(
        self,
        method: str,
        params: Mapping[str, Any] | None = ...,
        *,
        result: type[M],
        **options: Unpack[CallOptions],
    ) -> RequestFuture[M]: ...
    @overload
    def future(
        self,
        method: str,
        params: Mapping[str, Any] | None = ...,
        *,
        result: type[dict[str, Any]] = ...,
        **options: Unpack[CallOptions],
    ) -> RequestFuture[dict[str, Any]]: ...
    def future(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[Any] = dict,
        **options: Unpack[CallOptions],
    ) -> RequestFuture[Any]:
        """Like calling it, but returns a future at once."""
        resolved = self._host._resolve(options)
        deadline = Deadline(resolved.timeout)
        return submit(
            _any_request(method, params, result),
            self._host,
            resolved,
            deadline,
            foreign=result is not dict,
        )


def _any_request(method: str, params: Mapping[str, Any] | None, result: Any) -> Steps[Any]:
    text(method, "method")
    if not isinstance(result, type) or not (result is dict or hasattr(result, "model_validate")):
        raise UsageError(f"result is dict or a pydantic model, not {result!r}")
    _check_mapping(params, "params")
    model: Any = result
    raw = yield from exchange(method, None if params is None else dict(params))
    return raw if model is dict else _validate(model, raw, method)


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
        text(name, "name")
        _check_mapping(arguments, "arguments")
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        raw = yield from exchange("tools/call", params)
        return _validate(types.CallToolResult, raw, "tools/call")

    @operation
    def list_tools(
        self,
        *,
        cursor: str | _AllPages | None = ALL_PAGES,
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
            yield from _pages("tools/list", types.ListToolsResult, "tools", self, cursor, max_pages)
        )

    def iter_tools(
        self, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> Iterator[Tool]:
        """Iterate over the server's tools, fetching a page when it is needed.

        Takes what `list_tools` takes, and raises what it raises, when a page is fetched;
        `timeout` counts for each page.
        """
        return _iterate("tools/list", self.list_tools, "tools", self, max_pages, options)

    # -- resources -----------------------------------------------------------------------------

    @operation
    def list_resources(
        self,
        *,
        cursor: str | _AllPages | None = ALL_PAGES,
        max_pages: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Steps[ListResourcesResult]:
        """List the server's resources: all of them, or one page; see `list_tools`."""
        return (
            yield from _pages(
                "resources/list", types.ListResourcesResult, "resources", self, cursor, max_pages
            )
        )

    def iter_resources(
        self, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> Iterator[Resource]:
        """Iterate over the server's resources, fetching a page when it is needed."""
        return _iterate(
            "resources/list", self.list_resources, "resources", self, max_pages, options
        )

    @operation
    def list_resource_templates(
        self,
        *,
        cursor: str | _AllPages | None = ALL_PAGES,
        max_pages: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Steps[ListResourceTemplatesResult]:
        """List the server's resource templates: all of them, or one page; see `list_tools`."""
        return (
            yield from _pages(
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
        return _iterate(
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
            raw = yield from exchange("resources/read", {"uri": uri})
        except ServerError as error:
            if error.code == INVALID_PARAMS:
                raise ResourceNotFound(*error.args, **error.__dict__) from error
            raise
        return _validate(types.ReadResourceResult, raw, "resources/read")

    @operation
    def subscribe_resource(self, uri: str, **options: Unpack[CallOptions]) -> Steps[None]:
        """Ask to be told when a resource changes (until 2025-11-25).

        The server then sends ``notifications/resources/updated``; see `Client.on_notification`.
        """
        text(uri, "uri")
        yield from exchange("resources/subscribe", {"uri": uri})

    @operation
    def unsubscribe_resource(self, uri: str, **options: Unpack[CallOptions]) -> Steps[None]:
        """Take `subscribe_resource` back (until 2025-11-25)."""
        text(uri, "uri")
        yield from exchange("resources/unsubscribe", {"uri": uri})

    # -- prompts -------------------------------------------------------------------------------

    @operation
    def list_prompts(
        self,
        *,
        cursor: str | _AllPages | None = ALL_PAGES,
        max_pages: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Steps[ListPromptsResult]:
        """List the server's prompts: all of them, or one page; see `list_tools`."""
        return (
            yield from _pages(
                "prompts/list", types.ListPromptsResult, "prompts", self, cursor, max_pages
            )
        )

    def iter_prompts(
        self, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> Iterator[Prompt]:
        """Iterate over the server's prompts, fetching a page when it is needed."""
        return _iterate("prompts/list", self.list_prompts, "prompts", self, max_pages, options)

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
        text(name, "name")
        _check_mapping(arguments, "arguments")
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        raw = yield from exchange("prompts/get", params)
        return _validate(types.GetPromptResult, raw, "prompts/get")

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
        return _validate(types.CompleteResult, raw, "completion/complete")

    @operation
    def ping(self, **options: Unpack[CallOptions]) -> Steps[None]:
        """Ask the server whether it is there (until 2025-11-25)."""
        yield from exchange("ping")

    @operation
    def set_log_level(self, level: LoggingLevel, **options: Unpack[CallOptions]) -> Steps[None]:
        """Ask the server to log at this level and above (spec: "Logging").

        Until 2025-11-25 it is a request of its own. In 2026-07-28 every request carries the level
        from now on; nothing is sent at once.
        """
        self._remember_log_level(check_log_level(level))
        try:
            yield from exchange("logging/setLevel", {"level": level})
        except NotSupported:
            connection = self._live()
            if connection is None or connection.dialect.stateful:
                raise


def _check_mapping(value: object, name: str) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(f"{name} is a mapping or None, not {value!r}")


def _validate(model: type[M], raw: dict[str, Any], method: str) -> M:
    """Build the model of a result.

    Raises:
        InvalidOutput: It does not fit.
    """
    try:
        # The library's own models are read by wire names alone; a caller's as that caller wrote it.
        read: Callable[[Any], M] = getattr(model, "from_wire", model.model_validate)
        return read(raw)
    except ValueError as error:
        raise InvalidOutput(
            f"the result does not fit {model.__name__}: {_first_problem(error)}", method=method
        ) from error


def _first_problem(error: ValueError) -> str:
    # Without the input: it may hold anything, secrets too.
    problem = error.errors(include_input=False, include_url=False)[0]  # type: ignore[attr-defined]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _pages(
    method: str,
    model: type[L],
    items: str,
    host: OperationHost,
    cursor: str | _AllPages | None,
    max_pages: int | None,
) -> Steps[L]:
    """One page, or all of them in one result."""
    if not isinstance(cursor, _AllPages):
        raw = yield from exchange(method, None if cursor is None else {"cursor": cursor})
        return _validate(model, raw, method)
    guard = _PageGuard(method, host._page_limit if max_pages is None else max_pages)
    raw = yield from exchange(method)
    whole = page = _validate(model, raw, method)
    while page.next_cursor is not None:
        guard.check(page.next_cursor)
        raw = yield from exchange(method, {"cursor": page.next_cursor})
        page = _validate(model, raw, method)
        getattr(whole, items).extend(getattr(page, items))
    whole.next_cursor = None
    return whole


class _PageGuard:
    """Ends a list that would never end."""

    def __init__(self, method: str, limit: int) -> None:
        self._method = method
        self._limit = whole_number(limit, "max_pages")
        self._pages = 1
        self._seen: set[str] = set()

    def check(self, cursor: str) -> None:
        """Before the page at `cursor` is fetched.

        Raises:
            ProtocolError: It was fetched before.
            LimitExceeded: It is one too many.
        """
        if cursor in self._seen:
            raise ProtocolError("the server's cursors go round in circles", method=self._method)
        self._seen.add(cursor)
        self._pages += 1
        if self._pages > self._limit:
            raise LimitExceeded(
                f"more than {self._limit} pages (option max_pages)", method=self._method
            )


def _iterate(
    method: str,
    list_page: BoundOperation[..., Any],
    items: str,
    host: OperationHost,
    max_pages: int | None,
    options: CallOptions,
) -> Iterator[Any]:
    host._resolve(options)  # a mistake is raised here, not when the first page is fetched
    guard = _PageGuard(method, host._page_limit if max_pages is None else max_pages)

    def iterate() -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = list_page(cursor=cursor, **options)
            yield from getattr(page, items)
            cursor = page.next_cursor
            if cursor is None:
                return
            guard.check(cursor)

    return iterate()
