"""The server that a client is connected to."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from syncmcp.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from syncmcp._protocol.negotiate import Negotiated
    from syncmcp.types import Implementation, ServerCapabilities

__all__ = ["ConnectedServer"]


class ConnectedServer:
    """The server at the other end: what the program knows of it, and what it said of itself.

    What it said is for display; nothing of it is checked or trusted.
    """

    def __init__(
        self,
        negotiated: Negotiated,
        *,
        name: str,
        trusted: bool = False,
        extensions: Iterable[str] = (),
    ) -> None:
        self._result = negotiated.result
        self._extensions = frozenset(extensions)
        self.name = name
        """What the program calls it: the only name to show as a fact."""
        self.trusted = trusted
        """Whether the program said to believe what it says of its tools."""
        self.revision: str = negotiated.dialect.revision
        """The revision that is spoken."""

    @property
    def info(self) -> Implementation | None:
        """Name and version, if the server gave them in a form that can be read."""
        from pydantic import ValidationError

        from syncmcp.types import Implementation

        meta = self._result.get("_meta")
        stated = self._result.get("serverInfo")
        if isinstance(meta, dict):
            stated = meta.get("io.modelcontextprotocol/serverInfo", stated)
        try:
            return None if stated is None else Implementation.model_validate(stated)
        except ValidationError:
            return None

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server says it can do."""
        from pydantic import ValidationError

        from syncmcp.types import ServerCapabilities

        try:
            return ServerCapabilities.model_validate(self._result.get("capabilities") or {})
        except ValidationError:
            return ServerCapabilities()

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """The extensions that both sides have: the server's settings by identifier.

        Our side is `extensions=` of `Client`; all that the server has is in `capabilities`.
        """
        stated = self._result.get("capabilities")
        stated = stated.get("extensions") if isinstance(stated, dict) else None
        stated = stated if isinstance(stated, dict) else {}
        return {
            identifier: settings
            for identifier, settings in stated.items()
            if identifier in self._extensions and isinstance(settings, dict)
        }

    def extension(self, identifier: str) -> dict[str, Any]:
        """The server's settings of an extension.

        Raises:
            NotSupported: One side does not have it; the text says which.
        """
        found = self.extensions.get(identifier)
        if found is not None:
            return found
        if identifier not in self._extensions:
            raise NotSupported(
                f"the extension {identifier} is not switched on: see extensions= of Client",
                server=self.name,
            )
        raise NotSupported(f"the server has no extension {identifier}", server=self.name)

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in words for a model."""
        stated = self._result.get("instructions")
        return stated if isinstance(stated, str) else None

    def __repr__(self) -> str:
        return f"<ConnectedServer {self.name} {self.revision}>"


def renamed(server: ConnectedServer, name: str) -> ConnectedServer:
    """The same server under another name of the program's."""
    other = copy.copy(server)
    other.name = name
    return other
