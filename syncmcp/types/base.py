"""The base classes of the models, and the small constructs that many of them share.

The five revisions are named by their dates. "Since" (inclusive) and "before" say which of them
have a construct or a field; constructs and fields with neither word are in all five.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from inspect import Parameter, Signature
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    TypeAlias,
    TypeVar,
)

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema
from typing_extensions import Self

from syncmcp._base.building import build_lock
from syncmcp._base.similar import similar
from syncmcp._base.text import counted
from syncmcp.errors import InvalidOutput

Item = TypeVar("Item")

Role: TypeAlias = Literal["user", "assistant"]
"""The author of a prompt message or a sampling message."""


def field_of(value: Any, name: str) -> Any:
    """Return a field of a JSON object or a model, else ``None``; for discriminators."""
    if isinstance(value, dict):
        fields: dict[str, Any] = value
        return fields.get(name)
    return getattr(value, name, None)


def _absent_if_malformed(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


def _not_below_zero(value: Any) -> Any:
    return 0 if isinstance(value, (int, float)) and value < 0 else value


class _NullIsFalse:
    """Annotates a boolean that may be ``null`` in JSON, which is read as false."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        null = core_schema.no_info_after_validator_function(bool, core_schema.none_schema())
        return core_schema.union_schema(
            [handler(source), null], mode="left_to_right", custom_error_type="bool_parsing"
        )


Flag: TypeAlias = Annotated[bool, _NullIsFalse]
"""A boolean that is false if absent; some servers send ``null`` for that."""

Hint = WrapValidator(_absent_if_malformed)
"""Annotates an advisory field: a malformed value is read as absent, and the model stays valid."""


# The most items that the repr of a list names.
_SHOWN = 8


def _end_at_first_invalid_item(schema: Any) -> None:
    """Make the validation of lists stop at the first invalid item.

    Otherwise each one is reported: a list of two-byte items takes two hundred times its size.
    """
    if isinstance(schema, dict):
        if schema.get("type") == "list":
            schema["fail_fast"] = True
        if schema.get("type") != "model":  # a nested model has done this itself
            for part in schema.values():
                _end_at_first_invalid_item(part)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            _end_at_first_invalid_item(part)


class _Signature:
    """The signature of a model in `help()`: its fields, by their names in Python.

    The signature of pydantic has the JSON names, and requires that the model is built.
    """

    def __get__(self, instance: object, model: type[BaseModel]) -> Signature:
        parameters = []
        for name, field in model.model_fields.items():
            default = Parameter.empty
            if not field.is_required():
                default = field.get_default(call_default_factory=True)
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default))
        return Signature(parameters)


