"""What the entry of a skill says, and whether it can be: the files, their names, the limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import quote, unquote

from syncmcp.errors import ProtocolError

if TYPE_CHECKING:
    from syncmcp.types import Skill, SkillResource

MAX_FILES: Final = 512
"""The most files of a skill that is loaded."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""The most bytes that the files of one skill may have together."""

Problem: TypeAlias = Literal[
    "entry", "limit", "dynamic", "unlisted", "content", "size", "digest", "frontmatter"
]
"""Why a skill is refused: see `SkillRefused`."""

MANIFEST: Final = "SKILL.md"
_UNQUOTED: Final = "/!$&'()*+,;=:@"
_DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")


class SkillRefused(ProtocolError):
    """A skill, or a file of it, is not what its entry says; nothing of it is to be used.

    If the skill has merely changed, `Skills.get` has the new entry; whoever approved the old one
    has to be asked again.

    Attributes:
        skill: The URI of the skill.
        file: The URI of the file concerned, or `None`.
        problem: ``"entry"``: the entry is not valid; ``"limit"``: too many files or bytes;
            ``"dynamic"``: nothing of it can be checked, and that was not asked for;
            ``"unlisted"``: there is no such file in the entry; ``"content"``: it cannot be read
            as the file it should be; ``"size"``, ``"digest"``, ``"frontmatter"``: they differ.
    """

    skill: str = ""
    file: str | None = None
    problem: Problem = "entry"

    def _subject(self) -> str:
        return f"skill {self.skill!r}"


def problem(skill: Skill) -> str | None:
    """Why a skill cannot be loaded, as far as its entry tells; `None` if it can be.

    For a person who wonders; `Skills.load` raises the same as `SkillRefused`.
    """
    try:
        files_of(skill)
    except SkillRefused as error:
        return error.message
    return None


def refusal(skill: Skill, kind: Problem, message: str, file: str | None = None) -> SkillRefused:
    """The error that refuses a skill; `message` begins with a verb."""
    where = message if file is None else f"{file!r} {message}"
    return SkillRefused(where, skill=skill.uri, file=file, problem=kind, server=skill.server)


def files_of(skill: Skill) -> dict[str, SkillResource] | None:
    """The files of an entry by their names; `None` if it is dynamic.

    Raises:
        SkillRefused: The entry is not valid.
    """
    root = root_of(skill)
    if not skill.name or not skill.description:
        raise refusal(skill, "entry", "has no name or no description")
    if unquote(root.rpartition("/")[2]) != skill.name:
        raise refusal(skill, "entry", "is in a directory of another name")
    if skill.resources == "dynamic":
        return None
    if skill.resources is None:
        raise refusal(skill, "entry", "does not say which files it has")
    if len(skill.resources) > MAX_FILES:
        raise refusal(skill, "limit", f"has {len(skill.resources)} files, more than {MAX_FILES}")
    files: dict[str, SkillResource] = {}
    for file in skill.resources:
        name = name_below(root, file.uri)
        if name is None:
            raise refusal(skill, "entry", "is not in the skill", file.uri)
        if name in files:
            raise refusal(skill, "entry", "is in the entry twice", file.uri)
        if file.size < 0 or _DIGEST.fullmatch(file.digest) is None:
            raise refusal(skill, "entry", "has no size or no SHA-256 digest", file.uri)
        files[name] = file.model_copy()
    if MANIFEST not in files or files[MANIFEST].uri != skill.uri:
        raise refusal(skill, "entry", f"does not list its {MANIFEST}")
    total = sum(file.size for file in skill.resources)
    if total > MAX_BYTES:
        raise refusal(skill, "limit", f"has {total} bytes, more than {MAX_BYTES}")
    return files


def root_of(skill: Skill) -> str:
    """The URI of the skill's directory, without a slash at its end.

    Raises:
        SkillRefused: The URI is that of no ``SKILL.md``.
    """
    root, _, last = skill.uri.rpartition("/")
    if last != MANIFEST or not root or root.endswith("/") or {"?", "#"} & set(root):
        raise refusal(skill, "entry", f"has a URI that does not end with a name and /{MANIFEST}")
    return root


def name_below(root: str, uri: str) -> str | None:
    """What a URI below the root is called there; `None` for any other one.

    A name is compared and shown decoded, so nothing may mean something else after it.
    """
    inside = uri.startswith(f"{root}/") and not {"?", "#"} & set(uri[len(root) :])
    segments = [unquote(part) for part in uri[len(root) + 1 :].split("/")]
    return "/".join(segments) if inside and all(map(_is_plain, segments)) else None


def path_of(name: str) -> str | None:
    """A relative name as a file system reads it; `None` if it leads out of the skill."""
    path: list[str] = []
    for segment in name.split("/"):
        if segment == "..":
            if not path:
                return None
            path.pop()
        elif segment != ".":
            if not _is_plain(segment):
                return None
            path.append(segment)
    return "/".join(path)


def _is_plain(segment: str) -> bool:
    return (
        segment not in ("", ".", "..") and segment.isprintable() and not {"/", "\\"} & set(segment)
    )


def uri_below(root: str, path: str) -> str:
    """The URI of what has that name below the root."""
    return f"{root}/{quote(path, safe=_UNQUOTED)}" if path else root
