"""`call`, `read`, `prompt` and `complete`: a tool's help, one request, and what is saved of it."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncmcp._connection.tool_schemas import ToolSchemas
from syncmcp.cli.output import CommandError, Output, as_json
from syncmcp.cli.parsing import object_of, parse, texts
from syncmcp.cli.session import Session, speaks_to_server
from syncmcp.errors import InvalidArguments
from syncmcp.saving import save
from syncmcp.templates import UriTemplate
from syncmcp.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    PromptReference,
    ResourceLink,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)
from syncmcp.ui import shorten

if TYPE_CHECKING:
    from syncmcp.saving import Savable
    from syncmcp.types import CallToolResult, ReadResourceResult, Tool

__all__ = [
    "Force",
    "call",
    "check_place",
    "choices_of",
    "claims_of",
    "complete",
    "help_of",
    "is_medium",
    "prompt",
    "properties_of",
    "read",
    "save_all",
    "signature_of",
    "written",
]


# A tool's schema as the help of a command: what to write, and what the server says of it.


_MOST_CHOICES = 12


def help_of(tool: Tool) -> str:
    """What `syncmcp call TARGET TOOL --help` prints. Words of the server are not yet made safe."""
    return "\n".join(_lines(tool))


def signature_of(schema: Mapping[str, Any]) -> str:
    """The arguments in one line: ``a: integer, b?: string``."""
    required = _required(schema)
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_kind(details)}"
        for name, details in properties_of(schema).items()
    )


def claims_of(annotations: Mapping[str, Any] | None) -> str:
    """What a server says of a tool, in a few words. Nobody has checked it."""
    said = annotations or {}
    claims = []
    if said.get("readOnlyHint") is True:
        claims.append("read-only")
    elif said.get("destructiveHint") is True:
        claims.append("destructive")
    elif said.get("destructiveHint") is False:
        claims.append("additive")
    if said.get("idempotentHint") is True:
        claims.append("idempotent")
    if said.get("openWorldHint") is True:
        claims.append("open-world")
    return ", ".join(claims)


def properties_of(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The arguments that a schema names, and what it says of each."""
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: one if isinstance(one, dict) else {} for name, one in found.items()}


def written(name: str, details: Mapping[str, Any]) -> str:
    """How an argument is written on the command line."""
    if _kind(details) == "string":
        return f"{name}={'|'.join(choices_of(details)) or 'TEXT'}"
    return f"{name}:={'|'.join(choices_of(details)) or _kind(details).upper()}"


def choices_of(details: Mapping[str, Any]) -> list[str]:
    """The few values that an argument may have; none where there are others."""
    choices = details.get("enum")
    if not isinstance(choices, list) or len(choices) > _MOST_CHOICES:
        return []
    return [one if isinstance(one, str) else json.dumps(one) for one in choices]


def _lines(tool: Tool) -> Iterator[str]:
    required = _required(tool.input_schema)
    properties = properties_of(tool.input_schema)
    items = [
        written(name, details) if name in required else f"[{written(name, details)}]"
        for name, details in properties.items()
    ]
    yield " ".join(["Usage: syncmcp call TARGET", tool.name, *items])
    if tool.display_name != tool.name:
        yield f"\n{tool.display_name}"
    if tool.description:
        yield f"\n{tool.description.strip()}"
    if properties:
        yield "\nArguments:"
    for name, details in properties.items():
        facts = ["required"] if name in required else []
        if "default" in details:
            facts.append(f"default {json.dumps(details['default'], ensure_ascii=False)}")
        facts.extend(_bounds(details))
        yield f"  {written(name, details)}{'  (' + ', '.join(facts) + ')' if facts else ''}"
        if details.get("description"):
            yield f"      {str(details['description']).strip()}"
    if tool.output_schema is not None:
        yield f"\nIts result has: {signature_of(tool.output_schema) or 'structured content'}"
    stated = tool.annotations.to_wire() if tool.annotations is not None else {}
    yield f"\nThe server claims that it is: {claims_of(stated) or '(nothing)'}"


def _required(schema: Mapping[str, Any]) -> list[Any]:
    found = schema.get("required")
    return found if isinstance(found, list) else []


