"""Agreement at a terminal: never with Enter only, and never to a text that was not shown."""

from __future__ import annotations

import json
import os
import re
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from wcwidth import wcwidth

import syncmcp
from syncmcp import servers_file
from syncmcp.approval import ToolCall, Verdict
from syncmcp.auth import Deadline
from syncmcp.errors import UsageError
from syncmcp.servers_file import ServerReview
from syncmcp.types import ToolAnnotations
from syncmcp.ui.browser import Browser
from syncmcp.ui.terminal import Terminal
from tests.support.stage import PATIENCE, Clock
from tests.ui import asking as about
from tests.ui.person import CTRL_C, DOWN, ENTER, UP, Person
from tests.ui.terminal_questions import Asking, asked, completion, form, link, question

SCREEN = "syncmcp.ui.terminal.screen"


@pytest.fixture
def person() -> Iterator[Person]:
    """A person at a terminal of a usual size."""
    with Person(rows=50, columns=120) as someone:
        yield someone


def quoted(person: Person) -> str:
    """Return all quoted text of others that was printed, even if it has left the screen."""
    plain = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", person.raw.decode())
    return "".join(re.findall(r"│ *(.*?)\r?\n", plain))


def reads_on(person: Person, last: str) -> int:
    """Read page by page, up to a prompt with the words `last`; return the number of pages."""
    seen = set[str]()
    while True:
        new = about.until(partial(unseen_prompts, person, frozenset(seen), last))
        if last in new:
            return len(seen) + 1
        person.types(ENTER)
        seen |= new


def unseen_prompts(person: Person, seen: frozenset[str], last: str) -> set[str]:
    """Return the prompt below a page, except those in `seen`, or the `last` one."""
    screen = person.screen
    found = set(
        re.findall(r"^\? (.+ of .+ lines were shown|The screen is full)\. \(", screen, re.MULTILINE)
    )
    return (found - seen) or ({last} if last in screen else set())


# -- a server that a file names --------------------------------------------------------------------


def target_of(
    server: dict[str, Any], folder: Path, terminal: Terminal, pool: ThreadPoolExecutor
) -> Any:
    """Ask at a terminal about a server of a file in the current folder."""
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"mine": server}}))
    found = servers_file.read(
        path, approve=terminal.approve, approvals=folder / "yes", variables={"GITHUB_TOKEN": "t"}
    )
    return pool.submit(found["mine"].target)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


PADDING = [f"--padding={number:04}{'x' * 40}" for number in range(150)]
LONG = {
    "command": "sudo",
    "args": ["serve", *PADDING, "--at-the-very-end"],
    "env": {"GREETING": "${GITHUB_TOKEN}", "LD_PRELOAD": "./evil.so"},
}


@pytest.mark.requirement("SEC-06")
@pytest.mark.parametrize(("keys", "approved"), [((DOWN, ENTER), True), ((ENTER,), False)])
def test_a_person_approves_a_server_that_a_file_names(
    keys: tuple[str, ...],
    approved: bool,
    folder: Path,
    person: Person,
    terminal: Terminal,
    pool: ThreadPoolExecutor,
) -> None:
    target = target_of({"command": "my-server\x1b[2J"}, folder, terminal, pool)
    person.sees("━━ A file names a server ━━")
    person.sees("Use it?")
    assert "my-server" in person.screen
    assert b"\x1b[2J" not in person.raw
    person.types(*keys)
    if approved:
        assert isinstance(target.result(PATIENCE), syncmcp.Stdio)
    else:
        assert isinstance(target.exception(PATIENCE), servers_file.NotApproved)


def test_without_a_terminal_no_server_of_a_file_is_approved(
    folder: Path, pool: ThreadPoolExecutor
) -> None:
    with Path(os.devnull).open() as no_terminal:
        target = target_of({"command": "my-server"}, folder, Terminal(no_terminal), pool)
        assert isinstance(target.exception(PATIENCE), servers_file.NotApproved)


