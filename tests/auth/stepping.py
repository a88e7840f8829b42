"""Runs fetch steps without a network: a table contains the responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from syncmcp.auth.steps import FetchSteps, HttpRequest, HttpResponse

T = TypeVar("T")


def told(value: Any, status: int = 200, **headers: str) -> HttpResponse:
    """An answer with a JSON body."""
    return HttpResponse(status, headers, json.dumps(value).encode())


NOTHING = told({"error": "not_found"}, 404)


class Walk:
    """A driver that answers from a table, and records the requests."""

    def __init__(
        self, pages: Mapping[str, HttpResponse | list[HttpResponse]] | None = None
    ) -> None:
        self.pages = dict(pages or {})
        self.asked: list[HttpRequest] = []

    @property
    def urls(self) -> list[str]:
        return [fetch.url for fetch in self.asked]

    def run(self, steps: FetchSteps[T]) -> T:
        """Run steps; a URL that is not in the table gets a 404."""
        try:
            fetch = next(steps)
            while True:
                self.asked.append(fetch)
                page = self.pages.get(fetch.url, NOTHING)
                fetch = steps.send(page.pop(0) if isinstance(page, list) else page)
        except StopIteration as end:
            result: T = end.value
            return result
