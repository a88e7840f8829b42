"""Lists that come in pages: one page, all of them, or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from syncmcp import types
from syncmcp._kept import recall, recall_or_exchange
from syncmcp._operation import BoundOperation, OperationHost
from syncmcp._options import CallOptions, whole_number
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.steps import Steps
from syncmcp._results import validate
from syncmcp.errors import LimitExceeded, ProtocolError

if TYPE_CHECKING:
    from syncmcp.types import PaginatedResult

L = TypeVar("L", bound="PaginatedResult")


class AllPages:
    """The type of `ALL_PAGES`."""

    def __repr__(self) -> str:
        return "ALL_PAGES"


ALL_PAGES: Final = AllPages()
"""As `cursor` of a list operation: fetch every page. (`None` is the first page alone.)"""


def pages(
    method: str,
    model: type[L],
    items: str,
    host: OperationHost,
    cursor: str | AllPages | None,
    max_pages: int | None,
    params: dict[str, Any] | None = None,
) -> Steps[L]:
    """One page, or all of them in one result: kept ones, or else the server's."""
    generation = host._schemas.generation
    if not isinstance(cursor, AllPages):
        raw = yield from recall_or_exchange(host, method, _at(cursor, params))
        return _learned(validate(model, raw, method), host, generation)
    limit = host._page_limit if max_pages is None else max_pages
    kept = yield from _together(partial(recall, host), method, params, model, items, limit)
    if kept is not None:
        return _learned(kept, host, generation, whole=True)
    # From the first page: some that are kept and some that are new may not belong together.
    return (yield from all_pages(method, model, items, host, limit, params))


def all_pages(
    method: str,
    model: type[L],
    items: str,
    host: OperationHost,
    max_pages: int | None = None,
    params: dict[str, Any] | None = None,
) -> Steps[L]:
    """All pages in one result, as the server has them now; each is asked for with `params`."""
    generation = host._schemas.generation
    limit = host._page_limit if max_pages is None else max_pages
    whole = yield from _together(exchange, method, params, model, items, limit)
    assert whole is not None
    return _learned(whole, host, generation, whole=True)


def _together(
    fetch: Callable[[str, dict[str, Any] | None], Steps[dict[str, Any] | None]],
    method: str,
    params: dict[str, Any] | None,
    model: type[L],
    items: str,
    limit: int,
) -> Steps[L | None]:
    """All pages in one result; `None` if one of them cannot be had."""
    guard = PageGuard(method, limit)
    raw = yield from fetch(method, params)
    if raw is None:
        return None
    whole = page = validate(model, raw, method)
    while page.next_cursor is not None:
        guard.check(page.next_cursor)
        raw = yield from fetch(method, _at(page.next_cursor, params))
        if raw is None:
            return None
        page = validate(model, raw, method)
        getattr(whole, items).extend(getattr(page, items))
    whole.next_cursor = None
    return whole


def _at(cursor: str | None, params: dict[str, Any] | None) -> dict[str, Any] | None:
    return params if cursor is None else {**(params or {}), "cursor": cursor}


def _learned(result: L, host: OperationHost, generation: int, *, whole: bool = False) -> L:
    if isinstance(result, types.ListToolsResult):
        host._repeatable.learn(result.tools)
        host._schemas.learn(result.tools, generation, whole=whole)
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
    list_page: BoundOperation[..., Any],
    items: str,
    host: OperationHost,
    max_pages: int | None,
    options: CallOptions,
) -> Iterator[Any]:
    """The items of a list, whose pages are fetched as they are needed."""
    host._resolve(options)  # a mistake is raised here, not when the first page is fetched
    guard = PageGuard(method, host._page_limit if max_pages is None else max_pages)

    def items_of_pages() -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = list_page(cursor=cursor, **options)
            yield from getattr(page, items)
            cursor = page.next_cursor
            if cursor is None:
                return
            guard.check(cursor)

    return items_of_pages()
