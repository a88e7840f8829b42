"""Roots: where a client lets servers work (client/roots)."""

from __future__ import annotations

from syncmcp.types.base import MetaModel, RequestParams, Result


class Root(MetaModel):
    """A directory or file (client/roots#root).

    Attributes:
        uri: A ``file:`` URI.
    """

    uri: str
    name: str | None = None


class ListRootsRequestParams(RequestParams):
    """Parameters of ``roots/list`` (client/roots#listing-roots)."""


class ListRootsResult(Result):
    """Answer to ``roots/list`` (client/roots#listing-roots)."""

    roots: list[Root]
