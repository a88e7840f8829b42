"""Elicitation: a server asks the user (client/elicitation). Since 2025-06-18."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Tag

from syncmcp.types.base import RequestParams, Result, TaggedModel, field_of

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
