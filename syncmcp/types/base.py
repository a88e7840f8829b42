"""The base of all wire models and the small constructs shared by many of them.

The five revisions are named by their dates. "Since" and "until" (both inclusive) tell which of
them have a construct or a field; what carries neither mark is in all five.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
)
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self


ProgressToken: TypeAlias = str | int
"""An opaque token that pairs progress notifications with a request (basic/utilities/progress)."""

RequestId: TypeAlias = str | int
"""The id of a JSON-RPC request, unique among the requests of its sender."""

Role: TypeAlias = Literal["user", "assistant"]
"""Who speaks in a prompt or sampling message."""

# Held while a model is built: two threads that use one for the first time at once must not both
# do it, and pydantic 2.12 has no lock of its own. Reentrant, as a build may trigger another.
_building = threading.RLock()


def field_of(value: Any, name: str) -> Any:
    """Return a field of a JSON object or of a model, ``None`` if it has none; to tell unions."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).get(name)
    return getattr(value, name, None)


def _null_is_false(value: Any) -> Any:
    return False if value is None else value


def _absent_if_malformed(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


def _not_below_zero(value: Any) -> Any:
    return 0 if isinstance(value, (int, float)) and value < 0 else value


Flag: TypeAlias = Annotated[bool, BeforeValidator(_null_is_false)]
"""A boolean that is false when absent; some servers send ``null`` for that."""

Hint = WrapValidator(_absent_if_malformed)
"""Marks an advisory field: a malformed value reads as absent and does not fail its model."""


class WireModel(BaseModel):
    """Base of every wire model.

    Attributes are snake_case, wire names camelCase (``_meta`` is ``meta``). Unknown fields are
    kept. A model is built at its first use, by one thread; any thread may be the first.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,
        extra="allow",
        # A message of the validator would quote a server's cursor, token or content.
        hide_input_in_errors=True,
        populate_by_name=True,
    )

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Validate a JSON value by its wire names alone.

        Unlike ``model_validate`` it never takes an unknown field that happens to have the name
        of an attribute (``is_error``) for the field itself (``isError``).

        Raises:
            pydantic.ValidationError: If a required field is missing or a field has a wrong type.
        """
        return cls.model_validate(value, by_alias=True, by_name=False)

    def to_wire(self) -> dict[str, Any]:
        """Return the model as a JSON object: what was set, nulls and unknown fields included."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @classmethod
    def model_rebuild(
        cls,
        *,
        force: bool = False,
        raise_errors: bool = True,
        _parent_namespace_depth: int = 2,
        _types_namespace: Mapping[str, Any] | None = None,
    ) -> bool | None:
        """Build the model, in one thread at a time.

        Names are never looked up in the frame of the caller, who merely is the first to use it.
        """
        with _building:
            return super().model_rebuild(
                force=force,
                raise_errors=raise_errors,
                _parent_namespace_depth=0,
                _types_namespace=_types_namespace,
            )


class TaggedModel(WireModel):
    """A model with a constant field that names its kind, written even if the caller left it out."""

    _tag: ClassVar[str] = "type"

    @model_serializer(mode="wrap")
    def _with_tag(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {self._tag: getattr(self, self._tag), **serialize(self)}


class MetaModel(WireModel):
    """A model with ``_meta``.

    Attributes:
        meta: Free metadata; some keys are reserved (basic/index#meta). Constructs other than
            params and results have it since 2025-06-18.
    """

    # Not `alias`: type checkers would then take it for the name of the constructor's argument.
    meta: dict[str, Any] | None = Field(
        default=None, validation_alias="_meta", serialization_alias="_meta"
    )


class TaskMetadata(WireModel):
    """How a request is to be run as a task (basic/utilities/tasks). Only 2025-11-25.

    Attributes:
        ttl: Milliseconds to keep the task, from its creation.
    """

    ttl: int | None = None


class RequestParams(MetaModel):
    """Parameters of a request from a server.

    Attributes:
        task: Asks for the request to be run as a task (basic/utilities/tasks). Only 2025-11-25.
    """

    task: TaskMetadata | None = None


class NotificationParams(MetaModel):
    """Parameters of a notification; all there are for the ``list_changed`` notifications."""

    @property
    def subscription_id(self) -> RequestId | None:
        """Id of the ``subscriptions/listen`` request it belongs to. Since 2026-07-28."""
        return _subscription_id(self.meta)


class Result(MetaModel):
    """What every result has; alone it is the empty result (basic/index#responses).

    Attributes:
        result_type: ``"complete"``, ``"input_required"`` or the type an extension names; absent
            means complete. Since 2026-07-28.
    """

    result_type: str | None = None

    @property
    def served_by(self) -> Implementation | None:
        """The server by its own, unverified word; ``None`` if absent or malformed.

        For display and logs, never for decisions. Since 2026-07-28.
        """
        try:
            return Implementation.from_wire((self.meta or {}).get(_SERVER_INFO))
        except ValidationError:
            return None

    @property
    def subscription_id(self) -> RequestId | None:
        """Id of the ``subscriptions/listen`` request that it ends. Since 2026-07-28."""
        return _subscription_id(self.meta)


class PaginatedResult(Result):
    """One page of a list (server/utilities/pagination).

    Attributes:
        next_cursor: Opaque; ``None`` is the last page, an empty string is a cursor.
    """

    next_cursor: str | None = None


class CacheableResult(Result):
    """A result with caching hints (server/utilities/caching). Hints since 2026-07-28.

    Attributes:
        ttl_ms: Milliseconds for which the result is fresh. Negative reads as 0, malformed as
            ``None``.
        cache_scope: ``"public"`` or ``"private"``; anything else is to be treated as private.
    """

    ttl_ms: Annotated[int | None, BeforeValidator(_not_below_zero), Hint] = None
    cache_scope: Annotated[Literal["public", "private"] | str | None, Hint] = None


class BaseMetadata(WireModel):
    """A name for programs and one for people.

    Attributes:
        title: Since 2025-06-18.
    """

    name: str
    title: str | None = None

    @property
    def display_name(self) -> str:
        """The name to show to people."""
        return self.title or self.name


class Icon(WireModel):
    """An image for a user interface (basic/index#icons). Since 2025-11-25.

    Attributes:
        src: An ``https:`` or ``data:`` URI, untrusted.
        sizes: ``WIDTHxHEIGHT`` each, or ``"any"``.
        theme: The background it is made for.
    """

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | str | None = None


class Implementation(BaseMetadata):
    """Name and version of a client or server (basic/lifecycle#initialization).

    Attributes:
        description: Since 2025-11-25.
        website_url: Since 2025-11-25.
        icons: Since 2025-11-25.
    """

    version: str
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class Annotations(WireModel):
    """Untrusted hints on how to use content or a resource (server/resources#annotations).

    Attributes:
        audience: For whom it is meant.
        priority: From 0 (entirely optional) to 1 (effectively required).
        last_modified: An ISO 8601 date and time. Since 2025-06-18.
    """

    audience: list[Role | str] | None = None
    priority: float | None = None
    last_modified: str | None = None


class ErrorObject(WireModel):
    """The ``error`` member of a JSON-RPC response (basic/index#error-responses)."""

    code: int
    message: str
    data: Any = None


_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


def _subscription_id(meta: dict[str, Any] | None) -> RequestId | None:
    value = (meta or {}).get(_SUBSCRIPTION_ID)
    return value if isinstance(value, (str, int)) and not isinstance(value, bool) else None


# Decoding of binary fields.


def decode_base64(data: str, source: str) -> bytes:
    """Decode base64 strictly: nothing but its alphabet, with complete padding.

    Args:
        data: The encoded bytes.
        source: What holds them, for the error message.

    Raises:
        syncmcp.errors.InvalidOutput: If ``data`` is not base64.
    """
    import base64

    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        from syncmcp.errors import InvalidOutput

        raise InvalidOutput(f"the data of {source} is not base64: {error}") from error
