"""Skills of the test server (extension ``io.modelcontextprotocol/skills``)."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from syncmcp.testing.server.context import ToolContext
from syncmcp.testing.server.features import Features
from syncmcp.testing.server.wire import INVALID_PARAMS, STATELESS, Message, RpcError, string_member

EXTENSION = "io.modelcontextprotocol/skills"

_DIRECTORY = "inode/directory"


class Skill:
    """One skill: its frontmatter and its files, by their URIs."""

    def __init__(
        self, root: str, frontmatter: Mapping[str, Any], files: Mapping[str, bytes], dynamic: bool
    ) -> None:
        self.uri = f"{root}/SKILL.md"
        self.files = {f"{root}/{name}": data for name, data in files.items()}
        self._frontmatter = dict(frontmatter)
        self._dynamic = dynamic

    def describe(self, revision: str) -> Message:
        """Return its entry."""
        files: Any = [
            {"uri": uri, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}
            for uri, data in self.files.items()
        ]
        return {
            "uri": self.uri,
            "frontmatter": self._frontmatter,
            "resources": "dynamic" if self._dynamic else files,
        }


class Child:
    """An entry of a directory."""

    def __init__(self, uri: str, directory: bool) -> None:
        self._entry: Message = {"uri": uri, "name": uri.rpartition("/")[2]}
        if directory:
            self._entry["mimeType"] = _DIRECTORY

    def describe(self, revision: str) -> Message:
        """Return its entry."""
        return self._entry


class SkillRegistry:
    """The skills of one server.

    Args:
        features: Divides lists into pages.
        publish: Called as `publish(uri, name, read)` for each file of a skill; makes it a resource
            of the server.

    Attributes:
        handlers: The functions that answer the methods of the extension, by method.
    """

    def __init__(
        self,
        features: Features,
        publish: Callable[[str, str, Callable[[], str | bytes]], None],
    ) -> None:
        self.handlers: dict[str, Callable[[Message, ToolContext], Message]] = {
            "skills/list": self._list,
            "skills/get": self._get,
            "resources/directory/read": self._directory,
        }
        self._features = features
        self._publish = publish
        self._lock = threading.Lock()  # Guards both tables, which map URIs to skills.
        self._skills: dict[str, Skill] = {}
        self._listed: dict[str, Skill] = {}

    def capabilities(self, revision: str) -> Message:
        """Return the capability objects of the extension under `revision`."""
        return {"extensions": {EXTENSION: {"directoryRead": True}}} if revision in STATELESS else {}

    def add(
        self,
        root: str,
        frontmatter: Mapping[str, Any],
        body: str,
        files: Mapping[str, str | bytes],
        *,
        dynamic: bool,
        listed: bool,
    ) -> None:
        """Register a skill and publish its files."""
        # JSON is valid YAML.
        head = "".join(f"{_json(key)}: {_json(value)}\n" for key, value in frontmatter.items())
        every: dict[str, str | bytes] = {"SKILL.md": f"---\n{head}---\n{body}", **files}
        skill = Skill(root, frontmatter, {name: _bytes(every[name]) for name in every}, dynamic)
        for name, content in every.items():
            self._publish(f"{root}/{name}", name, _returning(content))
        with self._lock:
            self._skills[skill.uri] = skill
            if listed:
                self._listed[skill.uri] = skill

    def _list(self, params: Message, context: ToolContext) -> Message:
        with self._lock:
            listed = dict(self._listed)
        return self._features.page("skills", listed, params, context)

    def _get(self, params: Message, context: ToolContext) -> Message:
        uri = string_member(params, "uri")
        with self._lock:
            skill = self._skills.get(uri)
        if skill is None:
            raise RpcError(INVALID_PARAMS, f"No skill is served at {uri}")
        return {"skill": skill.describe(context.revision)}

    def _directory(self, params: Message, context: ToolContext) -> Message:
        inside = f"{string_member(params, 'uri')}/"
        with self._lock:
            uris = {uri for skill in self._skills.values() for uri in skill.files}
        below = sorted(uri[len(inside) :] for uri in uris if uri.startswith(inside))
        if not below:
            raise RpcError(INVALID_PARAMS, f"{inside[:-1]} is no directory")
        names = {rest.partition("/")[0]: "/" in rest for rest in below}
        children = {name: Child(inside + name, names[name]) for name in names}
        return self._features.page("resources", children, params, context)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _returning(content: str | bytes) -> Callable[[], str | bytes]:
    return lambda: content
