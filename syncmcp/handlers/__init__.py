"""What a program supplies to be told of things and to answer questions."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from syncmcp._base.checks import refuse_coroutines
from syncmcp._protocol.client_capabilities import OfferedCapabilities
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


def offer_of(handlers: Handlers) -> OfferedCapabilities:
    """The capabilities that these handlers make possible."""
    return handlers._offer


def answered_by_person(handlers: Handlers) -> frozenset[str]:
    """The modes of elicitation that a person answers directly."""
    return handlers._personal


def replaced(handlers: Handlers, **changed: Any) -> Handlers:
    """The same handlers, with some of them changed."""
    given = ("sampling", "elicitation", "roots", "approval")
    return Handlers(**{**{name: getattr(handlers, name) for name in given}, **changed})


def merged(handlers: Handlers, others: Handlers) -> Handlers:
    """These handlers, and those of `others` for what is missing."""
    form = others if handlers.elicitation.form is None else handlers
    url = others if handlers.elicitation.url is None else handlers
    both = Handlers(
        others.sampling if handlers.sampling is None else handlers.sampling,
        Elicitation(form.elicitation.form, url.elicitation.url),
        others.roots if handlers.roots is None else handlers.roots,
        others.approval if handlers.approval is None else handlers.approval,
    )
    # One of the two may be a person's and the other a function's.
    both._personal = (form._personal & {"form"}) | (url._personal & {"url"})
    return both


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
