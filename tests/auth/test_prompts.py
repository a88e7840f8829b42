"""A prompt that is answered by no answer, again and again: it is given up, and says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import requests

from syncmcp.auth import Deadline, LoopbackReceiver, OAuth, PasteReceiver, SignInRequest
from syncmcp.auth.receiver import MOST_PROMPTS
from syncmcp.auth.steps import Redirect
from syncmcp.errors import LoginRequired
from tests.auth.authorization_server import WAIT, call, world
from tests.support.parts import Exchange

STATE = "canary-state-77ab1c"
REDIRECT = Redirect("https://as.example/authorize", "http://127.0.0.1:51763/callback", STATE)
REQUEST = SignInRequest("https://mcp.example/mcp", "https://as.example")
ANSWER = f"?code=x&state={STATE}"


class Terminal:
    """Returns a line at once, and another one from a certain prompt on."""

    def __init__(self, line: str, answer: str | None = None, at: int = 0) -> None:
        self.line, self.answer, self.at = line, answer, at
        self.asked = 0
        self.shown: list[str] = []

    def ask(self, prompt: str) -> str:
        self.asked += 1
        return self.answer if self.answer is not None and self.asked >= self.at else self.line


def paste(terminal: Terminal) -> Any:
    with (
        Exchange(),
        PasteReceiver(terminal.shown.append, terminal.ask).start() as waiting,
    ):
        return waiting.receive(REDIRECT, Deadline(WAIT))


@pytest.mark.parametrize("line", ["", "y", "?code=x&state=another"])
def test_a_paste_is_given_up_after_some_lines_that_are_no_answer(line: str) -> None:
    terminal = Terminal(line)
    with pytest.raises(
        LoginRequired, match=f"none of the {MOST_PROMPTS} lines entered was an answer"
    ) as caught:
        paste(terminal)
    assert STATE not in str(caught.value)
    assert (terminal.asked, len(terminal.shown)) == (MOST_PROMPTS, MOST_PROMPTS)


def test_the_last_line_may_be_the_answer() -> None:
    assert paste(Terminal("", ANSWER, MOST_PROMPTS)) == {"code": "x", "state": STATE}


RECEIVERS: dict[str, Callable[[Terminal], Any]] = {
    "browser": lambda terminal: LoopbackReceiver(show=terminal.shown.append, ask=terminal.ask),
    "paste": lambda terminal: PasteReceiver(terminal.shown.append, terminal.ask),
}


@pytest.mark.parametrize("make", RECEIVERS.values(), ids=RECEIVERS)
def test_an_agreement_is_given_up_after_some_lines_that_are_neither_yes_nor_no(
    make: Callable[[Terminal], Any],
) -> None:
    terminal = Terminal("maybe")
    with pytest.raises(LoginRequired, match=f"{MOST_PROMPTS} lines .*allow="):
        make(terminal).agree(REQUEST, Deadline(WAIT))
    assert terminal.asked == MOST_PROMPTS
    assert make(Terminal("maybe", "yes", MOST_PROMPTS)).agree(REQUEST, Deadline(WAIT)) is True


def test_a_listener_waits_on_for_the_browser_when_the_prompt_is_given_up() -> None:
    terminal = Terminal("y")  # agrees, and is no address
    browsers: list[threading.Thread] = []

    def browse(prompt: threading.Thread, url: str) -> None:
        prompt.join(WAIT)
        requests.get(url, timeout=WAIT).close()

    def ask(prompt: str) -> str:
        if terminal.asked == MOST_PROMPTS:
            (url,) = [word for word in terminal.shown[1].split() if "/authorize?" in word]
            args = (threading.current_thread(), url)
            browsers.append(threading.Thread(target=browse, args=args, daemon=True))
            browsers[0].start()
        return terminal.ask(prompt)

    receiver = LoopbackReceiver(open_browser=False, show=terminal.shown.append, ask=ask)
    with world() as resource:
        auth = OAuth(resource.url, receiver=receiver, login_timeout=WAIT / 2)
        assert call(resource, auth).status_code == 200
        browsers[0].join(WAIT)
    assert terminal.asked == 1 + MOST_PROMPTS