@pytest.mark.requirement("SEC-06")
def test_a_long_entry_is_read_to_its_end_before_it_can_be_approved(
    folder: Path, person: Person, terminal: Terminal, pool: ThreadPoolExecutor
) -> None:
    target = target_of(LONG, folder, terminal, pool)
    person.sees("lines were shown.")
    first = person.screen
    # The warnings come before the text of the file, which could push them off the screen.
    assert first.index("Warning: LD_PRELOAD decides which code runs.") < first.index("mcp.json")
    assert first.index("Warning: The command asks for administrator rights") < first.index(
        "mcp.json"
    )
    assert "Use it?" not in person.raw.decode()
    assert reads_on(person, "» No") > 2
    shown = quoted(person)
    for words in ("--at-the-very-end", "${GITHUB_TOKEN}", "values of: GITHUB_TOKEN", "./evil.so"):
        assert words in shown
    assert all(padding in shown for padding in PADDING)
    # The warnings are repeated directly before the question.
    beside = person.screen[: person.screen.index("Use it?")].splitlines()[-6:]
    assert "Warning: The command asks for administrator rights." in beside
    assert "Warning: LD_PRELOAD decides which code runs." in beside
    person.answers("» No", DOWN, ENTER)
    assert target.result(PATIENCE).command == "sudo"


@pytest.mark.parametrize("keys", [(DOWN, ENTER), (CTRL_C,)])
def test_an_entry_that_is_not_read_to_its_end_is_not_approved(
    keys: tuple[str, ...],
    folder: Path,
    person: Person,
    terminal: Terminal,
    pool: ThreadPoolExecutor,
) -> None:
    target = target_of(LONG, folder, terminal, pool)
    person.answers("lines were shown.", *keys)
    assert isinstance(target.exception(PATIENCE), servers_file.NotApproved)
    assert "Use it?" not in person.raw.decode()


Shown: TypeAlias = Callable[[ServerReview, str], str]


@pytest.fixture
def shown(person: Person, terminal: Terminal, pool: ThreadPoolExecutor) -> Shown:
    """Return a function that shows a review, and returns the screen once `last` is on it."""

    def show(review: ServerReview, last: str) -> str:
        approved = pool.submit(terminal.approve, review)
        person.sees(last)
        screen = person.screen
        person.types(CTRL_C)
        assert approved.result(PATIENCE) is False
        return screen

    return show


@pytest.mark.parametrize(("more", "pages"), [(0, False), (1, True)])
def test_what_fits_on_the_screen_has_no_pages(more: int, pages: bool, shown: Shown) -> None:
    # One line each for the file, the program, the command, the coverage and each variable.
    env = {f"N{number}": "x" for number in range(50 - 8 - 2 - 4 + more)}
    review = ServerReview("mine", Path("mcp.json"), "stdio", ("serve",), env=env)
    assert ("lines were shown." in shown(review, "Go on" if pages else "Use it?")) is pages


@pytest.mark.parametrize(("length", "said"), [(20_000, False), (20_001, True)])
def test_what_nobody_reads_is_said_with_its_length(length: int, said: bool, shown: Shown) -> None:
    bare = len(str(ServerReview("mine", Path("mcp.json"), "http", url="")))
    review = ServerReview("mine", Path("mcp.json"), "http", url="x" * (length - bare))
    words = "Warning: the text has 20,001 characters, too many to read (over 20,000)."
    assert (words in shown(review, "lines were shown.")) is said


def test_thousands_of_warnings_do_not_hide_the_others(shown: Shown) -> None:
    env = {f"LD_{number}": "" for number in range(3_000)}
    screen = shown(
        ServerReview("mine", Path("mcp.json"), "stdio", ("sudo", "x"), env=env), "lines were shown."
    )
    assert "Warning: The command asks for administrator rights." in screen
    assert "Warning: there are 2,991 more warnings, at the end of the text." in screen


# -- terminals with other widths of characters ----------------------------------------------------


def each_by_itself(character: str) -> int:
    """Return the cells of a character on a terminal that combines only accents."""
    return 0 if unicodedata.combining(character) else old_tables(character)


def old_tables(character: str) -> int:
    """Return the cells of a character on a terminal without combining marks."""
    return max(wcwidth(character), 1)


def east_asian(character: str) -> int:
    """Return the cells of a character on a terminal with an East Asian font."""
    return 2 if unicodedata.east_asian_width(character) in "WFA" else old_tables(character)


UNITS = {
    "skin tone": "\U0001f3fd", "flag": "\U0001f1e9\U0001f1ea", "spacing mark": "\u0bb8\u0bbf",
    "sign before its letter": "\u0915\u093f", "accent": "e\u0301", "variation": "\u2764\ufe0f",
    "jamo": "\u1112\u1161\u11ab", "ambiguous width": "\u0436", "wide": "\u6f22",
}  # fmt: skip


