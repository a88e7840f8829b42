"""One recorded connection as it is played: what came, what is next; no thread and no clock."""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from syncmcp._base.text import redact
from syncmcp.errors import UsageError
from syncmcp.testing.recording import Entry, Session
from syncmcp.testing.recording.record import MASK_PATTERN

# What a client asks, held against what was recorded.


# Their parameters say what the client is; another version of it must be able to play a recording.
_GREETINGS = frozenset(("initialize", "server/discover"))

# Members of `_meta` that a client sets by itself.
_OWN = "io.modelcontextprotocol/"
_PASSING = frozenset(("baggage", "progressToken", "traceparent", "tracestate"))

_LONGEST_VALUE = 80
_MISSING = object()


def comparable_params(method: str, params: Any) -> Any:
    """What of its parameters makes a request the request it is."""
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
        if not name.startswith(_OWN) and name not in _PASSING
    }
    rest = {name: value for name, value in params.items() if name != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def differences(recorded: Any, asked: Any, path: str = "") -> Iterator[str]:
    """Say in what two JSON values differ, a line for each place.

    What is masked in the recorded one may be anything.
    """
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for name in [*recorded, *(name for name in asked if name not in recorded)]:
            inside = f"{path}.{name}" if path else str(name)
            yield from differences(recorded.get(name, _MISSING), asked.get(name, _MISSING), inside)
    elif isinstance(recorded, list) and isinstance(asked, list) and len(recorded) == len(asked):
        for number, (one, other) in enumerate(zip(recorded, asked, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif not _same(recorded, asked):
        yield f"{path or 'all of it'}: recorded {_shown(recorded)}, asked {_shown(asked)}"


def _same(recorded: Any, asked: Any) -> bool:
    if isinstance(recorded, str) and isinstance(asked, str):
        return recorded == asked or _fits(MASK_PATTERN.split(recorded), asked)
    if isinstance(recorded, bool) or isinstance(asked, bool):
        return recorded is asked
    return bool(recorded == asked)


def _fits(parts: list[str], text: str) -> bool:
    """Whether `text` has these parts in their order, with something between any two of them."""
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


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def member_at(value: Any, *names: str) -> Any:
    """Follow `names` into nested objects; `None` where there is nothing."""
    found = value
    for name in names:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


# The order in which a recorded session is played: pure rules, no thread and no clock.
#
# What a server said is played when what led to it has happened: the request that it belongs to
# has come, everything before it that belongs to the same request has been played, and the
# questions in between have been answered. So a client that does the same things in another order,
# or one after another instead of at once, gets the same answers and is never kept waiting for
# something that it has no reason to do.


Order = Literal["causal", "recorded"]

RECEIVED_KINDS = frozenset(("failed", "got", "got_text", "lost", "silent"))
"""What happened to the client; all else it did, or was done in between."""

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"

# Whether and when they come is up to clocks.
_BY_THE_CLOCK = frozenset(("notifications/cancelled", "notifications/progress"))

_LISTEN = "subscriptions/listen"


def messages(entry: Entry) -> list[dict[str, Any]]:
    """The messages of an entry: one, those of a batch, or none."""
    if entry.kind not in ("got", "sent"):
        return []
    value = entry.value if isinstance(entry.value, list) else [entry.value]
    return [message for message in value if isinstance(message, dict)]


def id_of(message: dict[str, Any]) -> int | str | None:
    """The id of a message, if it has one that can be one."""
    id = message.get("id")
    return id if type(id) is int or type(id) is str else None


def is_answer(message: dict[str, Any]) -> bool:
    """Whether it answers a request."""
    return "method" not in message and ("result" in message or "error" in message)


class ReplaySchedule:
    """Says what is to be played next.

    Args:
        entries: What happened on one connection; every "sent" is one message.
        order: ``"causal"``, or ``"recorded"``: everything is played in the order in which it was
            recorded, and so everything that a client did in between has to happen, too.
    """

    def __init__(self, entries: Sequence[Entry], order: Order = "causal") -> None:
        self._entries = entries
        # For each position how many others it still waits for, and which wait for it.
        self._needs = [0] * len(entries)
        self._waiting: dict[int, list[int]] = {}
        self._done: set[int] = set()
        self._ready: list[int] = []
        self.owners: dict[int | str, int] = {}
        """By the id of an answered question: that of the request that it belongs to."""
        for position, before in _Links(entries, self.owners, order):
            for other in before:
                self._waiting.setdefault(other, []).append(position)
            self._needs[position] = len(before)
            if not before:
                heapq.heappush(self._ready, position)

    def mark_done(self, position: int) -> None:
        """Note that the client did what is recorded there, or that it has been played."""
        if position in self._done:
            return
        self._done.add(position)
        for other in self._waiting.pop(position, ()):
            self._needs[other] -= 1
            if self._needs[other] == 0:
                heapq.heappush(self._ready, other)

    def next(self) -> int | None:
        """Take the first position that is ready to be played."""
        return heapq.heappop(self._ready) if self._ready else None


class _Links:
    """Finds out, for everything that is played, what has to happen before."""

    def __init__(
        self, entries: Sequence[Entry], owners: dict[int | str, int], order: Order
    ) -> None:
        self._entries = entries
        self._owners = owners
        self._order = order
        # By the id of a request: where it was sent, where it was answered, its token.
        self._sent: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._tokens: dict[Any, int] = {}
        # By the id of a question of the server's: where it was answered.
        self._answers: dict[Any, int] = {}
        self._survey()

    def _survey(self) -> None:
        for position, entry in enumerate(self._entries):
            for message in messages(entry):
                id = id_of(message)
                if entry.kind == "got":
                    about = entry.id if id is None else id
                    if is_answer(message) and type(about) is int:
                        self._ended.setdefault(about, position)
                elif is_answer(message):
                    if id is not None:
                        self._answers[id] = position
                elif type(id) is int:
                    self._sent[id] = position
                    token = member_at(message, "params", "_meta", "progressToken")
                    if isinstance(token, (str, int)):
                        self._tokens[token] = id
            if entry.kind == "failed" and entry.id is not None:
                self._ended.setdefault(entry.id, position)

    def __iter__(self) -> Iterator[tuple[int, set[int]]]:
        strict = self._order == "recorded"
        flying: dict[int, None] = {}
        last_played: int | None = None
        last_done: int | None = None
        since: set[int] = set()
        # By request: what was played last of it, and the answers to its questions since then.
        chains: dict[int, set[int]] = {}
        answered: dict[int, int] = {}
        for position, entry in enumerate(self._entries):
            if entry.kind == "withdrawn":
                flying.pop(entry.value, None)
            if entry.kind == "sent":
                done = entry.value
                if done.get("method") not in _BY_THE_CLOCK:
                    last_done = position
                    since.add(position)
                if position in answered:
                    chains.setdefault(answered[position], set()).add(position)
                elif type(id := id_of(done)) is int and not is_answer(done):
                    flying[id] = None
                    chains[id] = {position}
            if entry.kind not in RECEIVED_KINDS:
                continue
            before: set[int] = set()
            previous = set() if last_played is None else {last_played}
            if strict:
                before, since = previous | since, set()
            elif entry.kind == "lost":
                before = {self._sent[id] for id in flying} | previous
                before |= set() if last_done is None else {last_done}
            else:
                owners = self._owners_of(position, entry, flying)
                for owner in owners:
                    before |= chains.get(owner, set())
                if not owners:
                    before = previous | (set() if last_done is None else {last_done})
                for owner in owners:
                    chains[owner] = {position}
            for message in messages(entry):
                self._note_question(message, position, entry, flying, answered)
                if is_answer(message) and type(id := id_of(message)) is int:
                    flying.pop(id, None)
            if entry.kind == "failed" and entry.id is not None:
                flying.pop(entry.id, None)
            last_played = position
            yield position, before

    def _note_question(
        self,
        message: dict[str, Any],
        position: int,
        entry: Entry,
        flying: dict[int, None],
        answered: dict[int, int],
    ) -> None:
        id = id_of(message)
        if "method" not in message or id is None:
            return
        owners = self._owners_of(position, entry, flying)
        if owners and id in self._answers:
            owner = min(owners)
            answered[self._answers[id]] = owner
            self._owners[id] = owner

    def _owners_of(self, position: int, entry: Entry, flying: dict[int, None]) -> set[int]:
        """The requests that something belongs to, as far as can be told or guessed."""
        said: set[int | str | None] = {entry.id}
        for message in messages(entry):
            if is_answer(message):
                said.add(id_of(message))
                continue
            token = member_at(message, "params", "progressToken")
            if message.get("method") == "notifications/progress" and type(token) in (int, str):
                said.add(self._tokens.get(token))
            subscription = member_at(message, "params", "_meta", SUBSCRIPTION_ID)
            said.add(subscription if type(subscription) is int else None)
        known = {id for id in said if type(id) is int and id in self._sent}
        if known or entry.kind == "silent":
            return known
        # It came on a channel that all requests share. It is most likely about the one that was
        # answered next; after a question, next after the answer to that.
        after = position
        for message in messages(entry):
            if (id := id_of(message)) is not None:
                after = max(after, self._answers.get(id, position))
        far = len(self._entries)
        guesses = [id for id in flying if self._method_of(id) != _LISTEN or id in self._ended]
        ends = {id: self._ended.get(id, far) for id in guesses}
        likely = [id for id in guesses if ends[id] > after]
        if not likely:
            return set()
        first = min(ends[id] for id in likely)
        return {[id for id in likely if ends[id] == first][-1]}

    def _method_of(self, id: int) -> Any:
        return self._entries[self._sent[id]].value.get("method")


Normalize = Callable[[str, Any], Any]

_MOST_DIFFERENCES = 8


class NotRecorded(UsageError):
    """The client asked, or answered, something else than what was recorded.

    Attributes:
        differences: A line for each place in which it differs from the most similar one that was
            recorded; empty if there is none of this method, or if all like it have been played.
    """

    differences: tuple[str, ...] = ()


def with_endings(session: Session) -> Session:
    """A session with one message in each "sent", and an end to each call if it was cut off."""
    entries: list[Entry] = []
    for entry in session.entries:
        if entry.kind == "sent":
            entries += [Entry("sent", message) for message in messages(entry)]
        else:
            entries.append(entry)
    if session.has("closed", "lost"):
        return Session(entries)
    over = {entry.value for entry in entries if entry.kind == "withdrawn"}
    for entry in entries:
        over |= _ended_by(entry)
    cut = {"class": "ConnectionLost", "message": "the recording ends before the answer"}
    sent = [entry.value for entry in entries if entry.kind == "sent" and "method" in entry.value]
    open_ones = [id for message in sent if type(id := id_of(message)) is int and id not in over]
    return Session(entries + [Entry("failed", cut, id) for id in open_ones])


def _ended_by(entry: Entry) -> set[int]:
    """The requests that something came back for."""
    answers = [message for message in messages(entry) if is_answer(message)]
    ids = [entry.id if (id := id_of(answer)) is None else id for answer in answers]
    if entry.kind == "failed":
        ids.append(entry.id)
    return {id for id in ids if type(id) is int} if entry.kind != "sent" else set()


class ReplayState:
    """One connection as it is played: what has come so far, and what is next. Knows no thread."""

    def __init__(self, session: Session, order: Order, normalize: Normalize | None) -> None:
        self.entries = session.entries
        self._schedule = ReplaySchedule(self.entries, order)
        self._normalize = normalize
        # What has not come yet, by method; the answers to questions by the id of the question.
        self._requests: dict[str, list[int]] = {}
        self._notifications: dict[str, deque[int]] = {}
        self._answers: dict[int | str, int] = {}
        self._asked_by_server: dict[int | str, str] = {}
        self._recorded: dict[str, list[int]] = {}
        self._essences: dict[int, Any] = {}
        self.ended: set[int] = set()
        """The recorded ids of the requests that something comes back for."""
        for position, entry in enumerate(self.entries):
            self._index(position, entry)
        opened = self._first("opened")
        self.blocking = member_at(opened, "blocking") is True
        self.ordered = member_at(opened, "ordered") is not False
        adopted = self._first("adopted")
        self.stateful = member_at(adopted, "stateful") is not False
        failed = [entry for entry in self.entries if entry.kind == "failed" and entry.id is None]
        self.refusal: Any = failed[0].value if failed else None
        """Why the connection did not come about, if it did not."""

    @property
    def missing_requests(self) -> list[str]:
        """The methods of the requests that have not come."""
        return [method for method, places in list(self._requests.items()) for _ in list(places)]

    def _index(self, position: int, entry: Entry) -> None:
        self.ended |= _ended_by(entry)
        for message in messages(entry):
            id, method = id_of(message), message.get("method")
            if entry.kind == "got":
                if id is not None and method is not None:
                    self._asked_by_server[id] = str(method)
            elif isinstance(method, str) and id is not None:
                self._requests.setdefault(method, []).append(position)
                self._recorded.setdefault(method, []).append(position)
            elif isinstance(method, str):
                self._notifications.setdefault(method, deque()).append(position)
            elif id is not None:
                self._answers[id] = position

    def _first(self, kind: str) -> Any:
        return next((entry.value for entry in self.entries if entry.kind == kind), {})

    def request(self, method: str, params: Any) -> dict[str, Any]:
        """Find the recorded request that this one is, and note that it has come.

        Raises:
            NotRecorded: There is none, or none any more.
        """
        places = self._requests.get(method, [])
        asked = self._essence(method, params)
        fitting: int | None = None
        for position in places:
            recorded = self._recorded_essence(position, method)
            if next(differences(recorded, asked), None) is not None:
                continue
            # The very same is better than one that only its masks make fit.
            exact = recorded == asked
            if fitting is None or exact:
                fitting = position
            if exact:
                break
        if fitting is None:
            raise self._unknown(method, asked)
        places.remove(fitting)
        self._schedule.mark_done(fitting)
        message: dict[str, Any] = self.entries[fitting].value
        return message

    def notification(self, method: str) -> None:
        """Note that a notification has come, if one was recorded."""
        places = self._notifications.get(method)
        if places:
            self._schedule.mark_done(places.popleft())

    def answer(self, message: dict[str, Any]) -> None:
        """Note that the client has answered a question.

        Raises:
            NotRecorded: It has answered something else than what was recorded.
        """
        id = id_of(message)
        position = None if id is None else self._answers.pop(id, None)
        if id is None or position is None:
            return
        method = self._asked_by_server.get(id, "")
        recorded = self._outcome(method, self.entries[position].value)
        found = list(differences(recorded, self._outcome(method, message)))
        if found:
            raise _not_recorded(f"the answer to {method} was recorded otherwise", found)
        self._schedule.mark_done(position)

    def owner(self, message: dict[str, Any]) -> int | None:
        """The recorded id of the request that an answered question belonged to, if it is known."""
        id = id_of(message)
        return None if id is None else self._schedule.owners.get(id)

    def next(self) -> Entry | None:
        """Take what is to be played next, if anything is."""
        position = self._schedule.next()
        if position is None:
            return None
        self._schedule.mark_done(position)
        return self.entries[position]

    def _essence(self, method: str, params: Any) -> Any:
        return self._normalized(method, comparable_params(method, params))

    def _normalized(self, method: str, value: Any) -> Any:
        if self._normalize is None:
            return value
        try:
            return self._normalize(method, value)
        except Exception as error:  # the program's own; the call that led to it must end
            raise NotRecorded(f"normalize failed: {type(error).__name__}: {error}") from error

    def _outcome(self, method: str, message: dict[str, Any]) -> Any:
        if "error" in message:
            return {"error": member_at(message, "error", "code")}
        return self._normalized(method, message.get("result"))

    def _recorded_essence(self, position: int, method: str) -> Any:
        if position not in self._essences:
            params = self.entries[position].value.get("params")
            self._essences[position] = self._essence(method, params)
        return self._essences[position]

    def _differs(self, position: int, method: str, asked: Any) -> list[str]:
        return list(differences(self._recorded_essence(position, method), asked))

    def _unknown(self, method: str, asked: Any) -> NotRecorded:
        if not (recorded := self._recorded.get(method, ())):
            known = ", ".join(sorted(self._recorded)) or "nothing"
            return NotRecorded(f"it was not recorded; recorded are: {known}")
        found = [self._differs(position, method, asked) for position in recorded]
        if often := found.count([]):
            times = "once" if often == 1 else f"{often} times"
            return NotRecorded(f"it was recorded {times}, and has been asked as often already")
        return _not_recorded("it was not recorded with these parameters", min(found, key=len))


def _not_recorded(text: str, found: list[str]) -> NotRecorded:
    lines = [redact(line) for line in found]
    more = len(lines) - _MOST_DIFFERENCES
    shown = lines[:_MOST_DIFFERENCES] + ([f"and {more} more"] if more > 0 else [])
    return NotRecorded("\n  ".join([f"{text}:", *shown]), differences=tuple(lines))
