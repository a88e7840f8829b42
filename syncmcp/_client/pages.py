"""Lists that come in pages: one page, all of them, or one after the other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from syncmcp import types
from syncmcp._base.checks import validate, whole_number
from syncmcp._client.driver import run
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import CallOptions
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.steps import CacheLookup, SessionChanged, SessionPin, Steps
from syncmcp.errors import InvalidParams, LimitExceeded, ProtocolError, SessionLost

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore, HasCore
    from syncmcp.types import PaginatedResult

L = TypeVar("L", bound="PaginatedResult")

_log = logging.getLogger("syncmcp.retry")


class AllPages:
    """The type of `ALL_PAGES`."""

    def __repr__(self) -> str:
        return "ALL_PAGES"


ALL_PAGES: Final = AllPages()
"""As `cursor` of a list operation: fetch every page. (`None` is the first page alone.)"""


def cached_result(
    core: ClientCore,
    method: str,
    params: dict[str, Any] | None,
    *,
    session: SessionPin | None = None,
) -> Steps[dict[str, Any] | None]:
    """The result of this request that is kept; `None` if there is none, or nothing is kept.

    With `session`, those of several pages are of one walk through their list.
    """
    if core.cache is None:
        return None
    cached: dict[str, Any] | None = yield CacheLookup(method, params, session)
    return cached


def cached_or_exchange(
    core: ClientCore, method: str, params: dict[str, Any] | None
) -> Steps[dict[str, Any]]:
    """The result of a request: one that is kept, or else the server's; see `exchange`."""
    cached = yield from cached_result(core, method, params)
    if cached is not None:
        return cached
    return (yield from exchange(method, params, max_rounds=core.settings.max_rounds))


def pages(
    method: str,
    model: type[L],
    items: str,
    core: ClientCore,
    cursor: str | AllPages | None,
    max_pages: int | None,
    params: dict[str, Any] | None = None,
) -> Steps[L]:
    """One page, or all of them in one result: kept ones, or else the server's."""
    if not isinstance(cursor, AllPages):
        generation = core.schemas.generation
        raw = yield from one_page(method, _page_params(cursor, params), core)
        return _learn_tools(validate(model, raw, method), core, generation)
    return (yield from _join_pages(Paginator(method, model, items, core, max_pages, params), core))


def all_pages(
    method: str,
    model: type[L],
    items: str,
    core: ClientCore,
    max_pages: int | None = None,
    params: dict[str, Any] | None = None,
) -> Steps[L]:
    """All pages in one result, as the server has them now; each is asked for with `params`."""
    paginator = Paginator(method, model, items, core, max_pages, params, use_cache=False)
    return (yield from _join_pages(paginator, core))


def one_page(method: str, params: dict[str, Any] | None, core: ClientCore) -> Steps[dict[str, Any]]:
    """The result of one request as it came; see `cached_or_exchange`.

    If it is for a page of a list, its cursor is used in no other session than the one there is.

    Raises:
        SessionLost: That has ended (until 2025-11-25).
    """
    known = core.connection
    of_a_list = params is not None and "cursor" in params and method.endswith("/list")
    if not of_a_list or known is None or not known.dialect.stateful:
        return (yield from cached_or_exchange(core, method, params))
    # As far as anybody knows, the cursor is of this session, be it over or not.
    session, rounds = SessionPin(known), core.settings.max_rounds
    try:
        return (yield from exchange(method, params, max_rounds=rounds, session=session))
    except SessionChanged as error:
        text = "the session of the cursor has ended: list from the first page"
        raise _session_lost(text, error, method, core) from error.ended


def _session_lost(text: str, error: SessionChanged, method: str, core: ClientCore) -> SessionLost:
    return SessionLost(
        text,
        delivery=error.delivery,
        attempts=error.attempts,
        method=method,
        server=core.label,
    )


