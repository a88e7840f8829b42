"""Sampling: a server asks for a completion by the client's model (client/sampling)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from syncmcp.types.base import MetaModel, RequestParams, Result, Role, WireModel
from syncmcp.types.content import SamplingMessageContentBlock, TextContent
from syncmcp.types.tool import Tool


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