class WireModel(BaseModel):
    """The base of every model.

    Attributes are in snake_case, JSON names in camelCase (``_meta`` is ``meta``). Unknown fields
    are kept, but a keyword argument that looks like a misspelt field raises a `TypeError`. The
    validator of a model is built at its first use, by one thread at a time; any thread may use a
    model first.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,
        extra="allow",
        # Validation errors would otherwise quote cursors, tokens or content of a server.
        hide_input_in_errors=True,
        populate_by_name=True,
    )

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init_subclass__(cls, **options: Any) -> None:
            super().__init_subclass__(**options)
            cls._set_signature()

        def __init__(self, /, *values: Any, **data: Any) -> None:
            fields = type(self).model_fields
            if values:
                needed = [f"{name}=..." for name, field in fields.items() if field.is_required()]
                example = f"{type(self).__name__}({', '.join(needed)})"
                raise TypeError(f"the fields of a model are keyword arguments: {example}")
            for name in data.keys() - fields.keys():
                for close in similar(name, fields, 1):
                    if name not in (to_camel(close), fields[close].validation_alias):
                        text = f"{type(self).__name__}() got an unexpected keyword argument"
                        raise TypeError(f"{text} {name!r}: did you mean {close!r}?")
            super().__init__(**data)

        # As in pydantic's `__init__`: validation does not call this one, which saves time.
        __init__.__pydantic_base_init__ = True

    @classmethod
    def _set_signature(cls) -> None:
        cls.__signature__ = _Signature()  # type: ignore[assignment]

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Validate a JSON value, with the JSON names of the fields only.

        ``model_validate`` also accepts the name of an attribute (``is_error``) for a field
        (``isError``). In JSON, that name is an unknown field.

        Raises:
            pydantic.ValidationError: A required field is missing, or a field has a wrong type.
        """
        return cls.model_validate(value, by_alias=True, by_name=False)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Without absent fields: most fields are optional, and a result should fit on one line.
        return (pair for pair in super().__repr_args__() if pair[1] is not None)

    def to_wire(self) -> dict[str, Any]:
        """Return the model as a JSON object.

        The object contains all fields that were set, including nulls and unknown fields.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        schema: Any = handler(source)
        _end_at_first_invalid_item(handler.resolve_ref_schema(schema).get("schema"))
        return schema

    @classmethod
    def model_rebuild(
        cls,
        *,
        force: bool = False,
        raise_errors: bool = True,
        _parent_namespace_depth: int = 2,
        _types_namespace: Mapping[str, Any] | None = None,
    ) -> bool | None:
        """Build the validator of the model, in one thread at a time.

        Type names are never looked up in the caller's frame, because the caller may be any code
        that uses the model first.
        """
        with build_lock:
            built = super().model_rebuild(
                force=force,
                raise_errors=raise_errors,
                _parent_namespace_depth=0,
                _types_namespace=_types_namespace,
            )
            cls._set_signature()  # again: pydantic has just replaced it
            return built


class TaggedModel(WireModel):
    """A model with a constant field that names its type, and is always part of the JSON."""

    _tag: ClassVar[str] = "type"

    @model_serializer(mode="wrap")
    def _with_tag(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {self._tag: getattr(self, self._tag), **serialize(self)}


class MetaModel(WireModel):
    """A model with ``_meta``.

    Attributes:
        meta: Metadata of any kind; some keys are reserved (basic/index#meta). Parameters and
            results have it in all revisions, other constructs since 2025-06-18.
    """

    # Not `alias`: type checkers use that as the name of the constructor's argument.
    meta: dict[str, Any] | None = Field(
        default=None, validation_alias="_meta", serialization_alias="_meta"
    )


class TaskMetadata(WireModel):
    """Options of a request that is to run as a task (basic/utilities/tasks). Only 2025-11-25.

    Attributes:
        ttl: How long the server should keep the task, in milliseconds from its creation.
    """

    ttl: int | None = None


class RequestParams(MetaModel):
    """Parameters of a request of the server.

    Attributes:
        task: Present if the request is to run as a task (basic/utilities/tasks). Only 2025-11-25.
    """

    task: TaskMetadata | None = None


class Result(MetaModel):
    """The base of every result, and the model of an empty result (basic/index#responses).

    Attributes:
        result_type: ``"complete"``, ``"input_required"`` or a type that an extension defines;
            ``None`` means complete. Since 2026-07-28.
    """

    result_type: str | None = None

    def __iter__(self) -> NoReturn:
        """Raise a `TypeError`: only lists of items are iterated over."""
        raise TypeError(
            f"{type(self).__name__} is not iterable: read its attributes; to follow a call, write"
            " .stream(...)"
        )

    if not TYPE_CHECKING:  # type checkers know pydantic's, which gives the text of the whole model

        def json(self) -> NoReturn:
            """Raise a `TypeError`: only results of tools and resources have data as JSON."""
            raise TypeError(
                f"{type(self).__name__} has no data as JSON: read its attributes; to_wire() gives"
                " the whole result"
            )


class PaginatedResult(Result, Generic[Item]):
    """One page of a list, or a whole list (server/utilities/pagination).

    A program can iterate over it, count it and index it like the list of its items.

    Attributes:
        next_cursor: The opaque cursor of the next page. ``None`` on the last page; an empty string
            is a cursor.
    """

    _field: ClassVar[str]
    """The field with the items."""

    next_cursor: str | None = None

    def __class_getitem__(cls, item: object) -> type[Self]:
        # For type checkers only: a model for each type of item would slow down the import.
        return cls

    def __iter__(self) -> Iterator[Item]:  # type: ignore[override]
        """Iterate over the items."""
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, index: int) -> Item:
        return self._all()[index]

    def __repr__(self) -> str:
        names = [
            repr(getattr(each, "name", None) or getattr(each, "task_id", "?"))
            for each in self._all()[:_SHOWN]
        ]
        more = ["..."] if len(self) > _SHOWN else []
        what = counted(len(self), self._field.replace("_", " "))
        return f"<{type(self).__name__} of {what}{': ' * bool(names)}{', '.join(names + more)}>"

    __str__ = __repr__

    def _all(self) -> list[Item]:
        items: list[Item] = getattr(self, self._field)
        return items


class CacheableResult(Result):
    """A result with caching hints (server/utilities/caching). The hints exist since 2026-07-28.

    Attributes:
        ttl_ms: Milliseconds for which the result may be cached. A negative value is read as 0, a
            malformed one as ``None``.
        cache_scope: ``"public"`` or ``"private"``; every other value means private.
    """

    ttl_ms: Annotated[int | None, BeforeValidator(_not_below_zero), Hint] = None
    cache_scope: Annotated[Literal["public", "private"] | str | None, Hint] = None


class BaseMetadata(WireModel):
    """A name, and a title to show to people.

    Attributes:
        name: The identifier, for programs.
        title: The name for people. Since 2025-06-18.
    """

    name: str
    title: str | None = None

    @property
    def display_name(self) -> str:
        """The name to show to people: the title, else the name."""
        return self.title or self.name


class Icon(WireModel):
    """An image for a user interface (basic/index#icons). Since 2025-11-25.

    Attributes:
        src: An ``https:`` or ``data:`` URI, which is untrusted.
        mime_type: The media type of the image.
        sizes: The sizes of the image, each ``WIDTHxHEIGHT`` or ``"any"``.
        theme: The background that the icon is designed for.
    """

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | str | None = None


class Implementation(BaseMetadata):
    """Name and version of a client or server (basic/lifecycle#initialization).

    Attributes:
        version: The version of the software.
        description: What the software does. Since 2025-11-25.
        website_url: The URL of the website of the software. Since 2025-11-25.
        icons: The icons of the software. Since 2025-11-25.
    """

    version: str
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class Annotations(WireModel):
    """Untrusted hints on how to use content or a resource (server/resources#annotations).

    Attributes:
        audience: The roles that the content is meant for.
        priority: The importance, from 0 (entirely optional) to 1 (effectively required).
        last_modified: The time of the last change: an ISO 8601 date and time. Since 2025-06-18.
    """

    audience: list[Role | str] | None = None
    priority: float | None = None
    last_modified: str | None = None


class ErrorObject(WireModel):
    """The ``error`` member of a JSON-RPC response (basic/index#error-responses).

    Attributes:
        code: The error code of JSON-RPC or MCP.
        message: A short description, which is untrusted.
        data: Details, of any JSON type.
    """

    code: int
    message: str
    data: Any = None


# Decoding of binary fields.


def decode_base64(data: str, source: str) -> bytes:
    """Decode base64 strictly: no characters outside of its alphabet, and complete padding.

    Other data raise an `InvalidOutput` that names the `source`.
    """
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidOutput(f"the data of {source} is not base64: {error}") from error
