"""The entry of a skill: validation of its files and limits, and comparison of its frontmatter."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote, unquote

from syncmcp._base.text import cut
from syncmcp.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from yaml import Node

    from syncmcp.types import Skill, SkillResource

MAX_FILES: Final = 512
"""The maximum number of files of a skill that is loaded."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""The maximum number of bytes of all files of one skill together."""

Problem: TypeAlias = Literal[
    "entry", "limit", "dynamic", "unlisted", "content", "size", "digest", "frontmatter"
]
"""The reasons to refuse a skill; see `SkillRefused`."""

MANIFEST: Final = "SKILL.md"
_SHOWN: Final = 1000
_UNQUOTED: Final = "/!$&'()*+,;=:@"
_DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")


class SkillRefused(ProtocolError):
    """A skill, or one of its files, does not match its entry; do not use any part of the skill.

    If the skill has merely changed, `Skills.get` returns the new entry, which a person has to
    approve again.

    Attributes:
        skill: The URI of the skill.
        file: The URI of the file concerned, or `None`.
        problem: The reason. ``"entry"``: the entry is invalid. ``"limit"``: there are too many
            files or bytes. ``"dynamic"``: the files cannot be verified, and `dynamic` of
            `Skills.load` was not set. ``"unlisted"``: there is no such file in the entry.
            ``"content"``: the file cannot be read as the expected type. ``"size"``, ``"digest"`` or
            ``"frontmatter"``: this differs from the entry.
    """

    skill: str = ""
    file: str | None = None
    problem: Problem = "entry"

    def _subject(self) -> str:
        return f"skill {cut(self.skill, _SHOWN)!r}"


def problem(skill: Skill) -> str | None:
    """Return why an entry is invalid, for a person; `None` if the skill can be loaded.

    `Skills.load` raises a `SkillRefused` with the same message.
    """
    try:
        files_of(skill)
    except SkillRefused as error:
        return error.message
    return None


def refusal(skill: Skill, kind: Problem, message: str, file: str | None = None) -> SkillRefused:
    """Make a `SkillRefused`; `message` begins with a verb."""
    where = message if file is None else f"{file!r} {message}"
    return SkillRefused(where, skill=skill.uri, file=file, problem=kind, server=skill.server)


def files_of(skill: Skill) -> dict[str, SkillResource] | None:
    """Return the files of a valid entry by name, `None` if dynamic; or raise `SkillRefused`."""
    root = root_of(skill)
    if not skill.name or not skill.description:
        raise refusal(skill, "entry", "has no name or no description")
    if unquote(root.rpartition("/")[2]) != skill.name:
        raise refusal(skill, "entry", "is in a directory of another name")
    if skill.resources == "dynamic":
        return None
    if skill.resources is None:
        raise refusal(skill, "entry", "does not list its files")
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
    """Return the URI of the skill's directory, without a trailing slash.

    Raises `SkillRefused` if the URI of the skill does not end with the name of the manifest.
    """
    root, _, last = skill.uri.rpartition("/")
    if last != MANIFEST or not root or root.endswith("/") or {"?", "#"} & set(root):
        raise refusal(skill, "entry", f"has a URI that does not end with a name and /{MANIFEST}")
    return root


def name_below(root: str, uri: str) -> str | None:
    """Return the decoded path of a URI relative to the root; `None` if it is not below the root.

    Names are compared and shown in decoded form, so decoding must not change their structure.
    """
    inside = uri.startswith(f"{root}/") and not {"?", "#"} & set(uri[len(root) :])
    segments = [unquote(part) for part in uri[len(root) + 1 :].split("/")]
    return "/".join(segments) if inside and all(map(_is_plain, segments)) else None


def path_of(name: str) -> str | None:
    """Return a path, normalized; `None` if it leads out of the skill or is malformed."""
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
    """Return the URI of a path relative to the root."""
    return f"{root}/{quote(path, safe=_UNQUOTED)}" if path else root


# -- the frontmatter: YAML at the head of a ``SKILL.md``, compared with the entry -----------------
#
# Needs the extra ``skills``. The YAML nodes are only compared: no object is constructed from a tag,
# an alias or a timestamp.

MAX_CHARACTERS: Final = 65_536
"""The longest frontmatter, in characters."""

MAX_DEPTH: Final = 32
"""The deepest nesting of values in the frontmatter."""

_FENCE: Final = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)

