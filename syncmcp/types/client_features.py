"""Elicitation: a server asks the user, by a form or a link (client/elicitation)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from syncmcp.types.base import (
    MetaModel,
    RequestParams,
    Result,
    Role,
    TaggedModel,
    WireModel,
    field_of,
)
from syncmcp.types.content import SamplingMessageContentBlock, TextContent
from syncmcp.types.lifecycle import ClientCapabilities
from syncmcp.types.server_features import Tool

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


# Sampling: a server asks for a completion by the client's model (client/sampling).


class ModelHint(WireModel):
    """A wish for a model (client/sampling#model-preferences).

    Attributes:
        name: To be found within the name of a model.
    """

    name: str | None = None


class ModelPreferences(WireModel):
    """What matters in the choice of a model (client/sampling#model-preferences).

    Attributes:
        hints: In order of preference; the first that fits wins.
        cost_priority: From 0 (cost does not matter) to 1.
        speed_priority: From 0 to 1.
        intelligence_priority: From 0 to 1.
    """

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class ToolChoice(WireModel):
    """Whether the model may or must use tools. Since 2025-11-25.

    See client/sampling#tool-choice-modes.

    Attributes:
        mode: Absent means ``"auto"``.
    """

    mode: Literal["auto", "required", "none"] | str | None = None


class _Spoken(MetaModel):
    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]

    @property
    def blocks(self) -> list[SamplingMessageContentBlock]:
        """The content as a list, however it was sent."""
        return self.content if isinstance(self.content, list) else [self.content]

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.blocks if isinstance(block, TextContent))


class SamplingMessage(_Spoken):
    """A message to or from a model (client/sampling#messages).

    Attributes:
        content: One block until 2025-06-18; one or a list of them since 2025-11-25.
    """


class CreateMessageRequestParams(RequestParams):
    """Parameters of ``sampling/createMessage`` (client/sampling#creating-messages).

    Attributes:
        include_context: ``"none"``, ``"thisServer"`` or ``"allServers"``.
        max_tokens: The model must not write more.
        metadata: For the provider of the model.
        tools: Tools the model may use, for this request alone. Since 2025-11-25.
        tool_choice: Since 2025-11-25.
    """

    messages: list[SamplingMessage]
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | str | None = None
    temperature: float | None = None
    max_tokens: int
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None

    def preferred_model(self, names: Iterable[str]) -> str | None:
        """The model that the server hints at (client/sampling#model-preferences).

        Its hints are tried in their order, each as a part of a name, in any case; the first that
        fits wins.

        Args:
            names: The models there are, the better choice first.

        Returns:
            One of `names`; `None` if no hint fits, or there is none.
        """
        known = list(names)
        hints = self.model_preferences.hints if self.model_preferences is not None else None
        for hint in hints or ():
            wanted = (hint.name or "").casefold()
            fitting = (name for name in known if wanted in name.casefold())
            # Nothing is a part of every name, and no hint.
            if wanted and (chosen := next(fitting, None)) is not None:
                return chosen
        return None


class CreateMessageResult(_Spoken, Result):
    """Answer to ``sampling/createMessage`` (client/sampling#creating-messages).

    Attributes:
        content: One block until 2025-06-18; one or a list of them since 2025-11-25.
        model: The model that answered.
        stop_reason: ``"endTurn"``, ``"stopSequence"``, ``"maxTokens"``, ``"toolUse"`` (since
            2025-11-25) or any other string.
    """

    model: str
    stop_reason: Literal["endTurn", "stopSequence", "maxTokens", "toolUse"] | str | None = None


# Questions of a server inside of a result (basic/patterns/mrtr). Since 2026-07-28.


# The ``data`` of errors that say more than their message (basic/index#error-codes).


class UnsupportedProtocolVersionErrorData(WireModel):
    """Data of error -32022 (basic/versioning). Since 2026-07-28.

    Attributes:
        supported: The revisions that the server speaks.
        requested: The one that it was asked to speak.
    """

    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityErrorData(WireModel):
    """Data of error -32021 (basic/index#error-codes). Since 2026-07-28.

    Attributes:
        required_capabilities: What the client would have to declare.
    """

    required_capabilities: ClientCapabilities


class URLElicitationRequiredErrorData(WireModel):
    """Data of error -32042. Only 2025-11-25.

    See client/elicitation#url-elicitation-required-error.

    Attributes:
        elicitations: Where to send the user before the request is sent again.
    """

    elicitations: list[ElicitRequestURLParams]


# Roots: where a client lets servers work (client/roots).


class Root(MetaModel):
    """A directory or file (client/roots#root).

    Attributes:
        uri: A ``file:`` URI.
    """

    uri: str
    name: str | None = None


class ListRootsRequestParams(RequestParams):
    """Parameters of ``roots/list`` (client/roots#listing-roots)."""


class ListRootsResult(Result):
    """Answer to ``roots/list`` (client/roots#listing-roots)."""

    roots: list[Root]


class InputRequest(WireModel):
    """A question: what would have been a request of the server in an older revision.

    Attributes:
        method: ``"sampling/createMessage"``, ``"elicitation/create"`` or ``"roots/list"``.
        params: As in a request of that method.
    """

    method: str
    params: dict[str, Any] | None = None

    def read(
        self,
    ) -> (
        CreateMessageRequestParams
        | ElicitRequestFormParams
        | ElicitRequestURLParams
        | ListRootsRequestParams
    ):
        """The parameters as the model of that method.

        Raises:
            ValueError: They do not fit it, or there is no such question.
        """
        params = self.params or {}
        if self.method == "sampling/createMessage":
            return CreateMessageRequestParams.from_wire(params)
        if self.method == "roots/list":
            return ListRootsRequestParams.from_wire(params)
        if self.method == "elicitation/create" and params.get("mode", "form") == "form":
            return ElicitRequestFormParams.from_wire(params)
        if self.method == "elicitation/create" and params["mode"] == "url":
            return ElicitRequestURLParams.from_wire(params)
        raise ValueError(f"this is no question of a server: {self.method}")


class InputRequiredResult(Result):
    """The server wants answers before it gives a result (basic/patterns/mrtr).

    Attributes:
        input_requests: The questions by key; the answers go back under the same keys.
        request_state: Opaque and secret; goes back exactly as it came, an empty string too.
    """

    input_requests: dict[str, InputRequest] | None = None
    request_state: str | None = None
