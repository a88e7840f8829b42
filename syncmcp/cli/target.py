"""What a command line names as its server: a URL, a name, or a command after ``--``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from syncmcp.cli.failures import CommandError
from syncmcp.cli.items import read_file
from syncmcp.config import Http, Stdio
from syncmcp.ui.text import visible

__all__ = ["http", "is_url", "signed_in", "stdio"]


def is_url(word: str) -> bool:
    """Whether it is meant as a URL."""
    return word.lower().startswith(("http://", "https://"))


def http(url: str, headers: Iterable[str] = ()) -> Http:
    """The server at a URL.

    It gets the token of an earlier ``auth login``; nobody is sent to sign in by the way.

    Args:
        url: The URL.
        headers: As ``Name:value`` or ``Name:@file``; one called ``Authorization`` takes the place
            of the token.

    Raises:
        CommandError: A header is not written like that.
    """
    return signed_in(Http(url, headers=dict(_header(word) for word in headers)))


def signed_in(server: Http) -> Http:
    """Give it the token of an earlier ``auth login``, unless its headers hold one."""
    headers = server.headers if isinstance(server.headers, Mapping) else {}
    if not any(name.lower() == "authorization" for name in headers):
        from syncmcp.cli.sign_ins import kept

        server.auth = kept(server.url)
    return server


def stdio(
    command: Sequence[str],
    *,
    env: Iterable[str] = (),
    cwd: Path | None = None,
    verbose: bool = False,
) -> Stdio:
    """The server that a command starts.

    Args:
        command: The program and its arguments.
        env: Variables for it, as ``NAME=value``.
        cwd: Its working directory.
        verbose: Whether its stderr is shown.

    Raises:
        CommandError: A variable is not written like that.
    """
    stderr: Callable[[str], None] | str = _show if verbose else "log"
    return Stdio(*command, env=dict(_variable(word) for word in env), cwd=cwd, stderr=stderr)


def _show(line: str) -> None:
    print(visible(line), file=sys.stderr)


def _header(word: str) -> tuple[str, str]:
    name, colon, value = word.partition(":")
    if not colon or not name.strip():
        raise CommandError("a header is written Name:value", hint="or Name:@file")
    value = value.strip()
    return name.strip(), read_file(value[1:]).strip() if value.startswith("@") else value


def _variable(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise CommandError("a variable is written NAME=value")
    return name, value