def _kind(details: Mapping[str, Any]) -> str:
    kind = details.get("type")
    if isinstance(kind, str):
        return kind
    if isinstance(kind, list):
        return "|".join(str(one) for one in kind)
    choices = details.get("enum")
    if isinstance(choices, list) and all(isinstance(one, str) for one in choices):
        return "string"
    return "json"


def _bounds(details: Mapping[str, Any]) -> Iterator[str]:
    for word in ("minimum", "maximum", "minLength", "maxLength", "format", "pattern"):
        if word in details:
            yield f"{word} {shorten(str(details[word]), 60)}"


# What `--output` saves, and where: the name is the caller's, and numbered where there is more.


Force = Annotated[
    bool, typer.Option("--force", "-f", help="Let --output replace a file that is there.")
]


def is_medium(block: Any) -> bool:
    """Whether a block of a tool's result has bytes: an image, a sound, a file that is no text."""
    if isinstance(block, EmbeddedResource):
        return isinstance(block.resource, BlobResourceContents)
    return isinstance(block, (ImageContent, AudioContent))


def check_place(path: Path, *, force: bool) -> None:
    """Make sure that a file could be saved there, before anything is asked of a server.

    Raises:
        CommandError: It could not.
    """
    try:
        if path.is_dir():
            raise CommandError(f"{str(path)!r} is a directory", hint="name a file in it")
        if not path.parent.is_dir():
            raise CommandError(f"{str(path)!r} cannot be written: there is no such directory")
        if not force and os.path.lexists(path):
            raise _taken(path)
        if path.exists() and not path.is_file():
            raise CommandError(f"{str(path)!r} is no file, but a device for example")
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def save_all(contents: Sequence[Savable], path: Path, *, force: bool) -> list[Path]:
    """Save one thing as `path`, and others beside it as ``name-2.png`` and so on.

    Nothing that a server says becomes part of a name.

    Raises:
        CommandError: A file is there already, and is not to be replaced, or cannot be written.
        LimitExceeded: One is longer than `syncmcp.saving.MAX_BYTES`.
        InvalidOutput: One is not base64.
    """
    places = [place for place, _ in zip(_names(path), contents, strict=False)]
    for place in places:
        check_place(place, force=force)
    for place, content in zip(places, contents, strict=True):
        try:
            save(content, place, overwrite=force)
        except FileExistsError as error:
            raise _taken(place) from error
        except OSError as error:
            raise CommandError(f"{str(place)!r} cannot be written: {error.strerror}") from error
    return places


def _names(path: Path) -> Iterator[Path]:
    yield path
    number = 2
    while True:
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1


def _taken(path: Path) -> CommandError:
    return CommandError(f"{str(path)!r} is there already", hint="--force replaces it")


_Items = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE",
        help="name=text, name:=json, name=@file or name:=@file.",
        show_default=False,
    ),
]


@speaks_to_server
def call(
    session: Session,
    tool: Annotated[
        str | None, typer.Argument(metavar="TOOL", help="Its name.", show_default=False)
    ] = None,
    arguments: _Items = None,
    given: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON|@FILE", help="All arguments as one JSON object."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Save images, sounds and files to this file."
        ),
    ] = None,
    force: Force = False,
    show_help: Annotated[
        bool, typer.Option("--help", help="Show this, or with a tool what it takes.")
    ] = False,
) -> None:
    """Call a tool.

    One that its server does not mark read-only is called after you agreed, or with --yes.
    """
    if tool is None:
        raise CommandError("which tool?", hint="`syncmcp tools` lists them")
    if output is not None:
        check_place(output, force=force)
    client = session.client
    found = _find(tool, client.iter_tools(**session.options))
    if show_help:
        wire = found.to_wire()
        session.out.result(wire) if session.out.json else session.out.text(help_of(found))
        return
    values = {} if given is None else object_of(given)
    values.update(parse(arguments or ()))
    _check(found, values, client.server.name)
    session.allow(found, values)
    try:
        result = client.call_tool(tool, values, **session.options)
    finally:
        if session.person is not None:
            session.person.bar.end()
    if session.out.json:
        session.out.result(result.to_wire())
    result.raise_for_error()
    if not session.out.json:
        _show_result(session.out, result, saved=output is not None)
    if output is not None:
        media = [block for block in result.content if is_medium(block)]
        if not media:
            raise CommandError("the result has no image, sound or file for --output")
        _save(session.out, media, output, force=force)


