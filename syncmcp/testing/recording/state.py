"""The state of a replay: matching of requests, and the order of messages. No threads, no clock."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from graphlib import TopologicalSorter
from typing import Any, Literal

from syncmcp._base.text import redact
from syncmcp.errors import UsageError
from syncmcp.testing.recording import MASK_PATTERN, Entry

# Comparison of the client's requests with the recorded ones.


# The params of these requests are not compared: they describe the client, and its version may
# differ from the recorded client's.
_GREETINGS = frozenset(("initialize", "server/discover"))

# Members of `_meta` that a client sets by itself, and which are not compared.
_META_PREFIX = "io.modelcontextprotocol/"
_TRANSIENT_META = frozenset(("baggage", "progressToken", "traceparent", "tracestate"))

_MAX_VALUE_LENGTH = 80
_MISSING = object()


def comparable_params(method: str, params: Any) -> Any:
    """Return the part of a request's params that is compared."""
    if method in _GREETINGS or not params:
        return {}
    if not isinstance(params, dict):
        return params
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return params
    kept = {
        name: value
        for name, value in meta.items()
        if not name.startswith(_META_PREFIX) and name not in _TRANSIENT_META
    }
    rest = {name: value for name, value in params.items() if name != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def differences(recorded: Any, asked: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each difference of two JSON values; a mask fits any text or number."""
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for name in [*recorded, *(name for name in asked if name not in recorded)]:
            inside = f"{path}.{name}" if path else str(name)
            yield from differences(recorded.get(name, _MISSING), asked.get(name, _MISSING), inside)
    elif isinstance(recorded, list) and isinstance(asked, list) and len(recorded) == len(asked):
        for number, (one, other) in enumerate(zip(recorded, asked, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif not _values_match(recorded, asked):
        yield f"{path or 'all of it'}: recorded {_shorten(recorded)}; asked {_shorten(asked)}"


def _values_match(recorded: Any, asked: Any) -> bool:
    if isinstance(recorded, bool) or isinstance(asked, bool):
        return recorded is asked
    if isinstance(recorded, str) and isinstance(asked, (str, int, float)):
        return recorded == asked or _matches_masked(MASK_PATTERN.split(recorded), str(asked))
    return bool(recorded == asked)


def _matches_masked(parts: list[str], text: str) -> bool:
    """Return whether `text` has these parts in order, with some text between any two of them."""
    first, *rest = parts
    if not rest or not text.startswith(first):
        return False
    *middle, last = rest
    place = len(first)
    for part in middle:
        found = text.find(part, place + 1)
        if found < 0:
            return False
        place = found + len(part)
    return len(text) - len(last) > place and text.endswith(last)


def _shorten(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 3]}..."


def member_at(value: Any, *names: str) -> Any:
    """Follow `names` into nested objects; return `None` if a name is absent."""
    found = value
    for name in names:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


# The order of a replay.
#
# An entry that the client received is played after its causes. The client has sent the request to
# which the entry belongs. All earlier entries of that request were played, and the questions among
# them were answered. So the client may send the same requests in another order, or one after
# another instead of concurrently, and gets the same answers. The replay never waits for a message
# that the client has no reason to send.


Order = Literal["causal", "recorded"]

RECEIVED_KINDS = frozenset(("failed", "got", "got_text", "lost", "missed", "silent"))
"""The kinds of entries that are played; the others are actions of the client."""

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"

# Notifications whose time depends on a clock.
_TIMED_METHODS = frozenset(("notifications/cancelled", "notifications/progress"))

_LISTEN = "subscriptions/listen"


def messages(entry: Entry) -> list[dict[str, Any]]:
    """Return the messages of an entry: one, those of a batch, or none."""
    if entry.kind not in ("got", "sent"):
        return []
    value = entry.value if isinstance(entry.value, list) else [entry.value]
    return [message for message in value if isinstance(message, dict)]


def id_of(message: dict[str, Any]) -> int | str | None:
    """Return the id of a message, or `None` if it has none or an invalid one."""
    id = message.get("id")
    return id if type(id) is int or type(id) is str else None


def is_answer(message: dict[str, Any]) -> bool:
    return "method" not in message and ("result" in message or "error" in message)


def requests_ended_by(entry: Entry) -> set[int]:
    if entry.kind == "sent":
        return set()
    answers = [message for message in messages(entry) if is_answer(message)]
    ids = [entry.id if (id := id_of(answer)) is None else id for answer in answers]
    if entry.kind == "failed":
        ids.append(entry.id)
    return {id for id in ids if type(id) is int}


class ReplaySchedule:
    """Decides which entry of a connection is played next; each "sent" must have one message.

    In the order ``"recorded"`` entries are played in the order of the recording, each after all
    actions of the client that were recorded before it.
    """

    def __init__(self, entries: Sequence[Entry], order: Order = "causal") -> None:
        # Positions of entries: entries that were played or that the client has done; the ends of
        # requests, by id of the request; the answers to questions, by id of the question.
        self.done: set[int] = set()
        self.ended: dict[int, int] = {}
        self.answers: dict[int | str | None, int] = {}
        # The request that a question belongs to, by the id of the question.
        self.owners: dict[int | str, int] = {}
        self._entries = entries
        self._order = order
        # Positions of requests by id. Ids of requests by progress token.
        self._sent: dict[int, int] = {}
        self._tokens: dict[Any, int] = {}
        self._index_entries()
        self._sorter = TopologicalSorter(
            {**dict.fromkeys(range(len(entries)), ()), **dict(self._dependencies())}
        )
        self._sorter.prepare()
        self._ready: list[int] = []
        self._find_ready()

    def mark_done(self, position: int) -> None:
        """Record that the client has done this entry, or that it was played."""
        if position not in self.done:
            self.done.add(position)
            self._sorter.done(position)
            self._find_ready()

    def _find_ready(self) -> None:
        for position in self._sorter.get_ready():
            if self._entries[position].kind in RECEIVED_KINDS:
                heapq.heappush(self._ready, position)

    def take_next(self) -> int | None:
        """Remove and return the first position that is ready to be played, or `None`."""
        return heapq.heappop(self._ready) if self._ready else None

    def _index_entries(self) -> None:
        for position, entry in enumerate(self._entries):
            for id in requests_ended_by(entry):
                self.ended.setdefault(id, position)
            for message in messages(entry) if entry.kind == "sent" else ():
                sent = id_of(message)
                if is_answer(message):
                    self.answers[sent] = position
                elif type(sent) is int:
                    self._sent[sent] = position
                    token = member_at(message, "params", "_meta", "progressToken")
                    if isinstance(token, (str, int)):
                        self._tokens[token] = sent

    def _dependencies(self) -> Iterator[tuple[int, set[int]]]:
        """Yield each entry that is played, and the entries that must have happened before it."""
        as_recorded = self._order == "recorded"
        in_flight: dict[int, None] = {}
        previous: set[int] = set()  # The last entry received.
        last_action: set[int] = set()
        actions_since: set[int] = set()
        # By request: its last entry, and answers to its questions since. By answer: its request.
        chains: dict[int, set[int]] = {}
        answered: dict[int, int] = {}
        for position, entry in enumerate(self._entries):
            if entry.kind == "withdrawn":
                in_flight.pop(entry.value, None)
            if entry.kind == "sent":
                message_sent = entry.value
                if message_sent.get("method") not in _TIMED_METHODS:
                    last_action = {position}
                    actions_since.add(position)
                if position in answered:
                    chains.setdefault(answered[position], set()).add(position)
                elif type(id := id_of(message_sent)) is int and not is_answer(message_sent):
                    in_flight[id] = None
                    chains[id] = {position}
            if entry.kind not in RECEIVED_KINDS:
                continue
            owners = self._owners_of(position, entry, in_flight)
            if as_recorded:
                before, actions_since = previous | actions_since, set()
            elif entry.kind == "lost":
                before = {self._sent[id] for id in in_flight} | previous | last_action
            elif owners:
                before = set().union(*(chains.get(owner, ()) for owner in owners))
                chains.update((owner, {position}) for owner in owners)
            else:
                before = previous | last_action
            questions = [id_of(message) for message in messages(entry) if "method" in message]
            for id in questions if owners else ():
                if id is not None and id in self.answers:
                    answered[self.answers[id]] = self.owners[id] = min(owners)
            for id in requests_ended_by(entry):
                in_flight.pop(id, None)
            previous = {position}
            yield position, before

    def _owners_of(self, position: int, entry: Entry, in_flight: dict[int, None]) -> set[int]:
        """Return the requests to which an entry belongs or most likely belongs."""
        candidates: set[int | str | None] = {entry.id}
        for message in messages(entry):
            if is_answer(message):
                candidates.add(id_of(message))
                continue
            token = member_at(message, "params", "progressToken")
            if message.get("method") == "notifications/progress" and type(token) in (int, str):
                candidates.add(self._tokens.get(token))
            subscription = member_at(message, "params", "_meta", SUBSCRIPTION_ID)
            candidates.add(subscription if type(subscription) is int else None)
        known = {id for id in candidates if type(id) is int and id in self._sent}
        if known or entry.kind in ("missed", "silent"):
            return known
        # All requests share the stream of this message. It most likely belongs to the request that
        # was answered next; for a question, to the request answered next after its answer.
        after = position
        for message in messages(entry):
            if (id := id_of(message)) is not None:
                after = max(after, self.answers.get(id, position))
        never = len(self._entries)
        sent = {id: self._entries[self._sent[id]].value for id in in_flight}
        guesses = [id for id in sent if sent[id].get("method") != _LISTEN or id in self.ended]
        ends = {id: self.ended.get(id, never) for id in guesses}
        # Of requests that were answered together or never, `min` returns the last one sent.
        likely = [id for id in reversed(guesses) if ends[id] > after]
        return {min(likely, key=ends.__getitem__)} if likely else set()


Normalize = Callable[[str, Any], Any]

_MAX_DIFFERENCES = 8


class NotRecorded(UsageError):
    """A request of the client, or its answer to a question, was not recorded.

    Attributes:
        differences: A line for each difference to the most similar recorded request of the same
            method, or to the recorded answer. There are no lines if no request of this method was
            recorded, or if all equal requests have been played.
    """

    differences: tuple[str, ...] = ()


def has(entries: Iterable[Entry], *kinds: str) -> bool:
    return any(entry.kind in kinds for entry in entries)


def with_endings(recorded: Iterable[Entry]) -> list[Entry]:
    """Split sent batches; if the recording was cut off, add a failure for each open request."""
    entries: list[Entry] = []
    for entry in recorded:
        if entry.kind == "sent":
            entries += [Entry("sent", message) for message in messages(entry)]
        else:
            entries.append(entry)
    if has(entries, "closed", "lost"):
        return entries
    ended = {entry.value for entry in entries if entry.kind == "withdrawn"}
    for entry in entries:
        ended |= requests_ended_by(entry)
    cut = {"class": "ConnectionLost", "message": "the recording ends before the response"}
    sent = [entry.value for entry in entries if entry.kind == "sent" and "method" in entry.value]
    open_ones = [id for message in sent if type(id := id_of(message)) is int and id not in ended]
    return entries + [Entry("failed", cut, id) for id in open_ones]


class ReplayState:
    """The state of one connection that is played.

    The class is not thread-safe.
    """

    def __init__(self, entries: list[Entry], order: Order, normalize: Normalize | None) -> None:
        self.entries = entries
        self._schedule = ReplaySchedule(self.entries, order)
        self._normalize = normalize
        # Positions of the requests and of the notifications that were sent, by method.
        self._requests: dict[str, list[int]] = {}
        self._notifications: dict[str, list[int]] = {}
        self._asked_by_server: dict[int | str, str] = {}
        self._recorded_params: dict[int, Any] = {}
        for position, entry in enumerate(self.entries):
            self._index(position, entry)
        opened = self._first("opened")
        self.blocking = member_at(opened, "blocking") is True
        self.ordered = member_at(opened, "ordered") is not False
        adopted = self._first("adopted")
        self.stateful = member_at(adopted, "stateful") is not False
        failed = [entry for entry in self.entries if entry.kind == "failed" and entry.id is None]
        self.refusal: Any = failed[0].value if failed else None
        """The error with which opening the connection failed, as JSON, or `None`."""

    def has_end(self, recorded_id: Any) -> bool:
        """Return whether the request with this recorded id has a response or has failed."""
        return recorded_id in self._schedule.ended

    @property
    def missing_requests(self) -> list[str]:
        return [method for method, places in self._requests.items() for _ in self._left(places)]

    def _left(self, places: Iterable[int]) -> Iterator[int]:
        """Return those of the given positions whose messages the client has not sent."""
        return (position for position in places if position not in self._schedule.done)

    def _index(self, position: int, entry: Entry) -> None:
        for message in messages(entry):
            id, method = id_of(message), message.get("method")
            if entry.kind == "got":
                if id is not None and method is not None:
                    self._asked_by_server[id] = str(method)
            elif isinstance(method, str) and id is not None:
                self._requests.setdefault(method, []).append(position)
            elif isinstance(method, str):
                self._notifications.setdefault(method, []).append(position)

    def _first(self, kind: str) -> Any:
        return next((entry.value for entry in self.entries if entry.kind == kind), {})

    def request(self, method: str, params: Any) -> dict[str, Any]:
        """Return the recorded request that matches, and mark it as sent; raise `NotRecorded`."""
        asked = self._comparable(method, params)
        fitting: int | None = None
        for position in self._left(self._requests.get(method, ())):
            recorded = self._comparable_recorded(position, method)
            if not any(differences(recorded, asked)):
                # An equal request is better than one that matches only by its masks.
                if recorded == asked:
                    fitting = position
                    break
                fitting = position if fitting is None else fitting
        if fitting is None:
            raise self._no_match_error(method, asked)
        self._schedule.mark_done(fitting)
        message: dict[str, Any] = self.entries[fitting].value
        return message

    def repeated(self, method: str, params: Any) -> dict[str, Any] | None:
        """Return the newest response that was recorded for this request, if it may be repeated.

        A client may list the tools more often than the recorded client did: if its threads run in
        another order, its list becomes outdated at another moment. ``server/discover`` takes the
        place of a ping.
        """
        if method not in ("tools/list", "server/discover"):
            return None
        asked = self._comparable(method, params)
        for position in reversed(self._requests.get(method, ())):
            id = self.entries[position].value["id"]
            end = self._schedule.ended.get(id)
            if end is None or any(differences(self._comparable_recorded(position, method), asked)):
                continue
            for message in messages(self.entries[end]):
                if is_answer(message) and id_of(message) == id:
                    return message
        return None

    def notification(self, method: str) -> None:
        """Record that the client has sent a notification, if one was recorded."""
        position = next(self._left(self._notifications.get(method, ())), None)
        if position is not None:
            self._schedule.mark_done(position)

    def answer(self, message: dict[str, Any]) -> None:
        """Record that the client has answered a question; raise `NotRecorded` if it differs."""
        id = id_of(message)
        position = self._schedule.answers.get(id)
        if id is None or position is None or position in self._schedule.done:
            return
        method = self._asked_by_server.get(id, "")
        recorded = self._outcome(method, self.entries[position].value)
        found = list(differences(recorded, self._outcome(method, message)))
        if found:
            raise _difference_error(f"the answer to {method} differs from the recording", found)
        self._schedule.mark_done(position)

    def owner(self, message: dict[str, Any]) -> int | None:
        id = id_of(message)
        return None if id is None else self._schedule.owners.get(id)

    def take_next(self) -> Entry | None:
        """Remove and return the entry to play next, or `None`."""
        position = self._schedule.take_next()
        if position is None:
            return None
        self._schedule.mark_done(position)
        return self.entries[position]

    def _comparable(self, method: str, params: Any) -> Any:
        return self._normalized(method, comparable_params(method, params))

    def _normalized(self, method: str, value: Any) -> Any:
        if self._normalize is None:
            return value
        try:
            compared = self._normalize(method, value)
        except Exception as error:  # Code of the program failed: fail the call that needed it.
            raise NotRecorded(f"normalize failed: {type(error).__name__}: {error}") from error
        if compared is None and value is not None:  # all requests would be equal
            raise NotRecorded(f"normalize returned None for {method}: is a return missing?")
        return compared

    def _outcome(self, method: str, message: dict[str, Any]) -> Any:
        if "error" in message:
            return {"error": member_at(message, "error", "code")}
        return self._normalized(method, message.get("result"))

    def _comparable_recorded(self, position: int, method: str) -> Any:
        if position not in self._recorded_params:
            params = self.entries[position].value.get("params")
            self._recorded_params[position] = self._comparable(method, params)
        return self._recorded_params[position]

    def _no_match_error(self, method: str, asked: Any) -> NotRecorded:
        if not (places := self._requests.get(method, ())):
            known = ", ".join(sorted(self._requests)) or "nothing"
            return NotRecorded(f"{method} was not recorded; the recording has: {known}")
        recorded = [self._comparable_recorded(position, method) for position in places]
        found = [list(differences(each, asked)) for each in recorded]
        if often := found.count([]):
            times = "once" if often == 1 else f"{often} times"
            return NotRecorded(f"it was recorded {times}, but the program sent it again")
        return _difference_error("it was not recorded with these parameters", min(found, key=len))


def _difference_error(text: str, found: list[str]) -> NotRecorded:
    lines = [redact(line) for line in found]
    more = len(lines) - _MAX_DIFFERENCES
    shown = lines[:_MAX_DIFFERENCES] + ([f"and {more} more"] if more > 0 else [])
    return NotRecorded("\n  ".join([f"{text}:", *shown]), differences=tuple(lines))
