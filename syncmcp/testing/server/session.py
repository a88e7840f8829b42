"""A session with one client, over any transport, and the calls that it serves."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from syncmcp.testing.server import wire
from syncmcp.testing.server.questions import Progress, Question, Withdrawn
from syncmcp.testing.server.wire import Batches, Message, Outlet, RpcError, Stats


class _Server(Protocol):
    """The members of `Server` that a session uses."""

    stats: Stats
    batches: Batches
    notification_handlers: dict[str, Callable[[Message], None]]

    def run_job(self, job: Callable[[], None]) -> None: ...

    def _negotiate(self, wanted: object) -> tuple[str, Message]: ...

    def _admit(self, message: Message, outlet: Outlet, session: Session) -> Call: ...

    def _start(self, call: Call) -> None: ...

    def session_closed(self, session: Session) -> None: ...


@dataclass(eq=False)
class Call:
    """A request of the client that is being served.

    The methods may be called from any thread.

    A call ends once: by the first response or cancellation. After that, nothing is sent. In
    2026-07-28, each retry of a request is a call of its own.

    Attributes:
        message: The request, as received.
        outlet: Sends the messages that belong to the call.
        revision: The protocol revision of the call.
        session: The session of the request; `None` in 2026-07-28 over HTTP.
        client_capabilities: The capabilities that the client declared.
        client_info: The client's `clientInfo`, or `None`.
        log_level: The log level in the request's `_meta` (2026-07-28), or `None`.
        batch: The position and size `(index, size)` if the request came in a JSON-RPC batch, or
            `None`.
        request_id: The request's id.
        method: The request's method.
        params: The request's params.
        cancelled: Set when the call was cancelled.
        cancel_reason: The reason in `notifications/cancelled`, if any.
    """

    message: Message
    outlet: Outlet
    revision: str
    session: Session | None
    client_capabilities: Message
    client_info: Message | None
    log_level: str | None = None
    batch: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.request_id: str | int = self.message["id"]
        self.method: str = self.message["method"]
        self.params = wire.params_of(self.message)
        self.cancelled = threading.Event()
        self.cancel_reason: str | None = None
        # Guards `_open` and `_done_callbacks`. Nothing is sent while it is held: the receiver of
        # a message may call back into this session.
        self._lock = threading.Lock()
        self._open = True
        self._done_callbacks: list[Callable[[Call], object]] = []

    @property
    def open(self) -> bool:
        """Whether the call has not ended yet."""
        return self._open

    def send(self, message: Message) -> bool:
        """Send a message on the stream of this request; return whether the call was open."""
        # Not checked again afterwards: the message may make the client cancel the call.
        if not self._open:
            return False
        self.outlet.send(message)
        return True

    def notify(self, method: str, params: Message | None = None) -> bool:
        return self.send(wire.notification(method, params))

    def question(self, method: str, params: Message | None, progress: Progress | None) -> Question:
        """Send the client a request on the stream of this call.

        The end of the call withdraws the request.
        """
        session = self.session
        if session is None or session.revision != self.revision:
            text = f"{self.revision} has no requests from servers"
            raise RpcError(wire.INTERNAL_ERROR, text)
        question = session.question(method, params, send=self.send, progress=progress)
        self.add_done_callback(lambda _: question.cancel("the call has ended"))
        return question

    def interrupt(self, retry_ms: int | None) -> None:
        """Close the event stream before the answer, if the client can resume it."""
        if self._open:
            self.outlet.interrupt(retry_ms)

    def answer(self, message: Message) -> bool:
        """Send the response, unless the call has ended; return whether it was sent."""
        if not self._settle():
            return False
        self.outlet.finish(message)
        return True

    def cancel(self, reason: str | None = None) -> bool:
        """Cancel the call, so that no response is sent; return whether the call was still open."""
        if not self._settle(cancelled=True, reason=reason):
            return False
        self.outlet.finish(None)
        return True

    def add_done_callback(self, function: Callable[[Call], object]) -> None:
        """Call `function(call)` when the call ends, by a response or a cancellation.

        The function runs on the thread that ends the call, before the response is sent. If the call
        has ended already, the function runs at once, on this thread. It must not block.
        """
        with self._lock:
            if self._open:
                self._done_callbacks.append(function)
                return
        function(self)

    def _settle(self, *, cancelled: bool = False, reason: str | None = None) -> bool:
        with self._lock:
            if not self._open:
                return False
            self._open = False
            # Set with the lock held: callbacks added from now on run at once and must find it set.
            if cancelled:
                self.cancel_reason = reason
                self.cancelled.set()
            functions = list(self._done_callbacks)
        for function in functions:
            function(self)
        return True


# The maximum number of cancellations that are stored until their requests arrive.
_MAX_EARLY_CANCELS = 256


class Session:
    """A session with one client: the negotiated revision, its open requests, its subscriptions.

    A connection in memory or over stdio is one session, in which the client may use any revision.
    Over HTTP with a revision before 2026-07-28, a session lasts from `initialize` to the DELETE.

    Attributes:
        id: The session id over HTTP; otherwise `None`.
        revision: The negotiated revision; `None` before `initialize`.
        client_capabilities: The capabilities that the client declared in `initialize`.
        client_info: The client's `clientInfo`, or `None`.
        log_level: The level of the last `logging/setLevel`; "info" before the first.
        initialized: Whether `notifications/initialized` has come.
        closed: Set when the session has ended.
        subscriptions: The URIs of the resources to which the client has subscribed.
    """

    def __init__(
        self, server: _Server, push: Callable[[Any], None], session_id: str | None = None
    ) -> None:
        self.id = session_id
        self.revision: str | None = None
        self.client_capabilities: Message = {}
        self.client_info: Message | None = None
        self.log_level = "info"
        self.initialized = False
        self.closed = threading.Event()
        self.subscriptions: set[str] = set()
        self._server = server
        self._push = push
        self._direct = Outlet(push)
        self._numbers = itertools.count(1)
        # Guards the next five attributes.
        self._lock = threading.Lock()
        self._until_initialized: list[tuple[str, Message | None]] = []
        self._running: dict[str | int, Call] = {}
        self._questions: dict[int, Question] = {}
        self._withdrawn: set[int] = set()
        # Over HTTP `notifications/cancelled` may arrive before its request.
        self._early_cancels: deque[str | int] = deque(maxlen=_MAX_EARLY_CANCELS)
        self._at_close: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Session {self.revision} {'closed' if self.closed.is_set() else 'open'}>"

    def receive(self, frame: bytes) -> None:
        """Process one frame of the client: JSON without a newline.

        The method never waits for a tool.

        Requests that call no function of the server's author get their response before the method
        returns. In a batch whose requests run one after another, this may be later.
        """
        try:
            message = wire.decode(frame)
        except RpcError as error:
            self._push(wire.error_reply(None, error))
            return
        self.take(message, self._direct)

    def take(self, message: Any, outlet: Outlet, *, together: bool = False) -> None:
        """Process one decoded message or batch; for transports.

        Args:
            message: The message, or a list for a batch.
            outlet: Sends the messages that belong to the call.
            together: Whether to send all responses of a batch in one array, even if
                `Batches.together` is false.
        """
        if isinstance(message, list):
            self._take_batch(message, outlet, together=together)
        else:
            self._take_one(message, outlet, None)

    def close(self) -> None:
        """End the session: its calls are cancelled, and its open questions fail.

        The method is idempotent.
        """
        with self._lock:
            if self.closed.is_set():
                return
            self.closed.set()
            running = list(self._running.values())
            asked = list(self._questions.values())
            self._questions.clear()
        self.subscriptions.clear()
        # Before the calls are cancelled, which would withdraw their questions.
        for question in asked:
            question.end(ConnectionError("the session has ended"))
        for call in running:
            call.cancel("the session has ended")
        self._server.session_closed(self)
        for function in self._at_close:
            function()

    def at_close(self, function: Callable[[], None]) -> None:
        """Call `function()` when the session ends, on the thread that ends it."""
        self._at_close.append(function)

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification that belongs to no request, unless the session has ended."""
        if not self.closed.is_set():
            self._push(wire.notification(method, params))

    def _notify_initialized(self, method: str, params: Message | None = None) -> None:
        """Send a notification if initialized; queue it during the handshake; else discard it."""
        with self._lock:
            if not self.initialized:
                if self.revision is not None:
                    self._until_initialized.append((method, params))
                return
        self.notify(method, params)

    def ping(self, timeout: float = 10.0) -> None:
        """Send `ping` and wait for the response, at most `timeout` seconds; raise as `ask`."""
        self.ask("ping", timeout=timeout)

    def ask(self, method: str, params: Message | None = None, *, timeout: float = 30.0) -> Message:
        """Send the client a request on the session's own stream, and wait for its result.

        Args:
            method: The method.
            params: The request's params.
            timeout: The longest time to wait, in seconds.

        Raises:
            RpcError: The client answered with an error.
            TimeoutError: No answer came in time.
            ConnectionError: The session has ended.
        """
        result = self.question(method, params).result(timeout)
        return result if isinstance(result, dict) else {}

    def question(
        self,
        method: str,
        params: Message | None = None,
        *,
        send: Callable[[Message], bool] | None = None,
        progress: Progress | None = None,
    ) -> Question:
        """Send the client a request and return at once.

        Args:
            method: The method.
            params: The request's params.
            send: Sends a message on the stream of a call, and returns whether the call was open. By
                default, the question is sent on the session's own stream.
            progress: Called as `progress(value, total, message)` for each progress notification;
                see `ToolContext.ask`. If given, the request has a progress token.

        Raises:
            Withdrawn: `send` returned false, because the call has ended.
            ConnectionError: The session has ended.
        """

        def withdraw(question: Question, reason: str | None) -> bool:
            with self._lock:
                if self._questions.pop(question.id, None) is None:
                    return False
                self._withdrawn.add(question.id)
            about = wire.given(requestId=question.id, reason=reason)
            notice = wire.notification("notifications/cancelled", about)
            if send is None or not send(notice):
                self._push(notice)
            return True

        question = Question(next(self._numbers), method, withdraw=withdraw, progress=progress)
        if progress is not None:
            params = dict(params or {})
            params["_meta"] = {**wire.meta_of(params), "progressToken": question.id}
        with self._lock:
            if self.closed.is_set():
                raise ConnectionError("the session has ended")
            self._questions[question.id] = question
        with self._server.stats as stats:
            stats.questions[method] += 1
        message = {"id": question.id, **wire.notification(method, params)}
        if send is None:
            self._push(message)
        elif not send(message):
            with self._lock:
                self._questions.pop(question.id, None)
            with self._server.stats as stats:
                stats.questions[method] -= 1
            raise Withdrawn("the call has ended")
        return question

    def _take_batch(self, messages: list[Any], outlet: Outlet, *, together: bool) -> None:
        batches = self._server.batches
        try:
            wire.check_batch(messages, self.revision, batches)
        except RpcError as error:
            outlet.finish(wire.error_reply(None, error))
            return
        answered = [message for message in messages if wire.expects_answer(message)]
        batch = wire.Batch(outlet, len(answered), together=batches.together or together)
        if batches.timeout is not None and answered:
            self._server.run_job(partial(self._expire, batch, answered, batches.timeout))

        def take() -> None:
            members = iter(batch.members)
            for message in messages:
                if not wire.expects_answer(message):
                    self._take_one(message, outlet, None)
                    continue
                member = next(members)
                if isinstance(message, dict) and message.get("method") == "initialize":
                    member.finish(wire.refuse(message, "initialize may not be in a batch"))
                else:
                    self._take_one(message, member, (member.index, len(answered)))
                if not batches.parallel:
                    member.settled.wait()

        if batches.parallel:
            take()
        else:
            self._server.run_job(take)

    def _expire(self, batch: wire.Batch, requests: list[Any], seconds: float) -> None:
        """After some seconds, answer the open requests of a batch with an error and cancel them."""
        if batch.complete.wait(seconds):
            return
        error = RpcError(wire.INTERNAL_ERROR, f"The batch took longer than {seconds:g} s")
        for member, request in zip(batch.members, requests, strict=True):
            if not member.settled.is_set():
                member.finish(wire.error_reply(wire.id_of(request), error))
                self._cancel_call(request["id"], "the batch took too long")

    def _take_one(self, message: Any, outlet: Outlet, place: tuple[int, int] | None) -> None:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            outlet.finish(wire.refuse(message, "Not a JSON-RPC 2.0 message"))
        elif "method" in message and "id" in message:
            self._take_request(message, outlet, place)
        elif "method" in message:
            self._take_notification(message)
        elif "id" in message and ("result" in message or "error" in message):
            self._take_response(message)
        else:
            outlet.finish(wire.refuse(message, "Neither a request, notification nor response"))

    def _take_request(
        self, message: Message, outlet: Outlet, place: tuple[int, int] | None
    ) -> None:
        identifier, method = message["id"], message["method"]
        if not wire.is_identifier(identifier) or not isinstance(method, str):
            outlet.finish(wire.refuse(message, "id must be a string or integer, method a string"))
            return
        with self._server.stats as stats:
            stats.requests[method] += 1
        try:
            if method == "initialize":
                self._initialize(message, outlet)
                return
            call = self._server._admit(message, outlet, self)
            call.batch = place
            cancelled = self._register(call)
        except RpcError as error:
            self._server.stats._count(replies=1, errors=1)
            outlet.finish(wire.error_reply(identifier, error))
            return
        if cancelled:
            call.cancel()
        else:
            self._server._start(call)

    def _register(self, call: Call) -> bool:
        """Register a call; return whether it was cancelled before it came; raise `RpcError`."""
        with self._lock:
            if self.closed.is_set():
                raise RpcError(wire.INVALID_REQUEST, "The session has ended")
            if call.request_id in self._running:
                raise RpcError(wire.INVALID_REQUEST, f"Request id {call.request_id!r} is in use")
            self._running[call.request_id] = call
            cancelled = call.request_id in self._early_cancels
        call.add_done_callback(self._unregister)
        return cancelled

    def _unregister(self, call: Call) -> None:
        with self._lock:
            self._running.pop(call.request_id, None)

    def _initialize(self, message: Message, outlet: Outlet) -> None:
        params = wire.params_of(message)
        wanted = wire.string_member(params, "protocolVersion")
        capabilities, client_info = params.get("capabilities"), params.get("clientInfo")
        if not isinstance(capabilities, dict) or not isinstance(client_info, dict):
            raise RpcError(wire.INVALID_PARAMS, "capabilities and clientInfo must be objects")
        if self.revision is not None:
            raise RpcError(wire.INVALID_REQUEST, "The session is initialized already")
        revision, result = self._server._negotiate(wanted)
        self.client_capabilities = capabilities
        self.client_info = client_info
        self.revision = revision
        self._server.stats._count(replies=1)
        outlet.finish(wire.reply(message["id"], result))

    def _take_notification(self, message: Message) -> None:
        method, params = message["method"], message.get("params") or {}
        if not isinstance(method, str) or not isinstance(params, dict):
            return  # A notification never gets a response, not even an error.
        if method == "notifications/initialized":
            with self._lock:
                self.initialized = self.revision is not None
                waiting, self._until_initialized = self._until_initialized, []
            for each in waiting:
                self.notify(*each)
        elif method == "notifications/cancelled":
            self._cancel(params)
        elif method == "notifications/progress":
            self._take_progress(params)
        elif method == "notifications/roots/list_changed":
            roots = self.client_capabilities.get("roots")
            if not isinstance(roots, dict) or roots.get("listChanged") is not True:
                self._server.stats.blame(
                    "roots changed, but the client did not declare listChanged"
                )
        handler = self._server.notification_handlers.get(method)
        if handler is not None:
            handler(params)
        # Counted last: a test that waits for the counter must find the effects.
        with self._server.stats as stats:
            stats.notifications[method] += 1

    def _cancel(self, params: Message) -> None:
        identifier, reason = params.get("requestId"), params.get("reason")
        if not wire.is_identifier(identifier):
            return
        with self._server.stats as stats:
            stats.cancels.append(identifier)
        self._cancel_call(identifier, reason if isinstance(reason, str) else None)

    def _cancel_call(self, identifier: str | int, reason: str | None) -> None:
        """Cancel a call, even one that another thread registers only later."""
        with self._lock:
            call = self._running.get(identifier)
            if call is None:
                self._early_cancels.append(identifier)
        if call is not None:
            call.cancel(reason)

    def _take_response(self, message: Message) -> None:
        number = message["id"]
        question, late = self._find_question(number, take=True)
        if question is not None:
            question.answered(message)
        elif not late:
            self._server.stats.blame(
                f"an answer to request {number!r}, which is not waiting for one"
            )
        self._server.stats._count(responses=1, late_answers=late)

    def _take_progress(self, params: Message) -> None:
        token = params.get("progressToken")
        question, late = self._find_question(token)
        breach = None if late else f"progress for token {token!r}, which is not active"
        if question is not None:
            breach = question.progressed(params)
        if breach is not None:
            self._server.stats.blame(breach)

    def _find_question(self, number: object, *, take: bool = False) -> tuple[Question | None, bool]:
        """Return the open question of that id or `None`, and whether it was withdrawn."""
        if not isinstance(number, int) or isinstance(number, bool):
            return None, False
        with self._lock:
            question = self._questions.pop(number, None) if take else self._questions.get(number)
            return question, number in self._withdrawn
