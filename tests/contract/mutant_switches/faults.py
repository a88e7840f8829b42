"""Mutants of what happens when an HTTP exchange breaks or is ended."""

from __future__ import annotations

import threading
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function


def _wait_for_the_event_alone(original: Function) -> Function:
    def wait(self: Any, event: threading.Event, seconds: float | None) -> bool:
        return event.wait(seconds)

    return wait


MUTANTS = (
    Mutant(
        "all-is-harmless",
        "a tool that may have run is called again",
        "syncmcp._client.retrying:RetryRules.is_idempotent",
        always(True),
        ("16",),
    ),
    Mutant(
        "half-a-head-is-one",
        "headers that break off are taken for all the headers there are",
        "syncmcp._http.connections:_Response.begin",
        lambda original: HTTPResponse.begin,
        ("16",),
    ),
    Mutant(
        "lookups-uncut",
        "a call that is given up waits until its host's name is found",
        "syncmcp._http.exchange:AbortableExchange.wait",
        _wait_for_the_event_alone,
        ("H1b",),
    ),
)
