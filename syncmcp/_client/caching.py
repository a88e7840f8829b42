"""The cache of results, a layer between the steps of an operation and their driver.

Steps yield `CacheLookup` if a cached result is acceptable, and `Send` otherwise. Each result of a
`Send` is cached if the server and the options of the call allow that.

Concurrent calls that miss the same entry each send their request: a call that waited for the result
of another call would share its deadline, its cancellation and its failure.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import from_json, to_json

from syncmcp._base.checks import kind_of
from syncmcp._base.text import logger
from syncmcp._client.opening import Target, underlying_target
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.timing import monotonic
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol.caching import (
    InvalidationLog,
    first_page_params,
    is_cacheable,
    is_public,
    list_of_refused_cursor,
    ttl_seconds,
)
from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.steps import CacheLookup, Send
from syncmcp._protocol.subscription import ChangeEvent
from syncmcp.cache import CachedResult, CacheStore, MemoryCache
from syncmcp.config import Http
from syncmcp.errors import McpError, NotSupported, UsageError

_log = logger("syncmcp.cache")


class ResultCache:
    """The cached results of one client, and the changes that invalidate them.

    `given` is the option `cache`; other clients may use the store too, unless it is `True`. `offer`
    returns the capabilities that the client offers at the moment.
    """

    def __init__(
        self,
        given: CacheStore | bool,
        target: Target,
        *,
        extensions: Mapping[str, Any],
        offer: Callable[[], OfferedCapabilities],
    ) -> None:
        store: Any = MemoryCache() if given is True else given
        if isinstance(store, type) or not isinstance(store, CacheStore):
            raise UsageError(f"cache must be True, False or a CacheStore, not {kind_of(given)}")
        self._store = store
        # Whether the store is code of the program, which the reader thread must not run.
        self.runs_user_code = not isinstance(store, MemoryCache)
        self._target = target
        # A secret part of the keys of private entries, so that no other client finds them.
        self._client_key = os.urandom(16).hex()
        shared = None if given is True else _server_of(target)
        self._server: Any = shared or self._client_key
        self._extensions = dict(extensions)
        self._offer = offer
        # The owners of results that this client may use: `None` for public results, and itself.
        self._owners = (None, self._client_key) if has_one_user(target) else (None,)
        # Guards the changes; held for look-ups and changes only.
        self._lock = threading.RLock()
        self._changes = InvalidationLog()

    # -- invalidation ------------------------------------------------------------------------

    def on_change(self, event: ChangeEvent) -> None:
        """Invalidate the results that a change concerns. Never blocks."""
        with self._lock:
            self._changes.record_change(event, monotonic())

    def on_reconnect(self) -> None:
        """Invalidate everything, unless the target is a URL: a new process is another server."""
        if not isinstance(self._target, Http):
            with self._lock:
                self._changes.invalidate_all(monotonic())

    # -- look-up and store -------------------------------------------------------------------

    def look_up(
        self, wanted: CacheLookup, connection: Connection | None, options: ResolvedOptions
    ) -> dict[str, Any] | None:
        """The cached result of a request, for the server of the live connection, if any."""
        method, params, _ = wanted
        if options.cache != "use" or not options.plain or not is_cacheable(method, params):
            return None
        if options.cancel is not None and options.cancel.cancelled:
            return None  # sending the request raises the error
        if connection is None or connection.dialect.stateful:
            return None
        try:
            dialect = connection.agreed.check(method, options.undeclared)
        except NotSupported:
            return None  # sending the request raises the error
        found = self._newest(wanted, dialect.revision)
        if found is None:
            return None
        result = dialect.read_result(method, found)
        return result if isinstance(result, dict) else None

    def _newest(self, wanted: CacheLookup, revision: str) -> dict[str, Any] | None:
        method, params, session = wanted
        request = (revision, self._offer(), method)
        usable: list[CachedResult] = []
        for owner in self._owners:
            cached = self._get(self._key(owner, *request, params))
            if cached is None or not self._is_fresh(cached, method, params):
                continue
            if session is not None:
                if session.started_at not in (None, cached.asked):
                    continue  # a page of another listing
            elif (at_first := first_page_params(method, params)) is not None:
                first = self._get(self._key(owner, *request, at_first))
                if first is not None and first.asked > cached.asked:
                    continue  # the first page was fetched again after that
            usable.append(cached)
        if not usable:
            return None
        newest = max(usable, key=lambda cached: cached.asked)
        if session is not None:
            session.started_at = newest.asked
        # Parsed for each look-up, so that callers may modify their result.
        result = from_json(newest.body)
        return result if isinstance(result, dict) else None

    def _is_fresh(
        self, cached: CachedResult, method: str, params: Mapping[str, Any] | None
    ) -> bool:
        if monotonic() >= cached.expires:
            return False
        with self._lock:
            return not self._changes.is_outdated(method, params, cached.asked)

    def reply_handler(self, send: Send, options: ResolvedOptions) -> Callable[[Reply], None] | None:
        """Return a function that stores the reply to a request; `None` if it is not cacheable.

        Call this before the request is sent: later changes outdate the reply.
        """
        method, params, own_offer, _, session = send
        if options.cache == "bypass" or not options.plain or own_offer is not None:
            return None
        if not is_cacheable(method, params):
            return None
        asked, offer = monotonic(), self._offer()
        if session is not None:
            # All pages of one listing have the time of its start, which identifies them.
            session.started_at = asked = asked if session.started_at is None else session.started_at

        def store_reply(reply: Reply) -> None:
            result, dialect, altered = reply
            if dialect.stateful or altered or not isinstance(result, dict):
                return
            if offer != self._offer():
                return
            seconds = ttl_seconds(result)
            if seconds <= 0:
                return
            owner = None if is_public(result) else self._client_key
            if owner not in self._owners:
                return
            with self._lock:
                if self._changes.is_outdated(method, params, asked):
                    return
            key = self._key(owner, dialect.revision, offer, method, params)
            body = _json(result)
            if key is not None and body is not None:
                self._put(key, CachedResult(body, asked, monotonic() + seconds))

        return store_reply

    def note_failure(self, send: Send, error: McpError) -> None:
        """Invalidate the pages of a list if its server refused a cursor. Never blocks."""
        name = list_of_refused_cursor(send.method, send.params, error)
        if name is not None:
            with self._lock:
                self._changes.record_refused_cursor(name, monotonic())

    # -- the store ---------------------------------------------------------------------------

    def _key(
        self,
        owner: str | None,
        revision: str,
        offer: OfferedCapabilities,
        method: str,
        params: Mapping[str, Any] | None,
    ) -> str | None:
        """The key of a result in the store; `None` if the parameters are not JSON."""
        parts = [owner, self._server, revision, offer, self._extensions, method, params or {}]
        try:
            text = json.dumps(parts, sort_keys=True)
        except (TypeError, ValueError):
            return None
        return hashlib.sha256(text.encode()).hexdigest()

    def _get(self, key: str | None) -> CachedResult | None:
        if key is None:
            return None
        try:
            return self._store.get(key)
        except Exception:
            _log.exception("the cache store failed")
            return None

    def _put(self, key: str, result: CachedResult) -> None:
        try:
            self._store.put(key, result)
        except Exception:
            _log.exception("the cache store failed")


@delaying_forks()
def _server_of(target: Target) -> list[Any] | None:
    """Return the part of the cache keys that identifies the server; `None` to share no results.

    It includes the proxies and TLS settings: a client must not use results that came over a
    connection that it would not trust. Clients with a `session` share no results, because the
    program may change the session at any time.
    """
    if not isinstance(target, Http) or target.session is not None:
        return None
    import requests

    from syncmcp._http.session import connection_settings

    with requests.Session() as session:
        return [target.url, connection_settings(target, session)]


def has_one_user(target: Target) -> bool:
    """True if a client makes all its requests to `target` for the same user.

    False if the credentials may differ between two requests: with a function for the headers, a
    session, or any `auth` except a user name with a password or a fixed `Bearer` token. False for
    the classes that obtain tokens, too: the program, or another process with the same token store,
    may sign in as another user at any time.
    """
    server = underlying_target(target)
    if not isinstance(server, Http):
        return True
    if callable(server.headers) or server.session is not None:
        return False
    if server.auth is None or type(server.auth) is tuple:
        return True
    with delaying_forks():
        from syncmcp.auth.bearer import has_fixed_token  # imports requests

    return has_fixed_token(server.auth)


def _json(result: dict[str, Any]) -> bytes | None:
    try:
        return to_json(result)
    except ValueError as error:  # JSON may have characters that UTF-8 cannot encode
        _log.debug("could not cache a result: %s", type(error).__name__)
        return None
