"""Plays a recorded session: a target that needs no server, and its transport."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pydantic_core

from syncmcp import errors
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
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
    ReplayState,
    id_of,
    is_answer,
    member_at,
    messages,
    with_endings,
)
from syncmcp.transports.base import TransportSource, reader_failed

if TYPE_CHECKING:
    from syncmcp._concurrency.timing import Deadline
    from syncmcp.errors import Delivery
    from syncmcp.testing.recording.state import Order
    from syncmcp.transports.base import Outgoing, Receiver, Transport


# What ends an exchange or a connection. What a server answers is recorded as its answer.
_KINDS: dict[str, type[McpError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type)
    and issubclass(kind, (TransportError, ProtocolError, LimitExceeded, ClosedError))
}

# What a server answers that has not been asked while it was recorded.
_METHOD_NOT_FOUND = {"code": -32601, "message": "Method not found"}

# A request that was withdrawn before it was sent.
_WITHDRAWN = threading.Event()


class ReplayTransport:
    """Moves the frames of a recorded connection; one thread delivers them.

    Args:
        label: What errors call it.
        play: The connection.
        note: Told what was not recorded.
    """

    def __init__(self, label: str, play: ReplayState, note: Callable[[NotRecorded], None]) -> None:
        self.label = label
        self.blocking = play.blocking
        self.ordered = play.ordered
        self._play = play
        self._note = note
        self._receiver: Receiver
        self._wake: SimpleQueue[bool] = SimpleQueue()
        # Guards the play and everything below; nothing is delivered under it.
        self._lock = threading.RLock()
        self._closed = False
        self._thread: threading.Thread | None = None
        # What was not recorded and is answered all the same.
        self._courtesies: deque[tuple[dict[str, Any], Outgoing]] = deque()
        # By the recorded id: the request that came for it, and its id; by the recorded token: its.
        self._outs: dict[int, Outgoing] = {}
        self._ids: dict[int, int] = {}
        self._tokens: dict[int | str, int | str] = {}

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """See `Transport`."""
        self._receiver = receiver
        refusal = self._play.refusal
        if refusal is not None:
            raise error_from_json(refusal)
        self._thread = threading.Thread(
            target=self._read, name=f"syncmcp-read[{self.label}]", daemon=True
        )
        self._thread.start()
        self._wake.put(True)

    def adopt(self, headers: Mapping[str, str], *, stateful: bool) -> None:
        """See `Transport`. Nothing depends on it here."""

    def send(self, out: Outgoing) -> None:
        """See `Transport`."""
        over = threading.Event()
        with self._lock:
            if self._closed:
                raise ConnectionLost("the connection was closed", delivery="not_sent")
            if out.state is not None:
                return  # withdrawn before it was sent
            out.state = over
        self._take(out)
        self._wake.put(True)
        if self.blocking and out.id is not None:
            # Ended by the answer, or by `withdraw` when the call's own limits have passed.
            while not over.wait(out.deadline.remaining()) and not out.deadline.expired:
                pass

    def post(self, out: Outgoing) -> None:
        """See `Transport`."""
        self._take(out)
        self._wake.put(True)

    def withdraw(self, out: Outgoing) -> Delivery:
        """See `Transport`."""
        with self._lock:
            if out.state is None:
                out.state = _WITHDRAWN
            if out.state is _WITHDRAWN:
                return "not_sent"
        out.state.set()
        return "unknown"

    def describe(self) -> str:
        """See `Transport`. There is no server that could be asked."""
        return ""

    def close(self, deadline: Deadline) -> None:
        """See `Transport`."""
        with self._lock:
            self._closed = True
            outs = list(self._outs.values())
        for out in outs:
            out.state.set()
        self._wake.put(False)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(deadline.remaining())

    # What the client says

    def _take(self, out: Outgoing) -> None:
        said = pydantic_core.from_json(out.body)
        for message in said if isinstance(said, list) else [said]:
            with self._lock:
                concerned = self._concerned(message, out)
            try:
                with self._lock:
                    self._hear(message, out)
            except NotRecorded as error:
                error.method = error.method or message.get("method")
                self._note(error)
                for other in concerned:
                    self._receiver.failed(other, fresh(error))
                    other.state.set()

    def _concerned(self, message: dict[str, Any], out: Outgoing) -> list[Outgoing]:
        """Whose calls fail if this is not what was recorded."""
        if not is_answer(message):
            return [out] if out.id is not None else []
        owner = self._play.owner(message)
        if owner in self._outs:
            return [self._outs[owner]]
        return list(self._outs.values())

    def _hear(self, message: dict[str, Any], out: Outgoing) -> None:
        """Take one message; called with the lock held."""
        id, method = id_of(message), message.get("method")
        if method is None:
            self._play.answer(message)
        elif id is None:
            self._play.notification(method)
        else:
            self._hear_request(id, method, message, out)

    def _hear_request(
        self, id: int | str, method: str, message: dict[str, Any], out: Outgoing
    ) -> None:
        try:
            recorded = self._play.request(method, message.get("params"))
        except NotRecorded:
            if method == "ping":
                self._courtesies.append(({"jsonrpc": "2.0", "id": id, "result": {}}, out))
                return
            if method != "server/discover":
                raise
            recorded = {}
        if method == "server/discover" and recorded.get("id") not in self._play.ended:
            # A client that finds out what it has to do with need not wait until it gives up.
            refusal = {"jsonrpc": "2.0", "id": id, "error": _METHOD_NOT_FOUND}
            self._courtesies.append((refusal, out))
            return
        known: Any = recorded["id"]
        self._outs[known] = out
        self._ids[known] = id  # type: ignore[assignment]
        before, now = (
            member_at(given, "params", "_meta", "progressToken") for given in (recorded, message)
        )
        if before is not None and now is not None:
            self._tokens[before] = now

    # What the client is told

    def _read(self) -> None:
        try:
            while self._wake.get():
                while (found := self._next()) is not None:
                    self._deliver(*found)
        except Exception as error:  # without its reader a connection would only time out
            self._receiver.lost(reader_failed(self.label, error))

    def _next(self) -> tuple[Entry, Outgoing | None, list[Outgoing]] | None:
        """What to deliver, the request on whose stream it comes, and those that it answers."""
        with self._lock:
            if self._closed:
                return None
            if self._courtesies:
                message, out = self._courtesies.popleft()
                return Entry("got", message), out if self.blocking else None, [out]
            entry = self._play.next()
            if entry is None:
                return None
            about = None if entry.id is None else self._outs.get(entry.id)
            ids = [id_of(message) for message in messages(entry) if is_answer(message)]
            if entry.kind == "failed":
                ids.append(entry.id)
            over = [self._outs[id] for id in ids if type(id) is int and id in self._outs]
            if entry.kind == "got":
                entry = entry._replace(value=self._translated(entry.value))
            return entry, about, over

    def _deliver(self, entry: Entry, out: Outgoing | None, over: list[Outgoing]) -> None:
        receiver = self._receiver
        if out is not None:
            out.status = entry.status
        if entry.kind == "lost":
            receiver.lost(error_from_json(entry.value))
        elif entry.kind == "silent":
            receiver.silent(heard=entry.value is True)
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

    def _translated(self, value: Any) -> Any:
        """A message with the ids and tokens of now in the place of the recorded ones."""
        if isinstance(value, list):
            return [self._translated(item) for item in value]
        if not isinstance(value, dict):
            return value
        if is_answer(value):
            value = {**value, "id": self._id(value.get("id"))}
        for part in ("params", "result"):
            if isinstance(value.get(part), dict):
                value = {**value, part: self._inside(value[part], value.get("method"))}
        return value

    def _inside(self, inside: dict[str, Any], method: Any) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        if method == "notifications/progress":
            token = inside.get("progressToken")
            if type(token) in (int, str):
                changed["progressToken"] = self._tokens.get(token, token)  # type: ignore[arg-type]
        if method == "notifications/cancelled" and not self._play.stateful:
            # Of a request of ours; until 2025-11-25 it is about one of the server's.
            changed["requestId"] = self._id(inside.get("requestId"))
        meta = inside.get("_meta")
        if isinstance(meta, dict) and SUBSCRIPTION_ID in meta:
            changed["_meta"] = {**meta, SUBSCRIPTION_ID: self._id(meta[SUBSCRIPTION_ID])}
        return {**inside, **changed} if changed else inside

    def _id(self, recorded: Any) -> Any:
        return self._ids.get(recorded, recorded) if type(recorded) is int else recorded


def error_from_json(facts: Any) -> McpError:
    """The error that a recording tells of."""
    given = dict(facts) if isinstance(facts, dict) else {}
    message = str(given.pop("message", "the recording does not say why"))
    kind = _KINDS.get(str(given.pop("class", "")), ConnectionLost)
    return kind(message, **given)


# Plays recorded sessions: a target that needs no server.


class Replay(TransportSource):
    """A target that answers as a recorded server did: ``syncmcp.connect(Replay(path))``.

    A request gets the answer that was recorded for the same method and parameters, and what the
    server said before it: notifications in their order, and questions, which have to be answered
    as they were. The same request gets the answers one after another in the order in which they
    were recorded. ``***`` in a recorded parameter fits anything. Not compared are the parameters
    of `initialize` and `server/discover`, and what a client puts into `_meta` by itself. A `ping`
    is always answered.

    The n-th connection plays the n-th one that was recorded, and later ones the last. A call whose
    request was not recorded fails with `NotRecorded`.

    Args:
        path: A file that a `Recording` has written. It is read at once.
        order: ``"causal"``: what belongs to one request keeps its order, and requests may come in
            any order. ``"recorded"``: everything keeps the order of the recording; a client that
            does not do the same at the same time waits until its own limits.
        normalize: Given the method and the parameters of a request (or the method of a question
            and the client's answer to it), recorded or asked, before they are compared; returns
            what is to be compared. Runs on the threads that send.

    Raises:
        UsageError: The file cannot be read, or is no recording.
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
        self._path = Path(path)
        self._order: Order = order
        self._normalize = normalize
        sessions = read(self._path)
        # Attempts that led to nothing belong to the way in which that server was reached.
        opened = [session for session in sessions if session.has("adopted")]
        self._sessions = [with_endings(session) for session in opened or sessions]
        if not self._sessions:
            raise UsageError(f"{self._path} is the recording of nothing")
        # Guards the two below.
        self._lock = threading.RLock()
        self._unexpected: list[NotRecorded] = []
        self._plays: list[ReplayState] = []

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def label(self) -> str:
        """See `TransportSource`."""
        return f"replay of {self._path.name}"

    @property
    def behind(self) -> None:
        """See `TransportSource`."""
        return

    @property
    def unexpected(self) -> list[NotRecorded]:
        """What clients asked that was not recorded, even if they went on regardless."""
        with self._lock:
            return list(self._unexpected)

    @property
    def unplayed(self) -> list[str]:
        """The methods of requests that were recorded and that nobody has asked (yet)."""
        with self._lock:
            plays = list(self._plays)
        rest = [method for play in plays for method in play.missing_requests]
        for session in self._sessions[len(plays) :]:
            rest += ReplayState(session, self._order, self._normalize).missing_requests
        return rest

    def transport(self, inner: Transport | None) -> ReplayTransport:
        """See `TransportSource`."""
        assert inner is None
        with self._lock:
            session = self._sessions[min(len(self._plays), len(self._sessions) - 1)]
            play = ReplayState(session, self._order, self._normalize)
            self._plays.append(play)
        return ReplayTransport(self.label, play, self._note)

    def _note(self, error: NotRecorded) -> None:
        with self._lock:
            self._unexpected.append(error)

    def __repr__(self) -> str:
        return f"Replay({str(self._path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self._path, self._order, self._normalize)


def _unpickle(path: Path, order: Order, normalize: Normalize | None) -> Replay:
    return Replay(path, order=order, normalize=normalize)
