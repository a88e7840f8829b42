"""Change events: a subscription to iterate over, and what keeps calling a function."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from syncmcp._base.checks import refuse_coroutines, seconds, whole_number
from syncmcp._client.listening import SessionSubscription, StreamSubscription, SubscriptionBackend
from syncmcp._concurrency.pool import SerialExecutor, lending_handler
from syncmcp._concurrency.queue import EventQueue
from syncmcp._concurrency.timing import Deadline, reaper, timer
from syncmcp._protocol.capabilities import Undeclared, not_declared
from syncmcp._protocol.subscription import ChangeEvent, ChangeFilter
from syncmcp.errors import ClosedError, McpError, NotSupported, SubscriptionLost, UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp._client.core import ClientCore, HasCore

__all__ = ["ChangeEvent", "Listener", "Subscription"]

V = TypeVar("V")

OnError = Callable[[SubscriptionLost], object]

_log = logging.getLogger("syncmcp.subscriptions")


class Subscription:
    """Changes that a server tells of, as an iterator of `ChangeEvent`; made by `Client.listen`.

    A list, or a resource, that changes again before somebody has looked is one event. An event has
    `missed` where the connection broke and was replaced: it may have changed meanwhile.

    It ends, and the server is told, when it is closed: by `close`, at the end of a ``with``, after
    `stop_after` events, or when nobody has it any more, which is the case after a ``for`` that was
    left. Closing the client ends it, too. Several threads may iterate; each event goes to one.
    """

    def __init__(
        self, client: HasCore, backend: SubscriptionBackend, timeout: float | None
    ) -> None:
        # Strongly: who waits for events of a client is not done with it.
        self._client = client
        self._core = client._core
        self._backend = backend
        self._inbox = backend.inbox
        self._timeout = timeout
        self._finalizer = weakref.finalize(self, reaper.put, backend.close_in_background)
        self._finalizer.atexit = False

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists that the server agreed to tell of; perhaps not all that were asked for."""
        return self._backend.granted.kinds

    @property
    def uris(self) -> tuple[str, ...]:
        """The resources that the server agreed to tell of."""
        return self._backend.granted.uris

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChangeEvent:
        """Wait for the next event.

        Raises:
            TimeoutError: Nothing changed within `timeout`. The subscription goes on.
            SubscriptionLost: There will be no more events.
            ForkedError: The client belongs to the parent process.
        """
        self._core.check_process()
        event = self._inbox.next(self._timeout)
        if event is None:
            self.close()
            raise StopIteration
        return event

    def close(self, timeout: float | None = None) -> None:
        """End it, from any thread: who waits for an event is woken, and the iteration is over.

        Args:
            timeout: The longest that telling the server may take, in seconds; the client's
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
        state = "closed" if self._inbox.ended else "open"
        return f"<Subscription to {self._backend.granted} of {self._backend._label} {state}>"

    def run_in_thread(
        self, handler: Callable[[ChangeEvent], object], *, on_error: OnError | None = None
    ) -> Listener:
        """Call `handler` with each event, on a thread of its own, until the subscription ends.

        The subscription's `timeout` does not matter here.

        Args:
            handler: May block and may call the client; meanwhile events collect. What it raises is
                logged.
            on_error: Called on that thread with the `SubscriptionLost` that ends it; without it,
                that is logged.
        """
        _check_callables(handler, on_error)
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
    """What calls a function when something changes; see `Subscription.run_in_thread`."""

    def __init__(
        self, inbox: EventQueue, close: Callable[[], object], on_error: OnError | None
    ) -> None:
        self._inbox = inbox
        self._close = close
        self._on_error = on_error
        self._ended = threading.Event()
        # The thread on which the function is running.
        self._caller: int | None = None

    @property
    def running(self) -> bool:
        """Whether the function may still be called, or is running."""
        return not self._ended.is_set()

    @property
    def error(self) -> SubscriptionLost | None:
        """What ended it, if the program did not."""
        error = self._inbox.error
        return error if isinstance(error, SubscriptionLost) else None

    def stop(self, timeout: float | None = None) -> bool:
        """End it, and wait until a call that is running has come to its end.

        The function itself may stop its listener; that waits for nothing.

        Args:
            timeout: The longest to wait, in seconds; `None` for as long as it takes.

        Returns:
            Whether the function will not be called any more and is not running.
        """
        limit = seconds(timeout, "timeout")
        self._close()
        if self._caller == threading.get_ident():
            return False
        with lending_handler():
            return self._ended.wait(limit)

    def _call(self, function: Callable[[V], object], value: V) -> None:
        """Run code of the program's: whatever it raises hurts nobody."""
        self._caller = threading.get_ident()
        try:
            function(value)
        except BaseException:  # sys.exit() in it ends the call
            _log.exception("a listener of changes failed")
        finally:
            self._caller = None

    def _end(self) -> None:
        error = self.error
        if error is not None and self._on_error is not None:
            self._call(self._on_error, error)
        elif error is not None:
            _log.warning("%s", error)
        self._ended.set()


