"""The context that a handler is given with a question, and the server that asks it."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from syncmcp._base.checks import refuse_coroutines
from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import NotSupported, UsageError
from syncmcp.handlers.url_completion import NEVER, Run, UrlVisit, here

if TYPE_CHECKING:
    from collections.abc import Iterable

    from syncmcp._client.client import Client
    from syncmcp._protocol.negotiate import Negotiated
    from syncmcp.types import Implementation, ServerCapabilities

__all__ = ["CausingCall", "ConnectedServer", "HandlerContext", "ProgressHandler"]


# Guards the making of what several threads may be the first to ask a context for.
_making = threading.RLock()


class ConnectedServer:
    """The server at the other end: what the program knows of it, and what it said of itself.

    What it said is for display; nothing of it is checked or trusted.
    """

    def __init__(
        self,
        negotiated: Negotiated,
        *,
        name: str,
        trusted: bool = False,
        extensions: Iterable[str] = (),
    ) -> None:
        self._result = negotiated.result
        self._extensions = frozenset(extensions)
        self.name = name
        """What the program calls it: the only name to show as a fact."""
        self.trusted = trusted
        """Whether the program said to believe what it says of its tools."""
        self.revision: str = negotiated.dialect.revision
        """The revision that is spoken."""

    @property
    def info(self) -> Implementation | None:
        """Name and version, if the server gave them in a form that can be read."""
        from pydantic import ValidationError

        from syncmcp.types import Implementation

        meta = self._result.get("_meta")
        stated = self._result.get("serverInfo")
        if isinstance(meta, dict):
            stated = meta.get("io.modelcontextprotocol/serverInfo", stated)
        try:
            return None if stated is None else Implementation.model_validate(stated)
        except ValidationError:
            return None

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server says it can do."""
        from pydantic import ValidationError

        from syncmcp.types import ServerCapabilities

        try:
            return ServerCapabilities.model_validate(self._result.get("capabilities") or {})
        except ValidationError:
            return ServerCapabilities()

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """The extensions that both sides have: the server's settings by identifier.

        Our side is `extensions=` of `Client`; all that the server has is in `capabilities`.
        """
        stated = self._result.get("capabilities")
        stated = stated.get("extensions") if isinstance(stated, dict) else None
        stated = stated if isinstance(stated, dict) else {}
        return {
            identifier: settings
            for identifier, settings in stated.items()
            if identifier in self._extensions and isinstance(settings, dict)
        }

    def extension(self, identifier: str) -> dict[str, Any]:
        """The server's settings of an extension.

        Raises:
            NotSupported: One side does not have it; the text says which.
        """
        found = self.extensions.get(identifier)
        if found is not None:
            return found
        if identifier not in self._extensions:
            raise NotSupported(
                f"the extension {identifier} is not switched on: see extensions= of Client",
                server=self.name,
            )
        raise NotSupported(f"the server has no extension {identifier}", server=self.name)

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in words for a model."""
        stated = self._result.get("instructions")
        return stated if isinstance(stated, str) else None

    def __repr__(self) -> str:
        return f"<ConnectedServer {self.name} {self.revision}>"


def renamed(server: ConnectedServer, name: str) -> ConnectedServer:
    """The same server under another name of the program's."""
    other = copy.copy(server)
    other.name = name
    return other


class ProgressHandler(Protocol):
    """Is told of a call's progress, on a pool thread, in the order it came."""

    def __call__(self, progress: float, total: float | None, message: str | None, /) -> object:
        """Take one report; what it returns is ignored."""
        ...


class CausingCall(NamedTuple):
    """The request of ours that made a server ask."""

    method: str
    """``"tools/call"``, for example."""

    params: dict[str, Any] | None
    """Its parameters, without `_meta`."""


