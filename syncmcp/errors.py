"""Every exception of the library.

::

    McpError
    ├── UsageError (ValueError)              the caller's mistake; nothing was sent
    │   ├── NotSupported                     not in the revision, or the server does not declare it
    │   └── InvalidArguments                 a tool's input schema does not take these
    ├── ClosedError                          the client is not open
    │   └── ForkedError                      ... because it belongs to the parent process
    ├── TransportError                       the wire failed; `delivery` says how far a request came
    │   ├── ConnectFailed                    no connection came about
    │   ├── ConnectionLost                   a connection ended under a request
    │   │   ├── OutcomeUnknown               ... and repeating the request might do its work twice
    │   │   └── SessionLost                  ... because the session is gone
    │   └── HttpError                        an HTTP status that answers no request
    │       └── AuthError                    401 or 403, or no token can be had
    │           ├── LoginRequired            ... without a person, and there is none to ask
    │           ├── DiscoveryFailed          ... as nobody says where, or it cannot be trusted
    │           ├── RegistrationFailed       ... as the authorization server knows no such client
    │           └── TokenRefused             ... as the authorization server, or its user, said no
    ├── LimitExceeded                        a bound of ours was passed by the peer
    ├── RequestTimeout (TimeoutError)        a deadline of ours passed
    ├── RequestCancelled (CancelledError)    the caller withdrew the request
    ├── ProtocolError                        the peer broke the protocol
    │   ├── InvalidOutput                    a result that does not fit what it should be
    │   ├── UnsupportedSchema                a schema that nothing can be checked with here
    │   └── InvalidQuestion                  a question that nobody offered to answer, or nonsense
    ├── ServerError                          the server answered with a JSON-RPC error
    │   └── ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError,
    │       ResourceNotFound, HeaderMismatch, MissingCapability, UnsupportedVersion,
    │       UrlElicitationRequired           one class for each code the specification defines
    ├── ToolError                            a tool ran and reported failure
    ├── TooManyRounds                        an exchange or a tool loop found no end
    ├── SubscriptionLost                     no more change events come
    ├── InterceptorFailed                    an interceptor did what it must not
    ├── Refused                              a question of the server's was refused
    └── Denied                               a policy or a person said no

The caller's mistake, the peer's mistake and the wire's failure never share a class, and a local
condition never borrows a JSON-RPC code. All can be pickled and keep their facts.
"""

from __future__ import annotations

import concurrent.futures
import signal
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from syncmcp.types import CallToolResult, SamplingMessage

__all__ = [
    "AuthError",
    "ClosedError",
    "ConnectFailed",
    "ConnectionLost",
    "Delivery",
    "Denied",
    "DiscoveryFailed",
    "ForkedError",
    "HeaderMismatch",
    "HttpError",
    "InterceptorFailed",
    "InternalError",
    "InvalidArguments",
    "InvalidOutput",
    "InvalidParams",
    "InvalidQuestion",
    "InvalidRequest",
    "LimitExceeded",
    "LoginRequired",
    "McpError",
    "MethodNotFound",
    "MissingCapability",
    "NotSupported",
    "OutcomeUnknown",
    "ParseError",
    "ProtocolError",
    "Refused",
    "RegistrationFailed",
    "RequestCancelled",
    "RequestTimeout",
    "ResourceNotFound",
    "ServerError",
    "SessionLost",
    "SubscriptionLost",
    "TokenRefused",
    "TooManyRounds",
    "ToolError",
    "TransportError",
    "UnsupportedSchema",
    "UnsupportedVersion",
    "UrlElicitationRequired",
    "UsageError",
]

Delivery = Literal["not_sent", "refused", "unknown"]
"""How far a request came: never written, turned away by the server, or nobody can tell."""

_DELIVERY_TEXT: dict[str, str] = {
    "not_sent": "the request was not sent",
    "refused": "the server refused the request",
    "unknown": "the outcome is unknown",
}

E = TypeVar("E", bound="McpError")

if sys.version_info >= (3, 11):
    _TimeoutBase = TimeoutError
else:  # two classes there, and people catch either

    class _TimeoutBase(concurrent.futures.TimeoutError, TimeoutError):
        pass


