"""Skills of a server (extension ``io.modelcontextprotocol/skills``), with integrity checks.

Loading needs the extra ``skills``: ``pip install "syncmcp-client[skills]"``. ::

    from syncmcp.skills import EXTENSION, Skills

    with syncmcp.connect(url, extensions={EXTENSION: {}}) as client:
        skills = Skills(client)
        for skill in skills.list():
            print(skill.name, skill.description)
        loaded = skills.load(skill)

The content of a skill is untrusted text of a server: a person has to allow the actions that it asks
for. The checks here prove that the files of a skill match its entry, not that its instructions are
safe to follow.
"""

from __future__ import annotations

import builtins
import hashlib
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from typing_extensions import Unpack

from syncmcp import types
from syncmcp._base.checks import kind_of, text
from syncmcp._base.text import visible
from syncmcp._client.client import Client
from syncmcp._client.core import core_of
from syncmcp._client.driver import run
from syncmcp._client.pages import ALL_PAGES, L, pages
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import CallOptions
from syncmcp._protocol.capabilities import not_declared
from syncmcp.errors import InvalidOutput, NotSupported, UsageError, fresh
from syncmcp.skills.entry import (
    MANIFEST,
    MAX_BYTES,
    BadFrontmatter,
    Problem,
    SkillRefused,
    check_installed,
    difference,
    files_of,
    name_below,
    path_of,
    problem,
    refusal,
    root_of,
    split,
    uri_below,
)

if TYPE_CHECKING:
    from syncmcp.types import Resource, Skill, SkillResource

__all__ = ["EXTENSION", "LoadedSkill", "Problem", "SkillRefused", "Skills", "problem"]

EXTENSION: Final = "io.modelcontextprotocol/skills"
"""The identifier of the extension, for `extensions=` of `Client`, with `{}` as its settings."""


