"""The YAML at the head of a ``SKILL.md``, held against what an entry says of it.

Needs the extra ``skills``. Nothing is made of the YAML but a comparison: no tag, no alias and no
timestamp of it ever becomes an object here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from yaml import Node

__all__ = ["BadFrontmatter", "check_installed", "difference", "split"]

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
    node = _composed(frontmatter)
    return "it is no mapping" if node is None else _differs(node, stated, "")


def _composed(frontmatter: str) -> Node | None:
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


def _differs(node: Node, stated: Any, where: str) -> str | None:
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
            return f"only one of them has {_inside(where, odd[0])}"
        pairs = [(item, stated[key], _inside(where, key)) for key, item in members.items()]
    return next(filter(None, (_differs(*pair) for pair in pairs)), None)


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


def _inside(where: str, key: str) -> str:
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
