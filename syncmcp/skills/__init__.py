"""Skills of a server (extension ``io.modelcontextprotocol/skills``), read with care.

Loading needs the extra ``skills``: ``pip install "syncmcp-client[skills]"``. ::

    with syncmcp.connect(url, extensions={EXTENSION: {}}) as client:
        skills = Skills(client)
        for skill in skills.list():
            print(skill.name, skill.description)
        loaded = skills.load(skill)

What a skill says is a server's text, and what it wants done is for a person to allow: the checks
here show that its files are those of its entry, not that anybody should follow them.
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
from syncmcp._base.checks import text
from syncmcp._client.core import core_of
from syncmcp._client.driver import run
from syncmcp._client.pages import ALL_PAGES, pages
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
    from syncmcp._client.client import Client
    from syncmcp.types import Resource, Skill, SkillResource

__all__ = ["EXTENSION", "LoadedSkill", "Problem", "SkillRefused", "Skills", "problem"]

EXTENSION: Final = "io.modelcontextprotocol/skills"
"""For `extensions=` of `Client`, with `{}` as its settings."""


class Skills:
    """The skills of the server that a client is connected to.

    Both sides must have the extension: `Client(extensions={EXTENSION: {}})`. Every method raises
    `NotSupported` before anything is sent where one does not (where the server does not declare
    it, unless the option `undeclared` is ``"try"``), and what else can become of a request.
    Nothing of a skill is read before it is loaded, and no file before it is wanted.

    Any thread may call. All take the options of `CallOptions` by keyword.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(
        self, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> builtins.list[Skill]:
        """All entries that the server lists, from all pages, in its order.

        A server may have skills that it does not list; `get` finds them. Entries with the same
        name are all there: show their URIs, too. One that cannot be loaded has a `problem`.

        Args:
            max_pages: The most pages to fetch; the client's `max_pages` by default.
            options: See `CallOptions`.

        Raises:
            LimitExceeded: There are more pages.
            ProtocolError: The server's cursors go round in circles.
        """
        result = self._pages(
            "skills/list", types.ListSkillsResult, "skills", max_pages, None, options
        )
        for skill in result.skills:
            types.set_server(skill, core_of(self._client).label)
        found: builtins.list[Skill] = result.skills
        return found

    def get(self, uri: str, **options: Unpack[CallOptions]) -> Skill:
        """The entry of one skill, as it is now, whether or not it is listed.

        Args:
            uri: The URI of its ``SKILL.md``, of any scheme. No scheme makes a resource a skill:
                the server says whether it is one.
            options: See `CallOptions`.

        Raises:
            InvalidParams: The server has no such skill.
            InvalidOutput: It answered with another one.
        """
        text(uri, "uri")
        self._settings(options)
        result = self._client.request(
            "skills/get", {"uri": uri}, result=types.GetSkillResult, **_harmless(options)
        )
        skill = result.skill
        if skill.uri != uri:
            raise InvalidOutput(
                "the entry is that of another skill",
                method="skills/get",
                server=core_of(self._client).label,
            )
        types.set_server(skill, core_of(self._client).label)
        return skill

    def load(
        self, skill: Skill, *, dynamic: bool = False, **options: Unpack[CallOptions]
    ) -> LoadedSkill:
        """Read the ``SKILL.md`` of a skill, and nothing else, and hold it against its entry.

        Ask whoever has to approve the skill before, and show them `Skill.server`.

        Args:
            skill: Its entry, from `list` or `get`.
            dynamic: Load it even if its files have no lasting content and so no digests: only the
                frontmatter is checked then.
            options: See `CallOptions`.

        Raises:
            SkillRefused: The entry, or the file, is not what it should be.
            UsageError: The entry is another server's; or PyYAML is not installed: install
                ``syncmcp-client[skills]``. Nothing was sent.
        """
        check_installed()
        self._settings(options)
        if skill.server not in (None, core_of(self._client).label):
            raise UsageError(
                f"the skill {skill.uri!r} is one of {skill.server}",
                server=core_of(self._client).label,
            )
        files = files_of(skill)
        if files is None and not dynamic:
            raise refusal(
                skill, "dynamic", "has no digests to check its files by: see dynamic= of load"
            )
        return LoadedSkill(self, skill.model_copy(deep=True), files, options)

    def read_directory(
        self, uri: str, *, max_pages: int | None = None, **options: Unpack[CallOptions]
    ) -> builtins.list[Resource]:
        """What the server has directly in a directory now, whether or not that is of a skill.

        It adds nothing to the entry of a skill: a file that this lists and the entry does not is
        no file of it; see `LoadedSkill.directory`.

        Args:
            uri: The directory, without a slash at its end.
            max_pages: The most pages to fetch; the client's `max_pages` by default.
            options: See `CallOptions`.

        Raises:
            NotSupported: The server does not offer it (setting ``directoryRead``).
            InvalidParams: There is no such directory.
        """
        text(uri, "uri")
        settings, resolved = self._settings(options), core_of(self._client).resolve(options)
        if settings.get("directoryRead") is not True and resolved.undeclared != "try":
            raise NotSupported(
                not_declared(("extensions", EXTENSION, "directoryRead")),
                server=core_of(self._client).label,
            )
        found: builtins.list[Resource] = self._pages(
            "resources/directory/read",
            types.ReadResourceDirectoryResult,
            "resources",
            max_pages,
            {"uri": uri},
            options,
        ).resources
        return found

    def __repr__(self) -> str:
        return f"<Skills of {self._client!r}>"

    def _settings(self, options: CallOptions) -> dict[str, Any]:
        client, core = self._client, core_of(self._client)
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
        model: Any,
        items: str,
        max_pages: int | None,
        params: dict[str, Any] | None,
        options: CallOptions,
    ) -> Any:
        core = core_of(self._client)
        resolved = core.resolve(_harmless(options))
        self._settings(options)
        steps: Any = pages(method, model, items, core, ALL_PAGES, max_pages, params)
        return run(steps, core, resolved, Deadline(resolved.timeout))

    def _read(self, uri: str, options: CallOptions) -> bytes:
        return self._client.read_resource(uri, **options).blob