# The plain scalars of YAML 1.2's core schema that have a JSON type; all others are strings.
_PLAIN: Final = "plain"
_STRING: Final = "tag:yaml.org,2002:str"
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BASES: Final = {"0o": 8, "0x": 16}

# Booleans in YAML 1.1, strings since 1.2: both readings are accepted.
_OLD_WORDS: Final = {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF"), False),
}


class BadFrontmatter(ValueError):
    """The frontmatter is missing, invalid or unsafe to parse."""


def check_installed() -> None:
    """Raise a `UsageError` unless PyYAML is installed."""
    if find_spec("yaml") is None:
        raise UsageError("loading skills needs PyYAML: install syncmcp-client[skills]")


def split(text: str) -> tuple[str, str]:
    """Split a file into its frontmatter and the rest; raise `BadFrontmatter` if it has none."""
    opening = _FENCE.match(text)
    if opening is None:
        raise BadFrontmatter("does not begin with frontmatter")
    closing = _FENCE.search(text, opening.end())
    if closing is None or closing.start() - opening.end() > MAX_CHARACTERS:
        raise BadFrontmatter(f"has no frontmatter that ends within {MAX_CHARACTERS} characters")
    return text[opening.end() : closing.start()], text[closing.end() :]


def difference(frontmatter: str, stated: dict[str, Any]) -> str | None:
    """Describe the first difference between the YAML and `stated`; `None` if they are equal.

    Raises `BadFrontmatter` for invalid YAML, and for aliases, tags, duplicate keys, or more nesting
    than `MAX_DEPTH`.
    """
    node = _parse_yaml(frontmatter)
    return "it is not a mapping" if node is None else _node_difference(node, stated, "")


def _parse_yaml(frontmatter: str) -> Node | None:
    import yaml

    class Loader(yaml.SafeLoader):
        """Composes nodes, but constructs no objects from them; limits the nesting."""

        _depth = 0

        def compose_node(self, parent: Node | None, index: int) -> Node | None:
            if self.check_event(yaml.AliasEvent):
                raise BadFrontmatter("has a YAML alias")
            return super().compose_node(parent, index)

        def descend_resolver(self, current_node: Node | None, current_index: Any) -> None:
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise BadFrontmatter(f"is nested more than {MAX_DEPTH} levels deep")

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
        raise BadFrontmatter(f"has frontmatter that is not YAML: {problem}") from error
    except BadFrontmatter:
        raise
    except (ValueError, OverflowError) as error:  # raised by `chr` or `int`: an escape, a version
        raise BadFrontmatter("has frontmatter that is not YAML: a number is invalid") from error


def _node_difference(node: Node, stated: Any, where: str) -> str | None:
    import yaml

    if isinstance(node, yaml.ScalarNode):
        if any(_equal(reading, stated) for reading in _readings(node)):
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
        unmatched = sorted(members.keys() ^ stated.keys())
        if unmatched:
            return f"only one of them has {_child_path(where, unmatched[0])}"
        pairs = [(item, stated[key], _child_path(where, key)) for key, item in members.items()]
    return next(filter(None, (_node_difference(*pair) for pair in pairs)), None)


def _members(node: Node) -> dict[str, Node]:
    import yaml

    members: dict[str, Node] = {}
    for key, item in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag not in (_PLAIN, _STRING):
            raise BadFrontmatter("has a key that is not a string")
        if key.value in members:
            raise BadFrontmatter("has a duplicate key")
        members[key.value] = item
    return members


def _child_path(where: str, key: str) -> str:
    # Shortened, because a server may send keys of any length.
    shown = repr(cut(key))
    return f"{where}.{shown}" if where else shown


def _readings(node: Node) -> Iterator[Any]:
    """Yield the JSON values that a scalar can represent."""
    text = node.value
    if node.tag == _STRING:
        yield text
        return
    if node.tag != _PLAIN:
        raise BadFrontmatter(f"has the YAML tag {node.tag}")
    if text in _WORDS:
        yield _WORDS[text]
    elif _INTEGER.fullmatch(text):
        yield int(text, _BASES[text[:2]]) if text[:2] in _BASES else int(text)
    elif _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        yield float(text)
    else:
        yield text
        if text in _OLD_WORDS:
            yield _OLD_WORDS[text]


def _equal(reading: Any, stated: Any) -> bool:
    # 1 and 1.0 are the same number in JSON; but 1 and True, equal in Python, are not.
    if isinstance(reading, bool) or isinstance(stated, bool):
        return reading is stated
    return bool(reading == stated)
