"""Models of what extensions add: tasks, skills, metadata that sign-in is guided by."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict

from syncmcp.types.base import (
    CacheableResult,
    ErrorObject,
    Flag,
    Hint,
    NotificationParams,
    PaginatedResult,
    Result,
    WireModel,
)
from syncmcp.types.client_features import InputRequest
from syncmcp.types.content import Resource

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
"""Where a task stands; the last three are final."""

# Tasks: requests that outlive their answer. In 2025-11-25 they are part of the protocol
# (basic/utilities/tasks), since 2026-07-28 the extension ``io.modelcontextprotocol/tasks``.


class Task(WireModel):
    """The state of a task (basic/utilities/tasks#task; extension: Task Polling).

    Attributes:
        task_id: Opaque.
        status: A `TaskStatus`. A tool result with ``is_error`` makes a task failed in 2025-11-25
            and completed since 2026-07-28.
        status_message: For people.
        created_at: An ISO 8601 date and time.
        last_updated_at: An ISO 8601 date and time.
        ttl: Milliseconds after ``created_at`` for which the server keeps the task; ``None`` means
            without limit. 2025-11-25.
        ttl_ms: The same, since 2026-07-28.
        poll_interval: Milliseconds to wait between two looks at the task. 2025-11-25.
        poll_interval_ms: The same, since 2026-07-28.
        input_requests: Questions to be answered by ``tasks/update``, by key, if the status is
            ``input_required``. Since 2026-07-28.
        result: What the request would have answered, if completed. Since 2026-07-28.
        error: The error it would have answered, if failed. Since 2026-07-28.
    """

    task_id: str
    status: TaskStatus | str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl: int | None = None
    ttl_ms: int | None = None
    poll_interval: int | None = None
    poll_interval_ms: int | None = None
    input_requests: dict[str, InputRequest] | None = None
    result: dict[str, Any] | None = None
    error: ErrorObject | None = None

    @property
    def is_final(self) -> bool:
        """Whether the task has ended, in whatever way."""
        return self.status in ("completed", "failed", "cancelled")


class RelatedTaskMetadata(WireModel):
    """The value of ``_meta["io.modelcontextprotocol/related-task"]``. Only 2025-11-25.

    See basic/utilities/tasks#associating-task-related-messages.
    """

    task_id: str


class CreateTaskResult(Result):
    """Answer to a request that is run as a task (basic/utilities/tasks#creating-tasks).

    Only 2025-11-25; since 2026-07-28 it is a `TaskResult` with the ``result_type`` ``"task"``.
    """

    task: Task


class TaskResult(Result, Task):
    """A task whose fields stand in the result itself.

    Answers ``tasks/get``; in 2025-11-25 also ``tasks/cancel``; since 2026-07-28 also a
    ``tools/call`` that is run as a task (extension: Task Creation).
    """


class ListTasksResult(PaginatedResult):
    """Answer to ``tasks/list`` (basic/utilities/tasks#listing-tasks). Only 2025-11-25."""

    tasks: list[Task]


class TaskStatusNotificationParams(NotificationParams, Task):
    """Parameters of ``notifications/tasks/status``; of ``notifications/tasks`` since 2026-07-28."""


# Skills, which teach a model how to do something (extension ``io.modelcontextprotocol/skills``).
#
# Since 2026-07-28.


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


def set_server(skill: Skill, server: str) -> None:
    """Note which server the entry is from; see `Skill.server`."""
    vars(skill)["_server"] = server


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


# Metadata that sign-in is guided by (basic/authorization); URLs stay the strings they were.
#
# They are compared letter by letter, so nothing may normalise them. Members have the names that
# the RFCs give them; those that nobody here needs are kept, too.


Words: TypeAlias = Annotated[list[str] | None, Hint]
"""A list of what is supported; a malformed one reads as absent."""

Address: TypeAlias = Annotated[str | None, Hint]
"""A URL that is optional; a malformed one reads as absent."""


class AuthModel(WireModel):
    """Base of the metadata documents of OAuth, whose names are snake_case on the wire, too."""

    model_config = ConfigDict(alias_generator=None)


class ProtectedResourceMetadata(AuthModel):
    """What an MCP server says about itself (RFC 9728 §2).

    Attributes:
        resource: The identifier of the resource.
        authorization_servers: The issuers whose tokens it takes.
        scopes_supported: The scopes that matter to it.
        resource_name: What to call it before people.
    """

    resource: str
    authorization_servers: Words = None
    scopes_supported: Words = None
    resource_name: Annotated[str | None, Hint] = None


class AuthorizationServerMetadata(AuthModel):
    """What an authorization server says about itself (RFC 8414 §2, OpenID Connect Discovery §3).

    Attributes:
        issuer: Its identifier.
        authorization_endpoint: Where people are sent.
        token_endpoint: Where tokens come from.
        registration_endpoint: Where clients register (RFC 7591).
        revocation_endpoint: Where tokens are given back (RFC 7009).
        code_challenge_methods_supported: What it knows of PKCE; absent: nothing.
        client_id_metadata_document_supported: Whether a client id may be the URL of a document.
        authorization_response_iss_parameter_supported: Whether redirects name it (RFC 9207).
    """

    issuer: str
    authorization_endpoint: Address = None
    token_endpoint: Address = None
    registration_endpoint: Address = None
    revocation_endpoint: Address = None
    scopes_supported: Words = None
    response_types_supported: Words = None
    grant_types_supported: Words = None
    code_challenge_methods_supported: Words = None
    token_endpoint_auth_methods_supported: Words = None
    token_endpoint_auth_signing_alg_values_supported: Words = None
    dpop_signing_alg_values_supported: Words = None
    authorization_grant_profiles_supported: Words = None
    client_id_metadata_document_supported: Annotated[Flag, Hint] = False
    authorization_response_iss_parameter_supported: Annotated[Flag, Hint] = False
