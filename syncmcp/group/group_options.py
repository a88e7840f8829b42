"""What the clients of a group have in common, and each of its own."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from syncmcp._base.coroutines import refuse_coroutines
from syncmcp._client.client import Client
from syncmcp._client.registration import as_roots
from syncmcp.errors import UsageError
from syncmcp.group.member import Member, Source

if TYPE_CHECKING:
    from syncmcp.handlers.roots import Roots

# These are told which server it is about, before what a client's own are told.
_NAMED: Final = ("on_log", "on_progress", "on_notification")


class GroupOptions:
    """The options that a group gives to clients.

    Args:
        shared: Those for all of them. What keeps count, or may change, is one for all.
        per_server: Those for single ones, over the others.

    Raises:
        UsageError: An option makes no sense.
    """

    def __init__(
        self, shared: Mapping[str, Any], per_server: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._shared = dict(shared)
        _check_unnamed(self._shared)
        if self._shared.get("approval") is not None:
            from syncmcp.approval import as_approval

            self._shared["approval"] = as_approval(self._shared["approval"])
        self.roots: Roots | None = None
        if self._shared.get("roots") is not None:
            self._shared["roots"] = self.roots = as_roots(self._shared["roots"])
        for name in _NAMED:
            if self._shared.get(name) is not None:
                refuse_coroutines(self._shared[name], name)
        self._own = {name: dict(own) for name, own in per_server.items()}

    def check_known(self, servers: Container[str]) -> None:
        """Make sure that there are options for servers of the group alone.

        Raises:
            UsageError: There are others.
        """
        unknown = [name for name in self._own if name not in servers]
        if unknown:
            raise UsageError(f"per_server has {min(unknown)!r}, which is no server of the group")

    def keep(self, member: Member) -> None:
        """Make a server from now on as this one was made."""
        self._own[member.name] = dict(member.own)

    def forget(self, name: str) -> None:
        """There is no such server any more."""
        self._own.pop(name, None)

    def member(self, name: str, source: Source, own: Mapping[str, Any] | None = None) -> Member:
        """A server of the group.

        Args:
            name: What the group calls it.
            source: What it is made of.
            own: Options of its own; by default those that are kept.

        Raises:
            UsageError: Its own options make no sense.
        """
        given = self._own.get(name, {}) if own is None else own
        _check_unnamed(given)
        if given and isinstance(source, Client):
            raise UsageError(f"{name!r} is a client, which has its options already")
        named = {
            key: partial(self._shared[key], name)
            for key in _NAMED
            if self._shared.get(key) is not None
        }
        return Member(name, source, {**self._shared, **named}, given)


def _check_unnamed(options: Mapping[str, Any]) -> None:
    if "name" in options:
        raise UsageError("the servers of a group have the names that they are given by")
