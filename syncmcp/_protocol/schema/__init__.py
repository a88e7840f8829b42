"""JSON Schema for what a server wrote: compiled once, and every check of a value has an end.

Both sides of a check come from a server: the schema and the value. So nothing is ever fetched, no
pattern backtracks, and depth, size and steps are counted. The words of the dialects stand in
`dialect`, what each of them demands of a value in `keyword`, references in `document`.
"""

from __future__ import annotations

from syncmcp._protocol.schema.compiler import Schema, compile_schema
from syncmcp._protocol.schema.run import Problem

__all__ = ["Problem", "Schema", "compile_schema"]
