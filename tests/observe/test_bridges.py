"""The log messages of a server in `logging`, and its progress on progress bars."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

import syncmcp
from syncmcp.observe.logging import LogRecords, on_bar
from syncmcp.testing import Server, ToolContext
from syncmcp.types import LoggingMessageNotificationParams
from tests.support.stage import Wire, rotated, rotated_with

LEVELS = {
    "debug": "DEBUG",
    "info": "INFO",
    "notice": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "critical": "CRITICAL",
    "alert": "CRITICAL",
    "emergency": "CRITICAL",
}
SERVERS = logging.getLogger("servers")


def speaker() -> Server:
    """Return a server that logs at every level, and reports its progress."""
    server = Server("speaker")

    @server.tool()
    def speak(context: ToolContext) -> str:
        for level in LEVELS:
            context.log(level, f"a matter of {level}", "acme")
        return "said"

    @server.tool()
    def count(context: ToolContext, steps: int) -> str:
        for step in range(1, steps + 1):
            context.report_progress(step, steps, f"step\n{step}")
        return "counted"

    return server


def said(level: str, data: Any, logger: str | None = None) -> LoggingMessageNotificationParams:
    return LoggingMessageNotificationParams(level=level, data=data, logger=logger)


@rotated
@pytest.mark.requirement("M-25")
def test_what_a_server_logs_is_logged_by_a_logger_of_its_own(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "servers")
    with wire.connect(speaker(), on_log=SERVERS, name="acme.example\n:80") as client:
        client.set_log_level("debug")
        client.call_tool("speak")
    name = "servers.acme_example\u240a:80"
    records = [record for record in caplog.records if record.name == name]
    assert [(record.levelname, record.getMessage()) for record in records] == [
        (ours, f"[acme] a matter of {theirs}") for theirs, ours in LEVELS.items()
    ]
    facts: Any = records[2]
    assert (facts.mcp_level, facts.mcp_logger) == ("notice", "acme")
    assert facts.mcp_data == "a matter of notice"


@pytest.mark.requirement("LOG-01")
@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("a\nline \x1b[31mred\u202e\ud800", "a\u240aline \u241b[31mred<U+202E><U+D800>"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        (None, "null"),
        ("grüße", "grüße"),
        ("%s %d", "%s %d"),
        ("x" * 10_003, "x" * 10_000 + "… (3 more characters)"),
    ],
)
def test_a_record_is_one_line_whatever_a_server_says(
    data: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    LogRecords(SERVERS)(said("error", data, "a\rb"))
    LogRecords(SERVERS)(said("error", data))
    assert [record.getMessage() for record in caplog.records] == [f"[a\u240db] {text}", text]


@pytest.mark.requirement("LOG-01")
def test_levels_and_names_that_a_server_thinks_of_make_no_levels_and_no_loggers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "servers")
    before = len(logging.Logger.manager.loggerDict)
    for number in range(100):
        LogRecords(SERVERS)(said("loud", "x", f"name {number}"))
    assert len(logging.Logger.manager.loggerDict) == before
    assert [record.levelname for record in caplog.records] == ["DEBUG"] * 100


def test_what_the_logger_does_not_want_is_not_made() -> None:
    quiet = logging.getLogger("servers.quiet")
    quiet.setLevel(logging.ERROR)
    LogRecords(quiet)(said("warning", {object()}))  # not JSON, but never formatted


def test_a_client_that_is_pickled_goes_on_logging(caplog: pytest.LogCaptureFixture) -> None:
    client = syncmcp.Client("http://127.0.0.1:1/mcp", on_log=SERVERS, name="far")
    again = pickle.loads(pickle.dumps(client))
    assert repr(again._handlers.on_log) == "<LogRecords for 'servers.far'>"


class Plain:
    """A progress bar with only the required members."""

    def __init__(self) -> None:
        self.total: float | None = None
        self.shown = 0.0

    def update(self, n: float) -> None:
        self.shown += n


class Described(Plain):
    """A progress bar with a description."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def set_description(self, text: str) -> None:
        self.texts.append(text)


@rotated_with("kind", [Plain, Described])
@pytest.mark.requirement("M-23")
def test_the_progress_of_a_call_moves_a_bar(wire: Wire, kind: type[Plain]) -> None:
    bar = kind()
    with wire.connect(speaker()) as client:
        client.call_tool("count", {"steps": 3}, on_progress=on_bar(bar))
    assert (bar.total, bar.shown) == (3, 3)
    if isinstance(bar, Described):
        assert bar.texts[-1] == "step\u240a3"


def test_a_bar_whose_end_nobody_knows_only_moves() -> None:
    bar = Described()
    show = on_bar(bar)
    for progress in (2.0, 2.5):
        show(progress, None, None)
    assert (bar.total, bar.shown, bar.texts) == (None, 2.5, [])
