"""The way to a server, as far as it can be looked at without speaking to the server."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from syncmcp._concurrency.timing import Deadline
from syncmcp.cli.failures import describe
from syncmcp.config import Http, Stdio
from syncmcp.errors import ConnectFailed, McpError
from syncmcp.transports._process import environment, locate, search_path

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Finding", "steps_to"]


@dataclass(frozen=True)
class Finding:
    """What one step of the examination found.

    Attributes:
        step: Its name.
        verdict: What came of it.
        said: What was found.
        hint: What to do about it.
        error: What went wrong.
    """

    step: str
    verdict: Literal["ok", "warning", "failed"]
    said: str
    hint: str | None = None
    error: McpError | None = None

    @classmethod
    def failed(cls, step: str, error: McpError, hint: str | None = None) -> Self:
        """A step that ended with an error."""
        facts = describe(error)
        said = facts["message"]
        if "process_exit_code" in facts:
            said += f" (exit code {facts['process_exit_code']})"
        if "stderr" in facts:
            said += f"; its stderr ended with: {facts['stderr']}"
        return cls(step, "failed", said, hint or facts.get("hint"), error)

    def facts(self) -> dict[str, Any]:
        """The members of a JSON object."""
        facts: dict[str, Any] = {"step": self.step, "verdict": self.verdict, "said": self.said}
        if self.hint is not None:
            facts["hint"] = self.hint
        if self.error is not None:
            error = describe(self.error)
            error.pop("hint", None)  # the step has a better one
            facts["error"] = error
        return facts


def steps_to(target: Stdio | Http, timeout: float) -> Iterator[Finding]:
    """Look at each step; the last one may have failed.

    Args:
        target: The server.
        timeout: The longest that connecting may take, in seconds.
    """
    if isinstance(target, Stdio):
        yield _command(target)
    else:
        yield from _address(target, timeout)


def _command(target: Stdio) -> Finding:
    path = search_path(environment(target.env, target.inherit_env, os.environ))
    try:
        return Finding("command", "ok", locate(target.command, path))
    except OSError:
        error = ConnectFailed(f"command not found: {target.command!r}; PATH searched: {path}")
        return Finding.failed("command", error, "install it, or give its whole path")
    except McpError as error:
        return Finding.failed("command", error, "install it, or give its whole path")


def _address(target: Http, timeout: float) -> Iterator[Finding]:
    from requests.utils import get_environ_proxies

    from syncmcp._http.connections import resolve
    from syncmcp._http.exchange import Exchange

    parts = urlsplit(target.url)
    host, secure = parts.hostname or "", parts.scheme.lower() == "https"
    port = parts.port or (443 if secure else 80)
    if get_environ_proxies(target.url):
        yield Finding("network", "ok", "a proxy of the environment leads there")
        return
    deadline = Deadline(timeout)
    try:
        found = resolve(host, port, Exchange(deadline))
    except OSError as error:
        failure = ConnectFailed(f"the name {host!r} has no address: {error}")
        yield Finding.failed("name", failure, "is it spelt right? Is there a network?")
        return
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    yield Finding("name", "ok", f"{host} is {', '.join(addresses)}")
    try:
        link = _connected(addresses, port, deadline)
    except OSError as error:
        failure = ConnectFailed(f"nothing answers at {host}, port {port}: {error}")
        yield Finding.failed("connection", failure, "does the server run, and on this port?")
        return
    with link:
        yield Finding("connection", "ok", f"port {port} is open")
        if secure:
            yield _encryption(target, link, host)


def _connected(addresses: Sequence[str], port: int, deadline: Deadline) -> socket.socket:
    """A connection to the first address that takes one.

    Raises:
        OSError: None does; the error is that of the last.
    """
    *others, last = addresses
    for address in others:
        try:
            return socket.create_connection((address, port), deadline.remaining())
        except OSError:
            continue
    return socket.create_connection((last, port), deadline.remaining())


def _encryption(target: Http, link: socket.socket, host: str) -> Finding:
    if target.verify is not True:
        return Finding("certificate", "ok", "it is checked by the settings given")
    try:
        with ssl.create_default_context().wrap_socket(link, server_hostname=host) as encrypted:
            return Finding("certificate", "ok", f"good, {encrypted.version()}")
    except OSError as error:
        # What the client trusts may differ from what this computer does: it has the last word.
        reason = getattr(error, "verify_message", None) or str(error)
        return Finding("certificate", "warning", f"this computer does not accept it: {reason}")