class LoadedSkill:
    """A skill whose ``SKILL.md`` was read and is that of its entry; made by `Skills.load`.

    Files are read when they are asked for, each checked against the entry, and kept. After a file
    that is not what the entry says, no other one is read: load the skill anew. Any thread may use
    it.

    Attributes:
        skill: The entry that it was loaded by; what counts for as long as it is used.
        verified: Whether its files are checked; they are not if they are ``"dynamic"``.
        text: All of ``SKILL.md``.
        body: The same without the frontmatter: the instructions. Say to a model whose they are.
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
        # Guards what follows; never held while the server is asked.
        self._lock = threading.Lock()
        self._kept: dict[str, bytes] = {}
        self._broken: SkillRefused | None = None
        self._total = 0
        self.text, self.body = self._open(self._fetch(MANIFEST, options))

    @property
    def server(self) -> str:
        """What the program calls the server: a model that gets `text` has to be told."""
        return core_of(self._skills._client).label

    @property
    def names(self) -> tuple[str, ...]:
        """The files of the entry, each relative to the skill; of a dynamic one ``SKILL.md``."""
        return (MANIFEST,) if self._files is None else tuple(self._files)

    def read(self, name: str, **options: Unpack[CallOptions]) -> bytes:
        """The bytes of a file of the skill.

        Args:
            name: Its path as the skill has it, relative to the skill: ``references/FORMS.md``.
                Nothing outside of the skill has a name.
            options: See `CallOptions`.

        Raises:
            SkillRefused: There is no such file in the entry (nothing was sent), or it is not what
                the entry says.
        """
        text(name, "name")
        path = path_of(name)
        if self._files is not None and path not in self._files:
            path = path_of(unquote(name))  # as a link in Markdown has it
        if not path or (self._files is not None and path not in self._files):
            raise refusal(self.skill, "unlisted", f"has no file {name[:200]!r}")
        return self._fetch(path, options)

    def read_text(self, name: str, **options: Unpack[CallOptions]) -> str:
        """The same as text, which is in UTF-8.

        Raises:
            SkillRefused: It is none, or for what `read` refuses it.
        """
        return self._decoded(self.read(name, **options), name)

    def directory(self, name: str = "", **options: Unpack[CallOptions]) -> list[str]:
        """What is directly in a directory of the skill; names of directories end with a slash.

        The entry tells, and nothing is sent; for a dynamic skill the server is asked.

        Args:
            name: The directory, relative to the skill; the skill itself by default.
            options: See `CallOptions`.

        Raises:
            SkillRefused: The skill has no such directory.
            NotSupported: It is dynamic, and the server cannot list directories.
        """
        path = path_of(name.removesuffix("/")) if name else ""
        if path is None:
            raise refusal(self.skill, "unlisted", f"has no directory {name[:200]!r}")
        inside = f"{path}/" if path else ""
        if self._files is None:
            return [*self._listed(path, inside, options)]
        found = {
            inside + rest.partition("/")[0] + "/" * ("/" in rest)
            for rest in (file[len(inside) :] for file in self._files if file.startswith(inside))
        }
        if not found:
            raise refusal(self.skill, "unlisted", f"has no directory {name[:200]!r}")
        return sorted(found)

    def __repr__(self) -> str:
        return f"<LoadedSkill {self.skill.uri} of {self.server}>"

    def _listed(self, path: str, inside: str, options: CallOptions) -> Iterator[str]:
        for entry in self._skills.read_directory(uri_below(self._root, path), **options):
            name = name_below(self._root, entry.uri)
            if name is None or not name.startswith(inside) or "/" in name[len(inside) :]:
                raise refusal(
                    self.skill, "content", "has a directory with what is not in it", entry.uri
                )
            yield name + "/" * (entry.mime_type == "inode/directory")

    def _fetch(self, path: str, options: CallOptions) -> bytes:
        """The bytes of a file, checked.

        Raises:
            SkillRefused: They are not what they should be.
        """
        with self._lock:
            if self._broken is not None:
                raise fresh(self._broken)
            if path in self._kept:
                return self._kept[path]
        file = None if self._files is None else self._files[path]
        uri = uri_below(self._root, path) if file is None else file.uri
        try:
            try:
                data = self._skills._read(uri, options)
            except InvalidOutput as error:
                raise refusal(self.skill, "content", error.message, uri) from error
            self._verify(data, uri, file)
        except SkillRefused as error:
            self._break(error)
            raise
        # What is generated may be another one each time; but what was loaded is what was checked.
        if file is not None or path == MANIFEST:
            self._keep(path, data)
        return data

    def _verify(self, data: bytes, uri: str, file: SkillResource | None) -> None:
        if file is None:
            with self._lock:
                self._total += len(data)
                too_much = self._total > MAX_BYTES
            if too_much:
                raise refusal(self.skill, "limit", f"gave more than {MAX_BYTES} bytes in all", uri)
        elif len(data) != file.size:
            problem = f"has {len(data)} bytes, and its entry says {file.size}"
            raise refusal(self.skill, "size", problem, uri)
        elif f"sha256:{hashlib.sha256(data).hexdigest()}" != file.digest:
            raise refusal(self.skill, "digest", "has another digest than its entry says", uri)

    def _open(self, data: bytes) -> tuple[str, str]:
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
                f"has another frontmatter than its entry says: {differs}",
                self.skill.uri,
            )
        return whole, body

    def _decoded(self, data: bytes, name: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise refusal(self.skill, "content", f"has no text in {name[:200]!r}") from error

    def _keep(self, path: str, data: bytes) -> None:
        with self._lock:
            if self._broken is None:
                self._kept[path] = data

    def _break(self, error: SkillRefused) -> None:
        with self._lock:
            self._broken = self._broken or error
            self._kept.clear()


def _harmless(options: CallOptions) -> CallOptions:
    # What only asks may be asked twice.
    return {**options, "idempotent": True}
