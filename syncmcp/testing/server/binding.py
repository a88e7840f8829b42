"""From a function's signature to a JSON Schema, and from JSON arguments to a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from syncmcp.testing.server.context import ToolContext


class BadArguments(Exception):
    """The arguments do not fit the function's signature; the text says which and why."""


class Binding:
    """A function together with the model of its parameters.

    A parameter annotated `ToolContext` is left out of the schema and given the context.
    `**kwargs` accepts any further argument.

    Attributes:
        function: The function.
        returns: Its return annotation (`Any` when there is none).
        parameters: The names of its parameters without the context; the value says whether
            one must be given.
        description: Its docstring, or `None`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__name__} is a coroutine function; give a plain one")
        hints = get_type_hints(function, include_extras=True)
        self.function = function
        self.returns = hints.get("return", Any)
        self.description = inspect.getdoc(function)
        self.parameters: dict[str, bool] = {}
        self._context: str | None = None
        self._fields: dict[str, str] = {}
        extra: Any = "ignore"
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            name = parameter.name
            hint = hints.get(name, Any)
            required = parameter.default is inspect.Parameter.empty
            if hint is ToolContext:
                self._context = name
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                extra = "allow"
            elif parameter.kind not in (
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                inspect.Parameter.KEYWORD_ONLY,
            ):
                raise TypeError(f"{function.__name__}: {name} cannot be given by name")
            else:
                # Field names of our own: a parameter may be called `schema` or `_private`.
                field = f"parameter_{len(fields)}"
                default = ... if required else parameter.default
                fields[field] = (hint, Field(default, alias=name))
                self._fields[field] = name
                self.parameters[name] = required
        config = ConfigDict(extra=extra, arbitrary_types_allowed=True)
        self._model: type[BaseModel] = create_model(
            f"{function.__name__}Arguments", __config__=config, **fields
        )

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments; its root is an object."""
        return self._model.model_json_schema(by_alias=True)

    def call(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Check `arguments` and call the function on the current thread.

        Raises:
            BadArguments: They do not fit; the function was not called.
        """
        try:
            model = self._model.model_validate(arguments)
        except ValidationError as error:
            raise BadArguments(_explain(error)) from error
        values = {name: getattr(model, field) for field, name in self._fields.items()}
        values.update(model.model_extra or {})
        if self._context is not None:
            values[self._context] = context
        return self.function(**values)


def _explain(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in detail['loc']) or 'arguments'}: {detail['msg']}"
        for detail in error.errors(include_url=False)
    )
