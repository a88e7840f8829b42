"""The in-process transport: what becomes of a failure on either of its threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from syncmcp.auth import Deadline
from syncmcp.errors import ConnectionLost
from syncmcp.transports.memory import MemoryTransport
from tests.transports._stdio import PATIENCE, Notes, frame


class Echo:
    """A server whose answer is the question."""

    name = "echo"

    def connect(self, deliver: Callable[[bytes], None], on_close: Callable[[], None]) -> Echo:
        self._deliver = deliver
        return self

    def receive(self, frame: bytes) -> None:
        self._deliver(frame)

    def close(self) -> None:
        """Nothing to end."""


def test_a_reader_that_fails_unexpectedly_ends_the_connection_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notes = Notes()
    failure = ZeroDivisionError("surprise")

    def fail() -> None:
        raise failure

    notes.on_receive = fail
    transport = MemoryTransport(Echo())
    transport.open(notes, Deadline(PATIENCE))
    transport.send(frame())
    error = notes.wait_lost()
    transport.close(Deadline(PATIENCE))
    assert type(error) is ConnectionLost
    assert error.__cause__ is failure
    assert len(notes.losses) == 1
    assert [one.levelname for one in caplog.records if one.exc_info] == ["ERROR"]


def test_a_server_in_this_process_leaves_nothing_to_describe() -> None:
    assert MemoryTransport(Echo()).describe() == ""
