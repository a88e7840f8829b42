"""Which servers a group cannot do without, and what it says when they are not there."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from syncmcp.errors import ConnectFailed, McpError, UsageError

if TYPE_CHECKING:
    from syncmcp.group.member import Member

Require: TypeAlias = "Literal['all', 'any'] | Iterable[str]"
"""Which servers must be there for a group to open; `()` for none."""


class RequiredServersFailed(ConnectFailed):
    """Servers that a group cannot do without are not there; the others were closed again.

    Attributes:
        errors: What became of each server that failed, by its name.
    """

    errors: Mapping[str, McpError] = MappingProxyType({})

    def _details(self) -> list[str]:
        return [f"{name}: {error}" for name, error in self.errors.items()]


def checked_requirement(require: Any, servers: Container[str]) -> str | tuple[str, ...]:
    """What a program requires: a word, or names.

    Raises:
        UsageError: It is none, or has a name that is no server's.
    """
    if isinstance(require, str) and require in ("all", "any"):
        return require
    if isinstance(require, str) or not isinstance(require, Iterable):
        raise UsageError(f"require is 'all', 'any' or names of servers, not {require!r}")
    names = tuple(require)
    for name in names:
        if name not in servers:
            raise UsageError(f"{name!r} is required and no server of the group")
    return names


def check_required(require: str | tuple[str, ...], members: list[Member]) -> None:
    """Make sure that those are there that are required.

    Raises:
        RequiredServersFailed: One is not.
    """
    errors = {one.name: one.error for one in members if one.error is not None}
    there = {one.name for one in members if one.lists is not None}
    if require == "any":
        lacking = [] if there else list(errors)
    elif require == "all":
        lacking = list(errors)
    else:
        lacking = [name for name in require if name not in there]
    if lacking:
        failed = RequiredServersFailed(
            f"required and not there: {', '.join(map(repr, lacking))}", errors=errors
        )
        raise failed from next((errors[name] for name in lacking if name in errors), None)
