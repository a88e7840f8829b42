"""Subscriptions as iterators of change events, and listeners that call a function."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from typing_extensions import Self

from syncmcp._base.checks import check_callable, finite_seconds, seconds
from syncmcp._base.text import logger
from syncmcp._client.core import ClientCore, HasCore
from syncmcp._client.listening import SessionSubscription, StreamSubscription, SubscriptionBackend
from syncmcp._concurrency import timing
from syncmcp._concurrency.event_queue import EventQueue
from syncmcp._concurrency.limited_log import LimitedLog
from syncmcp._concurrency.pool import SerialExecutor, lending_handler
from syncmcp._concurrency.timing import Deadline, reaper, timer
from syncmcp._protocol.capabilities import Undeclared, not_declared
from syncmcp._protocol.subscription import ChangeEvent, ChangeFilter
from syncmcp.errors import ClosedError, McpError, NotSupported, SubscriptionLost, UsageError

__all__ = ["ChangeEvent", "Listener", "Subscription"]

V = TypeVar("V")

OnError = Callable[[SubscriptionLost], object]

_log = logger("syncmcp.subscriptions")


class Subscription:
    """The changes at a server, as an iterator of `ChangeEvent`; made by `Client.listen`.

    >>> with client.listen(uris=["demo://readme"]) as changes:
    ...     server.resource_updated("demo://readme")  # at the server
    ...     print(next(changes))
    ChangeEvent(kind='resource', uri='demo://readme', missed=False)

    Several changes of one list or resource that nobody has read yet are one event. An event has
    `missed` set if the connection broke and was replaced, because there may have been a change
    meanwhile.

    The subscription ends at the end of a ``with`` block, by `close`, or after `stop_after` events.
    It also ends when it is garbage-collected, for example after leaving a ``for`` loop. The server
    is notified of the end. Closing the client ends the subscription, too. Several threads may
    iterate; each event is returned to one of them.
    """

    def __init__(
        self, client: HasCore, backend: SubscriptionBackend, timeout: float | None
    ) -> None:
        # Strongly: a subscription keeps its client alive.
        self._client = client
        self._core = client._core
        self._backend = backend
        self._inbox = backend.inbox
        self._timeout = timeout
        self._finalizer = weakref.finalize(self, reaper.put, backend.close_in_background)
        self._finalizer.atexit = False

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists that the server accepted; perhaps fewer than the program asked for."""
        return self._backend.granted.kinds

    @property
    def uris(self) -> tuple[str, ...]:
        """The resources that the server accepted."""
        return self._backend.granted.uris

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChangeEvent:
        """Wait for the next event.

        Raises:
            TimeoutError: There was no event within `timeout`. The subscription goes on.
            SubscriptionLost: The subscription ended, but the program did not end it.
            ForkedError: The client belongs to the parent process.
        """
        self._core.check_process()
        event = self._inbox.next(self._timeout)
        if event is None:
            self.close()
            raise StopIteration
        return event

    def close(self, timeout: float | None = None) -> None:
        """End the subscription; idempotent. Threads that wait for an event stop iterating.

        Any thread may call this.

        Args:
            timeout: The longest time that notifying the server may take, in seconds; the client's
                `close_timeout` by default.
        """
        self._finalizer.detach()
        limit = (
            self._core.settings.close_timeout if timeout is None else seconds(timeout, "timeout")
        )
        self._backend.close(Deadline(limit))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._inbox.closed else "open"
        return f"<Subscription to {self._backend.granted} of {self._backend._label} {state}>"

    def run_in_thread(
        self, handler: Callable[[ChangeEvent], object], *, on_error: OnError | None = None
    ) -> Listener:
        """Call `handler` with each event, on a thread of its own, until the subscription ends.

        The `timeout` of the subscription has no effect here.

        Args:
            handler: A function that is called with each event. It may block and may call the
                client; meanwhile events are queued. Its exceptions are logged.
            on_error: A function that is called on the same thread with the `SubscriptionLost` that
                ends the listener. Without `on_error`, that error is logged.
        """
        _check_callables(handler, on_error, "event")
        listener = Listener(self._inbox, self.close, on_error)
        threading.Thread(
            target=self._run,
            args=(listener, handler),
            name=f"syncmcp-listener[{self._backend._label}]",
            daemon=True,
        ).start()
        return listener

    def _run(self, listener: Listener, handler: Callable[[ChangeEvent], object]) -> None:
        try:
            while True:
                try:
                    event = next(self)
                except TimeoutError:
                    continue
                except (StopIteration, ClosedError, SubscriptionLost):
                    return
                listener._call(handler, event)
        finally:
            listener._end()


