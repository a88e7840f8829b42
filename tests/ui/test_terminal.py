"""Forms and links at a terminal, and questions that end without an answer."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import syncmcp
from syncmcp.approval import Approval, AuditRecord
from syncmcp.errors import Denied, UsageError
from syncmcp.handlers import CausingCall
from syncmcp.handlers.context import FileChosenName
from syncmcp.handlers.forms import UnsupportedForm
from syncmcp.testing import demo_server
from syncmcp.types import ElicitResult
from syncmcp.ui.terminal import Terminal
from tests.support.stage import PATIENCE, Clock
from tests.ui import asking as made
from tests.ui.person import CLEAR_LINE, CTRL_C, CTRL_D, DOWN, ENTER, UP, Person
from tests.ui.terminal_questions import Asking, asked, completion, form, link, question

EVERY_KIND: dict[str, Any] = {
    "name": {"type": "string", "title": "Your name", "description": "As in your passport"},
    "ratio": {"type": "number", "default": 0.5},
    "agree": {"type": "boolean"},
    "colour": {
        "type": "string",
        "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}],
    },
    "days": {
        "type": "array",
        "items": {"type": "string", "enum": ["mon", "tue", "wed"]},
        "minItems": 1,
        "default": ["tue"],
    },
    "password": {"type": "string"},
}


@pytest.fixture
def opened() -> list[str]:
    """A list to which each opened link is added."""
    return []


@pytest.fixture
def terminal(person: Person, opened: list[str]) -> Terminal:
    def open_url(url: str) -> bool:
        opened.append(url)
        return True

    return Terminal(person.stdin, person.stdout, open_url=open_url)


@pytest.mark.parametrize(("name", "marked"), [(FileChosenName("bank"), True), ("bank", False)])
def test_a_name_that_a_file_chose_is_told_as_such(
    person: Person, asking: Asking, name: str, marked: bool
) -> None:
    """It may equal the name that the program chose for another server."""
    answer = asking("form", form(), made.context(made.server(name)))
    person.answers("» Fill in the form", CTRL_C)
    assert answer.result(PATIENCE).action == "cancel"
    assert ("A servers file chose this name, not this program." in person.screen) is marked


@pytest.mark.requirement("M-18", "ELI-05", "ELI-07", "ELI-14")
def test_a_form_is_filled_in_field_by_field(person: Person, asking: Asking) -> None:
    context = asked(call=CausingCall("tools/call", {"name": "sign_up"}))
    answer = asking("form", form(EVERY_KIND, ("name", "agree", "days")), context)
    person.sees("━━ notes asks you to fill in a form ━━")
    person.sees("Because of this program's call: tools/call “sign_up”")
    person.answers("What do you want to do?", ENTER)
    person.sees("Field 1 of 6, required *")
    person.sees("│ As in your passport")
    person.answers("“Your name” *:", "Ada", ENTER)
    person.sees("Field 2 of 6, optional")
    person.answers("“ratio”: 0.5", ENTER)
    person.answers("“agree” *:", DOWN, ENTER)
    person.answers("Green (g)", UP, ENTER)
    person.answers("“days” *:", "ai", " ", ENTER)  # letters select nothing
    person.sees("Warning: this looks like a secret.")
    person.answers("“password”:", ENTER)
    person.sees("│ “password”: (left out)")
    person.sees("│ “colour”: Green (g)")
    person.sees("│ “days”: mon, tue")
    person.answers("Ready to send?", UP, ENTER)
    assert answer.result(PATIENCE) == ElicitResult.accept(
        {"name": "Ada", "ratio": 0.5, "agree": False, "colour": "g", "days": ["mon", "tue"]}
    )
    assert person.cooked


LIMITED: dict[str, tuple[dict[str, Any], str]] = {
    "whole": ({"type": "integer", "minimum": 1, "maximum": 10}, "A whole number from 1 to 10."),
    "number": ({"type": "number", "maximum": 0.5}, "A number, at most 0.5."),
    "text": ({"type": "string", "maxLength": 40}, "At most 40 characters."),
    "date": ({"type": "string", "format": "date"}, "A date, like 2026-01-31."),
    "pattern": ({"type": "string", "pattern": "^[ab]+$"}, "It must match the pattern:\n│ ^[ab]+$"),
    "choices": (
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 1},
        "At most 1 of the options.",
    ),
}


@pytest.mark.parametrize("name", LIMITED)
def test_the_type_and_the_limits_of_a_field_are_seen_before_the_answer(
    person: Person, asking: Asking, name: str
) -> None:
    schema, words = LIMITED[name]
    answer = asking("form", form({name: schema}), asked())
    person.answers("What do you want to do?", ENTER)
    person.sees("Esc: back")
    assert f"│ {name}\n{words}\n? “{name}”:" in person.screen
    person.types(CTRL_C)
    assert answer.result(PATIENCE).action == "cancel"


def test_a_problem_is_shown_once_the_person_has_finished(person: Person, asking: Asking) -> None:
    fields = {"to": {"type": "string", "format": "email"}}
    answer = asking("form", form(fields, ("to",)), asked())
    person.answers("What do you want to do?", ENTER)
    person.sees("Esc: back")
    typed = "ada@example.org"
    for end in range(1, len(typed) + 1):
        person.types(typed[end - 1])
        person.sees(f"“to” *: {typed[:end]}")
    person.types(ENTER)
    person.answers("Ready to send?", UP, ENTER)
    assert answer.result(PATIENCE).content == {"to": typed}
    assert b"Enter an" not in person.raw


def test_a_wrong_answer_goes_back_to_the_person(person: Person, asking: Asking) -> None:
    days = {"type": "array", "items": {"type": "string", "enum": ["mon", "tue"]}, "maxItems": 1}
    fields = {"age": {"type": "integer", "minimum": 18}, "days": days}
    answer = asking("form", form(fields, ("age", "days")), asked())
    person.answers("What do you want to do?", ENTER)
    person.answers("“age” *:", ENTER)
    person.answers("This field needs an answer.", "x", ENTER)
    person.answers("“age” *: x", CLEAR_LINE, "17", ENTER)
    person.answers("18", CLEAR_LINE, "18", ENTER)
    person.answers("“days” *:", " ", DOWN, " ", ENTER)
    person.answers("“days” *: (arrow keys, space to tick, Enter)", " ", ENTER)
    person.answers("Ready to send?", UP, ENTER)
    assert answer.result(PATIENCE).content == {"age": 18, "days": ["mon"]}


@pytest.mark.requirement("ELI-07")
def test_an_answer_is_changed_before_it_is_sent(person: Person, asking: Asking) -> None:
    answer = asking("form", form(), asked())
    person.answers("What do you want to do?", ENTER)
    person.answers("“name” *:", "Ada", ENTER)
    person.answers("Ready to send?", ENTER)
    person.answers("Which answer?", ENTER)
    person.answers("“name” *: Ada", CLEAR_LINE, "Grace", ENTER, times=2)
    person.answers("│ “name”: Grace", UP, ENTER)
    assert answer.result(PATIENCE).content == {"name": "Grace"}


def test_an_empty_answer_is_shown_as_such(person: Person, asking: Asking) -> None:
    days = {"type": "array", "items": {"type": "string", "enum": ["mon", "tue"]}}
    answer = asking("form", form({"name": {"type": "string"}, "days": days}, ("days",)), asked())
    person.answers("What do you want to do?", ENTER)
    person.answers("Field 1 of 2", ENTER)
    person.sees("? “name”: (empty)\n")
    person.answers("Field 2 of 2", ENTER)
    person.sees("? “days” *: (none)\n")
    person.answers("Ready to send?", UP, ENTER)
    assert answer.result(PATIENCE).content == {"days": []}


def test_an_erased_default_is_shown_as_what_will_be_sent(person: Person, asking: Asking) -> None:
    answer = asking("form", form({"size": {"type": "integer", "default": 3}}), asked())
    person.answers("What do you want to do?", ENTER)
    person.answers("“size”: 3", CLEAR_LINE, ENTER)
    person.answers("│ “size”: 3 (the default)", UP, ENTER)
    assert answer.result(PATIENCE) == ElicitResult.accept({})


@pytest.mark.parametrize(
    ("keys", "later", "action"),
    [
        ((DOWN, ENTER), "", "decline"),
        ((DOWN, DOWN, ENTER), "", "cancel"),
        ((CTRL_C,), "", "cancel"),
        ((ENTER,), CTRL_C, "cancel"),
        ((ENTER,), CTRL_D, "cancel"),
    ],
)
@pytest.mark.requirement("ELI-06")
def test_a_form_can_be_declined_or_cancelled(
    person: Person, asking: Asking, keys: tuple[str, ...], later: str, action: str
) -> None:
    answer = asking("form", form(), asked())
    person.answers("What do you want to do?", *keys)
    if later:
        person.answers("“name” *:", later)
    assert answer.result(PATIENCE) == ElicitResult(action=action)  # type: ignore[arg-type]
    if keys == (CTRL_C,) or later:
        person.sees("Cancelled.")
    assert person.cooked


def test_enter_alone_sends_no_answers(person: Person, asking: Asking) -> None:
    """To send comes first, but is not preset: a person may press Enter by reflex."""
    answer = asking("form", form(), asked())
    person.answers("What do you want to do?", ENTER)
    person.answers("“name” *:", "Ada", ENTER)
    person.sees("   Send these answers\n » Change an answer\n   Cancel: send nothing\n")
    person.types(ENTER)
    person.answers("Which answer?", CTRL_C)
    assert answer.result(PATIENCE).action == "cancel"


@pytest.mark.parametrize(
    ("keys", "answer"),
    [((ENTER,), ElicitResult.cancel()), ((UP, ENTER), ElicitResult.accept({}))],
)
def test_a_form_without_fields_is_sent_only_if_the_person_says_so(
    person: Person, asking: Asking, keys: tuple[str, ...], answer: ElicitResult
) -> None:
    given = asking("form", form({}), asked())
    person.answers("What do you want to do?", ENTER)
    person.sees("\nThe form has no fields: there is nothing to fill in.\n")
    person.answers("   Send the empty form\n » Cancel: send nothing\n", *keys)
    assert given.result(PATIENCE) == answer


def test_what_is_not_valid_yet_is_named_and_changed_first(person: Person, asking: Asking) -> None:
    fields = {"a": {"type": "string"}, "b": {"type": "integer", "title": "Bees"}}
    wrong = ElicitResult.accept({"b": "x", "c": 1})
    verdict = asking("review", question("form", form(fields, ("a", "b")), wrong))
    person.sees("\nThe answers so far:\n")
    for label in ("a", "Bees", "c"):
        person.sees(f"\nNot valid yet: “{label}”\n│ ")
    person.sees(
        "? Not ready to send: (arrow keys, Enter)\n » Change an answer: 3 are not valid yet"
    )
    assert "Send these answers" not in person.screen
    person.types(CTRL_C)
    assert not verdict.result(PATIENCE).allowed
    missing = ElicitResult.accept({"a": "A"})
    verdict = asking("review", question("form", form(fields, ("a", "b")), missing))
    person.answers(" » Change an answer: “Bees” is not valid yet\n   Cancel: send nothing", ENTER)
    person.answers("   “a”\n » “Bees”: not valid yet", ENTER)
    person.answers("? “Bees” *:", "3", ENTER)
    person.answers("   Send these answers\n » Change an answer\n", UP, ENTER)
    assert verdict.result(PATIENCE).answer.content == {"a": "A", "b": 3}


def test_a_form_outside_the_subset_is_not_shown(person: Person, terminal: Terminal) -> None:
    with pytest.raises(UnsupportedForm, match="inner"):
        terminal.form(form({"inner": {"type": "object", "properties": {}}}), asked())
    assert person.screen == ""


@pytest.mark.requirement("M-20")
def test_a_withdrawn_question_goes_away_and_says_so(
    person: Person, asking: Asking, clock: Clock
) -> None:
    context = asked(timeout=110)
    answer = asking("form", form(), context)
    person.sees("What do you want to do?")
    person.sees(" left to answer")
    assert re.search(r"server: notes  1:[0-5]\d left to answer", person.screen)
    context.cancel.cancel("changed my mind\x1b[2J")
    assert answer.result(PATIENCE) == ElicitResult.cancel()
    person.sees("Withdrawn: no answer is needed any more.")
    person.sees("│ changed my mind␛[2J")
    assert "left to answer" not in person.screen
    assert person.cooked


@pytest.mark.requirement("M-20")
def test_a_question_ends_when_its_time_is_over(
    person: Person, asking: Asking, clock: Clock
) -> None:
    answer = asking("form", form(), asked(timeout=2.0))
    person.sees("0:02 left to answer")
    clock.advance(1.5)
    person.sees("0:01 left to answer")
    clock.advance(0.5)
    assert answer.result(PATIENCE) == ElicitResult.cancel()
    person.sees("The time to answer has run out.")


def test_questions_wait_for_each_other(
    person: Person, terminal: Terminal, pool: ThreadPoolExecutor
) -> None:
    other = Terminal(person.stdin, person.stdout)
    first = pool.submit(terminal.form, form(message="first"), asked())
    person.sees("│ first")
    withdrawn = asked()
    second = pool.submit(other.form, form(message="second"), withdrawn)
    person.sees("1 more question waiting")
    late = pool.submit(other.form, form(message="late"), asked(timeout=0.05))
    assert late.result(PATIENCE) == ElicitResult.cancel()
    third = pool.submit(terminal.form, form(message="third"), asked())
    person.sees("2 more questions wait")
    withdrawn.cancel.cancel()
    assert second.result(PATIENCE) == ElicitResult.cancel()
    person.types(CTRL_C)
    assert first.result(PATIENCE).action == "cancel"
    person.answers("│ third", CTRL_C)
    assert third.result(PATIENCE).action == "cancel"
    assert "second" not in person.screen
    assert "late" not in person.screen


def test_keys_pressed_before_a_question_do_not_answer_it(person: Person, asking: Asking) -> None:
    person.types(ENTER * 3)
    person.sees("")
    answer = asking("review", question("sampling", completion()))
    person.sees("Let the model answer?")
    person.answers("» Deny", CTRL_C)
    assert not answer.result(PATIENCE).allowed


@pytest.mark.requirement("ELI-08", "ELI-09", "ELI-10", "ELI-11", "ELI-12")
def test_a_url_is_opened_after_consent_only(
    person: Person, asking: Asking, opened: list[str]
) -> None:
    context = asked(resumes_call=True)
    answer = asking("url", link(), context)
    person.sees("│ https://example.com/sign?in=1")
    person.sees("Its host:\n│ example.com")
    person.sees("What do you want to do?")
    assert opened == []
    person.types(DOWN, DOWN, ENTER)
    person.sees("Are you done there?")
    assert opened == ["https://example.com/sign?in=1"]
    assert not context.wait_completed(0)
    person.types(ENTER)
    assert answer.result(PATIENCE) == ElicitResult.accept()
    assert context.wait_completed(0)


@pytest.mark.parametrize(
    ("keys", "action"),
    [((ENTER,), "decline"), (("ok, open it", ENTER), "decline"), ((DOWN, ENTER), "cancel")],
)
@pytest.mark.requirement("ELI-06", "ELI-08")
def test_a_url_can_be_declined_or_cancelled(
    person: Person, asking: Asking, opened: list[str], keys: tuple[str, ...], action: str
) -> None:
    answer = asking("url", link(), asked())
    person.answers("What do you want to do?", *keys)
    assert answer.result(PATIENCE).action == action
    assert opened == []


@pytest.mark.parametrize(
    ("keys", "action"), [((DOWN, ENTER), "accept"), ((DOWN, DOWN, ENTER), "cancel")]
)
@pytest.mark.requirement("ELI-17")
def test_a_visit_need_not_be_waited_for(
    person: Person, asking: Asking, keys: tuple[str, ...], action: str
) -> None:
    context = asked(resumes_call=True)
    answer = asking("url", link(), context)
    person.answers("What do you want to do?", DOWN, DOWN, ENTER)
    person.answers("Are you done there?", *keys)
    assert answer.result(PATIENCE).action == action
    assert not context.wait_completed(0)


@pytest.mark.requirement("ELI-12", "SEC-04")
def test_by_default_the_browser_gets_the_address_and_no_shell_does(
    person: Person, pool: ThreadPoolExecutor, started: Queue[list[str]]
) -> None:
    url = "https://example.com/-n/%PATH%|reboot?b=$(reboot)&c=';reboot;"
    terminal = Terminal(person.stdin, person.stdout)
    answer = pool.submit(terminal.url, link(url), asked(resumes_call=True))
    person.sees("What do you want to do?")
    assert started.empty()
    person.types(DOWN, DOWN, ENTER)
    person.sees("Are you done there?")
    assert started.get(timeout=PATIENCE) == ["browser", url]
    person.types(ENTER)
    assert answer.result(PATIENCE) == ElicitResult.accept()
    assert started.empty()


def test_a_browser_that_does_not_start_is_reported(
    person: Person, pool: ThreadPoolExecutor
) -> None:
    def broken(url: str) -> bool:
        raise OSError(f"no browser for {url}")

    terminal = Terminal(person.stdin, person.stdout, open_url=broken)
    answer = pool.submit(terminal.url, link(), asked(resumes_call=True))
    person.answers("What do you want to do?", DOWN, DOWN, ENTER)
    person.sees("Warning: could not start the browser; open the address yourself")
    person.answers("Are you done there?", ENTER)
    assert answer.result(PATIENCE) == ElicitResult.accept()


@pytest.mark.requirement("ELI-13")
def test_a_host_that_looks_like_another_is_marked(person: Person, asking: Asking) -> None:
    answer = asking("url", link("https://xn--pple-43d.com/"), asked())
    person.sees("Warning:")
    person.answers("│ xn--pple-43d.com", CTRL_C)
    assert answer.result(PATIENCE).action == "cancel"


def test_an_unsafe_url_cannot_be_opened(person: Person, asking: Asking, opened: list[str]) -> None:
    answer = asking("url", link("http://example.com/"), asked())
    person.sees("Warning: this address will not be opened")
    person.sees("What do you want to do?")
    assert "Open it" not in person.screen
    person.types(ENTER)
    assert answer.result(PATIENCE) == ElicitResult.decline()
    assert opened == []


@contextmanager
def nowhere() -> Iterator[Terminal]:
    with Path(os.devnull).open() as stdin, Path(os.devnull).open("w") as stdout:
        yield Terminal(stdin, stdout)


def test_without_a_terminal_nobody_is_asked_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with nowhere() as terminal, caplog.at_level(logging.ERROR, "syncmcp.ui"):
        assert terminal.form(form(), asked()) == ElicitResult.cancel()
        assert terminal.url(link(), asked()) == ElicitResult.cancel()
        with pytest.raises(Denied, match="standard input is not a terminal"):
            terminal.review(question("sampling", completion()))
        terminal.update(question("sampling", completion()), "unseen\nunseen")
    assert len(caplog.records) == 3
    assert "standard input is not a terminal" in caplog.text


def test_without_a_terminal_the_record_says_that_nobody_decided() -> None:
    records: list[AuditRecord] = []
    with nowhere() as terminal:
        approval = Approval(reviewer=terminal, audit=records.append)
        answers: Any = {"sampling": lambda *_: None, "elicitation": lambda *_: None}
        with syncmcp.connect(demo_server(), approval=approval, **answers) as client:
            with pytest.raises(Denied, match="standard input is not a terminal") as caught:
                client.call_tool("request_llm_help", {"question": "?"})
            assert client.call_tool("ask_user_preferences").data == {"action": "cancel"}
    assert caught.value.by == "nobody"
    told = [(record.kind, record.by) for record in records]
    assert told == [("sampling", "nobody"), ("form", "nobody")]


@pytest.mark.parametrize("kind", ["dumb", "Unknown"])
def test_a_terminal_that_only_prints_lines_is_not_asked(
    person: Person,
    terminal: Terminal,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setenv("TERM", kind)
    why = f"the terminal cannot move the cursor (TERM={kind}); if it can, set TERM to its type"
    with caplog.at_level(logging.ERROR, "syncmcp.ui"):
        assert terminal.form(form(), asked()) == ElicitResult.cancel()
        assert why in caplog.text
        with pytest.raises(Denied, match=re.escape(why)) as denied:
            terminal.review(question("sampling", completion()))
    assert "or use another handler, such as syncmcp.ui.browser.Browser" in str(denied.value)
    terminal.update(question("sampling", completion()), "unseen\nunseen")
    assert person.raw == b""


def test_a_program_without_streams_is_told_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(Denied, match="cannot ask"):
        Terminal().review(question("sampling", completion()))


def test_missing_packages_are_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "syncmcp.ui.terminal.screen", None)
    with pytest.raises(UsageError, match=r"install syncmcp-client\[terminal\]"):
        Terminal()
