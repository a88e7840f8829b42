"""Narrow and low terminals: nothing is cut off, and nothing scrolls away unread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from syncmcp.approval import ToolCall, Verdict
from syncmcp.ui.terminal import Terminal
from tests.support.stage import PATIENCE
from tests.ui import asking as made
from tests.ui.person import CTRL_C, DOWN, ENTER, ESC, LEFT, Person
from tests.ui.terminal_questions import asked, completion, form, link, question

LONG = "Red, the colour of roses, of fire engines and of "


@pytest.fixture(params=[40, 60, 80])
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    with Person(rows=60, columns=request.param) as someone:
        yield someone


def words(person: Person) -> str:
    """Return all words on the screen, on one line."""
    return " ".join(person.screen.split())


def ask(pool: ThreadPoolExecutor, person: Person, how: str, *about: Any) -> Future[Any]:
    return pool.submit(getattr(Terminal(person.stdin, person.stdout), how), *about)


def test_all_words_of_a_choice_and_the_footer_are_read(
    person: Person, pool: ThreadPoolExecutor
) -> None:
    server = made.server("the server with a long name", info=None)
    for kind, message, grant in (
        ("tool", "Call it?", "Allow all calls of this tool while this program runs"),
        ("roots", "Tell the server?", "Allow each time while this program runs"),
        ("sampling", "answer?", "Approve this and all later requests while this program runs"),
    ):
        request = made.sampling() if kind == "sampling" else None
        context = made.context(server)
        about = question(kind, request, context=context)  # type: ignore[arg-type]
        verdict = ask(pool, person, "review", about)
        made.until(
            lambda: words(person).endswith("left to answer Ctrl-C: cancel")
        )  # the end of the footer
        assert f"{message} (arrow keys, Enter) » Deny" in words(person)
        assert grant in words(person)
        assert "server: the server with a long name " in words(person)
        person.types(CTRL_C)
        assert not verdict.result(PATIENCE).allowed
        made.until(lambda: words(person).endswith("Cancelled."))


def test_a_key_is_in_one_row_with_what_it_does(pool: ThreadPoolExecutor) -> None:
    footer = "server: notes  5:00 left to answer\nEsc: back  Ctrl-C: cancel"
    for columns in (36, 48, 60):
        with Person(rows=40, columns=columns) as person:
            answer = ask(pool, person, "form", form(), asked(timeout=300.0))
            person.answers("» Fill in the form", ENTER)
            person.sees("Field 1 of 1")
            made.until(lambda person=person: person.screen.endswith("cancel"))  # type: ignore[misc]
            assert re.sub(r"\d:\d\d", "5:00", person.screen).endswith(footer)
            person.types(CTRL_C)
            assert answer.result(PATIENCE).action == "cancel"


def test_all_words_of_a_field_its_options_and_its_problem_are_read(
    person: Person, pool: ThreadPoolExecutor
) -> None:
    fields: dict[str, Any] = {
        "when": {"type": "string", "format": "date-time"},
        "one": {"type": "string", "enum": [LONG + "brick", "green"]},
        "many": {
            "type": "array",
            "items": {"type": "string", "enum": [LONG + "blood", "blue"]},
            "minItems": 2,
        },
    }
    answer = ask(pool, person, "form", form(fields, tuple(fields)), made.context(made.server("s")))
    back = "left to answer Esc: back Ctrl-C: cancel"
    person.answers("» Fill in the form", ENTER)
    made.until(lambda: words(person).endswith(back))
    hint = "a date and time with its offset, like 2026-01-31T14:30:00+01:00."
    assert f"A{hint[1:]}" in words(person)
    person.types("x", ENTER)
    made.until(lambda: f"Enter {hint} server: s" in words(person))
    person.types("\x15", "2026-01-31 14:30", ENTER)
    made.until(lambda: f"» {LONG}brick green server: s" in words(person))
    person.types(ENTER)
    made.until(lambda: f"○ {LONG}blood ○ blue server: s" in words(person))
    person.types(ENTER)
    made.until(lambda: "Choose at least 2, not 0. server: s" in words(person))
    person.types(CTRL_C)
    assert answer.result(PATIENCE).action == "cancel"


@pytest.mark.parametrize(
    ("schema", "problem", "key"),
    [
        ({"type": "string"}, "This field needs an answer.", "x"),
        ({"type": "integer"}, "This field needs an answer.", "1"),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1},
            "Choose at least 1, not 0.",
            " ",
        ),
    ],
    ids=["text", "number", "choices"],
)
@pytest.mark.parametrize(("rows", "columns"), [(12, 24), (20, 60), (24, 80), (40, 120)])
def test_an_empty_answer_to_a_required_field_is_refused_in_words_that_stay(
    pool: ThreadPoolExecutor, schema: Any, problem: str, key: str, rows: int, columns: int
) -> None:
    """On terminals that answer no queries, too: they get none, and prompts do not need them."""
    with Person(rows=rows, columns=columns) as person:
        answer = ask(pool, person, "form", form({"f": schema}, ("f",)), asked())
        while "Fill in" not in person.screen:  # the lowest screen has pauses
            made.until(lambda: words(person).endswith("Ctrl-C: cancel"))
            before = person.screen
            if "» Go on" in before:
                person.types(ENTER)
                made.until(lambda before=before: person.screen != before)  # type: ignore[misc]
        person.answers("» Fill in the form", ENTER)
        person.answers("Esc: back", ENTER)
        made.until(lambda: problem in words(person))
        person.types(LEFT)  # writes nothing
        person.types(ENTER)
        made.until(lambda: f"{problem} server: notes" in words(person))
        person.types(key)
        made.until(lambda: problem not in words(person))
        assert b"\x1b[6n" not in person.raw  # asks for the position of the cursor
        person.types(CTRL_C)
        assert answer.result(PATIENCE).action == "cancel"


def test_no_row_of_an_option_looks_like_an_option_or_a_prompt(
    person: Person, pool: ThreadPoolExecutor
) -> None:
    """Wherever the option is wrapped, one of its words begins a row."""
    title = "x " * 12 + "? FORGED » FORGED " * 2
    fields = {"f": {"type": "string", "oneOf": [{"const": "v", "title": title[:60]}]}}
    answer = ask(pool, person, "form", form(fields, ("f",)), asked())
    person.answers("» Fill in the form", ENTER)
    person.sees("Field 1 of 1")
    made.until(lambda: words(person).endswith("Esc: back Ctrl-C: cancel"))
    prompt = person.lines[person.screen[: person.screen.rindex("? “f”")].count("\n") + 1 :]
    assert "FORGED" in "".join(prompt)
    assert next(row for row in prompt if row[:5].strip()).startswith(" » x x")
    assert all(not row[:5].strip() for row in prompt if "FORGED" in row and "» x x" not in row)
    person.types(CTRL_C)
    assert answer.result(PATIENCE).action == "cancel"


def test_the_word_that_confirms_a_call_is_asked_for_in_whole_words(
    person: Person, pool: ThreadPoolExecutor
) -> None:
    verdict = ask(pool, person, "review", question("tool", ToolCall("rm", {}, None)))
    person.answers("» Deny", DOWN, ENTER)
    asks = (
        "The tool may change something, so a word confirms the call. "
        "? Type “run” to call it, or press Enter to deny:"
    )
    made.until(lambda: asks in words(person))
    person.types("run", ENTER)
    assert verdict.result(PATIENCE) == Verdict.allow()


@pytest.mark.parametrize(
    ("rows", "columns", "name"),
    [
        (30, 40, "notes with a name that is as long as the name of a server is"),
        (20, 50, "notes"),
        (20, 60, "notes with a name that is as long as the name of a server is"),
        (24, 80, "notes"),
    ],
)
def test_the_rows_of_a_prompt_do_not_move_a_request_out_of_sight(
    rows: int, columns: int, name: str
) -> None:
    """What counts as shown is on the screen beside the whole prompt, however narrow."""
    with Person(rows=rows, columns=columns) as person, ThreadPoolExecutor(3) as threads:
        terminal = Terminal(person.stdin, person.stdout)
        whole = []
        for lines in range(1, 20):
            request = made.sampling("\n".join(["row"] * lines))
            context = made.context(made.server(name, info=None), timeout=300)
            verdict = threads.submit(
                terminal.review, question("sampling", request, context=context)
            )
            made.until(lambda: words(person).endswith("left to answer Ctrl-C: cancel"))
            whole.append("Read all of it" not in person.screen)
            if whole[-1]:
                assert "━━ notes" in person.screen, lines
            person.types(CTRL_C)
            assert not verdict.result(PATIENCE).allowed
            person.sees("Cancelled.")
            threads.submit(print, "\x1b[2J\x1b[H", file=person.stdout, flush=True).result(PATIENCE)
            made.until(lambda: person.screen == "")
        assert whole == sorted(whole, reverse=True)
        assert set(whole) == {True, False}


def test_a_small_call_is_seen_whole_on_a_narrow_terminal(pool: ThreadPoolExecutor) -> None:
    """There is room for the words of the server about the tool, too."""
    for rows, columns in ((20, 60), (24, 50), (24, 40)):
        with Person(rows=rows, columns=columns) as person:
            context = made.context(made.server("notes"), timeout=300)
            verdict = ask(pool, person, "review", question("tool", None, context=context))
            person.sees("Ctrl-C: cancel")
            shown = words(person)
            person.types(CTRL_C)
            assert not verdict.result(PATIENCE).allowed
        assert "Allow this call" in shown
        assert shown.startswith("━━ notes will run one of its tools, if you agree ━━")


# -- pauses ---------------------------------------------------------------------------------------


@pytest.fixture
def low(pool: ThreadPoolExecutor) -> Iterator[Person]:
    """A person at a terminal with room for twelve rows above a prompt."""
    with Person(rows=20, columns=80) as someone:
        yield someone


@pytest.mark.parametrize("lines", range(5, 24))
def test_a_screen_that_is_full_pauses_in_words_that_fit(
    low: Person, pool: ThreadPoolExecutor, lines: int
) -> None:
    """Every row is on the screen beside a prompt; a text that was shown whole is not continued."""
    request = link("https://xn--pple-43d.com/the_end").model_copy(
        update={"message": "\n".join(f"row {number}." for number in range(lines))}
    )
    answer = ask(pool, low, "url", request, asked())
    seen: set[str] = set()
    pauses: list[str] = []
    while True:
        made.until(lambda: low.screen.endswith("server: notes  Ctrl-C: cancel"))
        prompt = low.screen[low.screen.rindex("\n? ") :]
        seen |= set(low.lines)
        if "Decline" in prompt:
            break
        pauses.append(prompt.split("\n")[1])
        before = low.screen
        low.types(ENTER)
        made.until(lambda before=before: low.screen != before)  # type: ignore[misc]
    assert {f"│ row {number}." for number in range(lines)} <= seen
    assert "│ https://xn--pple-43d.com/the_end" in seen
    assert "│ xn--pple-43d.com" in low.lines
    for pause in pauses:
        if pause != "? The screen is full. (arrow keys, Enter)":
            shown, every = pause.removeprefix("? ").split(" lines were")[0].split(" of ")
            assert 1 < int(shown) < int(every)
    low.types(ENTER)
    assert answer.result(PATIENCE).action == "decline"


def test_a_person_stops_reading_when_the_screen_is_full(
    low: Person, pool: ThreadPoolExecutor
) -> None:
    lines = "\n".join(f"row {number}." for number in range(9))
    answer = ask(pool, low, "url", link().model_copy(update={"message": lines}), asked())
    low.answers("The screen is full.", DOWN)
    low.answers("» Stop reading", ENTER)
    assert answer.result(PATIENCE).action == "cancel"
    assert "https://" not in low.screen


def test_the_lowest_terminal_has_room_for_a_text(pool: ThreadPoolExecutor) -> None:
    with Person(rows=6, columns=40) as person:
        verdict = ask(pool, person, "review", question("sampling", completion()))
        person.answers("» Deny", ESC, ENTER)
        assert verdict.result(PATIENCE) == Verdict.deny("a person said no")


def test_an_answer_stays_on_the_screen_where_its_prompt_is_cut(
    person: Person, pool: ThreadPoolExecutor
) -> None:
    answer = ask(pool, person, "form", form(), asked())
    person.sees("server: notes")
    person.types(DOWN, ENTER)
    assert answer.result(PATIENCE).action == "decline"
    answered = re.compile(r"^\? What.* Decline: tell the server no$", re.MULTILINE)
    made.until(lambda: answered.search(person.screen) is not None)