class McpError(Exception):
    """Base of everything this library raises on purpose.

    Attributes:
        server: The command or URL concerned, with secrets removed, or `None`.
        method: The JSON-RPC method concerned, or `None`.
        attempts: How often the request was sent, or was to be sent; see `Retry`.
    """

    server: str | None = None
    method: str | None = None
    attempts: int = 1

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)

    @property
    def message(self) -> str:
        """The bare message, without the facts that `str()` adds."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        where = " ".join(
            part for part in (self._subject(), f"[{self.server}]" if self.server else "") if part
        )
        text = f"{where}: {self.message}" if where else self.message
        details = self._details()
        if self.attempts > 1:
            details.append(f"{self.attempts} attempts")
        return f"{text} ({'; '.join(details)})" if details else text

    def _subject(self) -> str:
        return self.method or ""

    def _details(self) -> list[str]:
        return []

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(cls: type[E], args: tuple[Any, ...], facts: Mapping[str, Any]) -> E:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


def fresh(error: E, **facts: Any) -> E:
    """Return a copy of `error` for one waiter, with `facts` changed.

    One exception object raised in several threads would collect all their tracebacks; so each
    waiter gets its own, with the same cause.
    """
    copy = _rebuild(type(error), error.args, {**error.__dict__, **facts})
    copy.__dict__.pop("__notes__", None)  # a list that all copies would share
    copy.__cause__ = error.__cause__
    return copy


class UsageError(McpError, ValueError):
    """The caller asked for something that cannot be; nothing was sent."""


class NotSupported(UsageError):
    """The revision lacks it, or the server does not declare it (`undeclared`); nothing was sent."""


class InvalidArguments(UsageError):
    """The arguments of a call do not fit the tool's input schema; nothing was sent.

    Attributes:
        tool: The tool.
        argument: Which argument it is about; `None` if it is all of them together.
    """

    tool: str | None = None
    argument: str | None = None

    def _subject(self) -> str:
        return f"tool {self.tool!r}"


class ClosedError(McpError):
    """The client was never opened, or was closed before or during the call."""

    delivery: Delivery = "not_sent"

    def _details(self) -> list[str]:
        return [_DELIVERY_TEXT[self.delivery]]


class ForkedError(ClosedError):
    """The client was opened in a parent process; make a new one in this process."""


class TransportError(McpError):
    """The connection failed.

    Attributes:
        delivery: Whether the request concerned was not sent, refused, or its outcome is unknown.
        exit_code: For a child process that ended, its exit status (negative: the signal).
        stderr_tail: For a child process, the last lines it wrote to stderr, secrets removed.
    """

    delivery: Delivery = "not_sent"
    exit_code: int | None = None
    stderr_tail: str = ""

    def _details(self) -> list[str]:
        details = []
        if self.exit_code is not None:
            details.append(_ending(self.exit_code))
        details.append(_DELIVERY_TEXT[self.delivery])
        if self.stderr_tail:
            details.append(f"stderr ended with: {self.stderr_tail}")
        return details


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        name = f" ({signal.Signals(-exit_code).name})"
    except ValueError:  # a real-time signal, or one of another system
        name = ""
    return f"killed by signal {-exit_code}{name}"


class ConnectFailed(TransportError):
    """No connection came about: command not found, server exited, refused, DNS, TLS."""


class ConnectionLost(TransportError):
    """The connection ended while the request was in flight, or while nobody was looking."""

    delivery: Delivery = "unknown"


class OutcomeUnknown(ConnectionLost):
    """The connection ended after a request that changes things was sent; it may have been done."""


class SessionLost(ConnectionLost):
    """The session, or that of the request's cursor, is gone; the request was not processed."""

    delivery: Delivery = "refused"


class HttpError(TransportError):
    """The server answered with an HTTP status (or body) that is no answer to the request.

    Attributes:
        status: The HTTP status code.
        body: The beginning of the response body, secrets removed.
        retry_after: How long the server wants no other attempt, in seconds, if it said so.
    """

    status: int = 0
    body: str = ""
    retry_after: float | None = None
    delivery: Delivery = "refused"

    def _details(self) -> list[str]:
        details = [f"HTTP {self.status}"] if self.status else []
        if self.body:
            details.append(f"body began with: {self.body}")
        return details + super()._details()


