"""What servers ask clients for: elicitation, sampling and roots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, field_validator
from typing_extensions import Self

from syncmcp.types.base import MetaModel, RequestParams, Result, Role, TaggedModel, WireModel
from syncmcp.types.content import SamplingMessageContentBlock, TextContent
from syncmcp.types.server_features import Tool

# Elicitation: a server asks the user with a form or a link (client/elicitation).


class ElicitRequestFormParams(RequestParams):
    """Parameters of ``elicitation/create`` for a form (client/elicitation#form-mode).

    Attributes:
        mode: Absent means a form. Since 2025-11-25.
        message: The text for the user, which says what the answers are for.
        requested_schema: The schema of the form, which is a flat object schema, exactly as the
            server sent it. `syncmcp.handlers.forms.Form` reads the schema.
    """

    mode: Literal["form"] | None = None
    message: str
    requested_schema: dict[str, Any]


class ElicitRequestURLParams(TaggedModel, RequestParams):
    """Parameters of ``elicitation/create`` for a URL. Since 2025-11-25.

    See client/elicitation#url-mode.

    Attributes:
        message: The text for the user, which says why to open the URL.
        url: The URL, which must not be opened without the user's consent.
        elicitation_id: Identifies the elicitation in ``notifications/elicitation/complete``.
            Required in 2025-11-25, absent in other revisions.
    """

    _tag: ClassVar[str] = "mode"

    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitation_id: str | None = None


FormValue: TypeAlias = str | int | float | bool | list[str]
"""The value of one field of a form."""


class ElicitResult(Result):
    """The result of ``elicitation/create`` (client/elicitation#response-actions).

    A handler makes one with `accept`, `decline` or `cancel`::

        def form(request, context):
            return syncmcp.types.ElicitResult.accept({"name": input(request.message)})

    Attributes:
        action: What the user did: ``"accept"``, ``"decline"`` or ``"cancel"``.
        content: The values of the form's fields by name; only for an accepted form. Lists of
            strings exist since 2025-11-25.
    """

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, FormValue] | None = None

    @classmethod
    def accept(cls, content: Mapping[str, FormValue] | None = None) -> Self:
        """Return the result of a user who agrees to open the URL, or submits a form with values.

        Raises:
            ValidationError: A value is of a type that no form has (pydantic's error). If a handler
                raises it, it has the effect of `syncmcp.InvalidAnswer`.
        """
        if content is not None and not isinstance(content, Mapping):
            raise TypeError(f"content must map fields to values, not be a {type(content).__name__}")
        return cls(action="accept", content=None if content is None else dict(content))

    @classmethod
    def decline(cls) -> Self:
        """Return the result of a user who declines explicitly."""
        return cls(action="decline")

    @classmethod
    def cancel(cls) -> Self:
        """Return the result of a user who dismisses the question without a decision."""
        return cls(action="cancel")


# Sampling: a server asks for a message of the client's model (client/sampling).


# As a model, a hint of two bytes takes five hundred.
MAX_HINTS = 1_000


class ModelHint(WireModel):
    """A hint at a model (client/sampling#model-preferences).

    Attributes:
        name: A part of the name of the model.
    """

    name: str | None = None


class ModelPreferences(WireModel):
    """The server's preferences in the choice of a model (client/sampling#model-preferences).

    Attributes:
        hints: Hints at models, in order of preference: the first one that matches counts. A request
            with more than 1,000 of them is invalid.
        cost_priority: How important low cost is, from 0 (not important) to 1.
        speed_priority: How important speed is, from 0 to 1.
        intelligence_priority: How important the model's capabilities are, from 0 to 1.
    """

    hints: Annotated[list[ModelHint], Field(max_length=MAX_HINTS)] | None = None
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


class _MessageBase(MetaModel):
    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]

    @field_validator("content", mode="before")
    @classmethod
    def _check_content(cls, value: object) -> object:
        if isinstance(value, str):  # otherwise pydantic lists every kind of block
            raise ValueError("a text is written TextContent(text=...)")  # noqa: TRY004
        return value

    @property
    def blocks(self) -> list[SamplingMessageContentBlock]:
        """The content as a list, even if it is a single block."""
        return self.content if isinstance(self.content, list) else [self.content]

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.blocks if isinstance(block, TextContent))


class SamplingMessage(_MessageBase):
    """A message of a conversation with a model (client/sampling#messages).

    Attributes:
        role: The author of the message.
        content: One block before 2025-11-25; one block or a list of blocks since 2025-11-25.
    """


class CreateMessageRequestParams(RequestParams):
    """Parameters of ``sampling/createMessage`` (client/sampling#creating-messages).

    Attributes:
        messages: The conversation so far.
        model_preferences: The server's preferences in the choice of a model.
        system_prompt: The system prompt that the server wants.
        include_context: Which context the client should add: ``"none"``, ``"thisServer"`` or
            ``"allServers"``.
        temperature: The sampling temperature.
        max_tokens: The maximum number of tokens in the model's answer.
        stop_sequences: Texts at which the model stops.
        metadata: Parameters for the provider of the model.
        tools: The tools that the model may use in this request. Since 2025-11-25.
        tool_choice: Whether the model may or must use tools. Since 2025-11-25.
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
        """Return the model that the server hints at (client/sampling#model-preferences).

        The hints are tried in order. A hint matches if it is a part of a name, ignoring case.

        Args:
            names: The names of the available models, the preferred ones first.

        Returns:
            One of `names`; `None` if there are no hints, or none matches.
        """
        known = list(names)
        hints = self.model_preferences.hints if self.model_preferences is not None else None
        for hint in hints or ():
            wanted = (hint.name or "").casefold()
            fitting = (name for name in known if wanted in name.casefold())
            # An empty hint would be a part of every name.
            if wanted and (chosen := next(fitting, None)) is not None:
                return chosen
        return None


class CreateMessageResult(_MessageBase, Result):
    """The result of ``sampling/createMessage`` (client/sampling#creating-messages).

    >>> from syncmcp.types import CreateMessageResult, TextContent
    >>> answer = TextContent(text="Blue light is scattered most.")
    >>> CreateMessageResult(role="assistant", content=answer, model="small-1").text
    'Blue light is scattered most.'

    Attributes:
        role: The author of the message.
        content: One block before 2025-11-25; one block or a list of blocks since 2025-11-25.
        model: The name of the model that answered.
        stop_reason: Why the model stopped: ``"endTurn"``, ``"stopSequence"``, ``"maxTokens"``,
            ``"toolUse"`` (since 2025-11-25) or any other string.
    """

    model: str
    stop_reason: Literal["endTurn", "stopSequence", "maxTokens", "toolUse"] | str | None = None


# Roots: the directories and files that servers may work with (client/roots).


class Root(MetaModel):
    """A directory or file that servers may work with (client/roots#root).

    >>> syncmcp.types.Root(uri="file:///srv/data", name="data").name
    'data'

    Attributes:
        uri: A ``file:`` URI.
        name: The name for people.
    """

    uri: str
    name: str | None = None


class ListRootsRequestParams(RequestParams):
    """Parameters of ``roots/list`` (client/roots#listing-roots)."""


class ListRootsResult(Result):
    """The result of ``roots/list`` (client/roots#listing-roots).

    Attributes:
        roots: The directories and files.
    """

    roots: list[Root]


# Questions of a server in a result (basic/patterns/mrtr). Since 2026-07-28.


class InputRequest(WireModel):
    """A question of the server, which is a request of its own before 2026-07-28.

    Attributes:
        method: ``"sampling/createMessage"``, ``"elicitation/create"`` or ``"roots/list"``.
        params: The parameters of a request of that method.
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
        """Return the parameters as the model of the method.

        Raises:
            ValueError: The parameters do not fit the model, or there is no such question.
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
        raise ValueError(f"this is not a question of a server: {self.method}")
