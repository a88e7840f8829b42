"""`doctor`: why does this server not work? One step after the other, each with its verdict."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Literal

import typer
from rich.text import Text

from syncmcp._connection.schemas import ToolSchemas
from syncmcp.cli.failures import Exit, exit_code
from syncmcp.cli.look import capability_names, round_trips
from syncmcp.cli.options import speaks_to_server
from syncmcp.cli.output import console_on
from syncmcp.cli.session import Session
from syncmcp.cli.way import Finding, steps_to
from syncmcp.config import Http, Stdio
from syncmcp.errors import AuthError, ConnectFailed, McpError, RequestTimeout, UnsupportedSchema
from syncmcp.ui.text import visible

if TYPE_CHECKING:
    from syncmcp._client.client import Client

__all__ = ["doctor"]

_SLOW = 1.0
_PINGS = 5

_MARKS: dict[str, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "failed": ("✗", "bold red"),
}


@speaks_to_server
def doctor(session: Session) -> None:
    """Find out why a server does not work: each step on the way to it, with a verdict and a hint.

    The exit code is that of the first step that failed.
    """
    findings: list[Finding] = []
    for finding in _examine(session):
        findings.append(finding)
        if not session.out.json:
            _show(session, finding)
    if session.out.json:
        session.out.result({"steps": [finding.facts() for finding in findings]})
    failed = next((one for one in findings if one.verdict == "failed"), None)
    if failed is not None:
        raise typer.Exit(exit_code(failed.error) if failed.error is not None else Exit.SERVER)


def _examine(session: Session) -> Iterator[Finding]:
    try:
        target, _ = session.target
    except McpError as error:
        yield Finding.failed("target", error)
        return
    yield Finding("target", "ok", target.label)
    for finding in steps_to(target, session.settings.open_timeout):
        yield finding
        if finding.verdict == "failed":
            return
    begun = perf_counter()
    try:
        client = session.client
    except McpError as error:
        yield from _unopened(target, error)
        return
    took = perf_counter() - begun
    if isinstance(target, Stdio):
        yield Finding("start", "ok", "it runs")
    else:
        yield Finding("sign-in", "ok", _let_in(target))
    server = client.server
    verdict: Literal["ok", "warning"] = "ok" if took < _SLOW else "warning"
    named = f" with {server.info.name} {server.info.version}" if server.info is not None else ""
    yield Finding("opening", verdict, f"revision {server.revision}{named}, in {took:.2f} s")
    names = capability_names(server.capabilities)
    if names:
        yield Finding("capabilities", "ok", ", ".join(names))
    else:
        yield Finding("capabilities", "warning", "it offers nothing")
    yield from _lists(session, client)
    yield _latency(session)


def _unopened(target: Stdio | Http, error: McpError) -> Iterator[Finding]:
    """Where on the way the opening ended."""
    if isinstance(error, AuthError):
        yield Finding.failed("sign-in", error)
    elif isinstance(target, Stdio):
        if isinstance(error, ConnectFailed):
            hint = "run the command by hand: what it prints on stderr says more"
            if error.exit_code is None:
                hint = "does it speak MCP on stdin and stdout?"
            yield Finding.failed("start", error, hint)
            return
        yield Finding("start", "ok", "it runs")
        hint = "is it an MCP server? Only messages may be on its stdout"
        if isinstance(error, RequestTimeout):
            hint = "it says nothing: is it an MCP server? --open-timeout gives it more time"
        yield Finding.failed("opening", error, hint)
    else:
        yield Finding.failed("opening", error, "is the path of the URL right? Many end in /mcp")


def _let_in(target: Http) -> str:
    token = getattr(target.auth, "token", None)
    return "with the token of an earlier sign-in" if token is not None else "none was asked for"


def _lists(session: Session, client: Client) -> Iterator[Finding]:
    offers = client.server.capabilities
    if offers.tools is not None:
        yield _try("tools", lambda: _tools(session, client))
    if offers.resources is not None:
        yield _try(
            "resources",
            lambda: (len(client.list_resources(**session.options).resources), "resources", []),
        )
    if offers.prompts is not None:
        yield _try(
            "prompts",
            lambda: (len(client.list_prompts(**session.options).prompts), "prompts", []),
        )


def _tools(session: Session, client: Client) -> tuple[int, str, list[str]]:
    tools = client.list_tools(**session.options).tools
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
    return len(tools), "tools", complaints


def _try(name: str, look: Callable[[], tuple[int, str, list[str]]]) -> Finding:
    try:
        count, noun, complaints = look()
    except McpError as error:
        return Finding.failed(name, error, "it says that it has them, and cannot list them")
    if complaints:
        said = f"{count} {noun}; schemas that cannot be used: {'; '.join(complaints)}"
        return Finding(name, "warning", said, "their arguments or results cannot be checked")
    return Finding(name, "ok", f"{count} {noun}")


def _latency(session: Session) -> Finding:
    try:
        times = sorted(round_trips(session, _PINGS))
    except McpError as error:
        return Finding.failed("latency", error)
    median = statistics.median(times)
    said = f"median {median * 1000:.1f} ms, worst {times[-1] * 1000:.1f} ms of {_PINGS}"
    return Finding("latency", "ok" if median < _SLOW else "warning", said)


def _show(session: Session, finding: Finding) -> None:
    if not session.out.terminal:
        cells = (finding.verdict, finding.step, finding.said, finding.hint or "")
        session.out.table(("Verdict", "Step", "", "Hint"), [cells])
        return
    mark, style = _MARKS[finding.verdict]
    console = console_on(sys.stdout)
    line = Text.assemble((f"{mark} {finding.step}: ", style), visible(finding.said))
    console.print(line, soft_wrap=True)
    if finding.hint is not None:
        console.print(Text(f"  hint: {visible(finding.hint)}", "italic"), soft_wrap=True)
