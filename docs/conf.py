"""Sphinx: MyST pages and an API reference from docstrings."""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

import syncmcp

sys.path.insert(0, str(Path(__file__).parent))

project = "syncmcp"
author = "syncmcp contributors"
copyright = "2026, syncmcp contributors"
version = release = syncmcp.__version__

extensions = [
    "reference",  # before autodoc: it replaces functions that autodoc imports
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
autosummary_generate = False
html_theme = "furo"
html_title = f"syncmcp {release}: MCP client for Python"
html_static_path = ["_static"]
html_css_files = ["columns.css"]
html_js_files = ["copy.js"]

# Annotations name types by their bare names, and several models have a field called `type`.
# Summaries list members of the module on whose page they are.
suppress_warnings = ["autosummary.import_cycle", "ref.python"]
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

# In docstrings, `name` is code, and a link if it names something of the reference.
default_role = "name"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# A long signature has one argument on each line.
maximum_signature_line_length = 100
python_use_unqualified_type_names = True
add_module_names = False  # the page names the module
autodoc_default_options = {"special-members": "__call__, __iter__, __next__"}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = False


def describe_page(_app, _name, _template, context, doctree):  # type: ignore[no-untyped-def]
    """Set the description of a page for search engines: its first sentences, or its title."""
    if doctree is None:  # an index that Sphinx makes
        return
    described = ""
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section) and len(described) < 100:
            text = re.sub(r":$", ".", " ".join(paragraph.astext().split()))
            for sentence in re.findall(r"\S.*?\.(?= |$)", text):
                if not sentence.startswith(("See ", "Values and types")):
                    described += sentence + " "
    title = f"{context['title']}: syncmcp, a client for the Model Context Protocol"
    content = escape(described.strip() or title)
    context["metatags"] += f'<meta name="description" content="{content}" />'


def setup(app: Sphinx) -> None:
    """Add the descriptions of pages to the data of the theme."""
    app.connect("html-page-context", describe_page)
