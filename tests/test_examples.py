"""Every example runs, from a directory of its own; so does what README and quick start show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.stage import PATIENCE
from tests.ui.person import CTRL_C, DOWN, ENTER, Person

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def example(name: str) -> str:
    return str(ROOT / "examples" / name)


def blocks(page: str) -> list[str]:
    """The Python that a page shows."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def environment(**more: str) -> dict[str, str]:
    """Everything as it is, with this Python first on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, **more}


def run(command: list[str], cwd: Path) -> str:
    """Run a program as a reader would; return its output."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout


@contextmanager
def at_the_terminal(*command: str) -> Iterator[Person]:
    """Run a program with a person before it, until it ends by itself."""
    with Person() as person:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", *command],
            stdin=person.slave,
            stdout=person.slave,
            stderr=person.slave,
            start_new_session=True,
            env=environment(TERM="xterm-256color"),
        )
        try:
            yield person
            assert process.wait(PATIENCE) == 0, person.screen
            assert "Traceback" not in person.screen
        finally:
            process.kill()
            process.wait()


def test_there_are_examples() -> None:
    assert "demo.py" in {example.name for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    assert run([str(example)], tmp_path).strip()


def test_the_script_of_the_readme_runs(tmp_path: Path) -> None:
    script, answering = blocks("README.md")
    assert run(["-c", script], tmp_path) == "3\n"
    assert "markdown" in run(["-c", answering], tmp_path)


def test_the_calls_of_the_quick_start_run(tmp_path: Path) -> None:
    connect, _, *calls, _ = blocks("docs/quickstart.md")
    script = connect + textwrap.indent("\n".join(calls), "    ")
    printed = run(["-c", script], tmp_path)
    assert "syncmcp-demo" in printed
    assert "3/3" in printed


class TestTheAgent:
    def test_alone_it_answers_from_its_script(self, tmp_path: Path) -> None:
        printed = run([example("agent.py")], tmp_path)
        assert '"outputFormat":"plain"' in printed
        assert "-> Rain, mountains, and a fish market." in printed
        assert "agent: Bergen:" in printed

    def test_another_script_gives_other_answers(self, tmp_path: Path) -> None:
        script = {
            "task": "Add up.",
            "model": [
                {"tool": "add", "arguments": {"a": 20, "b": 3}},
                {"tool": "ask_user_preferences"},
                {"tool": "ask_user_preferences"},
                {"tool": "request_llm_help", "arguments": {"question": "Who?"}},
            ],
            "forms": [{"outputFormat": "json", "includeTimestamps": False}],
        }
        (tmp_path / "answers.json").write_text(json.dumps(script), encoding="utf-8")
        printed = run([example("agent.py"), "--script", "answers.json"], tmp_path)
        assert 'add {"a": 20, "b": 3}\n  -> 23\n' in printed
        assert '"content":{"includeTimestamps":false,"outputFormat":"json"}' in printed
        assert '-> {"action":"decline"}' in printed
        assert "-> You said: Who?" in printed
        assert "allow by policy: sampling: 1 messages, 0 tools, at most 500 tokens" in printed

    def test_at_the_terminal_a_person_answers_and_approves(self, tmp_path: Path) -> None:
        script = {"model": [{"tool": "ask_user_preferences"}, "Done."]}
        file = tmp_path / "answers.json"
        file.write_text(json.dumps(script), encoding="utf-8")
        with at_the_terminal(
            example("agent.py"), "--ui", "terminal", "--script", str(file)
        ) as person:
            person.sees("━━ helper is about to be called: one of its tools ━━")
            person.types(ENTER)
            person.sees("━━ helper asks you to fill in a form ━━")
            person.sees("What will you do?")
            person.types(DOWN, ENTER)
            person.sees('-> {"action":"decline"}')
            person.sees("agent: Done.")

    def test_a_call_that_a_person_denies_is_not_made(self, tmp_path: Path) -> None:
        script = {"model": [{"tool": "greet"}, "Well then."]}
        file = tmp_path / "answers.json"
        file.write_text(json.dumps(script), encoding="utf-8")
        with at_the_terminal(
            example("agent.py"), "--ui", "terminal", "--script", str(file)
        ) as person:
            person.sees("━━ helper is about to be called: one of its tools ━━")
            person.types(CTRL_C)
            person.sees("the call was not allowed")
            person.sees("agent: Well then.")
            assert "Hello" not in person.screen


class TestTheTutor:
    def test_without_a_terminal_nothing_is_explained(self, tmp_path: Path) -> None:
        printed = run([example("math_tutor.py"), "6 * 7"], tmp_path)
        assert printed.startswith("not explained: ")
        assert "42" not in printed

    @pytest.mark.parametrize(("problem", "answer"), [("6 * 7", "42"), ("40 + 4", "44")])
    def test_alone_it_explains(self, problem: str, answer: str, tmp_path: Path) -> None:
        printed = run([example("math_tutor.py"), problem, "--unattended"], tmp_path)
        assert printed.endswith(f"\n{answer}\n")

    def test_what_the_model_does_not_know_is_refused(self, tmp_path: Path) -> None:
        printed = run([example("math_tutor.py"), "x", "--unattended"], tmp_path)
        assert "sums and products only" in printed

    def test_a_person_reviews_the_request_and_the_answer(self) -> None:
        with at_the_terminal(example("math_tutor.py"), "6 * 7") as person:
            person.sees("━━ school wants a model to answer it ━━")
            person.sees("Let the model answer?")
            assert "42" not in person.screen
            person.types(ENTER)
            person.sees("━━ school would get this answer of the model ━━")
            person.sees("Send it?")
            person.types(ENTER)
            person.sees("\nWrite 6 down 7 times.\nAdd it all up.\n42")

    def test_a_person_denies_the_request(self) -> None:
        with at_the_terminal(example("math_tutor.py"), "6 * 7") as person:
            person.sees("Let the model answer?")
            person.types(CTRL_C)
            person.sees("not explained: ")
        assert "42" not in person.screen


class TestSigningUp:
    @pytest.mark.parametrize("number", [7, 13])
    def test_scripted_answers_reach_the_server(self, number: int, tmp_path: Path) -> None:
        answers = {"name": "Ada", "email": "ada@example.com", "favouriteNumber": number}
        printed = run([example("sign_up.py"), "--answers", json.dumps(answers)], tmp_path)
        assert printed.startswith("signed up: ")
        assert json.loads(printed.removeprefix("signed up: ")) == answers

    def test_a_person_fills_in_field_by_field(self) -> None:
        with at_the_terminal(example("sign_up.py")) as person:
            person.sees("━━ maths club asks you to fill in a form ━━")
            person.sees("What will you do?")
            person.types(ENTER)
            person.sees("“Name” *:")
            person.types("Ada", ENTER)
            person.sees("“E-mail” *:")
            person.types("ada@example.com", ENTER)
            person.sees("“Favourite number”:")
            person.types(ENTER)
            person.sees("All right?")
            person.types(ENTER)
            person.sees('signed up: {"name": "Ada", "email": "ada@example.com"}')

    @pytest.mark.parametrize(
        ("keys", "action"), [((DOWN, ENTER), "decline"), ((CTRL_C,), "cancel")]
    )
    def test_a_person_may_not_want_to(self, keys: tuple[str, ...], action: str) -> None:
        with at_the_terminal(example("sign_up.py")) as person:
            person.sees("What will you do?")
            person.types(*keys)
            person.sees(f"not signed up: {action}")


def test_files_are_counted_inside_the_roots_only(tmp_path: Path) -> None:
    for name, files in (("here", 4), ("there", 1)):
        (tmp_path / name).mkdir()
        for number in range(files):
            (tmp_path / name / f"{number}").touch()
    printed = run([example("file_analysis.py"), "here", "there"], tmp_path)
    assert printed == ("here: 4\nthere: outside the roots\nadded there\nthere: 1\n")


@pytest.mark.parametrize("name", ["Grace", "Emmy"])
def test_another_process_answers_by_hand(name: str, tmp_path: Path) -> None:
    printed = run([example("answer_by_hand.py"), name], tmp_path)
    assert "the server asks: Sign up for a maths fact a day." in printed
    assert f'"name":"{name}"' in printed.split("another process gets: ")[1]


def test_each_caller_sees_its_own_question(tmp_path: Path) -> None:
    printed = run([example("per_call_ui.py"), "Al", "Beatrice"], tmp_path)
    assert printed == (
        "Al saw ['A table for Al'] and has a table for 2\n"
        "Beatrice saw ['A table for Beatrice'] and has a table for 8\n"
        "without a window: no table\n"
    )