@pytest.mark.parametrize("cells", [each_by_itself, old_tables, east_asian])
def test_no_width_of_a_character_hides_the_end_of_a_line(
    cells: Callable[[str], int], pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyte.screens.wcwidth", cells)
    with Person(rows=150, columns=80) as person:
        words = (f"{name}{unit * 78}--require=EVIL" for name, unit in UNITS.items())
        env = {f"LD_{unit * 40}HARM": "x" for unit in UNITS.values()}
        review = ServerReview("mine", Path("mcp.json"), "stdio", ("serve", *words), env=env)
        approved = pool.submit(Terminal(person.stdin, person.stdout).approve, review)
        person.sees("» No")
        lines = (line.removeprefix("│").strip() for line in person.lines)
        shown = unicodedata.normalize("NFD", "".join(lines))
        person.types(CTRL_C)
        assert approved.result(PATIENCE) is False
    assert shown.count("--require=EVIL") == shown.count("HARM") == len(UNITS)
    counts = {name: shown.count(unicodedata.normalize("NFD", unit)) for name, unit in UNITS.items()}
    assert counts == dict.fromkeys(UNITS, 78 + 40)


# -- keys that were meant for something else -------------------------------------------------------


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Require half a second without a key, on a clock that only the test moves."""
    monkeypatch.setattr(f"{SCREEN}._SILENCE_SECONDS", 0.5)


def ask_for(asking: Asking, kind: str) -> Any:
    if kind in ("form", "url"):
        return asking(kind, form() if kind == "form" else link(), asked())
    return asking("review", question(kind, None))  # type: ignore[arg-type]


def has_length(things: list[Any], length: int) -> bool:
    return len(things) == length


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("kind", ["sampling", "roots", "tool", "url"])
def test_keys_of_the_first_moments_answer_nothing(
    kind: str,
    person: Person,
    asking: Asking,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[Deadline] = []

    def begin(seconds: float) -> Deadline:
        begun.append(Deadline(seconds))
        return begun[-1]

    monkeypatch.setattr(f"{SCREEN}.Deadline", begin)
    answer = ask_for(asking, kind)
    person.sees("Pause typing for half a second; until then, keys are ignored.")
    keys = [DOWN, DOWN, ENTER, *"run", ENTER]
    for round_ in range(1, 4):
        clock.advance(0.4)  # never long enough without a key
        person.types(*keys)
        about.until(partial(has_length, begun, 1 + round_ * len(keys)))  # all of them were read
        assert not answer.done()
        assert "»" not in person.screen
    clock.advance(0.6)
    person.sees("» De")
    assert "Pause typing" not in person.screen
    person.types(ENTER)
    said = answer.result(PATIENCE)
    assert said.action == "decline" if kind == "url" else said == Verdict.deny("a person said no")


@pytest.mark.usefixtures("silence")
def test_ctrl_c_counts_at_once(person: Person, asking: Asking) -> None:
    verdict = asking("review", question("roots", None))
    person.answers("Pause typing for half a second; until then, keys are ignored.", CTRL_C)
    assert verdict.result(PATIENCE) == Verdict.deny("the person cancelled")


@pytest.mark.usefixtures("silence")
def test_a_question_that_ends_does_not_wait_for_silence(person: Person, asking: Asking) -> None:
    context = asked()
    verdict = asking("review", question("roots", None, context=context))
    person.sees("Pause typing for half a second; until then, keys are ignored.")
    context.cancel.cancel()
    assert not verdict.result(PATIENCE).allowed
    person.sees("Withdrawn")


# -- calls of tools --------------------------------------------------------------------------------


# `test_browser.py` tests which calls need the word.
def test_a_call_that_may_change_something_takes_a_word(person: Person, asking: Asking) -> None:
    call = question("tool", ToolCall("rm", {"path": "/"}, None))
    denied = asking("review", call)
    person.answers("Call it?", DOWN, ENTER)
    person.answers("Type “run” to call it", "yes", ENTER)
    person.answers("“yes” is not “run”, so nothing was called.", "\x15", ENTER)
    assert denied.result(PATIENCE) == Verdict.deny("a person said no")
    person.sees("? Type “run” to call it, or press Enter to deny: yes\n“yes” is not")
    person.sees("? Type “run” to call it, or press Enter to deny: (denied)")
    allowed = asking("review", call)
    person.answers("Call it?", DOWN, ENTER, times=2)
    person.answers("Type “run” to call it", "run", ENTER, times=3)
    assert allowed.result(PATIENCE) == Verdict.allow()


def test_a_call_that_only_reads_by_the_word_of_a_trusted_server_takes_no_word(
    person: Person, asking: Asking
) -> None:
    server = about.server("notes", trusted=True)
    call = about.question(
        "tool", ToolCall("ls", {}, ToolAnnotations(read_only_hint=True)), of=server
    )
    verdict = asking("review", call)
    person.answers("Call it?", DOWN, ENTER)
    assert verdict.result(PATIENCE) == Verdict.allow()


def test_all_arguments_of_a_call_are_seen_before_it_is_allowed(
    person: Person, asking: Asking
) -> None:
    text = "a" * 9_000 + "; the middle" + "b" * 9_000 + "; rm -rf /"
    call = ToolCall("write", {"text": text, "path": "/etc/passwd"}, None)
    verdict = asking("review", question("tool", call))
    person.sees("Read all of it")
    shown = person.screen
    assert "Allow this call" not in shown
    # The screen has both ends, the lengths, and the argument after a long one.
    assert re.search(r"Its arguments: 2 \(18,0\d\d characters; both ends of each\)", shown)
    flat = quoted(person)
    assert '"path": "/etc/passwd"' in flat
    assert '; rm -rf /"' in flat
    assert "(17,724 of 18,024 characters are not shown here)" in flat
    assert "; the middle" not in flat
    person.types(DOWN)
    person.answers("» Read all of it", ENTER)
    assert reads_on(person, "» Deny") > 2
    assert text in quoted(person)
    person.types(UP, UP, ENTER)  # wraps around to “Allow this call”
    person.answers("Type “run” to call it", "run", ENTER)
    assert verdict.result(PATIENCE) == Verdict.allow()


def test_the_whole_name_of_a_tool_is_seen_before_it_is_called(
    person: Person, asking: Asking
) -> None:
    name = "read_" + "x" * 230 + "_then_delete_everything"
    verdict = asking("review", question("tool", ToolCall(name, {}, None)))
    person.sees("Allow all calls")
    assert name in quoted(person)
    person.types(ENTER)
    assert not verdict.result(PATIENCE).allowed


def test_thousands_of_arguments_are_counted(person: Person, asking: Asking) -> None:
    call = ToolCall("write", {f"n{number}": number for number in range(2_000)}, None)
    verdict = asking("review", question("tool", call))
    person.sees("Read all of it")
    assert "Its arguments: 2,000 (" in person.screen
    assert "│ … (1,980 more arguments)" in person.screen
    person.types(ENTER)
    assert not verdict.result(PATIENCE).allowed


# -- requests to a model, its answers, forms and links ---------------------------------------------

LONG_TEXT = "word " * 2_000 + "the end of it"
TALL_TEXT = "\n".join(["row"] * 100 + ["the end of it"])
SECOND = [{"role": "user", "content": {"type": "text", "text": text}} for text in ("one", "two")]


LONG_CONTENT = {"type": "text", "text": LONG_TEXT}
REQUESTS: dict[str, dict[str, Any]] = {
    "system prompt": {"systemPrompt": LONG_TEXT},
    "rows": {"systemPrompt": TALL_TEXT, "messages": SECOND[:1]},
    "context": {"includeContext": LONG_TEXT, "messages": SECOND[:1]},
    "message": {"messages": [{"role": "user", "content": LONG_CONTENT}]},
    "earlier message": {"messages": [{"role": "user", "content": LONG_CONTENT}, *SECOND]},
    "metadata": {"metadata": {"hint": LONG_TEXT}, "messages": SECOND[:1]},
    "preferences": {"modelPreferences": {"note": LONG_TEXT}, "messages": SECOND[:1]},
    "hints": {"modelPreferences": {"hints": [{"note": LONG_TEXT}]}, "messages": SECOND[:1]},
}
TOOL_USE = {"type": "tool_use", "id": "1", "name": "x", "input": {"text": LONG_TEXT}}
ANSWERS: dict[str, dict[str, Any]] = {
    "text": {"content": LONG_CONTENT},
    "rows": {"content": {"type": "text", "text": TALL_TEXT}},
    "tool use": {"content": TOOL_USE},
    "odd": {"content": {"type": "odd", "of": LONG_TEXT}},
    "reason": {"stopReason": LONG_TEXT},
}


@pytest.mark.parametrize("long", REQUESTS)
def test_all_of_a_request_is_seen_before_a_model_gets_it(
    person: Person, asking: Asking, long: str
) -> None:
    verdict = asking("review", question("sampling", completion(**REQUESTS[long])))
    agrees_after_reading(person, "Let the model answer?", verdict)


@pytest.mark.parametrize("long", ANSWERS)
def test_all_of_an_answer_is_seen_before_it_is_sent(
    person: Person, asking: Asking, long: str
) -> None:
    answer = about.written(**ANSWERS[long])
    verdict = asking("review", question("sampling", completion(), answer))
    agrees_after_reading(person, "Send it?", verdict)


def agrees_after_reading(person: Person, prompt: str, verdict: Any) -> None:
    person.sees(prompt)
    person.sees("server: notes")  # the last line that is drawn
    offered = person.screen[person.screen.rindex(prompt) :]
    assert "Deny" in offered
    assert not re.search("Approve|Send$", offered, re.MULTILINE)
    person.types(DOWN)
    person.answers("» Read all of it", ENTER)
    assert reads_on(person, "» Deny") > 1
    assert "the end of it" in quoted(person)
    person.types(*[UP] * (2 if prompt.startswith("Let") else 1), ENTER)  # wraps around
    assert verdict.result(PATIENCE) == Verdict.allow()


@pytest.mark.parametrize("stops", [False, True])
def test_all_of_a_message_is_seen_before_it_is_answered(
    person: Person, asking: Asking, stops: bool
) -> None:
    answer = asking("form", form(message=LONG_TEXT), asked())
    if stops:
        person.answers("lines were shown", DOWN, ENTER)
        assert answer.result(PATIENCE).action == "cancel"
        return
    assert reads_on(person, "» Fill in the form") > 1
    person.types(DOWN, ENTER)
    assert answer.result(PATIENCE).action == "decline"
    assert "the end of it" in quoted(person)


@pytest.mark.requirement("ELI-11")
def test_all_of_an_address_is_seen_before_it_is_opened(person: Person, asking: Asking) -> None:
    address = "https://example.com/" + "x" * 7_000 + "the_end_of_it"
    answer = asking("url", link(address), asked())
    person.sees("lines were shown.")
    assert "What do you want to do?" not in person.raw.decode()
    assert reads_on(person, "» Decline") > 1
    person.types(ENTER)
    assert answer.result(PATIENCE).action == "decline"
    assert address in quoted(person)


def test_what_fits_is_shown_at_once_however_it_is_made(person: Person, asking: Asking) -> None:
    """No member is left out, and no line of a text looks like a member."""
    wire = {
        "messages": SECOND,
        "metadata": {"k": ["a\nb", {}, None]},
        "toolChoice": {"mode": "auto"},
    }
    verdict = asking("review", question("sampling", completion(**wire)))
    person.sees("» Deny")
    for row in ('"k":', "1 of 3:", "    a", "    b", "2 of 3: {}", "3 of 3: null", '"mode": auto'):
        assert f"{row}\n" in person.screen + "\n", row
    person.types(DOWN, DOWN, ENTER)
    assert verdict.result(PATIENCE) == Verdict.allow()


@pytest.mark.parametrize(
    ("method", "asking_about"),
    [
        ("form", lambda text: (form(message=text), asked())),
        ("review", lambda text: (question("sampling", completion(), about.written(text)),)),
        ("review", lambda text: (question("tool", ToolCall("x", {"text": text}, None)),)),
    ],
    ids=["form", "answer", "call"],
)
def test_what_is_too_long_to_be_shown_is_asked_of_nobody(
    person: Person, terminal: Terminal, method: str, asking_about: Callable[[str], Any]
) -> None:
    """At a terminal and in a browser: a server could send a text of any length."""
    with Browser(open_page=None) as browser:
        for interface in (terminal, browser):
            with pytest.raises(
                UsageError, match="too long to show: it has over 1,000,000 characters"
            ):
                getattr(interface, method)(*asking_about("x" * 1_000_001))
    assert person.screen == ""


@pytest.mark.parametrize(
    "made_of",
    [
        lambda deep: question("sampling", about.sampling("x", metadata={"a": deep})),
        lambda deep: question("tool", ToolCall("x", {"a": deep}, None)),
    ],
    ids=["request", "call"],
)
def test_what_is_too_long_to_be_shown_is_not_made(
    terminal: Terminal, made_of: Callable[[Any], Any]
) -> None:
    """The text would be huge: each of many values is indented by its depth."""
    deep: Any = [0] * 20_000
    for _ in range(150):
        deep = [deep]
    long = made_of(deep)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="too long to show: it has over"):
            terminal.review(long)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5_000_000
