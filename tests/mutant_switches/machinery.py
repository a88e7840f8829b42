"""Mutants of what runs the protocol: calls, connection, transports, operations."""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Any

from syncmcp._protocol import jsonrpc
from syncmcp._threads import Deadline
from tests.mutant import Mutant
from tests.mutant_switches.change import always, effects

if TYPE_CHECKING:
    from tests.mutant_switches.change import Function

CONNECTION = "syncmcp._connection:Connection"
DELIVERY = "syncmcp._delivery:Delivery"
EVENTS = "syncmcp.transports._events:EventStream"
HTTP = "syncmcp.transports.http:HttpTransport"
OPERATIONS = "syncmcp.operations"


def _ignore_pings(original: Function) -> Function:
    def asked(self: Any, message: Any) -> None:
        if message.method != "ping":
            original(self, message)

    return asked


def _answer_in_the_stateless_era(original: Function) -> Function:
    def asked(self: Any, message: Any) -> None:
        if self._dialect is not None and not self._dialect.stateful:
            self._post_frame(jsonrpc.encode_result(message.id, {}))
        else:
            original(self, message)

    return asked


def _stumble_over_late_answers(original: Function) -> Function:
    def answered(self: Any, message: Any, out: Any) -> None:
        if message.id is not None and self._peer.get(message.id) is None:
            raise KeyError(message.id)
        original(self, message, out)

    return answered


def _let_progress_extend_the_limit(original: Function) -> Function:
    def progress(self: Any, params: Any, call: Any) -> None:
        if call is not None:
            call.deadline = Deadline(call.deadline.seconds)
        original(self, params, call)

    return progress


def _release_before_the_callbacks(original: Function) -> Function:
    return lambda self, last: last()


def _deliver_without_context(original: Function) -> Function:
    return lambda self, workers, context: original(self, workers, Context())


def _read_comments_as_data(original: Function) -> Function:
    return lambda self, line: original(self, b"data" + line if line.startswith(b":") else line)


def _overlook_retry(original: Function) -> Function:
    return lambda self, line: None if line.startswith(b"retry") else original(self, line)


def _lose_ids_without_data(original: Function) -> Function:
    def end_event(self: Any) -> bytes:
        before = self.last_id
        data = bytes(original(self))
        if not data:
            self.last_id = before
        return data

    return end_event


def _end_at_an_empty_cursor(reply: Any) -> Any:
    if reply.result.get("nextCursor") != "":
        return reply
    kept = {name: value for name, value in reply.result.items() if name != "nextCursor"}
    return reply._replace(result=kept)


def _end_at_an_empty_page(reply: Any) -> Any:
    if [] not in reply.result.values():
        return reply
    kept = {name: value for name, value in reply.result.items() if name != "nextCursor"}
    return reply._replace(result=kept)


def _forget_cursors(original: Function) -> Function:
    def check(self: Any, cursor: str) -> None:
        self._seen.clear()
        original(self, cursor)

    return check


CALLS = (
    Mutant(
        "no-total-limit",
        "a deadline never comes",
        "syncmcp._threads:Deadline.__init__",
        lambda original: lambda self, seconds: original(self, None),
        ("TMO-02", "TMO-03", "4"),
    ),
    Mutant(
        "links-ignored",
        "a token does not follow the tokens it was linked to",
        "syncmcp.cancellation:CancelToken._follow",
        always(None),
        ("M-02",),
    ),
    Mutant(
        "environment-passed-on",
        "a spawned server gets the whole environment",
        "syncmcp.transports._process:environment",
        lambda original: lambda given, inherit, own, **named: original(given, "all", own, **named),
        ("26",),
    ),
    Mutant(
        "missing-resource-is-anything",
        "-32002 is an error like any other",
        "syncmcp.errors:ServerError.codes",
        lambda codes: {code: kind for code, kind in codes.items() if code != -32002},
        ("RES-01",),
    ),
    Mutant(
        "secrets-in-the-open",
        "nothing is masked in messages, logs and reprs",
        "syncmcp._redaction:redact",
        lambda original: lambda text, secrets=(): text,
        ("HTL-13",),
    ),
    Mutant(
        "progress-extends-the-limit",
        "each progress notification starts the total limit anew",
        f"{CONNECTION}._progress",
        _let_progress_extend_the_limit,
        ("TMO-03", "20"),
    ),
    Mutant(
        "progress-to-anyone",
        "progress goes to the call in flight, whatever its token",
        f"{CONNECTION}._owner",
        lambda original: lambda self, method, params, out: original(self, "", params, out),
        ("PRG-04",),
    ),
    Mutant(
        "result-before-progress",
        "a call's result does not wait for its callbacks",
        f"{DELIVERY}.finish",
        _release_before_the_callbacks,
        ("30",),
    ),
    Mutant(
        "context-lost",
        "callbacks run without the caller's context variables",
        f"{DELIVERY}.__init__",
        _deliver_without_context,
        ("31",),
    ),
)

CONNECTIONS = (
    Mutant(
        "pings-unanswered",
        "a ping of the server gets no answer",
        f"{CONNECTION}._asked",
        _ignore_pings,
        ("RPC-24",),
    ),
    Mutant(
        "stateless-answers",
        "a request of a stateless server is answered",
        f"{CONNECTION}._asked",
        _answer_in_the_stateless_era,
        ("RPC-26",),
    ),
    Mutant(
        "handshake-cancelled",
        "giving up on `initialize` sends a cancel",
        "syncmcp._connection:_NEVER_CANCELLED",
        lambda original: original - {"initialize"},
        ("CAN-02",),
    ),
    Mutant(
        "stumble-over-late-answers",
        "an answer to nothing that is open raises where frames are read",
        f"{CONNECTION}._answered",
        _stumble_over_late_answers,
        ("CAN-05",),
    ),
)

TRANSPORTS = (
    Mutant(
        "last-words-lost",
        "what a server wrote to stderr is not kept",
        "syncmcp.transports._stderr:StderrSink.tail",
        always(""),
        ("5", "10"),
    ),
    Mutant(
        "comments-read",
        "comment lines of an event stream count as data",
        f"{EVENTS}._take",
        _read_comments_as_data,
        ("HTM-08",),
    ),
    Mutant(
        "retry-overlooked",
        "the pause that a stream asks for is not kept",
        f"{EVENTS}._take",
        _overlook_retry,
        ("HTL-07",),
    ),
    Mutant(
        "ids-without-data-lost",
        "an event that has only an id changes nothing",
        f"{EVENTS}._end_event",
        _lose_ids_without_data,
        ("HTL-15", "H3"),
    ),
    Mutant(
        "streams-left-open",
        "giving up a call does not end its exchange",
        f"{HTTP}.withdraw",
        always("unknown"),
        ("HTM-09", "H1b"),
    ),
)

LISTS = (
    Mutant(
        "empty-cursor-ends",
        "a list ends at a cursor that is the empty string",
        f"{OPERATIONS}:_pages",
        effects(lambda step: [step], _end_at_an_empty_cursor),
        ("PAG-01",),
    ),
    Mutant(
        "empty-page-ends",
        "a list ends at a page without items",
        f"{OPERATIONS}:_pages",
        effects(lambda step: [step], _end_at_an_empty_page),
        ("PAG-02",),
    ),
    Mutant(
        "circles-unnoticed",
        "cursors that come again are followed",
        f"{OPERATIONS}:_PageGuard.check",
        _forget_cursors,
        ("19",),
    ),
)

MUTANTS = CALLS + CONNECTIONS + TRANSPORTS + LISTS
