"""Models of extensions: tasks and skills; and the metadata documents of authorization."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, field_validator

from syncmcp._base.numbers import MAX_QUESTIONS
from syncmcp.types.base import (
    CacheableResult,
    ErrorObject,
    Flag,
    Hint,
    PaginatedResult,
    WireModel,
)
from syncmcp.types.client_features import InputRequest
from syncmcp.types.content import Resource

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
"""The status of a task; the last three are final."""

# Tasks: calls that continue after the response. In 2025-11-25 they are part of the protocol
# (basic/utilities/tasks), since 2026-07-28 the extension ``io.modelcontextprotocol/tasks``.


class Task(WireModel):
    """The state of a task (basic/utilities/tasks#task; extension: Task Polling).

    Attributes:
        task_id: The opaque id of the task.
        status: A `TaskStatus`. After a tool result with ``is_error``, a task is failed in
            2025-11-25, and completed since 2026-07-28.
        status_message: A description of the status, for people.
        created_at: When the task was created: an ISO 8601 date and time.
        last_updated_at: When the state of the task last changed: an ISO 8601 date and time.
        ttl: How long the server keeps the task, in milliseconds after ``created_at``; ``None``
            means without limit. 2025-11-25.
        ttl_ms: The same as ``ttl``, since 2026-07-28.
        poll_interval: How long to wait between two polls, in milliseconds. 2025-11-25.
        poll_interval_ms: The same as ``poll_interval``, since 2026-07-28.
        input_requests: The open questions by key, if the status is ``input_required``. The client
            answers them with ``tasks/update``. Since 2026-07-28.
        result: The result of the call, if the task has completed. Since 2026-07-28.
        error: The error of the call, if the task has failed. Since 2026-07-28.
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

    @field_validator("input_requests", mode="before")
    @classmethod
    def _few(cls, questions: Any) -> Any:
        if isinstance(questions, dict) and len(questions) > MAX_QUESTIONS:
            raise ValueError(f"more than {MAX_QUESTIONS} questions at once")
        return questions


class ListTasksResult(PaginatedResult[Task]):
    """The result of ``tasks/list`` (basic/utilities/tasks#listing-tasks). Only 2025-11-25.

    Attributes:
        tasks: The tasks of all pages, or of one.
    """

    _field: ClassVar[str] = "tasks"

    tasks: list[Task]


# Skills: files with instructions for a model (extension ``io.modelcontextprotocol/skills``). Since
# 2026-07-28.


class SkillResource(WireModel):
    """A file of a skill (ext-skills, "Skill Entries").

    Attributes:
        uri: The URI of the file.
        digest: The SHA-256 hash of the file: ``sha256:`` and 64 hexadecimal digits.
        size: The size of the file in bytes.
    """

    uri: str
    digest: str
    size: int


class Skill(WireModel):
    """The description of a skill by its server, without its files (ext-skills, "Skill Entries").

    Names are not unique: several skills may have the same name, even on one server. A skill is
    identified by its server and its URI; see ``key``.

    Attributes:
        uri: The URI of the skill's ``SKILL.md``, of any scheme.
        frontmatter: The front matter of that file.
        resources: All files of the skill; ``"dynamic"`` if they have no stable content; ``None`` if
            the server sends neither. Then the skill cannot be loaded.
    """

    uri: str
    frontmatter: dict[str, Any]
    resources: Annotated[list[SkillResource] | Literal["dynamic"] | None, Hint] = None

    # Not a field, because it is not part of the JSON; compare `CallToolResult`.
    _server: ClassVar[str | None] = None

    @property
    def server(self) -> str | None:
        """The program's name for the server of the skill; ``None`` if no client made the object."""
        return self._server

    @property
    def key(self) -> tuple[str | None, str]:
        """The server and the URI, which identify the skill among all skills of a program."""
        return self._server, self.uri

    @property
    def name(self) -> str:
        """The name in the front matter; an empty string if that is absent or no string."""
        return self._text("name")

    @property
    def description(self) -> str:
        """The description for a model; an empty string if that is absent or no string."""
        return self._text("description")

    def _text(self, field: str) -> str:
        value = self.frontmatter.get(field)
        return value if isinstance(value, str) else ""


def set_server(skill: Skill, server: str) -> None:
    """Store the server that the entry is from; see `Skill.server`."""
    vars(skill)["_server"] = server


class ListSkillsResult(PaginatedResult[Skill], CacheableResult):
    """The result of ``skills/list`` (ext-skills, "Listing Skills").

    Attributes:
        skills: The skills of all pages, or of one.
    """

    _field: ClassVar[str] = "skills"

    skills: list[Skill]


class GetSkillResult(CacheableResult):
    """The result of ``skills/get`` (ext-skills, "Getting a Skill").

    Attributes:
        skill: The description of the skill.
    """

    skill: Skill


class ReadResourceDirectoryResult(PaginatedResult[Resource]):
    """The result of ``resources/directory/read`` (ext-skills, "Reading Directories").

    Attributes:
        resources: The files and directories directly in the directory; a directory has the media
            type ``inode/directory``.
    """

    _field: ClassVar[str] = "resources"

    resources: list[Resource]


# The metadata documents of authorization (basic/authorization).
#
# URLs are strings, because they are compared character by character and must not be normalised.
# Members have their names in the RFCs; unknown members are kept, too.


Words: TypeAlias = Annotated[list[str] | None, Hint]
"""An optional list of strings; a malformed list is read as absent."""

Address: TypeAlias = Annotated[str | None, Hint]
"""An optional URL; a malformed URL is read as absent."""


class AuthModel(WireModel):
    """The base of the metadata documents of OAuth, whose JSON names are in snake_case."""

    model_config = ConfigDict(alias_generator=None)


class ProtectedResourceMetadata(AuthModel):
    """The protected resource metadata of an MCP server (RFC 9728 §2).

    Attributes:
        resource: The resource identifier of the MCP server.
        authorization_servers: The issuers whose tokens the MCP server accepts.
        scopes_supported: The scopes that the MCP server uses.
        resource_name: The name of the MCP server for people.
    """

    resource: str
    authorization_servers: Words = None
    scopes_supported: Words = None
    resource_name: Annotated[str | None, Hint] = None


class AuthorizationServerMetadata(AuthModel):
    """The metadata of an authorization server (RFC 8414 §2, OpenID Connect Discovery §3).

    Attributes:
        issuer: The issuer identifier of the authorization server.
        authorization_endpoint: The URL at which people sign in.
        token_endpoint: The URL at which tokens are issued.
        registration_endpoint: The URL at which clients register (RFC 7591).
        revocation_endpoint: The URL at which tokens are revoked (RFC 7009).
        scopes_supported: The scopes that clients may ask for.
        response_types_supported: The values of ``response_type``.
        grant_types_supported: The grant types.
        code_challenge_methods_supported: The methods of PKCE. Absent means no PKCE.
        token_endpoint_auth_methods_supported: How clients authenticate at the token endpoint.
        token_endpoint_auth_signing_alg_values_supported: The algorithms for signed assertions of
            clients at the token endpoint.
        dpop_signing_alg_values_supported: The algorithms for DPoP proofs (RFC 9449).
        authorization_grant_profiles_supported: The profiles of authorization grants.
        client_id_metadata_document_supported: True if a client id may be the URL of a client id
            metadata document.
        authorization_response_iss_parameter_supported: True if redirects have the parameter ``iss``
            (RFC 9207).
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
