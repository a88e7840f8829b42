"""The features of a server: tools, resources, templates, prompts, completion and skills.

Every method of `Features` that handles a request has the signature `(params, context) -> result`.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import PydanticSerializationError
from typing_extensions import is_typeddict

from syncmcp._base.checks import kind_of
from syncmcp.templates import UriTemplate
from syncmcp.testing.server import wire
from syncmcp.testing.server.context import ToolContext
from syncmcp.testing.server.wire import Message, RpcError
from syncmcp.types.base import WireModel

TASKS = "io.modelcontextprotocol/tasks"
TASKS_REVISION = "2025-11-25"
"""The revision with tasks in the core protocol; in 2026-07-28 they are an extension."""
SKILLS = "io.modelcontextprotocol/skills"

_DIRECTORY = "inode/directory"

# From a function's signature to a JSON Schema, and from JSON arguments to a call.


class InvalidArguments(Exception):
    """The arguments do not match the function's signature; the text says which and why."""


class Binding:
    """A function with its name and texts for people, and the pydantic model of its parameters.

    This is the base class of tools, resources and prompts. A parameter annotated `ToolContext` is
    not in the schema and receives the context. `**kwargs` accepts any other argument.

    Attributes:
        key: The key in its registry: the name, or the URI of a resource.
        parameters: Whether each parameter is required, by its name; without the context.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
    ) -> None:
        if inspect.iscoroutinefunction(function):
            raise TypeError(
                f"{function.__name__} must be a plain function, not a coroutine function"
            )
        hints = get_type_hints(function, include_extras=True)
        self.name = self.key = name or function.__name__
        self.description = description or inspect.getdoc(function)
        self.returns = hints.get("return", Any)
        self.parameters: dict[str, bool] = {}
        self._function = function
        self._title = title
        self._context: str | None = None
        self._fields: dict[str, str] = {}
        extra: Any = "ignore"
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            hint = hints.get(parameter.name, Any)
            required = parameter.default is inspect.Parameter.empty
            if hint is ToolContext:
                self._context = parameter.name
            elif _names_other_context(parameter, hint):
                raise TypeError(
                    f"{function.__name__}: write {parameter.name}: ToolContext (from"
                    " syncmcp.testing), or annotate an argument of this name with its type"
                )
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                extra = "allow"
            elif parameter.kind not in (
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                inspect.Parameter.KEYWORD_ONLY,
            ):
                raise TypeError(f"{function.__name__}: {parameter} cannot be passed by name")
            else:
                # A parameter may have a name that pydantic does not allow: `schema`, `_private`.
                field = f"parameter_{len(fields)}"
                default = ... if required else parameter.default
                fields[field] = (hint, Field(default, alias=parameter.name))
                self._fields[field] = parameter.name
                self.parameters[parameter.name] = required
        config = ConfigDict(extra=extra, arbitrary_types_allowed=True)
        self._model: type[BaseModel] = create_model(
            f"{function.__name__}Arguments", __config__=config, **fields
        )

    def schema(self) -> dict[str, Any]:
        try:
            return self._model.model_json_schema(by_alias=True)
        except PydanticUserError as error:
            raise TypeError(
                f"{self.name}: a parameter's type has no JSON Schema, so write input_schema=:"
                f" {error.message}"
            ) from error

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Check `arguments`, call the function, and convert models in its result to JSON values.

        Raises `InvalidArguments`.
        """
        try:
            model = self._model.model_validate(arguments)
        except ValidationError as error:
            problems = (
                f"{'.'.join(str(part) for part in each['loc']) or 'arguments'}: {each['msg']}"
                for each in error.errors(include_url=False)
            )
            raise InvalidArguments("; ".join(problems)) from error
        values = {name: getattr(model, field) for field, name in self._fields.items()}
        values.update(model.model_extra or {})
        if self._context is not None:
            values[self._context] = context
        value = self._function(**values)
        if isinstance(value, Exception):
            raise TypeError(f"{self.name} returned {kind_of(value)}: raise it instead")
        return _to_json_value(value)

    def _entry(self, revision: str, **members: Any) -> Message:
        """Return an entry of a list with these members, except those that are `None`."""
        title = self._title if wire.since(revision, "2025-06-18") else None
        return wire.given(name=self.name, title=title, description=self.description, **members)


def _names_other_context(parameter: inspect.Parameter, hint: Any) -> bool:
    """Whether the context is expected in a parameter that would be an argument of the client."""
    if parameter.annotation is inspect.Parameter.empty:
        return parameter.name in ("context", "ctx")
    other = isinstance(hint, type) and hint.__name__ in ("HandlerContext", "Context")
    return other or ToolContext in get_args(hint)


# Tools.


TaskSupport = Literal["forbidden", "optional", "required"]

