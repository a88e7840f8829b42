"""What went wrong, as an exit code and as one line of JSON on stderr."""

from __future__ import annotations

import signal
from enum import IntEnum
from typing import Any, Final

import typer

from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    McpError,
    MissingCapability,
    NotSupported,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    ToolError,
    TransportError,
    UsageError,
)
from syncmcp.servers_file import NotApproved

__all__ = ["CommandError", "Exit", "describe", "exit_code"]


class Exit(IntEnum):
    """What the command's exit codes mean."""

    OK = 0
    SERVER = 1
    """The server answered with an error, broke the protocol, or cannot do it."""
    USAGE = 2
    AUTH = 3
    UNREACHABLE = 4
    TOOL = 5
    """The tool ran and reported failure."""
    TIMEOUT = 6
    INTERRUPTED = 128 + signal.SIGINT
    BROKEN_PIPE = 128 + 13
    """Whoever read the output has gone: the code of a program that SIGPIPE ended."""


class CommandError(UsageError):
    """The command line asks for something that cannot be.

    Attributes:
        hint: What to do about it.
    """

    hint: str | None = None


# The first that fits.
_CODES: Final[tuple[tuple[type[BaseException], Exit], ...]] = (
    (NotSupported, Exit.SERVER),
    (UsageError, Exit.USAGE),
    (NotApproved, Exit.USAGE),
    (typer.TyperException, Exit.USAGE),
    (AuthError, Exit.AUTH),
    (ConnectFailed, Exit.UNREACHABLE),
    (ConnectionLost, Exit.UNREACHABLE),
    (ToolError, Exit.TOOL),
    (RequestTimeout, Exit.TIMEOUT),
    (TimeoutError, Exit.TIMEOUT),
    (RequestCancelled, Exit.INTERRUPTED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
)


# What lets a server ask what it wants to ask.
_OFFERS: Final = {
    "sampling": "--model PROVIDER:NAME lets a model answer it; without a terminal with --yes",
    "elicitation": "it asks a person: run the command at a terminal",
    "roots": "`syncmcp roots add` names the directories that it may know of",
}


def exit_code(error: BaseException) -> Exit:
    """The exit code of a command that ended with `error`."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Exit.SERVER


def describe(error: BaseException) -> dict[str, Any]:
    """The facts of an error, as the members of a JSON object; those that are empty are left out."""
    facts: dict[str, Any] = {"kind": _kind(error), "message": _message(error)}
    facts["exit_code"] = int(exit_code(error))
    if isinstance(error, McpError):
        facts["server"] = error.server
        facts["method"] = error.method
    if isinstance(error, ServerError):
        facts["code"] = error.code
        facts["data"] = error.data
    if isinstance(error, TransportError):
        facts["delivery"] = error.delivery
        facts["process_exit_code"] = error.exit_code
        facts["stderr"] = error.stderr_tail or None
    if isinstance(error, HttpError):
        facts["status"] = error.status or None
    if isinstance(error, ToolError):
        facts["tool"] = error.tool
    facts["hint"] = _hint(error)
    return {name: value for name, value in facts.items() if value is not None}


def _kind(error: BaseException) -> str:
    if isinstance(error, (CommandError, typer.TyperException)):
        return "UsageError"
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted"
    return type(error).__name__


def _message(error: BaseException) -> str:
    if isinstance(error, typer.TyperException):
        return error.format_message()
    if isinstance(error, McpError):
        return error.message
    return str(error) or "interrupted"


def _lacking(error: MissingCapability) -> dict[str, Any]:
    """What the server wants to ask, by capabilities."""
    data = error.data if isinstance(error.data, dict) else {}
    found = data.get("requiredCapabilities")
    return found if isinstance(found, dict) else {}


def _hint(error: BaseException) -> str | None:
    if isinstance(error, CommandError):
        return error.hint
    if isinstance(error, MissingCapability):
        return next((_OFFERS[name] for name in _OFFERS if name in _lacking(error)), None)
    if isinstance(error, NotApproved):
        return "approve it with `syncmcp servers approve`, or believe the file with --trust"
    if isinstance(error, AuthError):
        return "sign in with `syncmcp auth login`, or give the server's token with --header"
    if isinstance(error, ConnectFailed):
        return "`syncmcp doctor` looks at each step of the way there"
    if isinstance(error, RequestTimeout):
        option = {"open": "--open-timeout", "idle": "--idle-timeout"}.get(error.kind, "--timeout")
        return f"{option} gives it more time"
    return None
