"""One tool: how it is listed, how it is called, how what it returns becomes a result."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_origin

from pydantic import BaseModel, TypeAdapter
from typing_extensions import is_typeddict

from syncmcp.testing.server import wire
from syncmcp.testing.server.binding import BadArguments, Binding
from syncmcp.testing.server.context import ToolContext
from syncmcp.testing.server.revisions import since
from syncmcp.testing.server.wire import Message, RpcError

TaskSupport = Literal["forbidden", "optional", "required"]

_logger = logging.getLogger(__name__)


class Tool:
    """A function offered as a tool.

    Attributes:
        name: The name it is called by.
        input_schema: The JSON Schema of its arguments.
        output_schema: The JSON Schema of its structured result, or `None`.
        task_support: Whether it runs as a task; `None` says nothing, which means no.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        task_support: TaskSupport | None = None,
    ) -> None:
        self._binding = Binding(function)
        self.name = name or function.__name__
        self.input_schema: Message = dict(input_schema or self._binding.schema())
        self.output_schema = (
            dict(output_schema) if output_schema is not None else _schema_of(self._binding.returns)
        )
        self._title = title
        self._description = description or self._binding.description
        self._annotations = dict(annotations) if annotations else None
        self._meta = dict(meta) if meta else None
        self.task_support = task_support

    def describe(self, revision: str) -> Message:
        """Return the tool's entry in `tools/list` as `revision` has it."""
        entry: Message = {"name": self.name, "inputSchema": self.input_schema}
        if self._description is not None:
            entry["description"] = self._description
        if self._annotations is not None and since(revision, "2025-03-26"):
            entry["annotations"] = self._annotations
        if self._title is not None and since(revision, "2025-06-18"):
            entry["title"] = self._title
        if self.output_schema is not None and self._structured(revision):
            entry["outputSchema"] = self.output_schema
        if self._meta is not None and since(revision, "2025-06-18"):
            entry["_meta"] = self._meta
        if self.task_support is not None and revision == "2025-11-25":
            entry["execution"] = {"taskSupport": self.task_support}
        return entry

    def call(self, arguments: Mapping[str, Any], context: ToolContext) -> Message:
        """Run the tool on the current thread and return its `tools/call` result.

        Whatever the function raises becomes a result with `isError`, its text first.

        Raises:
            RpcError: The function raised one: it is the answer.
        """
        try:
            value = self._binding.call(arguments, context)
        except RpcError:
            raise
        except BadArguments as error:
            return _failed(f"Invalid arguments for {self.name}: {error}")
        except Exception as error:
            # A tool is foreign code: any failure of it is an answer, never the server's end.
            _logger.debug("tool %s failed", self.name, exc_info=True)
            return _failed(str(error) or type(error).__name__)
        return self._result(value, context.revision)

    def _structured(self, revision: str) -> bool:
        """Structured output came with 2025-06-18; before 2026-07-28 its root was an object."""
        if self.output_schema is None or not since(revision, "2025-06-18"):
            return False
        return self.output_schema.get("type") == "object" or since(revision, "2026-07-28")

    def _result(self, value: Any, revision: str) -> Message:
        value = _plain(value)
        if isinstance(value, dict) and isinstance(value.get("content"), list):
            return dict(value)
        result: Message = {"content": _content(value)}
        if self._structured(revision):
            result["structuredContent"] = value
        return result


def _failed(text: str) -> Message:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def _content(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list) and value and all(_is_block(item) for item in value):
        return value
    if _is_block(value):
        return [value]
    text = value if isinstance(value, str) else wire.encode(value).decode()
    return [{"type": "text", "text": text}]


def _is_block(value: Any) -> bool:
    kinds = ("text", "image", "audio", "resource", "resource_link")
    return isinstance(value, dict) and value.get("type") in kinds


def _schema_of(returns: Any) -> Message | None:
    """Return the schema of a structured return annotation, `None` for any other."""
    structured = (
        is_typeddict(returns)
        or (isinstance(returns, type) and issubclass(returns, BaseModel))
        or (isinstance(returns, type) and dataclasses.is_dataclass(returns))
        or get_origin(returns) is dict
    )
    if not structured:
        return None
    return TypeAdapter(returns).json_schema(mode="serialization", by_alias=True)
