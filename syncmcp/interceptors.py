"""Interceptors: a program's own code between a client and its server.

Programs use them for logging, metrics, rate limits or fault injection::

    from syncmcp import Interceptor

    class Log(Interceptor):
        def ended(self, answer):
            print(answer.method, answer.elapsed, answer.error or "done")

    client = syncmcp.Client(target, interceptors=[Log()])

An interceptor sees every message of the client, with all transports and revisions, including the
messages that open a connection. It may inspect a message, change it, delay it, or reject it by
raising an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from syncmcp._base.checks import check_callable, kind_of
from syncmcp._base.text import visible
from syncmcp.errors import UsageError

__all__ = ["Interceptor", "Message"]


@dataclass(frozen=True, eq=False, repr=False)
class Message:
    """One message. Do not change it in place: parts of it may belong to the caller.

    `params` and `result` are the data on the wire. They include secrets of the conversation:
    arguments, cursors, ``requestState``. The `repr` shows neither of the two. No message has
    credentials of the client (headers, tokens).

    Attributes:
        server: The name of the server in logs and errors.
        direction: ``"outgoing"`` to the server, ``"incoming"`` from it.
        kind: ``"request"``, ``"notification"`` or ``"response"``.
        method: The method; of a response, the method of its request.
        id: The id of a request or response, `None` for a notification. The ids of the server's
            requests and of the client's requests are independent.
        params: The parameters, if there are any; of a response, those of its request.
        result: The result of a response.
        error: The error of a response, in place of a result. An error from the server is a
            `ServerError`; an error to the server is the exception of the handler. In
            `Interceptor.ended`, the reason why there was no response may also be the error.
        elapsed: Of a response, the seconds since its request was sent or received. Delays by
            interceptors before the request was sent do not count.
        settled: True if the library has acted on the message already, so that hooks can only
            inspect it.
    """

    server: str
    direction: Literal["outgoing", "incoming"]
    kind: Literal["request", "notification", "response"]
    method: str
    id: int | str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: BaseException | None = None
    elapsed: float | None = None
    settled: bool = False
    _wait: Callable[[float], object] | None = None

    def __repr__(self) -> str:
        id = "" if self.id is None else f" {self.id!r}"
        failed = "" if self.error is None else f": {type(self.error).__name__}"
        text = f"<Message {self.direction} {self.kind} {self.method}{id} [{self.server}]{failed}>"
        return visible(text)

    def with_params(self, params: dict[str, Any]) -> Message:
        """Return the same request or notification with other parameters."""
        return replace(self, params=params)

    def with_result(self, result: Any) -> Message:
        """Return the same response with another result, and no error."""
        return replace(self, result=result, error=None)

    def pause(self, seconds: float) -> None:
        """Delay the message by this many seconds, but not beyond the end of its call; this blocks.

        Raises:
            McpError: The call of the message has ended: it timed out or was cancelled, the client
                was closed, or the connection was lost. Do not catch this error: the call raises it.
            UsageError: The message is settled.
        """
        if self._wait is None:
            raise UsageError(f"this {self.kind} was already passed on", method=self.method)
        self._wait(seconds)


class Interceptor(Protocol):
    """An interceptor of messages. Inherit from it, and override the hooks that you need.

    **Order.** Of several interceptors, the first one is the outermost: outgoing messages pass them
    in the order given, incoming messages in the reverse order.

    **Threads.** Hooks run on many threads, several at the same time. Hooks for a blocking call run
    on the thread of the caller. Hooks for a question of the server run on the thread of its
    handler. All other hooks, such as those for a ``.future(...)``, run on a pool thread, with the
    notifications of one call in order. Hooks never run on a thread that reads from a connection. A
    hook may block, and may call the client. Messages that an interceptor sends pass all
    interceptors except that interceptor.

    **Contexts.** All hooks for one call see the context variables of its caller, and those that
    these hooks have set.

    **Limits.** A call that a hook delays counts as in flight, and its `timeout` runs. In
    `Message.pause` the call ends in time. A hook that blocks in another way blocks its call until
    the hook returns, because a thread cannot be stopped from outside. That is also true of a call
    with a future, of which only `cancel()` returns at once. A question is refused after
    `human_timeout`, which includes the time of its hooks.

    **Errors.** If a hook raises an `McpError`, so does the call. Another exception becomes an
    `InterceptorFailed`. The connection stays open. A question is refused as if its handler had
    raised the exception. An incoming notification is dropped, and the exception is logged.
    """

    def outgoing(self, message: Message) -> Message | None:
        """Inspect or change a message before it is sent.

        The message is a request or notification of the program, or the response to a question.
        Messages that the library sends by itself (cancel notifications, responses to pings) are
        `settled`, and so are progress reports of a handler.

        Returns:
            The message to send instead: `message` with other parameters, or with another result;
            `None` to send the message unchanged. Keys of `_meta` that the protocol defines are not
            changed.

        Raises:
            McpError: The message is not sent, and the call raises this error.
        """
        return None

    def incoming(self, message: Message) -> Message | None:
        """Inspect or change a message that was received.

        The message is the response to a request of the client, a notification, or (before
        2026-07-28) a question. Since 2026-07-28 questions are part of results. The library
        processes notifications for its own purposes at the same time. Callbacks of the program run
        after the hooks. Pings and withdrawn questions are `settled`.

        Returns:
            The message to process instead: `message` with other parameters, or with another result;
            `None` to process the message unchanged.

        Raises:
            McpError: The call raises this error.
        """
        return None

    def ended(self, answer: Message) -> object:
        """Inspect the outcome of a request that `outgoing` saw; called once for each request.

        The hook runs on the thread of the other hooks for the call, before the caller continues.
        Exceptions are logged. A request that is sent again after a failure is another request.

        Args:
            answer: The outcome of the request, after all interceptors: its `result` or its `error`,
                which may also be a `RequestTimeout`, a `RequestCancelled` or a `ConnectionLost`.
        """
        return None


within: ContextVar[tuple[Interceptor, ...]] = ContextVar("syncmcp_interceptors", default=())
"""The interceptors whose hooks run in the current context; their own messages skip them."""


_HOOKS = ("outgoing", "incoming", "ended")


def as_interceptors(given: Iterable[Interceptor]) -> tuple[Interceptor, ...]:
    """Return a client's interceptors; raise `UsageError` for one that is invalid or has no hook."""
    if isinstance(given, type) or not isinstance(given, Iterable):
        raise UsageError(f"interceptors must be a list of interceptors, not {kind_of(given)}")
    interceptors = tuple(given)
    for interceptor in interceptors:
        if isinstance(interceptor, type):
            raise UsageError(
                f"an interceptor must be an object, not the class {interceptor.__name__}"
            )
        for hook in _HOOKS:
            if not hasattr(interceptor, hook):
                raise UsageError(
                    f"{kind_of(interceptor)} has no method {hook}: an interceptor is an object of"
                    " a class that inherits from Interceptor"
                )
            called = f"{type(interceptor).__name__}.{hook}"
            check_callable(getattr(interceptor, hook), called, ("message",))
        functions = [getattr(getattr(interceptor, hook), "__func__", None) for hook in _HOOKS]
        if functions == [getattr(Interceptor, hook) for hook in _HOOKS]:  # a misspelt hook
            raise UsageError(
                f"{type(interceptor).__name__} overrides no hook: the hooks are {', '.join(_HOOKS)}"
            )
    return interceptors