class _Refresher:
    """Fetches what has changed, a little later, and calls a function with it."""

    def __init__(
        self,
        core: ClientCore,
        fetch: Callable[[Any], V],
        handler: Callable[[V], object],
        debounce: float,
        on_error: OnError | None,
    ) -> None:
        # Weakly: this is the client's own, and must not keep it alive.
        self._core = weakref.ref(core)
        self._label = core.label
        self._fetch = fetch
        self._handler = handler
        self._debounce = debounce
        # One call at a time.
        self._serial_executor = SerialExecutor(core.pools.workers)
        self.inbox = EventQueue(self._on_event)
        self.listener = Listener(self.inbox, self._close, on_error)
        self.backend: SubscriptionBackend | None = None

    def _close(self) -> None:
        core, backend = self._core(), self.backend
        if core is not None and backend is not None:
            backend.close(Deadline(core.settings.close_timeout))

    def _on_event(self) -> None:
        """On the thread that reads, or the one that ends it."""
        refresh = partial(self._serial_executor.push, self._refresh)
        if self.inbox.ended:
            refresh()
        else:
            timer.after(self._debounce, refresh)

    def _refresh(self) -> None:
        """On a pool thread."""
        changed = self.inbox.take_all()
        core = self._core()
        client = None if core is None else core.client
        if self.inbox.ended:
            if self.listener.running:
                self.listener._end()
        elif changed and client is not None:
            try:
                value = self._fetch(client)
            except McpError as error:
                _log.warning("[%s] what has changed was not fetched: %s", self._label, error)
            else:
                self.listener._call(self._handler, value)


def subscribe(
    client: HasCore,
    wanted: ChangeFilter,
    *,
    timeout: float | None = None,
    stop_after: int | None = None,
    undeclared: Undeclared | None = None,
) -> Subscription:
    """Make a subscription; see `Client.listen`."""
    timeout = seconds(timeout, "timeout")
    if stop_after is not None:
        whole_number(stop_after, "stop_after")
    backend = open_subscription(
        client._core, wanted, EventQueue(limit=stop_after), undeclared=undeclared
    )
    return Subscription(client, backend, timeout)


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
    """Have something fetched whenever it has changed; see `Client.on_tools_changed`."""
    _check_callables(handler, on_error)
    pause = seconds(debounce, "debounce")
    if pause is None:
        raise UsageError("debounce is a number of seconds, not None")
    refresher = _Refresher(core, fetch, handler, pause, on_error)
    refresher.backend = open_subscription(core, wanted, refresher.inbox, deadline, undeclared)
    return refresher.listener


def open_subscription(
    core: ClientCore,
    wanted: ChangeFilter,
    inbox: EventQueue,
    deadline: Deadline | None = None,
    undeclared: Undeclared | None = None,
) -> SubscriptionBackend:
    """Ask a server to tell of changes, until `deadline` or within the client's `timeout`.

    What the server does not declare is asked for as `undeclared` says, or else the client.

    Raises:
        UsageError: Nothing is wanted.
        NotSupported: The server does not declare that it tells of this, or agrees to none of it.
        McpError: The server could not be asked.
    """
    if wanted == ChangeFilter():
        raise UsageError("say what to listen to: tools, prompts, resources or uris")
    undeclared = core.resolve({"undeclared": undeclared}).undeclared
    if deadline is None:
        deadline = Deadline(core.settings.timeout)
    if core.live_connection() is None:
        core.open(deadline)
    negotiated = core.negotiated
    if negotiated is None:
        raise core.not_open()
    capabilities = negotiated.result.get("capabilities")
    lacking = wanted.lacking(capabilities if isinstance(capabilities, dict) else {})
    if lacking is not None and undeclared != "try":
        raise NotSupported(not_declared(lacking), server=core.label)
    backend: SubscriptionBackend
    if negotiated.dialect.stateful:
        backend = SessionSubscription(core, wanted, inbox, undeclared)
    else:
        backend = StreamSubscription(core, wanted, inbox)
    backend.start(core, deadline)
    return backend


def _check_callables(handler: Callable[..., object], on_error: OnError | None) -> None:
    refuse_coroutines(handler, "handler")
    if on_error is not None:
        refuse_coroutines(on_error, "on_error")
