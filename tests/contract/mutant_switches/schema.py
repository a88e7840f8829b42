"""Mutants of what is checked by the schemas of tools."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from syncmcp._protocol.schema import DEFAULT
from syncmcp.errors import InvalidOutput, UnsupportedSchema
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

SCHEMA = "syncmcp._protocol.schema"
TOOLS = "syncmcp._connection.tool_schemas"


def _assume_draft_7(original: Function) -> Function:
    older = "http://json-schema.org/draft-07/schema"

    def dialect_of(schema: Any) -> Any:
        named = isinstance(schema, dict) and "$schema" in schema
        return original(schema) if named else older

    return dialect_of


def _guess_the_dialect(original: Function) -> Function:
    def dialect_of(schema: Any) -> Any:
        try:
            return original(schema)
        except UnsupportedSchema:
            return DEFAULT

    return dialect_of


def _permit_what_is_elsewhere(original: Function) -> Function:
    def resolve(word: str, reference: Any, resolver: Any) -> Any:
        try:
            return original(word, reference, resolver)
        except UnsupportedSchema:
            return SimpleNamespace(contents=True, resolver=resolver)

    return resolve


def _fetch_what_is_elsewhere(original: Function) -> Function:
    def resolve(word: str, reference: Any, resolver: Any) -> Any:
        uri = str(reference)
        if uri.startswith("http://127.0.0.1:"):  # a test of it must not reach anybody else
            with suppress(OSError), urlopen(uri, timeout=0.5):
                pass
        return SimpleNamespace(contents=True, resolver=resolver)

    return resolve


def _objects_only(original: Function) -> Function:
    def output_error(self: Any, result: Any, server: str, look: Any) -> Any:
        if not isinstance(result.structured_content, dict):
            return InvalidOutput("no object", result=result)
        return original(self, result, server, look)

    return output_error


def _misspell(original: Function) -> Function:
    return lambda self: {**original(self), "type": "Object"}


def _never_list_again(original: Function) -> Function:
    def steps(host: Any) -> Any:
        if host._schemas.complete:
            return False
        return (yield from original(host))

    return steps


def _lose_the_content(original: Function) -> Function:
    def init(self: Any, result: Any, **named: Any) -> None:
        original(self, result.model_copy(update={"content": []}), **named)

    return init


MUTANTS = (
    Mutant(
        "draft-7-assumed",
        "a schema that names no dialect is read as draft-07",
        f"{SCHEMA}:dialect_of",
        _assume_draft_7,
        ("SCHM-01",),
    ),
    Mutant(
        "one-dialect-for-all",
        "every schema is read as 2020-12, whatever it names",
        f"{SCHEMA}:dialect_of",
        always(DEFAULT),
        ("SCHM-02", "SCHM-03"),
    ),
    Mutant(
        "dialect-guessed",
        "an unknown dialect is taken for 2020-12",
        f"{SCHEMA}:dialect_of",
        _guess_the_dialect,
        ("SCHM-03",),
    ),
    Mutant(
        "elsewhere-is-anything",
        "a reference that leads out of the schema allows everything",
        f"{SCHEMA}:resolve",
        _permit_what_is_elsewhere,
        ("SCHM-07",),
    ),
    Mutant(
        "elsewhere-is-fetched",
        "a reference that leads out of the schema is fetched unasked",
        f"{SCHEMA}:resolve",
        _fetch_what_is_elsewhere,
        ("SCHM-05", "SCHM-06"),
    ),
    Mutant(
        "schemas-of-any-size",
        "a schema may be as deep and as large as it likes",
        f"{SCHEMA}:measure",
        always(None),
        ("SCHM-08",),
    ),
    Mutant(
        "patterns-of-any-size",
        "a pattern may be as large as it likes",
        f"{SCHEMA}.patterns:MAX_PATTERN",
        lambda original: 10**9,
        ("SCHM-08",),
    ),
    Mutant(
        "data-is-an-object",
        "structured content that is no object is refused",
        f"{TOOLS}:ToolSchemas.output_error",
        _objects_only,
        ("SCHM-09",),
    ),
    Mutant(
        "types-misspelt",
        "the schemas that the test server makes name a type that there is not",
        "syncmcp.testing.server.features:Binding.schema",
        _misspell,
        ("SCHM-10",),
    ),
    Mutant(
        "output-unchecked",
        "whatever a tool gives is taken for what it should give",
        f"{TOOLS}:ToolSchemas.output_error",
        always(None),
        ("TOOL-02", "M-15", "29"),
    ),
    Mutant(
        "schemas-never-outdated",
        "a schema that a result does not fit is not fetched again",
        "syncmcp._client.tool_calls:_relist_tools",
        _never_list_again,
        ("29",),
    ),
    Mutant(
        "errors-without-content",
        "the error of a tool has lost what the tool said",
        "syncmcp.errors:ToolError.__init__",
        _lose_the_content,
        ("28", "TOOL-03"),
    ),
)
