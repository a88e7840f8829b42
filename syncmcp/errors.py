"""The errors of calls, and their base classes.

::

    McpError
    ├── UsageError (ValueError)              a mistake in the program; nothing was sent
    │   ├── NotSupported                     not in the revision, or not declared by the server
    │   └── InvalidArguments                 arguments that a tool's input schema does not accept
    ├── ClosedError                          the client is not open
    │   └── ForkedError                      ... because it belongs to the parent process
    ├── TransportError                       the connection failed; see `delivery`
    │   ├── ConnectFailed                    no connection could be made
    │   ├── ConnectionLost                   the connection ended during a request
    │   │   ├── OutcomeUnknown               ... and a retry might do the work twice
    │   │   └── SessionLost                  ... because the session has ended
    │   └── HttpError                        an unexpected HTTP status or body
    │       └── AuthError                    401 or 403, or no token could be obtained
    │           ├── LoginRequired            ... because no person can be asked to sign in
    │           ├── DiscoveryFailed          ... because no trusted authorization server was found
    │           ├── RegistrationFailed       ... because there is no client id for this program
    │           └── TokenRefused             ... because authorization server or person refused
    ├── LimitExceeded                        the peer exceeded a limit of this client
    ├── RequestTimeout (TimeoutError)        a timeout of this client passed
    ├── RequestCancelled (CancelledError)    the program cancelled the request
    ├── ProtocolError                        the peer violated the protocol
    │   ├── InvalidOutput                    a result that its model or schema does not accept
    │   ├── UnsupportedSchema                a tool schema that cannot be used for checks
    │   └── InvalidQuestion                  a question that was not declared, or is malformed
    ├── ServerError                          a JSON-RPC error of the server; a class for each code
    │   └── ParseError, InvalidRequest, MethodNotFound, InvalidParams, UrlElicitationRequired,
    │       InternalError, ResourceNotFound, HeaderMismatch, MissingCapability, UnsupportedVersion
    ├── ToolError                            a tool ran and reported failure
    ├── TooManyRounds                        a call or a tool loop took too many rounds
    ├── SubscriptionLost                     a subscription ended without the program's request
    ├── InterceptorFailed                    an interceptor failed, or returned an invalid value
    ├── Refused                              a handler refused a question of the server
    └── Denied                               a policy or a person denied something

All errors can be pickled with their attributes. Other modules define further subclasses, such as
`syncmcp.servers_file.NotApproved`.
"""

from __future__ import annotations

import concurrent.futures
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from syncmcp._base.docstrings import describe_inherited
from syncmcp._base.text import bounded, quote, several_lines

if TYPE_CHECKING:
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
"""How far a request came: not sent, refused by the server, or unknown."""

_DELIVERY_TEXT: dict[Delivery, str] = {
    "not_sent": "the request was not sent",
    "refused": "the server refused the request",
    "unknown": "the outcome is unknown",
}

# The requests with which the library opens a connection.
_HANDSHAKE = frozenset(("initialize", "server/discover"))

E = TypeVar("E", bound="McpError")

if sys.version_info >= (3, 11):
    _TimeoutBase = TimeoutError
else:  # in Python 3.10 these are two classes, and programs catch either

    class _TimeoutBase(concurrent.futures.TimeoutError, TimeoutError):
        pass


