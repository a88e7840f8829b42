"""Mutants of what users are promised beyond the protocol: futures, progress, logs, lists, tests."""

from __future__ import annotations

import itertools
import urllib.request
from typing import TYPE_CHECKING, Any

from syncmcp.errors import InvalidOutput
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, effects, of_replies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.mutant_switches.change import Function

CLIENT = "syncmcp._client.client:Client"
NOTICES = "syncmcp._connection.notifications:NotificationRouter"
FUTURES = "syncmcp._concurrency.futures"
HTTP_SERVER = "syncmcp.testing.server.http"
PAGINATION = "syncmcp._client.pages"


def _newest_first(original: Function) -> Function:
    def add(self: Any, item: Any, size: int) -> None:
        with self._changed:
            self._items.appendleft((item, size))
            self._changed.notify()

    return add


def _without_total(original: Function) -> Function:
    def progress(self: Any, params: Any, call: Any) -> None:
        original(self, {**params, "total": None}, call)

    return progress


def _without_debug(original: Function) -> Function:
    def log_message(self: Any, on_log: Any, params: Any) -> None:
        if params.get("level") != "debug":
            original(self, on_log, params)

    return log_message


@of_replies
def _refuse_null_cursors(reply: Any) -> Any:
    if "nextCursor" in reply.result and reply.result["nextCursor"] is None:
        raise InvalidOutput("a cursor is no string")
    return reply


def _fetch_everything_first(original: Function) -> Function:
    return lambda *args: iter(list(original(*args)))


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str) and value.startswith("http"):
                yield value
            yield from _references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _references(item)


def _fetch_references(original: Function) -> Function:
    def validate(model: Any, raw: Any, method: str) -> Any:
        for reference in _references(raw):
            try:
                urllib.request.urlopen(reference, timeout=0.5).close()
            except OSError:
                continue
        return original(model, raw, method)

    return validate


def _give_every_error_a_code(original: Function) -> Function:
    def init(self: Any, *args: Any, **facts: Any) -> None:
        original(self, *args, **facts)
        vars(self).setdefault("code", -32000)

    return init


def _count_sessions(original: Function) -> Function:
    numbers = itertools.count(1)

    def init(self: Any, *args: Any) -> None:
        original(self, *args)
        self.id = str(next(numbers))

    return init


def _one_turn_more(original: Function) -> Function:
    def init(self: Any, *args: Any, max_iterations: int = 10, **options: Any) -> None:
        original(self, *args, max_iterations=max_iterations + 1, **options)

    return init


def _ask_for_more(original: Function) -> Function:
    def sample(self: Any, messages: Any, *, max_tokens: int, **options: Any) -> Any:
        return original(self, messages, max_tokens=2 * max_tokens, **options)

    return sample


CLIENTS = (
    Mutant(
        "cancel-of-a-future-untold",
        "a cancelled future tells nobody",
        "syncmcp._client.background:FutureDrive._cancel",
        always(None),
        ("M-01", "14"),
    ),
    Mutant(
        "progress-backwards",
        "the newest progress of a future comes first",
        f"{FUTURES}:ItemQueue.add",
        _newest_first,
        ("M-16",),
    ),
    Mutant(
        "progress-without-total",
        "the total of a progress report is lost",
        "syncmcp._connection.notifications:NotificationRouter._progress",
        _without_total,
        ("M-23",),
    ),
    Mutant(
        "debug-unheard",
        "one of the eight log levels does not arrive",
        "syncmcp._connection.notifications:NotificationRouter._log_message",
        _without_debug,
        ("M-25",),
    ),
    Mutant(
        "handlers-unasked",
        "requests that the library does not know reach no handler",
        "syncmcp._connection.client_services:HandlerRegistry.set_handler",
        always(None),
        ("M-31",),
    ),
    Mutant(
        "progress-kept",
        "progress that the client reports is not sent",
        f"{CLIENT}.report_progress",
        always(None),
        ("M-32",),
    ),
    Mutant(
        "eager-iterators",
        "an iterator over a list fetches every page before the first item",
        f"{PAGINATION}:iterate",
        _fetch_everything_first,
        ("M-35",),
    ),
    Mutant(
        "null-cursor-refused",
        "a list cannot end with a cursor that is null",
        f"{PAGINATION}:pages",
        effects(lambda step: [step], _refuse_null_cursors),
        ("PAG-03",),
    ),
    Mutant(
        "own-errors-with-codes",
        "an error of our own making has a code of JSON-RPC",
        "syncmcp.errors:McpError.__init__",
        _give_every_error_a_code,
        ("RPC-23",),
    ),
    Mutant(
        "everything-inside",
        "every path is held to be inside of the roots",
        "syncmcp.handlers.roots:contains",
        always(True),
        ("M-03", "M-27"),
    ),
    Mutant(
        "one-turn-more",
        "the model of a tool loop is asked once more than it may be",
        "syncmcp.tools:ToolLoop.__init__",
        _one_turn_more,
        ("M-05",),
    ),
    Mutant(
        "calls-without-handlers",
        "what a call causes is answered by the handlers of the client, never by its own",
        "syncmcp._connection.client_services:HandlerRegistry.for_call",
        lambda original: lambda self, given: self.question_handlers,
        ("M-19",),
    ),
    Mutant(
        "place-untold",
        "nobody is told how far a stream of events has come",
        "syncmcp._client.client:Client.last_event_id",
        lambda original: property(lambda self: None),
        ("M-34",),
    ),
    Mutant(
        "references-fetched",
        "a `$ref` in a server's schema is fetched",
        "syncmcp._base.checks:validate",
        _fetch_references,
        ("SCHM-05",),
    ),
)

SERVERS = (
    Mutant(
        "replays-nothing",
        "the test server forgets the events of a broken stream",
        f"{HTTP_SERVER}:_HttpSession.find",
        always(None),
        ("M-09",),
    ),
    Mutant(
        "sessions-counted",
        "the session ids of the test server can be guessed",
        f"{HTTP_SERVER}:_HttpSession.__init__",
        _count_sessions,
        ("M-10",),
    ),
    Mutant(
        "help-without-limit",
        "a tool of the test server that asks a model lets it write more than it says",
        "syncmcp.testing.server.context:ToolContext.sample",
        _ask_for_more,
        ("M-21",),
    ),
    Mutant(
        "anything-declared",
        "a tool of the test server takes everything for declared",
        "syncmcp.testing.server.questions:declared",
        always(True),
        ("M-08", "M-22"),
    ),
    Mutant(
        "leaks-unseen",
        "a test may leave anything behind",
        "syncmcp.testing.leaks:Footprint.grown_since",
        always([]),
        ("33",),
    ),
)

MUTANTS = CLIENTS + SERVERS
