"""The targets of a client: a command (`Stdio`) or a URL (`Http`). Plain values, not connections."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Literal

from syncmcp._base.checks import (
    check_callable,
    check_headers,
    check_object,
    flag,
    hinting,
    kind_of,
    seconds,
    whole_number,
)
from syncmcp._base.origin import split_url
from syncmcp._base.secrets import Secrets
from syncmcp._base.text import MASK, WORD, names_a_secret, redact, redact_url
from syncmcp._concurrency.forks import delaying_forks
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    import requests
    from requests.auth import AuthBase

__all__ = ["MAX_FRAME", "Headers", "Http", "Stderr", "Stdio"]

# Options that may hold secrets, and are masked in the `repr`.
_MASKED = ("headers", "auth", "session", "cert", "proxies", "session_id", "last_event_id")

_TOKENS = {
    "session_id": (WORD.pattern, "of visible ASCII characters"),
    "last_event_id": (r"[^\x00-\x1f\x7f]+", "without control characters, not empty"),
}

MAX_FRAME = 64 * 1024 * 1024
"""The default limit on the size of one frame, event or body, in bytes."""

Headers = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""Header names and values, or a function that returns them before each HTTP request."""

Stderr = Literal["log", "inherit", "devnull"] | Callable[[str], None] | str | os.PathLike[str]
"""Where the stderr of a server goes. Errors show its last lines in any case.

``"log"`` means the logger ``syncmcp.stderr``, ``"inherit"`` the stderr of this process, and
``"devnull"`` nowhere. A function is called with each line, on the thread that reads the stderr. For
a path, the lines are appended to that file. A `str` is a path if it contains a separator or a dot.
"""


class Stdio:
    """A server that is started as a child process, and communicates over its stdin and stdout.

    >>> import sys
    >>> server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing", env={"KEY": "secret"})
    >>> with syncmcp.connect(server) as client:
    ...     print(client.call_tool("add", {"a": 1, "b": 2}).text)
    3

    The command is run without a shell. Pass credentials for the server in `env`.

    Args:
        command: The program. A name without a directory is looked up on the `PATH` of the child,
            not in the working directory. A relative path with a directory is relative to `cwd`.
        args: The arguments of the program.
        env: Environment variables for the child, in addition to those of `inherit_env`.
        inherit_env: Which variables of this process the child inherits: ``"safe"``, those that
            programs commonly need to run (`PATH`, `HOME` and the like); ``"all"``; or ``"none"``.
            On Linux the child always gets `SYNCMCP_SERVER`, by which its descendants are found.
        cwd: The working directory of the child; by default that of this process.
        stderr: Where the stderr of the child goes: ``"log"`` (the logger ``syncmcp.stderr``),
            ``"inherit"`` (the stderr of this process), ``"devnull"``, a function that is called
            with each line on the thread that reads the lines, or the path of a file to append to.
            Errors show the last lines in any case.
        restart: What happens after the server has ended. With ``"on-exit"`` the next call starts
            the server again, after a pause that grows each time. With ``"never"`` the client has to
            be opened again.
        max_frame: The longest message accepted from the server, in bytes. A message may have a
            limited number of JSON values: one for each 16 bytes, at least 100,000 and at most four
            million.
        grace: How long the server may take to end, in seconds: first after its stdin was closed,
            then after it was asked to terminate. After that its whole process tree is killed. On
            Linux this includes processes that have left its process group.

    Attributes:
        before_start: A function that is called before each start of the server, on the thread that
            starts it; `None` at first. If the function raises an error, the start fails.

    Raises:
        UsageError: An option is invalid.
    """

    @hinting(  # noqa: S604 - no shell is used
        args="pass each word as a separate argument, Stdio(command, *args)",
        name="pass it to a client, as in connect(Stdio(...), name=...)",
        headers="only HTTP has headers; pass secrets to a command in env=",
        shell="Stdio uses no shell; for a shell, write Stdio('sh', '-c', LINE)",
        timeout="pass it to a client or a call, as in connect(Stdio(...), timeout=...)",
    )
    def __init__(
        self,
        command: str | os.PathLike[str],
        *args: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        inherit_env: Literal["safe", "all", "none"] = "safe",
        cwd: str | os.PathLike[str] | None = None,
        stderr: Stderr = "log",
        restart: Literal["on-exit", "never"] = "on-exit",
        max_frame: int = MAX_FRAME,
        grace: tuple[float, float] = (2.0, 2.0),
    ) -> None:
        self.command = _path("command", command)
        self.args = tuple(_path("an argument", arg) for arg in args)
        if not self.command:
            raise UsageError("Stdio needs a command")
        for text in (self.command, *self.args):
            if "\0" in text:
                raise UsageError("a command and its arguments cannot contain a NUL character")
        self.env = _variables(env)
        self.secrets = Secrets()
        self.secrets.give_variables(self.env)
        if inherit_env not in ("safe", "all", "none"):
            raise UsageError(f"inherit_env must be 'safe', 'all' or 'none', not {inherit_env!r}")
        self.inherit_env = inherit_env
        self.cwd = None if cwd is None else _path("cwd", cwd)
        self.stderr = _stderr(stderr)
        if restart not in ("on-exit", "never"):
            raise UsageError(f"restart must be 'on-exit' or 'never', not {restart!r}")
        self.restart = restart
        self.max_frame = whole_number(max_frame, "max_frame")
        self.grace = _grace(grace)
        self.before_start: Callable[[], object] | None = None

    @property
    def label(self) -> str:
        """The command line, with secrets removed, and shortened to 120 characters."""
        words = " ".join((self.command, *self.args)).split()
        line = self.secrets.redact(" ".join(words))
        return line if len(line) <= 120 else line[:117] + "..."

    def __repr__(self) -> str:
        env = f", env={dict.fromkeys(self.env, MASK)}" if self.env else ""
        return f"Stdio({self.label!r}{env})"


