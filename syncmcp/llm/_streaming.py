"""Reads the streamed answer of a model on a thread; can abort it by shutting down its socket."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp._http.exchange import shut_down
from syncmcp.errors import RequestCancelled

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken

__all__ = ["CallAbandoned", "SocketTracker", "stream_events"]


# Aborts a request of a provider's package that waits for bytes, from another thread.
#
# The packages use httpx or httpx2. Closing a response while another thread reads it does not wake
# that thread; shutting down its socket does. Event hooks of the HTTP client report new connections.
# The `write` method of each connection is wrapped, too, because a pooled connection is reused
# without being reported. Requests of other calls are not affected.


_CONNECTED: Final = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")
_RESPONSE_CLOSED: Final = "response_closed.started"

# The `SocketTracker` of the call that the current thread is making.
_this_thread = threading.local()
# Guards that the hooks are installed once in each client.
_install_lock = threading.Lock()


class CallAbandoned(BaseException):
    """The call was aborted. A `BaseException`, so that no retry of the package catches it."""


class SocketTracker:
    """Tracks the sockets that one call uses, and can shut them down.

    Args:
        http: The HTTP client of the call; if it has no event hooks, no socket is tracked.
    """

    def __init__(self, http: Any) -> None:
        _install(http)
        # Guards the two attributes below. Shutting down a socket does not block.
        self._lock = threading.Lock()
        self._sockets: set[Any] = set()
        self.aborted = False

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Track the connections that this thread uses within the context."""
        _this_thread.tracker = self
        try:
            yield
        finally:
            del _this_thread.tracker
            self.clear()

    def abort(self) -> None:
        """Shut down present and future sockets of the call. From any thread; idempotent."""
        with self._lock:
            self.aborted = True
            for each in self._sockets:
                shut_down(each)

    def add(self, stream: Any) -> None:
        """Track a connection that the call uses."""
        # An HTTP/2 connection may carry requests of other calls.
        secure = stream.get_extra_info("ssl_object")
        if secure is not None and secure.selected_alpn_protocol() == "h2":
            return
        each = stream.get_extra_info("socket")
        if each is None:  # no network connection: an application in this process, for example
            return
        with self._lock:
            self._sockets.add(each)
            if self.aborted:
                shut_down(each)

    def clear(self) -> None:
        """Stop tracking: from now on, other calls may use the sockets."""
        with self._lock:
            self._sockets.clear()


def _install(http: Any) -> None:
    hooks = getattr(http, "event_hooks", None)
    if not isinstance(hooks, dict):
        return
    with _install_lock:
        hooks = http.event_hooks
        if _on_request not in hooks["request"]:
            # New lists: another thread may be iterating over the old ones.
            http.event_hooks = {
                "request": [*hooks["request"], _on_request],
                "response": [*hooks["response"], _on_response],
            }


def _on_request(request: Any) -> None:
    tracker: SocketTracker | None = getattr(_this_thread, "tracker", None)
    if tracker is not None and tracker.aborted:
        raise CallAbandoned
    others = request.extensions.get("trace")
    others = getattr(others, "others", others)  # unwrap our own `trace` of an earlier attempt

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
    # A connection made before the hooks were installed is reported here for the first time.
    stream = response.extensions.get("network_stream")
    if stream is not None:
        _track(stream)


def _wrap_write(stream: Any) -> None:
    """Wrap `write` of a connection, so that it is tracked when it is reused."""
    write: Callable[..., None] = stream.write

    def write_tracked(*args: Any, **options: Any) -> None:
        _track(stream)
        write(*args, **options)

    with suppress(AttributeError):  # attributes of some connections may be read-only
        stream.write = write_tracked


def _track(stream: Any) -> None:
    tracker: SocketTracker | None = getattr(_this_thread, "tracker", None)
    if tracker is not None:
        tracker.add(stream)


# On Windows, Ctrl-C does not interrupt a main thread that waits for a queue without a timeout.
_POLL_SECONDS: Final = 0.2 if sys.platform == "win32" else None


class _End:
    """The end of the stream, with an error or without."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def stream_events(begin: Callable[[], Any], http: Any, cancel: CancelToken) -> Iterator[Any]:
    """Yield the events of a streamed call of a provider's package.

    The call runs on a thread of its own, with the caller's context variables. When it is
    cancelled, or the iterator is closed, its socket is shut down. If that is not possible, the
    thread is abandoned and ends when it receives the next event.

    Args:
        begin: Makes the call and returns its stream, an iterable with `close`.
        http: The HTTP client that the package uses.
        cancel: Cancels the call.

    Raises:
        RequestCancelled: `cancel` was cancelled.
    """
    call = _Call(begin, SocketTracker(http))
    unsubscribe = call_when_cancelled(cancel, call.abort)
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
    """One call, on a thread of its own."""

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
        """Abort the call; later events are discarded."""
        self._tracker.abort()
        self._items.put(_End())

    def _run(self) -> None:
        end = _End()
        try:
            with self._tracker.attached():
                self._read_stream()
        except CallAbandoned:
            pass
        except BaseException as error:  # raised again in the thread that iterates
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
