"""Every example runs in an empty directory, and so does the Python in the pages."""

from __future__ import annotations

import doctest
import functools
import gc
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
import requests

from syncmcp._client.lifetime import close_all
from syncmcp.ui.browser import Browser
from tests.cli.running import DOWN, ENTER, AtTerminal, at_terminal
from tests.ui.person import UP, WAIT
from tests.ui.visitor import Visitor, address_in

# Seconds: some examples start a cluster of processes, which is slow on a busy machine.
_LONGEST = 240

pytestmark = [pytest.mark.timeout(_LONGEST + 20), pytest.mark.slow]

ROOT = Path(__file__).parents[2]
_TRIED_ELSEWHERE = ("embedding", "from_official_sdk")
EXAMPLES = sorted(
    (path for path in ROOT.glob("examples/*/*.py") if path.parent.name not in _TRIED_ELSEWHERE),
    key=lambda path: path.stem,
)

# Texts that each example must print without arguments and without a terminal.
SAYS = {
    "agent": [
        "no terminal: a script is played (--ui none reads",
        "demo: open, revision ",
        '"outputFormat":"plain"',
        "agent: Bergen:",
    ],
    "answer_by_hand": ["the server asks: Sign up for a maths fact a day.", '"name":"Ada"'],
    "approval_ui": [
        "answered: Rain, in at most 250 tokens.\n",
        "What does my user earn?\n  yes, no, half? no\ndenied: the person said no\n",
    ],
    "batches": ["apple: 2 (sent as 1 of 5)", "one after another: ['apple: 2 (sent alone)', 'pear"],
    "cancellation": ["timeout: ", "future: cancelled True", "token: the user", "event: cancelled"],
    "cluster": ["20 calls on these workers: ", "the sum is 380"],
    "completions": ["city: K -> Kobe, Kyoto", "not sent: the prompt 'journey' needs 'city'"],
    "custom_method": ["counted by badge 42\n", "lamp: 12 pieces\n"],
    "demo": [
        "connected to syncmcp-demo",
        "  3 of 3: 0 left\n  countdown -> lift-off\n",
        *(f"  {number} + {number} -> {2 * number}\n" for number in range(8)),
        "closed, and the server has ended\n",
    ],
    "diagnosis": [
        "main, waits for the answer to",
        "tools/call: 3 requests, 1 of them RequestTimeout",
    ],
    "five_lines": ["3\n"],
    "futures": ["the call of 0.1 s: ", "the call of 0.3 s: ", "the error: "],
    "handle_logging": ['"level": "warning", "logger": "bank.audit", "data": {"amount": 100'],
    "interceptors": ["5 x tools/call done", "4 x tools/list ConnectFailed", "<- tools/list"],
    "multiple_models": ["AnthropicFormat: [{", "OpenAIChatFormat: [{", "GeminiFormat: [{"],
    "multiple_servers": [
        "attic: failed, [attic]: command not found",
        "tools now: market_search, buy_fish, library_search, buy_books, harbour_search, buy_boats",
        "harbour has eel trap\nlibrary has all about eels\nmarket has eel\n",
    ],
    "own_http_server": ["the page says: Open from 9 to 5.\n", "the server saw 2 calls\n"],
    "per_call_ui": ["Boris saw ['A table for Boris'] and has a table for 5", "no table"],
    "progress_messages": ["before the call returns:\n   33 %", "100 %", "lift-off"],
    "providing_roots": ["project: 3", "private: outside the roots", "private: 2"],
    "record_replay": [
        "<- notifications/progress\n  <- notifications/progress\n  <- response\nreplayed:",
        "arguments.steps: recorded 2; asked 3",
        "contains the API key: False",
    ],
    "resuming": ["the second process is notified of stock://herbs\nthe same session: True\n"],
    "retries": ["costs 45, after 2 requests", "sent 1 time (delivery: unknown)"],
    "returning_elicitations": ["not signed up: cancel"],
    "sampling_callback": ["not explained: ", "(cannot ask: standard input"],
    "sign_in": [
        "/mcp, which has the tools: read",
        "signed out: a person must sign in again",
    ],
    "skills": [
        "skill://bank/refunds/SKILL.md: Give money back, can be loaded",
        "refused (size): skill://shop/refunds/references/letter.md",
    ],
    "streaming_results": ["1 of 3\n2 of 3\n3 of 3\nthe result: lift-off\nfirst item: Progress("],
    "structured_output": ["['books'][1] lacks 'year'", "the invalid result has 2 books"],
    "subscriptions": ["stock://fruit has changed: apple, plum", "True, stopped: True"],
    "tasks": ["question: Which frame?", "status: completed", "result: a harbour, in oak"],
    "templates": ["letters://..%2Fsecrets", "refused: the value of 'path' contains a segment"],
    "threads": ["9900\n", " closed>\n"],
    "tool_annotations": ["trusted: True\n  burn {'page': 7}: archive claims that it destroys\n"],
    "tool_loop": ["  order -> 6 apples are on their way\nturn 4: Apples cost less"],
    "tracing": ["no span\n00-00000000000000000000000000005afe-000000000000cafe-01\n00-"],
    "url_elicitation": ["  done\n10 euros: paid\n", "\n1000 euros: not paid: decline\n"],
}