class HandlerContext:
    """What a handler may want to know of a question, and what it can do meanwhile.

    Args:
        client: See below; `None` where no single server asks.
        server: See below; `None` likewise.
        method: See below.
        call: See below.
        cancel: See below; a token of its own by default.
        timeout: How long, in seconds, the handler has; `None` for no limit.
        progress: Where reports of progress go.
        show: Where partial text goes.
        resumes_call: See below.

    Attributes:
        method: The method of the question, ``"sampling/createMessage"`` for example.
        call: The request of ours that made the server ask, where that is known for certain:
            in 2026-07-28, on a request's own stream over HTTP, or if no other is in flight.
        resumes_call: Whether the answer has `call` go on: in 2026-07-28, where servers hear nothing
            else, and after error -32042 (2025-11-25), when it is sent again. A person who visits a
            URL should then be asked whether they are done there. Elsewhere only the consent is
            wanted.
    """

    __slots__ = (
        "_cancel",
        "_client",
        "_deadline",
        "_progress",
        "_provisional",
        "_run_callback",
        "_server",
        "_show",
        "_stopped",
        "_unsubscribe",
        "_visit",
        "call",
        "method",
        "resumes_call",
    )

    def __init__(
        self,
        client: Client | None,
        server: ConnectedServer | None,
        method: str,
        *,
        call: CausingCall | None = None,
        cancel: CancelToken | None = None,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        show: Callable[[str], object] | None = None,
        resumes_call: bool = False,
    ) -> None:
        self._client = client
        # On a pool thread of the client, if there is one.
        self._run_callback: Run = here
        self._server = server
        self.method = method
        self.call = call
        self._cancel = cancel
        self._deadline = Deadline(timeout)
        self._progress = progress
        self._show = show
        # What counts as the answer if the time runs out.
        self._provisional: dict[str, Any] | None = None
        self._visit: UrlVisit | None = None
        self.resumes_call = resumes_call
        # Told when the token is cancelled.
        self._stopped: Callable[[], None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def client(self) -> Client:
        """The client that was asked; it may be called, blocking, from within the handler.

        Raises:
            UsageError: Nobody asked through one client: the model works for a group.
        """
        if self._client is None:
            raise UsageError("this model works for a group, whose clients are in group.clients")
        return self._client

    @property
    def server(self) -> ConnectedServer:
        """The server that asks. Only its `name` is a fact; the rest are its own words.

        Raises:
            UsageError: No single one asks: the model works for a group.
        """
        if self._server is None:
            raise UsageError("this model works for a group, and not for one server")
        return self._server

    @property
    def cancel(self) -> CancelToken:
        """Tells that nobody wants the answer any more, or stops the question.

        Cancelled when the server withdraws the question, the connection ends, the client is
        closed, the call behind it is given up, or `human_timeout` has passed. Cancelling it stops
        the question: the server is told at once that there will be no answer.

        After the consent to a URL it tells that nobody will say any more that the visit is done:
        the session is over, the server cannot be heard any more, or it was cancelled because the
        person gave up.
        """
        if self._cancel is None:  # made when first asked for: few handlers look at theirs
            with _making:
                if self._cancel is None:
                    token = CancelToken()
                    if self._stopped is not None:
                        self._unsubscribe = call_when_cancelled(token, self._stopped)
                    self._cancel = token
        return self._cancel

    def time_left(self) -> float | None:
        """Seconds until the question is given up (`human_timeout`); `None` if it never is."""
        return self._deadline.remaining()

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the server how far the answer is.

        Nothing happens where the server did not ask to be told, nor in 2026-07-28. Of more than 20
        reports in a second the server gets the newest, a little later. (basic/utilities/progress)

        Args:
            progress: Should grow with each report; one that does not is sent as a little more
                than the last.
            total: What `progress` will be at the end, if known.
            message: What is being done.
        """
        if not math.isfinite(progress):
            raise UsageError(f"progress is a finite number, not {progress!r}")
        if self._progress is not None:
            self._progress(progress, total, message)

    def show(self, text: str) -> None:
        """Show what a model has written so far to the person who will review it.

        Nothing happens where nobody looks.
        """
        if self._show is not None:
            self._show(text)

    def completed(self) -> None:
        """Say that what a URL led to is done, because the person said so."""
        visit_of(self).end(done=True)

    def wait_completed(self, timeout: float | None = None) -> bool:
        """Wait until what a URL led to is done, at most `timeout` seconds; on any thread.

        In 2025-11-25 servers may tell (``notifications/elicitation/complete``), most of them after
        the consent; it may never come. So return the consent first, and wait elsewhere: a handler
        that waits before it returns keeps the consent from the server, until `human_timeout` at
        most. See client/elicitation#completion-notifications-for-url-mode-elicitation.

        Returns:
            Whether it is done: at once if the server has said so, also before it asked again with
            the same id. `False` when `timeout` has passed, and at once when nobody will say so any
            more: the question was not answered with consent, `cancel` was cancelled, or the session
            is over, which cancels `cancel`. So it does when the server cannot be heard any more:
            over HTTP its stream for what belongs to no call was given up, and no call is in flight.
        """
        waiting, visit = Deadline(timeout), visit_of(self)
        with lending_handler():
            # The consent may be given meanwhile; then the end of the question does not matter.
            while not visit.wait(waiting.sooner(self._visit_limit(visit)).remaining()):
                if waiting.expired or self._visit_limit(visit) == 0:
                    break
        return visit.done

    def on_completed(self, callback: Callable[[bool], object]) -> Callable[[], None]:
        """Call `callback` once, with what `wait_completed` would return without a limit.

        It may be called long after the handler has returned, and is called with `False` if nobody
        will say any more that it is done; in any case when the session ends, or the server cannot
        be heard any more. For a question that leads to no URL that is the end of the question.

        Args:
            callback: Runs on a pool thread of the client, in the context variables of whoever calls
                this. It may block, and call the client. What it raises is logged. Where no single
                client asks, for a group, it runs on the thread that ends the wait.

        Returns:
            A function that takes the callback away again.

        Raises:
            UsageError: It is a coroutine function, or not callable.
        """
        refuse_coroutines(callback, "the callback of on_completed")
        run, visit = copy_context().run, visit_of(self)
        if visit is NEVER:  # all contexts have it, so that it knows no threads
            self._run_callback(lambda: run(callback, False))
            return lambda: None
        return visit.on_end(lambda done: run(callback, done))

    def _visit_limit(self, visit: UrlVisit) -> float | None:
        return None if visit.agreed else self.time_left()

    def __repr__(self) -> str:
        asker = "a group" if self._server is None else self._server.name
        return f"<HandlerContext {self.method} from {asker}>"


# What the library does with a context, and its handler must not.


def end_context(context: HandlerContext) -> None:
    """The handler has returned: a program that keeps the context must not keep the question."""
    with _making:
        unsubscribe, context._unsubscribe = context._unsubscribe, None
        context._stopped = context._show = None
        visit = context._visit = context._visit or NEVER
    if unsubscribe is not None:
        unsubscribe()
    if not visit.agreed:
        visit.end(done=False)


def visit_of(context: HandlerContext) -> UrlVisit:
    """The visit to the URL; made at the first use where the server did not ask for one."""
    with _making:
        if context._visit is None:
            set_visit(context, UrlVisit(context._run_callback))
        assert context._visit is not None
        return context._visit


def set_visit(context: HandlerContext, visit: UrlVisit) -> None:
    """Name the visit that the question is about; cancelling the question ends it."""
    context._visit = visit
    call_when_cancelled(context.cancel, partial(visit.end, done=False))


def set_provisional(context: HandlerContext, answer: dict[str, Any] | None) -> None:
    """Set what counts as the answer if the time runs out."""
    context._provisional = answer


def provisional(context: HandlerContext) -> dict[str, Any] | None:
    """What counts as the answer if the time runs out."""
    return context._provisional


def run_callbacks_with(context: HandlerContext, run: Run) -> None:
    """Have `run` call what is given to `HandlerContext.on_completed`: on a pool thread."""
    context._run_callback = run


def nested_context(
    outer: HandlerContext,
    cancel: CancelToken | None,
    timeout: float | None,
    show: Callable[[str], object] | None,
) -> HandlerContext:
    """A context for what a handler asks while it answers `outer`."""
    context = HandlerContext(
        outer._client,
        outer._server,
        outer.method,
        call=outer.call,
        cancel=cancel,
        timeout=timeout,
        progress=outer.report_progress,
        show=show,
    )
    context._run_callback = outer._run_callback
    return context