class McpError(Exception):
    """The base class of all errors that this library raises on purpose.

    >>> try:
    ...     client.call_tool("sleep", {"seconds": 60}, timeout=0.1)
    ... except syncmcp.RequestTimeout as error:
    ...     print(error.method, error.kind, error.seconds, error.delivery)
    tools/call total 0.1 unknown

    A message may quote a server. `str()` makes control and hidden characters visible, and begins
    each further line with a bar. The attributes have the unchanged text, but without secrets. You
    pass the attributes of an error that you raise as keywords: ``Denied("not now", by="nobody")``.

    Attributes:
        server: The name of the server (option `name`; its command or URL by default), or `None`.
        method: The JSON-RPC method concerned, or `None`.
        attempts: How often the client sent the request, or tried to; see `Retry`.
        hint: What to do, or what the cause may be, as far as the library can guess; else `None`.
    """

    server: str | None = None
    method: str | None = None
    attempts: int = 1
    hint: str | None = None

    def __init_subclass__(cls) -> None:
        describe_inherited(cls)

    def __init__(self, message: str = "", **facts: Any) -> None:
        # Shortened here for all errors: the time to show a message grows with its length.
        super().__init__(bounded(message))
        self.__dict__.update(facts)

    @property
    def message(self) -> str:
        """The message alone, without the details that `str()` adds."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        where = " ".join(filter(None, (self._subject(), self.server and f"[{self.server}]")))
        text = f"{where}: {self.message}" if where else self.message
        details = self._details()
        if self.attempts > 1:
            details.append(f"{self.attempts} attempts")
        return several_lines(f"{text} ({'; '.join(details)})" if details else text)

    def _subject(self) -> str:
        return "" if self.method in _HANDSHAKE else self.method or ""

    def _details(self) -> list[str]:
        delivery: Delivery | None = getattr(self, "delivery", None)
        opening = self.method in _HANDSHAKE or isinstance(self, ConnectFailed)
        # The library made such a request, so its delivery means nothing to the program.
        return [] if delivery is None or opening else [_DELIVERY_TEXT[delivery]]

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(cls: type[E], args: tuple[Any, ...], facts: Mapping[str, Any]) -> E:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


def fresh(error: E, **facts: Any) -> E:
    """Return a copy of `error` with some attributes changed, to be raised in one thread.

    One object that several threads raise would collect all their tracebacks. The cause is shared.
    """
    copy = _rebuild(type(error), error.args, {**error.__dict__, **facts})
    copy.__dict__.pop("__notes__", None)  # all copies would share the list
    copy.__cause__ = error.__cause__
    return copy


class UsageError(McpError, ValueError):
    """The program made a mistake. Nothing was sent, unless the error is an `InvalidAnswer`."""


class NotSupported(UsageError):
    """The revision lacks the feature, or the server does not declare it. Nothing was sent."""


class InvalidArguments(UsageError):
    """The arguments of a call do not fit the tool's input schema. Nothing was sent.

    Attributes:
        tool: The name of the tool.
        argument: The name of the argument concerned; `None` if it concerns all of them together.
    """

    tool: str | None = None
    argument: str | None = None

    def _subject(self) -> str:
        return f"tool {self.tool!r}"


class ClosedError(McpError):
    """The client was never opened, or was closed before or during the call.

    Attributes:
        delivery: How far the request came.
    """

    delivery: Delivery = "not_sent"


class ForkedError(ClosedError):
    """The client was opened in a parent process. Create a new client in this process."""


def forked_error(server: str | None, method: str | None = None) -> ForkedError:
    """Return the error of a call on a client of the parent process."""
    text = "this client belongs to the parent process; make a new one after a fork"
    return ForkedError(text, server=server, method=method)


class TransportError(McpError):
    """The connection failed.

    Attributes:
        delivery: How far the request came: not sent, refused by the server, or unknown.
        exit_code: The exit status of a child process, or minus its signal number; else `None`.
        stderr_tail: The last lines that a child process wrote to stderr, with secrets removed.
    """

    delivery: Delivery = "not_sent"
    exit_code: int | None = None
    stderr_tail: str = ""

    def _details(self) -> list[str]:
        details = [] if self.exit_code is None else [_ending(self.exit_code)]
        details += super()._details()
        if self.stderr_tail:  # before the hint: its last line is the likely cause
            details.append(f"stderr ended with: {self.stderr_tail}")
        return [*details, *filter(None, (self.hint,))]


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        name = f" ({signal.Signals(-exit_code).name})"
    except ValueError:  # a real-time signal, or one of another system
        name = ""
    return f"killed by signal {-exit_code}{name}"


class ConnectFailed(TransportError):
    """No connection could be made: command not found, server exited, refused, DNS, TLS."""


class ConnectionLost(TransportError):
    """The connection ended while the request was in flight, or between two requests."""

    delivery: Delivery = "unknown"


class OutcomeUnknown(ConnectionLost):
    """The connection ended after a request was sent that is not idempotent.

    The server may have processed the request. Check that before you repeat the request. The library
    repeats a request with the option `idempotent=True` (`CallOptions`).
    """


class SessionLost(ConnectionLost):
    """The session of the request, or of its cursor, has ended; the request was not processed."""

    delivery: Delivery = "refused"


class HttpError(TransportError):
    """The server returned an HTTP status or body that is no response to the request.

    Attributes:
        status: The HTTP status code; 0 if there was no response.
        body: The beginning of the response body, with secrets removed.
        retry_after: The seconds that the server asks the client to wait before a retry, or `None`.
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
    """Authorization failed: a 401 or 403 response, or no token could be obtained.

    Attributes:
        error: The error code of an OAuth response (RFC 6749 §5.2), or `None`.
    """

    error: str | None = None

    def _details(self) -> list[str]:
        return [self.error, *super()._details()] if self.error else super()._details()


