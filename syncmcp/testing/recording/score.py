"""The order in which a recorded session is played: pure rules, no thread and no clock.

What a server said is played when what led to it has happened: the request that it belongs to has
come, everything before it that belongs to the same request has been played, and the questions in
between have been answered. So a client that does the same things in another order, or one after
another instead of at once, gets the same answers and is never kept waiting for something that it
has no reason to do.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from syncmcp.testing.recording.difference import plain
from syncmcp.testing.recording.tape import Entry

Order = Literal["causal", "recorded"]

PLAYED = frozenset(("failed", "got", "got_text", "lost", "silent"))
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


class Score:
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
        self._happened: set[int] = set()
        self._ready: list[int] = []
        self.owners: dict[int | str, int] = {}
        """By the id of an answered question: that of the request that it belongs to."""
        for position, before in _Links(entries, self.owners, order):
            for other in before:
                self._waiting.setdefault(other, []).append(position)
            self._needs[position] = len(before)
            if not before:
                heapq.heappush(self._ready, position)

    def happened(self, position: int) -> None:
        """Note that the client did what is recorded there, or that it has been played."""
        if position in self._happened:
            return
        self._happened.add(position)
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
                    token = plain(message, "params", "_meta", "progressToken")
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
            if entry.kind not in PLAYED:
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
            token = plain(message, "params", "progressToken")
            if message.get("method") == "notifications/progress" and type(token) in (int, str):
                said.add(self._tokens.get(token))
            subscription = plain(message, "params", "_meta", SUBSCRIPTION_ID)
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
