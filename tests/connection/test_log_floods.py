"""A server cannot flood the program's log: one record a second of each kind, the rest counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp._base.secrets import Secrets
from syncmcp._concurrency.limited_log import LimitedLog
from tests.connection.puppet import Puppet
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Clock

TIMES = 500

LIMITED = "syncmcp._concurrency.limited_log"
TOKEN = "t0ken-aaaa-bbbb-cccc"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, LIMITED, stands=True)


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> logging.Logger:
    caplog.set_level(logging.INFO, "syncmcp.test")
    return logging.getLogger("syncmcp.test")


def test_each_kind_is_logged_once_a_second_with_the_number_of_the_others(
    clock: Clock, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log = LimitedLog()
    for number in range(100):
        log.log(logger, logging.WARNING, "odd: %d", number)
        log.log(logger, logging.ERROR, "worse: %d", number)
    clock.advance(0.9)
    log.log(logger, logging.WARNING, "odd: %d", 100)
    assert caplog.messages == ["odd: 0", "worse: 0"]
    clock.advance(0.2)
    log.log(logger, logging.WARNING, "odd: %d", 101)
    clock.advance(1)
    log.log(logger, logging.WARNING, "odd: %d", 102)
    told = "odd: 101 (and 100 more like it since the last record)"
    assert caplog.messages[2:] == [told, "odd: 102"]


# What a server sends


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


FLOODS: dict[str, Callable[[int], Any]] = {
    "malformed": lambda number: b"[garbage",
    "unknown id": lambda number: {"jsonrpc": "2.0", "id": f"n{number}", "result": {}},
    "error without an id": lambda number: {
        "jsonrpc": "2.0", "id": None, "error": {"code": number, "message": "no"}
    },
    "progress of nothing": lambda number: note(
        "notifications/progress", progressToken=f"t{number}", progress=1
    ),
    "progress without a number": lambda number: note("notifications/progress", progressToken=1),
    "cancels of nothing": lambda number: note("notifications/cancelled", requestId=number),
    "visits of nobody": lambda number: note(
        "notifications/elicitation/complete", elicitationId=f"e{number}"
    ),
    "invalid log level": lambda number: note(
        "notifications/message", level=7, data=number
    ),
    "failing callback": lambda number: note("acme/fail"),
    # 2026-07-28 has no requests of a server.
    "requests where there are none": lambda number: {
        "jsonrpc": "2.0", "id": number, "method": "ping"
    },
}  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_what_is_odd_is_a_handful_of_records(
    flood: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "syncmcp.wire")
    caplog.set_level(logging.DEBUG, "syncmcp")
    read = threading.Event()

    def on_notification(method: str, params: object) -> None:
        if method == "acme/fail":
            raise ZeroDivisionError("in a callback")
        if method == "acme/end":
            read.set()

    def on_log(message: object) -> None:
        """Never called: the level is invalid."""

    options: dict[str, Any] = {"on_notification": on_notification, "on_log": on_log}
    revision: Any = STATELESS if "none" in flood else STATEFUL
    with syncmcp.connect(server := Puppet(), mode=revision, **options):
        caplog.clear()
        for start in range(0, TIMES, 100):  # fewer than are queued for a callback
            server.say(*map(FLOODS[flood], range(start, start + 100)), note("acme/end"))
            assert read.wait(PATIENCE)
            read.clear()
    by_message: dict[str, list[str]] = {}
    for record in caplog.records:
        if record.name.startswith("syncmcp."):
            kind = str(record.msg).partition(" (and")[0]
            by_message.setdefault(kind, []).append(record.getMessage())
    numbered = [few[-1] for few in by_message.values() if len(few) > 1]
    assert numbered
    assert [text for text in numbered if f"(and {TIMES - 2} more" not in text] == []
    assert {len(few) for few in by_message.values()} <= {1, 2}


def test_a_handler_that_fails_each_time_is_a_handful_of_tracebacks(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    left = threading.Semaphore(0)

    def fail(params: object, context: object) -> dict[str, Any]:
        raise ZeroDivisionError("in a handler")

    def failed(error: BaseException, context: object) -> None:
        left.release()
        raise LookupError("in on_handler_error")

    client = syncmcp.Client(server := Puppet(), mode=STATEFUL, on_handler_error=failed)
    client.on_request("acme/question", fail)
    with client:
        for number in range(50):
            server.say({"jsonrpc": "2.0", "id": f"q{number}", "method": "acme/question"})
            assert left.acquire(timeout=PATIENCE)
    assert sum("the handler of" in text for text in caplog.messages) <= 2
    assert sum("on_handler_error failed" in text for text in caplog.messages) <= 2
    assert sum(record.exc_info is not None for record in caplog.records) == 2


def test_what_a_server_can_provoke_in_the_log_is_cut_and_has_no_secret(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log, text = LimitedLog(Secrets([TOKEN])), f"{'x' * (1000 - len(TOKEN) // 2)}{TOKEN}"
    for number in range(3):
        log.log(logger, logging.INFO, "%s, %r, %s, %d", ValueError(TOKEN), TOKEN, text, number)
    log.flush()
    log.log(logger, logging.WARNING, "%s and %r", ValueError("x" * 10**6), "y" * 10**6)
    assert len(caplog.records) == 3
    assert len(caplog.messages[2]) < 2100
    assert TOKEN[:6] not in caplog.text
