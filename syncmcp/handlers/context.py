"""The context that a handler gets with a question, and the server that asks the question."""

from __future__ import annotations

import copy
import math
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from syncmcp import types
from syncmcp._base.checks import check_callable
from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.timing import Deadline
from syncmcp.config import Http, Stdio
from syncmcp.errors import Denied, NotSupported, UsageError
from syncmcp.handlers.url_completion import Run, UrlVisit, run_inline

if TYPE_CHECKING:
    from syncmcp._client.client import Client
    from syncmcp._protocol.negotiate import Negotiated
    from syncmcp.types import Implementation, ServerCapabilities

__all__ = ["CausingCall", "ConnectedServer", "HandlerContext", "ProgressHandler"]


# -- servers, and the keys under which approvals are remembered -----------------------------------


class FileChosenName(str):
    """The name of a server that a guarded file chose, rather than the program.

    The name is shown, compared and stored like any other name. Copies of a mapping and pickles keep
    this type, so every client can distinguish the name from one that the program wrote itself.
    """

    __slots__ = ()


def given_name(name: str | None) -> str | None:
    """Return the name if the program gave it; `None` for a name from a guarded file."""
    return None if isinstance(name, FileChosenName) else name


@dataclass(frozen=True, repr=False)
class ServerIdentity:
    """Tells servers apart: default names are shortened, and several servers may have the same one.

    Two identities are equal if the program gave the same name, if any, to the same server. For a
    command, the same server has the same arguments, directory and names of variables. Otherwise it
    has the same URL, with its query, or is the same object in this process. The values of variables
    and of headers do not count. The `repr` shows no such details, because arguments and URLs may
    hold secrets.
    """

    given_name: str | None
    """The name that the program gave, if any; `None` for a name from a guarded file."""

    target: Hashable = None


def identity_of(target: object, name: str | None) -> ServerIdentity:
    """Return the identity of the server of a client's target; `name` is the client's option."""
    given = given_name(name)
    if isinstance(target, Stdio):
        words = (target.command, *target.args)
        return ServerIdentity(given, (words, _directory(target.cwd), frozenset(target.env)))
    if isinstance(target, Http):
        return ServerIdentity(given, target.url)
    return ServerIdentity(given, _SameObject(target))


def _directory(cwd: str | None) -> str | None:
    """Return the absolute directory of the server: the program may change its own later."""
    try:
        return os.path.abspath(cwd or "")
    except OSError:  # the program's directory was removed
        return cwd


class _SameObject:
    """Compares objects by identity. Holds a weak reference: an `id` may be reused later."""

    def __init__(self, it: object) -> None:
        self._hash = id(it)
        self._get: Callable[[], object]
        try:
            self._get = weakref.ref(it)
        except TypeError:  # a class with __slots__ and without __weakref__
            self._get = lambda: it

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _SameObject):
            return False
        it = self._get()
        return self is other or (it is not None and it is other._get())

    def __hash__(self) -> int:
        return self._hash