@speaks_to_server
def read(
    session: Session,
    uri: Annotated[
        str, typer.Argument(metavar="URI", help="A URI, or a template with its values behind it.")
    ],
    values: _Items = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Save it to this file.")
    ] = None,
    force: Force = False,
) -> None:
    """Read a resource."""
    if output is not None:
        check_place(output, force=force)
    given = texts(values or ())
    if given:
        uri = UriTemplate(uri).expand(given)
    result = session.client.read_resource(uri, **session.options)
    if session.out.json:
        session.out.result(result.to_wire())
    if output is not None:
        if not result.contents:
            raise CommandError("the resource has no contents for --output")
        _save(session.out, result.contents, output, force=force)
    elif not session.out.json:
        _show_contents(session.out, result)


@speaks_to_server
def prompt(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    arguments: _Items = None,
) -> None:
    """Get a prompt, filled in."""
    given = texts(arguments or ())
    client = session.client
    found = _find(name, client.iter_prompts(**session.options))
    result = client.get_prompt(found, given, **session.options)
    if session.out.json:
        session.out.result(result.to_wire())
        return
    for message in result.messages:
        session.out.text(f"{message.role}: {_block(message.content)}")


@speaks_to_server
def complete(
    session: Session,
    ref: Annotated[
        str, typer.Argument(metavar="REF", help="A prompt, or a template of resources.")
    ],
    argument: Annotated[str, typer.Argument(metavar="ARGUMENT", help="One of its arguments.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What has been typed of it.")] = "",
    settled: _Items = None,
) -> None:
    """Complete an argument of a prompt or of a template."""
    is_uri = "{" in ref or "://" in ref
    result = session.client.complete(
        ResourceTemplateReference(uri=ref) if is_uri else PromptReference(name=ref),
        argument,
        value,
        texts(settled or ()) or None,
        **session.options,
    )
    if session.out.json:
        session.out.result(result.to_wire())
        return
    for suggestion in result.completion.values:
        session.out.text(suggestion)


def _find(name: str, offered: Iterable[Any]) -> Any:
    """The tool or prompt of this name.

    Raises:
        CommandError: There is none.
    """
    names = []
    for one in offered:
        if one.name == name:
            return one
        names.append(one.name)
    close = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "`syncmcp list` shows what there is"
    raise CommandError(f"the server has no {name!r}", hint=hint)


def _check(tool: Tool, values: dict[str, Any], server: str) -> None:
    # What cannot be checked with its schema, the server may judge.
    error = ToolSchemas(tool).input_error(values, server)
    if not isinstance(error, InvalidArguments):
        return
    details = properties_of(tool.input_schema).get(error.argument or "")
    hint = f"`syncmcp call TARGET {tool.name} --help` shows what it takes"
    if details is not None:
        hint = f"write {written(str(error.argument), details)}"
    raise CommandError(error.message, server=server, hint=hint)


def _save(out: Output, contents: Sequence[Any], path: Path, *, force: bool) -> None:
    for place in save_all(contents, path, force=force):
        out.note(f"saved to {place}")


def _show_result(out: Output, result: CallToolResult, *, saved: bool) -> None:
    for block in result.content:
        if not (saved and is_medium(block)):
            out.text(_block(block))
    if not result.content and result.has_data:
        out.text(as_json(result.data, indent=2))


def _show_contents(out: Output, result: ReadResourceResult) -> None:
    for content in result.contents:
        if isinstance(content, TextResourceContents):
            out.text(content.text)
        elif not out.terminal:
            out.raw(content.decode())
        else:
            out.text(f"[{_size(content)}: --output FILE saves it]")


def _block(block: Any) -> str:
    """One block of content as text."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ResourceLink):
        return f"[link {block.uri}]"
    if isinstance(block, EmbeddedResource):
        content = block.resource
        if isinstance(content, TextResourceContents):
            return content.text
        return f"[{_size(content)}]"
    if hasattr(block, "decode"):
        return f"[{_size(block)}]"
    return json.dumps(block.to_wire(), ensure_ascii=False)


def _size(content: Any) -> str:
    kind = content.mime_type or "bytes"
    return f"{kind}, {len(content.decode())} bytes"