_logger = logging.getLogger(__name__)


class Tool(Binding):
    """A function as a tool; a `task_support` of `None` means "forbidden"."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        annotations: Mapping[str, Any] | BaseModel | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        task_support: TaskSupport | None = None,
        **named: str | None,
    ) -> None:
        super().__init__(function, **named)
        objects = {"input_schema": input_schema, "output_schema": output_schema, "meta": meta}
        for option, value in objects.items():
            if not isinstance(value, Mapping | None):
                raise TypeError(f"{option} must be a mapping, not {kind_of(value)}")
        self.input_schema: Message = dict(input_schema or self.schema())
        self.output_schema = (
            dict(output_schema) if output_schema is not None else _schema_of(self.returns)
        )
        if isinstance(annotations, BaseModel):
            annotations = annotations.model_dump(mode="json", by_alias=True, exclude_none=True)
        elif not isinstance(annotations, Mapping | None):
            raise TypeError("annotations must be a mapping, such as {'readOnlyHint': True}")
        self._annotations = dict(annotations) if annotations else None
        self._meta = dict(meta) if meta else None
        if task_support not in (None, *get_args(TaskSupport)):
            known = ", ".join(get_args(TaskSupport))
            raise ValueError(f"task_support must be one of {known}, not {task_support!r}")
        self.task_support = task_support
        self.runs_as_task = task_support in ("optional", "required")

    def describe(self, revision: str) -> Message:
        tasks = self.task_support if revision == TASKS_REVISION else None
        return self._entry(
            revision,
            inputSchema=self.input_schema,
            annotations=self._annotations if wire.since(revision, "2025-03-26") else None,
            outputSchema=self.output_schema if self._structured(revision) else None,
            _meta=self._meta if wire.since(revision, "2025-06-18") else None,
            execution=None if tasks is None else {"taskSupport": tasks},
        )

    def call(self, arguments: Mapping[str, Any], context: ToolContext) -> Message:
        """Run the tool on this thread; an exception but `RpcError` becomes an `isError` result."""
        try:
            value = self.run(arguments, context)
        except RpcError:
            raise
        except InvalidArguments as error:
            return _failed(f"Invalid arguments for {self.name}: {error}")
        except (Exception, SystemExit) as error:
            # The function may raise anything; the client needs an answer.
            _logger.debug("tool %s failed", self.name, exc_info=True)
            return _failed(str(error) or type(error).__name__)
        return self._result(value, context.revision)

    def _structured(self, revision: str) -> bool:
        """Return whether the revision has structured output with the root type of the schema."""
        if self.output_schema is None or not wire.since(revision, "2025-06-18"):
            return False
        return self.output_schema.get("type") == "object" or wire.since(revision, "2026-07-28")

    def _result(self, value: Any, revision: str) -> Message:
        if isinstance(value, dict) and isinstance(value.get("content"), list):
            return dict(value)
        result: Message = {"content": _content(value)}
        if self._structured(revision):
            result["structuredContent"] = value
        return result


def _failed(text: str) -> Message:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _to_json_value(value: Any) -> Any:
    if isinstance(value, WireModel):
        return value.to_wire()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, (list, tuple)):
        return [_to_json_value(item) for item in value]
    return value


def _content(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list) and value and all(_is_block(item) for item in value):
        return value
    if _is_block(value):
        return [value]
    return [{"type": "text", "text": _to_text(value)}]


def _to_text(value: Any) -> str:
    try:
        return value if isinstance(value, str) else wire.encode(value).decode()
    except PydanticSerializationError:
        raise TypeError(
            f"a function returned {kind_of(value)} that is not JSON: return a text, a model or"
            " JSON values"
        ) from None


def _is_block(value: Any) -> bool:
    kinds = ("text", "image", "audio", "resource", "resource_link")
    return isinstance(value, dict) and value.get("type") in kinds


def _schema_of(returns: Any) -> Message | None:
    """Return the schema of a structured return annotation, or `None`."""
    structured = is_typeddict(returns) or get_origin(returns) is dict
    if not structured and isinstance(returns, type):
        # Models of the protocol, such as `CallToolResult`, are results and content themselves.
        model = issubclass(returns, BaseModel) and not issubclass(returns, WireModel)
        structured = model or dataclasses.is_dataclass(returns)
    if not structured:
        return None
    return TypeAdapter(returns).json_schema(mode="serialization", by_alias=True)


Completer = Callable[[str, Mapping[str, str]], Sequence[str]]

_MAX_COMPLETIONS = 100


class Resource(Binding):
    """A resource, or a resource template."""

    def __init__(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        template: bool,
        mime_type: str | None = None,
        **named: str | None,
    ) -> None:
        super().__init__(function, **named)
        self.key = uri
        self.mime_type = mime_type
        self._uri_template = UriTemplate(uri) if template else None
        if self._uri_template is not None and self._uri_template.ambiguity is not None:
            raise ValueError(f"{uri} cannot be offered: {self._uri_template.ambiguity}")
        variables = () if self._uri_template is None else self._uri_template.variables
        for parameter, required in self.parameters.items():
            if required and parameter not in variables:
                text = f"{function.__name__}: {uri} has no variable for the parameter {parameter!r}"
                raise TypeError(text)

    def match(self, uri: str) -> Mapping[str, str] | None:
        """Return the values of the template's variables in `uri`; `None` if it does not match."""
        template = self._uri_template
        if template is None:
            return {} if uri == self.key else None
        # Values are unchecked: any client may send any URI, and the function must check it.
        return template.match(uri, unchecked=template.variables)

    def describe(self, revision: str) -> Message:
        kind = "uri" if self._uri_template is None else "uriTemplate"
        return self._entry(revision, **{kind: self.key}, mimeType=self.mime_type)

    def read(self, uri: str, variables: Mapping[str, Any], context: ToolContext) -> list[Any]:
        """Run the function on the current thread and return `contents`."""
        value = self.run(variables, context)
        if isinstance(value, list):
            return value
        blob = base64.b64encode(value).decode() if isinstance(value, bytes) else None
        text = _to_text(value) if blob is None else None
        return [wire.given(uri=uri, mimeType=self.mime_type, blob=blob, text=text)]