class Http:
    """A server at a URL, reached over Streamable HTTP or, for old servers, over HTTP+SSE.

    >>> from syncmcp.testing import demo_server, serve_http
    >>> with serve_http(demo_server()) as http:  # on this computer
    ...     with syncmcp.connect(syncmcp.Http(http.url, token="secret")) as client:
    ...         print(client.call_tool("add", {"a": 1, "b": 2}).text)
    3

    A resumed session (`session_id`) begins without a handshake. Its revision is the client's `mode`
    if `mode` is a revision, else the newest revision with sessions. The server's name and
    capabilities stay unknown, so the server, not the client, refuses a missing feature. The server
    may use the capabilities that the other client declared. A `ping` checks whether the server
    knows the session. If the server does not know it, the client opens a new session with a
    handshake.

    Args:
        url: The MCP endpoint, ``http://`` or ``https://``; for HTTP+SSE the URL of the event
            stream.
        transport: ``"auto"`` detects the transport; ``"streamable"`` never falls back to HTTP+SSE;
            ``"sse"`` uses HTTP+SSE only, the transport of servers from before 2025-03-26.
        headers: The headers of every request: a mapping, or a function without arguments that
            returns a mapping. A mapping is copied when the client is made. A function is called on
            the thread that sends the request.
        token: A bearer token, which is sent as ``Authorization: Bearer TOKEN``. For a token that
            expires use `auth`. Do not combine `token` with `auth`, with a `session` that has `auth`
            or this header, or with a function for `headers`.
        auth: A `requests` authentication object, such as those of `syncmcp.auth`, or a pair of
            user name and password. `~/.netrc` is never read.
        session: A `requests.Session` whose headers, auth, proxies, TLS and cookies are used. A
            timeout or a cancel always ends the wait for the response. But the HTTP exchange cannot
            always be aborted if the session has adapters of its own.
        verify: Whether to check TLS certificates, or the path of a CA bundle.
        cert: A client certificate: its path, or the paths of certificate and key.
        proxies: Proxy URLs by scheme; by default those of the environment (`HTTPS_PROXY`,
            `NO_PROXY`).
        max_body: The longest response body or event accepted, in bytes. A message may have a
            limited number of JSON values: one for each 16 bytes, at least 100,000 and at most four
            million.
        session_id: The `Client.session_id` of another client, to resume its session (before
            2026-07-28).
        last_event_id: The `Client.last_event_id` of that client. The server sends the events after
            this one again, if it has stored them.
        keep_session: Whether to leave the session open at the server when the client is closed, so
            that another client can resume the session.

    Raises:
        UsageError: An option is invalid, or a certificate file does not exist.
    """

    @hinting(
        params="write the query into the URL",
        proxy="write proxies={'https': URL}",
        bearer="write token=",
        cookies="write session=, a requests.Session that has them",
        follow_redirects="redirects within the origin are followed; for others, write their URL",
        name="pass it to a client, as in connect(Http(URL), name=...)",
        timeout="pass it to a client or a call, as in connect(Http(URL), timeout=...)",
    )
    def __init__(
        self,
        url: str,
        *,
        transport: Literal["auto", "streamable", "sse"] = "auto",
        headers: Headers | None = None,
        token: str | None = None,
        auth: AuthBase | tuple[str, str] | None = None,
        session: requests.Session | None = None,
        verify: bool | str | os.PathLike[str] = True,
        cert: str | tuple[str, str] | None = None,
        proxies: Mapping[str, str] | None = None,
        max_body: int = MAX_FRAME,
        session_id: str | None = None,
        last_event_id: str | None = None,
        keep_session: bool = False,
    ) -> None:
        check_url(url)
        if transport not in ("auto", "streamable", "sse"):
            raise UsageError(f"transport must be 'auto', 'streamable' or 'sse', not {transport!r}")
        if token is not None:
            other = auth is not None or getattr(session, "auth", None) is not None
            headers = _with_token(token, headers, other)
        if callable(headers):
            check_callable(headers, "headers", ())
        elif headers is not None:
            check_headers(headers, "headers")
        check_object(auth, "auth")
        if auth is not None and not callable(auth) and not _is_pair(auth):
            raise UsageError(
                "auth must be a requests authentication object or two strings (user name,"
                f" password), not {kind_of(auth)}; pass a bearer token as token="
            )
        _check_session(session)
        if proxies is not None:
            _check_strings("proxies", proxies)
        self.url = url
        self.transport = transport
        self.headers = headers
        self.auth = auth
        self.session = session
        self.verify = verify if isinstance(verify, bool) else _file("verify", verify)
        self.cert = _cert(cert)
        self.proxies = proxies
        self.max_body = whole_number(max_body, "max_body")
        if transport == "sse" and (session_id or last_event_id) is not None:
            raise UsageError("session_id and last_event_id belong to Streamable HTTP, not to sse")
        self.session_id = _token("session_id", session_id)
        self.last_event_id = _token("last_event_id", last_event_id)
        self.keep_session = flag(keep_session, "keep_session")
        self.secrets = self._known_secrets()

    if not TYPE_CHECKING:  # type checkers refuse every attribute that the class does not have

        def __setattr__(self, name: str, value: object) -> None:
            if name == "token":  # it would have no effect
                raise AttributeError(
                    "pass the token when you create a target: Http(URL, token=...)"
                )
            super().__setattr__(name, value)

    @property
    def label(self) -> str:
        """The URL without user, password, query values, fragment, and secrets in its path."""
        shown = redact(self.url.partition("#")[0])
        start = len(shown) - len(shown.partition("://")[2].partition("/")[2])
        # A copy has the secrets of the options only: those learned later must not change the label.
        return shown[:start] + copy(self.secrets).mask(shown[start:])

    def __repr__(self) -> str:
        given = [name for name in _MASKED if getattr(self, name) is not None]
        return f"Http({self.label!r}{''.join(f', {name}={MASK}' for name in given)})"

    def _known_secrets(self) -> Secrets:
        """Return the secrets in the options; tokens are added when they are first sent."""
        found = Secrets()
        for url in (self.url, *(self.proxies or {}).values()):
            found.give_url(url)
        if isinstance(self.headers, Mapping):
            found.give_headers(self.headers)
        pairs: list[Any] = [self.auth]
        if self.session is not None:
            named = self.session.headers.items()
            found.give_headers({name: value for name, value in named if names_a_secret(name)})
            pairs.append(self.session.auth)
            for cookie in self.session.cookies:
                found.give(cookie.value or "", "cookie")
        for pair in pairs:
            if isinstance(pair, tuple):
                for part, name in zip(pair, ("user", "password"), strict=False):
                    found.give(str(part), name)
        for value in (self.session_id, self.last_event_id):
            if value is not None:
                found.give(value, "session_id")
        return found


