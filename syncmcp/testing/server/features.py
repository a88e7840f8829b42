"""What a server offers: tools, resources, templates, prompts and completion.

Every method here that answers a request has the signature `(params, context) -> result`.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncmcp.templates import UriTemplate
from syncmcp.testing.server.binding import BadArguments, Binding
from syncmcp.testing.server.context import ToolContext
from syncmcp.testing.server.revisions import STATELESS, since
from syncmcp.testing.server.tool import Tool
from syncmcp.testing.server.wire import (
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    Message,
    RpcError,
    encode,
    text_of,
)

Completer = Callable[[str, Mapping[str, str]], Sequence[str]]

_MOST_COMPLETIONS = 100


class Resource:
    """A resource, or a template of resources when `template` is true."""

    def __init__(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        template: bool,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
    ) -> None:
        self.uri = uri
        self.mime_type = mime_type
        self._binding = Binding(function)
        self._template = template
        self._name = name or function.__name__
        self._title = title
        self._description = description or self._binding.description
        self._family = UriTemplate(uri) if template else None
        if self._family is not None and self._family.ambiguity is not None:
            raise ValueError(f"{uri} cannot be offered: {self._family.ambiguity}")

    def match(self, uri: str) -> Mapping[str, str | list[str]] | None:
        """Return the variables `uri` gives the template (`{}` without any), or `None`."""
        if self._family is None:
            return {} if uri == self.uri else None
        return self._family.match(uri)

    def describe(self, revision: str) -> Message:
        """Return the entry in the list of resources or templates."""
        entry: Message = {"uriTemplate" if self._template else "uri": self.uri, "name": self._name}
        if self._title is not None and since(revision, "2025-06-18"):
            entry["title"] = self._title
        if self._description is not None:
            entry["description"] = self._description
        if self.mime_type is not None:
            entry["mimeType"] = self.mime_type
        return entry

    def read(self, uri: str, variables: Mapping[str, Any], context: ToolContext) -> list[Any]:
        """Run the function on the current thread and return `contents`."""
        value = self._binding.call(variables, context)
        if isinstance(value, list):
            return value
        entry: Message = {"uri": uri}
        if self.mime_type is not None:
            entry["mimeType"] = self.mime_type
        if isinstance(value, bytes):
            entry["blob"] = base64.b64encode(value).decode()
        else:
            entry["text"] = value if isinstance(value, str) else encode(value).decode()
        return [entry]


class Prompt:
    """A prompt; its arguments are the function's parameters."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
    ) -> None:
        self._binding = Binding(function)
        self.name = name or function.__name__
        self._title = title
        self._description = description or self._binding.description

    def describe(self, revision: str) -> Message:
        """Return the entry in `prompts/list`."""
        entry: Message = {"name": self.name}
        if self._title is not None and since(revision, "2025-06-18"):
            entry["title"] = self._title
        if self._description is not None:
            entry["description"] = self._description
        if self._binding.parameters:
            entry["arguments"] = [
                {"name": name, "required": required}
                for name, required in self._binding.parameters.items()
            ]
        return entry

    def get(self, arguments: Mapping[str, Any], context: ToolContext) -> Message:
        """Run the function on the current thread and return the `prompts/get` result."""
        value = self._binding.call(arguments, context)
        if isinstance(value, dict) and "messages" in value:
            return value
        messages = value if isinstance(value, list) else [value]
        result: Message = {"messages": [_prompt_message(message) for message in messages]}
        if self._description is not None:
            result["description"] = self._description
        return result


