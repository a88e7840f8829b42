"""A real program on a terminal of its own ends while a question is open on another thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ui.person import WAIT, Person

pytestmark = pytest.mark.slow

PROGRAM = """
import fcntl, signal, sys, termios, threading
from syncmcp.ui.terminal import Terminal
from tests.ui.asking import context, form

fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the terminal that a shell would have given to it
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))
threading.Thread(target=lambda: Terminal().form(form(), context()), daemon=True).start()
try:
    signal.pause()
except KeyboardInterrupt:
    sys.exit(4)
"""


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGUSR1, 3), (signal.SIGINT, 4)])
def test_a_program_that_ends_in_the_middle_leaves_the_terminal_as_it_was(
    person: Person, sent: signal.Signals, status: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=person.slave,
        stdout=person.slave,
        stderr=person.slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            person.sees("What do you want to do?")
            assert not person.cooked
            process.send_signal(sent)
            assert process.wait(WAIT) == status
        finally:
            process.kill()
    assert person.cooked
    assert "Traceback" not in person.screen
