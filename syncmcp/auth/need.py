"""Why a new token is needed."""

from __future__ import annotations

from typing import NamedTuple

from syncmcp.auth.challenge import Demand
from syncmcp.auth.login import Login
from syncmcp.auth.scope import union

__all__ = ["Need"]


class Need(NamedTuple):
    """Why a new token is needed.

    Attributes:
        demand: What the server's answer says.
        refused: The login whose token did not do, if there was one.
        more: Whether its scope is too small, and it is good otherwise.
    """

    demand: Demand
    refused: Login | None = None
    more: bool = False

    @property
    def earlier(self) -> str | None:
        """The scope that was asked for or granted before."""
        token = None if self.refused is None else self.refused.token
        return None if token is None else union(token.requested, token.scope)
