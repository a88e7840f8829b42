"""What stands on a command line: the server, arguments, a model, options; and Tab completion."""

from __future__ import annotations

import difflib
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from syncmcp._protocol.revisions import REVISIONS
from syncmcp.cli.output import CommandError
from syncmcp.cli.state import files, kept, remembered
from syncmcp.config import Http, Stdio
from syncmcp.errors import McpError
from syncmcp.ui import visible

if TYPE_CHECKING:
    from syncmcp.llm import ModelSampling

__all__ = [
    "PROVIDERS",
    "Settings",
    "http",
    "is_url",
    "object_of",
    "parse",
    "providers",
    "revisions",
    "root_paths",
    "sampling_by",
    "servers",
    "signed_in",
    "stdio",
    "texts",
]


# Arguments on the command line, as HTTPie writes them.
#
#     name=text        a string
#     name:=json       any JSON value
#     name=@file       the text of a file, UTF-8
#     name:=@file      the JSON in a file
#
# ``@-`` is stdin. A backslash before ``=``, ``:`` or ``@`` makes it a plain character.


_KEY = re.compile(r"((?:\\[\\=:@]|[^\\=:]|\\(?![\\=:@])|:(?!=))*)(:=|=)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\([\\=:@])")


def parse(words: Iterable[str]) -> dict[str, Any]:
    """The arguments that `words` stand for.

    Raises:
        CommandError: A word is no item, a name comes twice, or a file cannot be read.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        name, is_json, text = _split(word)
        if name in arguments:
            raise CommandError(f"the argument {name!r} is given twice")
        arguments[name] = _json(text, f"the value of {name!r}") if is_json else text
    return arguments


def texts(words: Iterable[str]) -> dict[str, str]:
    """The same, where only strings are taken.

    Raises:
        CommandError: As with `parse`, or a value is no string.
    """
    found = parse(words)
    for name, value in found.items():
        if not isinstance(value, str):
            raise CommandError(f"{name!r} takes a string", hint=f"write {name}=...")
    return found


def object_of(text: str) -> dict[str, Any]:
    """The JSON object that an option holds, or with ``@`` before it the file of that name.

    Raises:
        CommandError: It is none, or the file cannot be read.
    """
    value = _json(read_file(text[1:]) if text.startswith("@") else text, "what --input gives")
    if not isinstance(value, dict):
        raise CommandError("what --input gives is no JSON object")
    return value


def _split(word: str) -> tuple[str, bool, str]:
    found = _KEY.fullmatch(word)
    if found is None or not found[1]:
        raise CommandError(
            f"{word!r} is no argument", hint="write name=text, name:=json or name=@file"
        )
    name, separator, value = found.groups()
    if value.startswith("@"):
        value = read_file(value[1:])
    elif value.startswith("\\@"):
        value = value[1:]
    return _ESCAPE.sub(r"\1", name), separator == ":=", value


def read_file(name: str) -> str:
    """The text of a file, or for ``-`` of stdin.

    Raises:
        CommandError: It cannot be read.
    """
    try:
        return sys.stdin.read() if name == "-" else Path(name).expanduser().read_text("utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8"
        raise CommandError(f"the file {name!r} cannot be read: {reason}") from error


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        hint = "a text goes behind = instead of :="
        raise CommandError(f"{what} is no JSON: {error}", hint=hint) from error


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


# What a command line names as its server: a URL, a name, or a command after ``--``.


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


# `--model`: a provider's model that answers where a server asks for one.


def _anthropic(name: str) -> ModelSampling:
    from syncmcp.llm import AnthropicSampling

    return AnthropicSampling(name)


def _gemini(name: str) -> ModelSampling:
    from syncmcp.llm import GeminiSampling

    return GeminiSampling(name)


def _openai(name: str, *, chat: bool = False) -> ModelSampling:
    from syncmcp.llm import OpenAISampling

    return OpenAISampling(name, api="chat" if chat else "responses")


PROVIDERS: Final[Mapping[str, Callable[[str], ModelSampling]]] = MappingProxyType(
    {
        "anthropic": _anthropic,
        "gemini": _gemini,
        "openai": _openai,
        "openai-chat": partial(_openai, chat=True),
    }
)
"""What a model is named with, and what makes it answer."""


def sampling_by(word: str) -> ModelSampling:
    """The model that ``provider:name`` means. Its key comes from the environment.

    Raises:
        CommandError: It means none.
        UsageError: The provider's package is not installed.
    """
    provider, colon, name = word.partition(":")
    make = PROVIDERS.get(provider)
    if make is None:
        close = difflib.get_close_matches(provider, PROVIDERS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(PROVIDERS)}"
        raise CommandError(f"there is no provider of models {provider!r}", hint=hint)
    if not colon or not name:
        raise CommandError(f"which model of {provider}?", hint=f"write --model {provider}:NAME")
    return make(name)


# What Tab offers in the person's own shell: from files alone, no server is started or contacted.
#
# What is offered gets onto a command line, and a file in the working tree may be anybody's: names
# that a shell would take for more than a word are left to be typed.


def servers(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names that files have for servers."""
    # One that begins with - would be an option, of which --trust asks nobody.
    return _plain((name for name in _names(ctx) if name[:1] != "-"), incomplete)


def providers(incomplete: str) -> list[str]:
    """The providers of models."""
    return _plain((f"{name}:" for name in PROVIDERS), incomplete)


def revisions(incomplete: str) -> list[str]:
    """What ``--revision`` takes."""
    return _plain(("auto", "legacy", *REVISIONS), incomplete)


def root_paths(incomplete: str) -> list[str]:
    """The roots that there are."""
    try:
        return _plain((str(status.path) for status in remembered().list()), incomplete)
    except CommandError:
        return []  # Tab is no place for an error; the command itself will meet it


def _names(ctx: typer.Context) -> Iterator[str]:
    config: Any = ctx.params.get("config")
    for _, read in files(None if config is None else Path(config)):
        if not isinstance(read, McpError):
            yield from read


def _plain(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete) and shlex.quote(word) == word]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options, as given; see their help."""

    json: Annotated[
        bool, typer.Option("--json", help="Print the protocol's own result as JSON.")
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before a tool is called.")
    ] = False
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME:VALUE", help="Send this HTTP header."),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="Give the command this variable."),
    ] = None
    cwd: Annotated[
        Path | None,
        typer.Option("--cwd", metavar="DIRECTORY", help="Start the command in this directory."),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Look names up in this file alone."),
    ] = None
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Use servers of a file in the working tree without asking."),
    ] = False
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="PROVIDER:NAME",
            help="Let this model answer where the server asks for one, after you agreed.",
            autocompletion=providers,
        ),
    ] = None
    revision: Annotated[
        str,
        typer.Option(
            "--revision",
            metavar="REVISION",
            help="Insist on this one, or with 'legacy' on an older one.",
            autocompletion=revisions,
        ),
    ] = "auto"
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", help="The longest that a request may take; 300."
        ),
    ] = None
    idle_timeout: Annotated[
        float | None,
        typer.Option(
            "--idle-timeout",
            metavar="SECONDS",
            help="The longest silence after a first sign of life; 60.",
        ),
    ] = None
    open_timeout: Annotated[
        float,
        typer.Option(
            "--open-timeout", metavar="SECONDS", help="The longest that connecting may take."
        ),
    ] = 30.0
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Show the server's stderr and log on stderr."),
    ] = False
