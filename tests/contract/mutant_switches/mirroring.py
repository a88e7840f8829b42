"""Mutants of arguments that headers repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncmcp._protocol import metadata as mirroring
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, result

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

MIRRORING = "syncmcp._protocol.metadata"
MIRRORS = f"{MIRRORING}:ParamHeaders"


def _by_properties_only(original: Function) -> Function:
    def subschemas(schema: Any) -> Any:
        return ((path, one) for path, one in original(schema) if path)

    return subschemas


def _whatever_the_name(original: Function) -> Function:
    def read(path: Any, schema: Any) -> Any:
        name = schema["x-mcp-header"]
        if not isinstance(name, str) or not mirroring._TOKEN.fullmatch(name):
            schema = {**schema, "x-mcp-header": "X"}
        return original(path, schema)

    return read


def _whatever_the_type(original: Function) -> Function:
    return lambda path, schema: original(path, {**schema, "type": "string"})


def _twins_in_other_case(original: Function) -> Function:
    def mirrors(schema: Any) -> Any:
        try:
            return original(schema)
        except mirroring.InvalidParamHeader as error:
            if "two properties" in str(error):
                return ()
            raise

    return mirrors


def _any_number(original: Function) -> Function:
    return lambda value, name: (
        str(int(value))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
        else original(value, name)
    )


def _keep_the_bad_ones(original: Function) -> Function:
    def admit(self: Any, tools: Any) -> Any:
        original(self, tools)
        return tools

    return admit


def _keep_the_first_marks(original: Function) -> Function:
    def learn(self: Any, tool: Any) -> Any:
        name = tool.get("name") if isinstance(tool, dict) else None
        before = self._tools.get(name)
        admitted = original(self, tool)
        if before is not None:
            self._tools[name] = before
        return admitted

    return learn


def _nulls_too(original: Function) -> Function:
    def mirrored(marked: Any, arguments: Any) -> Any:
        missing = {mirror.header: "" for mirror in marked}
        return {**missing, **original(marked, arguments)}

    return mirrored


def _without_empty_ones(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if value}


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "nothing-mirrored",
        "no header repeats an argument",
        f"{MIRRORS}.headers",
        always({}),
        ("XHD-01",),
    ),
    Mutant(
        "bad-marks-kept",
        "tools with bad marks stay in the list",
        f"{MIRRORS}.filter_tools",
        _keep_the_bad_ones,
        ("XHD-02",),
    ),
    Mutant(
        "marks-of-any-name",
        "a mark may be no HTTP token",
        f"{MIRRORING}:_read",
        _whatever_the_name,
        ("XHD-03",),
    ),
    Mutant(
        "marks-twice",
        "two marks may be the same but for their case",
        f"{MIRRORING}:param_headers",
        _twins_in_other_case,
        ("XHD-04",),
    ),
    Mutant(
        "marks-of-any-type",
        "numbers, objects and arrays may be marked",
        f"{MIRRORING}:_read",
        _whatever_the_type,
        ("XHD-05",),
    ),
    Mutant(
        "marks-anywhere",
        "a mark that something else than properties leads to is not seen",
        f"{MIRRORING}:_subschemas",
        _by_properties_only,
        ("XHD-06",),
    ),
    Mutant(
        "large-integers-mirrored",
        "integers that a double cannot hold go into headers",
        f"{MIRRORING}:_spelled",
        _any_number,
        ("XHD-07",),
    ),
    Mutant(
        "empty-strings-not-mirrored",
        "an empty string has no header",
        f"{MIRRORING}:header_values",
        result(_without_empty_ones),
        ("XHD-09",),
    ),
    Mutant(
        "nulls-mirrored",
        "what is null or absent has a header",
        f"{MIRRORING}:header_values",
        _nulls_too,
        ("XHD-10",),
    ),
    Mutant(
        "values-as-they-are",
        "values go into headers without Base64",
        f"{MIRRORING}:encode_value",
        lambda original: lambda text: text,
        ("XHD-11", "XHD-12"),
    ),
    Mutant(
        "first-marks-kept",
        "the marks of the first list are used for ever",
        f"{MIRRORS}._record_tool",
        _keep_the_first_marks,
        ("XHD-13",),
    ),
)
