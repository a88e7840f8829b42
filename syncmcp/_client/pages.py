"""Paginated lists: one page, all pages in one result, or an iterator over the items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from pydantic_core import to_json

from syncmcp import types
from syncmcp._base.checks import validate, whole_number
from syncmcp._base.text import logger
from syncmcp._client.core import ClientCore, HasCore
from syncmcp._client.driver import run
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import CallOptions
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.jsonrpc import MAX_VALUES, count_values
from syncmcp._protocol.steps import CacheLookup, SessionChanged, SessionPin, Steps
from syncmcp.errors import InvalidParams, LimitExceeded, ProtocolError, SessionLost

L = TypeVar("L", bound="types.PaginatedResult[Any]")

MAX_ITEMS = 100_000
"""The most items of one list, all its pages together."""

MAX_BYTES = 64 * 1024 * 1024
"""The most bytes of the pages of one list, if it has several."""

_log = logger("syncmcp.retry")


class AllPages:
    """The type of `ALL_PAGES`."""

    def __repr__(self) -> str:
        return "ALL_PAGES"


ALL_PAGES: Final = AllPages()
"""The `cursor` with which a list operation fetches every page. (`None` is the first page alone.)"""


# For each list: the attribute of a page that has its items, and the one that identifies an item.
_ITEMS: Final = {
    "prompts/list": ("prompts", "name"),
    "resources/directory/read": ("resources", "uri"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resource_templates", "uri_template"),
    "skills/list": ("skills", "uri"),
    "tasks/list": ("tasks", "task_id"),
    "tools/list": ("tools", "name"),
}


def cached_or_exchange(
    core: ClientCore, method: str, params: dict[str, Any] | None
) -> Steps[dict[str, Any]]:
    """The cached result of a request, or else the result of the server; see `exchange`."""
    if core.cache is not None:
        cached: dict[str, Any] | None = yield CacheLookup(method, params, None)
        if cached is not None:
            return cached
    return (yield from exchange(method, params, max_rounds=core.settings.max_rounds))


def pages(
    method: str,
    model: type[L],
    core: ClientCore,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    params: dict[str, Any] | None = None,
    *,
    use_cache: bool = True,
) -> Steps[L]:
    """Return one page, or all pages in one result, from the cache or else from the server.

    Each request has `params`. `use_cache` is for all pages; a single page is always looked up.
    """
    if not isinstance(cursor, AllPages):
        generation = core.schemas.generation
        raw = yield from one_page(method, _page_params(cursor, params), core)
        PageGuard(method, 1).count(raw)
        return _learn_tools(validate(model, raw, method), core, generation)
    paginator = Paginator(method, model, core, max_pages, params, use_cache=use_cache)
    whole: L | None = None
    generation = 0
    while whole is None or paginator.cursor is not None:
        page = yield from paginator.next_page()
        if whole is None or paginator.first:
            whole, generation = page, paginator.generation
        else:
            items = _ITEMS[method][0]
            getattr(whole, items).extend(getattr(page, items))
    whole.next_cursor = None
    return _learn_tools(whole, core, generation, whole=True)


def one_page(method: str, params: dict[str, Any] | None, core: ClientCore) -> Steps[dict[str, Any]]:
    """The raw result of one request; the cursor of a page is sent in the current session only."""
    known = core.connection
    of_a_list = params is not None and "cursor" in params and method.endswith("/list")
    if not of_a_list or known is None or not known.dialect.stateful:
        return (yield from cached_or_exchange(core, method, params))
    # The cursor is assumed to be of the current session, even if that has ended.
    session, rounds = SessionPin(known), core.settings.max_rounds
    try:
        return (yield from exchange(method, params, max_rounds=rounds, session=session))
    except SessionChanged as error:
        text = "the session of the cursor has ended: list from the first page"
        raise _session_lost(text, error, method, core) from error.cause


def _session_lost(text: str, error: SessionChanged, method: str, core: ClientCore) -> SessionLost:
    return SessionLost(
        text, delivery=error.delivery, attempts=error.attempts, method=method, server=core.label
    )


class Paginator(Generic[L]):
    """The pages of one list, from the first to the last; all from the cache, or none.

    Cached and new pages may not fit together, nor cached pages of different listings.

    The list restarts at its first page in another session (spec 2025-11-25: pagination,
    "Implementation Guidelines"), and, once, if the server rejects a cursor; see `list_tools`. A
    server may lose each session in the middle of the list: the list is started at most as many
    times as `Retry` allows for a request, but at least twice.
    """

    def __init__(
        self,
        method: str,
        model: type[L],
        core: ClientCore,
        max_pages: int | None,
        params: dict[str, Any] | None = None,
        *,
        use_cache: bool = True,
    ) -> None:
        self.cursor: str | None = None  # of the next page, if there is one after the newest
        self.first = True  # the newest page is the first page
        # The generation of the schemas when the newest page was requested, or cached ones found.
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
        self._use_cache = use_cache and core.cache is not None
        self._cached_pages: list[L] = []

    def next_page(self) -> Steps[L]:
        """The next page; the first page after a restart. Its errors are those of `list_tools`."""
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
                    text = "the session ended repeatedly while the list was fetched"
                    raise _session_lost(text, error, self._method, self._core) from error.cause
                self._session_losses_left -= 1
                self._restart("the session was replaced")
                continue
            except InvalidParams:
                if self.cursor is None or not self._refusals_left:
                    raise
                self._refusals_left -= 1
                self._restart("the server refused the cursor")
                continue
            self._page_guard.count(raw)
            page = validate(self._model, raw, self._method)
            self._session.pin()
            return self._advance_to(page)

    def _advance_to(self, page: L) -> L:
        self.first, self.cursor = self.cursor is None, page.next_cursor
        return page

    def _find_cached_pages(self) -> Steps[list[L]]:
        """The cached pages of one listing up to the limit of pages; none if one is missing."""
        found: list[L] = []
        seen: set[str] = set()
        guard = PageGuard(self._method, self._limit)
        session, cursor = SessionPin(), None
        while True:
            page_params = _page_params(cursor, self._params)
            # With the same `session`, all cached pages are of one listing.
            raw = yield CacheLookup(self._method, page_params, session)
            if raw is None:
                return []
            guard.count(raw)
            found.append(validate(self._model, raw, self._method))
            cursor = found[-1].next_cursor
            if cursor is None or cursor in seen or len(found) == self._limit:
                return found
            seen.add(cursor)

    def _restart(self, why: str) -> None:
        _log.warning("[%s] %s starts over: %s", self._core.label, self._method, why)
        self.cursor = None
        self._session = SessionPin()
        self._page_guard = PageGuard(self._method, self._limit)


def _page_params(cursor: str | None, params: dict[str, Any] | None) -> dict[str, Any] | None:
    return params if cursor is None else {**(params or {}), "cursor": cursor}


def _learn_tools(result: L, core: ClientCore, generation: int, *, whole: bool = False) -> L:
    if isinstance(result, types.ListToolsResult):
        core.retry_rules.learn(result.tools)
        core.schemas.learn(result.tools, generation, whole=whole)
    return result


class PageGuard:
    """Stops an endless list: checks for repeated cursors, and for the limits of one whole list."""

    def __init__(self, method: str, limit: int) -> None:
        self._method = method
        self._items = 0
        self._bytes = 0
        self._values = 0
        self._limit = whole_number(limit, "max_pages")
        self._pages = 1
        self._seen: set[str] = set()

    def check(self, cursor: str) -> None:
        if cursor in self._seen:
            raise ProtocolError("the server repeated a cursor", method=self._method)
        self._seen.add(cursor)
        self._pages += 1
        if self._pages > self._limit:
            raise LimitExceeded(
                f"the list has more pages than {self._limit} (option max_pages)",
                method=self._method,
            )

    def count(self, page: dict[str, Any]) -> None:
        """Count the items, bytes and values of a page, before models are made of it."""
        self._items += sum(len(value) for value in page.values() if type(value) is list)
        if self._items > MAX_ITEMS:
            raise self._too_long(f"{MAX_ITEMS:,} items")
        # The limits for a message apply to the size of a list of one page.
        if self._pages > 1 or page.get("nextCursor") is not None:
            data = to_json(page)
            self._bytes += len(data)
            self._values += count_values(data)
            if self._bytes > MAX_BYTES:
                raise self._too_long(f"{MAX_BYTES:,} bytes")
            if self._values > MAX_VALUES:
                raise self._too_long(f"{MAX_VALUES:,} values")

    def _too_long(self, bound: str) -> LimitExceeded:
        return LimitExceeded(
            f"the list has more than {bound}; fetch its pages one by one (cursor=)",
            method=self._method,
        )


def iterate(
    method: str,
    model: type[types.PaginatedResult[Any]],
    client: HasCore,
    max_pages: int | None,
    options: CallOptions,
) -> Iterator[Any]:
    """Iterate over the items of a list, page by page; after a restart, known ones are skipped."""
    core, (items, name) = client._core, _ITEMS[method]
    core.resolve(options)  # checks the options now, not at the first page
    paginator = Paginator(method, model, core, max_pages)

    def next_page() -> Steps[Any]:
        page = yield from paginator.next_page()
        return _learn_tools(page, core, paginator.generation)

    def items_of_pages() -> Iterator[Any]:
        yielded: set[str] = set()
        # The items returned before the restart. Without a restart nothing is skipped: an item that
        # the server lists twice is returned twice.
        before: frozenset[str] = frozenset()
        while True:
            resolved = client._core.resolve(options)  # this reference keeps `client` alive
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
