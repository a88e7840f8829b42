"""Handlers: the callbacks that answer a server's questions and receive its notifications."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from syncmcp._base.checks import check_callable, check_object, flag
from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp.handlers.context import CausingCall, HandlerContext, ProgressHandler

if TYPE_CHECKING:
    from syncmcp.approval import Approval, Policy
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


# The names of the arguments of a handler of questions, for errors.
_QUESTION = ("request", "context")


class SamplingHandler(Protocol):
    """Answers a sampling request with a model (spec: "Sampling").

    It runs on a handler thread, and may block.

    ::

        def model(request, context):
            words = syncmcp.types.TextContent(text=f"You said: {request.messages[-1].text}")
            return syncmcp.types.CreateMessageResult(role="assistant", content=words, model="echo")

    Every handler that answers a question may `raise Refused(code, message, data)`. Any other
    exception is logged and passed to `on_handler_error`. The server learns that the handler failed,
    but not why.
    """

    def __call__(
        self, request: CreateMessageRequestParams, context: HandlerContext, /
    ) -> CreateMessageResult:
        """Return what the model wrote."""
        ...


class FormHandler(Protocol):
    """Answers a form (spec: "Elicitation", form mode).

    It runs on a handler thread, and may block.

    ::

        def form(request, context):
            print(request.message, request.requested_schema)
            return syncmcp.types.ElicitResult.accept({"name": "Ada"})

    Fields that are missing in an accepted answer get the defaults of the form. An answer that is
    not valid for the form is not sent. Instead, an `InvalidAnswer` is logged and passed to
    `on_handler_error`. In 2026-07-28, the call that the server interrupted raises it, too.
    """

    def __call__(
        self, request: ElicitRequestFormParams, context: HandlerContext, /
    ) -> ElicitResult:
        """Return ``ElicitResult.accept(content)``, ``.decline()`` or ``.cancel()``."""
        ...


class UrlHandler(Protocol):
    """Sends a person to a URL (spec: "Elicitation", URL mode).

    It runs on a handler thread, and may block.

    ::

        import webbrowser

        def visit(request, context):
            if input(f"Open {request.url}? ") != "y":
                return syncmcp.types.ElicitResult.decline()
            webbrowser.open(request.url)
            return syncmcp.types.ElicitResult.accept()

    The handler must show the whole URL, ask before it opens the URL, and fetch nothing by itself.
    `syncmcp.handlers.links.Link` lists what is suspicious about a URL.
    """

    def __call__(self, request: ElicitRequestURLParams, context: HandlerContext, /) -> ElicitResult:
        """Return ``ElicitResult.accept()`` for consent, ``.decline()`` or ``.cancel()``.

        To accept means consent to the visit, not its completion. Return as soon as the person has
        agreed: the server may wait for the consent. The server reports the completion later
        (`HandlerContext.wait_completed`, `HandlerContext.on_completed`). Only if the answer resumes
        the call (`HandlerContext.resumes_call`), first ask the person whether they have finished.

        A call may have failed because the visit is required (error -32042, in 2025-11-25). Such a
        call is sent again when the server reports the completion, when the program calls
        `HandlerContext.completed`, or after a minute.
        """
        ...


class RootsHandler(Protocol):
    """Lists the roots for a server (spec: "Roots").

    It runs on a handler thread, and may block.

    ::

        from pathlib import Path

        client = syncmcp.Client(server, roots=lambda context: [Path.cwd()])
    """

    def __call__(self, context: HandlerContext, /) -> Iterable[Root | str | os.PathLike[str]]:
        """Return paths, ``file:`` URIs or `Root` models."""
        ...


class RequestHandler(Protocol):
    """Answers a request of a method unknown to the library.

    It runs on a handler thread, and may block.
    """

    def __call__(self, params: dict[str, Any], context: HandlerContext, /) -> Any:
        """Return the result: a dict, a model, or `None` for an empty result."""
        ...


class NotificationHandler(Protocol):
    """Receives notifications, on a pool thread, in the order of their arrival."""

    def __call__(self, params: dict[str, Any], /) -> object:
        """Receive the parameters of one notification; the return value is ignored."""
        ...


class LogHandler(Protocol):
    """Receives the server's log messages, on a pool thread, in the order of their arrival.

    In 2026-07-28, a server sends no messages before `Client.set_log_level`, or to a call without
    `log_level`. An exception of the handler is logged, and later messages are received as well.

    ::

        client = syncmcp.Client(server, on_log=lambda message: print(message.level, message.data))
    """

    def __call__(self, message: LoggingMessageNotificationParams, /) -> object:
        """Receive one message; the return value is ignored."""
        ...


class Sampling:
    """A sampling handler that declares what it supports besides plain text.

    ::

        def model(request, context):
            words = syncmcp.types.TextContent(text=f"You said: {request.messages[-1].text}")
            return syncmcp.types.CreateMessageResult(role="assistant", content=words, model="echo")

        client = syncmcp.Client(server, sampling=syncmcp.Sampling(model, tools=True))

    Any handler with attributes named `tools` and `context` declares the same.

    Args:
        handler: Called as ``(request, context)`` on a handler thread; see `SamplingHandler`.
        tools: Whether the model may use the tools that the server sends with a request.
        context: Whether the handler honours `include_context`.
    """

    def __init__(
        self, handler: SamplingHandler, *, tools: bool = False, context: bool = False
    ) -> None:
        check_callable(handler, "sampling", _QUESTION)
        self.handler = handler
        self.tools = flag(tools, "tools")
        self.context = flag(context, "context")

    def __repr__(self) -> str:
        return f"Sampling({self.handler!r}, tools={self.tools!r}, context={self.context!r})"

    def __call__(
        self, request: CreateMessageRequestParams, context: HandlerContext, /
    ) -> CreateMessageResult:
        """Call the handler."""
        return self.handler(request, context)


@dataclass(frozen=True)
class Elicitation:
    """The handlers of the two modes of elicitation. A mode without a handler is not advertised.

    ::

        def form(request, context):
            return syncmcp.types.ElicitResult.accept({"name": input(request.message)})

        def visit(request, context):
            return syncmcp.types.ElicitResult.decline()

        client = syncmcp.Client(server, elicitation=syncmcp.Elicitation(form, visit))

    Args:
        form: Answers a form. It is called as ``(request, context)`` on a handler thread; see
            `FormHandler`.
        url: Sends a person to a URL. It is called as ``(request, context)`` on a handler thread;
            see `UrlHandler`.
        asks_person: Whether both handlers ask a person themselves, so that no reviewer has to ask.
    """

    form: FormHandler | None = None
    url: UrlHandler | None = None
    asks_person: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name, handler in (("form", self.form), ("url", self.url)):
            if handler is not None:
                check_callable(handler, name, _QUESTION)
        flag(self.asks_person, "asks_person")


class ElicitationUI(Protocol):
    """A user interface that shows both forms and URLs."""

    asks_person: bool
    """`True` if a person gives the answers."""

    def form(self, request: ElicitRequestFormParams, context: HandlerContext, /) -> ElicitResult:
        """See `FormHandler`."""
        ...

    def url(self, request: ElicitRequestURLParams, context: HandlerContext, /) -> ElicitResult:
        """See `UrlHandler`."""
        ...


AnyElicitation = FormHandler | Elicitation | ElicitationUI
"""The accepted values of the option `elicitation`; a plain function answers forms."""


class Handlers:
    """The handlers of a client, or of one call that has them as its option `handlers`.

    >>> def form(request, context):
    ...     print(request.message)
    ...     return syncmcp.types.ElicitResult.decline()
    >>> handlers = syncmcp.Handlers(elicitation=form)
    >>> client.call_tool("signup_math_facts", handlers=handlers).data
    Sign up for a maths fact a day.
    {'action': 'decline'}

    A client runs handlers on its handler threads. At most `max_handlers` run at one time, not
    counting those that wait for the library. The thread that made the call waits. A handler may
    block, and may call the client. A handler may `raise Refused(code, message)`. Any other
    exception is logged, and the server learns that the handler failed.

    Args:
        sampling: Answers with a model. It is called as ``(request, context)``, gets
            `CreateMessageRequestParams`, and returns a `CreateMessageResult`. See
            `SamplingHandler`.
        elicitation: Answers a form. It is called as ``(request, context)``, gets
            `ElicitRequestFormParams`, and returns an `ElicitResult`. See `FormHandler`. To answer
            URLs, too, pass an `Elicitation`.
        roots: Lists the roots. It is called as ``(context)``, and returns an iterable of paths,
            ``file:`` URIs or `Root` models. See `RootsHandler`.
        approval: Reviews the requests and answers of the other handlers: an `Approval`, or a policy
            with a method ``decide(question)`` that returns a `Decision`.
    """

    __slots__ = ("_asked_directly", "_offer", "approval", "elicitation", "roots", "sampling")

    def __init__(
        self,
        sampling: SamplingHandler | None = None,
        elicitation: AnyElicitation | None = None,
        roots: RootsHandler | None = None,
        approval: Approval | Policy | None = None,
    ) -> None:
        check_object(sampling, "sampling")
        check_object(elicitation, "elicitation")
        check_object(approval, "approval")
        for name, handler, arguments in (
            ("sampling", sampling, _QUESTION),
            ("roots", roots, ("context",)),
        ):
            if handler is not None:
                check_callable(handler, name, arguments)
        self.sampling = sampling
        self.elicitation = _as_elicitation(elicitation)
        # The modes of elicitation whose handler asks a person itself.
        self._asked_directly = frozenset(("form", "url") if self.elicitation.asks_person else ())
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

    def __repr__(self) -> str:
        able = {"sampling": self.sampling, **vars(self.elicitation), "roots": self.roots}
        kinds = [name for name in ("sampling", "form", "url", "roots") if able[name]]
        return f"<Handlers of {', '.join(kinds) or 'nothing'}>"


def offer_of(handlers: Handlers) -> OfferedCapabilities:
    """Return the capabilities to advertise for these handlers."""
    return handlers._offer


def answered_by_person(handlers: Handlers) -> frozenset[str]:
    """Return the modes of elicitation whose handler asks a person itself."""
    return handlers._asked_directly


def replaced(handlers: Handlers, **changed: Any) -> Handlers:
    """Return a copy of `handlers` with some of them replaced."""
    names = ("sampling", "elicitation", "roots", "approval")
    return Handlers(**{**{name: getattr(handlers, name) for name in names}, **changed})


def merged(handlers: Handlers, others: Handlers) -> Handlers:
    """Return a copy of `handlers` in which `others` replaces missing handlers."""
    form = others if handlers.elicitation.form is None else handlers
    url = others if handlers.elicitation.url is None else handlers
    both = Handlers(
        others.sampling if handlers.sampling is None else handlers.sampling,
        Elicitation(form.elicitation.form, url.elicitation.url),
        others.roots if handlers.roots is None else handlers.roots,
        others.approval if handlers.approval is None else handlers.approval,
    )
    # `Elicitation.asks_person` covers both modes; here only one of them may ask a person.
    both._asked_directly = (form._asked_directly & {"form"}) | (url._asked_directly & {"url"})
    return both


def _as_elicitation(value: AnyElicitation | None) -> Elicitation:
    if value is None:
        return Elicitation()
    if isinstance(value, Elicitation):
        return value
    form, url = getattr(value, "form", None), getattr(value, "url", None)
    if form is not None or url is not None:
        return Elicitation(form, url, asks_person=bool(getattr(value, "asks_person", False)))
    check_callable(value, "elicitation", _QUESTION)  # type: ignore[arg-type]
    return Elicitation(value)  # type: ignore[arg-type]