class LoginRequired(AuthError):
    """A person must sign in, but refused or cannot be asked; `hint` may say what to do."""


class DiscoveryFailed(AuthError):
    """No authorization server was found, or the one that was found must not be used."""


class RegistrationFailed(AuthError):
    """The authorization server gave this program no client id."""


class TokenRefused(AuthError):
    """The authorization server, or a person who was asked, refused a token; `error` says why."""


class LimitExceeded(McpError):
    """A limit of this client was exceeded, mostly by the peer; the message names the limit.

    Attributes:
        delivery: How far the request came; `None` if no request is concerned.
    """

    delivery: Delivery | None = "unknown"


class RequestTimeout(McpError, _TimeoutBase):
    """A timeout passed before the response arrived.

    If the request was sent, the server is notified once, where the protocol allows it.

    Attributes:
        kind: The timeout: ``"total"`` (the call's `timeout`), ``"idle"`` (its `idle_timeout`),
            ``"open"`` (that of opening the connection) or ``"login"`` (that of a sign-in).
        seconds: The length of the timeout, in seconds.
        delivery: ``"not_sent"`` if no byte of the request was written, else ``"unknown"``.
        messages: For a tool loop, the whole conversation so far; else `None`.
    """

    kind: Literal["total", "idle", "open", "login"] = "total"
    seconds: float | None = None
    delivery: Delivery = "unknown"
    messages: list[SamplingMessage] | None = None


class RequestCancelled(McpError, concurrent.futures.CancelledError):
    """The program cancelled the request.

    If the request was sent, the server is notified once, where the protocol allows it.

    Attributes:
        reason: The reason that the program gave, or `None`.
        delivery: ``"not_sent"`` if no byte of the request was written, else ``"unknown"``.
        messages: For a tool loop, the whole conversation so far; else `None`.
    """

    reason: str | None = None
    delivery: Delivery = "unknown"
    messages: list[SamplingMessage] | None = None

    def _details(self) -> list[str]:
        return [self.reason, *super()._details()] if self.reason else super()._details()


class ProtocolError(McpError):
    """The peer sent a message that the protocol does not allow."""


class InvalidOutput(ProtocolError):
    """A result does not fit its model, the tool's output schema, or a model of the program.

    Attributes:
        tool: The name of the tool that the result is from; else `None`.
        result: The result of the tool, which has run; `None` if it is not a tool's result.
    """

    tool: str | None = None
    result: CallToolResult | None = None


class UnsupportedSchema(ProtocolError):
    """A tool's schema is invalid, or cannot be used for checks.

    Its dialect is unknown, a reference leads out of the schema, a pattern needs backtracking, the
    schema is too large, or a check takes too many steps.

    Attributes:
        tool: The name of the tool, or `None`.
        result: The result of the tool if it has run, else `None`.
        backtracking: True if only a pattern is the reason, which has flags or needs backtracking.
    """

    tool: str | None = None
    result: CallToolResult | None = None
    backtracking: bool = False


class InvalidQuestion(ProtocolError):
    """The server asked a question that the client did not declare, or a malformed question.

    Attributes:
        code: The JSON-RPC error code sent to the server, where an answer can be an error.
    """

    code: int = -32602


