"""Keys at a terminal: back to an earlier prompt, out of a question, and into a line again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncmcp.approval import Kind, ToolCall, Verdict
from syncmcp.servers_file import ServerReview
from syncmcp.types import ElicitResult
from tests.support.stage import PATIENCE
from tests.ui.person import (
    CLEAR_LINE,
    CTRL_C,
    CTRL_D,
    DOWN,
    ENTER,
    ESC,
    LEFT,
    UP,
    Person,
)
from tests.ui.terminal_questions import Asking, asked, completion, form, question, written

FIELDS: dict[str, Any] = {
    "name": {"type": "string"},
    "agree": {"type": "boolean"},
    "colour": {"type": "string", "enum": ["red", "green"]},
    "days": {"type": "array", "items": {"type": "string", "enum": ["mon", "tue"]}},
    "age": {"type": "integer"},
}
BACK = "Esc: back  Ctrl-C: cancel"


def test_esc_goes_back_from_every_kind_of_field_and_keeps_the_answers(
    person: Person, asking: Asking
) -> None:
    answer = asking("form", form(FIELDS, tuple(FIELDS)), asked())
    person.answers("What do you want to do?", ENTER)
    person.answers(BACK, "Ad", ENTER)
    person.answers("“agree” *: (arrow keys", DOWN, ENTER)
    person.answers("“colour” *: (arrow keys", DOWN, ENTER)
    person.answers("“days” *: (arrow keys", " ", ENTER)
    person.sees("Field 5 of 5")
    person.types("4", ESC)
    person.sees("? “age” *: (back)")
    person.answers("“days” *: (arrow keys", DOWN, " ", ESC)
    person.sees("? “days” *: (back)")
    person.answers("“colour” *: (arrow keys", ESC)
    person.sees("? “colour” *: (back)")
    person.answers("“agree” *: (arrow keys", ESC)
    person.sees("? “agree” *: (back)")
    person.sees("“name” *: Ad", times=2)
    person.answers(BACK, "a", ENTER)
    person.answers("» No", ENTER)
    person.answers("» green", ENTER)
    person.answers("● mon", ENTER)  # the tick of the prompt that the person left is gone
    person.sees("Field 5 of 5", times=2)
    person.types("42", ENTER)
    person.sees("│ “age”: 42")
    person.answers("Ready to send? (", UP, ENTER)
    assert answer.result(PATIENCE).content == {
        "name": "Ada", "agree": False, "colour": "green", "days": ["mon"], "age": 42
    }  # fmt: skip


def test_esc_goes_back_to_the_start_from_the_first_field_and_from_the_end_to_the_last(
    person: Person, asking: Asking
) -> None:
    answer = asking("form", form(), asked())
    person.answers("» Fill in the form", ENTER)
    person.answers(BACK, "Ada", ENTER)
    person.sees("Ready to send? (")
    person.answers(BACK, ESC)
    person.sees("? Ready to send? (back)")
    person.answers("“name” *: Ada", ESC, times=2)
    person.sees("? “name” *: (back)")
    person.answers("» Fill in the form", ENTER)
    person.answers("“name” *: Ada", ENTER, times=2)
    person.answers("Ready to send? (", UP, ENTER)
    assert answer.result(PATIENCE).content == {"name": "Ada"}


def test_esc_leaves_an_answer_as_it_is_when_it_is_changed_at_the_end(
    person: Person, asking: Asking
) -> None:
    given = ElicitResult.accept({"name": "Ada"})
    verdict = asking("review", question("form", form(), given))
    person.sees("» Change an answer")
    person.types(ESC)  # there is nothing before it
    person.types(ENTER)
    person.answers("Which answer? (", ESC)
    person.sees("? Which answer? (back)")
    person.answers("» Change an answer", ENTER)
    person.answers("Which answer? (", ENTER)
    person.answers(BACK, "x", ESC)
    person.sees("? “name” *: (back)")
    person.sees("│ “name”: Ada", times=3)
    person.answers("» Change an answer", UP, ENTER)
    assert verdict.result(PATIENCE) == Verdict.allow()


def test_esc_leaves_an_editor_without_a_change(person: Person, asking: Asking) -> None:
    verdict = asking("review", question("sampling", completion()))
    person.answers("» Deny", DOWN, ENTER)
    person.answers("What do you want to edit? (", ESC)
    person.sees("? What do you want to edit? (back)")
    person.answers("» Deny", DOWN, ENTER)
    person.answers("What do you want to edit? (", ENTER)
    person.answers("Esc, Esc: back", "changed", ESC, ESC)
    person.sees("? System prompt: (back)")
    person.answers("» Deny", DOWN, DOWN, ENTER)
    assert verdict.result(PATIENCE) == Verdict.allow()


def test_esc_goes_back_from_a_text_to_the_text_before(person: Person, asking: Asking) -> None:
    texts = [{"type": "text", "text": text} for text in ("one", "two")]
    answer = written()
    answer = answer.model_copy(update={"content": type(answer).from_wire(
        {**answer.to_wire(), "content": texts}).content})  # fmt: skip
    verdict = asking("review", question("sampling", completion(), answer))
    person.answers("» Deny", DOWN, ENTER)
    person.answers("Esc, Esc: back", "!", "\x1b\r")
    person.sees("? Text 2: ")
    person.types(ESC, ESC)
    person.sees("? Text 2: (back)")
    person.answers("Esc, Esc: back", "?", "\x1b\r")
    person.sees("? Text: one!?")
    person.answers("Esc, Esc: back", "\x1b\r")
    person.answers("» Deny", DOWN, DOWN, ENTER)
    sent = verdict.result(PATIENCE).answer
    assert [block.text for block in sent.blocks] == ["one!?", "two"]


# -- the word that confirms a call ----------------------------------------------------------------

CALL = ToolCall("rm", {"path": "/"}, None)


def test_a_mistyped_word_is_typed_again_on_an_empty_line(person: Person, asking: Asking) -> None:
    verdict = asking("review", question("tool", CALL))
    person.answers("» Deny", DOWN, ENTER)
    person.answers("Type “run” to call it", "rnu", ENTER)
    person.sees("“rnu” is not “run”, so nothing was called.")
    person.answers(BACK, "run", ENTER)
    assert verdict.result(PATIENCE) == Verdict.allow()


def test_esc_goes_back_from_the_word_to_the_choice(person: Person, asking: Asking) -> None:
    verdict = asking("review", question("tool", CALL))
    person.answers("» Deny", DOWN, ENTER)
    person.answers(BACK, "run", ESC)
    person.answers("» Deny", ENTER)
    assert verdict.result(PATIENCE) == Verdict.deny("a person said no")


# -- out of a question ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sampling", "roots", "tool", "url", "form"])
def test_ctrl_d_cancels_where_nothing_is_written(
    person: Person, asking: Asking, kind: Kind
) -> None:
    verdict = asking("review", question(kind, None))
    person.answers("» Deny", CTRL_D)
    assert verdict.result(PATIENCE) == Verdict.deny("the person cancelled")
    assert person.cooked


def test_ctrl_d_cancels_among_options_to_tick(person: Person, asking: Asking) -> None:
    answer = asking("form", form({"days": FIELDS["days"]}), asked())
    person.answers("» Fill in the form", ENTER)
    person.answers("○ tue", CTRL_D)
    assert answer.result(PATIENCE).action == "cancel"


def test_ctrl_d_deletes_a_character_of_a_written_text(person: Person, asking: Asking) -> None:
    answer = asking("form", form(), asked())
    person.answers("» Fill in the form", ENTER)
    person.answers(BACK, "Adda", LEFT, LEFT, CTRL_D, ENTER)
    person.answers("Ready to send? (", UP, ENTER)
    assert answer.result(PATIENCE).content == {"name": "Ada"}


def test_ctrl_d_cancels_before_the_first_prompt(
    person: Person, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp.ui.terminal.screen._SILENCE_SECONDS", 60.0)
    verdict = asking("review", question("roots", None))
    person.answers("Pause typing for half a second; until then, keys are ignored.", CTRL_D)
    assert verdict.result(PATIENCE) == Verdict.deny("the person cancelled")


@pytest.mark.parametrize("kind", ["sampling", "roots", "tool", "url", "form"])
def test_the_first_prompt_of_a_question_names_its_keys(
    person: Person, asking: Asking, kind: Kind
) -> None:
    """Nothing is before it, so Esc is not named."""
    verdict = asking("review", question(kind, None))
    person.sees("server: notes  Ctrl-C: cancel")
    assert "Esc" not in person.screen
    person.types(CTRL_C)
    assert not verdict.result(PATIENCE).allowed


def test_a_pause_and_a_server_of_a_file_name_their_keys(person: Person, asking: Asking) -> None:
    review = ServerReview("x", Path("mcp.json"), "stdio", ("node", "word " * 4000))
    approved = asking("approve", review)
    person.sees("lines were shown. (arrow keys, Enter)")
    person.answers("   Stop reading\nCtrl-C: cancel", CTRL_C)
    assert not approved.result(PATIENCE)
    approved = asking("approve", ServerReview("x", Path("mcp.json"), "stdio", ("node",)))
    person.answers("\n   Yes, use exactly this\nCtrl-C: cancel", CTRL_C)
    assert not approved.result(PATIENCE)


def test_esc_answers_nothing_where_nothing_is_before(person: Person, asking: Asking) -> None:
    verdict = asking("review", question("roots", None))
    person.sees("» Deny")
    assert "Esc" not in person.screen
    person.types(ESC)
    person.types(UP, UP, ENTER)  # wraps around to “Allow”
    assert verdict.result(PATIENCE) == Verdict.allow()


@pytest.mark.parametrize(
    "keys", ["\x1b\r", "\x0f", "\x1b[200~yes\x1b[201~", "\x1b[200~\n\x1b[201~"]
)
def test_no_key_of_an_editor_chooses_an_option(person: Person, asking: Asking, keys: str) -> None:
    """Alt-Enter is Enter after Esc. Ctrl-O and pasted text are ignored."""
    verdict = asking("review", question("roots", None))
    person.answers("» Deny", DOWN)
    person.answers("» Allow", UP, keys)
    if keys != "\x1b\r":
        person.types(DOWN)
        person.sees("» Allow")
        assert "yes" not in person.screen
        person.types(ENTER)
    assert verdict.result(PATIENCE).allowed is (keys != "\x1b\r")


def test_no_key_of_an_editor_ends_the_choice_of_options(person: Person, asking: Asking) -> None:
    days = {**FIELDS["days"], "minItems": 1}
    answer = asking("form", form({"days": days}, ("days",)), asked())
    person.answers("» Fill in the form", ENTER)
    person.answers("○ tue", "\x0f", " ")
    person.answers("● mon", ENTER)
    person.answers("Ready to send? (", UP, ENTER)
    assert answer.result(PATIENCE).content == {"days": ["mon"]}


def test_ctrl_c_cancels_in_a_field(person: Person, asking: Asking) -> None:
    answer = asking("form", form(), asked())
    person.answers("» Fill in the form", ENTER)
    person.answers(BACK, "Ada", CLEAR_LINE, "B", CTRL_C)
    assert answer.result(PATIENCE) == ElicitResult.cancel()
