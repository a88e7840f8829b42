"""Sphinx: MyST pages and an API reference from docstrings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import syncmcp
from syncmcp._operation import Operation

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "syncmcp"
author = "syncmcp contributors"
copyright = "2026, syncmcp contributors"
version = release = syncmcp.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"syncmcp {release}"

# Annotations name types by their bare names, and several models have a field called `type`.
suppress_warnings = ["ref.python"]
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


def setup(app: Sphinx) -> None:
    """Show what an operation returns when it is called, not what its steps are."""

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

    app.connect("autodoc-process-signature", called)
