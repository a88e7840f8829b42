"""What to connect to: a command to run, or a URL. Plain values, made before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from syncmcp._redaction import MASK, redact
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    import requests
    from requests.auth import AuthBase

__all__ = ["MAX_FRAME", "Headers", "Http", "Stderr", "Stdio"]

MAX_FRAME = 64 * 1024 * 1024
"""The default bound on one frame, event or body, in bytes."""

Headers = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""Header names and values, or a function that is asked for them before each HTTP request."""

Stderr = Literal["log", "inherit", "devnull"] | Callable[[str], None] | str | os.PathLike[str]
"""Where a server's stderr goes besides the tail that errors show.

``"log"``: to the logger ``syncmcp.stderr``; ``"inherit"``: to this process's stderr;
``"devnull"``: nowhere; a function: called with each line, on the thread that drains the pipe;
a path: appended to that file.
"""


class Stdio:
    """A server to be started as a child process, spoken to over its stdin and stdout.

    The command is run without a shell. Credentials for such a server belong into `env`.

    Args:
        command: The program; looked up on the `PATH` that the child will have.
        args: Its arguments.
        env: Variables for the child, on top of what `inherit_env` lets through.
        inherit_env: ``"safe"`` passes on only what programs commonly need to run (`PATH`, `HOME`
            and their like), ``"all"`` everything, ``"none"`` nothing.
        cwd: The child's working directory; this process's own by default.
        stderr: Where its stderr goes, see `Stderr`. The last lines are kept for errors anyhow.
        restart: ``"on-exit"``: a server that died is started again by the next call, after a pause
            that grows with each death; ``"never"``: the client stays broken until reopened.
        max_frame: The longest message accepted from the server, in bytes.
        grace: Seconds a server gets to end by itself after its stdin was closed, and again after
            it was asked to terminate, before its whole process tree is killed.
    """

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
        self.command = os.fspath(command)
        self.args = tuple(os.fspath(arg) for arg in args)
        if not self.command:
            raise UsageError("Stdio needs a command")
        for text in (self.command, *self.args):
            if "\0" in text:
                raise UsageError("a command and its arguments cannot contain a NUL character")
        self.env = dict(env or {})
        if inherit_env not in ("safe", "all", "none"):
            raise UsageError(f"inherit_env is 'safe', 'all' or 'none', not {inherit_env!r}")
        self.inherit_env = inherit_env
        self.cwd = None if cwd is None else os.fspath(cwd)
        self.stderr: Stderr = stderr
        if restart not in ("on-exit", "never"):
            raise UsageError(f"restart is 'on-exit' or 'never', not {restart!r}")
        self.restart = restart
        self.max_frame = max_frame
        self.grace = grace

    @property
    def label(self) -> str:
        """The command line as shown to people: secrets removed, long ones cut."""
        words = " ".join((self.command, *self.args)).split()
        line = redact(" ".join(words), self.env.values())
        return line if len(line) <= 120 else line[:117] + "..."

    def __repr__(self) -> str:
        env = f", env={dict.fromkeys(self.env, MASK)}" if self.env else ""
        return f"Stdio({self.label!r}{env})"


class Http:
    """A server at a URL, spoken to over Streamable HTTP.

    Args:
        url: The MCP endpoint, ``http://`` or ``https://``.
        headers: Sent with every request: a mapping, or a function without arguments that returns
            one; the function runs on the thread that sends.
        auth: A `requests` authentication object. With none, `~/.netrc` is not consulted.
        session: A `requests.Session` whose settings (headers, auth, proxies, TLS, cookies) are
            taken over. One with adapters of its own is used as it is; cancelling and deadlines
            then end the wait but cannot always end the exchange.
        verify: Whether to check TLS certificates, or the path of a CA bundle.
        cert: A client certificate: a path, or the paths of certificate and key.
        proxies: Proxy URLs by scheme; by default the environment's (`HTTPS_PROXY`, `NO_PROXY`).
        max_body: The longest response body or event accepted, in bytes.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        auth: AuthBase | tuple[str, str] | None = None,
        session: requests.Session | None = None,
        verify: bool | str = True,
        cert: str | tuple[str, str] | None = None,
        proxies: Mapping[str, str] | None = None,
        max_body: int = MAX_FRAME,
    ) -> None:
        if not url.lower().startswith(("http://", "https://")):
            raise UsageError(
                f"{redact(url)!r} is not an http:// or https:// URL; for a command use Stdio(...)"
            )
        self.url = url
        self.headers = headers
        self.auth = auth
        self.session = session
        self.verify = verify
        self.cert = cert
        self.proxies = proxies
        self.max_body = max_body

    @property
    def label(self) -> str:
        """The URL as shown to people: user, password, query values and fragment removed."""
        return redact(self.url.partition("#")[0])

    def __repr__(self) -> str:
        given = [
            name for name in ("headers", "auth", "session", "cert", "proxies") if self._has(name)
        ]
        return f"Http({self.label!r}{''.join(f', {name}={MASK}' for name in given)})"

    def _has(self, name: str) -> bool:
        value: Any = getattr(self, name)
        return value is not None
