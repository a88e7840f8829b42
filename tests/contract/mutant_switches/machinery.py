"""Mutants of what runs the protocol: calls, connections, clients, threads, lists."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol import jsonrpc
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, effects, of_replies

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

CONNECTION = "syncmcp._connection.connection:Connection"
DELIVERY = "syncmcp._concurrency.pool:CallbackQueue"
CLIENT = "syncmcp._client.client:Client"
CORE = "syncmcp._client.core:ClientCore"
NOTICES = "syncmcp._connection.notifications:NotificationRouter"
PAGINATION = "syncmcp._client.pages"


def _ignore_the_token(original: Function) -> Function:
    def owner(self: Any, message: Any, out: Any) -> Any:
        if isinstance(message, jsonrpc.Notification):
            message = message._replace(method="")
        return original(self, message, out)

    return owner


def _ignore_pings(original: Function) -> Function:
    def asked(self: Any, message: Any, out: Any) -> None:
        if getattr(message, "method", None) != "ping":
            original(self, message, out)

    return asked


def _answer_in_the_stateless_era(original: Function) -> Function:
    def asked(self: Any, message: Any, out: Any) -> None:
        if self.agreed.current_dialect is not None and not self.agreed.current_dialect.stateful:
            self.notifier.post(jsonrpc.encode_result(message.id, {}))
        else:
            original(self, message, out)

    return asked


def _stumble_over_late_answers(original: Function) -> Function:
    def answered(self: Any, message: Any, out: Any) -> None:
        if message.id is not None and self._table.get(message.id) is None:
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


def _keep_what_was_interrupted(original: Function) -> Function:
    def cancel(self: Any, call: Any, error: Any) -> bool:
        return error.message != "interrupted" and bool(original(self, call, error))

    return cancel


def _tell_nobody_of_the_end(original: Function) -> Function:
    def lost(self: Any, error: Any) -> None:
        self.close_error = error

    return lost


def _make_limits_an_option(original: Function) -> Function:
    def of(cls: Any, timeout: Any, idle_timeout: Any, undeclared: Any, given: Any) -> Any:
        return original.__func__(cls, None, None, undeclared, given)

    return classmethod(of)


def _close_where_it_was_opened(original: Function) -> Function:
    opened_by: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def close(self: Any, *args: Any, **named: Any) -> None:
        if opened_by.setdefault(self, threading.main_thread().ident or 0) != threading.get_ident():
            raise RuntimeError("attempted to leave a scope in another task than it was entered in")
        original(self, *args, **named)

    return close


async def _nothing() -> None:
    """What a loop is started for."""


def _bring_a_loop(original: Function) -> Function:
    def open(self: Any) -> Any:
        asyncio.run(_nothing())
        return original(self)

    return open


def _stay_dead(original: Function) -> Function:
    def bury(self: Any, dead: Any, deadline: Any) -> None:
        raise dead.close_error

    return bury


def _open_at_once(original: Function) -> Function:
    def reduce(self: Any) -> Any:
        make, (target, settings) = original(self)
        return make, (target, {**settings, "lazy": False})

    return reduce


def _wait_at_exit(original: Function) -> Function:
    """Run jobs on threads that the interpreter joins."""

    def submit(self: Any, job: Any) -> None:
        pool = vars(self).setdefault("pool", ThreadPoolExecutor(self._limit, self._name))
        pool.submit(job)

    return submit


def _run_what_stood_in_line(original: Function) -> Function:
    def next_in_line(self: Any) -> Any:
        call = self._table.next_queued()
        if call is None:
            return None
        call.may_send = True
        return call.out

    return next_in_line


def _wait_in_one_piece(original: Function) -> Function:
    return lambda lock, seconds: lock.acquire(timeout=-1 if seconds is None else max(seconds, 0.0))


def _resume_old_lists(original: Function) -> Function:
    """Begin a list where the last one of the kind was left, whatever connection that was."""
    left: dict[str, Any] = {}

    def begin(step: Any) -> list[Any]:
        if step.params is None and step.method in left:
            return [step._replace(params={"cursor": left[step.method]})]
        return [step]

    def change(original: Function) -> Function:
        def pages(method: str, *args: Any, **named: Any) -> Any:
            @of_replies
            def remember(reply: Any) -> Any:
                left.pop(method, None)
                if "nextCursor" in reply.result:
                    left[method] = reply.result["nextCursor"]
                return reply

            return effects(begin, remember)(original)(method, *args, **named)

        return pages

    return change(original)


@of_replies
def _end_at_once(reply: Any) -> Any:
    kept = {name: value for name, value in reply.result.items() if name != "nextCursor"}
    return reply._replace(result=kept)


@of_replies
def _end_at_an_empty_cursor(reply: Any) -> Any:
    return _end_at_once(reply) if reply.result.get("nextCursor") == "" else reply


@of_replies
def _end_at_an_empty_page(reply: Any) -> Any:
    return _end_at_once(reply) if [] in reply.result.values() else reply


def _forget_cursors(original: Function) -> Function:
    def check(self: Any, cursor: str) -> None:
        self._seen.clear()
        original(self, cursor)

    return check


def _let_refusals_be(original: Function) -> Function:
    def init(self: Any, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        self._refusals_left = 0

    return init


CALLS = (
    Mutant(
        "no-total-limit",
        "a deadline never comes",
        "syncmcp._concurrency.timing:Deadline.__init__",
        lambda original: lambda self, seconds: original(self, None),
        ("TMO-02", "TMO-03", "4"),
    ),
    Mutant(
        "links-ignored",
        "a token does not follow the tokens it was linked to",
        "syncmcp._concurrency.cancel:CancelToken._follow",
        always(None),
        ("M-02",),
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
        "syncmcp._base.secrets:Secrets.redact",
        lambda original: lambda self, text, **cut: text,
        ("HTL-13",),
    ),
    Mutant(
        "progress-extends-the-limit",
        "each progress notification starts the total limit anew",
        "syncmcp._connection.notifications:NotificationRouter._progress",
        _let_progress_extend_the_limit,
        ("TMO-03", "20"),
    ),
    Mutant(
        "progress-to-anyone",
        "progress goes to the call in flight, whatever its token",
        "syncmcp._connection.task_calls:TaskCallTracker.owner",
        _ignore_the_token,
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
        f"{CONNECTION}._on_request",
        _ignore_pings,
        ("RPC-24",),
    ),
    Mutant(
        "stateless-answers",
        "a request of a stateless server is answered",
        f"{CONNECTION}._on_request",
        _answer_in_the_stateless_era,
        ("RPC-26",),
    ),
    Mutant(
        "handshake-cancelled",
        "giving up on `initialize` sends a cancel",
        "syncmcp._connection.notifier:_NEVER_CANCELLED",
        lambda original: original - {"initialize"},
        ("CAN-02",),
    ),
    Mutant(
        "stumble-over-late-answers",
        "an answer to nothing that is open raises where frames are read",
        f"{CONNECTION}._on_response",
        _stumble_over_late_answers,
        ("CAN-05",),
    ),
    Mutant(
        "deaths-untold",
        "open calls do not hear that the server is gone",
        f"{CONNECTION}.lost",
        _tell_nobody_of_the_end,
        ("5",),
    ),
    Mutant(
        "interrupts-untold",
        "the server does not hear of a call that Ctrl-C ended",
        f"{CONNECTION}.cancel",
        _keep_what_was_interrupted,
        ("9",),
    ),
    Mutant(
        "others-exchanges",
        "a thread that has its answer runs the next one's exchange",
        f"{CONNECTION}._next_in_line",
        _run_what_stood_in_line,
        ("H11",),
    ),
)

CLIENTS = (
    Mutant(
        "no-limits-by-default",
        "a call without options has no limit",
        "syncmcp._connection.options:ResolvedOptions.of",
        _make_limits_an_option,
        ("TMO-01",),
    ),
    Mutant(
        "bound-to-one-thread",
        "a client cannot be closed but in the main thread",
        f"{CORE}.close",
        _close_where_it_was_opened,
        ("1", "STD-09"),
    ),
    Mutant(
        "loop-inside",
        "opening runs an event loop",
        f"{CORE}.open",
        _bring_a_loop,
        ("3",),
    ),
    Mutant(
        "never-started-again",
        "a server that died stays dead",
        f"{CORE}._clean_up_dead",
        _stay_dead,
        ("STD-07",),
    ),
    Mutant(
        "pickled-for-nothing",
        "an unpickled client does not open at its first call",
        f"{CLIENT}.__reduce__",
        _open_at_once,
        ("32",),
    ),
    Mutant(
        "forks-unnoticed",
        "a client does not know that it is in a forked child",
        f"{CORE}.check_process",
        always(None),
        ("32",),
    ),
    Mutant(
        "unopened-clients-stay-behind",
        "a client that is not open at a fork is dead in the child all the same",
        f"{CORE}.reset_after_fork",
        always(None),
        ("32",),
    ),
    Mutant(
        "patches-unnoticed",
        "a client opens though gevent has patched too little or too late",
        "syncmcp._concurrency.timing:check_gevent",
        always(None),
        ("3",),
    ),
    Mutant(
        "joined-at-exit",
        "the interpreter waits for what the pool runs",
        "syncmcp._concurrency.pool:DaemonPool.submit",
        _wait_at_exit,
        ("6", "H7"),
    ),
    Mutant(
        "waiting-in-one-piece",
        "the main thread waits for as long as it takes, also where that keeps Ctrl-C out",
        "syncmcp._concurrency.timing:acquire",
        _wait_in_one_piece,
        ("H9",),
    ),
)

LISTS = (
    Mutant(
        "empty-cursor-ends",
        "a list ends at a cursor that is the empty string",
        f"{PAGINATION}:pages",
        effects(lambda step: [step], _end_at_an_empty_cursor),
        ("PAG-01",),
    ),
    Mutant(
        "empty-page-ends",
        "a list ends at a page without items",
        f"{PAGINATION}:pages",
        effects(lambda step: [step], _end_at_an_empty_page),
        ("PAG-02",),
    ),
    Mutant(
        "cursors-outlive-sessions",
        "a list begins where the last one was left",
        f"{PAGINATION}:pages",
        _resume_old_lists,
        ("PAG-04",),
    ),
    Mutant(
        "cursors-cross-sessions",
        "a list goes on with its cursor in another session",
        "syncmcp._protocol.steps:SessionPin.check",
        always(None),
        ("PAG-04",),
    ),
    Mutant(
        "refused-cursors-end-lists",
        "a refused cursor ends the list",
        f"{PAGINATION}:Paginator.__init__",
        _let_refusals_be,
        ("CCH-07",),
    ),
    Mutant(
        "first-page-alone",
        "a list is its first page",
        f"{PAGINATION}:pages",
        effects(lambda step: [step], _end_at_once),
        ("19", "M-35"),
    ),
    Mutant(
        "circles-unnoticed",
        "cursors that come again are followed",
        f"{PAGINATION}:PageGuard.check",
        _forget_cursors,
        ("19",),
    ),
)

MUTANTS = CALLS + CONNECTIONS + CLIENTS + LISTS