class AuthError(HttpError):
    """The server wants other credentials (401), none of ours will do (403), or none can be had.

    Attributes:
        error: The code that an OAuth answer gave for it (RFC 6749 §5.2), or `None`.
    """

    error: str | None = None

    def _details(self) -> list[str]:
        return [self.error, *super()._details()] if self.error else super()._details()


class LoginRequired(AuthError):
    """Somebody has to sign in, and nobody is asked; the message says why, and what to do."""


class DiscoveryFailed(AuthError):
    """Where to sign in cannot be found out, or what was found must not be used."""


class RegistrationFailed(AuthError):
    """The authorization server has no client id for this program."""


class TokenRefused(AuthError):
    """The authorization server, or the person asked there, gave no token; `error` says why."""


class LimitExceeded(McpError):
    """The peer sent more than one of our bounds allows; the message names the option.

    `delivery` is `None` where no request is concerned.
    """

    delivery: Delivery | None = "unknown"

    def _details(self) -> list[str]:
        return [] if self.delivery is None else [_DELIVERY_TEXT[self.delivery]]


class RequestTimeout(McpError, _TimeoutBase):
    """A deadline of ours passed before the answer came. The server was told, once.

    Attributes:
        kind: ``"total"`` (the call's `timeout`), ``"idle"`` (its `idle_timeout`) or ``"open"``.
        seconds: The limit that passed.
        delivery: ``"not_sent"`` if nothing of the request was written, else ``"unknown"``.
        messages: For a tool loop, the whole conversation so far; else `None`.
    """

    kind: Literal["total", "idle", "open"] = "total"
    seconds: float | None = None
    delivery: Delivery = "unknown"
    messages: list[SamplingMessage] | None = None

    def _details(self) -> list[str]:
        return [_DELIVERY_TEXT[self.delivery]]


class RequestCancelled(McpError, concurrent.futures.CancelledError):
    """The caller withdrew the request. The server was told, once.

    Attributes:
        reason: What the caller gave as its reason, or `None`.
        delivery: ``"not_sent"`` if nothing of the request was written, else ``"unknown"``.
        messages: For a tool loop, the whole conversation so far; else `None`.
    """

    reason: str | None = None
    delivery: Delivery = "unknown"
    messages: list[SamplingMessage] | None = None

    def _details(self) -> list[str]:
        details = [_DELIVERY_TEXT[self.delivery]]
        if self.reason:
            details.insert(0, self.reason)
        return details


class ProtocolError(McpError):
    """The peer sent something that the protocol does not allow here."""


class InvalidOutput(ProtocolError):
    """A result is not what it should be: its model, its schema or the caller's does not accept it.

    Attributes:
        tool: The tool whose output schema the result does not fit; else `None`.
        result: What the tool gave all the same: it has run. `None` where there is no result.
    """

    tool: str | None = None
    result: CallToolResult | None = None


class UnsupportedSchema(ProtocolError):
    """A tool's schema is none, or one that nothing can be checked with here.

    Its dialect is unknown, a reference leads out of it, a pattern needs backtracking, it is too
    large, or a check by it takes too many steps.

    Attributes:
        tool: The tool whose schema it is, or `None`.
        result: What the tool gave all the same, if it has run.
        backtracking: Whether it is valid, and only has a pattern that needs backtracking.
    """

    tool: str | None = None
    result: CallToolResult | None = None
    backtracking: bool = False


class InvalidQuestion(ProtocolError):
    """The server asked what nobody offered to answer, or in a way that cannot be understood.

    Attributes:
        code: The JSON-RPC error code that the server gets where an answer can be an error.
    """

    code: int = -32602


