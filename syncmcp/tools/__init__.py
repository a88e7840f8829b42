"""The tool loop: a model asks for tools, they are run, and it is told what they gave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from syncmcp import types
from syncmcp._base.checks import refuse_coroutines, seconds, whole_number
from syncmcp._client.core import core_of
from syncmcp._concurrency.cancel import CancelToken
from syncmcp._concurrency.pool import slot_released
from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol.client_capabilities import SAMPLING
from syncmcp._protocol.conversation import check_balance, tool_uses
from syncmcp.approval import as_approval
from syncmcp.errors import (
    AuthError,
    ClosedError,
    McpError,
    RequestCancelled,
    RequestTimeout,
    TooManyRounds,
    UsageError,
)
from syncmcp.handlers import HandlerContext, SamplingHandler, nested_context, run_callbacks_with
from syncmcp.tools.source import failure, told, tool_source, words_for

if TYPE_CHECKING:
    from syncmcp._client.client import Client
    from syncmcp._concurrency.futures import RequestFuture
    from syncmcp.approval import Approval, Policy
    from syncmcp.group import ClientGroup
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

_MAX_TOKENS: Final = 4096

# Neither the model nor another tool of the server can do anything about these; the program can.
_GONE: Final = (AuthError, ClosedError)


@dataclass(frozen=True)
class ModelTurn:
    """The model has answered.

    Attributes:
        iteration: The number of the turn, from 1.
        result: Its answer.
    """

    iteration: int
    result: CreateMessageResult


@dataclass(frozen=True)
class ToolStarted:
    """A tool is running; it was allowed.

    Attributes:
        iteration: The turn that asked for it; 0 for one that an earlier run left.
        use: The model's wish: tool and arguments.
    """

    iteration: int
    use: ToolUseContent


@dataclass(frozen=True)
class ToolFinished:
    """A tool has ended, or was never run: it does not exist, or was denied.

    Attributes:
        iteration: The turn that asked for it; 0 for one that an earlier run left.
        use: The model's wish.
        result: What the model is told.
    """

    iteration: int
    use: ToolUseContent
    result: ToolResultContent


Step: TypeAlias = ModelTurn | ToolStarted | ToolFinished
"""Something that happened in a tool loop."""


class ToolProgress(Protocol):
    """Is told how far a tool of a loop is: on a pool thread, in the order in which it was said."""

    def __call__(
        self, use: ToolUseContent, progress: float, total: float | None, message: str | None, /
    ) -> object:
        """Take one report: what the model asked for, and what a `ProgressHandler` is told."""
        ...


@dataclass(frozen=True)
class ToolLoopResult:
    """What came of a tool loop.

    Attributes:
        result: The model's last answer; it asks for no tool.
        messages: The whole conversation, that answer included. Add to it and run it again.
        iterations: How often the model was asked.
    """

    result: CreateMessageResult
    messages: list[SamplingMessage]
    iterations: int

    @property
    def text(self) -> str:
        """The text of the last answer."""
        return self.result.text


class ToolLoop:
    """Lets a model use tools until it has an answer (spec: sampling, "Multi-turn Tool Loop").

    Tools that the model asks for in one turn run at the same time; it gets their results in its own
    order. What goes wrong with a tool (it fails, does not exist, is denied, refuses its arguments,
    takes longer than the client's `timeout`) is told to the model, which may try something else.
    Only a closed client or group and, of a client, a server that wants other credentials end the
    loop: a group has other servers.

    A loop keeps nothing between runs; any number of threads may run it at one time.

    Args:
        llm: The model: any sampling handler, called on the thread that called `run`. Its
            `context.cancel` is cancelled when the loop must end. With a group, `context.client` and
            `context.server` are a `UsageError`: there is more than one.
        tools_of: The client whose tools are used, or a group: the model knows its tools by their
            keys there, and each call goes to the server that has the tool.
        max_iterations: How often the model is asked at most. The last time it may use no tools
            (``tool_choice`` is ``"none"``), so that it answers with what it has.
        timeout: The longest a run may take in all, in seconds; `None` for no limit. A model that
            does not heed `context.cancel` is waited for.
        max_parallel: How many tools run at one time.
        approval: Decides on each call, on the thread that called `run`; nobody is asked about a
            tool that only reads, where a trusted server says so. It sees the tool's server and its
            name there. By default the `approval` of that server's client does; where that has none
            either, every call is allowed. A person has the client's `human_timeout` to decide.
        on_step: Told of each step as it happens, on the thread that called `run`. What it raises
            ends the loop.
        on_text: Told what the model has written so far in a turn, where the model shows that, on
            the same thread.
        on_progress: Told how far the tools are.

    Raises:
        UsageError: An argument makes no sense.
    """

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
        refuse_coroutines(llm, "llm")
        callbacks = {"on_step": on_step, "on_text": on_text, "on_progress": on_progress}
        for name, callback in callbacks.items():
            if callback is not None:
                refuse_coroutines(callback, name)
        self._llm = llm
        self._source = tool_source(tools_of)
        self._max_iterations = whole_number(max_iterations, "max_iterations")
        self._timeout = seconds(timeout, "timeout")
        self._max_parallel = whole_number(max_parallel, "max_parallel")
        self._approval = None if approval is None else as_approval(approval)
        self._on_step = on_step
        self._on_text = on_text
        self._on_progress = on_progress

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

        A conversation that ends with the model asking for tools, as the one of `TooManyRounds`
        does, goes on with those tools.

        Args:
            request: What the user says, a conversation, or a server's whole request; the tools in
                that are replaced by those of this loop.
            system_prompt: Put in the place of the request's.
            max_tokens: The most the model may write in one turn, in the place of the request's;
                4,096 where nothing says otherwise.
            tool_choice: Put in the place of the request's. ``"required"`` counts for the first
                turn only: the model must be able to end.
            tools: The names of the tools to offer; by default all.
            context: Within a sampling handler, its context: cancelling it ends the loop, and the
                model can show partial text through it.
            cancel: Ends the loop; each tool that runs is cancelled, and the server told, once.

        Raises:
            UsageError: There is no such tool; the conversation is empty or a tool use in it has no
                result; the model's function returned something else.
            TooManyRounds: The model asked for tools in its last turn all the same. They were not
                run; `messages` is the conversation so far.
            RequestTimeout: `timeout` has passed; `messages` is the conversation so far.
            RequestCancelled: `cancel` or `context` was cancelled; `messages` likewise.
            McpError: The tools could not be listed, the client or group was closed, or the server
                of a client wants other credentials.
        """
        base = _request(request, system_prompt, max_tokens, tool_choice)
        outer = None if context is None else context.cancel
        links = [link for link in (cancel, outer) if link is not None]
        run = _Run(self, base, links, context)
        try:
            run.offer(tools)
            return run.drive()
        except BaseException:
            run.token.cancel("the tool loop has ended")  # what still runs is of no use to anybody
            raise


def _request(
    given: str | Sequence[SamplingMessage] | CreateMessageRequestParams,
    system_prompt: str | None,
    max_tokens: int | None,
    tool_choice: ToolChoice | None,
) -> CreateMessageRequestParams:
    if isinstance(given, str):
        spoken = types.TextContent(text=given)
        given = [types.SamplingMessage(role="user", content=spoken)]
    if not isinstance(given, types.CreateMessageRequestParams):
        given = types.CreateMessageRequestParams(messages=list(given), max_tokens=_MAX_TOKENS)
    replaced = {
        "system_prompt": system_prompt,
        "max_tokens": max_tokens,
        "tool_choice": tool_choice,
    }
    return given.model_copy(
        update={name: value for name, value in replaced.items() if value is not None}
    )


class _Running(NamedTuple):
    """A tool at work: for which wish, and by whom."""

    use: ToolUseContent
    client: Client


class _Run:
    """One run of a loop."""

    def __init__(
        self,
        loop: ToolLoop,
        request: CreateMessageRequestParams,
        links: Sequence[CancelToken | threading.Event],
        outer: HandlerContext | None,
    ) -> None:
        self._loop = loop
        self._source = loop._source
        self._request = request
        self._outer = outer
        self._messages = list(request.messages)
        self._tools: dict[str, Tool] = {}
        self._iteration = 0
        self._deadline = Deadline(loop._timeout)
        # A token and not a `timeout` for each call: the client's own `timeout` bounds each tool.
        self._expiry = CancelToken() if loop._timeout is None else CancelToken.after(loop._timeout)
        self.token = CancelToken(self._expiry, *links)

    def offer(self, names: Iterable[str] | None) -> None:
        """Find the tools to offer."""
        self._check()
        try:
            listed = self._source.tools(self.token)
        except McpError:
            self._check()
            raise
        self._tools = {tool.name: tool for tool in listed}
        if names is not None:
            wanted = list(names)
            unknown = [name for name in wanted if name not in self._tools]
            if unknown:
                raise UsageError(f"there is no tool {unknown[0]!r}")
            self._tools = {name: self._tools[name] for name in wanted}

    def drive(self) -> ToolLoopResult:
        """Ask the model, run tools, ask again, until it asks for none."""
        if not self._messages:
            raise UsageError("a conversation has at least one message")
        uses = self._wishes()
        try:
            check_balance(self._messages[:-1] if uses else self._messages)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if uses:
            self._messages.append(self._use(uses))
        limit = self._loop._max_iterations
        while True:
            self._iteration += 1
            answer = self._ask(last=self._iteration == limit)
            uses = self._wishes()
            if not uses:
                return ToolLoopResult(answer, self._messages, self._iteration)
            if self._iteration == limit:
                raise TooManyRounds(
                    f"the model was asked {limit} times (max_iterations) and wants more tools",
                    rounds=limit,
                    messages=self._messages,
                )
            if answer.stop_reason == "maxTokens":
                self._messages.append(self._cut_off(uses))
            else:
                self._messages.append(self._use(uses))

    # -- the model

    def _ask(self, *, last: bool) -> CreateMessageResult:
        self._check()
        update: dict[str, Any] = {
            "messages": list(self._messages),
            "tools": list(self._tools.values()),
        }
        choice = self._request.tool_choice
        if last and self._tools:
            update["tool_choice"] = types.ToolChoice(mode="none")
        elif self._iteration > 1 and choice is not None and choice.mode == "required":
            update["tool_choice"] = types.ToolChoice(mode="auto")
        try:
            answer = self._loop._llm(self._request.model_copy(update=update), self._context)
        except Exception as error:
            if self.token.cancelled:
                raise self._stopped() from error
            raise
        if not isinstance(answer, types.CreateMessageResult):  # pyright: ignore[reportUnnecessaryIsInstance]
            kind = type(answer).__name__
            raise UsageError(f"the model's function returned {kind}, not CreateMessageResult")
        message = types.SamplingMessage(role=answer.role, content=answer.content)
        if answer.meta is not None:
            message.meta = answer.meta
        self._messages.append(message)
        self._report(ModelTurn(self._iteration, answer))
        self._check()
        return answer

    def _wishes(self) -> list[ToolUseContent]:
        """The tools that the last message asks for."""
        try:
            return tool_uses(self._messages[-1])
        except ValueError as error:
            raise UsageError(str(error)) from None

    @cached_property
    def _context(self) -> HandlerContext:
        """What the model's function is given."""
        return self._make_context(self._source.client, self.token, self._deadline)

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
        """Show what the model has written to whoever looks at the question, and at the loop."""
        if self._outer is not None:
            self._outer.show(text)
        if self._loop._on_text is not None:
            self._loop._on_text(text)

    # -- the tools

    def _use(self, uses: list[ToolUseContent]) -> SamplingMessage:
        """Run tools, as many at one time as may be; return the message with their results."""
        results: dict[str, ToolResultContent] = {}
        running: dict[RequestFuture[CallToolResult], _Running] = {}
        for use in uses:
            if len(running) == self._loop._max_parallel:
                self._collect(running, results)
            try:
                future, client = self._start(use)
                running[future] = _Running(use, client)
            except McpError as error:
                results[use.id] = self._finish(use, self._failure(use, error))
            else:
                self._report(ToolStarted(self._iteration, use))
        while running:
            self._collect(running, results)
        return types.SamplingMessage(role="user", content=[results[use.id] for use in uses])

    def _start(self, use: ToolUseContent) -> tuple[RequestFuture[CallToolResult], Client]:
        tool = self._tools.get(use.name)
        if tool is None:  # or it was not offered
            raise UsageError(f"there is no tool {use.name!r}")
        client, name = self._source.find(use.name)
        self._ask_for_consent(client, name, use, tool)
        tell = self._loop._on_progress
        on_progress = None if tell is None else partial(tell, use)
        call = client.call_tool.future
        return call(name, use.input, cancel=self.token, on_progress=on_progress), client

    def _ask_for_consent(self, client: Client, name: str, use: ToolUseContent, tool: Tool) -> None:
        core, ours = core_of(client), self._loop._approval
        given = core.handlers.question_handlers.approval if ours is None else ours
        if given is None:
            return
        patience, token = core.settings.human_timeout, CancelToken(self.token)
        context = self._make_context(client, token, self._deadline.sooner(patience))
        if patience is not None:
            # Set after the context's clock: who hears of the end finds that no time is left.
            expiry = CancelToken.after(patience)

            def expire() -> None:
                token.cancel(expiry.reason)

            expiry.on_cancel(expire)
        as_approval(given).before_call(
            name, use.input, tool.annotations, client.server, context=context
        )

    def _collect(
        self,
        running: dict[RequestFuture[CallToolResult], _Running],
        results: dict[str, ToolResultContent],
    ) -> None:
        """Wait until at least one of the tools has ended."""
        with slot_released():
            done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in [future for future in running if future in done]:
            use, client = running.pop(future)
            try:
                result = told(use, future.result(), trusted=core_of(client).settings.trusted)
            except McpError as error:
                result = self._failure(use, error)
            results[use.id] = self._finish(use, result)

    def _failure(self, use: ToolUseContent, error: McpError) -> ToolResultContent:
        """What the model is told of a call that failed; raises what is not for the model."""
        self._check()
        gone = isinstance(error, _GONE) and not self._source.outlives_its_servers()
        if gone or isinstance(error, RequestCancelled):
            raise error
        return failure(use, words_for(error))

    def _cut_off(self, uses: list[ToolUseContent]) -> SamplingMessage:
        # Arguments may be missing from the last wish; nothing that was half said is done.
        why = "not run: the message was cut off at its limit of tokens"
        results = [self._finish(use, failure(use, why)) for use in uses]
        return types.SamplingMessage(role="user", content=list(results))

    def _finish(self, use: ToolUseContent, result: ToolResultContent) -> ToolResultContent:
        self._report(ToolFinished(self._iteration, use, result))
        return result

    # -- the end

    def _report(self, step: Step) -> None:
        if self._loop._on_step is not None:
            self._loop._on_step(step)

    def _check(self) -> None:
        if self.token.cancelled:
            raise self._stopped()

    def _stopped(self) -> RequestTimeout | RequestCancelled:
        if self._expiry.cancelled:
            limit = self._loop._timeout
            return RequestTimeout(
                f"the tool loop took longer than {limit:g} s",
                seconds=limit,
                messages=self._messages,
            )
        return RequestCancelled(
            "the tool loop was cancelled", reason=self.token.reason, messages=self._messages
        )
