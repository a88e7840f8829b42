"""Links that a server calls done, and a person who agrees to all of them."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from syncmcp import Elicitation, HandlerContext
from syncmcp.testing import script as s
from syncmcp.types import ElicitResult
from tests.connection.questions.asking import ELICITATION, URL
from tests.support.stage import PATIENCE, elsewhere

COMPLETE = "notifications/elicitation/complete"


def link(identifier: str = "e-1", url: str = URL["url"]) -> dict[str, Any]:
    return {**URL, "url": url, "elicitationId": identifier}


def complete(identifier: str = "e-1") -> Any:
    return s.notify(COMPLETE, {"elicitationId": identifier})


def ask(identifier: str = "e-1", *, request: int | str) -> Any:
    return s.request(ELICITATION, link(identifier), identifier=request)


# A request of the server's own that is answered once all before it has been read.
READ = (s.request("ping", identifier="read"), s.expect("response"))


class Agreeing:
    """A person who agrees at once, while others wait for the end of the visit.

    Attributes:
        contexts: Of the questions, in their order.
        waits: Of those who wait for the visits.
    """

    def __init__(self, timeout: float | None = None) -> None:
        self.contexts: list[HandlerContext] = []
        self._timeout = timeout
        self.waits: list[Future[bool]] = []
        self._asked = threading.Semaphore(0)

    def __call__(self, request: Any, context: HandlerContext) -> ElicitResult:
        self.contexts.append(context)
        self.waits.append(elsewhere(lambda: context.wait_completed(self._timeout)))
        self._asked.release()
        return ElicitResult.accept()

    @property
    def elicitation(self) -> Elicitation:
        return Elicitation(url=self)

    def asked(self) -> HandlerContext:
        assert self._asked.acquire(timeout=PATIENCE)
        return self.contexts[-1]

    def outcomes(self) -> list[bool]:
        return [wait.result(PATIENCE) for wait in self.waits]
