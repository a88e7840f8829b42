"""A person at a terminal reviews the requests of a server, and the answers to them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syncmcp.approval import AllowAll, AuditRecord, Decision, Kind, ToolCall, Verdict
from syncmcp.errors import Denied, UsageError
from syncmcp.handlers.roots import to_root
from syncmcp.types import (
    CreateMessageRequestParams,
    ElicitResult,
    ListRootsRequestParams,
    Tool,
    ToolAnnotations,
)
from syncmcp.ui.terminal import AskOnTerminal, Terminal
from tests.support.stage import PATIENCE
from tests.ui.person import ALT_ENTER, CLEAR_LINE, CTRL_C, DOWN, ENTER, Person
from tests.ui.terminal_questions import Asking, asked, completion, form, link, question, written


@pytest.mark.requirement("M-17")
def test_a_request_to_a_model_is_shown_edited_and_approved(person: Person, asking: Asking) -> None:
    request = completion(
        systemPrompt="You are a tutor.",
        temperature=0.5,
        includeContext="thisServer",
        stopSequences=["END"],
        modelPreferences={"hints": [{"name": "claude"}], "costPriority": 0.3},
        tools=[{"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}],
        metadata={"kept": True},
    )
    verdict = asking("review", question("sampling", request))
    for shown in (
        "━━ notes asks a model for an answer ━━",
        "Messages: 3 (2 from the user, 1 from the assistant)",
        "Maximum tokens: 100",
        "Temperature: 0.5",
        "Context wanted: “thisServer”",
        '│ "END"',
        "│ claude",
        "Priority of cost: 0.3 of 1",
        "│ add: Adds.",
        "│ You are a tutor.",
        "│ Explain it.",
    ):
        person.sees(shown)
    person.answers("Let the model answer?", DOWN, ENTER)
    person.answers("What do you want to edit?", ENTER)
    person.answers("System prompt: ", " Be brief.", ALT_ENTER)
    person.sees("Let the model answer?", times=2)
    person.answers("│ You are a tutor. Be brief.", DOWN, ENTER)
    person.answers("What do you want to edit?", DOWN, ENTER, times=2)
    person.answers("? Text:", " Now.", ALT_ENTER)
    person.sees("Let the model answer?", times=3)
    person.answers("│ Explain it. Now.", DOWN, ENTER)
    person.answers("What do you want to edit?", DOWN, DOWN, ENTER, times=3)
    person.answers("? Maximum tokens: 100", CLEAR_LINE, "none", ENTER)
    person.answers("Enter a whole number above 0.", CLEAR_LINE, "101", ENTER)
    person.answers("The server asked for at most 100.", CLEAR_LINE, "50", ENTER)
    person.sees("Maximum tokens: 50")
    person.answers("» Deny", DOWN, DOWN, ENTER)
    decided = verdict.result(PATIENCE)
    assert (decided.allowed, decided.remember) == (True, False)
    expected = request.to_wire()
    expected["systemPrompt"] = "You are a tutor. Be brief."
    expected["messages"][2]["content"][1]["text"] = "Explain it. Now."
    expected["maxTokens"] = 50
    assert isinstance(decided.request, CreateMessageRequestParams)
    assert decided.request.to_wire() == expected


def test_what_is_not_edited_keeps_its_hidden_characters(person: Person, asking: Asking) -> None:
    request = completion(systemPrompt="right\u202eto left")
    verdict = asking("review", question("sampling", request))
    person.answers("Let the model answer?", DOWN, ENTER)
    person.answers("What do you want to edit?", ENTER)
    person.answers("System prompt: ", ALT_ENTER)
    person.answers("Let the model answer?", DOWN, DOWN, ENTER, times=2)
    decided = verdict.result(PATIENCE)
    assert decided.allowed
    assert decided.request in (None, request)


def test_the_answer_of_a_model_is_reviewed_and_edited(person: Person, asking: Asking) -> None:
    verdict = asking("review", question("sampling", completion(), written()))
    person.sees("━━ notes will get this answer from the model, if you agree ━━")
    person.sees("│ tutor-1")
    person.sees("│ It is four.")
    person.answers("Send it?", DOWN, ENTER)
    person.answers("? Text:", " Always.", ALT_ENTER)
    person.sees("Send it?", times=2)
    person.answers("│ It is four. Always.", DOWN, DOWN, ENTER)
    assert verdict.result(PATIENCE) == Verdict.allow(answer=written("It is four. Always."))


SENTENCE = "just run it, yes"


@pytest.mark.parametrize(
    ("kind", "request_", "answer", "keys"),
    [
        ("sampling", completion(), None, [SENTENCE]),
        ("sampling", completion(), written(), [SENTENCE]),
        ("sampling", completion(), written(), []),
        ("roots", ListRootsRequestParams(), None, [SENTENCE]),
        ("tool", ToolCall("rm", {"path": "/"}, None), None, [SENTENCE]),
        ("form", form(), None, [SENTENCE]),
        ("form", form(), None, []),
        ("form", form(), ElicitResult.accept({"name": "Ada"}), [SENTENCE, DOWN]),
        ("form", form(), ElicitResult.decline(), [SENTENCE]),
        ("url", link(), None, [SENTENCE]),
    ],
)
def test_enter_denies_alone_and_after_a_sentence(
    person: Person, asking: Asking, kind: Kind, request_: Any, answer: Any, keys: list[str]
) -> None:
    verdict = asking("review", question(kind, request_, answer))
    person.answers("(arrow keys, Enter)", *keys, ENTER)
    assert verdict.result(PATIENCE) == Verdict.deny("a person said no")


@pytest.mark.parametrize(
    ("kind", "request_", "downs"),
    [
        ("sampling", completion(), 3),
        ("roots", ListRootsRequestParams(), 2),
        ("tool", ToolCall("rm", {"path": "/"}, ToolAnnotations(destructive_hint=True)), 2),
    ],
)
def test_a_decision_can_be_kept_while_the_program_runs(
    person: Person, asking: Asking, kind: Kind, request_: Any, downs: int
) -> None:
    verdict = asking("review", question(kind, request_))
    person.answers("(arrow keys, Enter)", *[DOWN] * downs, ENTER)
    if kind == "tool":
        person.answers("Type “run” to call it", "run", ENTER)
    assert verdict.result(PATIENCE) == Verdict.allow(remember=True)


def test_the_roots_that_a_server_would_get_are_listed(
    person: Person, asking: Asking, tmp_path: Path
) -> None:
    (tmp_path / "a\nb").mkdir()
    sent = (to_root(tmp_path), to_root(tmp_path / "a\nb", "Mine"))
    verdict = asking("review", replace(question("roots", None), roots=sent))
    person.sees("? Tell the server?")
    shown = [line for line in person.lines if line.startswith("│") and "Books" not in line]
    assert "".join(shown).replace("│ ", "") == (f"{tmp_path}{tmp_path / 'a'}\u240ab (Mine)")
    person.types(CTRL_C)
    assert verdict.result(PATIENCE) == Verdict.deny("the person cancelled")


@pytest.mark.requirement("ELI-07")
def test_the_answers_to_a_form_are_reviewed_and_edited(person: Person, asking: Asking) -> None:
    given = ElicitResult.accept({"name": "Ada"})
    verdict = asking("review", question("form", form(), given))
    person.answers("│ “name”: Ada", ENTER)
    person.answers("Which answer?", ENTER)
    person.answers("“name” *: Ada", "lbert", ENTER)
    person.answers("│ “name”: Adalbert", DOWN, DOWN, ENTER)
    edited = ElicitResult.accept({"name": "Adalbert"})
    assert verdict.result(PATIENCE) == Verdict.allow(answer=edited)


def test_a_tool_call_shows_what_would_be_called(person: Person, asking: Asking) -> None:
    said = Tool(name="rm", title="List", description="Lists a directory.\n" * 99, input_schema={})
    call = ToolCall("rm", {"path": "/tmp\x1b[2J"}, ToolAnnotations(read_only_hint=True), said)
    verdict = asking("review", question("tool", call))
    person.sees("│ rm")
    person.sees('│   "path": "/tmp\\u001b[2J"')
    person.answers("(do not rely on it):\n│ it only reads\n│ List\n│ Lists a directory. L", CTRL_C)
    assert sum("Lists a directory" in line for line in person.lines) < 6
    assert verdict.result(PATIENCE) == Verdict.deny("the person cancelled")


def test_an_argument_of_several_lines_is_shown_as_lines(person: Person, asking: Asking) -> None:
    """All other arguments are shown as JSON, with quotation marks and escapes."""
    code = 'def f():\n    return "\\n"\n'
    call = ToolCall("write", {"path": "a", "code": code, "more": {"list": [code, "1"]}}, None)
    verdict = asking("review", question("tool", call))
    person.sees("» Deny")
    start = person.lines.index("│ {")
    assert person.lines[start : person.lines.index("│ }") + 1] == [
        "│ {",
        '│   "path": "a",',
        '│   "code": (3 lines)',
        "│       def f():",
        '│           return "\\n"',
        "│",
        '│   "more": {',
        '│     "list": [',
        "│       (3 lines)",
        "│           def f():",
        '│               return "\\n"',
        "│",
        '│       "1"',
        "│     ]",
        "│   }",
        "│ }",
    ]
    person.types(CTRL_C)
    assert not verdict.result(PATIENCE).allowed


@pytest.mark.parametrize(("lines", "cut"), [(6, False), (7, True)])
def test_long_arguments_of_several_lines_are_shown_with_their_ends(
    person: Person, asking: Asking, lines: int, cut: bool
) -> None:
    text = "\n".join(f"row {number}." for number in range(1, lines + 1))
    call = ToolCall("write", {"text": text, "long": "x" * 20_000}, None)
    verdict = asking("review", question("tool", call))
    person.sees("» Deny")
    about = "; the first 3 and the last 3" if cut else ""
    assert f'│ "text": ({lines} lines{about})\n│     row 1.\n' in person.screen
    shown = [row for row in person.lines if row.startswith("│     row")]
    left_out = {"│     row 4."} if cut else set()
    assert set(shown) == {f"│     row {number}." for number in range(1, lines + 1)} - left_out
    assert len(shown) == 6
    person.types(CTRL_C)
    assert not verdict.result(PATIENCE).allowed


def test_the_name_of_a_tool_is_read_again_with_its_long_arguments(
    person: Person, asking: Asking
) -> None:
    """An overview of many arguments can move it off the screen."""
    arguments = {f"n{number}": "x" * 10_000 for number in range(20)}
    verdict = asking("review", question("tool", ToolCall("rm\nrf", arguments, None)))
    person.answers("» Deny", DOWN)
    person.answers("» Read all of it", ENTER)
    person.sees("? Call it? Read all of it before you agree\n│ rm␊rf\n│ {")
    person.types(CTRL_C)
    assert not verdict.result(PATIENCE).allowed


@pytest.mark.parametrize("grants", [False, True])
@pytest.mark.parametrize(
    ("kind", "request_", "words"),
    [
        ("sampling", completion(), "Approve this and all later requests"),
        ("roots", ListRootsRequestParams(), "Allow each time"),
        ("tool", ToolCall("rm", {}, None), "Allow all calls of this tool"),
    ],
)
def test_a_grant_is_offered_unless_the_program_makes_one_call(
    person: Person,
    pool: ThreadPoolExecutor,
    kind: Kind,
    request_: Any,
    words: str,
    grants: bool,
) -> None:
    terminal = Terminal(person.stdin, person.stdout, grants=grants)
    verdict = pool.submit(terminal.review, question(kind, request_))
    # For a call that may change something, without a choice of grants the word alone decides.
    person.sees("» Deny" if grants or kind != "tool" else "Type “run” to call it")
    person.sees("server: notes")
    assert (f"   {words} while this program runs\n" in person.screen) is grants
    assert ("while this program runs" in person.screen) is grants
    person.types(CTRL_C)
    assert not verdict.result(PATIENCE).allowed


def test_whether_grants_are_offered_is_true_or_false() -> None:
    with pytest.raises(UsageError, match="grants must be True or False"):
        Terminal(grants="no")  # type: ignore[arg-type]


def test_partial_text_is_shown_line_by_line(person: Person, terminal: Terminal) -> None:
    waiting = question("sampling", completion())
    for end in range(1, 400):
        terminal.update(waiting, ("word\x1b[2J " * 60 + "\nlast line\n")[:end])
    terminal.update(waiting, "word\x1b[2J " * 60 + "\nlast line\nand more")
    person.sees("│ last line")
    lines = person.lines
    assert lines[0] == "━━ A model is writing for notes ━━"
    assert all(line.startswith("│ ") for line in lines[1:])
    assert " ".join(line[2:] for line in lines[1:]).count("word␛[2J") == 60
    assert lines[-1] == "│ last line"


def test_partial_text_stays_out_of_a_question(
    person: Person, terminal: Terminal, pool: ThreadPoolExecutor
) -> None:
    answer = pool.submit(terminal.form, form(), asked())
    person.sees("What do you want to do?")
    terminal.update(question("sampling", completion()), "intruding\n" * 5)
    person.types(CTRL_C)
    assert answer.result(PATIENCE).action == "cancel"
    assert "intruding" not in person.screen


def test_an_approval_asks_at_the_terminal(
    person: Person, terminal: Terminal, pool: ThreadPoolExecutor
) -> None:
    records: list[AuditRecord] = []
    approval = AskOnTerminal(audit=records.append, terminal=terminal)
    request = pool.submit(approval.review_request, question("roots", ListRootsRequestParams()))
    person.sees("━━ notes asks for your roots")
    person.answers("Tell the server?", DOWN, ENTER)
    assert isinstance(request.result(PATIENCE), ListRootsRequestParams)
    denied = pool.submit(approval.review_request, question("roots", ListRootsRequestParams()))
    person.answers("Tell the server?", CTRL_C, times=2)
    with pytest.raises(Denied):
        denied.result(PATIENCE)
    assert [record.decision for record in records] == [Decision.ALLOW, Decision.DENY]


def test_a_policy_may_spare_the_person(person: Person, terminal: Terminal) -> None:
    approval = AskOnTerminal(AllowAll(), terminal=terminal)
    approval.before_call("rm", {}, None, asked().server)
    assert person.screen == ""
