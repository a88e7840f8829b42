"""Interceptors: code of a program's own between a client and its server.

For logging, metrics, rate limits, faults made on purpose::

    class Log(Interceptor):
        def ended(self, answer):
            print(answer.method, answer.elapsed, answer.error or "done")

    client = syncmcp.Client(target, interceptors=[Log()])

An interceptor sees every message of the client, whatever the transport and the revision, that of
opening a connection included. It may look at a message, change it, hold it up, or refuse it by
raising.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from syncmcp._base.checks import refuse_coroutines
from syncmcp.errors import UsageError

__all__ = ["Interceptor", "Message"]


@dataclass(frozen=True, eq=False, repr=False)
class Message:
    """One message on its way. Not to be changed in place: parts of it are the caller's own.

    `params` and `result` are what is on the wire, secrets of the conversation included: arguments,
    cursors, ``requestState``; neither is in the `repr`. What authenticates a client (headers,
    tokens) is in no message.

    Attributes:
        server: What logs and errors call the server.
        direction: ``"outgoing"`` to the server, ``"incoming"`` from it.
        kind: ``"request"``, ``"notification"`` or ``"response"``.
        method: The method; of a response, that of its request.
        id: The id of a request or response, `None` for a notification. Ids of the server's
            requests and of ours have nothing to do with each other.
        params: The parameters, if there are any; of a response, those of its request.
        result: What a response gives.
        error: What it says instead: from the server a `ServerError`, to the server whatever the
            handler raised. For `Interceptor.ended`, also why there was no response.
        elapsed: For a response, the seconds since its request left (what interceptors held it up
            with before does not count), or came in.
        settled: The library has acted on it already: it can be looked at, and nothing else.
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
        return f"<Message {self.direction} {self.kind} {self.method}{id} [{self.server}]{failed}>"

    def with_params(self, params: dict[str, Any]) -> Message:
        """The same request or notification, with other parameters."""
        return replace(self, params=params)

    def with_result(self, result: Any) -> Message:
        """The same response, with another result, and no error."""
        return replace(self, result=result, error=None)

    def pause(self, seconds: float) -> None:
        """Hold the message up for so many seconds, as long as somebody waits for it.

        Raises:
            McpError: The call that it belongs to is over: out of time, cancelled, closed, lost. Let
                it through: that is what the call ends with.
            UsageError: It is settled.
        """
        if self._wait is None:
            raise UsageError(f"this {self.kind} is on its way already", method=self.method)
        self._wait(seconds)


class Interceptor(Protocol):
    """Looks at messages on their way. Inherit from it and write the hooks that you need.

    **Order.** Of several, the first one given is the outermost: what goes out passes them in the
    order given, what comes in in the reverse order.

    **Threads.** Hooks run on many threads, several at one time. Those of a blocking call run on the
    thread of the caller; those of a ``.future(...)`` on a pool thread; those of a question of the
    server's on the thread of its handler; all other ones on a pool thread, the notifications of one
    call one after another. Never on a thread that reads. A hook may block, and may call the
    client; what an interceptor sends itself passes all interceptors but itself.

    **Contexts.** All hooks of one call see the context variables of its caller, and what the others
    of these hooks have set.

    **Limits.** A call that is held up counts as in flight, and its `timeout` runs. Its future ends
    in time and can be cancelled whatever a hook does, as does its blocking twin in
    `Message.pause`; a hook that blocks elsewhere holds the caller's own thread, for no thread can
    be stopped from outside. A question is given up after `human_timeout`, its hooks included.

    **Errors.** An `McpError` ends the call as it is, anything else as `InterceptorFailed`; the
    connection goes on. For a question the server is refused, as if the handler had raised; a
    notification that comes in is dropped and logged.
    """

    def outgoing(self, message: Message) -> Message | None:
        """A message is about to leave.

        A request or notification of the program's; the response to a question. What the library
        says by itself (that a request is cancelled, that a ping was heard) is `settled`, and so is
        a handler's report of progress.

        Returns:
            What to send instead: `message` with other parameters, or another result; `None` for
            the message as it is. The keys of `_meta` that are the protocol's stay as they are.

        Raises:
            McpError: It is not sent, and the call ends with this.
        """
        return None

    def incoming(self, message: Message) -> Message | None:
        """A message has come.

        The response to a request of ours, a notification, a question (until 2025-11-25; later
        questions are part of results). Of notifications that the library itself acts upon, it does
        so meanwhile; callbacks wait. Pings and withdrawn questions are `settled`.

        Returns:
            What to take it for: `message` with other parameters, or another result; `None` for
            the message as it is.

        Raises:
            McpError: The call ends with this.
        """
        return None

    def ended(self, answer: Message) -> object:
        """A request of ours that this interceptor saw is over; told once, whatever became of it.

        On the thread of the other hooks of the call, before the caller goes on; what it raises is
        logged. A request that is sent again after a failure is another one.

        Args:
            answer: What the request came to, after all interceptors: its `result`, or an `error`
                that may also be a `RequestTimeout`, `RequestCancelled`, `ConnectionLost` ...
        """
        return None


within: ContextVar[tuple[Interceptor, ...]] = ContextVar("syncmcp_interceptors", default=())
"""The interceptors whose hooks are running here."""


def as_interceptors(given: Iterable[Interceptor]) -> tuple[Interceptor, ...]:
    """Check the interceptors of a client.

    Raises:
        UsageError: One of them has not all three hooks, or has coroutine functions there.
    """
    if isinstance(given, type) or not isinstance(given, Iterable):
        raise UsageError(f"interceptors is a list of them, not {given!r}")
    interceptors = tuple(given)
    for interceptor in interceptors:
        if isinstance(interceptor, type):
            raise UsageError(f"an interceptor is an object, not the class {interceptor.__name__}")
        for hook in ("outgoing", "incoming", "ended"):
            refuse_coroutines(
                getattr(interceptor, hook, None),  # type: ignore[arg-type]
                f"{type(interceptor).__name__}.{hook}",
            )
    return interceptors