class ConnectedServer:
    """The connected server: its name in the program, and what it declared about itself.

    The declarations are for display; the library neither verifies nor trusts them.

    Attributes:
        name: The name that the program gave the server: the only name to show as a fact. The
            default is the command or the URL, shortened and with secrets removed. A default name
            does not tell servers apart.
        identity: Equal for two objects if the program gave the same name, if any, to the same
            server. Default names do not count.
        trusted: Whether the program chose to trust the server's annotations of its tools.
        revision: The negotiated protocol revision.
    """

    def __init__(
        self,
        negotiated: Negotiated,
        *,
        name: str,
        trusted: bool = False,
        extensions: Iterable[str] = (),
        identity: ServerIdentity | None = None,
    ) -> None:
        self._result = negotiated.result
        self._extensions = frozenset(extensions)
        self.name = name
        self.identity = ServerIdentity(name) if identity is None else identity
        self.trusted = trusted
        self.revision: str = negotiated.dialect.revision

    @property
    def given_name(self) -> str | None:
        """The name that the program gave the server.

        The value is `None` if `name` is a default name, or if a servers file that needs approval
        chose the name.
        """
        return self.identity.given_name

    @property
    def info(self) -> Implementation | None:
        """The name and version that the server declared; `None` if missing or malformed."""
        meta = self._result.get("_meta")
        declared = self._result.get("serverInfo")
        if isinstance(meta, dict):
            declared = meta.get("io.modelcontextprotocol/serverInfo", declared)
        try:
            return None if declared is None else types.Implementation.model_validate(declared)
        except ValueError:
            return None

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declared; empty if they are malformed."""
        try:
            return types.ServerCapabilities.model_validate(self._result.get("capabilities") or {})
        except ValueError:
            return types.ServerCapabilities()

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """The extensions that both sides declared: the server's settings by identifier.

        The client declares its extensions with `extensions=` of `Client`. `capabilities` has all
        extensions of the server.
        """
        declared = self._result.get("capabilities")
        declared = declared.get("extensions") if isinstance(declared, dict) else None
        declared = declared if isinstance(declared, dict) else {}
        return {
            identifier: settings
            for identifier, settings in declared.items()
            if identifier in self._extensions and isinstance(settings, dict)
        }

    def extension(self, identifier: str) -> dict[str, Any]:
        """The server's settings of an extension.

        Raises:
            NotSupported: One side did not declare the extension; the message says which side.
        """
        settings = self.extensions.get(identifier)
        if settings is not None:
            return settings
        if identifier not in self._extensions:
            raise NotSupported(
                f"the extension {identifier} is not enabled: see extensions= of Client",
                server=self.name,
            )
        raise NotSupported(f"the server has no extension {identifier}", server=self.name)

    @property
    def instructions(self) -> str | None:
        """The server's instructions for a model on how to use it, or `None`."""
        declared = self._result.get("instructions")
        return declared if isinstance(declared, str) else None

    def __repr__(self) -> str:
        return f"<ConnectedServer {self.name} {self.revision}>"


def is_named_by_file(server: ConnectedServer) -> bool:
    """Return whether a servers file that needs approval chose the name of a server."""
    return isinstance(server.name, FileChosenName)


def renamed(server: ConnectedServer, name: str) -> ConnectedServer:
    """Return a copy of `server` with another name."""
    other = copy.copy(server)
    other.name = name
    other.identity = replace(server.identity, given_name=given_name(name))
    return other


PROGRESS_ARGUMENTS = ("progress", "total", "message")
"""The names of the arguments of a `ProgressHandler`, for errors."""


class ProgressHandler(Protocol):
    """Receives the progress of a call, on a pool thread, in the order of arrival.

    An exception is logged, and the call continues.
    """

    def __call__(self, progress: float, total: float | None, message: str | None, /) -> object:
        """Receive one report; the return value is ignored."""
        ...


class CausingCall(NamedTuple):
    """The client's request during which the server asked a question.

    Attributes:
        method: ``"tools/call"``, for example.
        params: The parameters of the request, without `_meta`.
    """

    method: str
    params: dict[str, Any] | None


