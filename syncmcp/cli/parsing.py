"""Parsing of a command line: the server, arguments, the model, options; and Tab completion."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from syncmcp._base.similar import similar
from syncmcp._base.text import reason
from syncmcp._protocol.revisions import REVISIONS
from syncmcp.cli.output import CommandError, Output
from syncmcp.cli.state import load_roots, read_server_files
from syncmcp.cli.tool_help import json_types
from syncmcp.config import Http, Stdio
from syncmcp.errors import McpError

if TYPE_CHECKING:
    from syncmcp.llm import ModelSampling

# Arguments of tools and prompts, in the syntax of HTTPie.
#
#     name=text        a string
#     name:=json       any JSON value
#     name=@file       the text of a file, UTF-8
#     name:=@file      the JSON in a file
#
# ``@-`` is stdin. A backslash escapes ``=``, ``:`` and ``@``, also at the beginning of a text.


_ITEM = re.compile(r"((?:\\[\\=:@]|[^\\=:]|\\(?![\\=:@])|:(?!=))*)(:=|=)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\([\\=:@])")


def parse_arguments(
    words: Iterable[str],
    properties: Mapping[str, Mapping[str, Any]] | None = None,
    known: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Parse words of the form ``name=value`` into arguments; reads the files that they name.

    A word that begins with ``{`` is a JSON object of arguments. If the schema of a text among
    `properties` allows no string, the text is parsed as JSON; invalid JSON remains text. The result
    includes `known`, whose names must not be given again.
    """
    arguments = dict(known or {})
    for word in words:
        if word.startswith("{"):
            given = parse_object(word)
        else:
            name, is_json, text, is_file = split_item(word)
            hint = f"write {name}=@{text} to pass its text" if is_file else _AS_TEXT
            text = read_file(text) if is_file else text
            if is_json:
                given = {name: _parse_json(text, f"the value of {name!r}", hint)}
            else:
                given = {name: _converted(text, (properties or {}).get(name, {}))}
        for name in given:
            if name in arguments:
                raise CommandError(f"the argument {name!r} appears twice")
        arguments.update(given)
    return arguments


def _converted(text: str, schema: Mapping[str, Any]) -> Any:
    kinds = json_types(schema)
    if not kinds or "string" in kinds:
        return text
    try:
        return _loads(text)
    except (ValueError, RecursionError):
        return text  # the check by the schema reports the error


def parse_strings(words: Iterable[str]) -> dict[str, str]:
    """Parse arguments whose values must be strings."""
    found = parse_arguments(words)
    for name, value in found.items():
        if not isinstance(value, str):
            raise CommandError(f"{name!r} takes a string", hint=f"write {name}=...")
    return found


def parse_object(text: str) -> dict[str, Any]:
    """Parse the JSON object in the value of an option, or in the file named after ``@``."""
    hint = """write --input '{"name": value}' or --input @FILE"""
    if text == "-" or os.path.isfile(text):
        hint = f"write --input @{text}"
    text = read_file(text[1:]) if text.startswith("@") else text
    value = _parse_json(text, "the object of arguments", hint)
    if not isinstance(value, dict):
        raise CommandError("the arguments are not a JSON object", hint=hint)
    return value


class Item(NamedTuple):
    """One argument as it is written, JSON or text; with `is_file`, `text` is the name of a file."""

    name: str
    is_json: bool
    text: str
    is_file: bool = False


def split_item(word: str) -> Item:
    """Split a word of the form ``name=value``. Reads no file."""
    found = _ITEM.fullmatch(word)
    if found is None or not found[1]:
        hint = "write name=text, name:=json or name=@file"
        name, colon, text = word.partition(":")
        if colon and name.isidentifier() and not text.startswith("//"):
            hint = f"write {name}={text}"
        elif "=" not in word:
            hint += ", without blanks; a value with blanks needs quotes"
        if word == "-":
            hint = "--input @- reads all arguments from stdin, as a JSON object"
        raise CommandError(f"{word!r} is not of the form name=value", hint=hint)
    name, separator, text = found.groups()
    if text.startswith("="):  # as in HTTPie for a query
        hint = f"write {name}{text}, or {name}=\\{text} if the text begins with ="
        raise CommandError(f"{word!r} is not of the form name=value: it has two =", hint=hint)
    is_file = text.startswith("@")
    if is_file or text.startswith(("\\@", "\\=")):
        text = text[1:]
    return Item(_ESCAPE.sub(r"\1", name), separator == ":=", text, is_file)


