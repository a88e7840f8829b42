"""`call`, `read`, `prompt` and `complete`: one request, and what came of it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncmcp._connection.schemas import ToolSchemas
from syncmcp.cli import items
from syncmcp.cli.failures import CommandError
from syncmcp.cli.options import speaks_to_server
from syncmcp.cli.output import Output, as_json
from syncmcp.cli.saved import Force, check_place, is_medium, save_all
from syncmcp.cli.session import Session
from syncmcp.cli.tool_help import help_of, properties_of, written
from syncmcp.errors import InvalidArguments
from syncmcp.templates import UriTemplate
from syncmcp.types import (
    EmbeddedResource,
    PromptReference,
    ResourceLink,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)

if TYPE_CHECKING:
    from syncmcp.types import CallToolResult, ReadResourceResult, Tool

__all__ = ["call", "complete", "prompt", "read"]

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
    values = {} if given is None else items.object_of(given)
    values.update(items.parse(arguments or ()))
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
    given = items.texts(values or ())
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
    given = items.texts(arguments or ())
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
        items.texts(settled or ()) or None,
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
