"""Ends a request of a provider's package that waits for bytes, from another thread.

The packages read with httpx or httpx2, and closing a response while another thread reads from it
does not wake that thread. What does is shutting its socket down; hooks of the HTTP client, which do
nothing for anybody else's requests, tell which socket that is.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

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
        self._sockets: list[Any] = []
        self.closed = False

    @contextmanager
    def here(self) -> Iterator[None]:
        """What this thread asks for within is this call's."""
        _here.tap = self
        try:
            yield
        finally:
            del _here.tap
            self._forget()

    def close(self) -> None:
        """End what the call waits for, now or later. From any thread."""
        with self._lock:
            self.closed = True
            for each in self._sockets:
                _shut_down(each)

    def _keep(self, stream: Any) -> None:
        # Others may be using a connection of HTTP/2.
        secure = stream.get_extra_info("ssl_object")
        if secure is not None and secure.selected_alpn_protocol() == "h2":
            return
        each = stream.get_extra_info("socket")
        if each is None:  # it goes nowhere, to an application in this process for example
            return
        with self._lock:
            self._sockets.append(each)
            if self.closed:
                _shut_down(each)

    def _forget(self) -> None:
        with self._lock:
            self._sockets.clear()

    def trace(self, name: str, info: dict[str, Any]) -> None:
        """Told by the connection of what it does."""
        if name.endswith(_CONNECTED):
            self._keep(info["return_value"])
        elif name.endswith(_OVER):  # from here on it may be somebody else's
            self._forget()


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
    if tap is None:
        return
    if tap.closed:
        raise Left
    others = request.extensions.get("trace")

    def trace(name: str, info: dict[str, Any]) -> None:
        tap.trace(name, info)
        if others is not None:
            others(name, info)

    request.extensions = {**request.extensions, "trace": trace}


def _on_response(response: Any) -> None:
    tap: Tap | None = getattr(_here, "tap", None)
    stream = response.extensions.get("network_stream")
    if tap is not None and stream is not None:
        tap._keep(stream)


def _shut_down(each: Any) -> None:
    with suppress(OSError):  # it is closed already
        each.shutdown(socket.SHUT_RDWR)
