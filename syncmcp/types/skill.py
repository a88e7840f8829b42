"""Skills, which teach a model how to do something (extension ``io.modelcontextprotocol/skills``).

Since 2026-07-28.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from syncmcp.types.base import CacheableResult, Hint, PaginatedResult, WireModel
from syncmcp.types.resource import Resource


class SkillResource(WireModel):
    """A file of a skill (ext-skills, "Skill Entries").

    Attributes:
        digest: ``sha256:`` and 64 hexadecimal digits, of the bytes of the file.
        size: How many bytes it has.
    """

    uri: str
    digest: str
    size: int


class Skill(WireModel):
    """What a server says of a skill; nothing of the skill itself (ext-skills, "Skill Entries").

    A name is no identity: two skills may have the same, of one server or of several. What
    identifies a skill is the server together with the URI; see ``key``.

    Attributes:
        uri: The skill's ``SKILL.md``, of any scheme.
        frontmatter: What stands at the head of that file.
        resources: All of its files; ``"dynamic"`` if they have no lasting content; ``None`` if
            the server says neither, and then the skill cannot be loaded.
    """

    uri: str
    frontmatter: dict[str, Any]
    resources: Annotated[list[SkillResource] | Literal["dynamic"] | None, Hint] = None

    # As in results of tools: no field, for it is not on the wire.
    _server: ClassVar[str | None] = None

    def _came_from(self, server: str) -> None:
        vars(self)["_server"] = server

    @property
    def server(self) -> str | None:
        """What the program calls the server that the entry is from; ``None`` if made by hand."""
        return self._server

    @property
    def key(self) -> tuple[str | None, str]:
        """What identifies the skill among all that a program knows: the server and the URI."""
        return self._server, self.uri

    @property
    def name(self) -> str:
        """What it is called; the empty string if that is no text."""
        return self._text("name")

    @property
    def description(self) -> str:
        """What it is for, in words for a model; the empty string if that is no text."""
        return self._text("description")

    def _text(self, field: str) -> str:
        value = self.frontmatter.get(field)
        return value if isinstance(value, str) else ""


class ListSkillsResult(PaginatedResult, CacheableResult):
    """Answer to ``skills/list`` (ext-skills, "Listing Skills")."""

    skills: list[Skill]


class GetSkillResult(CacheableResult):
    """Answer to ``skills/get`` (ext-skills, "Getting a Skill")."""

    skill: Skill


class ReadResourceDirectoryResult(PaginatedResult):
    """Answer to ``resources/directory/read`` (ext-skills, "Reading Directories").

    Attributes:
        resources: What is directly in the directory; a directory in it has the type
            ``inode/directory``.
    """

    resources: list[Resource]