class Prompt(Binding):
    """A prompt; its arguments are the function's parameters."""

    def describe(self, revision: str) -> Message:
        arguments = [
            {"name": name, "required": required} for name, required in self.parameters.items()
        ]
        return self._entry(revision, arguments=arguments or None)

    def get(self, arguments: Mapping[str, Any], context: ToolContext) -> Message:
        value = self.run(arguments, context)
        if isinstance(value, dict) and "messages" in value:
            return value
        messages = value if isinstance(value, list) else [value]
        shown = [_prompt_message(message) for message in messages]
        return wire.given(messages=shown, description=self.description)


class Skill(NamedTuple):
    """One skill: its entry in `skills/list`, if it is listed there, and the URIs of its files."""

    entry: Message
    files: frozenset[str]
    listed: bool


def _file(root: str, path: str, content: str | bytes) -> Message:
    data = content.encode() if isinstance(content, str) else content
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return {"uri": f"{root}/{path}", "digest": digest, "size": len(data)}


class Features:
    """The registries of one server.

    Entries may be added and removed while the server runs.
    """

    def __init__(self, page_size: int | None) -> None:
        if page_size is not None and page_size < 1:
            raise ValueError("page_size must be at least 1")
        self._page_size = page_size
        # Copied before iteration: other threads may add and remove features.
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completers: dict[tuple[str, str, str], Completer] = {}
        self.skills: dict[str, Skill] = {}

    def capabilities(self, revision: str) -> Message:
        capabilities: Message = {"logging": {}}
        if self.tools:
            capabilities["tools"] = {"listChanged": True}
        if self.resources or self.templates:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self.prompts:
            capabilities["prompts"] = {"listChanged": True}
        if self.completers and wire.since(revision, "2025-03-26"):
            capabilities["completions"] = {}
        extensions: Message = {}
        if any(tool.runs_as_task for tool in self.tools.copy().values()):
            extensions[TASKS] = {}
            if revision == TASKS_REVISION:
                operations: Message = {
                    "list": {},
                    "cancel": {},
                    "requests": {"tools": {"call": {}}},
                }
                capabilities["tasks"] = operations
        if self.skills:
            extensions[SKILLS] = {"directoryRead": True}
        if extensions and revision in wire.STATELESS:
            capabilities["extensions"] = extensions
        return capabilities

    def list_tools(self, params: Message, context: ToolContext) -> Message:
        return self.page("tools", self.tools, params, context)

    def call_tool(self, params: Message, context: ToolContext) -> Message:
        name = wire.string_member(params, "name")
        tool = self.tools.get(name)
        if tool is None:
            raise RpcError(wire.INVALID_PARAMS, f"Unknown tool: {name}")
        return tool.call(_arguments(params), context)

    def read_resource(self, params: Message, context: ToolContext) -> Message:
        uri = wire.string_member(params, "uri")
        for resource in [*self.resources.copy().values(), *self.templates.copy().values()]:
            variables = resource.match(uri)
            if variables is not None:
                return {"contents": resource.read(uri, variables, context)}
        stateless = context.revision in wire.STATELESS
        code = wire.INVALID_PARAMS if stateless else wire.RESOURCE_NOT_FOUND
        raise RpcError(code, f"Resource not found: {uri}", {"uri": uri})

    def get_prompt(self, params: Message, context: ToolContext) -> Message:
        name = wire.string_member(params, "name")
        prompt = self.prompts.get(name)
        if prompt is None:
            raise RpcError(wire.INVALID_PARAMS, f"Unknown prompt: {name}")
        try:
            return prompt.get(_arguments(params), context)
        except InvalidArguments as error:
            raise RpcError(wire.INVALID_PARAMS, f"Invalid arguments for {name}: {error}") from error

    def complete(self, params: Message, context: ToolContext) -> Message:
        """Handle `completion/complete`; without a completer there are no values."""
        ref, argument = params.get("ref"), params.get("argument")
        if not isinstance(ref, dict) or not isinstance(argument, dict):
            raise RpcError(wire.INVALID_PARAMS, "params.ref and params.argument must be objects")
        kind = wire.string_member(ref, "type")
        if kind not in ("ref/prompt", "ref/resource"):
            raise RpcError(wire.INVALID_PARAMS, f"Unknown reference type: {kind}")
        target = wire.string_member(ref, "name" if kind == "ref/prompt" else "uri")
        known = self.prompts if kind == "ref/prompt" else {**self.templates, **self.resources}
        if target not in known:
            raise RpcError(wire.INVALID_PARAMS, f"Unknown reference: {target}")
        completer = self.completers.get((kind, target, wire.string_member(argument, "name")))
        given = params.get("context")
        earlier = given.get("arguments", {}) if isinstance(given, dict) else {}
        values = (
            list(completer(wire.string_member(argument, "value"), earlier)) if completer else []
        )
        return {
            "completion": {
                "values": values[:_MAX_COMPLETIONS],
                "total": len(values),
                "hasMore": len(values) > _MAX_COMPLETIONS,
            }
        }

    def add_skill(
        self,
        root: str,
        frontmatter: Mapping[str, Any],
        files: Mapping[str, str | bytes],
        *,
        dynamic: bool,
        listed: bool,
    ) -> None:
        entry: Message = {
            "uri": f"{root}/SKILL.md",
            "frontmatter": dict(frontmatter),
            "resources": "dynamic" if dynamic else [_file(root, *item) for item in files.items()],
        }
        files_of = frozenset(f"{root}/{path}" for path in files)
        self.skills[entry["uri"]] = Skill(entry, files_of, listed)

    def list_skills(self, params: Message, context: ToolContext) -> Message:
        entries = [skill.entry for skill in self.skills.copy().values() if skill.listed]
        return self.paginate("skills", entries, params)

    def get_skill(self, params: Message, context: ToolContext) -> Message:
        uri = wire.string_member(params, "uri")
        skill = self.skills.get(uri)
        if skill is None:
            raise RpcError(wire.INVALID_PARAMS, f"No skill is served at {uri}")
        return {"skill": skill.entry}

    def list_directory(self, params: Message, context: ToolContext) -> Message:
        inside = f"{wire.string_member(params, 'uri')}/"
        uris = {uri for skill in self.skills.copy().values() for uri in skill.files}
        below = sorted(uri[len(inside) :] for uri in uris if uri.startswith(inside))
        if not below:
            raise RpcError(wire.INVALID_PARAMS, f"{inside[:-1]} is not a directory")
        names = {rest.partition("/")[0]: "/" in rest for rest in below}
        entries: list[Message] = [
            {"uri": inside + name, "name": name, **({"mimeType": _DIRECTORY} if directory else {})}
            for name, directory in names.items()
        ]
        return self.paginate("resources", entries, params)

    def page(
        self, name: str, registry: dict[str, Any], params: Message, context: ToolContext
    ) -> Message:
        """Return the result of a list request: a page of descriptions of `registry`'s values."""
        entries = [entry.describe(context.revision) for entry in registry.copy().values()]
        return self.paginate(name, entries, params)

    def paginate(self, name: str, entries: list[Message], params: Message) -> Message:
        """Return the page of `entries` that the cursor in `params` names."""
        cursor = params.get("cursor")
        kind, _, position = str(f"{name}:0" if cursor is None else cursor).partition(":")
        if kind != name or not position.isdecimal():
            raise RpcError(wire.INVALID_PARAMS, "Invalid cursor")
        start = int(position)
        end = len(entries) if self._page_size is None else start + self._page_size
        result: Message = {name: entries[start:end]}
        if end < len(entries):
            result["nextCursor"] = f"{name}:{end}"
        return result


def _arguments(params: Message) -> Message:
    arguments = params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise RpcError(wire.INVALID_PARAMS, "params.arguments must be an object")
    return arguments


def _prompt_message(message: Any) -> Message:
    if isinstance(message, dict):
        return message
    return {"role": "user", "content": {"type": "text", "text": str(message)}}
