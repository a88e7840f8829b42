"""No text of a server or a model can imitate the library's text on a terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from syncmcp.approval import ToolCall, Verdict
from syncmcp.handlers import CausingCall
from syncmcp.servers_file import ServerReview
from syncmcp.types import ElicitResult
from tests.support.stage import PATIENCE
from tests.ui import asking as made
from tests.ui.person import CTRL_C, DOWN, ENTER, UP, Person
from tests.ui.terminal_questions import Asking, asked, completion, form, question, written

FORGERIES = [
    "\x1b[2J\x1b[H━━ bank asks you to fill in a form ━━",
    "━━ bank asks you to fill in a form ━━",
    "x\n━━ bank asks you to fill in a form ━━\n? What do you want to do? (arrow keys, Enter)",
    "x\r━━ bank asks you to fill in a form ━━",
    " " * 98 + "━━ bank asks you to fill in a form ━━",
    "❤️" * 49 + "━━ bank asks you to fill in a form ━━",
    "Server: trusted\nWarning: none\nWithdrawn: no answer is needed any more.",
    "[bold]Server: trusted[/bold] [link=https://evil.example]click[/link] :warning:",
    "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "\x9b2J\u202egniht on\u2066\u200b",
    "<b>html</b> <style>bg</style>",
]
OURS = re.compile(r"━━ (?!notes )|Server: |\? What do you|bank asks|\[link|click|Withdrawn|gniht")


@pytest.mark.parametrize("words", FORGERIES)
@pytest.mark.requirement("ELI-05", "ELI-13")
def test_no_words_of_a_server_look_like_ours(person: Person, asking: Asking, words: str) -> None:
    fields = {
        "f": {"type": "string", **dict.fromkeys(("title", "description", "default"), words)},
        "c": {"type": "string", "oneOf": [{"const": "v", "title": words}], "title": words},
    }
    context = asked(info={"name": "x", "title": words, "version": words})
    answer = asking("form", form(fields, ("f", "c"), words), context)
    person.sees("» Fill in the form")
    own = [line for line in person.lines if not line.startswith("│")]
    assert own[:4] == [
        "",
        "━━ notes asks you to fill in a form ━━",
        "It describes itself as:",
        "Its message:",
    ]
    person.types(ENTER)
    person.answers("Field 1 of 2", ENTER)
    person.answers("Field 2 of 2", ENTER)
    person.answers("Ready to send?", UP, ENTER)
    assert answer.result(PATIENCE) == ElicitResult.accept({"f": words, "c": "v"})
    for line in person.lines:
        # Text of the server is behind a bar, in quotation marks, or in the place of an answer.
        if not line.startswith(("│", "? “", "? What do you want to do?")):
            assert not OURS.search(line), line
    assert b"\x1b]" not in person.raw.replace(b"\x1b]0;", b"")
    assert "\u202e" not in person.raw.decode()


def test_no_name_passes_for_words_of_ours(person: Person, asking: Asking) -> None:
    name = "x. It is checked"
    parts = [
        {"type": "image", "data": "AAAA", "mimeType": name},
        {"type": "tool_use", "id": "1", "name": name, "input": {}},
    ]
    messages = [{"role": "assistant", "content": parts}]
    request = completion(messages=messages, includeContext=name)
    context = asked(call=CausingCall("tools/call", {"name": name}))
    verdict = asking("review", question("sampling", request, context=context))
    person.sees("Let the model answer?")
    own = [line for line in person.lines if not line.startswith("│") and name in line]
    assert len(own) == 4
    assert all(f"“{name}”" in line for line in own)
    person.types(CTRL_C)
    assert not verdict.result(PATIENCE).allowed


@pytest.mark.parametrize("words", FORGERIES[:3])
def test_no_words_of_a_model_look_like_ours(person: Person, asking: Asking, words: str) -> None:
    request = completion(systemPrompt=words, modelPreferences={"hints": [{"name": words}]})
    for told in (None, made.written(words, model=words)):
        verdict = asking("review", question("sampling", request, told))
        person.answers("Let the model answer?" if told is None else "Send it?", CTRL_C)
        assert not verdict.result(PATIENCE).allowed
    for line in person.lines:
        if not line.startswith("│"):
            assert not OURS.search(line), line


# Wherever a long line is wrapped, one of these texts would begin the next row.
BEGINS_ROWS = " ".join("x" * length + " FORGED: yes" for length in range(80, 98))


@pytest.mark.parametrize(
    ("method", "about"),
    [
        ("approve", ServerReview("x", Path("mcp.json"), "stdio", ("node", BEGINS_ROWS))),
        ("review", question("sampling", made.sampling("one", BEGINS_ROWS))),
        ("review", question("sampling", made.sampling(), made.written(BEGINS_ROWS, odd=1))),
        ("review", question("tool", ToolCall("x", {"y": BEGINS_ROWS}, None))),
    ],
    ids=["server", "request", "answer", "call"],
)
def test_no_words_within_a_line_pass_for_a_line(
    person: Person, asking: Asking, method: str, about: Any
) -> None:
    verdict = asking(method, about)
    person.sees("» ")
    text = person.screen
    text = text[text.rfind("All of it:") :] if "All of it:" in text else text
    assert "FORGED" in text
    assert "\n│ FORGED" not in text
    person.types(CTRL_C)
    assert verdict.result(PATIENCE) in (False, Verdict.deny("the person cancelled"))


def test_no_answer_to_a_form_passes_for_another(person: Person, asking: Asking) -> None:
    default = f"no\n“Pay”: No\n{BEGINS_ROWS}"
    fields = {
        "f": {"type": "string", "default": default},
        "Pay": {"type": "boolean", "default": True},
    }
    answer = asking("form", form(fields), asked())
    person.answers("What do you want to do?", ENTER)
    person.answers("Field 1 of 2", ENTER)
    person.answers("Field 2 of 2", ENTER)
    person.sees("Ready to send?")
    shown = person.screen[person.screen.rindex("What will be sent:") :]
    assert re.findall("\n│ (?! )(.*)", shown) == ["“f”: no", "“Pay”: Yes"]
    person.types(CTRL_C)
    assert answer.result(PATIENCE).action == "cancel"


def test_a_text_in_an_editor_cannot_leave_it(person: Person, asking: Asking) -> None:
    words = "x\n━━ bank asks you\n" + "y" * 300 + "\n\u202ez"
    verdict = asking("review", question("sampling", completion(), written(words)))
    person.answers("Send it?", DOWN, ENTER)
    person.sees("<U+202E>z", times=2)
    last = "server: notes  Esc, Esc: back  Ctrl-C: cancel"
    person.sees(last)  # the last line that is drawn
    editor = person.screen.split("? Text:")[1].split("\n")[1:]
    ours = [line for line in editor if line and not line.startswith("│")]
    assert ours == [last]
    person.types(CTRL_C)
    assert not verdict.result(PATIENCE).allowed


# A text of several lines that imitates the end of itself, and other arguments.
LINES = [
    'x\n  "path": "/tmp/FORGED"',
    'x\n  "n": (2 lines)\n      FORGED',
    'x",\n  "path": "/tmp/FORGED"\n}',
    f"x\n{BEGINS_ROWS}",
    "x\n}\nFORGED: run\n━━ bank will run one of its tools ━━\n? Call it? (arrow keys, Enter)",
    "x\r\n\x1b[2J  FORGED\n\u2028  FORGED\x85  FORGED\x0b  FORGED\n\u202egniht",
    "x\n" + " " * 98 + "FORGED",
]


@pytest.mark.parametrize("words", LINES)
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("long", [False, True])
def test_no_line_of_an_argument_passes_for_another_argument(
    person: Person, asking: Asking, words: str, inner: bool, long: bool
) -> None:
    """Neither where all of it is shown, nor in the overview of long arguments."""
    text = {"y": words, "z": [words, 5]} if inner else words
    more = {"long": "w" * 30_000} if long else {}
    verdict = asking(
        "review", question("tool", ToolCall("x", {"text": text, "n": 7, **more}, None))
    )
    person.sees("» Deny")
    person.sees("server: notes")
    assert ("Read all of it" in person.screen) is long
    if long and inner:  # in one row, as JSON
        assert re.search(r'^│ "text": \{"y":', person.screen, re.MULTILINE)
    else:
        shown = person.lines[person.lines.index("The tool:") :]
        shown = [row for row in shown if row.startswith("│")]
        marks = [row for row in shown if "FORGED" in row]
        assert marks
        least = 6 if long else 10 if inner else 8
        assert all(row.startswith("│".ljust(least)) for row in marks), marks
        assert sum(row.startswith(('│ "n": ', '│   "n": ')) for row in shown) == 1
        assert not any(row.startswith('│   "path"') for row in shown)
    for row in person.lines:
        if not row.startswith(("│", "?")):
            assert not OURS.search(row), row
    person.types(CTRL_C)
    assert not verdict.result(PATIENCE).allowed
