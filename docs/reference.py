"""The API reference: what autodoc shows of operations, models and types, and the tables."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args

from docutils.parsers.rst import directives, roles
from sphinx.domains.python import PyXRefRole
from sphinx.util.docutils import SphinxDirective

import syncmcp
from syncmcp import CallOptions
from syncmcp._client.batch import Collected, Oversize
from syncmcp._client.operation import Operation
from syncmcp._client.requests import Request, Resume
from syncmcp._connection.options import CacheUse, ResolvedOptions
from syncmcp._connection.tool_schemas import OutputCheck
from syncmcp._protocol.capabilities import Undeclared
from syncmcp.approval import policies
from syncmcp.group import Routed
from syncmcp.handlers.roots import Status
from syncmcp.tasks import StartTask

if TYPE_CHECKING:
    from docutils import nodes
    from docutils.parsers.rst.states import Inliner
    from sphinx.application import Sphinx

# autodoc documents an operation as an attribute, unless it can unwrap the function.
Operation.__wrapped__ = property(lambda operation: operation.steps)  # type: ignore[attr-defined]
Routed.__wrapped__ = property(lambda routed: routed.operation.steps)  # type: ignore[attr-defined]
Routed.__call__ = Operation.__call__  # type: ignore[attr-defined]

# These properties are called like methods, so they are documented as methods.
CALLED = {"request": Request, "resume": Resume, "start_task": StartTask}
for called, kind in CALLED.items():
    setattr(syncmcp.Client, called, kind.__call__)


# Classes that a page documents get the members that they inherit from classes without a page. The
# members of `Dispatcher` are internal to the `Server` of the test kit.
NAMED = {
    value
    for page in (Path(__file__).parent / "api").glob("*.md")
    for module in re.findall(r"automodule:: (\S+)", page.read_text("utf-8"))
    for name in importlib.import_module(module).__all__
    if inspect.isclass(value := getattr(sys.modules[module], name))
}
for named in NAMED:
    for base in set(named.__mro__[1:]) - NAMED:
        if base.__module__.startswith("syncmcp.") and base.__name__ != "Dispatcher":
            for member, value in vars(base).items():
                called_so = inspect.isroutine(value) or isinstance(value, property | classmethod)
                if called_so and member[0] != "_" and member not in vars(named):
                    setattr(named, member, value)


# Readers do not need the tags by which models distinguish the types of a union.
for alias in ("ContentBlock", "ResourceContents", "SamplingMessageContentBlock"):
    tagged = get_args(getattr(syncmcp.types, alias))[0]
    plain = Union[tuple(get_args(member)[0] for member in get_args(tagged))]  # noqa: UP007
    for module in [each for name, each in sys.modules.items() if name.startswith("syncmcp.")]:
        if alias in vars(module):
            setattr(module, alias, plain)

# autodoc writes the parts of a `typing.Union` as links, so such aliases become one.
for page in (Path(__file__).parent / "api").glob("*.md"):
    for name in re.findall(r"automodule:: (\S+)", page.read_text("utf-8")):
        for alias in sys.modules[name].__all__:
            if isinstance(value := getattr(sys.modules[name], alias), UnionType):
                setattr(sys.modules[name], alias, Union[get_args(value)])  # noqa: UP007

# Types without a public name are spelled in signatures.
SPELLED = {
    "AllPages": "ALL_PAGES",
    "Allow": "str | Collection[str] | Callable[[str, str], bool]",
    "Answer": policies.Answer,
    "CacheUse": f"Literal{[*get_args(CacheUse)]}",
    "EventBody": "Iterator[bytes]",
    "OutputCheck": f"Literal{[*get_args(OutputCheck)]}",
    "Oversize": f"Literal{[*get_args(Oversize)]}",
    "Request": " | ".join(
        getattr(kind, "__forward_arg__", "ToolCall") for kind in get_args(policies.Request)
    ),
    "Status": f"Literal{[*get_args(Status)]}",
    "Undeclared": f"Literal{[*get_args(Undeclared)]}",
}

# Public only for other parts of the library; programs do not need them.
INTERNAL = {
    *("Question.answered", "Question.progressed", "Question.end", "Session.take"),
    *("Recording.behind", "Recording.transport", "Replay.behind", "Replay.transport"),
}

# Programs get these from the library, and do not make them.
MADE = {
    "syncmcp.Batch",
    "syncmcp.ConnectedServer",
    "syncmcp.Listener",
    "syncmcp.RequestFuture",
    "syncmcp.ResultStream",
    "syncmcp.Subscription",
    "syncmcp.ToolFunction",
    "syncmcp.executors.Outcome",
    "syncmcp.group.GroupSubscription",
    "syncmcp.handlers.pending.InputRequired",
    "syncmcp.servers_file.ServerEntry",
    "syncmcp.servers_file.ServersFile",
    "syncmcp.tasks.ToolTask",
    "syncmcp.testing.Planned",
    "syncmcp.testing.Question",
    "syncmcp.testing.ScriptedConnection",
    "syncmcp.testing.Session",
    "syncmcp.testing.ToolContext",
    "syncmcp.types.WireModel",
}


# The options of all calls, as in a signature; ``...`` stands for the client's setting.
DEFAULTS = vars(ResolvedOptions)
SIGNATURE = ", ".join(
    f"{key}: {kind.__forward_arg__} = {repr(DEFAULTS[key]) if key in DEFAULTS else '...'}"
    for key, kind in CallOptions.__annotations__.items()
)


# Terms of the glossary, which are linked except in code.
WORDS = "pool thread|in flight|idempotent|handshake|guarded|step-up|stateful|servers file|tool loop"
TERMS = rf"(?<![`\w.-])(?:{WORDS})(?![`=:\w-])"

SPECIFICATION = "https://modelcontextprotocol.io/specification"


def with_links(line: str) -> str:
    """Return a line with links to the glossary, and to the specification and its pages."""

    def linked(match: re.Match[str]) -> str:
        page, section = match["page"].removesuffix("/index"), match["section"] or ""
        stateful = page in ("basic/lifecycle", "basic/utilities/tasks")
        revision = "2025-11-25" if stateful else "2026-07-28"
        return f"(`{page}{section} <{SPECIFICATION}/{revision}/{page}{section}>`__"

    if not re.match(r"\s*(?:>>>|\.\. |:|[│├└])", line):
        line = re.sub(TERMS, r":term:`\g<0>`", line)
    line = re.sub(r"\(spec(?=[:\s])", f"(`spec <{SPECIFICATION}>`__", line)
    address = r"\((?P<page>(?:basic|client|server)/[\w/-]+)(?P<section>#[\w-]+)?(?=[),; ])"
    return re.sub(address, linked, line)


class Summary(SphinxDirective):
    """A table of the names of a module or class, each with the first sentence of its docstring.

    The lines of the content are groups, ``Title: name name``; without content, there is one table.
    With ``:members:`` the members of the class that the groups name follow.
    """

    required_arguments = 1
    has_content = True
    option_spec = {"members": directives.flag}  # noqa: RUF012 - as docutils has it

    def run(self) -> list[nodes.Node]:
        """Write the tables as `autosummary` does, without files of their own."""
        home = self.arguments[0]
        groups = [line.partition(": ") for line in self.content if line]
        if not groups:
            groups = [("", "", " ".join(importlib.import_module(home).__all__))]
        lines: list[str] = []
        for title, _, text in groups:
            names = text.split()
            plain = [name for name in names if not described(home, name)]
            lines += [f"**{title}**", ""] if title else []
            lines += [".. autosummary::", "   :nosignatures:", ""]
            lines += [f"   ~{home}.{name}" for name in names if name not in plain] + [""]
            # A value has the docstring of its type, which does not describe the value.
            links = ", ".join(f":py:obj:`~{home}.{name}`" for name in plain)
            lines += [f"Values and types: {links}.", ""] * any(plain)
        if "members" in self.options:
            for name in " ".join(text for _, _, text in groups).split():
                lines += [f".. {directive(home, name)}:: {home}.{name}", ""]
        return self.parse_text_to_nodes("\n".join(lines))


class Options(SphinxDirective):
    """Tables of the arguments of a class, each with the first sentence of its description.

    The lines of the content are groups, ``Title: name name``.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Read the descriptions in the docstring of the class, which follows in whole."""
        module, _, owner = self.arguments[0].rpartition(".")
        doc = inspect.getdoc(getattr(importlib.import_module(module), owner)) or ""
        written = doc.partition("\nArgs:\n")[2].partition("\n\n")[0]
        texts = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", written, re.MULTILINE)
        sentences = {name: re.split(r"[.;:](?:\s|$)", text)[0].split() for name, text in texts}
        lines: list[str] = []
        for title, _, names in (line.partition(": ") for line in self.content if line):
            lines += [f"**{title}**", "", ".. list-table::", "   :widths: 1 3", ""]
            for name in names.split():
                lines += [
                    f"   * - .. index:: {name} (option of {owner})",
                    f"       .. _option-{name}:",
                ]
                lines += ["", f"       ``{name}``", f"     - {' '.join(sentences.pop(name))}"]
            lines.append("")
        if sentences:
            raise self.error(f"in no group: {', '.join(sentences)}")
        return self.parse_text_to_nodes("\n".join(lines))


def directive(home: str, name: str) -> str:
    """Return the directive that documents a member of a class."""
    module, _, owner = home.rpartition(".")
    member = vars(getattr(importlib.import_module(module), owner)).get(name)
    return "autoproperty" if isinstance(member, property) else "automethod"


def described(home: str, name: str) -> bool:
    """Return whether a class, function or operation has a docstring of its own."""
    if home.rpartition(".")[2][:1].isupper():
        return True
    value = getattr(importlib.import_module(home), name)
    return inspect.isclass(value) or inspect.isroutine(value)


class Measured(SphinxDirective):
    """A table of some rows of bench.json, so that no figure is written by hand."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Read the figures each time the page is built."""
        source = Path(self.env.srcdir) / "bench.json"
        self.env.note_dependency(str(source))
        rows = json.loads(source.read_text(encoding="utf-8"))["rows"]
        wires = {"stdio": "stdio", "json": "HTTP, JSON", "sse": "HTTP, event stream"}
        lines = ["| | syncmcp | official SDK | ratio |", "|---|---:|---:|---:|"]
        for name in self.arguments[0].split():
            row = rows[name]
            cells = [amount(row["median"][side], row["unit"]) for side in ("syncmcp", "official")]
            cells.append(f"**{row['ratio'][2]:.2f}**")
            lines.append(f"| {wires[row['wire']]}: {row['title']} | {' | '.join(cells)} |")
        return self.parse_text_to_nodes("\n".join(lines))


