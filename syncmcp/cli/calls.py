"""`call`, `read`, `prompt` and `complete`: one request each; help of a tool, and saved results."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from syncmcp import types
from syncmcp._base.similar import similar
from syncmcp._client.client import Client
from syncmcp._client.functions import required_names, takes_others
from syncmcp._connection.tool_schemas import ToolSchemas
from syncmcp.cli.output import MAY_HAVE_RUN, CommandError, Output, advise, as_json
from syncmcp.cli.parsing import (
    Item,
    is_url,
    join_item,
    parse_arguments,
    parse_object,
    parse_strings,
)
from syncmcp.cli.session import LONGEST_WAIT, Session, as_typed, knows_server, with_session
from syncmcp.cli.tool_help import (
    argument_syntax,
    help_lines,
    needs_json,
    schema_properties,
    type_name,
)
from syncmcp.errors import InvalidArguments, LimitExceeded, McpError, ResourceNotFound, ServerError
from syncmcp.saving import save
from syncmcp.templates import UriTemplate
from syncmcp.ui import shorten

# `--output`: the path is the caller's; further files get a number in their names.

_MOST_FILES = 100

Force = Annotated[
    bool, typer.Option("--force", "-f", help="Let --output replace an existing file.")
]


def is_binary(block: Any) -> bool:
    """Return whether a content block has bytes: an image, audio, or a binary resource."""
    if isinstance(block, types.EmbeddedResource):
        return isinstance(block.resource, types.BlobResourceContents)
    return isinstance(block, (types.ImageContent, types.AudioContent))


def check_output_path(path: Path | None, *, force: bool) -> None:
    """Check that a file can be saved at `path`, if there is one, before a request is sent."""
    if path is None:
        if force:
            raise CommandError("-f (--force) needs --output")
        return
    if str(path) == "-":
        raise CommandError("'-' names no file", hint="results go to stdout without --output")
    try:
        if path.is_dir():
            raise CommandError(f"{str(path)!r} is a directory", hint="name a file in it")
        if not path.parent.is_dir():
            raise CommandError(f"cannot write {str(path)!r}: no such directory")
        if not force and os.path.lexists(path):
            raise CommandError(f"{str(path)!r} already exists", hint="--force replaces it")
        if path.exists() and not path.is_file():
            raise CommandError(f"{str(path)!r} is not a regular file")
    except OSError as error:
        raise CommandError(f"cannot write {str(path)!r}: {error.strerror}") from error


def save_all(out: Output, contents: Sequence[Any], path: Path, *, force: bool) -> None:
    """Save the first content as `path`, the others in the same directory as ``name-2.png`` etc.

    No part of a file name comes from the server. Only the file that the person named is replaced:
    for the others, numbers of existing files are skipped. Prints a note with the path of each.
    """
    numbers = itertools.count(2)
    for index, content in enumerate(contents[:_MOST_FILES]):
        place = _free_place(path, numbers) if index else path
        try:
            save(content, place, overwrite=force and not index)
        except OSError as error:
            if not index:
                check_output_path(path, force=force)  # a file may have appeared since
            raise OSError(error.errno, error.strerror, str(place)) from error
        out.note(f"saved to {place}")
    if left := len(contents[_MOST_FILES:]):
        text = f"{left:,} more files were not saved: the limit is {_MOST_FILES} files of one result"
        raise LimitExceeded(text, delivery=None)


def _free_place(path: Path, numbers: Iterator[int]) -> Path:
    places = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in numbers)
    return next(place for place in places if not os.path.lexists(place))


_Items = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE",
        help="Arguments: name=text, name:=json, name=@file, name:=@file or a JSON object.",
        show_default=False,
    ),
]


@with_session
def call(
    session: Session,
    tool: Annotated[
        str | None, typer.Argument(metavar="TOOL", help="The name of the tool.", show_default=False)
    ] = None,
    arguments: _Items = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="JSON|@FILE", help="All arguments as one JSON object."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Save the result's images, audio and files, or its text.",
        ),
    ] = None,
    force: Force = False,
    show_help: Annotated[
        bool,
        typer.Option("--help", "-h", help="Show this help, or the arguments of TOOL."),
    ] = False,
) -> None:
    """Call a tool.

    A tool that its server does not mark as read-only needs your consent, or --yes.

    For example: syncmcp call https://example.com/mcp search query=tea limit=5

    syncmcp call draw text=@poem.txt size:='[80, 25]' -o p.png -- ./draw

    syncmcp call search --help -- python server.py
    """
    if tool is None:
        hint = session.module_hint or "`syncmcp tools TARGET` lists them"
        if session.command:
            hint = "TOOL and its arguments come before --"
        elif not (session.module_hint or knows_server(session.outer) or is_url(session.named)):
            hint = f"{session.named!r} was taken as the server; {hint}"
        raise CommandError("which tool?", hint=hint)
    after = arguments or () if "=" in tool else ()
    if any(map(is_url, (tool, *after))) and not knows_server(session.outer):
        raise CommandError(f"{tool!r} is not a tool", hint="TARGET comes before TOOL")
    check_output_path(output, force=force)
    client = session.client
    found = _find_by_name(session, "tool", tool)
    if show_help:
        usage = as_typed("syncmcp call TARGET", session.outer)
        if session.out.json:
            session.out.result(found.to_wire())
        else:
            session.out.line("\n".join(help_lines(found, usage)))
        return
    session.wait_no_more()  # the arguments may be typed, on stdin
    if given and len(given) > 1:  # a plain option would silently use the last one
        raise CommandError("--input appears twice", hint="write one object of all arguments")
    values = parse_object(given[0]) if given else {}
    properties = schema_properties(found.input_schema)
    _check_names(arguments or (), properties)
    values = parse_arguments(arguments or (), properties, values)
    _check_arguments(found, values, client.server.name)
    session.confirm_call(found, values)
    try:
        result = client.call_tool(tool, values, **session.request_options())
    except KeyboardInterrupt as interrupted:
        advise(interrupted, MAY_HAVE_RUN)
        raise
    try:
        _give(session.out, result, output, force=force)
    except OSError as error:
        advise(error, "the tool was called")
        raise


@with_session
def read(
    session: Session,
    uri: Annotated[
        str, typer.Argument(metavar="URI", help="A URI, or a template followed by its values.")
    ],
    values: _Items = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Save the resource to this file."),
    ] = None,
    force: Force = False,
) -> None:
    """Read a resource.

    For example: syncmcp read https://example.com/mcp file:///notes.txt --output notes.txt
    """
    check_output_path(output, force=force)
    given = parse_strings(values or ())
    if given:
        uri = UriTemplate(uri).expand(given)
    elif "{" in uri and (names := UriTemplate(uri).variables):
        needed = " ".join(f"{name}=VALUE" for name in names)
        raise CommandError(f"{uri!r} is a template: it needs {needed}")
    client = session.client
    try:
        result = client.read_resource(uri, **session.request_options())
    except ServerError as error:
        if isinstance(error, ResourceNotFound) or ":" not in uri:
            with suppress(McpError):  # errors of the list: only the resource was requested
                advise(error, _resource_hint(session, uri))
        raise
    if session.out.json:
        session.out.result(result.to_wire())
    if output is not None:
        if not result.contents:
            raise CommandError("the resource has no contents for --output")
        save_all(session.out, result.contents, output, force=force)
    elif not session.out.json:
        _show_contents(session.out, result)


def _resource_hint(session: Session, uri: str) -> str:
    """Return a hint for an unknown URI: it may be misspelled, or the name of something."""
    if other := other_kind(session.client, uri):
        return other
    offered = session.client.list_resources(**session.request_options())
    uris = {word: one.uri for one in offered for word in (one.uri, one.name)}
    if close := similar(uri, uris, 1, cutoff=0.8):  # most URIs of a server begin alike
        return f"did you mean {uris[close[0]]}?"
    return "`syncmcp list TARGET resources templates` shows the URIs"


@with_session
def prompt(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the prompt.")],
    arguments: _Items = None,
) -> None:
    """Get a prompt, filled in.

    For example: syncmcp prompt https://example.com/mcp translate text=tea
    """
    given = parse_strings(arguments or ())
    client = session.client
    found = _find_by_name(session, "prompt", name)
    offered = found.arguments or ()
    required = [one.name for one in offered if one.required and one.name not in given]
    if required and not given.keys() - {one.name for one in offered}:  # `get_prompt` reports those
        raise _missing(required, f"write {' '.join(f'{name}=TEXT' for name in required)}")
    result = client.get_prompt(found, given, **session.request_options())
    said = (f"{message.role}: {_block_text(message.content)}" for message in result.messages)
    session.out.show(result.to_wire(), *said)


@with_session
def complete(
    session: Session,
    ref: Annotated[str, typer.Argument(metavar="REF", help="A prompt, or a resource template.")],
    argument: Annotated[str, typer.Argument(metavar="ARGUMENT", help="One of its arguments.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The beginning of its value.")] = "",
    settled: _Items = None,
) -> None:
    """Complete an argument of a prompt or of a template.

    For example: syncmcp complete https://example.com/mcp greet name A
    """
    others = parse_strings(settled or ())
    client = session.client
    target: types.ResourceTemplateReference | types.PromptReference
    if is_template(ref):
        target, names = types.ResourceTemplateReference(uri=ref), list(UriTemplate(ref).variables)
    else:
        found = _find_by_name(session, "prompt", ref)
        target, names = types.PromptReference(name=ref), [a.name for a in found.arguments or ()]
    for name in (argument, *others):  # for an unknown name, servers return no completions
        if name not in names:
            hint = f"it has {', '.join(names)}" if names else None
            raise CommandError(f"{ref!r} has no argument {name!r}", hint=hint)
    result = client.complete(target, argument, value, others or None, **session.request_options())
    session.out.show(result.to_wire(), *result.completion.values)
    if not (result.completion.values or session.out.json):
        session.out.note(f"the server has no completion for {value!r}")


def is_template(ref: str) -> bool:
    """Return whether REF is a resource template, rather than the name of a prompt."""
    return "{" in ref or "://" in ref


# The most tools or prompts that an error for an unknown name lists.
_MOST_NAMED = 12


def other_kind(client: Client, name: str) -> str | None:
    """Return a hint if this is the name of a tool, a prompt or a resource."""
    for kind, command, listed in (
        ("tool", "call", client.list_tools),
        ("prompt", "prompt", client.list_prompts),
        ("resource", "read", client.list_resources),
    ):
        with suppress(McpError):  # this is about a hint only
            for one in listed(timeout=LONGEST_WAIT):
                if one.name == name:
                    word = shlex.quote(one.uri if isinstance(one, types.Resource) else name)
                    return f"it is a {kind}: write `syncmcp {command} TARGET {word}`"
    return None


def _find_by_name(session: Session, kind: Literal["tool", "prompt"], name: str) -> Any:
    """Return the tool or prompt of this name; otherwise raise an error with similar names."""
    client, names = session.client, []
    listed: Callable[..., Iterable[Any]] = (
        client.list_tools if kind == "tool" else client.list_prompts
    )
    for one in listed(**session.request_options()):
        if one.name == name:
            return one
        names.append(one.name)
    close = similar(name, names, 3)
    hint = f"it has {', '.join(names)}" if names else f"it has no {kind}s"
    if "=" in name:
        hint = f"name the {kind} before its arguments"
    elif other := other_kind(client, name):
        hint = other
    elif close:
        hint = f"did you mean {' or '.join(close)}?"
    elif len(names) > _MOST_NAMED:
        hint = f"`syncmcp list TARGET {kind}s` shows its {len(names):,} {kind}s"
    raise CommandError(f"the server has no {kind} {name!r}", hint=hint)


def _check_names(words: Sequence[str], properties: Mapping[str, Any]) -> None:
    """Check that the first arguments have names; the error says how to write values."""
    bare = [*itertools.takewhile(lambda word: not re.search(r"[=:{]|^-$", word), words)]
    named = {word.partition("=")[0].removesuffix(":") for word in words}
    free = [name for name in properties if name not in named]
    if bare and len(bare) <= len(free):
        items = (
            Item(name, needs_json(properties[name]), word)
            for name, word in zip(free, bare, strict=False)
        )
        hint = f"if these are values, write {shlex.join(filter(None, map(join_item, items)))}"
        raise CommandError(f"arguments need a name: {', '.join(map(repr, bare))}", hint=hint)


def _missing(names: Sequence[str], hint: str, **facts: str) -> CommandError:
    count = "an argument is" if len(names) == 1 else f"{len(names)} arguments are"
    return CommandError(f"{count} missing: {', '.join(names)}", hint=hint, **facts)


# At most this many characters of an invalid value are shown.
_MAX_SHOWN = 60

_EXAMPLES = {"array": """'["a"]'""", "object": """'{"a": 1}'"""}


def _check_arguments(tool: types.Tool, values: dict[str, Any], server: str) -> None:
    properties = schema_properties(tool.input_schema)
    # Unknown arguments are an error unless the schema allows them: a server would ignore them.
    others = [] if takes_others(tool.input_schema) else sorted(values.keys() - properties.keys())
    if others:
        unused = properties.keys() - values.keys()
        close = [similar(name, unused, 1) for name in others]
        text = f"the tool has no argument {' and no argument '.join(map(repr, others))}"
        advice = f"it has {', '.join(properties) or 'none'}"
        if all(close):
            advice = f"did you mean {' and '.join(dict.fromkeys(one for (one,) in close))}?"
        raise CommandError(text, server=server, hint=advice)
    errors = _argument_errors(tool, values, server)
    if not errors:
        return
    missing = [name for name in required_names(tool.input_schema) if name not in values]
    if missing:
        piped = not (values or sys.stdin.isatty())
        more = "; --input @- reads them from stdin, as a JSON object" if piped else ""
        if any(f",{name}=" in str(text) for name in missing for text in values.values()):
            more = "; a space separates arguments, not a comma"
        written = [argument_syntax(name, properties.get(name, {})) for name in missing]
        raise _missing(missing, f"write {' '.join(written)}{more}", server=server)
    texts, written = [], []
    for error in errors:
        texts.append(error.message)
        name = error.argument
        if name in values:
            texts[-1] += f": it is {shorten(as_json(values[name]), _MAX_SHOWN)}"
        if name in properties:
            example = _EXAMPLES.get(type_name(properties[name]))
            such_as = "" if example is None else f", such as {name}:={example}"
            written.append(argument_syntax(name, properties[name]) + such_as)
    hint = f"`syncmcp call TARGET {tool.name} --help` shows its arguments"
    if written:
        hint = f"write {' and '.join(written)}"
    raise CommandError("; ".join(texts), server=server, hint=hint)


def _argument_errors(
    tool: types.Tool, values: dict[str, Any], server: str
) -> list[InvalidArguments]:
    """Return the error of each argument that does not fit, or of all arguments together."""
    error = ToolSchemas(tool).input_error(values, server)
    # Only invalid arguments are an error here; if the schema is unusable, the server decides.
    if not isinstance(error, InvalidArguments):
        return []
    found, rest = [error], dict(values)
    # The others are found without those before them, which are required perhaps.
    schema = {word: rule for word, rule in tool.input_schema.items() if word != "required"}
    schemas = ToolSchemas(tool.model_copy(update={"input_schema": schema}))
    while isinstance(error, InvalidArguments) and error.argument in rest:
        del rest[error.argument]
        error = schemas.input_error(rest, server)
        if isinstance(error, InvalidArguments) and error.argument in rest:
            found.append(error)
    return found


def _give(out: Output, result: types.CallToolResult, output: Path | None, *, force: bool) -> None:
    if out.json:
        out.result(result.to_wire())
    result.raise_for_error()
    media: list[Any] = []
    if output is not None:
        media = [block for block in result.content if is_binary(block)]
    others = (block for block in result.content if not (media and is_binary(block)))
    said: Iterable[str] = map(_block_text, others)
    if not result.content and result.has_data:
        said = [as_json(result.data, indent=2)]
    elif out.terminal:
        said = map(_indented, said)
    if output is not None and not media:
        media = [types.TextResourceContents(uri="", text="\n".join(said))]
    elif not out.json:
        for words in said:
            out.text(words)
    if output is not None:
        save_all(out, media, output, force=force)


def _indented(text: str) -> str:
    """Return JSON on one line with indentation, and any other text unchanged."""
    if text[:1] not in ("{", "[") or "\n" in text:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    # Only if nothing is lost, such as the digits of a number: one of the usual forms.
    forms = (
        json.dumps(value, ensure_ascii=ascii_only, separators=separators)
        for ascii_only in (False, True)
        for separators in ((",", ":"), (", ", ": "))
    )
    return as_json(value, indent=2) if text in forms else text


def _show_contents(out: Output, result: types.ReadResourceResult) -> None:
    for content in result.contents:
        if isinstance(content, types.TextResourceContents):
            out.text(content.text)
        elif not out.terminal:
            out.raw(content.decode())
        else:
            out.text(f"[{_size_text(content)}: --output FILE saves it]")


def _block_text(block: Any) -> str:
    """Return a content block as text."""
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ResourceLink):
        return f"[link {block.uri}]"
    if isinstance(block, types.EmbeddedResource):
        content = block.resource
        if isinstance(content, types.TextResourceContents):
            return content.text
        return f"[{_size_text(content)}]"
    if hasattr(block, "decode"):
        return f"[{_size_text(block)}]"
    return json.dumps(block.to_wire(), ensure_ascii=False)


def _size_text(content: Any) -> str:
    kind = content.mime_type or "bytes"
    return f"{kind}, {len(content.decode())} bytes"