class HandlerContext:
    """Describes a server's question to the handler, and reports progress while it is answered.

    ::

        from syncmcp.types import ElicitResult

        def ask(request, context):
            print(context.server.name, "asks:", request.message, context.time_left())
            return ElicitResult.decline()

    Args:
        client: See the property; `None` if the question does not come from a single server.
        server: See the property; `None` if the question does not come from a single server.
        method: See the attribute.
        call: See the attribute.
        cancel: See the property; a new token by default.
        timeout: The time that the handler has, in seconds; `None` for no limit.
        progress: Called with each report of progress.
        show: Called with the partial text of a model.
        resumes_call: See the attribute.

    Attributes:
        method: The method of the question, ``"sampling/createMessage"`` for example.
        call: The client's request that caused the question; `None` if it is not known for certain.
            It is known in 2026-07-28, on a request's own stream over HTTP, and if no other request
            is in flight.
        resumes_call: Whether the answer resumes `call`. It always does in 2026-07-28, where the
            server receives nothing but the answer, and after error -32042 (2025-11-25), when the
            call is sent again. A handler should then ask a person who visits a URL whether they
            have finished. Otherwise the server expects only the consent.
    """

    __slots__ = (
        "_cancel",
        "_client",
        "_deadline",
        "_ended",
        "_lock",
        "_progress",
        "_provisional",
        "_run",
        "_server",
        "_show",
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
        self._server = server
        self.method = method
        self.call = call
        self._cancel = CancelToken() if cancel is None else cancel
        self._deadline = Deadline(timeout)
        self._progress = progress
        self._show = show
        # The answer that is sent if the time runs out.
        self._provisional: dict[str, Any] | Denied | None = None
        self.resumes_call = resumes_call
        # Guards the visit to the URL. For a question without a URL, the first thread that uses the
        # visit creates it; it ends with the question, or with the token.
        self._lock = threading.RLock()
        self._visit: UrlVisit | None = None
        self._ended = False
        self._run: Run = run_inline

    @property
    def client(self) -> Client:
        """The client that received the question. The handler may make blocking calls with it.

        Raises:
            UsageError: There is no single client: the model works for a group.
        """
        if self._client is None:
            raise UsageError("this model works for a group: its clients are in group.clients")
        return self._client

    @property
    def server(self) -> ConnectedServer:
        """The server that asks.

        Only its `name` is a fact; the server declared the rest itself.

        Raises:
            UsageError: There is no single server: the model works for a group.
        """
        if self._server is None:
            raise UsageError("this model works for a group, not for one server")
        return self._server

    @property
    def cancel(self) -> CancelToken:
        """The token that is cancelled when the answer is no longer wanted.

        The token is cancelled when the server cancels the question, the connection ends, the client
        is closed, the call that caused the question ends, or `human_timeout` has passed. A handler
        may cancel the token as well. Then the question is refused, or an elicitation cancelled, at
        once.

        After the consent to a URL, the token is cancelled when the session has ended, or the
        server's messages no longer reach the client. Then nobody can report the completion of the
        visit any more. The token can also be cancelled because the person gave up.
        """
        return self._cancel

    def time_left(self) -> float | None:
        """Seconds until the question expires (`human_timeout`); `None` without a limit."""
        return self._deadline.remaining()

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Send the server the progress of the answer.

        The method does nothing if the server did not ask for progress, and in 2026-07-28. If there
        are more than 20 reports in a second, the server gets the newest, a little later.
        (basic/utilities/progress)

        Args:
            progress: The progress so far, which should grow with each report. A value that does not
                grow is sent as slightly more than the last one.
            total: The final value of `progress`, if it is known.
            message: A description of the current step.

        Raises:
            UsageError: `progress` is not finite.
        """
        if not math.isfinite(progress):
            raise UsageError(f"progress must be a finite number, not {progress!r}")
        if self._progress is not None:
            self._progress(progress, total, message)

    def show(self, text: str) -> None:
        """Show the partial text of a model to the person who will review it.

        Without a display, the method does nothing.
        """
        if self._show is not None:
            self._show(text)

    def completed(self) -> None:
        """Report that the visit to a URL is completed, because the person said so."""
        visit_of(self).settle(done=True)

    def wait_completed(self, timeout: float | None = None) -> bool:
        """Wait for the completion of the visit to a URL, at most `timeout` seconds.

        The method may be called on any thread. In 2025-11-25, servers may report the completion
        (``notifications/elicitation/complete``), usually after the consent; the report may never
        come. So return the consent first, and wait elsewhere. A handler that waits before it
        returns keeps the consent from the server, until `human_timeout` at most. See "Elicitation",
        "Completion Notifications for URL Mode Elicitation" in the specification.

        Returns:
            Whether the visit is completed. `True` comes at once if the server has reported the
            completion, even if the server then asked again with the same id. `False` comes when
            `timeout` has passed, and at once when no report can come any more. That is so if the
            question was not answered with consent, `cancel` was cancelled, or the session has
            ended, which cancels `cancel`. It is also so when the server's messages no longer reach
            the client. Over HTTP, this means that the stream for messages outside of calls was
            given up, and no call is in flight.
        """
        waiting, visit = Deadline(timeout), visit_of(self)
        # After the consent, perhaps during this wait, the question's limit no longer applies.
        while not visit.wait(waiting.sooner(self._visit_limit(visit)).remaining()):
            if waiting.expired or self._visit_limit(visit) == 0:
                break
        return visit.done

    def on_completed(self, callback: Callable[[bool], object]) -> Callable[[], None]:
        """Call `callback` once, with the result that `wait_completed` without a timeout would have.

        The call may come long after the handler has returned. The argument is `False` if no
        completion can be reported any more. This is the case at the latest when the session ends,
        or when the server's messages no longer reach the client. For a question without a URL, it
        is the case when the question ends.

        Args:
            callback: Called on a pool thread of the client, with the context variables of the
                caller of this method. The callback may block, and call the client. Its exceptions
                are logged. If there is no single client (the model works for a group), the callback
                runs on the thread that settles the visit.

        Returns:
            A function that removes the callback.

        Raises:
            UsageError: `callback` is a coroutine function, or not callable.
        """
        check_callable(callback, "the callback of on_completed", ("done",))
        run = copy_context().run
        return visit_of(self).on_settled(lambda done: run(callback, done))

    def _visit_limit(self, visit: UrlVisit) -> float | None:
        return None if visit.agreed else self.time_left()

    def __repr__(self) -> str:
        asker = "a group" if self._server is None else self._server.name
        return f"<HandlerContext {self.method} from {asker}>"


# Functions for the library, not for handlers.


def end_context(context: HandlerContext) -> None:
    """Release the display and end the visit after the handler: a program may keep the context."""
    context._show = None
    with context._lock:
        context._ended, visit = True, context._visit
    if visit is not None and not visit.agreed:
        visit.settle(done=False)


def visit_of(context: HandlerContext) -> UrlVisit:
    """Return the visit to the URL; without a URL, one that no server reports as completed."""
    with context._lock:
        if context._visit is not None:
            return context._visit
        visit = context._visit = UrlVisit(context._run)
        ended = context._ended
    if ended:
        visit.settle(done=False)
    else:
        call_when_cancelled(context.cancel, partial(visit.settle, done=False))
    return visit


def set_visit(context: HandlerContext, visit: UrlVisit) -> None:
    """Set the visit that the question asks for; cancelling the question settles it."""
    context._visit = visit
    call_when_cancelled(context.cancel, partial(visit.settle, done=False))


def set_provisional(context: HandlerContext, outcome: dict[str, Any] | Denied | None) -> None:
    """Set the outcome of the question if the time runs out."""
    context._provisional = outcome


def provisional(context: HandlerContext) -> dict[str, Any] | Denied | None:
    """Return the outcome of the question if the time runs out; `None` if it was not set."""
    return context._provisional


def run_callbacks_with(context: HandlerContext, run: Run) -> None:
    """Have `run` call the callbacks of `HandlerContext.on_completed`, on a pool thread."""
    context._run = run


def show_with(context: HandlerContext, show: Callable[[str], object]) -> None:
    """Set the function that gets the text passed to `HandlerContext.show`."""
    context._show = show


def nested_context(
    outer: HandlerContext,
    cancel: CancelToken | None,
    timeout: float | None,
    show: Callable[[str], object] | None,
) -> HandlerContext:
    """Return a context for a question that a handler asks while it answers `outer`."""
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
    context._run = outer._run
    return context
