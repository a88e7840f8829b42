"""`doctor`: diagnoses why a server does not work, by checking each step of a connection."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Literal

import typer
from typing_extensions import Self

from syncmcp._base.origin import split_url
from syncmcp._base.text import logger, reason
from syncmcp._client.client import Client
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.tool_schemas import ToolSchemas
from syncmcp.cli.hints import DOCTOR, SEARCHED
from syncmcp.cli.inspection import capability_names, round_trips
from syncmcp.cli.output import Exit, describe, directories_apart, exit_code, in_words, text_body
from syncmcp.cli.session import Session, with_session
from syncmcp.config import Http, Stdio
from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    McpError,
    RequestTimeout,
    UnsupportedSchema,
)
from syncmcp.transports._process import environment, locate, search_path
from syncmcp.transports.stdio import SKIPPED_LINE
from syncmcp.types import Tool

# The steps before MCP: the command, or name resolution, TCP and TLS.


@dataclass(frozen=True)
class Finding:
    """The result of checking one step: its verdict, the details, and what to do about it."""

    step: str
    verdict: Literal["ok", "warning", "failed"]
    said: str
    hint: str | None = None
    error: McpError | None = None

    @classmethod
    def failed(cls, step: str, error: McpError, hint: str | None = None) -> Self:
        """Return the finding for a step that ended with an error."""
        facts = describe(error)
        said = facts["message"]
        if "process_exit_code" in facts:
            said += f" (exit code {facts['process_exit_code']})"
        if "stderr" in facts:
            said += f"; its stderr ended with: {facts['stderr'].splitlines()[-1].strip()}"
        elif body := text_body(facts):
            said += f"; the body of its response began with: {body}"
        stated = facts.get("hint", "").removesuffix(DOCTOR).rstrip("; ")  # this is the doctor
        return cls(step, "failed", said, hint or stated or None, error)

    def facts(self) -> dict[str, Any]:
        """Return the finding as the members of a JSON object."""
        facts: dict[str, Any] = {"step": self.step, "verdict": self.verdict, "said": self.said}
        if self.hint is not None:
            facts["hint"] = self.hint
        if self.error is not None:
            error = describe(self.error)
            error.pop("hint", None)  # the hint of the step is more specific
            facts["error"] = error
        return facts


def _check_command(target: Stdio) -> Finding:
    env = environment(target.env, target.inherit_env, os.environ)
    failure: McpError
    try:
        return Finding("command", "ok", locate(target.command, env, target.cwd))
    except OSError:
        path = search_path(env)
        failure = ConnectFailed(f"command not found: {target.command!r}{SEARCHED}{path}")
    except McpError as error:
        failure = error
    return Finding.failed("command", failure)


def _check_address(target: Http, timeout: float) -> Iterator[Finding]:
    """Check name resolution and connecting, which together may take `timeout` seconds."""
    from requests.utils import get_environ_proxies

    from syncmcp._http.connecting import resolve
    from syncmcp._http.exchange import AbortableExchange

    parts = split_url(target.url)
    host, secure = parts.hostname or "", parts.scheme.lower() == "https"
    port = parts.port or (443 if secure else 80)
    if get_environ_proxies(target.url):
        yield Finding("network", "ok", "the environment sets a proxy for it")
        return
    deadline = Deadline(timeout)
    try:
        found = resolve(host, port, AbortableExchange(deadline))
    except OSError as error:
        failure = ConnectFailed(f"cannot resolve the name {host!r}: {reason(error)}")
        yield Finding.failed("name", failure, "is it spelled correctly? Is the network up?")
        return
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    yield Finding("name", "ok", f"{host} resolves to {', '.join(addresses)}")
    try:
        link = _connect_any(addresses, port, deadline)
    except OSError as error:
        failure = ConnectFailed(f"nothing answers at {host}, port {port}: {reason(error)}")
        yield Finding.failed("connection", failure, "is the server running on this port?")
        return
    with link:
        yield Finding("connection", "ok", f"port {port} is open")
        if secure:
            yield _check_certificate(target, link, host)


def _connect_any(addresses: Sequence[str], port: int, deadline: Deadline) -> socket.socket:
    """Connect to the first address that accepts a connection; raises the last `OSError`."""
    *others, last = addresses
    for address in others:
        try:
            return socket.create_connection((address, port), deadline.remaining())
        except OSError:
            continue
    return socket.create_connection((last, port), deadline.remaining())


def _check_certificate(target: Http, link: socket.socket, host: str) -> Finding:
    if target.verify is not True:
        return Finding("certificate", "ok", "not checked here: the target's own TLS settings apply")
    try:
        with ssl.create_default_context().wrap_socket(link, server_hostname=host) as encrypted:
            return Finding("certificate", "ok", f"good, {encrypted.version()}")
    except ssl.SSLCertVerificationError as error:
        # Only a warning: the client may trust other certificates than this computer does.
        said = f"this computer does not accept the certificate: {error.verify_message or error}"
        hint = (
            "has the certificate expired, or does a proxy replace it? SSL_CERT_FILE can name"
            " other authorities"
        )
        return Finding("certificate", "warning", said, hint)
    except OSError as error:
        said = f"this port does not accept TLS: {error}"
        return Finding("certificate", "warning", said, "should the URL begin with http://?")


_SLOW_SECONDS = 1.0
_PINGS = 5

_MARKS: dict[str, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "failed": ("✗", "bold red"),
}


@with_session
def doctor(session: Session) -> None:
    """Find out, step by step, why a server does not work.

    Each step has a verdict and a hint.

    The exit code is that of the first step that failed.

    For example: syncmcp doctor -- python server.py
    """
    findings: list[Finding] = []
    with _SkippedLines() as skipped:
        for found in _diagnose(session, skipped):
            if found.error is not None:
                session.hide_secrets(found.error)
            finding = replace(found, said=session.mask(found.said))
            findings.append(finding)
            if not session.out.json:
                _print_finding(session, finding)
    if session.out.json:
        session.out.result({"steps": [finding.facts() for finding in findings]})
    failed = next((one for one in findings if one.verdict == "failed"), None)
    if failed is not None:
        raise typer.Exit(exit_code(failed.error) if failed.error is not None else Exit.SERVER)


def _diagnose(session: Session, skipped: _SkippedLines) -> Iterator[Finding]:
    try:
        target, _ = session.target
    except McpError as error:
        yield Finding.failed("target", error)
        return
    yield Finding("target", "ok", target.label)
    if isinstance(target, Stdio):
        route = iter([_check_command(target)])
    else:
        route = _check_address(target, session.settings.open_timeout)
    doubt = None
    for finding in route:
        yield finding
        if finding.verdict == "failed":
            return
        doubt = doubt or finding.hint
    begun = perf_counter()
    try:
        client = session.client
    except McpError as error:
        yield from skipped.findings()
        yield from _opening_failure(target, error, doubt, silent=not skipped.lines)
        return
    took = perf_counter() - begun
    if isinstance(target, Stdio):
        yield Finding("start", "ok", f"the server runs; {_variables(target)}")
    else:
        free = session.opens_without_sign_in(target)
        said = "not required" if free else "with the token of an earlier sign-in"
        yield Finding("sign-in", "ok", said)
    server = client.server
    named = f" with {server.info.name} {server.info.version}" if server.info is not None else ""
    said = f"revision {server.revision}{named}, in {took:.2f} s"
    yield _timed("opening", took, said, "does the server install or load something at startup?")
    names = capability_names(server.capabilities)
    if names:
        yield Finding("capabilities", "ok", ", ".join(names))
    else:
        hint = "does the server need settings or variables before it offers anything?"
        yield Finding("capabilities", "warning", "the server offers nothing", hint)
    yield from _check_lists(session, client)
    yield _check_latency(session)
    if isinstance(target, Stdio):
        begun = perf_counter()
        client.close()
        took = perf_counter() - begun
        hint = "does the server end when its stdin is closed? Otherwise, it is terminated"
        yield _timed("end", took, f"the server ended, in {took:.2f} s", hint)
    yield from skipped.findings()


class _SkippedLines(logging.Handler):
    """Collects the log records about lines on a server's stdout that are not messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._log = logger("syncmcp.stdio")

    def __enter__(self) -> Self:
        self._log.addHandler(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._log.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == SKIPPED_LINE and isinstance(record.args, tuple):
            self.lines.append(f"the server prints lines that are not messages: {record.args[1]!r}")

    def findings(self) -> Iterator[Finding]:
        """Yield the finding, if there were such lines."""
        if self.lines:
            hint = "stdout is for messages only: make the server print and log to stderr"
            yield Finding("stdout", "warning", self.lines[0], hint)


def _variables(target: Stdio) -> str:
    """Describe the environment variables that the command got."""
    if target.inherit_env == "all":
        return "it has all environment variables"
    names = ", ".join(sorted(environment(target.env, target.inherit_env, os.environ)))
    return f"it has the variables {names or '(none)'}; -e NAME passes another one"


def _timed(step: str, seconds: float, said: str, hint: str) -> Finding:
    """Return the finding for a step: if it took long, a warning with the hint."""
    if seconds < _SLOW_SECONDS:
        return Finding(step, "ok", said)
    return Finding(step, "warning", said, hint)


def _opening_failure(
    target: Stdio | Http, error: McpError, doubt: str | None, *, silent: bool
) -> Iterator[Finding]:
    """Yield the findings for a client that could not be opened; `doubt`: an earlier hint.

    `silent`: the server printed no line that is not a message.
    """
    if isinstance(error, AuthError):
        yield Finding.failed("sign-in", error)
    elif isinstance(target, Stdio):
        if isinstance(error, ConnectFailed):
            shown = len(error.stderr_tail.splitlines()) == 1  # the finding has the last line
            hints = [] if shown else ["run the command yourself: its stderr says more"]
            if error.hint is not None:
                hints.append(in_words(error.hint))
            if error.exit_code is None:
                hints = ["does the command speak MCP on stdin and stdout?"]
            yield Finding.failed("start", error, "; ".join(hints) or None)
            return
        yield Finding("start", "ok", "the server runs")
        hint = "is the program an MCP server? Its stdout may contain only messages"
        if isinstance(error, RequestTimeout) and silent:
            hint = "the server says nothing: is it an MCP server? --open-timeout gives it more time"
        yield Finding.failed("opening", error, hint)
    else:
        facts = describe(error)
        told = text_body(facts) and facts.get("status") not in (404, 405)
        path = None if told else "is the path of the URL right? Many end in /mcp"
        found = Finding.failed("opening", error, doubt or path)
        asked = any(
            words in found.said
            for words in ("should the URL begin with http://?", "is the path right?")
        )
        yield replace(found, hint=None) if asked else found


def _check_lists(session: Session, client: Client) -> Iterator[Finding]:
    for name in ("tools", "resources", "prompts"):
        if getattr(client.server.capabilities, name) is None:
            continue
        try:
            listed = getattr(getattr(client, f"list_{name}")(**session.request_options()), name)
        except McpError as error:
            yield Finding.failed(name, error, "the server declares them, but cannot list them")
            continue
        said = f"{len(listed)} {name.removesuffix('s') if len(listed) == 1 else name}"
        if name == "tools" and (complaints := _unusable_schemas(listed)):
            said += f"; unusable schemas: {'; '.join(complaints)}"
            hint = "syncmcp cannot check their arguments or results"
            yield Finding(name, "warning", said, hint)
        else:
            yield Finding(name, "ok", said)


def _unusable_schemas(tools: Sequence[Tool]) -> list[str]:
    complaints = []
    for tool in tools:
        schemas = ToolSchemas(tool)
        for schema in (schemas.input, schemas.output):
            if schema is None:
                continue
            try:
                schema.compiled()
            except UnsupportedSchema as error:
                complaints.append(f"{tool.name}: {error.message}")
    return complaints


def _check_latency(session: Session) -> Finding:
    try:
        times = sorted(round_trips(session, _PINGS))
    except McpError as error:
        return Finding.failed("latency", error)
    median = statistics.median(times)
    said = f"median {median * 1000:.1f} ms, worst {times[-1] * 1000:.1f} ms of {_PINGS}"
    return _timed("latency", median, said, "is the network slow, or the server busy?")


def _print_finding(session: Session, finding: Finding) -> None:
    if not session.out.terminal:
        cells = (finding.verdict, finding.step, finding.said, finding.hint or "")
        session.out.table(("Verdict", "Step", "", "Hint"), [cells])
        return
    mark, style = _MARKS[finding.verdict]
    head = f"{mark} {finding.step}: "
    found = isinstance(finding.error, ConnectFailed)
    said = directories_apart(finding.said) if found else finding.said
    session.out.line(head + said, style, head=len(head))
    if finding.hint is not None:
        session.out.line(f"  hint: {finding.hint}", "italic")