class ServerError(McpError):
    """The server answered with a JSON-RPC error.

    Attributes:
        code: The JSON-RPC error code.
        data: Whatever the server attached, or `None`.
        status: The HTTP status that the error came with, where that was an error's; else 0.
    """

    code: int = 0
    data: Any = None
    status: int = 0
    codes: ClassVar[dict[int, type[ServerError]]] = {}

    def __init_subclass__(cls, *, code: int | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code
            ServerError.codes[code] = cls

    @classmethod
    def from_wire(cls, code: int, message: str, data: Any = None, **facts: Any) -> ServerError:
        """Build the class that belongs to `code`; codes nobody defined stay a `ServerError`."""
        return cls.codes.get(code, ServerError)(message, code=code, data=data, **facts)

    def _details(self) -> list[str]:
        return [f"error {self.code}"]


class ParseError(ServerError, code=-32700):
    """The server could not parse what we sent."""


class InvalidRequest(ServerError, code=-32600):
    """The server does not take this for a request."""


class MethodNotFound(ServerError, code=-32601):
    """The server has no such method."""


class InvalidParams(ServerError, code=-32602):
    """The server does not accept the parameters (unknown tool, missing argument, bad cursor)."""


class InternalError(ServerError, code=-32603):
    """The server failed inside."""


class ResourceNotFound(ServerError, code=-32002):
    """The server has no such resource."""


class HeaderMismatch(ServerError, code=-32020):
    """The HTTP headers and the body of a request do not agree (2026-07-28)."""


class MissingCapability(ServerError, code=-32021):
    """The request needs a capability that this client did not declare (2026-07-28)."""


class UnsupportedVersion(ServerError, code=-32022):
    """The server does not speak the revision of the request (2026-07-28)."""


class UrlElicitationRequired(ServerError, code=-32042):
    """The request needs something done in a browser first (2025-11-25); `data` has the links."""


class ToolError(McpError):
    """A tool ran and reported failure (`isError`).

    Attributes:
        result: The whole `CallToolResult`, content and all.
        tool: The tool's name, or `None` for a result that came from no call of a client.
    """

    result: CallToolResult
    tool: str | None = None

    def __init__(
        self, result: CallToolResult, *, tool: str | None = None, server: str | None = None
    ) -> None:
        message = result.text or "the tool reported an error"
        super().__init__(message, result=result, tool=tool, server=server)

    def _subject(self) -> str:
        return f"tool {self.tool!r}" if self.tool else super()._subject()


class TooManyRounds(McpError):
    """An exchange went back and forth too often; what the server said last is the `__cause__`.

    Attributes:
        rounds: How many rounds were made.
        messages: For a tool loop, the whole conversation so far; else `None`.
    """

    rounds: int = 0
    messages: list[SamplingMessage] | None = None


class SubscriptionLost(McpError):
    """No more change events come, though the program did not end the subscription.

    What went wrong is the `__cause__`, if something did.

    Attributes:
        by: What ended it: the ``"server"``, the end of the ``"connection"`` that no other one could
            replace, or the ``"backlog"``: too many different events were not looked at.
        lists: The lists of which nothing is told any more: ``"tools"``, ``"prompts"``,
            ``"resources"``.
        uris: The resources of which nothing is told any more.
    """

    by: Literal["server", "connection", "backlog"] = "server"
    lists: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


class InterceptorFailed(McpError):
    """An interceptor raised something else than an `McpError`, or returned what it must not.

    What it raised is the `__cause__`.

    Attributes:
        interceptor: The name of its class.
        hook: ``"outgoing"`` or ``"incoming"``.
        delivery: ``"not_sent"`` before the request was sent, ``"unknown"`` when its answer was
            there: the server may have done what was asked.
    """

    interceptor: str = ""
    hook: str = ""
    delivery: Delivery = "not_sent"

    def _details(self) -> list[str]:
        return [_DELIVERY_TEXT[self.delivery]]


class Denied(McpError):
    """A policy or a person did not allow it.

    Attributes:
        kind: What was to be allowed: ``"sampling"``, ``"form"``, ``"url"``, ``"roots"`` or
            ``"tool"``.
        by: Who said no: ``"policy"``, ``"person"``, ``"remembered"``, ``"limit"``; or why nobody
            said yes: ``"timeout"``, ``"withdrawn"``, ``"nobody"``, ``"error"``.
        reason: Why not, if that was said.
    """

    kind: str = ""
    by: str = ""
    reason: str | None = None

    def _details(self) -> list[str]:
        return [self.reason] if self.reason else []


class Refused(McpError):
    """Raise it in a handler to answer a server's question with this JSON-RPC error.

    Until 2025-11-25 the server gets it unchanged. In 2026-07-28, where an answer cannot be an
    error, the call that the question belongs to raises it.

    Attributes:
        code: The JSON-RPC error code that the server gets.
        data: What goes with it; left out when `None`.
    """

    code: int
    data: Any = None

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        if type(code) is not int:
            raise UsageError(f"code is an int, not {code!r}")
        super().__init__(message, code=code, data=data)
