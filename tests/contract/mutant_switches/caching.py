"""Mutants of results that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

CACHING = "syncmcp._protocol.caching"
KEPT = "syncmcp._client.caching:ResultCache"


def _whatever_the_parameters(original: Function) -> Function:
    def key(self: Any, owner: Any, revision: Any, offer: Any, method: Any, params: Any) -> Any:
        return original(self, owner, revision, offer, method, None)

    return key


def _also_answers(original: Function) -> Function:
    return lambda method, params: original(method, None)


def _for_everybody(original: Function) -> Function:
    def key(self: Any, owner: Any, *request: Any) -> Any:
        return original(self, None if owner is None else "everybody", *request)

    return key


def _asked_when_it_came(original: Function) -> Function:
    def outdated(self: Any, method: Any, params: Any, asked: float) -> Any:
        # As if a result were as new as the moment in which it came.
        return original(self, method, params, asked + 0.5)

    return outdated


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "kept-by-method",
        "a kept result answers every request of its method",
        f"{KEPT}._key",
        _whatever_the_parameters,
        ("CCH-01",),
    ),
    Mutant(
        "answers-kept",
        "results of requests that answer questions are kept",
        f"{CACHING}:is_cacheable",
        _also_answers,
        ("CCH-02",),
    ),
    Mutant(
        "private-for-any-user",
        "private results are kept for whichever user a client makes its requests for",
        "syncmcp._client.caching:has_one_user",
        always(True),
        ("CCH-03",),
    ),
    Mutant(
        "private-for-any-client",
        "clients that share a store share private results",
        f"{KEPT}._key",
        _for_everybody,
        ("CCH-03",),
    ),
    Mutant(
        "kept-without-a-lifetime",
        "every result is kept for a minute",
        f"{CACHING}:ttl_seconds",
        always(60.0),
        ("CCH-04",),
    ),
    Mutant(
        "kept-whatever-the-news",
        "change notifications outdate nothing that is kept",
        f"{KEPT}.on_change",
        always(None),
        ("CCH-06",),
    ),
    Mutant(
        "late-results-kept",
        "a result that was on its way while a change was told is kept",
        f"{CACHING}:InvalidationLog.is_outdated",
        _asked_when_it_came,
        ("CCH-06",),
    ),
    Mutant(
        "pages-of-a-refused-cursor",
        "a refused cursor leaves the pages that led to it where they are",
        f"{CACHING}:list_of_refused_cursor",
        always(None),
        ("CCH-07",),
    ),
)
