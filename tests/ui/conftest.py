"""Fixtures of the tests of user interfaces: simulated persons, terminals, browsers, threads."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import pytest

from syncmcp.ui.browser import Browser
from syncmcp.ui.terminal import Terminal
from tests.support.stage import Clock
from tests.ui.person import CTRL_C, Person
from tests.ui.terminal_questions import Asking
from tests.ui.visitor import Visitor


@pytest.fixture(autouse=True)
def no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a terminal question accept keys at once: do not wait until the person stops typing."""
    monkeypatch.setattr("syncmcp.ui.terminal.screen._SILENCE_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def type_of_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let terminals move the cursor, even if the tests run where none can."""
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def browser() -> Iterator[Browser]:
    with Browser(open_page=None) as browser:
        yield browser


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    with Visitor(browser) as visitor:
        yield visitor


@pytest.fixture
def person() -> Iterator[Person]:
    with Person() as someone:
        yield someone


@pytest.fixture
def terminal(person: Person) -> Terminal:
    return Terminal(person.stdin, person.stdout)


@pytest.fixture
def pool(person: Person) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads
        # After a failed test, questions may be open; Ctrl-C ends them, so the pool can close.
        person.types(CTRL_C * 9)


@pytest.fixture
def asking(terminal: Terminal, pool: ThreadPoolExecutor) -> Asking:
    return lambda how, *about: pool.submit(getattr(terminal, how), *about)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Queue[list[str]]:
    """Start no program, but return the queue of the commands; the only browser is a command."""
    commands: Queue[list[str]] = Queue()

    class Process:
        def __init__(self, command: list[str], **options: Any) -> None:
            assert not options.get("shell"), command
            commands.put(command)

        def poll(self) -> None:
            return None

    browser = webbrowser.BackgroundBrowser(["browser", "%s"])
    monkeypatch.setattr("webbrowser._browsers", {"double": [None, browser]})
    monkeypatch.setattr("webbrowser._tryorder", ["double"])
    monkeypatch.setattr("subprocess.Popen", Process)
    return commands


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock of deadlines by one that moves only when the test moves it."""
    return Clock(monkeypatch, "syncmcp._concurrency.timing", stands=True)
