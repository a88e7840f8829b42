"""What a program supplies to be told of things and to answer questions."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from syncmcp._base.checks import refuse_coroutines
from syncmcp._concurrency.cancel import CancelToken
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp.errors import UsageError
from syncmcp.handlers.url_completion import NEVER, Run, UrlVisit, here

if TYPE_CHECKING:
    from syncmcp._client.client import Client
    from syncmcp.approval import Approval, Policy
    from syncmcp.handlers.server import ConnectedServer
    from syncmcp.types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        ElicitRequestFormParams,
        ElicitRequestURLParams,
        ElicitResult,
        LoggingMessageNotificationParams,
        Root,
    )

__all__ = [
    "AnyElicitation",
    "CausingCall",
    "Elicitation",
    "ElicitationUI",
    "FormHandler",
    "HandlerContext",
    "Handlers",
    "LogHandler",
    "NotificationHandler",
    "ProgressHandler",
    "RequestHandler",
    "RootsHandler",
    "Sampling",
    "SamplingHandler",
    "UrlHandler",
]


# Guards the making of what several threads may be the first to ask a context for.
_making = threading.RLock()


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
                        self._unsubscribe = token._subscribe(self._stopped)
                    self._cancel = token
        return self._cancel

    def _end(self) -> None:
        """The handler is done: whoever keeps this need not keep the question for it."""
        with _making:
            unsubscribe, self._unsubscribe = self._unsubscribe, None
            self._stopped = self._show = None
            visit = self._visit = self._visit or NEVER
        if unsubscribe is not None:
            unsubscribe()
        if not visit.agreed:
            visit.end(done=False)

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
        self._visit_now().end(done=True)

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
        waiting, visit = Deadline(timeout), self._visit_now()
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
        run, visit = copy_context().run, self._visit_now()
        if visit is NEVER:  # all contexts have it, so that it knows no threads
            self._run_callback(lambda: run(callback, False))
            return lambda: None
        return visit.on_end(lambda done: run(callback, done))

    def _visit_limit(self, visit: UrlVisit) -> float | None:
        return None if visit.agreed else self.time_left()

    def _visit_now(self) -> UrlVisit:
        """The visit to the URL. Made when first asked for where no server asks for one."""
        with _making:
            if self._visit is None:
                self._follow(UrlVisit(self._run_callback))
            assert self._visit is not None
            return self._visit

    def _follow(self, visit: UrlVisit) -> None:
        """The question is about this visit."""
        self._visit = visit
        self.cancel._subscribe(partial(visit.end, done=False))

    def __repr__(self) -> str:
        asker = "a group" if self._server is None else self._server.name
        return f"<HandlerContext {self.method} from {asker}>"


class SamplingHandler(Protocol):
    """Lets a model answer for a server (spec: "Sampling"). Runs on a pool thread; may block.

    Every handler that answers a question may `raise Refused(code, message, data)`. Whatever else
    it raises is logged and told to `on_handler_error`; the server learns that it failed, not why.
    """

    def __call__(
        self, request: CreateMessageRequestParams, context: HandlerContext, /
    ) -> CreateMessageResult:
        """Return what the model wrote."""
        ...


class FormHandler(Protocol):
    """Answers a form (spec: "Elicitation", form mode). Runs on a pool thread; may block.

    Fields that an accepted answer leaves out get the defaults of the form. An answer that does not
    fit the form is not sent: that is an `InvalidAnswer`, which is logged and told to
    `on_handler_error`, and in 2026-07-28 raised by the call that was asked.
    """

    def __call__(
        self, request: ElicitRequestFormParams, context: HandlerContext, /
    ) -> ElicitResult:
        """Return ``ElicitResult.accept(content)``, ``.decline()`` or ``.cancel()``."""
        ...


class UrlHandler(Protocol):
    """Sends a person to a URL (spec: "Elicitation", URL mode). Runs on a pool thread; may block.

    It must show the whole URL, ask before it opens anything, and fetch nothing by itself.
    `syncmcp.handlers.links.Link` tells what is odd about one.
    """

    def __call__(self, request: ElicitRequestURLParams, context: HandlerContext, /) -> ElicitResult:
        """Return ``ElicitResult.accept()`` for consent (not for completion), or the other two.

        Return as soon as the person has agreed: the server may wait for that. Whether they are done
        is learned later (`HandlerContext.wait_completed`, `HandlerContext.on_completed`). Only
        where the call goes on with the answer (`HandlerContext.resumes_call`) it may be worth while
        to ask the person first whether they are done.

        A call that failed for want of the visit (error -32042, in 2025-11-25) is made again when
        the server says that it is done, or the program does with `HandlerContext.completed`, or
        after a minute.
        """
        ...


class RootsHandler(Protocol):
    """Says where servers may work (spec: "Roots"). Runs on a pool thread; may block."""

    def __call__(self, context: HandlerContext, /) -> Iterable[Root | str | os.PathLike[str]]:
        """Return paths, ``file:`` URIs or `Root` models."""
        ...


class RequestHandler(Protocol):
    """Answers a request that the library does not know. Runs on a pool thread; may block."""

    def __call__(self, params: dict[str, Any], context: HandlerContext, /) -> Any:
        """Return the result: a dict, a model, or `None` for an empty one."""
        ...


class NotificationHandler(Protocol):
    """Is told of notifications, on a pool thread, in the order they came."""

    def __call__(self, params: dict[str, Any], /) -> object:
        """Take the parameters of one; what it returns is ignored."""
        ...


class LogHandler(Protocol):
    """Is told what the server logs, on a pool thread, in the order it came."""

    def __call__(self, message: LoggingMessageNotificationParams, /) -> object:
        """Take one message; what it returns is ignored."""
        ...


class ProgressHandler(Protocol):
    """Is told of a call's progress, on a pool thread, in the order it came."""

    def __call__(self, progress: float, total: float | None, message: str | None, /) -> object:
        """Take one report; what it returns is ignored."""
        ...


