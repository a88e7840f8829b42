"""Sphinx: MyST pages and an API reference from docstrings."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

import syncmcp
from syncmcp._client.operation import Operation

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

project = "syncmcp"
author = "syncmcp contributors"
copyright = "2026, syncmcp contributors"
version = release = syncmcp.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
autosummary_generate = False
html_theme = "furo"
html_title = f"syncmcp {release}"
html_static_path = ["_static"]
html_css_files = ["columns.css"]
html_js_files = ["copy.js"]

# Annotations name types by their bare names, and several models have a field called `type`.
# Summaries name members of the module that they stand in.
suppress_warnings = ["autosummary.import_cycle", "ref.python"]
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

# In docstrings, `name` is code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# To autodoc an operation is an attribute, until it can look through to the function.
Operation.__wrapped__ = property(lambda operation: operation.steps)  # type: ignore[attr-defined]


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
            # A value has the docstring of its type, which says nothing of the value.
            lines += [f"Values and types: {', '.join(f'`{name}`' for name in plain)}.", ""] * any(
                plain
            )
        if "members" in self.options:
            for name in " ".join(text for _, _, text in groups).split():
                lines += [f".. {directive(home, name)}:: {home}.{name}", ""]
        return self.parse_text_to_nodes("\n".join(lines))


def directive(home: str, name: str) -> str:
    """The directive that documents a member of a class."""
    module, _, owner = home.rpartition(".")
    member = vars(getattr(importlib.import_module(module), owner)).get(name)
    return "autoproperty" if isinstance(member, property) else "automethod"


def described(home: str, name: str) -> bool:
    """Whether a class, function or operation has a docstring of its own."""
    if home.rpartition(".")[2][:1].isupper():
        return True
    value = getattr(importlib.import_module(home), name)
    return inspect.isclass(value) or inspect.isroutine(value)


class Measured(SphinxDirective):
    """A table of some rows of bench.json, so that no figure is written by hand."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Read the figures anew each time the page is built."""
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
    """Megabytes, or seconds in a handy size."""
    if unit == "MB":
        return f"{figure:.0f} MB"
    if figure >= 1:
        return f"{figure:.1f} s"
    return f"{figure * 1e3:.2f} ms" if figure < 0.01 else f"{figure * 1e3:.0f} ms"


def setup(app: Sphinx) -> None:
    """Show what an operation returns when it is called, and the other ways to call it."""
    app.add_directive("measured", Measured)
    app.add_directive("summary", Summary)

    def called(
        _app: Sphinx,
        _what: str,
        _name: str,
        _value: object,
        _options: object,
        signature: str | None,
        returns: str | None,
    ) -> tuple[str | None, str | None]:
        return signature, re.sub(r"^Steps\[(.*)\]$", r"\1", returns) if returns else returns

    def ways(
        _app: Sphinx, _what: str, name: str, value: object, _options: object, lines: list[str]
    ) -> None:
        if isinstance(value, Operation):
            short = name.rpartition(".")[2]
            text = (
                f"Also `{short}.future(...)`, which returns a `RequestFuture`, and"
                f" `{short}.stream(...)`, which returns a `ResultStream`. Each takes the keywords"
                " of :class:`~syncmcp.CallOptions`."
            )
            lines += ["", text]

    app.connect("autodoc-process-signature", called)
    app.connect("autodoc-process-docstring", ways)