# Files that the code of a page names; the test makes them empty.
FILES = {"docs/remote.md": ["company-ca.pem", "client.pem", "client.key"]}


def example(name: str) -> str:
    [path] = ROOT.glob(f"examples/*/{name}")
    return str(path)


def blocks(page: str) -> list[str]:
    """Return the blocks of Python in a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def environment(**more: str) -> dict[str, str]:
    """Return the environment of this process with `more`; this Python is first on `PATH`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, **more}


def run(command: list[str], cwd: Path, said: str = "") -> str:
    """Run a program as a reader would, with `said` as its stdin; return its output.

    It runs in a forked child, because this process has already loaded the library.
    """
    with ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(said.encode())
        streams[0].seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking a program with threads
            child = os.fork()
        if child == 0:
            _become(command, cwd, [stream.fileno() for stream in streams])
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for stream in streams:
            stream.seek(0)
        _, printed, logged = (stream.read().decode() for stream in streams)
    return judged(code, printed, logged)


def _become(command: list[str], cwd: Path, streams: list[int]) -> NoReturn:
    """Turn this forked child into the program, with `-W error`, and exit at its end."""
    code = 1
    try:
        signal.alarm(_LONGEST)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(streams[number], number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
        # Undo the changes of pytest.
        logging.root.handlers.clear()
        sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
        warnings.resetwarnings()
        warnings.simplefilter("error")
        os.environ.update(environment())
        os.chdir(cwd)
        file, *words = command
        source = words[0] if file == "-c" else Path(file).read_text("utf-8")
        sys.argv = ["-c"] if file == "-c" else command
        sys.path.insert(0, str(Path(file).parent))
        sys.modules["__main__"] = main = ModuleType("__main__", None)
        main.__file__ = file
        exec(compile(source, file, "exec"), vars(main))
        # Like the end of an interpreter.
        close_all()
        weakref.finalize._shutdown = True  # type: ignore[attr-defined]
        vars(main).clear()
        gc.collect()  # every other resource that is still open raises a warning
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def judged(code: int, printed: str, logged: str) -> str:
    """Return the output of a program that ended without an error."""
    assert code == 0, printed + logged
    # Python prints the log, in which a failed handler has a traceback. Allow no other traceback.
    failed = re.findall(r"^.* the handler of \S+ failed\nTraceback", logged, re.MULTILINE)
    assert logged.count("Traceback") == len(failed), logged
    return printed


def run_alone(command: list[str], cwd: Path) -> str:
    """Run a program that starts other processes in a separate interpreter; return its output."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LONGEST,
        check=False,
    )
    # A Dask cluster may log that it ends while one of its timers waits.
    logged = re.sub(
        r"^\S+ \S+ - distributed\.(?:.|\n(?!\d{4}-))*", "", ended.stderr, flags=re.MULTILINE
    )
    return judged(ended.returncode, ended.stdout, logged)


@contextmanager
def at_the_terminal(*words: str) -> Iterator[AtTerminal]:
    """Run a program at a terminal with a simulated person; it must end with exit code 0."""
    line = shlex.join([sys.executable, "-W", "error", *words])
    variables: dict[str, Any] = {**environment()}
    with at_terminal(shell=f"exec {line}", **variables) as person:
        yield person
        assert person.ends() == 0, person.screen
        assert "Traceback" not in person.screen


def test_each_example_has_words_that_it_must_say() -> None:
    assert sorted(SAYS) == [example.stem for example in EXAMPLES]
    assert all(SAYS.values())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    printed = (run_alone if example.stem == "cluster" else run)([str(example)], tmp_path)
    assert [words for words in SAYS[example.stem] if words not in printed] == []


def shown(page: str) -> list[tuple[str, str]]:
    """Return the blocks of Python in a page, each with the output below it; "" if none."""
    text = (ROOT / page).read_text(encoding="utf-8")
    pair = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?"
    return re.findall(pair, text, re.DOTALL | re.MULTILINE)


FIRST_PAGES = ("README.md", "docs/index.md", "docs/api/client.md", "docs/api/client-tools.md")


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_each_script_of_the_first_pages_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    scripts = shown(page)
    assert [script for script, _ in scripts] == blocks(page) != []
    for script, output in scripts:
        assert run(["-c", script], tmp_path) == output


WALKED = [
    page
    for page in sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md"))
    if blocks(page) and page not in FIRST_PAGES
]

END = "-- the end of a block --\n"


@pytest.mark.parametrize("page", WALKED)
def test_what_a_page_shows_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    """Run all blocks as one program, and compare the output; `...` matches any text."""
    for name in FILES.get(page, []):
        (tmp_path / name).touch()
    parts = shown(page)
    assert [code for code, _ in parts] == blocks(page)
    script = "".join(f"{code}\nprint({END!r}, end='')\n" for code, _ in parts)
    *printed, after = run(["-c", script], tmp_path).split(END)
    flags = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1
    same = functools.partial(doctest.OutputChecker().check_output, optionflags=flags)
    shows = [output for _, output in parts]
    assert [pair for pair in zip(shows, printed, strict=True) if not same(*pair)] == []
    assert after == ""


# By command line: what the person types, and what must be printed.
TOLD = {
    "agent.py --ui none": ('add {"a": 40, "b": 2}\n', "-> 42\nagent: The result is: 42\n"),
    "answer_by_hand.py Grace": ("", '"name":"Grace"'),
    "approval_ui.py --ask": ("no\nhalf\nyes\n", "answered: Rain, in at most 250 tokens.\n"),
    "per_call_ui.py Al Beatrice": ("", "Beatrice saw ['A table for Beatrice'] and has a table"),
    "returning_elicitations.py --unattended": ("", 'com"}\nnot signed up: decline\nnot signed up:'),
    "sampling_callback.py '40 + 4' --unattended": ("", "\n44\n"),
    "url_elicitation.py --ask": ("n\nn\n", "10 euros: not paid: decline\n"),
}


@pytest.mark.parametrize("line", TOLD)
def test_the_example_does_as_it_is_told(line: str, tmp_path: Path) -> None:
    said, printed = TOLD[line]
    name, *words = shlex.split(line)
    assert printed in run([example(name), *words], tmp_path, said)


def test_another_script_of_the_agent_gives_other_answers(tmp_path: Path) -> None:
    script = {
        "person": ["Add up."],
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
    assert "allow by policy: sampling: 1 message, 0 tools, at most 500 tokens" in printed


def test_the_agent_asks_and_is_approved_in_the_browser(tmp_path: Path) -> None:
    script = {"person": ["Ask me."], "model": [{"tool": "ask_user_preferences"}, "Done."]}
    (tmp_path / "answers.json").write_text(json.dumps(script), encoding="utf-8")
    options = ["--ui", "browser", "--script", "answers.json"]
    process = subprocess.Popen(
        [sys.executable, "-W", "error", example("agent.py"), *options],
        cwd=tmp_path,
        env=environment(BROWSER="echo %s", PYTHONUNBUFFERED="1"),  # the browser prints the link
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "you> Ask me.\n"
        link = SimpleNamespace(address=address_in(process.stdout.readline().strip()))
        with Visitor(cast("Browser", link)) as person:
            (call,) = person.waiting()
            assert "demo" in call.text
            person.send(call, "approve", word="run")
            (form,) = person.waiting()
            assert "How should answers look?" in form.text
            with suppress(requests.ConnectionError):  # the program may end before it answers
                person.send(form, "decline")
        printed, _ = process.communicate(timeout=WAIT)
        assert process.returncode == 0
        assert '-> {"action":"decline"}' in printed
        assert printed.endswith("agent: Done.\n")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.requirement("M-26")
def test_a_person_reviews_the_request_and_the_answer_of_the_tutor() -> None:
    with at_the_terminal(example("sampling_callback.py"), "6 * 7") as person:
        person.sees("━━ school asks a model for an answer ━━")
        person.sees("Let the model answer?")
        assert "42" not in person.screen
        person.types(DOWN, DOWN, ENTER)
        person.sees("━━ school will get this answer from the model, if you agree ━━")
        person.answers("Send it?", DOWN, DOWN, ENTER)
        person.sees("\nWrite 6 down 7 times.\nAdd it all up.\n42")


@pytest.mark.requirement("M-28")
def test_a_person_signs_up_field_by_field() -> None:
    with at_the_terminal(example("returning_elicitations.py")) as person:
        person.sees("━━ maths club asks you to fill in a form ━━")
        person.answers("What do you want to do?", ENTER)
        person.answers("“Name” *:", "Ada", ENTER)
        person.answers("“E-mail” *:", "ada@example.com", ENTER)
        person.answers("“Favourite number”:", ENTER)
        person.answers("Ready to send?", UP, ENTER)
        person.sees('signed up: {"name": "Ada", "email": "ada@example.com"}')


@pytest.mark.requirement("M-25")
def test_the_audit_trail_has_its_levels_and_its_logger_only(tmp_path: Path) -> None:
    lines = run([example("handle_logging.py")], tmp_path).splitlines()
    entries = [json.loads(line) for line in lines]
    assert {entry["logger"] for entry in entries} == {"bank.audit"}
    levels = ["warning", "error", "critical", "alert", "emergency"]
    assert [entry["level"] for entry in entries] == levels


@pytest.mark.requirement("M-27")
def test_files_are_counted_inside_the_roots_only(tmp_path: Path) -> None:
    for name, files in (("here", 4), ("there", 1)):
        (tmp_path / name).mkdir()
        for number in range(files):
            (tmp_path / name / f"{number}").touch()
    printed = run([example("providing_roots.py"), "here", "there"], tmp_path)
    assert printed == ("here: 4\nthere: outside the roots\nadded there\nthere: 1\n")
