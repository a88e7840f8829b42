"""Ends a request of a provider's package that waits for bytes, from another thread.

The packages read with httpx or httpx2, and closing a response while another thread reads from it
does not wake that thread. What does is shutting its socket down. Hooks of the HTTP client tell of
its connections, and each of those tells who writes to it, for a kept one may be used again; they do
nothing to anybody else's requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from syncmcp._http.exchange import shut_down

__all__ = ["Left", "Tap"]

_CONNECTED: Final = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")
_OVER: Final = "response_closed.started"

# The call that a thread is making.
_here = threading.local()
# Guards that the hooks are put into a client once.
_installing = threading.Lock()


class Left(BaseException):
    """Nobody waits for this call any more; not for those who repeat what failed."""


class Tap:
    """Knows the sockets that one call is using, and can shut them down.

    Args:
        http: The HTTP client that the call will use; without hooks, nothing can be shut down.
    """

    def __init__(self, http: Any) -> None:
        _install(http)
        # Guards the two below. Shutting a socket down does not block.
        self._lock = threading.Lock()
        self._sockets: set[Any] = set()
        self.closed = False

    @contextmanager
    def here(self) -> Iterator[None]:
        """What this thread asks for within is this call's."""
        _here.tap = self
        try:
            yield
        finally:
            del _here.tap
            self.forget()

    def close(self) -> None:
        """End what the call waits for, now or later. From any thread."""
        with self._lock:
            self.closed = True
            for each in self._sockets:
                shut_down(each)

    def keep(self, stream: Any) -> None:
        """The call uses this connection."""
        # Others may be using a connection of HTTP/2.
        secure = stream.get_extra_info("ssl_object")
        if secure is not None and secure.selected_alpn_protocol() == "h2":
            return
        each = stream.get_extra_info("socket")
        if each is None:  # it goes nowhere, to an application in this process for example
            return
        with self._lock:
            self._sockets.add(each)
            if self.closed:
                shut_down(each)

    def forget(self) -> None:
        """The sockets may be somebody else's from here on."""
        with self._lock:
            self._sockets.clear()


def _install(http: Any) -> None:
    hooks = getattr(http, "event_hooks", None)
    if not isinstance(hooks, dict):
        return
    with _installing:
        hooks = http.event_hooks
        if _on_request not in hooks["request"]:
            # New lists: somebody may be going through the old ones.
            http.event_hooks = {
                "request": [*hooks["request"], _on_request],
                "response": [*hooks["response"], _on_response],
            }


def _on_request(request: Any) -> None:
    tap: Tap | None = getattr(_here, "tap", None)
    if tap is not None and tap.closed:
        raise Left
    others = request.extensions.get("trace")
    others = getattr(others, "others", others)  # ours, of the last time it was sent

    def trace(name: str, info: dict[str, Any]) -> None:
        if name.endswith(_CONNECTED):
            _watch(info["return_value"])
            _in_use(info["return_value"])
        elif tap is not None and name.endswith(_OVER):
            tap.forget()
        if others is not None:
            others(name, info)

    trace.others = others  # type: ignore[attr-defined]
    request.extensions = {**request.extensions, "trace": trace}


def _on_response(response: Any) -> None:
    # Only now does one tell of itself that was there before the hooks were.
    stream = response.extensions.get("network_stream")
    if stream is not None:
        _in_use(stream)


def _watch(stream: Any) -> None:
    """Have a connection tell that it is written to, when it is used again."""
    write: Callable[..., None] = stream.write

    def told(*args: Any, **options: Any) -> None:
        _in_use(stream)
        write(*args, **options)

    with suppress(AttributeError):  # not every connection may be one that can be changed
        stream.write = told


def _in_use(stream: Any) -> None:
    tap: Tap | None = getattr(_here, "tap", None)
    if tap is not None:
        tap.keep(stream)