def join_item(item: Item) -> str | None:
    """Return the word that `split_item` splits into `item`; `None` if there is no such word."""
    name = re.sub(r"[\\=:]", r"\\\g<0>", item.name)
    escape = "\\" if item.text.startswith(("@", "=")) else ""
    word = f"{name}{':=' if item.is_json else '='}{escape}{item.text}"
    # A word that begins with a brace is a JSON object.
    return word if item.name and name[0] != "{" and split_item(word) == item else None


def read_file(name: str) -> str:
    """Return the text of a file, or of stdin if `name` is ``-``."""
    if name == "-" and sys.stdin.isatty():
        Output(json=False).note("reading stdin; Ctrl-D ends it")
    try:
        return sys.stdin.read() if name == "-" else Path(name).expanduser().read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise CommandError(f"cannot read the file {name!r}: {reason(error)}") from error


_AS_TEXT: Final = "write text after =, not :="


def _parse_json(text: str, what: str, hint: str = _AS_TEXT) -> Any:
    try:
        return _loads(text)
    except json.JSONDecodeError as error:
        if text[:1] in ("{", "["):
            form = 'write {"name": value}' if text[0] == "{" else 'write ["value"]'
            hint = "JSON needs double quotes" if "'" in text else form
        raise CommandError(f"{what} is not JSON: {reason(error)}", hint=hint) from error
    except ValueError as error:  # of a number: the hint about text does not apply
        raise CommandError(f"{what} cannot be sent as JSON: {error}") from error
    except RecursionError as error:
        raise CommandError(f"{what} is nested too deeply") from error


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=_reject_constant, parse_float=_finite)


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON value")


def _finite(number: str) -> float:
    if math.isinf(value := float(number)):
        raise ValueError(f"the number {number} is too large")
    return value


# The server: a URL, or a command after ``--``. (`find_server` looks up names.)


def is_url(word: str) -> bool:
    """Return whether TARGET is a URL, rather than a name."""
    return word.lower().startswith(("http://", "https://"))


def http_target(url: str, headers: Iterable[str] = ()) -> Http:
    """Return the server at a URL, with the token of an earlier ``auth login``.

    `headers` are written ``Name:value`` or ``Name:@file``; ``Authorization`` replaces the token.
    """
    return with_stored_login(Http(url, headers=dict(_parse_header(word) for word in headers)))


def with_stored_login(server: Http) -> Http:
    """Set the token of an earlier ``auth login``, unless a header has a token."""
    headers = server.headers if isinstance(server.headers, Mapping) else {}
    if not any(name.lower() == "authorization" for name in headers):
        from syncmcp.cli.logins import stored_login

        server.auth = stored_login(server)
    return server


def stdio_target(
    command: Sequence[str],
    *,
    env: Iterable[str] = (),
    cwd: Path | None = None,
    stderr: Callable[[str], None] | str = "log",
) -> Stdio:
    """Return the server that a command starts; `env` has variables as ``NAME=value``."""
    return Stdio(*command, env=dict(_parse_variable(word) for word in env), cwd=cwd, stderr=stderr)


def _parse_header(word: str) -> tuple[str, str]:
    name, colon, value = word.partition(":")
    if not colon or not name.strip():
        raise CommandError("a header must be Name:value", hint="or write Name:@file")
    value = value.strip()
    return name.strip(), read_file(value[1:]).strip() if value.startswith("@") else value


def _parse_variable(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals and name in os.environ:
        return name, os.environ[name]
    if not equals and name.isidentifier():
        raise CommandError(f"{name} is not set in your environment", hint="write NAME=value")
    if not equals or not name:
        hint = "NAME alone passes your own variable"
        raise CommandError(f"{word!r} is not a variable: write NAME=value", hint=hint)
    return name, value


# `--model`: the model that answers sampling requests of the server.


PROVIDERS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "anthropic": ("AnthropicSampling", {}),
    "gemini": ("GeminiSampling", {}),
    "openai": ("OpenAISampling", {}),
    "openai-chat": ("OpenAISampling", {"api": "chat"}),
}
"""The prefixes of ``--model``, each with a class of `syncmcp.llm` and its options."""


