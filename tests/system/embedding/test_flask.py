"""Flask: all threads of an application share one client."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from werkzeug.serving import make_server

import syncmcp
from examples.embedding.flask_app import create_app
from tests.support.stage import PATIENCE, Stage, in_threads
from tests.system.embedding.frameworks import EXAMPLES, children
from tests.system.peers.launch import http_server
from tests.system.peers.peers import Program
from tests.transports._stdio import wait_gone

pytestmark = pytest.mark.slow


@contextmanager
def served(target: syncmcp.Target) -> Iterator[str]:
    """The application, on a thread for each request."""
    client = syncmcp.Client(target, lazy=True)
    server = make_server("127.0.0.1", 0, create_app(client), threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(PATIENCE)
        server.server_close()
        client.close()


def post(url: str, tool: str, **arguments: Any) -> requests.Response:
    return requests.post(f"{url}/tools/{tool}", json=arguments, timeout=6 * PATIENCE)


@pytest.mark.pitfall("1", "3", "23")
def test_requests_of_many_threads_are_at_the_server_at_one_time() -> None:
    stage = Stage()
    keys = [f"visitor {number}" for number in range(12)]

    def let_them_meet() -> None:
        stage.inside(*keys)
        stage.gate.set()

    with served(stage.server) as url:
        visits = [lambda key=key: post(url, "hold", key=key).json()["text"] for key in keys]
        *texts, _ = in_threads(*visits, let_them_meet)
    assert texts == keys
    stage.server.close()


def test_an_error_of_the_tool_is_not_one_of_the_way_there() -> None:
    stage = Stage()
    with served(stage.server) as url:
        assert post(url, "echo").status_code == 422
        assert post(url, "no such tool").status_code == 422
    stage.server.close()
    with served(syncmcp.Stdio("no-such-command")) as url:
        answer = post(url, "echo", text="x")
    assert answer.status_code == 502
    assert "command not found" in answer.json()["error"]


@pytest.mark.pitfall("3", "7")
def test_the_application_runs_as_its_first_lines_say_and_leaves_no_server() -> None:
    command = (sys.executable, "-m", "flask", "--app", str(EXAMPLES / "flask_app.py"), "run")
    with http_server(Program((*command, "--port", "{port}"), path="")) as flask:
        texts = in_threads(
            *(lambda n=n: post(flask.url, "add", a=n, b=n).json()["text"] for n in range(8))
        )
        assert texts == [str(2 * n) for n in range(8)]
        (server,) = children(flask.pid)
    assert wait_gone(server)
