"""Sphinx: MyST pages and an API reference from docstrings."""

from __future__ import annotations

import sys
from pathlib import Path

import syncmcp

sys.path.insert(0, str(Path(__file__).parent))

project = "syncmcp"
author = "syncmcp contributors"
copyright = "2026, syncmcp contributors"
version = release = syncmcp.__version__

extensions = [
    "reference",  # before autodoc, which imports functions that it replaces
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

# In docstrings, `name` is code, and a link if it names something of the reference.
default_role = "name"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# A long signature has one argument on each line.
maximum_signature_line_length = 100
python_use_unqualified_type_names = True
add_module_names = False  # the page names the module
autodoc_default_options = {"special-members": "__call__"}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