class Sampling:
    """A sampling handler that says what it can do besides plain text.

    Any handler with attributes of these names says the same.

    Args:
        handler: The handler.
        tools: Whether it lets the model use tools that the server sends along.
        context: Whether it heeds `include_context`.
    """

    def __init__(
        self, handler: SamplingHandler, *, tools: bool = False, context: bool = False
    ) -> None:
        refuse_coroutines(handler, "sampling")
        self.handler = handler
        self.tools = tools
        self.context = context

    def __call__(
        self, request: CreateMessageRequestParams, context: HandlerContext, /
    ) -> CreateMessageResult:
        """Ask the handler."""
        return self.handler(request, context)


@dataclass(frozen=True)
class Elicitation:
    """Who answers forms, and who sends people to URLs. What is left out is not offered.

    Args:
        form: Answers forms.
        url: Sends a person to a URL.
        asks_person: Whether both ask a person by themselves, so that nobody else has to.
    """

    form: FormHandler | None = None
    url: UrlHandler | None = None
    asks_person: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name, handler in (("form", self.form), ("url", self.url)):
            if handler is not None:
                refuse_coroutines(handler, name)


class ElicitationUI(Protocol):
    """Something that can show both a form and a URL: a user interface."""

    asks_person: bool
    """`True`: what it answers, a person has answered."""

    def form(self, request: ElicitRequestFormParams, context: HandlerContext, /) -> ElicitResult:
        """See `FormHandler`."""
        ...

    def url(self, request: ElicitRequestURLParams, context: HandlerContext, /) -> ElicitResult:
        """See `UrlHandler`."""
        ...


AnyElicitation = FormHandler | Elicitation | ElicitationUI
"""What can be given as `elicitation`; a plain function answers forms."""


class Handlers:
    """Who answers a server's questions: for a client, or for one call as its option `handlers`.

    Args:
        sampling: Lets a model answer.
        elicitation: Answers forms, or forms and URLs.
        roots: Says where servers may work.
        approval: Reviews what the others do.
    """

    __slots__ = ("_offer", "_personal", "approval", "elicitation", "roots", "sampling")

    def __init__(
        self,
        sampling: SamplingHandler | None = None,
        elicitation: AnyElicitation | None = None,
        roots: RootsHandler | None = None,
        approval: Approval | Policy | None = None,
    ) -> None:
        for name, handler in (("sampling", sampling), ("roots", roots)):
            if handler is not None:
                refuse_coroutines(handler, name)
        self.sampling = sampling
        self.elicitation = _as_elicitation(elicitation)
        # The modes of elicitation that a person answers directly.
        self._personal = frozenset(("form", "url") if self.elicitation.asks_person else ())
        self.roots = roots
        self.approval = approval
        self._offer = OfferedCapabilities(
            sampling=sampling is not None,
            sampling_tools=bool(getattr(sampling, "tools", False)),
            sampling_context=bool(getattr(sampling, "context", False)),
            form=self.elicitation.form is not None,
            url=self.elicitation.url is not None,
            roots=roots is not None,
        )

    def _changed(self, **changed: Any) -> Handlers:
        """These handlers, with some of them changed."""
        now = {name: getattr(self, name) for name in _GIVEN}
        return Handlers(**{**now, **changed})

    def _over(self, other: Handlers) -> Handlers:
        """These handlers, and those of `other` for what is missing."""
        form = other if self.elicitation.form is None else self
        url = other if self.elicitation.url is None else self
        both = Handlers(
            other.sampling if self.sampling is None else self.sampling,
            Elicitation(form.elicitation.form, url.elicitation.url),
            other.roots if self.roots is None else self.roots,
            other.approval if self.approval is None else self.approval,
        )
        # One of the two may be a person's and the other a function's.
        both._personal = (form._personal & {"form"}) | (url._personal & {"url"})
        return both


_GIVEN = ("sampling", "elicitation", "roots", "approval")


def _as_elicitation(given: AnyElicitation | None) -> Elicitation:
    if given is None:
        return Elicitation()
    if isinstance(given, Elicitation):
        return given
    form, url = getattr(given, "form", None), getattr(given, "url", None)
    if form is not None or url is not None:
        return Elicitation(form, url, asks_person=bool(getattr(given, "asks_person", False)))
    refuse_coroutines(given, "elicitation")  # type: ignore[arg-type]
    return Elicitation(given)  # type: ignore[arg-type]