def amount(figure: float, unit: str) -> str:
    """Return megabytes, or seconds in a suitable unit."""
    if unit == "MB":
        return f"{figure:.0f} MB"
    if figure >= 1:
        return f"{figure:.1f} s"
    return f"{figure * 1e3:.2f} ms" if figure < 0.01 else f"{figure * 1e3:.0f} ms"


def name_role(
    _name: str,
    rawtext: str,
    text: str,
    lineno: int,
    inliner: Inliner,
    options: dict[str, object] | None = None,
    content: list[str] | None = None,
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Format as code; link names of classes and their members, and names with an underscore."""
    if re.fullmatch(r"[A-Z]\w*[a-z]\w*(\.\w+)*|syncmcp(\.\w+)+", text):
        return PyXRefRole()("py:obj", rawtext, f".{text}", lineno, inliner, options or {}, ())
    if re.fullmatch(r"[a-z]+(_[a-z]+)+", text):
        return PyXRefRole()("py:obj", rawtext, text, lineno, inliner, options or {}, ())
    code, problems = roles.code_role("code", rawtext, text, lineno, inliner, options, content)
    return list(code), list(problems)


def process_signature(
    _app: Sphinx,
    what: str,
    name: str,
    value: Any,
    _options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Show the arguments that a program may pass, and the result of calling an operation."""
    if name == "syncmcp.connect":  # the options of `Client`, which is on the same page
        return "(target: Target, **options)", returns
    hidden = name in MADE or getattr(value, "_is_protocol", False)
    if what in ("class", "exception") and (hidden or "**facts:" in (signature or "")):
        signature = ""
    signature = signature and signature.replace("Bounds = (None, None)", "Bounds = Bounds()")
    # A default that is a class is named; a function, or the result of a factory, is left out.
    signature = signature and re.sub(r" ?= ?<(?:function .*?|factory)>", " = ...", signature)
    signature = signature and re.sub(r"<[\w\- ]*?'?(?:\w+\.)*(\w+)'?>", r"\1", signature)
    if signature and " idle_timeout: " in (inspect.getdoc(value) or ""):
        keywords = SIGNATURE if "*, " in signature else f"*, {SIGNATURE}"
        signature = signature.replace("**options: Unpack[CallOptions]", keywords)
    for alias, spelled in SPELLED.items():
        signature = signature and re.sub(rf"\b{alias}\b", spelled, signature)
    signature = signature and signature.replace("*unnamed: Never", "*")
    signature = signature and re.sub(r"(\*\*settings): \S*Settings\]", r"\1", signature)
    signature = signature and re.sub(r", _\w+: .*(?=\)$)", "", signature)
    return signature, returns and re.sub(r"^Steps\[(.*)\]$|builtins\.", r"\1", returns)


def process_sentences(
    _app: Sphinx, what: str, _name: str, _value: Any, _options: object, lines: list[str]
) -> None:
    """Tell napoleon that the text of attributes and results has no type before its first colon."""
    untyped = [number + 1 for number, line in enumerate(lines) if line == "Returns:"]
    if what in ("attribute", "data", "property") and lines:
        untyped.append(0)
    for number in untyped:
        lines[number] = re.sub(r"(?=\S)", ": ", lines[number], count=1)


def process_docstring(
    _app: Sphinx, what: str, name: str, value: Any, _options: object, lines: list[str]
) -> None:
    """Add the other ways to call an operation, and bases; shorten the names of types."""
    short = name.rpartition(".")[2]
    if what == "data" and lines and lines[0] in str(type(value).__doc__):
        lines.clear()  # the docstring of the type of the value
    for number, line in enumerate(lines):
        if line.lstrip().startswith(":type: "):
            line = re.sub(r"\b(?:[a-z_]\w*\.)+(\w+)", r"\1", line)  # noqa: PLW2901
            for alias, spelled in SPELLED.items():
                line = re.sub(rf"\b{alias}\b", spelled, line)  # noqa: PLW2901
        lines[number] = with_links(line)
    first = next((number for number, line in enumerate(lines) if not line), len(lines))
    added = []
    if what == "exception":
        if "Inherited attributes:" in lines:  # the bases are on the same page
            del lines[lines.index("Inherited attributes:") :]
        bases = [base.__name__ for base in value.__bases__ if base.__name__[0] != "_"]
        added = [f"Base: {', '.join(f'`{base}`' for base in bases)}."]
        if value in syncmcp.ServerError.codes.values():
            added[0] += f" Code: {value.code}."
    elif inspect.isclass(value) and hasattr(value, "model_fields"):
        inherited = value.model_fields.keys() - inspect.get_annotations(value).keys()
        bases = filter(public, value.__mro__[1:])
        theirs = {base: inspect.get_annotations(base).keys() & inherited for base in bases}
        others = set().union(*theirs.values())
        more = ", ".join(f"``{name}``" for name in value.model_fields if name in others)
        bases = ", ".join(f"`{base.__name__}`" for base, names in theirs.items() if names)
        added = [f"Also has {more} (see {bases})."] if more else []
    elif value is syncmcp.Batch:
        collected = [key for key, member in vars(value).items() if isinstance(member, Collected)]
        lines += ["", f"Operations: {', '.join(f'`Client.{key}`' for key in collected)}."]
    if added:
        lines[first:first] = ["", *added]
    if what in ("class", "exception"):  # arguments and errors come before the attributes
        others: list[str] = []
        attributes: list[str] = []
        block = others
        for line in lines:
            if line and line[0] != " ":
                block = attributes if line.startswith(".. attribute::") else others
            block.append(line)
        lines[:] = [*others, "", *attributes]
    if isinstance(value, Routed):
        lines[first:] = [
            "",
            "The first argument is a key of the group; `UsageError` if no server has it.",
            f"See `Client.{short}`.",
        ]
    if isinstance(value, Routed) or value in [k.__call__ for k in CALLED.values()]:
        text = f"Also `{short}.future(...)`, which returns a `RequestFuture`"
        if isinstance(value, Routed):
            text += f", and `{short}.stream(...)`, which returns a `ResultStream`"
        lines += ["", f"{text}."]


def skip_member(
    _app: Sphinx, _what: str, _name: str, value: Any, _skip: bool, _options: object
) -> bool | None:
    """Leave out members that only other parts of the library call, and fields of tuples."""
    function = value.fget if isinstance(value, property) else value
    internal = getattr(function, "__qualname__", "") in INTERNAL
    # The docstring of a tuple describes its fields.
    return True if internal or type(value).__name__ == "_tuplegetter" else None


def public(base: type) -> bool:
    """Return whether a class is a model on the page of types that adds fields."""
    return base.__name__ in syncmcp.types.__all__ and bool(inspect.get_annotations(base))


def setup(app: Sphinx) -> None:
    """Add the directives, the role for names, and the handlers of signatures and docstrings."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")  # first: its output is changed here
    app.add_directive("measured", Measured)
    app.add_directive("options", Options)
    app.add_directive("summary", Summary)
    roles.register_local_role("name", name_role)
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-process-docstring", process_sentences, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-skip-member", skip_member)
