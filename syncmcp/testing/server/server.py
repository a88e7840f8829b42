"""The test server: registration of its features, its sessions, and notifications to them."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, TypeAlias, TypeVar, get_args

from typing_extensions import ParamSpec

from syncmcp._base.checks import check_callable, kind_of, text
from syncmcp.testing.server import wire
from syncmcp.testing.server.context import ToolContext
from syncmcp.testing.server.dispatch import URIS, Dispatcher
from syncmcp.testing.server.features import (
    Binding,
    Completer,
    Prompt,
    Resource,
    TaskSupport,
    Tool,
)
from syncmcp.testing.server.session import Session
from syncmcp.testing.server.wire import Batches, Message

if TYPE_CHECKING:
    from syncmcp.types import ToolAnnotations

ListKind: TypeAlias = Literal["tools", "resources", "prompts"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=Completer)
Feature = TypeVar("Feature", bound=Binding)
P = ParamSpec("P")
R = TypeVar("R")


def _with_parentheses(
    method: Callable[Concatenate[Server, P], R],
) -> Callable[Concatenate[Server, P], R]:
    """Make a decorator raise an error that shows the right form if its parentheses are missing."""

    @wraps(method)
    def decorating(server: Server, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if args:
            name = method.__name__
            raise TypeError(f"write @server.{name}() with parentheses, and options by name")
        return method(server, *args, **kwargs)

    return decorating


def _check_uri(uri: object, name: str) -> None:
    if not isinstance(uri, str):
        raise TypeError(f"write @server.{name}(URI), not {kind_of(uri)}")


class Server(Dispatcher):
    """A small MCP server for tests and demos, for every revision and transport.

    >>> from syncmcp.testing import Server
    >>> server = Server("shop")
    >>> @server.tool()
    ... def price(item: str) -> int:
    ...     return {"apple": 30, "pear": 45}[item]
    >>> with syncmcp.connect(server) as client:
    ...     print(client.call_tool("price", {"item": "pear"}).text)
    45

    Each call of a registered function runs on a daemon thread of its own, so that a function that
    blocks delays no other call. Features may be registered and removed while clients are
    connected; the clients are notified (`notifications/.../list_changed`). A client that connected
    before the first tool, resource or prompt was registered has not been told of that capability.
    Pass `capabilities`, such as ``{"tools": {}}``, to declare it from the beginning.

    Args:
        name: The server's name.
        version: The server's version.
        title: The server's name for display.
        instructions: The instructions that clients receive when they connect.
        revisions: The protocol revisions that the server speaks.
        page_size: The number of entries in one page of a list; `None` sends all entries in one
            page.
        capabilities: Capability objects, by name. Each is added to the capabilities derived from
            the registered features, or replaces the derived one of its name.
        ttl_ms: The `ttlMs` of cacheable results: the milliseconds for which a client may cache them
            (2026-07-28); `None` leaves it out. The attribute may be set to another value at any
            time. A handler of `on_request` may put its own `ttlMs` and `cacheScope` into its
            result.
        cache_scope: The `cacheScope` of cacheable results (2026-07-28); `None` leaves it out. The
            attribute may be set, as `ttl_ms`.
        batches: The settings for batches (2025-03-26).

    Attributes:
        stats: Counters of requests, responses, sessions and violations of the protocol;
            `stats.wait_for(...)` waits for a condition on the counters.
        tasks: The tasks of tools that run as tasks, and their settings.
    """

    def __init__(
        self,
        name: str = "test server",
        *,
        version: str = "1.0",
        title: str | None = None,
        instructions: str | None = None,
        revisions: Iterable[str] = wire.REVISIONS,
        page_size: int | None = None,
        capabilities: Mapping[str, Any] | None = None,
        ttl_ms: int | None = 0,
        cache_scope: Literal["private", "public"] | None = "private",
        batches: Batches = wire.DEFAULT_BATCHES,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, not {kind_of(name)}")
        info = wire.given(name=name, version=version, title=title)
        super().__init__(info, revisions, page_size, capabilities or {})
        self.instructions = instructions
        self.ttl_ms = ttl_ms
        self.cache_scope = cache_scope
        self.batches = batches
        self.notification_handlers: dict[str, Callable[[Message], None]] = {}
        self._lock = threading.Lock()  # Guards `_sessions`.
        self._sessions: set[Session] = set()

    def __repr__(self) -> str:
        return f"<Server {self.info['name']!r}>"

    @property
    def name(self) -> str:
        """The server's name."""
        return str(self.info["name"])

    # Features

    @_with_parentheses
    def tool(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | ToolAnnotations | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        task_support: TaskSupport | None = None,
    ) -> Callable[[F], F]:
        """Register the decorated function as a tool, in place of a tool of the same name.

        The server validates arguments with the signature, and ignores unknown ones. A given input
        schema is only listed: `validate_input=True` of a client enforces it.

        By default, the name is the function's, and the description is its docstring. The input
        schema is derived from the signature, and the output schema from a structured return
        annotation (a pydantic model, a dataclass, a `TypedDict`, `dict[...]`). A parameter
        annotated `ToolContext` receives the context of the call, and is not part of the schema.

        The function returns text, any JSON value, a pydantic model, a dataclass, content blocks, or
        a whole result (a `CallToolResult`, or a dict with a `content` list). An exception becomes a
        result with `isError`; an `RpcError` becomes a JSON-RPC error.

        The `annotations` are JSON, such as ``{"readOnlyHint": True}``, or a `ToolAnnotations`.

        With `task_support` "optional" or "required", the tool runs as a task if the client asks for
        a task (2025-11-25) or declares the extension for tasks (2026-07-28); see `tasks`.

        Raises:
            TypeError: The decorator is used without parentheses, as ``@server.tool``; or
                `annotations`, `meta` or a schema has another type.
            ValueError: `task_support` has another value.
        """
        make = partial(
            Tool,
            name=name,
            title=title,
            description=description,
            annotations=annotations,
            input_schema=input_schema,
            output_schema=output_schema,
            meta=meta,
            task_support=task_support,
        )
        return self._registering("tools", self.features.tools, make)

    def add_tool(self, function: Callable[..., Any], **options: Any) -> None:
        """Register `function` as a tool, as `tool` does; `options` are the arguments of `tool`."""
        self.tool(**options)(function)

    def remove_tool(self, name: str) -> None:
        """Remove a tool; raise `KeyError` if no tool has this name."""
        del self.features.tools[name]
        self.list_changed("tools")

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
    ) -> Callable[[F], F]:
        """Register the decorated function as the resource `uri`.

        The function is called for each `resources/read`. It has no parameters, or one annotated
        `ToolContext`. It returns text, bytes, a JSON value, or the whole list of `contents`.

        Raises:
            ValueError: `uri` has variables; use `resource_template` instead.
        """
        _check_uri(uri, "resource")
        if "{" in uri:
            raise ValueError(f"{uri} has variables: write @server.resource_template(...)")
        named: Any = {"name": name, "title": title}
        named |= {"description": description, "mime_type": mime_type}
        make = partial(Resource, uri, template=False, **named)
        return self._registering("resources", self.features.resources, make)

    def resource_template(
        self,
        template: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
    ) -> Callable[[F], F]:
        """Register the decorated function as a resource template (RFC 6570).

        The variables of the template are the function's arguments, which are strings. The parameter
        of a variable that may be absent (`{?name}`) needs a default. No value is refused, not even
        ``..`` or a host: the function must check the values. The function returns the same as a
        function of `resource`.

        Raises:
            ValueError: `template` is not a URI template, or its URIs cannot be matched; see
                `syncmcp.templates.UriTemplate.match`.
            TypeError: The decorated function needs an argument that is not a variable.
        """
        _check_uri(template, "resource_template")
        named: Any = {"name": name, "title": title}
        named |= {"description": description, "mime_type": mime_type}
        make = partial(Resource, template, template=True, **named)
        return self._registering("resources", self.features.templates, make)

    def remove_resource(self, uri: str) -> None:
        """Remove a resource; raise `KeyError` if no resource has this URI."""
        del self.features.resources[uri]
        self.list_changed("resources")

    @_with_parentheses
    def prompt(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
    ) -> Callable[[F], F]:
        """Register the decorated function as a prompt; its parameters are the prompt's arguments.

        The function returns text (one message with the role "user"), a list of texts and messages,
        or a whole result (a dict with `messages`). A parameter annotated `ToolContext` receives the
        context of the call.
        """
        make = partial(Prompt, name=name, title=title, description=description)
        return self._registering("prompts", self.features.prompts, make)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt; raise `KeyError` if no prompt has this name."""
        del self.features.prompts[name]
        self.list_changed("prompts")

    @_with_parentheses
    def completion(
        self, *, argument: str, prompt: str | None = None, template: str | None = None
    ) -> Callable[[C], C]:
        """Register the decorated function as the completer of one argument.

        The function is called as `function(value, arguments)`, with the text typed so far and the
        arguments chosen before. It returns all completions, of which at most 100 are sent.

        Args:
            argument: The name of the prompt's argument, or of the template's variable.
            prompt: The name of the prompt.
            template: The URI template.

        Raises:
            ValueError: Not exactly one of `prompt` and `template` was passed.
        """
        if (prompt is None) == (template is None):
            raise ValueError("pass exactly one of prompt and template")
        kind = "ref/resource" if prompt is None else "ref/prompt"
        target = str(template) if prompt is None else prompt

        def register(function: C) -> C:
            self.features.completers[(kind, target, argument)] = function
            return function

        return register

    def skill(
        self,
        root: str,
        frontmatter: Mapping[str, Any],
        body: str = "",
        files: Mapping[str, str | bytes] | None = None,
        *,
        dynamic: bool = False,
        listed: bool = True,
    ) -> None:
        """Register a skill (2026-07-28, the extension ``io.modelcontextprotocol/skills``).

        The files of the skill become resources of the server.

        Args:
            root: The URI of the skill's directory, which has the skill's name: ``skill://refunds``.
            frontmatter: The frontmatter of its ``SKILL.md``, with `name` and `description`.
            body: The text of ``SKILL.md`` after the frontmatter.
            files: The other files, by their paths below the root.
            dynamic: Whether to send no digests of the files (``"resources": "dynamic"``).
            listed: Whether to include the skill in `skills/list`; `skills/get` finds it in any
                case.
        """
        features = self.features
        if not features.skills:
            self.on_request("skills/list", features.list_skills)
            self.on_request("skills/get", features.get_skill)
            self.on_request("resources/directory/read", features.list_directory)
        # JSON is valid YAML.
        head = "".join(f"{_json(key)}: {_json(value)}\n" for key, value in frontmatter.items())
        every = {"SKILL.md": f"---\n{head}---\n{body}", **(files or {})}
        for path, content in every.items():
            self.resource(f"{root}/{path}", name=path)(_returning(content))
        features.add_skill(root, frontmatter, every, dynamic=dynamic, listed=listed)

    def on_request(self, method: str, function: Callable[[Message, ToolContext], Message]) -> None:
        """Handle requests of `method` by `function(params, context)`.

        The function replaces the built-in handler of the method, if there is one. It runs on a
        worker thread. It returns the result object or raises `RpcError`.
        """
        text(method, "method")
        check_callable(function, "function", ("params", "context"))
        self.handlers[method] = function

    def on_notification(self, method: str, function: Callable[[Message], None]) -> None:
        """Call `function(params)` for each notification of `method`, in the order received.

        The function runs on the thread that receives the message, and must not block or raise.
        """
        text(method, "method")
        check_callable(function, "function", ("params",))
        self.notification_handlers[method] = function

    # Sessions

    def connect(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None] | None = None
    ) -> Session:
        """Open a connection in memory.

        Args:
            deliver: Called with each frame that the server sends (JSON, no newline), on the thread
                that sends the frame. That is the caller of `receive`, or the thread of a tool.
            on_close: Called once when the session ends, whichever side ended it.

        Returns:
            The session. `Session.receive` takes the client's frames; `Session.close` ends the
            session.
        """
        session = self.open_session(lambda message: deliver(wire.encode(message)))
        if on_close is not None:
            session.at_close(on_close)
        return session

    def open_session(self, push: Callable[[Any], None], session_id: str | None = None) -> Session:
        """Open a session, for a transport.

        Args:
            push: Called with each message that belongs to no request, on the thread that sends it.
            session_id: The session id over HTTP.
        """
        session = Session(self, push, session_id)
        with self._lock:
            self._sessions.add(session)
        self.stats._count(sessions=1, opened=1)
        return session

    def session_closed(self, session: Session) -> None:
        """Remove a session that has ended, on behalf of the session."""
        self.rounds.close(session)
        with self._lock:
            self._sessions.discard(session)
            last = not self._sessions
        if last:
            self.end_idle_workers()
        self.stats._count(sessions=-1)

    @property
    def sessions(self) -> list[Session]:
        """The open sessions."""
        with self._lock:
            return list(self._sessions)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            hint = ": write run_stdio(), or serve_http(server)" if name == "run" else ""
            text = f"'Server' object has no attribute {name!r}{hint}"
            raise AttributeError(text, name=name, obj=self)

    def run_stdio(self) -> None:
        """Serve this process's stdin and stdout until stdin ends or stdout breaks.

        At the end, running calls are cancelled. While the server runs, stdout is redirected to
        stderr, so that the output of other code does not mix with the JSON-RPC messages, one per
        line.
        """
        output = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        lock = threading.Lock()  # Held while a line is written.

        def deliver(frame: bytes) -> None:
            # Written to the descriptor: the lock of a buffered writer is never released if the
            # interpreter exits while a daemon thread holds it.
            data = memoryview(frame + b"\n")
            with lock:
                while data:
                    data = data[os.write(output, data) :]

        session = self.connect(deliver)
        try:
            for line in sys.stdin.buffer:
                if line.strip():
                    session.receive(line)
        except BrokenPipeError:
            pass  # The client has closed its end.
        finally:
            session.close()

    def close(self) -> None:
        """End every subscription, task and session, and cancel running calls."""
        self.listeners.end()
        self.rounds.close()
        self.tasks.close()
        for session in self.sessions:
            session.close()
        self.end_idle_workers()

    # Notifications

    def list_changed(self, kind: ListKind) -> None:
        """Notify clients that a list has changed: sessions, once initialized, and listeners.

        To register or remove a feature calls this method.

        Raises:
            ValueError: There is no such list.
        """
        if kind not in get_args(ListKind):
            known = ", ".join(get_args(ListKind))
            raise ValueError(f"kind must be one of {known}, not {kind!r}")
        method = f"notifications/{kind}/list_changed"
        self.broadcast(method)
        self.listeners.notify(method, {}, f"{kind}ListChanged")

    def resource_updated(self, uri: str) -> None:
        """Notify the clients that subscribed to `uri` that the resource has changed."""
        method, params = "notifications/resources/updated", {"uri": uri}
        for session in self.sessions:
            if uri in session.subscriptions:
                session.notify(method, params)
        self.listeners.notify(method, params, URIS, uri)

    def broadcast(self, method: str, params: Message | None = None) -> None:
        """Send a notification to every session, once it is initialized (stateful revisions)."""
        for session in self.sessions:
            session._notify_initialized(method, params)

    def _registering(
        self,
        kind: ListKind,
        registry: dict[str, Feature],
        make: Callable[..., Feature],
    ) -> Callable[[F], F]:
        def register(function: F) -> F:
            if not callable(function):
                raise TypeError(f"{kind} are functions, not {kind_of(function)}")
            feature = make(function)
            registry[feature.key] = feature
            self.list_changed(kind)
            return function

        return register


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _returning(content: str | bytes) -> Callable[[], str | bytes]:
    return lambda: content
