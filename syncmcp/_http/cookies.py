"""The cookies that a server sets, within bounds (RFC 6265 §6.1)."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.cookiejar import Cookie
from typing import Final, TypeAlias

from requests.cookies import RequestsCookieJar, extract_cookies_to_jar, get_cookie_header
from requests.models import PreparedRequest, Response

MAX_COOKIES: Final = 50
"""The most cookies of a server that are kept."""

MAX_COOKIE: Final = 4_096
"""The longest cookie that is kept: name, value and attributes together, in characters."""

MAX_ALL: Final = 16_384
"""The most that the kept cookies of a server have together, in characters."""

_Key: TypeAlias = tuple[str, str, str]


class _ReceivedCookies(RequestsCookieJar):
    """The cookies of one response, and the keys of those that it deletes."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[_Key] = []

    def clear(
        self, domain: str | None = None, path: str | None = None, name: str | None = None
    ) -> None:
        """Called by `http.cookiejar` for a cookie whose expiry is in the past."""
        if domain is not None and path is not None and name is not None:
            self.deleted.append((domain, path, name))
        super().clear(domain, path, name)


class ServerCookies:
    """Keeps the cookies that a server sets, in a jar. Used from any thread.

    When there are too many, the oldest cookies of the server are dropped. Those that the program
    has put into the jar are neither counted nor dropped.

    `filled` tells whether the jar may have cookies: to ask an empty one takes ten function calls.
    `by_requests`: `requests` has put the cookies of a response into the jar before.
    """

    def __init__(self, jar: RequestsCookieJar, *, filled: bool, by_requests: bool = False) -> None:
        self._jar = jar
        self._by_requests = by_requests
        self.filled = filled
        # Guards the sizes of the server's cookies, the oldest first.
        # Reentrant: a signal handler may make a call.
        self._lock = threading.RLock()
        self._sizes: dict[_Key, int] = {}

    def header(self, request: PreparedRequest) -> str | None:
        """The header `Cookie` for a request; `None` if there are no cookies for it."""
        header: str | None = get_cookie_header(self._jar, request)  # type: ignore[no-untyped-call]
        return header

    def keep(self, response: Response) -> list[str]:
        """Put the cookies of a response into the jar, but for those that are too long.

        Those that the server has set before, and the response deletes, are dropped. Returns the
        values of all.
        """
        received = _ReceivedCookies()
        extract_cookies_to_jar(received, response.request, response.raw)  # type: ignore[no-untyped-call]
        with self._lock:
            for key in received.deleted:
                if key in self._sizes:  # the jar may have cookies of the program, for any site
                    self._drop(key)
            for cookie in received:
                self._keep(cookie)
            while len(self._sizes) > MAX_COOKIES or sum(self._sizes.values()) > MAX_ALL:
                self._drop(next(iter(self._sizes)))
        self.filled = True
        return [cookie.value or "" for cookie in received]

    def _keep(self, cookie: Cookie) -> None:
        key = (cookie.domain, cookie.path, cookie.name)
        size = sum(len(str(one)) for one in vars(cookie).values())
        if size > MAX_COOKIE:
            if self._by_requests or key in self._sizes:  # else it would be one of the program
                self._drop(key)
            return
        self._sizes.pop(key, None)
        self._sizes[key] = size
        self._jar.set_cookie(cookie)

    def _drop(self, key: _Key) -> None:
        self._sizes.pop(key, None)
        with suppress(KeyError):  # it has expired, or the program has dropped it
            self._jar.clear(*key)