class Listener:
    """Calls a function after each change; see `Subscription.run_in_thread`.

    ::

        listener = client.on_tools_changed(lambda tools: print(len(tools)))
        listener.stop()
    """

    def __init__(
        self, inbox: EventQueue, close: Callable[[], object], on_error: OnError | None
    ) -> None:
        self._inbox = inbox
        self._close = close
        self._on_error = on_error
        self._limited_log = LimitedLog()
        self._ended = threading.Event()
        self._generation = timing.fork_generation
        # The thread on which the function is running.
        self._caller: int | None = None

    def __repr__(self) -> str:
        return f"<Listener {'running' if self.running else 'ended'}>"

    @property
    def running(self) -> bool:
        """True if the function is running, or may still be called."""
        return self._generation == timing.fork_generation and not self._ended.is_set()

    @property
    def error(self) -> SubscriptionLost | None:
        """The error that ended the listener; `None` if it runs, or the program ended it."""
        error = self._inbox.error
        return error if isinstance(error, SubscriptionLost) else None

    def stop(self, timeout: float | None = None) -> bool:
        """End the listener, and wait until a running call of the function has returned.

        If the function itself calls `stop`, then `stop` does not wait.

        Args:
            timeout: The longest time to wait, in seconds; `None` for no limit.

        Returns:
            True if the function is not running and will not be called any more.
        """
        limit = seconds(timeout, "timeout")
        self._close()
        if self._caller == threading.get_ident():
            return False
        with lending_handler():
            return not self.running or self._ended.wait(limit)

    def _call(self, function: Callable[[V], object], value: V) -> None:
        """Call a function of the program, and log its exceptions."""
        self._caller = threading.get_ident()
        try:
            function(value)
        except BaseException:  # sys.exit() in it ends the call
            text = "a listener of changes failed"
            self._limited_log.log(_log, logging.ERROR, text, exc_info=True)
        finally:
            self._caller = None

    def _end(self) -> None:
        error = self.error
        if error is not None and self._on_error is not None:
            self._call(self._on_error, error)
        elif error is not None:
            _log.warning("%s", error)
        self._limited_log.flush()
        self._ended.set()


class _Refresher(Listener):
    """Fetches a list or resource after each change, and calls a function with it."""

    def __init__(
        self,
        core: ClientCore,
        fetch: Callable[[Any], V],
        handler: Callable[[V], object],
        debounce: float,
        on_error: OnError | None,
    ) -> None:
        super().__init__(EventQueue(self._on_event), self._close_backend, on_error)
        # Weakly: a listener does not keep its client alive.
        self._core = weakref.ref(core)
        self._label = core.label
        self._fetch = fetch
        self._handler = handler
        self._debounce = debounce
        # One call at a time.
        self._serial_executor = SerialExecutor(core.pools.workers)
        self.backend: SubscriptionBackend | None = None

    def _close_backend(self) -> None:
        core, backend = self._core(), self.backend
        if core is not None and backend is not None:
            backend.close(Deadline(core.settings.close_timeout))

    def _on_event(self) -> None:
        """Schedule a refresh. Runs on the reader thread, or on the thread that ends the inbox."""
        refresh = partial(self._serial_executor.push, self._refresh)
        if self._inbox.closed:
            refresh()
        else:
            timer.after(self._debounce, refresh)

    def _refresh(self) -> None:
        """Fetch and call the handler, on a pool thread; or end the listener."""
        changed = self._inbox.take_all()
        core = self._core()
        client = None if core is None else core.client
        if self._inbox.closed:
            if self.running:
                self._end()
        elif changed and client is not None:
            try:
                value = self._fetch(client)
            except ClosedError:
                return  # the client was closed, and this listener with it
            except McpError as error:
                text = "[%s] a refresh after a change failed: %s"
                self._limited_log.log(_log, logging.WARNING, text, self._label, error)
            else:
                self._call(self._handler, value)


def refresh(
    core: ClientCore,
    wanted: ChangeFilter,
    fetch: Callable[[Any], V],
    handler: Callable[[V], object],
    debounce: float,
    on_error: OnError | None,
    deadline: Deadline | None = None,
    undeclared: Undeclared | None = None,
) -> Listener:
    """Fetch a list or resource whenever it has changed; see `Client.on_tools_changed`."""
    _check_callables(handler, on_error, next(iter(wanted.kinds), "result"))
    pause = finite_seconds(debounce, "debounce")
    listener = _Refresher(core, fetch, handler, pause, on_error)
    listener.backend = open_subscription(core, wanted, listener._inbox, deadline, undeclared)
    return listener


def open_subscription(
    core: ClientCore,
    wanted: ChangeFilter,
    inbox: EventQueue,
    deadline: Deadline | None = None,
    undeclared: Undeclared | None = None,
) -> SubscriptionBackend:
    """Subscribe to changes, until `deadline` or else within the client's `timeout`.

    `undeclared` is the option of that name; that of the client by default.

    Raises:
        NotSupported: The server does not declare these changes, or accepts none of them.
    """
    if wanted == ChangeFilter():
        raise UsageError("pass what to listen to: tools, prompts, resources or uris")
    undeclared = core.resolve({"undeclared": undeclared}).undeclared
    if deadline is None:
        deadline = Deadline(core.settings.timeout)
    if core.live_connection() is None:
        core.open(deadline)
    negotiated = core.negotiated
    if negotiated is None:
        raise core.not_open()
    capabilities = negotiated.result.get("capabilities")
    lacking = wanted.missing_capability(capabilities if isinstance(capabilities, dict) else {})
    if lacking is not None and undeclared != "try":
        raise NotSupported(not_declared(lacking), server=core.label)
    backend: SubscriptionBackend
    if negotiated.dialect.stateful:
        backend = SessionSubscription(core, wanted, inbox, undeclared)
    else:
        backend = StreamSubscription(core, wanted, inbox)
    backend.start(core, deadline)
    return backend


def _check_callables(
    handler: Callable[..., object], on_error: OnError | None, argument: str
) -> None:
    check_callable(handler, "handler", (argument,))
    if on_error is not None:
        check_callable(on_error, "on_error", ("error",))
