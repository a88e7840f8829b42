"""Elicitation: a server asks the user, by a form or a link (client/elicitation)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from syncmcp.types.base import RequestParams, Result, TaggedModel, WireModel, field_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self


class ElicitRequestFormParams(RequestParams):
    """Parameters of ``elicitation/create`` for a form (client/elicitation#form-mode).

    Attributes:
        mode: Absent means a form. Since 2025-11-25.
        message: Says what the answers are for.
        requested_schema: A flat object schema, exactly as it came; `FormSchema` reads it.
    """

    mode: Literal["form"] | None = None
    message: str
    requested_schema: dict[str, Any]


class ElicitRequestURLParams(TaggedModel, RequestParams):
    """Parameters of ``elicitation/create`` for a URL. Since 2025-11-25.

    See client/elicitation#url-mode.

    Attributes:
        message: Says why the user should go there.
        url: Where to send the user; not to be opened without consent.
        elicitation_id: Required and only in 2025-11-25.
    """

    _tag: ClassVar[str] = "mode"

    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitation_id: str | None = None


def _mode(value: Any) -> str | None:
    mode = field_of(value, "mode")
    if mode is None:
        return "form"
    # No tag makes an odd mode an error: to show a form for it could mislead the user.
    return mode if isinstance(mode, str) else None


ElicitRequestParams: TypeAlias = Annotated[
    Annotated[ElicitRequestFormParams, Tag("form")] | Annotated[ElicitRequestURLParams, Tag("url")],
    Discriminator(_mode),
]
"""Parameters of ``elicitation/create``."""


FormValue: TypeAlias = str | int | float | bool | list[str]
"""An answer in a form."""


class ElicitResult(Result):
    """Answer to ``elicitation/create`` (client/elicitation#response-actions).

    Attributes:
        content: The answers by property, only for an accepted form. Lists of strings since
            2025-11-25.
    """

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, FormValue] | None = None

    @classmethod
    def accept(cls, content: Mapping[str, FormValue] | None = None) -> Self:
        """The person agrees, and for a form gives these answers.

        Raises:
            ValidationError: A value is of a type that no form has (pydantic's error). Where a
                handler raises it, it counts as a `syncmcp.InvalidAnswer`.
        """
        return cls(action="accept", content=None if content is None else dict(content))

    @classmethod
    def decline(cls) -> Self:
        """The person says no."""
        return cls(action="decline")

    @classmethod
    def cancel(cls) -> Self:
        """The person does not decide."""
        return cls(action="cancel")


# The small part of JSON Schema that a form is made of.
#
# See client/elicitation#requested-schema. Since 2025-06-18; defaults other than of booleans,
# lists and titled choices by ``oneOf`` and ``anyOf`` since 2025-11-25.


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