class ServerError(McpError):
    """The server returned a JSON-RPC error.

    Attributes:
        code: The JSON-RPC error code.
        data: The `data` of the error, or `None`.
        status: The HTTP status that the error came with, if that was an error status; else 0.
        codes: Of the class: the subclass of each code.
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
        """Return an instance of the class for `code`, or a plain `ServerError` for other codes."""
        return cls.codes.get(code, ServerError)(message, code=code, data=data, **facts)

    def _details(self) -> list[str]:
        return [f"error {self.code}", *filter(None, (self.hint,))]


class ParseError(ServerError, code=-32700):
    """The server could not parse the request."""


class InvalidRequest(ServerError, code=-32600):
    """The server does not accept the message as a request."""


class MethodNotFound(ServerError, code=-32601):
    """The server has no such method."""


class InvalidParams(ServerError, code=-32602):
    """The server does not accept the parameters (unknown tool, missing argument, bad cursor)."""


class InternalError(ServerError, code=-32603):
    """The server had an internal error."""


class ResourceNotFound(ServerError, code=-32002):
    """The server has no such resource."""


class HeaderMismatch(ServerError, code=-32020):
    """The HTTP headers of a request do not match its body (2026-07-28)."""


class MissingCapability(ServerError, code=-32021):
    """The client did not declare a required capability (2026-07-28): `hint` names the option."""


class UnsupportedVersion(ServerError, code=-32022):
    """The server does not support the revision of the request (2026-07-28)."""


class UrlElicitationRequired(ServerError, code=-32042):
    """A person must visit pages before the call (2025-11-25); `data` has the links."""


class ToolError(McpError):
    """A tool ran and reported failure (`isError`).

    Attributes:
        result: The whole `CallToolResult`, with its content.
        tool: The name of the tool; `None` if the result did not come from a call of a client.
    """

    result: CallToolResult
    tool: str | None = None

    def __init__(
        self, result: CallToolResult, *, tool: str | None = None, server: str | None = None
    ) -> None:
        if isinstance(result, str):
            raise TypeError(
                "a ToolError needs a CallToolResult; a tool may raise any other exception"
            )
        message = quote(result.text) or "the tool reported an error"
        super().__init__(message, result=result, tool=tool, server=server)

    def _subject(self) -> str:
        return f"tool {self.tool!r}" if self.tool else super()._subject()


class TooManyRounds(McpError):
    """An exchange took too many rounds; the server's last message is the `__cause__`.

    Attributes:
        rounds: The number of rounds.
        messages: For a tool loop, the whole conversation so far; else `None`.
    """

    rounds: int = 0
    messages: list[SamplingMessage] | None = None


class SubscriptionLost(McpError):
    """A subscription ended, but the program did not end it.

    An error that led to this is the `__cause__`.

    Attributes:
        by: What ended it: the ``"server"``; the end of the ``"connection"``, which could not be
            replaced; or the ``"backlog"``: too many different events were queued.
        lists: The lists whose changes are not reported any more, such as ``"tools"``.
        uris: The resources whose changes are not reported any more.
    """

    by: Literal["server", "connection", "backlog"] = "server"
    lists: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


class InterceptorFailed(McpError):
    """An interceptor raised another error, the `__cause__`, or returned an invalid message.

    Attributes:
        interceptor: The name of the interceptor's class.
        hook: ``"outgoing"`` or ``"incoming"``.
        delivery: ``"not_sent"`` before the request was sent. ``"unknown"`` once its response was
            received, because the server may have processed the request.
    """

    interceptor: str = ""
    hook: str = ""
    delivery: Delivery = "not_sent"


class Denied(McpError):
    """A policy or a person denied a tool call, which was not sent, or a question in a sent call.

    Attributes:
        kind: What was to be approved: ``"sampling"``, ``"form"``, ``"url"``, ``"roots"`` or
            ``"tool"``.
        by: What denied it: a ``"policy"``, a ``"person"``, a ``"remembered"`` decision, a rate
            ``"limit"``; or why there was no decision: ``"timeout"`` (nobody decided within
            `human_timeout`), ``"withdrawn"`` (by the server), ``"nobody"`` (there is no
            reviewer), ``"error"``.
        reason: The reason that was given, or `None`.
    """

    kind: str = ""
    by: str = ""
    reason: str | None = None

    def _details(self) -> list[str]:
        return [*filter(None, (self.reason, self.hint))]


class Refused(McpError):
    """Raise this in a handler to answer a question of the server with a JSON-RPC error.

    Before 2026-07-28 the error is sent to the server unchanged. In 2026-07-28 an answer cannot be
    an error, so the call raises it (with -32603 if the handler failed). The call itself was sent.

    Attributes:
        code: The JSON-RPC error code sent to the server.
        data: The `data` of the JSON-RPC error; left out when `None`.
    """

    code: int
    data: Any = None

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        if type(code) is not int:
            raise UsageError(f"code must be an int, not {code!r}")
        super().__init__(message, code=code, data=data)
