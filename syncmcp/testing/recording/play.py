"""One recorded connection as it is played: what came, what is next; no thread and no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from syncmcp._base.text import redact
from syncmcp.errors import UsageError
from syncmcp.testing.recording.difference import differences, essence, plain
from syncmcp.testing.recording.score import Order, Score, id_of, is_answer, messages
from syncmcp.testing.recording.tape import Entry, Session

Normalize = Callable[[str, Any], Any]

_MOST_DIFFERENCES = 8


class NotRecorded(UsageError):
    """The client asked, or answered, something else than what was recorded.

    Attributes:
        differences: A line for each place in which it differs from the most similar one that was
            recorded; empty if there is none of this method, or if all like it have been played.
    """

    differences: tuple[str, ...] = ()


def completed(session: Session) -> Session:
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


class Play:
    """One connection as it is played: what has come so far, and what is next. Knows no thread."""

    def __init__(self, session: Session, order: Order, normalize: Normalize | None) -> None:
        self.entries = session.entries
        self._score = Score(self.entries, order)
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
        self.blocking = plain(opened, "blocking") is True
        self.ordered = plain(opened, "ordered") is not False
        adopted = self._first("adopted")
        self.stateful = plain(adopted, "stateful") is not False
        failed = [entry for entry in self.entries if entry.kind == "failed" and entry.id is None]
        self.refusal: Any = failed[0].value if failed else None
        """Why the connection did not come about, if it did not."""

    @property
    def unasked(self) -> list[str]:
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
        self._score.happened(fitting)
        message: dict[str, Any] = self.entries[fitting].value
        return message

    def notification(self, method: str) -> None:
        """Note that a notification has come, if one was recorded."""
        places = self._notifications.get(method)
        if places:
            self._score.happened(places.popleft())

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
        self._score.happened(position)

    def owner(self, message: dict[str, Any]) -> int | None:
        """The recorded id of the request that an answered question belonged to, if it is known."""
        id = id_of(message)
        return None if id is None else self._score.owners.get(id)

    def next(self) -> Entry | None:
        """Take what is to be played next, if anything is."""
        position = self._score.next()
        if position is None:
            return None
        self._score.happened(position)
        return self.entries[position]

    def _essence(self, method: str, params: Any) -> Any:
        return self._normalized(method, essence(method, params))

    def _normalized(self, method: str, value: Any) -> Any:
        if self._normalize is None:
            return value
        try:
            return self._normalize(method, value)
        except Exception as error:  # the program's own; the call that led to it must end
            raise NotRecorded(f"normalize failed: {type(error).__name__}: {error}") from error

    def _outcome(self, method: str, message: dict[str, Any]) -> Any:
        if "error" in message:
            return {"error": plain(message, "error", "code")}
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
