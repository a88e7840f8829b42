"""Skills of the test server (extension ``io.modelcontextprotocol/skills``)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from syncmcp.testing.server.context import ToolContext
from syncmcp.testing.server.features import Features
from syncmcp.testing.server.wire import INVALID_PARAMS, STATELESS, Message, RpcError, string_member

EXTENSION = "io.modelcontextprotocol/skills"

_DIRECTORY = "inode/directory"


class Skill(NamedTuple):
    """One skill: its entry in `skills/list`, if it is listed there, and the URIs of its files."""

    entry: Message
    files: frozenset[str]
    listed: bool


class SkillRegistry:
    """The skills of one server, and the handlers of the methods of the extension."""

    def __init__(
        self, features: Features, publish: Callable[[str, str, Callable[[], str | bytes]], object]
    ) -> None:
        self.handlers: dict[str, Callable[[Message, ToolContext], Message]] = {
            "skills/list": self._list,
            "skills/get": self._get,
            "resources/directory/read": self._directory,
        }
        self._features = features
        self._publish = publish
        # By URI. Copied before they are iterated over: skills are added on other threads.
        self._skills: dict[str, Skill] = {}

    def capabilities(self, revision: str) -> Message:
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
        # JSON is valid YAML.
        head = "".join(f"{_json(key)}: {_json(value)}\n" for key, value in frontmatter.items())
        every: dict[str, str | bytes] = {"SKILL.md": f"---\n{head}---\n{body}", **files}
        for name, content in every.items():
            self._publish(f"{root}/{name}", name, _returning(content))
        entry: Message = {
            "uri": f"{root}/SKILL.md",
            "frontmatter": dict(frontmatter),
            "resources": "dynamic" if dynamic else [_file(root, *item) for item in every.items()],
        }
        files_of = frozenset(f"{root}/{name}" for name in every)
        self._skills[entry["uri"]] = Skill(entry, files_of, listed)

    def _list(self, params: Message, context: ToolContext) -> Message:
        entries = [skill.entry for skill in self._skills.copy().values() if skill.listed]
        return self._features.paginate("skills", entries, params)

    def _get(self, params: Message, context: ToolContext) -> Message:
        uri = string_member(params, "uri")
        skill = self._skills.get(uri)
        if skill is None:
            raise RpcError(INVALID_PARAMS, f"No skill is served at {uri}")
        return {"skill": skill.entry}

    def _directory(self, params: Message, context: ToolContext) -> Message:
        inside = f"{string_member(params, 'uri')}/"
        uris = {uri for skill in self._skills.copy().values() for uri in skill.files}
        below = sorted(uri[len(inside) :] for uri in uris if uri.startswith(inside))
        if not below:
            raise RpcError(INVALID_PARAMS, f"{inside[:-1]} is no directory")
        names = {rest.partition("/")[0]: "/" in rest for rest in below}
        entries: list[Message] = [
            {"uri": inside + name, "name": name, **({"mimeType": _DIRECTORY} if directory else {})}
            for name, directory in names.items()
        ]
        return self._features.paginate("resources", entries, params)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _file(root: str, name: str, content: str | bytes) -> Message:
    data = content.encode() if isinstance(content, str) else content
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return {"uri": f"{root}/{name}", "digest": digest, "size": len(data)}


def _returning(content: str | bytes) -> Callable[[], str | bytes]:
    return lambda: content
