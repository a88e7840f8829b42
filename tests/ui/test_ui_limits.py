"""The time limits of questions in a browser and at a terminal, on a simulated clock."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue

import pytest

from syncmcp.approval import Question
from syncmcp.types import ListRootsRequestParams
from syncmcp.ui.browser import Browser
from syncmcp.ui.browser.cards import ConsentCard
from syncmcp.ui.terminal import _turn
from syncmcp.ui.terminal.screen import _SILENCE_SECONDS as SILENCE
from syncmcp.ui.terminal.screen import QuestionEnded
from tests.support.moved_time import MovedTime
from tests.support.stage import PATIENCE
from tests.ui.asking import Asked, context, form, question, server
from tests.ui.person import CTRL_C, Person
from tests.ui.terminal_questions import Asking
from tests.ui.visitor import Visitor

LIMIT = 600.0


@pytest.mark.parametrize("whose", ["interface", "client"])
def test_a_question_in_the_browser_ends_at_its_limit(whose: str, moved: MovedTime) -> None:
    within = context(timeout=LIMIT) if whose == "client" else None
    card = ConsentCard(Question("roots", server(), ListRootsRequestParams(), within), LIMIT)
    wait = partial(card.wait, lambda: None)
    assert moved.ending(LIMIT, wait, partial(moved.waits_for, LIMIT)) is None
    assert card.state == "expired"


@pytest.mark.parametrize(("visible", "limit"), [("yes", 10.0), ("no", 90.0)])
def test_a_question_opens_a_page_again_when_the_page_was_closed(
    visible: str, limit: float, moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp.ui.browser.monotonic", moved.now)
    opened: SimpleQueue[str] = SimpleQueue()
    with Browser(open_page=opened.put) as browser:
        first = Asked(browser.form, form(), context())
        opened.get(timeout=PATIENCE)
        with Visitor(browser) as visitor:
            (page,) = visitor.waiting()
            visitor.send(page, "decline")
            assert first.answer().action == "decline"
            visitor.get(f"state?page={page.key}&visible={visible}")  # the last request of the page
        second = Asked(browser.form, form(), context())
        moved.waits_for(limit)
        moved.advance(limit - 0.5)
        moved.waits_for(0.5)
        assert opened.empty()
        moved.advance(0.5)
        opened.get(timeout=PATIENCE)
        moved.waits_for(90.0)
        moved.advance(90.0)
        opened.get(timeout=PATIENCE)
    assert second.answer().action == "cancel"


def test_a_question_waits_for_the_terminal_until_its_limit(moved: MovedTime) -> None:
    def wait() -> None:
        with _turn(context(timeout=LIMIT)):
            pass

    with _turn(None):
        error = moved.ending(LIMIT, wait, partial(moved.waits_for, LIMIT))
    assert isinstance(error, QuestionEnded)


def test_keys_count_after_half_a_second_without_one(
    person: Person, asking: Asking, moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp.ui.terminal.screen._SILENCE_SECONDS", SILENCE)
    answer = asking("review", question("roots"))
    person.sees("Pause typing for half a second; until then, keys are ignored.")
    moved.advance(0.5)
    person.sees("» De")
    person.types(CTRL_C)
    answer.result(PATIENCE)