class Skills:
    """The skills of the server that a client is connected to.

    Client and server must declare the extension: `Client(extensions={EXTENSION: {}})`. Otherwise
    every method raises `NotSupported` before anything is sent. If only the server does not declare
    the extension, the option ``undeclared="try"`` sends nevertheless. All methods raise the errors
    of requests. A skill is read only when it is loaded, and its files only when they are requested.

    Any thread may call the methods. All methods take the options of `CallOptions` as keyword
    arguments.
    """

    def __init__(self, client: Client) -> None:
        if not isinstance(client, Client):
            raise UsageError(
                f"client must be a Client, such as group.clients[name], not {kind_of(client)}"
            )
        self._client = client
        self._core = core_of(client)

    def list(
        self, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> builtins.list[Skill]:
        """List the entries of all pages, in the server's order.

        A server may have skills that it does not list; `get` finds such skills. The list may
        contain several entries with the same name, so show their URIs, too. `problem` says why an
        entry cannot be loaded.

        Args:
            max_pages: The maximum number of pages to fetch; the client's `max_pages` by default.
            options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

        Raises:
            LimitExceeded: There are more than `max_pages` pages.
            ProtocolError: The server repeats a cursor.
        """
        skills = self._pages("skills/list", types.ListSkillsResult, max_pages, None, options).skills
        for skill in skills:
            types.set_server(skill, self._core.label)
        return skills

    def get(self, uri: str, **options: Unpack[CallOptions]) -> Skill:
        """Fetch the present entry of one skill, listed or not.

        Args:
            uri: The URI of its ``SKILL.md``, of any scheme. The server, not the scheme, decides
                whether a resource is a skill.
            options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

        Raises:
            InvalidParams: The server has no such skill.
            InvalidOutput: The server returned the entry of another skill.
        """
        text(uri, "uri")
        self._settings(options)
        result = self._client.request(
            "skills/get", {"uri": uri}, result=types.GetSkillResult, **_idempotent(options)
        )
        skill = result.skill
        if skill.uri != uri:
            raise InvalidOutput(
                "the entry describes another skill", method="skills/get", server=self._core.label
            )
        types.set_server(skill, self._core.label)
        return skill

    def load(
        self, skill: Skill, *, dynamic: bool = False, **options: Unpack[CallOptions]
    ) -> LoadedSkill:
        """Read the ``SKILL.md`` of a skill, and no other file, and verify it with the entry.

        Have a person approve the skill first, and show them `Skill.server`.

        Args:
            skill: The entry, from `list` or `get`.
            dynamic: Whether to load also skills whose files are generated and have no digests. Only
                their frontmatter is verified.
            options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

        Raises:
            SkillRefused: The entry is invalid, or the file does not match it.
            UsageError: The entry is one of another server, or PyYAML is not installed (the extra
                ``skills`` installs it). Nothing was sent.
        """
        check_installed()
        self._settings(options)
        if not isinstance(skill, types.Skill):
            raise UsageError(f"skill must be a Skill, which get(uri) returns, not {kind_of(skill)}")
        if skill.server not in (None, self._core.label):
            raise UsageError(
                f"the skill {skill.uri!r} belongs to {skill.server}", server=self._core.label
            )
        files = files_of(skill)
        if files is None and not dynamic:
            raise refusal(
                skill, "dynamic", "has no digests to verify its files: see dynamic= of load"
            )
        return LoadedSkill(self, skill.model_copy(deep=True), files, options)

    def read_directory(
        self, uri: str, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> builtins.list[Resource]:
        """List the present entries of any directory of the server, not recursively.

        The list does not extend a skill: a file that is not in the entry of a skill does not belong
        to the skill; see `LoadedSkill.directory`.

        Args:
            uri: The URI of the directory, without a trailing slash.
            max_pages: The maximum number of pages to fetch; the client's `max_pages` by default.
            options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

        Raises:
            NotSupported: The server does not declare the setting ``directoryRead``.
            InvalidParams: There is no such directory.
        """
        text(uri, "uri")
        settings, resolved = self._settings(options), self._core.resolve(options)
        if settings.get("directoryRead") is not True and resolved.undeclared != "try":
            raise NotSupported(
                not_declared(("extensions", EXTENSION, "directoryRead")), server=self._core.label
            )
        model = types.ReadResourceDirectoryResult
        params = {"uri": uri}
        return self._pages("resources/directory/read", model, max_pages, params, options).resources

    def __repr__(self) -> str:
        return f"<Skills of {self._client!r}>"

    def _settings(self, options: CallOptions) -> dict[str, Any]:
        client, core = self._client, self._core
        resolved = core.resolve(options)
        if core.live_connection() is None:  # a lazy client opens now
            core.open(Deadline(resolved.timeout))
        if EXTENSION not in core.settings.extensions or EXTENSION in client.server.extensions:
            return client.server.extension(EXTENSION)
        if resolved.undeclared == "try":
            return {}
        raise NotSupported(not_declared(("extensions", EXTENSION)), server=core.label)

    def _pages(
        self,
        method: str,
        model: type[L],
        max_pages: int | None,
        params: dict[str, Any] | None,
        options: CallOptions,
    ) -> L:
        resolved = self._core.resolve(_idempotent(options))
        self._settings(options)
        steps = pages(method, model, self._core, ALL_PAGES, max_pages, params)
        return run(steps, self._core, resolved, Deadline(resolved.timeout))


class LoadedSkill:
    """A skill whose ``SKILL.md`` was read and matches its entry; returned by `Skills.load`.

    Files are read on request, each verified with the entry, and cached. After a file that does not
    match the entry, all further reads fail: load the skill again. Any thread may call the methods.

    Attributes:
        skill: A copy of the entry with which the skill was loaded, and its files are verified.
        verified: Whether the files are verified; `False` if they are ``"dynamic"``.
        text: The whole text of ``SKILL.md``.
        body: The text without the frontmatter: the instructions. Tell a model from which server the
            instructions come.
    """

    def __init__(
        self,
        skills: Skills,
        skill: Skill,
        files: Mapping[str, SkillResource] | None,
        options: CallOptions,
    ) -> None:
        self._skills = skills
        self._files = files
        self._root = root_of(skill)
        self.skill = skill
        self.verified = files is not None
        # Guards the attributes below; never held during a request.
        self._lock = threading.Lock()
        self._cache: dict[str, bytes] = {}
        self._refused: SkillRefused | None = None
        self._total = 0
        self.text, self.body = self._parse_manifest(self._fetch(MANIFEST, options))

    @property
    def server(self) -> str:
        """The name that the program gave the server; pass it to a model along with `text`."""
        return self._skills._core.label

    @property
    def names(self) -> tuple[str, ...]:
        """The paths of the entry's files, relative to the skill; only ``SKILL.md`` if dynamic."""
        return (MANIFEST,) if self._files is None else tuple(self._files)

    def read(self, name: str, **options: Unpack[CallOptions]) -> bytes:
        """Read a file of the skill.

        Args:
            name: The path of the file as the skill writes it, relative to the skill:
                ``references/FORMS.md``. Paths that lead out of the skill are refused.
            options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

        Raises:
            SkillRefused: The entry has no such file, and nothing was sent; or the file does not
                match the entry.
        """
        text(name, "name")
        path = path_of(name)
        if self._files is not None and path not in self._files:
            path = path_of(unquote(name))  # links in Markdown are percent-encoded
        if not path or (self._files is not None and path not in self._files):
            raise refusal(self.skill, "unlisted", f"has no file {name[:200]!r}")
        return self._fetch(path, options)

    def read_text(self, name: str, **options: Unpack[CallOptions]) -> str:
        """Read a file of the skill as UTF-8 text; see `read`.

        Raises:
            SkillRefused: The file is not UTF-8, or `read` raises this error.
        """
        return self._decoded(self.read(name, **options), name)

    def directory(self, name: str = "", **options: Unpack[CallOptions]) -> list[str]:
        """List a directory of the skill, not recursively.

        Names of directories end with a slash.

        The list comes from the entry, without a request. For a dynamic skill, it comes from the
        server.

        Args:
            name: The path of the directory, relative to the skill; by default the skill's own.
            options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

        Raises:
            SkillRefused: The skill has no such directory.
            NotSupported: The skill is dynamic, and the server cannot list directories.
        """
        path = path_of(name.removesuffix("/")) if name else ""
        if path is None:
            raise refusal(self.skill, "unlisted", f"has no directory {name[:200]!r}")
        inside = f"{path}/" if path else ""
        if self._files is None:
            return [*self._list_remote(path, inside, options)]
        found = {
            inside + rest.partition("/")[0] + "/" * ("/" in rest)
            for rest in (file[len(inside) :] for file in self._files if file.startswith(inside))
        }
        if not found:
            raise refusal(self.skill, "unlisted", f"has no directory {name[:200]!r}")
        return sorted(found)

    def __repr__(self) -> str:
        return f"<LoadedSkill {visible(self.skill.uri)} of {self.server}>"

    def _list_remote(self, path: str, inside: str, options: CallOptions) -> Iterator[str]:
        for entry in self._skills.read_directory(uri_below(self._root, path), **options):
            name = name_below(self._root, entry.uri)
            if name is None or not name.startswith(inside) or "/" in name[len(inside) :]:
                raise refusal(
                    self.skill,
                    "content",
                    "is listed in a directory that does not contain it",
                    entry.uri,
                )
            yield name + "/" * (entry.mime_type == "inode/directory")

    def _fetch(self, path: str, options: CallOptions) -> bytes:
        """Read and verify a file, or return it from the cache.

        Raises `SkillRefused` if the file does not match the entry, or an earlier one did not.
        """
        with self._lock:
            if self._refused is not None:
                raise fresh(self._refused)
            if path in self._cache:
                return self._cache[path]
        file = None if self._files is None else self._files[path]
        uri = uri_below(self._root, path) if file is None else file.uri
        try:
            try:
                data = self._skills._client.read_resource(uri, **options).blob
            except InvalidOutput as error:
                raise refusal(self.skill, "content", error.message, uri) from error
            self._verify(data, uri, file)
        except SkillRefused as error:
            self._refuse_all(error)
            raise
        # Dynamic files may change, and are not cached; except for the manifest, which was verified.
        if file is not None or path == MANIFEST:
            with self._lock:
                if self._refused is None:
                    self._cache[path] = data
        return data

    def _refuse_all(self, error: SkillRefused) -> None:
        with self._lock:
            self._refused = self._refused or error
            self._cache.clear()

    def _verify(self, data: bytes, uri: str, file: SkillResource | None) -> None:
        if file is None:
            with self._lock:
                self._total += len(data)
                too_much = self._total > MAX_BYTES
            if too_much:
                raise refusal(
                    self.skill, "limit", f"returned more than {MAX_BYTES} bytes in all", uri
                )
        elif len(data) != file.size:
            problem = f"has {len(data)} bytes, but its entry says {file.size}"
            raise refusal(self.skill, "size", problem, uri)
        elif f"sha256:{hashlib.sha256(data).hexdigest()}" != file.digest:
            raise refusal(self.skill, "digest", "does not match the digest in its entry", uri)

    def _parse_manifest(self, data: bytes) -> tuple[str, str]:
        whole = self._decoded(data, MANIFEST)
        try:
            frontmatter, body = split(whole.removeprefix("\ufeff"))
            differs = difference(frontmatter, self.skill.frontmatter)
        except BadFrontmatter as error:
            raise refusal(self.skill, "frontmatter", str(error), self.skill.uri) from error
        if differs is not None:
            raise refusal(
                self.skill,
                "frontmatter",
                f"has frontmatter that differs from its entry: {differs}",
                self.skill.uri,
            )
        return whole, body

    def _decoded(self, data: bytes, name: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise refusal(
                self.skill, "content", f"has a file that is not UTF-8: {name[:200]!r}"
            ) from error


def _idempotent(options: CallOptions) -> CallOptions:
    # Requests that only read may be retried.
    return {**options, "idempotent": True}
