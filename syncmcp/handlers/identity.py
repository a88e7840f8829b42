"""The identity of a server: what remembered approvals are kept under.

Names are for people. The default name of a server is made of its command or URL, shortened and with
secrets removed, so that several servers may have the same one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from syncmcp.config import Http, Stdio

__all__ = ["FileChosenName", "ServerIdentity", "given_name", "identity_of"]


class FileChosenName(str):
    """The name of a server that a guarded file chose, rather than the program.

    It is shown, compared and stored like any other name. Copies of a mapping and pickles keep it,
    so that the name is told from one that the program wrote itself, wherever a client gets it.
    """

    __slots__ = ()


def given_name(name: str | None) -> str | None:
    """The name if the program gave it; `None` for that of a guarded file."""
    return None if isinstance(name, FileChosenName) else name


@dataclass(frozen=True, repr=False)
class ServerIdentity:
    """Tells servers apart. Equal if the program gave the same name, if any, to the same server.

    The same server is: the same command with the same arguments, directory and names of variables;
    the same URL, with its query; or the same object in this process. The values of variables and of
    headers do not count. The `repr` shows nothing of it, since arguments and URLs may hold secrets.

    Attributes:
        given_name: The name that the program gave; `None` if it gave none, or that of a guarded
            file.
        target: The server, as a value that is meant for comparisons only.
    """

    given_name: str | None
    target: Hashable = None


def identity_of(target: object, name: str | None) -> ServerIdentity:
    """The identity of the server of a client's target, with the option `name` of the client."""
    given = given_name(name)
    if isinstance(target, Stdio):
        words = (target.command, *target.args)
        return ServerIdentity(given, (words, target.cwd, frozenset(target.env)))
    if isinstance(target, Http):
        return ServerIdentity(given, target.url)
    return ServerIdentity(given, _SameObject(target))


class _SameObject:
    """Equal if it is of the same object. Does not keep the object, whose `id` may be reused."""

    def __init__(self, it: object) -> None:
        self._hash = id(it)
        self._get: Callable[[], object]
        try:
            self._get = weakref.ref(it)
        except TypeError:  # its class has __slots__ without __weakref__
            self._get = lambda: it

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _SameObject):
            return False
        it = self._get()
        return self is other or (it is not None and it is other._get())

    def __hash__(self) -> int:
        return self._hash