def _with_token(token: object, headers: Headers | None, other: bool) -> Mapping[str, str]:
    if isinstance(token, os.PathLike) or callable(token):
        raise UsageError(f"token must be a str, not {kind_of(token)}: write auth=Bearer(...)")
    if not isinstance(token, str) or not WORD.fullmatch(token):
        raise UsageError(  # not quoted: a secret
            "token must be one word of visible ASCII characters, without 'Bearer' or white space"
        )
    given = {} if headers is None or callable(headers) else headers
    check_headers(given, "headers")
    if other or callable(headers) or "authorization" in map(str.lower, given):
        raise UsageError("token= excludes auth=, a headers function and an Authorization header")
    return {**given, "Authorization": f"Bearer {token}"}


def _token(option: str, value: object) -> str | None:
    pattern, meaning = _TOKENS[option]
    if value is None or (isinstance(value, str) and re.fullmatch(pattern, value)):
        return value
    # The message does not quote it: it may be a secret.
    raise UsageError(f"{option} must be a str {meaning}")


def _path(option: str, value: object) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(text, str):
        return text
    words = isinstance(value, (list, tuple)) and option in ("command", "an argument")
    hint = ": pass each word as a separate argument, Stdio(*words)" if words else ""
    raise UsageError(f"{option} must be a str or a path, not {kind_of(value)}{hint}")


