"""What the entry of a skill says, and whether it can be: the files, their names, the limits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote, unquote

from syncmcp.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from yaml import Node

    from syncmcp.types import Skill, SkillResource

__all__ = ["BadFrontmatter", "check_installed", "difference", "split"]


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


# The YAML at the head of a ``SKILL.md``, held against what an entry says of it.
#
# Needs the extra ``skills``. Nothing is made of the YAML but a comparison: no tag, no alias and
# no timestamp of it ever becomes an object here.


MAX_CHARACTERS: Final = 65_536
"""The longest frontmatter."""

MAX_DEPTH: Final = 32
"""Values within each other in it."""

_FENCE: Final = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)

# The scalars of YAML 1.2's core schema that JSON has a type for; what else is plain is text.
_PLAIN: Final = "plain"
_STRING: Final = "tag:yaml.org,2002:str"
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE: Final = frozenset(("true", "True", "TRUE"))
_FALSE: Final = frozenset(("false", "False", "FALSE"))
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BASES: Final = {"0o": 8, "0x": 16}

# Booleans until YAML 1.1, texts since 1.2: either reading is what the author wrote.
_OLD_TRUE: Final = frozenset(("yes", "Yes", "YES", "on", "On", "ON"))
_OLD_FALSE: Final = frozenset(("no", "No", "NO", "off", "Off", "OFF"))


class BadFrontmatter(ValueError):
    """There is none, or none that is safe to read."""


def check_installed() -> None:
    """Make sure that YAML can be read.

    Raises:
        UsageError: PyYAML is not installed.
    """
    if find_spec("yaml") is None:
        raise UsageError("loading skills needs PyYAML: install syncmcp-client[skills]")


def split(text: str) -> tuple[str, str]:
    """The frontmatter of a file and what follows it.

    Raises:
        BadFrontmatter: It has none, or a longer one than is read.
    """
    opening = _FENCE.match(text)
    if opening is None:
        raise BadFrontmatter("does not begin with frontmatter")
    closing = _FENCE.search(text, opening.end())
    if closing is None or closing.start() - opening.end() > MAX_CHARACTERS:
        raise BadFrontmatter(f"has no frontmatter that ends within {MAX_CHARACTERS} characters")
    return text[opening.end() : closing.start()], text[closing.end() :]


def difference(frontmatter: str, stated: dict[str, Any]) -> str | None:
    """Where the YAML says something else than `stated`, in words; `None` if they are the same.

    Raises:
        BadFrontmatter: It is no YAML, or has what is not read: aliases, tags, a key twice, more
            depth than `MAX_DEPTH`.
    """
    node = _parse_yaml(frontmatter)
    return "it is no mapping" if node is None else _node_difference(node, stated, "")


def _parse_yaml(frontmatter: str) -> Node | None:
    import yaml
    from yaml.composer import Composer
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner

    class Loader(Reader, Scanner, Parser, Composer):
        """Nodes, and nothing made of them; depth is counted on the way down."""

        def __init__(self, stream: str) -> None:
            Reader.__init__(self, stream)
            Scanner.__init__(self)
            Parser.__init__(self)
            Composer.__init__(self)
            self._depth = 0

        def compose_node(self, parent: Node | None, index: int) -> Node | None:
            if self.check_event(yaml.AliasEvent):
                raise BadFrontmatter("has a YAML alias")
            return super().compose_node(parent, index)

        def descend_resolver(self, parent: Node | None, index: Any) -> None:
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise BadFrontmatter(f"has more than {MAX_DEPTH} values within each other")

        def ascend_resolver(self) -> None:
            self._depth -= 1

        def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
            if kind is yaml.ScalarNode:
                return _PLAIN if implicit[0] else _STRING
            return ""

    try:
        return Loader(frontmatter).get_single_node()
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise BadFrontmatter(f"has frontmatter that is no YAML: {problem}") from error


def _node_difference(node: Node, stated: Any, where: str) -> str | None:
    import yaml

    if isinstance(node, yaml.ScalarNode):
        if any(_same(reading, stated) for reading in _readings(node)):
            return None
        return f"{where or 'the whole'} differs"
    if node.tag:
        raise BadFrontmatter(f"has the YAML tag {node.tag}")
    if isinstance(node, yaml.SequenceNode):
        if not isinstance(stated, list) or len(stated) != len(node.value):
            return f"{where or 'the whole'} differs"
        pairs = [(item, stated[at], f"{where}[{at}]") for at, item in enumerate(node.value)]
    else:
        members = _members(node)
        if not isinstance(stated, dict):
            return f"{where or 'the whole'} differs"
        odd = sorted(members.keys() ^ stated.keys())
        if odd:
            return f"only one of them has {_child_path(where, odd[0])}"
        pairs = [(item, stated[key], _child_path(where, key)) for key, item in members.items()]
    return next(filter(None, (_node_difference(*pair) for pair in pairs)), None)


def _members(node: Node) -> dict[str, Node]:
    import yaml

    members: dict[str, Node] = {}
    for key, item in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag not in (_PLAIN, _STRING):
            raise BadFrontmatter("has a key that is no text")
        if key.value in members:
            raise BadFrontmatter("has a key twice")
        members[key.value] = item
    return members


def _child_path(where: str, key: str) -> str:
    # What a server wrote may be long.
    return f"{where}.{key[:60]!r}" if where else repr(key[:60])


def _readings(node: Node) -> Iterator[Any]:
    """The JSON values that a scalar may stand for."""
    text = node.value
    if node.tag == _STRING:
        yield text
        return
    if node.tag != _PLAIN:
        raise BadFrontmatter(f"has the YAML tag {node.tag}")
    if text in _NULL:
        yield None
    elif text in _TRUE | _FALSE:
        yield text in _TRUE
    elif _INTEGER.fullmatch(text):
        yield int(text, _BASES[text[:2]]) if text[:2] in _BASES else int(text)
    elif _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        yield float(text)
    else:
        yield text
        if text in _OLD_TRUE | _OLD_FALSE:
            yield text in _OLD_TRUE


def _same(reading: Any, stated: Any) -> bool:
    # JSON's 1 and 1.0 are one number; Python's 1 and True would be, too.
    if isinstance(reading, bool) or isinstance(stated, bool):
        return reading is stated
    return bool(reading == stated)