def sampling_model(word: str) -> ModelSampling:
    """Return the handler for ``provider:name``. The API key comes from the environment."""
    provider, colon, name = word.partition(":")
    if provider not in PROVIDERS:
        close = similar(provider, PROVIDERS, 1) if colon else []
        hint = "" if colon else f"write PROVIDER:NAME, such as openai:{provider}; "
        hint += f"the providers are {', '.join(PROVIDERS)}"
        hint = f"did you mean {close[0]}:{name}?" if close else hint
        raise CommandError(f"unknown model provider {provider!r}", hint=hint)
    if not colon or not name:
        raise CommandError(f"which model of {provider}?", hint=f"write --model {provider}:NAME")
    from syncmcp import llm

    kind, options = PROVIDERS[provider]
    model: ModelSampling = getattr(llm, kind)(name, **options)
    return model


# Tab completion in the person's own shell: from files only, no server is started or contacted.
#
# Completions are inserted into a command line, and a file of a project is not trusted:
# words that a shell would not read as one plain word are never offered.


def complete_servers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return completions of TARGET: the names of servers in files."""
    config: Any = ctx.params.get("config")
    files = read_server_files(None if config is None else Path(config))
    names = (name for _, read in files if not isinstance(read, McpError) for name in read)
    # A name that begins with - would be read as an option, for example as --trust, and a URL as the
    # server itself, which needs no approval.
    usable = (name for name in names if name[:1] != "-" and not is_url(name))
    return _plain_words(usable, incomplete)


def complete_providers(incomplete: str) -> list[str]:
    """Return completions of ``--model``: the providers."""
    return _plain_words((f"{name}:" for name in PROVIDERS), incomplete)


def complete_revisions(incomplete: str) -> list[str]:
    """Return completions of ``--revision``."""
    return _plain_words(("auto", "legacy", *REVISIONS), incomplete)


def complete_roots(incomplete: str) -> list[str]:
    """Return completions of PATH: the stored roots."""
    try:
        return _plain_words((str(status.path) for status in load_roots().list()), incomplete)
    except CommandError:
        return []  # completion shows no errors; the command itself reports them


def _plain_words(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete) and shlex.quote(word) == word]


def check_seconds(value: float | None) -> float | None:
    """Check an option that is a time: the library's error would name an argument in Python."""
    if value is not None and not value > 0:
        raise typer.BadParameter(f"{value:g} is not a positive number of seconds")
    return value


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of every command that speaks to a server; their help describes them."""

    json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON: the protocol's own result, where there is one."),
    ] = False
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Allow tool calls; without a terminal, also roots and --model.",
        ),
    ] = False
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME:VALUE",
            help="Send this HTTP header; NAME:@FILE reads the value.",
        ),
    ] = None
    bearer: Annotated[
        str | None,
        typer.Option(metavar="TOKEN|@FILE", help="Send this token, or the one in this file."),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME[=VALUE]",
            help="Set this variable for the command; NAME alone passes yours.",
        ),
    ] = None
    cwd: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Start the command in this directory."),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="Look up the server only in this file."
        ),
    ] = None
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Use servers of any file without asking."),
    ] = False
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="PROVIDER:NAME",
            help="Let this model answer the server, if you agree.",
            autocompletion=complete_providers,
        ),
    ] = None
    revision: Annotated[
        str,
        typer.Option(
            metavar="REVISION",
            help="Use this protocol revision; 'legacy' is one with a handshake.",
            autocompletion=complete_revisions,
        ),
    ] = "auto"
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="The longest time for a request.  [default: 300]",
            callback=check_seconds,
        ),
    ] = None
    idle_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="The longest silence after the first message of a call.  [default: 60]",
            callback=check_seconds,
        ),
    ] = None
    open_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="The longest time for connecting.", callback=check_seconds
        ),
    ] = 30
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Show the server's stderr and log, and the client's warnings."
        ),
    ] = False
