"""The examples of the embedding guide, each in its framework, except gevent and tkinter."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import requests
from werkzeug.serving import make_server

import syncmcp
from examples.embedding.flask_app import create_app
from syncmcp.handlers import HandlerContext
from syncmcp.testing import demo_server
from syncmcp.types import ElicitRequestFormParams, ElicitResult
from tests.support.programs import ROOT, environment
from tests.support.stage import PATIENCE, Stage, in_threads
from tests.system.embedding.frameworks import CEILING, EXAMPLES, FRAMEWORKS, children, finished
from tests.system.peers.launch import http_server
from tests.system.peers.peers import Program
from tests.transports._stdio import wait_gone

pytestmark = pytest.mark.slow

FOLDER = ROOT / "tests" / "system" / "embedding"


def test_each_program_of_the_guide_is_a_file_that_a_test_runs() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    page = (ROOT / "docs" / "embedding.md").read_text("utf-8")
    shown = re.findall(r"literalinclude\} \.\./examples/embedding/(\S+)", page)
    assert sorted(shown) == sorted(programs)
    tests = "".join(path.read_text("utf-8") for path in FOLDER.glob("test_*.py"))
    assert [
        name
        for name in programs
        if name not in tests and f"embedding.{name.removesuffix('.py')}" not in tests
    ] == []


# -- asyncio: coroutines await calls; a call that blocks the thread of the loop ends, too


@pytest.mark.requirement("M-01", "M-19")
@pytest.mark.pitfall("3", "14")
def test_coroutines_call_and_give_up_and_answer() -> None:
    assert finished(EXAMPLES / "asyncio_program.py").splitlines() == [
        "['0', '2', '4', '6', '8']",
        "timed out, and the call is cancelled",
        "the server asks: Sign up for a maths fact a day.",
        '{"action":"accept","content":{"name":"Ada","email":"ada@example.com"}}',
    ]


@pytest.mark.pitfall("3", "4")
def test_a_handler_that_waits_for_a_loop_that_waits_for_its_call_is_given_up() -> None:
    given_up: SimpleQueue[bool] = SimpleQueue()

    async def never_runs() -> ElicitResult:
        raise AssertionError("the loop was free")

    async def main() -> tuple[str, bool]:
        loop = asyncio.get_running_loop()

        def handler(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
            asked = asyncio.run_coroutine_threadsafe(never_runs(), loop)
            context.cancel.on_cancel(lambda: given_up.put(asked.cancel()))
            return asked.result()

        with syncmcp.connect(demo_server(), elicitation=handler, human_timeout=0.2) as client:
            told = client.call_tool("signup_math_facts").raise_for_error().text
            return told, given_up.get(timeout=PATIENCE)  # before the loop is free

    # The handler did not answer in time.
    assert asyncio.run(main()) == ('{"action":"cancel"}', True)


# -- Jupyter: cells block in a kernel whose event loop runs; the stop button interrupts them


@pytest.mark.peer
@pytest.mark.pitfall("3", "9")
def test_cells_run_in_a_kernel_the_stop_button_ends_a_call_and_a_later_cell_awaits_others() -> None:
    runner = FOLDER / "run_notebook.py"
    said = finished(runner, EXAMPLES / "notebook.py", python=FRAMEWORKS)
    assert said.splitlines() == [
        "['add', 'echo', 'greet']",
        "1 of 3: 2 left",
        "2 of 3: 1 left",
        "3 of 3: 0 left",
        "lift-off",
        "[0, 2, 4, 6, 8]",
        "started",
        "KeyboardInterrupt",
        "awaited: ['0', '2', '4']",
    ]


# -- Streamlit: all runs of the script share one client


@pytest.mark.peer
@pytest.mark.pitfall("1", "3")
def test_visitors_and_their_runs_share_one_server() -> None:
    visit = FOLDER / "visit_streamlit.py"
    said = finished(visit, EXAMPLES / "streamlit_app.py", python=FRAMEWORKS)
    assert said.splitlines() == [
        *("sum: 42", "after the bar: lift-off"),
        *("sum: 43", "after the bar: lift-off"),
        "servers: 1",
    ]


# -- Django: blocking and async views share one client


@pytest.mark.peer
@pytest.mark.pitfall("1", "3", "7")
def test_views_block_and_await_side_by_side_and_leave_no_server() -> None:
    site = (FRAMEWORKS, str(EXAMPLES / "django_site.py"), "runserver", "--noreload", "{port}")
    program = Program(site, {"PYTHONPATH": environment()["PYTHONPATH"]}, path="")
    with http_server(program) as django:

        def get(where: str) -> Any:
            return requests.get(f"{django.url}/{where}", timeout=6 * PATIENCE).json()

        adding = [lambda n=n: get(f"add?a={n}&b={n}") for n in range(8)]
        *sums, parallel = in_threads(*adding, lambda: get("parallel"))
        assert sums == [{"sum": str(2 * n)} for n in range(8)]
        assert parallel == {"results": ["rested"] * 5}
        (server,) = children(django.pid)
    assert wait_gone(server)


# -- Flask: all threads of an application share one client


@contextmanager
def served(target: syncmcp.Target) -> Iterator[str]:
    """Serve the application, with a thread for each request; yield its URL."""
    with (
        closing(syncmcp.Client(target, lazy=True)) as client,
        make_server("127.0.0.1", 0, create_app(client), threaded=True) as server,
    ):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def post(url: str, tool: str, **arguments: Any) -> requests.Response:
    return requests.post(f"{url}/tools/{tool}", json=arguments, timeout=6 * PATIENCE)


@pytest.mark.pitfall("1", "3", "23")
def test_requests_of_many_threads_are_at_the_server_at_one_time_and_errors_are_told_apart() -> None:
    stage = Stage()
    keys = [f"visitor {number}" for number in range(12)]

    def let_them_meet() -> None:
        stage.inside(*keys)
        stage.gate.set()

    with served(stage.server) as url:
        visits = [lambda key=key: post(url, "hold", key=key).json()["text"] for key in keys]
        *texts, _ = in_threads(*visits, let_them_meet)
        assert texts == keys
        assert post(url, "echo").status_code == 422
        assert post(url, "no such tool").status_code == 422
        listed = requests.post(f"{url}/tools/echo", json=["text"], timeout=6 * PATIENCE)
        assert listed.status_code == 422
    stage.server.close()
    with served(syncmcp.Stdio("no-such-command")) as url:
        answer = post(url, "echo", text="x")
    assert answer.status_code == 502
    assert "command not found" in answer.json()["error"]


# -- Celery: each process of a prefork worker has its own client


@contextmanager
def celery(files: Path, *words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run the program that sends tasks, or, with `words`, a worker."""
    with subprocess.Popen(
        [FRAMEWORKS, "-W", "error::ResourceWarning", EXAMPLES / "celery_tasks.py", *words],
        cwd=ROOT,
        env=environment(CELERY_FILES=str(files)),
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        **options,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def is_server(pid: int) -> bool:
    return b"syncmcp.testing" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.peer
@pytest.mark.pitfall("3", "7", "32")
def test_each_process_of_a_worker_has_a_client_and_leaves_no_server(tmp_path: Path) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with celery(tmp_path, **pipes) as sender, (tmp_path / "log").open("wb") as log:
        assert sender.stdout is not None
        assert "sent" in sender.stdout.readline(), sender.communicate()
        prefork = ("worker", "--pool", "prefork", "--concurrency", "2")
        with celery(tmp_path, *prefork, stdout=log, stderr=log) as worker:
            said, err = sender.communicate(timeout=CEILING)
            assert (sender.returncode, said) == (0, "[0, 2, 4, 6, 8, 10, 12, 14]\n"), err
            assert "Traceback" not in err
            processes = children(worker.pid)
            assert not any(map(is_server, processes))
            servers = [pid for process in processes for pid in children(process) if is_server(pid)]
            assert servers
            worker.terminate()
            assert worker.wait(CEILING) == 0, (tmp_path / "log").read_text("utf-8")
    assert all(map(wait_gone, servers))
