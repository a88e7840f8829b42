"""A model's answer as it is being written, to be left at any moment, its socket shut."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from syncmcp._http.exchange import shut_down
from syncmcp.errors import RequestCancelled

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken

__all__ = ["CallAbandoned", "SocketTracker", "stream_events"]


# Ends a request of a provider's package that waits for bytes, from another thread.
#
# The packages read with httpx or httpx2, and closing a response while another thread reads from
# it does not wake that thread. What does is shutting its socket down. Hooks of the HTTP client
# tell of its connections, and each of those tells who writes to it, for a kept one may be used
# again; they do nothing to anybody else's requests.


_CONNECTED: Final = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")
_RESPONSE_CLOSED: Final = "response_closed.started"

# The call that a thread is making.
_this_thread = threading.local()
# Guards that the hooks are put into a client once.
_install_lock = threading.Lock()


class CallAbandoned(BaseException):
    """Nobody waits for this call any more; not for those who repeat what failed."""


class SocketTracker:
    """Knows the sockets that one call is using, and can shut them down.

    Args:
        http: The HTTP client that the call will use; without hooks, nothing can be shut down.
    """

    def __init__(self, http: Any) -> None:
        _install(http)
        # Guards the two below. Shutting a socket down does not block.
        self._lock = threading.Lock()
        self._sockets: set[Any] = set()
        self.aborted = False

    @contextmanager
    def attached(self) -> Iterator[None]:
        """What this thread asks for within is this call's."""
        _this_thread.tracker = self
        try:
            yield
        finally:
            del _this_thread.tracker
            self.clear()

    def abort(self) -> None:
        """End what the call waits for, now or later. From any thread."""
        with self._lock:
            self.aborted = True
            for each in self._sockets:
                shut_down(each)

    def add(self, stream: Any) -> None:
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
            if self.aborted:
                shut_down(each)

    def clear(self) -> None:
        """The sockets may be somebody else's from here on."""
        with self._lock:
            self._sockets.clear()


def _install(http: Any) -> None:
    hooks = getattr(http, "event_hooks", None)
    if not isinstance(hooks, dict):
        return
    with _install_lock:
        hooks = http.event_hooks
        if _on_request not in hooks["request"]:
            # New lists: somebody may be going through the old ones.
            http.event_hooks = {
                "request": [*hooks["request"], _on_request],
                "response": [*hooks["response"], _on_response],
            }


def _on_request(request: Any) -> None:
    tracker: SocketTracker | None = getattr(_this_thread, "tracker", None)
    if tracker is not None and tracker.aborted:
        raise CallAbandoned
    others = request.extensions.get("trace")
    others = getattr(others, "others", others)  # ours, of the last time it was sent

    def trace(name: str, info: dict[str, Any]) -> None:
        if name.endswith(_CONNECTED):
            _wrap_write(info["return_value"])
            _track(info["return_value"])
        elif tracker is not None and name.endswith(_RESPONSE_CLOSED):
            tracker.clear()
        if others is not None:
            others(name, info)

    trace.others = others  # type: ignore[attr-defined]
    request.extensions = {**request.extensions, "trace": trace}


def _on_response(response: Any) -> None:
    # Only now does one tell of itself that was there before the hooks were.
    stream = response.extensions.get("network_stream")
    if stream is not None:
        _track(stream)


def _wrap_write(stream: Any) -> None:
    """Have a connection tell that it is written to, when it is used again."""
    write: Callable[..., None] = stream.write

    def write_tracked(*args: Any, **options: Any) -> None:
        _track(stream)
        write(*args, **options)

    with suppress(AttributeError):  # not every connection may be one that can be changed
        stream.write = write_tracked


def _track(stream: Any) -> None:
    tracker: SocketTracker | None = getattr(_this_thread, "tracker", None)
    if tracker is not None:
        tracker.add(stream)


# A main thread on Windows that waits for a queue does not notice Ctrl-C.
_POLL_SECONDS: Final = 0.2 if sys.platform == "win32" else None


class _End:
    """The stream is over: as it should be, or with an error."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def stream_events(begin: Callable[[], Any], http: Any, cancel: CancelToken) -> Iterator[Any]:
    """Iterate over what a call of a provider's package brings.

    The call runs on a thread of its own, with the caller's context variables. When it is
    cancelled, or the iterator is closed, what it waits for is ended; where that cannot be done, the
    thread is left behind and ends when it next gets something.

    Args:
        begin: Makes the call and returns its stream, an iterable.
        http: The HTTP client that the package uses.
        cancel: Ends it.

    Raises:
        RequestCancelled: `cancel` was cancelled.
    """
    call = _Call(begin, SocketTracker(http))
    unsubscribe = cancel._subscribe(call.abort)
    try:
        call.start()
        while True:
            item = call.next()
            if cancel.cancelled:
                raise RequestCancelled(
                    "the question was withdrawn", reason=cancel.reason, delivery="unknown"
                )
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        unsubscribe()
        call.abort()


class _Call:
    """One call on its thread."""

    def __init__(self, begin: Callable[[], Any], tracker: SocketTracker) -> None:
        self._begin = begin
        self._tracker = tracker
        self._items: SimpleQueue[Any] = SimpleQueue()

    def start(self) -> None:
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(self._run,), name="syncmcp-llm", daemon=True
        ).start()

    def next(self) -> Any:
        while True:
            try:
                return self._items.get(timeout=_POLL_SECONDS)
            except Empty:
                continue

    def abort(self) -> None:
        """Nobody looks at what still comes."""
        self._tracker.abort()
        self._items.put(_End())

    def _run(self) -> None:
        end = _End()
        try:
            with self._tracker.attached():
                self._read_stream()
        except CallAbandoned:
            pass
        except BaseException as error:  # raised again where the answer is waited for
            end = _End(error)
        self._items.put(end)

    def _read_stream(self) -> None:
        stream = self._begin()
        try:
            for item in stream:
                if self._tracker.aborted:
                    return
                self._items.put(item)
        finally:
            stream.close()
