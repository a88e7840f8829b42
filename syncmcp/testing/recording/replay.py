"""Replay of recordings: a target that needs no server, and its transport."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pydantic_core

from syncmcp import errors
from syncmcp._base.checks import check_callable
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    Delivery,
    LimitExceeded,
    McpError,
    ProtocolError,
    TransportError,
    UsageError,
    fresh,
)
from syncmcp.testing.recording import Entry, read
from syncmcp.testing.recording.state import (
    SUBSCRIPTION_ID,
    Normalize,
    NotRecorded,
    Order,
    ReplayState,
    has,
    id_of,
    is_answer,
    member_at,
    messages,
    with_endings,
)
from syncmcp.transports.base import Outgoing, Receiver, Transport, TransportSource, reader_failed

# The errors that end an exchange or a connection. Errors of the server are recorded as messages.
_ERROR_CLASSES: dict[str, type[McpError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type)
    and issubclass(kind, (TransportError, ProtocolError, LimitExceeded, ClosedError))
}

# The response to a `server/discover` for which no response was recorded.
_METHOD_NOT_FOUND = {"code": -32601, "message": "Method not found"}

# The state of a request that was withdrawn before it was sent.
_WITHDRAWN = threading.Event()


class _ReplayTransport(Transport):
    """The transport of a recorded connection; one thread delivers its messages."""

    def __init__(self, label: str, state: ReplayState, note: Callable[[NotRecorded], None]) -> None:
        self.label = label
        self.blocking = state.blocking
        self.ordered = state.ordered
        self._state = state
        self._add_unexpected = note
        self._receiver: Receiver
        self._wake: SimpleQueue[bool] = SimpleQueue()
        # Guards `_state` and all attributes below; not held while a message is delivered.
        self._lock = threading.RLock()
        self._closed = False
        self._thread: threading.Thread | None = None
        # Responses that the replay makes itself: to `ping`, `server/discover` and repeated lists.
        self._local_replies: deque[tuple[dict[str, Any], Outgoing]] = deque()
        # The current request and its id, by recorded id; the current token, by recorded token.
        self._outgoing: dict[int, Outgoing] = {}
        self._ids: dict[int, int] = {}
        self._tokens: dict[int | str, int | str] = {}

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        self._receiver = receiver
        refusal = self._state.refusal
        if refusal is not None:
            raise error_from_json(refusal)
        self._thread = threading.Thread(
            target=self._read, name=f"syncmcp-read[{self.label}]", daemon=True
        )
        self._thread.start()
        self._wake.put(True)

    def send(self, out: Outgoing) -> None:
        over = threading.Event()
        with self._lock:
            if self._closed:
                raise ConnectionLost("the connection was closed", delivery="not_sent")
            if out.state is not None:
                return  # It was withdrawn before it was sent.
            out.state = over
        self._handle_sent(out)
        self._wake.put(True)
        if self.blocking and out.id is not None:
            # Set by the response, by `close`, or by `cancel` when the call has timed out.
            while not over.wait(out.deadline.remaining()) and not out.deadline.expired:
                pass

    def post(self, out: Outgoing) -> None:
        self._handle_sent(out)
        out.leave()
        self._wake.put(True)

    def cancel(self, out: Outgoing) -> Delivery:
        with self._lock:
            if out.state is None:
                out.state = _WITHDRAWN
            if out.state is _WITHDRAWN:
                return "not_sent"
        out.state.set()
        return "unknown"

    def close(self, deadline: Deadline) -> None:
        with self._lock:
            self._closed = True
            outgoing = list(self._outgoing.values())
        for out in outgoing:
            out.state.set()
        self._wake.put(False)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(deadline.remaining())

    # From the client

    def _handle_sent(self, out: Outgoing) -> None:
        said = pydantic_core.from_json(out.body)
        for message in said if isinstance(said, list) else [said]:
            with self._lock:
                affected = self._affected_calls(message, out)
            id, method = id_of(message), message.get("method")
            try:
                with self._lock:
                    if method is None:
                        self._state.answer(message)
                    elif id is None:
                        self._state.notification(method)
                    else:
                        self._handle_request(id, method, message, out)
            except NotRecorded as error:
                error.method = error.method or method
                self._add_unexpected(error)
                for other in affected:
                    self._receiver.failed(other, fresh(error))
                    other.state.set()

    def _affected_calls(self, message: dict[str, Any], out: Outgoing) -> list[Outgoing]:
        """Return the requests that fail if this message was not recorded."""
        if not is_answer(message):
            return [out] if out.id is not None else []
        owner = self._state.owner(message)
        if owner in self._outgoing:
            return [self._outgoing[owner]]
        return list(self._outgoing.values())

    def _handle_request(
        self, id: int | str, method: str, message: dict[str, Any], out: Outgoing
    ) -> None:
        try:
            recorded = self._state.request(method, message.get("params"))
        except NotRecorded:
            if method == "ping":
                self._local_replies.append(({"jsonrpc": "2.0", "id": id, "result": {}}, out))
                return
            if (answer := self._state.repeated(method, message.get("params"))) is not None:
                self._local_replies.append(({**answer, "id": id}, out))
                return
            if method != "server/discover":
                raise
            recorded = {}
        if method == "server/discover" and not self._state.has_end(recorded.get("id")):
            # No response was recorded. With an error the client need not wait for its timeout.
            refusal = {"jsonrpc": "2.0", "id": id, "error": _METHOD_NOT_FOUND}
            self._local_replies.append((refusal, out))
            return
        known: Any = recorded["id"]
        self._outgoing[known] = out
        self._ids[known] = id  # type: ignore[assignment]
        before, now = (
            member_at(given, "params", "_meta", "progressToken") for given in (recorded, message)
        )
        if before is not None and now is not None:
            self._tokens[before] = now

    # To the client

    def _read(self) -> None:
        try:
            while self._wake.get():
                while (found := self._next()) is not None:
                    self._deliver(*found)
        except Exception as error:  # Without its reader, calls would wait for their timeouts.
            self._receiver.lost(reader_failed(self.label, error))

    def _next(self) -> tuple[Entry, Outgoing | None, list[Outgoing]] | None:
        """Return the next entry, the request on whose stream it is sent, and the ended requests."""
        with self._lock:
            if self._closed:
                return None
            if self._local_replies:
                message, out = self._local_replies.popleft()
                return Entry("got", message), out if self.blocking else None, [out]
            entry = self._state.take_next()
            if entry is None:
                return None
            about = None if entry.id is None else self._outgoing.get(entry.id)
            ids = [id_of(message) for message in messages(entry) if is_answer(message)]
            if entry.kind == "failed":
                ids.append(entry.id)
            over = [self._outgoing[id] for id in ids if type(id) is int and id in self._outgoing]
            if entry.kind == "got":
                entry = entry._replace(value=self._translate(entry.value))
            return entry, about, over

    def _deliver(self, entry: Entry, out: Outgoing | None, over: list[Outgoing]) -> None:
        receiver = self._receiver
        if out is not None:
            out.status = entry.status
        if entry.kind == "lost":
            receiver.lost(error_from_json(entry.value))
        elif entry.kind == "missed":
            receiver.messages_missed()
        elif entry.kind == "silent":
            receiver.server_stream_ended(opened=entry.value is True)
        elif entry.kind == "failed":
            for failed in over:
                receiver.failed(failed, error_from_json(entry.value))
        else:
            raw = entry.kind == "got_text"
            frame = entry.value.encode() if raw else pydantic_core.to_json(entry.value)
            if receiver.receive(frame, out) and out is not None:
                over = [*over, out]
        for done in over:
            done.state.set()

    def _translate(self, value: Any) -> Any:
        """Return a message with the current ids and tokens in place of the recorded ones."""
        if isinstance(value, list):
            return [self._translate(item) for item in value]
        if not isinstance(value, dict):
            return value
        if is_answer(value):
            value = {**value, "id": self._current_id(value.get("id"))}
        for part in ("params", "result"):
            if isinstance(value.get(part), dict):
                value = {**value, part: self._translate_member(value[part], value.get("method"))}
        return value

    def _translate_member(self, member: dict[str, Any], method: Any) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        if method == "notifications/progress":
            token = member.get("progressToken")
            if type(token) in (int, str):
                changed["progressToken"] = self._tokens.get(token, token)  # type: ignore[arg-type]
        if method == "notifications/cancelled" and not self._state.stateful:
            # This is the id of a client's request; before 2026-07-28, the id of a server's request.
            changed["requestId"] = self._current_id(member.get("requestId"))
        meta = member.get("_meta")
        if isinstance(meta, dict) and SUBSCRIPTION_ID in meta:
            changed["_meta"] = {**meta, SUBSCRIPTION_ID: self._current_id(meta[SUBSCRIPTION_ID])}
        return {**member, **changed} if changed else member

    def _current_id(self, recorded: Any) -> Any:
        return self._ids.get(recorded, recorded) if type(recorded) is int else recorded


def error_from_json(facts: Any) -> McpError:
    given = dict(facts) if isinstance(facts, dict) else {}
    message = str(given.pop("message", "the recording does not say why"))
    kind = _ERROR_CLASSES.get(str(given.pop("class", "")), ConnectionLost)
    return kind(message, **given)


# The target.


class Replay(TransportSource):
    """A target that responds as a recorded server did: ``syncmcp.connect(Replay(path))``.

    A request gets the response that was recorded for the same method and params. Before the
    response, the client receives the notifications of the request in their order, and its
    questions, which the client has to answer as in the recording. If the same request was recorded
    several times, its responses are used one after another. A mask such as ``***1`` in a recorded
    param matches any text or number. The params of `initialize` and `server/discover`, and the
    members that a client itself adds to `_meta`, are not compared.

    A `ping` always gets a response. So does a request for a list of tools that was recorded. How
    often a client lists the tools by itself depends on when it is notified that the list has
    changed.

    The n-th connection plays the n-th recorded connection, and later connections play the last one.
    A call whose request was not recorded fails with `NotRecorded`. A call that timed out or was
    cancelled in the recording gets no response: it waits for its own timeout.

    Args:
        path: A file that a `Recording` has written. The constructor reads the file.
        order: With ``"causal"``, the messages of one request keep their order, and the client may
            send its requests in any order. With ``"recorded"``, all messages keep the order of the
            recording. A client that does not send the same messages in that order waits until its
            own timeouts.
        normalize: Returns the value to compare. It is called as `normalize(method, params)`, for
            both the recorded and the current message. `params` are those of a request, or, before
            2026-07-28, the answer to a question. In 2026-07-28, the answers are in
            ``params["inputResponses"]`` of a request. It runs on the threads that send.

    Raises:
        UsageError: The file cannot be read, or is not a recording, or `order` is unknown.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        order: Order = "causal",
        normalize: Normalize | None = None,
    ) -> None:
        if order not in ("causal", "recorded"):
            raise UsageError(f"order is 'causal' or 'recorded', not {order!r}")
        if normalize is not None:
            check_callable(normalize, "normalize", ("method", "params"))
        self._path = Path(path)
        self._order: Order = order
        self._normalize = normalize
        sessions = read(self._path)
        # Connections without a negotiated revision are failed attempts to reach the server.
        opened = [session for session in sessions if has(session, "adopted")]
        self._sessions = [with_endings(session) for session in opened or sessions]
        if not self._sessions:
            raise UsageError(f"{self._path} is an empty recording")
        # Guards `_unexpected` and `_states`.
        self._lock = threading.RLock()
        self._unexpected: list[NotRecorded] = []
        self._states: list[ReplayState] = []

    @property
    def path(self) -> Path:
        """The file of the recording."""
        return self._path

    @property
    def label(self) -> str:
        return f"replay of {self._path.name}"

    @property
    def behind(self) -> None:
        return

    @property
    def unexpected(self) -> list[NotRecorded]:
        """The errors for requests and answers that were not recorded, including caught errors."""
        with self._lock:
            return list(self._unexpected)

    @property
    def unplayed(self) -> list[str]:
        """The methods of the recorded requests that no client has sent so far."""
        with self._lock:
            states = list(self._states)
        rest = [method for state in states for method in state.missing_requests]
        for session in self._sessions[len(states) :]:
            rest += ReplayState(session, self._order, self._normalize).missing_requests
        return rest

    def transport(self, inner: Transport | None) -> Transport:
        assert inner is None
        with self._lock:
            session = self._sessions[min(len(self._states), len(self._sessions) - 1)]
            state = ReplayState(session, self._order, self._normalize)
            self._states.append(state)
        return _ReplayTransport(self.label, state, self._add_unexpected)

    def _add_unexpected(self, error: NotRecorded) -> None:
        with self._lock:
            self._unexpected.append(error)

    def __repr__(self) -> str:
        return f"Replay({str(self._path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Replay, order=self._order, normalize=self._normalize), (self._path,)
