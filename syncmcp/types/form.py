"""The small part of JSON Schema that a form is made of.

See client/elicitation#requested-schema. Since 2025-06-18; defaults other than of booleans, lists
and titled choices by ``oneOf`` and ``anyOf`` since 2025-11-25.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from syncmcp.types.base import WireModel, field_of


class _Field(WireModel):
    title: str | None = None
    description: str | None = None


class StringSchema(_Field):
    """Free text.

    Attributes:
        min_length: In characters.
        max_length: In characters.
        pattern: A regular expression, untrusted. Only in the text of 2025-11-25, not in its schema.
    """

    type: Literal["string"]
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    format: Literal["email", "uri", "date", "date-time"] | str | None = None
    default: str | None = None


class NumberSchema(_Field):
    """A number."""

    type: Literal["number", "integer"]
    minimum: int | float | None = None
    maximum: int | float | None = None
    default: int | float | None = None


class BooleanSchema(_Field):
    """Yes or no."""

    type: Literal["boolean"]
    default: bool | None = None


class TitledOption(WireModel):
    """A value to choose and its name for people. Since 2025-11-25."""

    const: str
    title: str


class UntitledSingleSelectEnumSchema(_Field):
    """One of some values.

    Attributes:
        enum_names: Names of the values for people, in their order; the older way to title them.
    """

    type: Literal["string"]
    enum: list[str]
    enum_names: list[str] | None = None
    default: str | None = None


class TitledSingleSelectEnumSchema(_Field):
    """One of some titled values. Since 2025-11-25."""

    type: Literal["string"]
    one_of: list[TitledOption]
    default: str | None = None


class UntitledOptions(WireModel):
    """The values that a list is chosen from. Since 2025-11-25."""

    type: Literal["string"]
    enum: list[str]


class TitledOptions(WireModel):
    """The titled values that a list is chosen from. Since 2025-11-25."""

    any_of: list[TitledOption]


class _MultiSelect(_Field):
    type: Literal["array"]
    min_items: int | None = None
    max_items: int | None = None
    default: list[str] | None = None


class UntitledMultiSelectEnumSchema(_MultiSelect):
    """Some of some values. Since 2025-11-25."""

    items: UntitledOptions


class TitledMultiSelectEnumSchema(_MultiSelect):
    """Some of some titled values. Since 2025-11-25."""

    items: TitledOptions


def _kind(value: Any) -> str | None:
    if isinstance(value, WireModel):
        return type(value).__name__
    items = field_of(value, "items")
    match field_of(value, "type"):
        case "string" if field_of(value, "oneOf") is not None:
            return "TitledSingleSelectEnumSchema"
        case "string" if field_of(value, "enum") is not None:
            return "UntitledSingleSelectEnumSchema"
        case "string":
            return "StringSchema"
        case "number" | "integer":
            return "NumberSchema"
        case "boolean":
            return "BooleanSchema"
        case "array" if field_of(items, "anyOf") is not None:
            return "TitledMultiSelectEnumSchema"
        case "array":
            return "UntitledMultiSelectEnumSchema"
        case _:
            return None


PrimitiveSchemaDefinition: TypeAlias = Annotated[
    Annotated[StringSchema, Tag("StringSchema")]
    | Annotated[NumberSchema, Tag("NumberSchema")]
    | Annotated[BooleanSchema, Tag("BooleanSchema")]
    | Annotated[UntitledSingleSelectEnumSchema, Tag("UntitledSingleSelectEnumSchema")]
    | Annotated[TitledSingleSelectEnumSchema, Tag("TitledSingleSelectEnumSchema")]
    | Annotated[UntitledMultiSelectEnumSchema, Tag("UntitledMultiSelectEnumSchema")]
    | Annotated[TitledMultiSelectEnumSchema, Tag("TitledMultiSelectEnumSchema")],
    Discriminator(_kind),
]
"""One field of a form."""


class FormSchema(WireModel):
    """The schema of a form: ``FormSchema.from_wire(params.requested_schema)``.

    A schema that is more than a flat form fails to validate.

    Attributes:
        dialect: The ``$schema`` it names. Since 2025-11-25.
        properties: The fields, in the order to show them.
        required: Names of the fields that must be answered.
    """

    dialect: str | None = Field(
        default=None, validation_alias="$schema", serialization_alias="$schema"
    )
    type: Literal["object"]
    properties: dict[str, PrimitiveSchemaDefinition]
    required: list[str] | None = None
