"""The tool loop: a model requests tool calls, the loop makes them, and the model gets results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from syncmcp import types
from syncmcp._base.checks import check_callable, hinting, kind_of, seconds, whole_number
from syncmcp._base.text import first_problem
from syncmcp._client.core import core_of
from syncmcp._concurrency.cancel import CancelToken
from syncmcp._concurrency.futures import done_futures
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import unknown_tool
from syncmcp._protocol.capabilities import SAMPLING
from syncmcp._protocol.conversation import check_tool_results, tool_uses
from syncmcp.approval import as_approval
from syncmcp.errors import (
    AuthError,
    ClosedError,
    Denied,
    McpError,
    RequestCancelled,
    RequestTimeout,
    TooManyRounds,
    UsageError,
)
from syncmcp.group import ClientGroup, group_state
from syncmcp.handlers import SamplingHandler
from syncmcp.handlers.context import (
    PROGRESS_ARGUMENTS,
    HandlerContext,
    nested_context,
    run_callbacks_with,
)

if TYPE_CHECKING:
    from syncmcp._client.client import Client
    from syncmcp._concurrency.futures import RequestFuture
    from syncmcp.approval import Approval, Policy
    from syncmcp.types import (
        CallToolResult,
        CreateMessageRequestParams,
        CreateMessageResult,
        SamplingMessage,
        Tool,
        ToolChoice,
        ToolResultContent,
        ToolUseContent,
    )

__all__ = [
    "ModelTurn",
    "Step",
    "ToolFinished",
    "ToolLoop",
    "ToolLoopResult",
    "ToolProgress",
    "ToolStarted",
]

_OF_LOOP = "max_iterations timeout max_parallel approval on_step on_text on_progress"
_MAX_TOKENS: Final = 4096

# Errors that end the loop: only the program can do something about them, not the model.
_FATAL: Final = (AuthError, ClosedError)


@dataclass(frozen=True)
class ModelTurn:
    """The model has answered.

    Attributes:
        iteration: The number of the turn, from 1.
        result: The answer.
    """

    iteration: int
    result: CreateMessageResult


@dataclass(frozen=True)
class ToolStarted:
    """A tool call was allowed and starts now; its progress is reported later.

    Attributes:
        iteration: The number of the turn that requested the call; 0 if an earlier run requested it.
        use: The tool use that the model requested: tool and arguments.
    """

    iteration: int
    use: ToolUseContent


@dataclass(frozen=True)
class ToolFinished:
    """A tool call has ended, or was not made: the tool does not exist, or the call was denied.

    Attributes:
        iteration: The number of the turn that requested the call; 0 if an earlier run requested it.
        use: The tool use that the model requested.
        result: The result for the model.
    """

    iteration: int
    use: ToolUseContent
    result: ToolResultContent


Step: TypeAlias = ModelTurn | ToolStarted | ToolFinished
"""An event of a tool loop."""


class ToolProgress(Protocol):
    """A function that gets the progress of tool calls, on a pool thread, in order of arrival."""

    def __call__(
        self, use: ToolUseContent, progress: float, total: float | None, message: str | None, /
    ) -> object:
        """Receive one report: the tool use, and the arguments of a `ProgressHandler`."""
        ...


@dataclass(frozen=True)
class ToolLoopResult:
    """The result of a tool loop.

    Attributes:
        result: The model's last answer, which requests no tool.
        messages: The whole conversation, including the last answer. To continue, append a message,
            and pass the list to `ToolLoop.run`.
        iterations: The number of turns of the model.
    """

    result: CreateMessageResult
    messages: list[SamplingMessage]
    iterations: int

    @property
    def text(self) -> str:
        """The text of the last answer."""
        return self.result.text


class ToolLoop:
    """A loop in which a model uses tools until it answers (sampling, "Multi-turn Tool Loop").

    >>> from syncmcp.types import CreateMessageResult, TextContent, ToolUseContent
    >>> def model(request, context):  # in place of a model: it uses one tool, then it answers
    ...     block = TextContent(text="It is 3.")
    ...     if len(request.messages) == 1:
    ...         block = ToolUseContent(id="1", name="add", input={"a": 1, "b": 2})
    ...     return CreateMessageResult(role="assistant", content=block, model="none")
    >>> syncmcp.ToolLoop(model, client).run("What is 1 + 2?").text
    'It is 3.'

    Tool calls that the model requests in one turn run in parallel. The model gets their results in
    the order of its requests. Errors of tool calls become results for the model, which may try
    something else: the tool fails or does not exist, the call is denied, its arguments are refused,
    or it exceeds the client's `timeout`. Only two errors of tool calls end the loop: the client or
    group is closed, or the server of a single client refuses the credentials.

    An `approval` sees the tool's server and the tool's name on that server. If its policy requires
    a person, tools that a trusted server declares read-only are allowed without asking. A person
    has the client's `human_timeout` to decide.

    A loop has no state between runs; any number of threads may run it at the same time.

    Args:
        llm: The model: any sampling handler. It is called on the thread that called `run`. Its
            `context.cancel` is cancelled when the loop must end. With a group, `context.client` and
            `context.server` raise `UsageError`, because there is more than one.
        tools_of: The client whose tools are used, or a group: the model sees the group's keys as
            names of the tools, and each call goes to the server of its tool.
        max_iterations: The maximum number of turns of the model. In the last turn it may use no
            tools (``tool_choice`` is ``"none"``), so that it answers with the results it has.
        timeout: The longest time for a whole run, in seconds; `None` for no limit. The run still
            waits for a model that ignores `context.cancel`.
        max_parallel: The maximum number of tool calls at the same time.
        approval: A policy, or an `Approval`, that decides on each call, on the thread that called
            `run`. The default is the `approval` of the client of the tool's server. If that
            client has no `approval`, every call is allowed.
        on_step: A function that is called with each step, on the thread that called `run`. An
            exception of the function ends the loop.
        on_text: A function that is called with the partial text of a turn, if the model provides
            it, on the thread that called `run`.
        on_progress: A function that is called with the progress of the tool calls; see
            `ToolProgress`.

    Raises:
        UsageError: An argument is invalid.
    """

    @hinting(max_turns="write max_iterations=", system_prompt="pass it to run()")
    def __init__(
        self,
        llm: SamplingHandler,
        tools_of: Client | ClientGroup,
        *,
        max_iterations: int = 10,
        timeout: float | None = 300.0,
        max_parallel: int = 8,
        approval: Approval | Policy | None = None,
        on_step: Callable[[Step], object] | None = None,
        on_text: Callable[[str], object] | None = None,
        on_progress: ToolProgress | None = None,
    ) -> None:
        check_callable(llm, "llm", ("request", "context"))
        if not isinstance(tools_of, ClientGroup) and not hasattr(tools_of, "list_tools"):
            raise UsageError(f"tools_of must be a client or a group, not {kind_of(tools_of)}")
        for name, callback, arguments in (
            ("on_step", on_step, ("step",)),
            ("on_text", on_text, ("text",)),
            ("on_progress", on_progress, ("use", *PROGRESS_ARGUMENTS)),
        ):
            if callback is not None:
                check_callable(callback, name, arguments)
        self._llm = llm
        # One of them is `None`.
        self._group = group_state(tools_of) if isinstance(tools_of, ClientGroup) else None
        self._client = None if isinstance(tools_of, ClientGroup) else tools_of
        self._max_iterations = whole_number(max_iterations, "max_iterations")
        self._timeout = seconds(timeout, "timeout")
        self._max_parallel = whole_number(max_parallel, "max_parallel")
        self._approval = None if approval is None else as_approval(approval)
        self._on_step = on_step
        self._on_text = on_text
        self._on_progress = on_progress

    def __repr__(self) -> str:
        return f"<ToolLoop of {self._llm!r}>"

    @hinting(**dict.fromkeys(_OF_LOOP.split(), "pass it to ToolLoop()"))
    def run(
        self,
        request: str | Sequence[SamplingMessage] | CreateMessageRequestParams,
        *,
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        tool_choice: ToolChoice | None = None,
        tools: Iterable[str] | None = None,
        context: HandlerContext | None = None,
        cancel: CancelToken | threading.Event | None = None,
    ) -> ToolLoopResult:
        """Run the loop and block until the model has an answer.

        A conversation that ends with requested tool calls, such as that of `TooManyRounds`,
        continues with these calls.

        Args:
            request: The user's text, a conversation, or a server's whole sampling request, whose
                tools are replaced by those of this loop.
            system_prompt: The system prompt, which replaces that of the request.
            max_tokens: The maximum number of tokens in one turn, which replaces that of the
                request. The limit is 4,096 if there is neither.
            tool_choice: The tool choice, which replaces that of the request. ``"required"`` applies
                to the first turn only, so that the model can end.
            tools: The names of the tools for the model; by default all.
            context: The context of the sampling handler that calls `run`, if any. Cancelling the
                context ends the loop. The model can show partial text through the context.
            cancel: A token or event that ends the loop. Running tool calls are cancelled, and their
                servers are notified once.

        Raises:
            UsageError: There is no such tool, the conversation is empty, a tool use in the
                conversation has no result, or the model's function returned another type.
            TooManyRounds: The model requested tool calls even in its last turn. They were not made.
            RequestTimeout: `timeout` has passed.
            RequestCancelled: `cancel` or `context` was cancelled.
            McpError: The tools could not be listed, the client or group was closed, or the server
                of a client refused the credentials.
            Exception: The model's function, or a callback, raised it.

            All of them, except errors of the arguments, get an attribute `messages`: the
            conversation so far, with a result for each tool that has run. Continue with it, so that
            none runs again.
        """
        base = _request(
            request, system_prompt=system_prompt, max_tokens=max_tokens, tool_choice=tool_choice
        )
        outer = None if context is None else context.cancel
        links = [link for link in (cancel, outer) if link is not None]
        run = _Run(self, base, links, context)
        try:
            run.select_tools(tools)
            return run.run_to_end()
        except BaseException as error:
            run.token.cancel("the tool loop has ended")  # stops the running tool calls
            vars(error)["messages"] = run.messages
            raise


def _request(
    request: str | Sequence[SamplingMessage] | CreateMessageRequestParams, **replaced: Any
) -> CreateMessageRequestParams:
    if isinstance(request, str):
        content = types.TextContent(text=request)
        request = [types.SamplingMessage(role="user", content=content)]
    if not isinstance(request, types.CreateMessageRequestParams):
        if not isinstance(request, Iterable):
            raise UsageError(f"request must be a string or a conversation, not {request!r:.80}")
        messages: list[Any] = list(request)
        try:
            request = types.CreateMessageRequestParams(messages=messages, max_tokens=_MAX_TOKENS)
        except ValueError as error:
            hint = "convert a provider's messages with parse_messages of its format in syncmcp.llm"
            if any(isinstance(message, types.PromptMessage) for message in messages):
                hint = "make SamplingMessage(role=m.role, content=m.content) of each PromptMessage"
            raise UsageError(
                f"request is not a conversation of SamplingMessages: {first_problem(error)}; {hint}"
            ) from error
    given = {name: value for name, value in replaced.items() if value is not None}
    return request.model_copy(update=given)


class _Run:
    """One run of a loop; `messages` is the conversation so far."""

    def __init__(
        self,
        loop: ToolLoop,
        request: CreateMessageRequestParams,
        links: Sequence[CancelToken | threading.Event],
        outer: HandlerContext | None,
    ) -> None:
        self._loop = loop
        self._group = loop._group
        self._client = loop._client
        self._report: Callable[[Step], object] = loop._on_step or (lambda _: None)
        self._request = request
        self._outer = outer
        self.messages = list(request.messages)
        self._tools: dict[str, Tool] = {}
        # For a group: the server of each tool, and the tool's name on that server.
        self._owners: dict[str, tuple[str, str]] = {}
        self._iteration = 0
        self._deadline = Deadline(loop._timeout)
        # A token instead of a `timeout` for each call, which would override the client's `timeout`.
        self._expiry = CancelToken() if loop._timeout is None else CancelToken.after(loop._timeout)
        self.token = CancelToken(self._expiry, *links)

    def select_tools(self, names: Iterable[str] | None) -> None:
        """List the tools, and select those for the model."""
        self._check_cancelled()
        try:
            listed = self._list_tools()
        except McpError:
            self._check_cancelled()
            raise
        self._tools = {tool.name: tool for tool in listed}
        if names is not None:
            wanted: list[Any] = [names] if isinstance(names, str) else list(names)
            if wrong := [name for name in wanted if not isinstance(name, str)]:
                raise UsageError(f"tools must be names of tools, not {kind_of(wrong[0])}")
            unknown = [name for name in wanted if name not in self._tools]
            if unknown:
                raise unknown_tool(str(unknown[0]), self._tools)
            self._tools = {name: self._tools[name] for name in wanted}

    def _list_tools(self) -> Iterable[Tool]:
        if self._group is not None:
            self._group.check_open()
            catalog = self._group.catalog
            self._owners = {key: item[:2] for key, item in catalog.offers["tools"].items()}
            return catalog.shown["tools"].values()
        assert self._client is not None
        return self._client.list_tools(cancel=self.token).tools

    def run_to_end(self) -> ToolLoopResult:
        """Alternate between the model and tool calls, until it requests none."""
        if not self.messages:
            raise UsageError("a conversation must have at least one message")
        uses = self._requested_tools()
        try:
            check_tool_results(self.messages[:-1] if uses else self.messages)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if uses:
            self._run_tools(uses)
        limit = self._loop._max_iterations
        while True:
            self._iteration += 1
            answer = self._ask_model(last=self._iteration == limit)
            uses = self._requested_tools()
            if not uses:
                return ToolLoopResult(answer, self.messages, self._iteration)
            if self._iteration == limit:
                raise TooManyRounds(
                    f"the model was asked {limit} times (max_iterations) and still asks for tools",
                    rounds=limit,
                )
            if answer.stop_reason == "maxTokens":
                # The arguments of the last tool use may be incomplete, so no call is made.
                why = "not run: the message was cut off at its token limit"
                results = [self._finish_call(use, _error_result(use, why)) for use in uses]
                message = types.SamplingMessage(role="user", content=list(results))
                self.messages.append(message)
            else:
                self._run_tools(uses)

    # -- the model

    def _ask_model(self, *, last: bool) -> CreateMessageResult:
        self._check_cancelled()
        update: dict[str, Any] = {"messages": [*self.messages], "tools": [*self._tools.values()]}
        choice = self._request.tool_choice
        if last and self._tools:
            update["tool_choice"] = types.ToolChoice(mode="none")
        elif self._iteration > 1 and choice is not None and choice.mode == "required":
            update["tool_choice"] = types.ToolChoice(mode="auto")
        try:
            answer = self._loop._llm(self._request.model_copy(update=update), self._context)
        except Exception as error:
            if self.token.cancelled:
                raise self._stop_error() from error
            raise
        if not isinstance(answer, types.CreateMessageResult):  # pyright: ignore[reportUnnecessaryIsInstance]
            kind = type(answer).__name__
            raise UsageError(f"the model's function returned {kind}, not CreateMessageResult")
        message = types.SamplingMessage(role=answer.role, content=answer.content)
        if answer.meta is not None:
            message.meta = answer.meta
        self.messages.append(message)
        self._report(ModelTurn(self._iteration, answer))
        self._check_cancelled()
        return answer

    def _requested_tools(self) -> list[ToolUseContent]:
        """Return the tool uses that the last message requests."""
        try:
            return tool_uses(self.messages[-1])
        except ValueError as error:
            raise UsageError(str(error)) from None

    @cached_property
    def _context(self) -> HandlerContext:
        """The context for the model's function."""
        return self._make_context(self._client, self.token, self._deadline)

    def _make_context(
        self, client: Client | None, cancel: CancelToken, deadline: Deadline
    ) -> HandlerContext:
        outer = self._outer
        if outer is None:
            context = HandlerContext(
                client,
                None if client is None else client.server,
                SAMPLING,
                cancel=cancel,
                timeout=deadline.remaining(),
                show=self._show,
            )
            if client is not None:
                run_callbacks_with(context, core_of(client).pools.workers.run)
            return context
        timeout = deadline.sooner(outer.time_left()).remaining()
        return nested_context(outer, cancel, timeout, self._show)

    def _show(self, text: str) -> None:
        """Pass partial text to the display of the outer question, and to `on_text`."""
        if self._outer is not None:
            self._outer.show(text)
        if self._loop._on_text is not None:
            self._loop._on_text(text)

    # -- the tools

    def _run_tools(self, uses: list[ToolUseContent]) -> None:
        """Make tool calls, `max_parallel` at a time; add the message with their results."""
        results: dict[str, ToolResultContent] = {}
        running: dict[RequestFuture[CallToolResult], tuple[ToolUseContent, Client]] = {}
        started: set[str] = set()

        def failed(use: ToolUseContent, error: McpError) -> None:
            results[use.id] = self._finish_call(use, self._error_for_model(use, error))

        def starts() -> Iterator[Callable[[], RequestFuture[CallToolResult]]]:
            for use in uses:
                try:
                    start, client = self._allowed_call(use)
                except McpError as error:
                    failed(use, error)
                    continue
                # Before the start: progress may be reported at once, on another thread.
                self._report(ToolStarted(self._iteration, use))
                started.add(use.id)
                try:
                    future = start()
                except McpError as error:
                    failed(use, error)
                else:
                    running[future] = use, client
                    yield [future].pop  # returns the future of the started call

        try:
            with closing(done_futures(starts(), self._loop._max_parallel)) as done:
                for future in done:
                    use, client = running.pop(future)
                    trusted = core_of(client).settings.trusted
                    try:
                        result = _tool_result(use, future.result(), trusted=trusted)
                    except McpError as error:
                        result = self._error_for_model(use, error)
                    results[use.id] = self._finish_call(use, result)
        finally:
            # If the loop is stopped, its messages must not request tools again that may have run.
            for use in uses:
                if use.id not in results:
                    why = "no result, but it may have run" if use.id in started else "not run"
                    results[use.id] = _error_result(use, f"{why}: the tool loop was stopped")
            content: list[Any] = [results[use.id] for use in uses]
            self.messages.append(types.SamplingMessage(role="user", content=content))

    def _allowed_call(
        self, use: ToolUseContent
    ) -> tuple[Callable[[], RequestFuture[CallToolResult]], Client]:
        """Have a tool call approved; return a function that starts it, and its client."""
        tool = self._tools.get(use.name)
        if tool is None:  # unknown, or not selected by `tools`
            raise UsageError(f"no tool named {use.name!r}")
        client, name = self._client, use.name
        if self._group is not None:
            client, server, name = self._group.route(
                lambda catalog: catalog.route("tools", use.name)
            )
            if self._owners[use.name] != (server, name):
                # The model saw the other server's tool: its arguments are meant for that server.
                raise UsageError(f"the tool {use.name!r} now belongs to another server")
        assert client is not None
        self._check_approval(client, name, use, tool)
        tell = self._loop._on_progress
        on_progress = None if tell is None else partial(tell, use)
        call = client.call_tool.future
        start = partial(call, name, use.input, cancel=self.token, on_progress=on_progress)
        return start, client

    def _check_approval(self, client: Client, name: str, use: ToolUseContent, tool: Tool) -> None:
        core, own = core_of(client), self._loop._approval
        approval = core.handlers.question_handlers.approval if own is None else own
        if approval is None:
            return
        human_timeout, token = core.settings.human_timeout, CancelToken(self.token)
        context = self._make_context(client, token, self._deadline.sooner(human_timeout))
        if human_timeout is not None:
            # Created after the context's deadline, which has thus passed when callbacks run.
            expiry = CancelToken.after(human_timeout)

            def expire() -> None:
                token.cancel(expiry.reason)

            expiry.on_cancel(expire)
        as_approval(approval).before_call(
            name,
            use.input,
            tool.annotations,
            client.server,
            context=context,
            definition=tool,
        )

    def _error_for_model(self, use: ToolUseContent, error: McpError) -> ToolResultContent:
        """Return the result of a failed call for the model; raise errors that end the loop."""
        self._check_cancelled()
        group_goes_on = self._group is not None and self._group.state == "open"
        fatal = isinstance(error, _FATAL) and not group_goes_on
        if fatal or isinstance(error, RequestCancelled):
            raise error
        return _error_result(use, _error_text(error))

    def _finish_call(self, use: ToolUseContent, result: ToolResultContent) -> ToolResultContent:
        self._report(ToolFinished(self._iteration, use, result))
        return result

    # -- the end

    def _check_cancelled(self) -> None:
        if self.token.cancelled:
            raise self._stop_error()

    def _stop_error(self) -> RequestTimeout | RequestCancelled:
        if self._expiry.cancelled:
            limit = self._loop._timeout
            return RequestTimeout(f"the tool loop took longer than {limit:g} s", seconds=limit)
        return RequestCancelled("the tool loop was cancelled", reason=self.token.reason)


def _tool_result(
    use: ToolUseContent, result: CallToolResult, *, trusted: bool
) -> ToolResultContent:
    """Convert a call's result; if `trusted`, omit content that is not for the assistant."""
    # If no content is meant for the assistant, the model gets all of it rather than nothing.
    content = (trusted and result.content_for("assistant")) or result.content
    block = types.ToolResultContent(tool_use_id=use.id, content=content)
    if result.has_data:
        block.structured_content = result.data
    if result.is_error:
        block.is_error = True
    if result.meta is not None:
        block.meta = result.meta  # servers put hints for caching there (SHOULD be preserved)
    return block


def _error_result(use: ToolUseContent, why: str) -> ToolResultContent:
    content = types.TextContent(text=why)
    return types.ToolResultContent(tool_use_id=use.id, content=[content], is_error=True)


def _error_text(error: McpError) -> str:
    """Describe an error for the model, without details for the program only, such as stderr."""
    if isinstance(error, Denied):
        why = f": {error.reason}" if error.reason else ""
        return f"the call was not allowed{why}"
    words = error.message or type(error).__name__
    unknown = getattr(error, "delivery", None) == "unknown"
    return f"{words} (the outcome is unknown)" if unknown else words