def _file(option: str, value: object) -> str:
    path = _path(option, value)
    if not os.path.exists(path):
        raise UsageError(f"{option}: file not found: {path!r}")
    return path


def _grace(value: object) -> tuple[float, float]:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        first, second = (seconds(part, "grace") for part in value)
        if first is not None and second is not None:
            return first, second
    raise UsageError(f"grace must be two numbers of seconds, not {value!r}")


def _stderr(value: Any) -> Stderr:
    given: Stderr = value
    if callable(value):
        check_callable(value, "stderr", ("line",))
        return given
    if value in ("log", "inherit", "devnull"):
        return given
    if isinstance(value, os.PathLike):
        return _path("stderr", value)
    # A misspelled keyword must not create a file of that name.
    if isinstance(value, str) and any(mark in value for mark in ("/", "\\", ".")):
        return given
    raise UsageError(
        "stderr must be 'log', 'inherit', 'devnull', a function, or the path of a file (a str"
        f" with a separator or a dot in it), not {value!r}"
    )


def _variables(env: object) -> dict[str, str]:
    if env is None:
        return {}
    given = _check_strings("env", env)
    for name, value in given.items():
        if not name or "=" in name or "\0" in name:
            raise UsageError(f"env: {name!r} cannot be the name of a variable")
        if "\0" in value:
            raise UsageError(f"env: the value of {name!r} contains a NUL character")
    return given


def _check_strings(option: str, value: object) -> dict[str, str]:
    """Check that `value` maps strings to strings. Errors quote no values: many are secrets."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{option} must be a mapping, not {kind_of(value)}")
    for name, content in value.items():
        if not isinstance(name, str):
            raise UsageError(f"{option}: the name {name!r} must be a str, not {kind_of(name)}")
        if not isinstance(content, str):
            raise UsageError(
                f"{option}: the value of {name!r} must be a str, not {kind_of(content)}"
            )
    return dict(value)


def check_url(url: object, remedy: str = "for a command use Stdio(...)") -> None:
    """Raise `UsageError` unless `url` is an http or https URL with a host.

    `remedy` ends the error for a text that does not look like a URL.
    """
    if not isinstance(url, str):
        hint = "; write its url" if hasattr(url, "url") else ""
        raise UsageError(f"url must be a str, not {kind_of(url)}{hint}")
    if not url.lower().startswith(("http://", "https://")):
        if url != url.strip():
            remedy = "remove the white space around it"
        elif url.lower().endswith(".jsonl"):
            remedy = "for a recording use syncmcp.testing.Replay(...)"
        elif url.lower().endswith(".json"):
            remedy = "for a servers file use syncmcp.servers_file.read(...)"
        elif re.match(r"[\w.-]+:\d", url):
            remedy = "write http:// before it"
        elif re.match(r"[\w-]+(\.[\w-]+)+/", url):
            remedy = "write https:// before it"
        elif "//" in url:
            remedy = "write http:// or https://"
        raise UsageError(f"{redact_url(url)!r} is not an http:// or https:// URL; {remedy}")
    # Parsers of URLs disagree about these characters: the host that is contacted could differ from
    # the host that is shown and compared.
    if not url.isprintable() or " " in url or "\\" in url:
        raise UsageError(
            f"{redact_url(url)!r} is not a URL: it contains a space, a backslash or an invisible"
            " character"
        )
    try:
        parts = split_url(url)
        host = parts.netloc.rpartition("@")[2]
        # `requests` decodes an escape in a host name; only the zone of IPv6 may have a "%".
        usable = bool(parts.hostname) and parts.port != 0 and ("%" not in host or host[0] == "[")
    except ValueError:  # brackets that do not match, a port that is not a number or beyond 65535
        usable = False
    if not usable:
        raise UsageError(f"{redact_url(url)!r} is not a URL with a valid host and port")


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(part, str) for part in value)
    )


def _cert(value: object) -> str | tuple[str, str] | None:
    if value is None:
        return None
    if isinstance(value, tuple) and len(value) == 2:
        certificate, key = value
        return _file("cert", certificate), _file("cert", key)
    if isinstance(value, (list, tuple)):
        raise UsageError("cert must be a path, or a tuple of two: (certificate, key)")
    return _file("cert", value)


def _check_session(session: object) -> None:
    if session is None:
        return
    with delaying_forks():
        import requests  # here: only programs that pass a session need it at this point

    if not isinstance(session, requests.Session):
        raise UsageError(f"session must be a requests.Session, not {kind_of(session)}")