class Paginator(Generic[L]):
    """The pages of one list, from the first to the last: all of them kept ones, or all new.

    Some that are kept and some that are new may not belong together, nor may kept ones that were
    not fetched in one walk.

    The list begins anew at its first page where a cursor is of no use any more: in another session
    (spec 2025-11-25: pagination, "Implementation Guidelines"), and, once, where the server refuses
    it (spec 2026-07-28: caching, "Interaction with Pagination"). As a server may lose each session
    in the middle of the list, there is a limit: the list is begun as often as `Retry` has one
    request sent, or twice where that is more.

    Args:
        use_cache: Whether kept pages will do.

    Attributes:
        items: The attribute of a page that has its items.
        cursor: Where the next page is; `None` before the first and after the last.
        first: Whether the newest page is the first.
        generation: `Schemas.generation` when the newest page was asked for, or the kept ones were
            looked for.
    """

    def __init__(
        self,
        method: str,
        model: type[L],
        items: str,
        core: ClientCore,
        max_pages: int | None,
        params: dict[str, Any] | None = None,
        *,
        use_cache: bool = True,
    ) -> None:
        self.items = items
        self.cursor: str | None = None
        self.first = True
        self.generation = 0
        self._method = method
        self._model = model
        self._core = core
        self._params = params
        self._limit = core.settings.max_pages if max_pages is None else max_pages
        self._page_guard = PageGuard(method, self._limit)
        self._session = SessionPin()
        policy = core.retry_rules.policy
        self._session_losses_left = max(1, 0 if policy is None else policy.attempts - 1)
        self._refusals_left = 1
        self._use_cache = use_cache
        self._cached_pages: list[L] = []

    def next_page(self) -> Steps[L]:
        """The next page, or the first where the list begins anew.

        Raises:
            ProtocolError: Its cursor was used before.
            LimitExceeded: It is one too many.
            SessionLost: The session ended in the middle of the list too often.
            InvalidParams: The server refused a cursor once more.
        """
        if self._use_cache:
            self._use_cache = False
            self.generation = self._core.schemas.generation
            self._cached_pages = yield from self._find_cached_pages()
        while True:
            if self.cursor is not None:
                self._page_guard.check(self.cursor)
            if self._cached_pages:
                return self._advance_to(self._cached_pages.pop(0))
            self.generation = self._core.schemas.generation
            page_params = _page_params(self.cursor, self._params)
            try:
                raw = yield from exchange(
                    self._method,
                    page_params,
                    max_rounds=self._core.settings.max_rounds,
                    session=self._session,
                )
            except SessionChanged as error:
                if not self._session_losses_left:
                    text = "the session ended in the middle of the list, time and again"
                    raise _session_lost(text, error, self._method, self._core) from error.ended
                self._session_losses_left -= 1
                self._restart("there is another session")
                continue
            except InvalidParams:
                if self.cursor is None or not self._refusals_left:
                    raise
                self._refusals_left -= 1
                self._restart("the server refused the cursor")
                continue
            page = validate(self._model, raw, self._method)
            self._session.hold()
            return self._advance_to(page)

    def _advance_to(self, page: L) -> L:
        self.first, self.cursor = self.cursor is None, page.next_cursor
        return page

    def _find_cached_pages(self) -> Steps[list[L]]:
        """The kept pages of one walk, up to where `PageGuard` stops; none if one is missing."""
        found: list[L] = []
        seen: set[str] = set()
        session, cursor = SessionPin(), None
        while True:
            page_params = _page_params(cursor, self._params)
            raw = yield from cached_result(self._core, self._method, page_params, session=session)
            if raw is None:
                return []
            found.append(validate(self._model, raw, self._method))
            cursor = found[-1].next_cursor
            if cursor is None or cursor in seen or len(found) == self._limit:
                return found
            seen.add(cursor)

    def _restart(self, why: str) -> None:
        _log.warning("[%s] %s begins anew: %s", self._core.label, self._method, why)
        self.cursor = None
        self._session = SessionPin()
        self._page_guard = PageGuard(self._method, self._limit)


def _join_pages(paginator: Paginator[L], core: ClientCore) -> Steps[L]:
    """All pages in one result."""
    whole: L | None = None
    generation = 0
    while whole is None or paginator.cursor is not None:
        page = yield from paginator.next_page()
        if whole is None or paginator.first:
            whole, generation = page, paginator.generation
        else:
            getattr(whole, paginator.items).extend(getattr(page, paginator.items))
    whole.next_cursor = None
    return _learn_tools(whole, core, generation, whole=True)


def _page_params(cursor: str | None, params: dict[str, Any] | None) -> dict[str, Any] | None:
    return params if cursor is None else {**(params or {}), "cursor": cursor}


def _learn_tools(result: L, core: ClientCore, generation: int, *, whole: bool = False) -> L:
    if isinstance(result, types.ListToolsResult):
        core.retry_rules.learn(result.tools)
        core.schemas.learn(result.tools, generation, whole=whole)
    return result


class PageGuard:
    """Ends a list that would never end."""

    def __init__(self, method: str, limit: int) -> None:
        self._method = method
        self._limit = whole_number(limit, "max_pages")
        self._pages = 1
        self._seen: set[str] = set()

    def check(self, cursor: str) -> None:
        """Before the page at `cursor` is fetched.

        Raises:
            ProtocolError: It was fetched before.
            LimitExceeded: It is one too many.
        """
        if cursor in self._seen:
            raise ProtocolError("the server's cursors go round in circles", method=self._method)
        self._seen.add(cursor)
        self._pages += 1
        if self._pages > self._limit:
            raise LimitExceeded(
                f"more than {self._limit} pages (option max_pages)", method=self._method
            )


def iterate(
    method: str,
    model: type[PaginatedResult],
    items: str,
    name: str,
    client: HasCore,
    max_pages: int | None,
    options: CallOptions,
) -> Iterator[Any]:
    """The items of a list, whose pages are fetched as they are needed.

    Where the list begins anew, the items that were given are known by their attribute `name` and
    not given again.
    """
    core = client._core
    core.resolve(options)  # a mistake is raised here, not when the first page is fetched
    paginator = Paginator(method, model, items, core, max_pages)

    def next_page() -> Steps[Any]:
        page = yield from paginator.next_page()
        return _learn_tools(page, core, paginator.generation)

    def items_of_pages() -> Iterator[Any]:
        yielded: set[str] = set()
        # What was given before the list began anew. An item that the server lists twice is given
        # twice, as long as nothing happens.
        before: frozenset[str] = frozenset()
        while True:
            resolved = client._core.resolve(options)  # who iterates has the client
            page = run(next_page(), core, resolved, Deadline(resolved.timeout))
            if paginator.first:
                before = frozenset(yielded)
            for item in getattr(page, items):
                if getattr(item, name) not in before:
                    yielded.add(getattr(item, name))
                    yield item
            if paginator.cursor is None:
                return

    return items_of_pages()