class Features:
    """The registries of one server. Entries may come and go while it runs."""

    def __init__(self, page_size: int | None) -> None:
        if page_size is not None and page_size < 1:
            raise ValueError("page_size must be at least 1")
        self._page_size = page_size
        self._lock = threading.Lock()  # Guards the registries below.
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completers: dict[tuple[str, str, str], Completer] = {}

    def put(self, registry: dict[Any, Any], key: Any, value: Any) -> None:
        """Add or replace an entry."""
        with self._lock:
            registry[key] = value

    def take(self, registry: dict[Any, Any], key: Any) -> None:
        """Remove an entry; `KeyError` if there is none."""
        with self._lock:
            del registry[key]

    def capabilities(self, revision: str) -> Message:
        """Return the capability objects for what is registered now."""
        capabilities: Message = {"logging": {}}
        if self.tools:
            capabilities["tools"] = {"listChanged": True}
        if self.resources or self.templates:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self.prompts:
            capabilities["prompts"] = {"listChanged": True}
        if self.completers and since(revision, "2025-03-26"):
            capabilities["completions"] = {}
        return capabilities

    def list_tools(self, params: Message, context: ToolContext) -> Message:
        """Answer `tools/list`."""
        return self.page("tools", self.tools, params, context)

    def list_resources(self, params: Message, context: ToolContext) -> Message:
        """Answer `resources/list`."""
        return self.page("resources", self.resources, params, context)

    def list_templates(self, params: Message, context: ToolContext) -> Message:
        """Answer `resources/templates/list`."""
        return self.page("resourceTemplates", self.templates, params, context)

    def list_prompts(self, params: Message, context: ToolContext) -> Message:
        """Answer `prompts/list`."""
        return self.page("prompts", self.prompts, params, context)

    def call_tool(self, params: Message, context: ToolContext) -> Message:
        """Answer `tools/call`; the tool runs on the current thread."""
        name = text_of(params, "name")
        tool = self.tools.get(name)
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        return tool.call(_arguments(params), context)

    def read_resource(self, params: Message, context: ToolContext) -> Message:
        """Answer `resources/read`."""
        uri = text_of(params, "uri")
        with self._lock:
            candidates = [*self.resources.values(), *self.templates.values()]
        for resource in candidates:
            variables = resource.match(uri)
            if variables is not None:
                return {"contents": resource.read(uri, variables, context)}
        code = INVALID_PARAMS if context.revision in STATELESS else RESOURCE_NOT_FOUND
        raise RpcError(code, f"Resource not found: {uri}", {"uri": uri})

    def get_prompt(self, params: Message, context: ToolContext) -> Message:
        """Answer `prompts/get`."""
        name = text_of(params, "name")
        prompt = self.prompts.get(name)
        if prompt is None:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {name}")
        try:
            return prompt.get(_arguments(params), context)
        except BadArguments as error:
            raise RpcError(INVALID_PARAMS, f"Invalid arguments for {name}: {error}") from error

    def complete(self, params: Message, context: ToolContext) -> Message:
        """Answer `completion/complete`; what nobody completes gets no values."""
        ref, argument = params.get("ref"), params.get("argument")
        if not isinstance(ref, dict) or not isinstance(argument, dict):
            raise RpcError(INVALID_PARAMS, "params.ref and params.argument must be objects")
        kind = text_of(ref, "type")
        if kind not in ("ref/prompt", "ref/resource"):
            raise RpcError(INVALID_PARAMS, f"Unknown reference type: {kind}")
        target = text_of(ref, "name" if kind == "ref/prompt" else "uri")
        known = self.prompts if kind == "ref/prompt" else {**self.templates, **self.resources}
        if target not in known:
            raise RpcError(INVALID_PARAMS, f"Unknown reference: {target}")
        completer = self.completers.get((kind, target, text_of(argument, "name")))
        given = params.get("context")
        earlier = given.get("arguments", {}) if isinstance(given, dict) else {}
        values = list(completer(text_of(argument, "value"), earlier)) if completer else []
        return {
            "completion": {
                "values": values[:_MOST_COMPLETIONS],
                "total": len(values),
                "hasMore": len(values) > _MOST_COMPLETIONS,
            }
        }

    def page(
        self, name: str, registry: Mapping[str, Any], params: Message, context: ToolContext
    ) -> Message:
        """Answer a list request from `registry`, whose values describe themselves."""
        with self._lock:
            entries = [entry.describe(context.revision) for entry in registry.values()]
        return self.one_page(name, entries, params)

    def one_page(self, name: str, entries: list[Message], params: Message) -> Message:
        """Return the page of `entries` that is asked for."""
        start = _position(name, params.get("cursor"))
        end = len(entries) if self._page_size is None else start + self._page_size
        result: Message = {name: entries[start:end]}
        if end < len(entries):
            result["nextCursor"] = _cursor(name, end)
        return result


def _arguments(params: Message) -> Message:
    arguments = params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise RpcError(INVALID_PARAMS, "params.arguments must be an object")
    return arguments


def _cursor(name: str, position: int) -> str:
    return base64.urlsafe_b64encode(f"{name}:{position}".encode()).decode()


def _position(name: str, cursor: object) -> int:
    if cursor is None:
        return 0
    try:
        kind, position = base64.urlsafe_b64decode(str(cursor)).decode("ascii").split(":")
        if kind == name and position.isdecimal():
            return int(position)
    except ValueError:
        pass  # Said below, together with cursors of another list.
    raise RpcError(INVALID_PARAMS, "Invalid cursor")


def _prompt_message(message: Any) -> Message:
    if isinstance(message, dict):
        return message
    return {"role": "user", "content": {"type": "text", "text": str(message)}}
