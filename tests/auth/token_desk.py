"""A token endpoint that issues tokens to machines, for the scripted servers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tests.auth.authorization_server import Answer, ResourceServer, Seen, call


class TokenDesk:
    """Replaces the token endpoint of the authorization server behind a resource.

    Attributes:
        check: Checks a request; an `Answer` that it returns is the refusal.
    """

    def __init__(self, resource: ResourceServer) -> None:
        self.resource = resource
        self.server = resource.authorization_server
        methods = ["client_secret_basic", "private_key_jwt"]
        self.server.metadata["token_endpoint_auth_methods_supported"] = methods
        self.check: Callable[[Seen], Answer | None] = lambda seen: None
        self.expires_in = 3600
        self.extra: dict[str, Any] = {}
        self.seen: list[Seen] = []
        self._numbers = itertools.count(1)
        self.server.routes["POST", "/token"] = self.answer

    def call(self, auth: Any, method: str = "ping") -> Any:
        """Make one request to the resource."""
        return call(self.resource, auth, method)

    @property
    def forms(self) -> list[dict[str, str]]:
        return [one.form for one in self.seen]

    def answer(self, seen: Seen) -> Answer:
        """Answer a token request."""
        self.seen.append(seen)
        refusal = self.check(seen)
        if refusal is not None:
            return refusal
        token = f"access-{next(self._numbers)}-very-secret"
        scope = seen.form.get("scope")
        with self.server.lock:
            self.server.valid[token] = {"scope": scope, "resource": seen.form["resource"]}
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in}
        return Answer(200, {**answer, **self.extra})
