"""A client as a pickle: what travels, what does not, and who shares what comes out."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import syncmcp
from syncmcp import Client, ClosedError, Http, Interceptor, Stdio, UsageError
from syncmcp._client import settings
from syncmcp.auth import MemoryStore, OAuth
from syncmcp.testing import Server, serve_http
from tests.support import programs
from tests.support.stage import PATIENCE, STATEFUL, Stage, in_threads

HERE = "http://127.0.0.1:9/"


@pytest.fixture(autouse=True)
def close_shared() -> Iterator[None]:
    yield
    for client in list(settings._shared.values()):
        client.close()


def heard(*_news: object) -> None:
    """A handler that can be pickled."""


def again(client: Client) -> Client:
    copy: Client = pickle.loads(pickle.dumps(client))
    return copy


def test_a_pickle_holds_what_the_client_was_given_in_the_clear() -> None:
    target = Http(HERE, headers={"X-Key": "canary-of-a-header"})
    assert b"canary-of-a-header" in pickle.dumps(Client(target))
    assert b"canary-of-env" in pickle.dumps(Client(Stdio("x", env={"KEY": "canary-of-env"})))


class Locked(Interceptor):
    """One that cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


UNFIT: dict[str, tuple[str, Callable[[], Client]]] = {
    "a lambda": ("on_log", lambda: Client(HERE, on_log=lambda log: None)),
    "a lock": ("interceptors", lambda: Client(HERE, interceptors=[Locked()])),
    "headers": (
        r"headers of Http\(\.\.\.\)",
        lambda: Client(Http(HERE, headers=lambda: {"X-Key": "1"})),
    ),
    "stderr": (r"stderr of Stdio\(\.\.\.\)", lambda: Client(Stdio("x", stderr=lambda line: None))),
    "tokens": (
        r"auth of Http\(\.\.\.\)",
        lambda: Client(Http(HERE, auth=OAuth(store=MemoryStore()))),
    ),
    "a server": ("the target", lambda: Client(Server("here"))),
}


@pytest.mark.parametrize(("named", "make"), UNFIT.values(), ids=list(UNFIT))
def test_what_cannot_be_pickled_is_named(named: str, make: Callable[[], Client]) -> None:
    with pytest.raises(UsageError, match=f"{named} cannot be pickled") as caught:
        pickle.dumps(make())
    assert caught.value.__cause__ is not None


def test_handlers_set_one_by_one_travel_too() -> None:
    client = Client(HERE)
    client.on_request("acme/question", heard)
    client.on_notification("acme/news", heard)
    handlers = again(client)._handlers
    assert handlers.requests == {"acme/question": heard}
    assert handlers.notifications == {"acme/news": heard}
    client.on_notification("acme/other", lambda params: None)
    with pytest.raises(UsageError, match="the handler of acme/other"):
        pickle.dumps(client)


@pytest.mark.pitfall("32")
def test_a_process_opens_one_client_for_one_configuration() -> None:
    stage = Stage()
    with serve_http(stage.server) as http:
        one, other = Client(http.url, timeout=9), Client(http.url, timeout=8)
        data = pickle.dumps(one)
        barrier = threading.Barrier(8)

        def call() -> Client:
            barrier.wait(PATIENCE)
            client: Client = pickle.loads(data)
            assert client.call_tool("echo", {"text": "a"}).text == "a"
            return client

        clients = in_threads(*[call] * 8)
        assert all(client is clients[0] for client in clients)
        assert clients[0] is not one
        assert clients[0]._configuration()[1] == one._configuration()[1]
        assert again(other) is not clients[0]
        assert stage.stats.requests["server/discover"] == 1


def test_who_leaves_a_with_leaves_a_shared_client_open_for_the_others() -> None:
    stage = Stage()
    with serve_http(stage.server) as http:
        data = pickle.dumps(Client(http.url))
        with pickle.loads(data) as client:
            client.call_tool("echo", {"text": "a"})
        assert client.call_tool("echo", {"text": "b"}).text == "b"
        client.close()
        with pytest.raises(ClosedError):
            client.call_tool("echo", {"text": "c"})
        # The next one gets a new one.
        assert pickle.loads(data) is not client
        assert pickle.loads(data).call_tool("echo", {"text": "d"}).text == "d"


def test_a_forked_child_has_one_of_its_own() -> None:
    code = """
import pickle, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking a program with threads
data = pickle.dumps(syncmcp.Client(SERVER))
pid = pickle.loads(data).call_tool("pid").text
child = os.fork()
if child == 0:
    ours = pickle.loads(data)
    say(ours.call_tool("pid").text != pid, pickle.loads(data) is ours)
    ours.close()
    os._exit(0)
say(os.waitpid(child, 0)[1])
say(pickle.loads(data).call_tool("pid").text == pid)
"""
    with programs.running(code) as program:
        assert [program.line() for _ in range(3)] == ["True True", "0", "True"]
        assert program.end() == (0, "", "")


WORKER = """
import multiprocessing, pickle, sys

def call(data):
    pickle.loads(data).list_tools()

if __name__ == "__main__":
    import syncmcp

    data = pickle.dumps(syncmcp.Client(sys.argv[1], mode=sys.argv[2]))
    process = multiprocessing.get_context(sys.argv[3]).Process(target=call, args=(data,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_is_closed_at_the_end_of_a_worker_process(method: str, tmp_path: Path) -> None:
    stage = Stage()
    script = tmp_path / "program.py"
    script.write_text(WORKER, encoding="utf-8")
    root = str(Path(__file__).parents[2])
    with serve_http(stage.server) as http:
        subprocess.run(
            [sys.executable, "-W", "error", str(script), http.url, STATEFUL, method],
            env={**os.environ, "PYTHONPATH": root},
            check=True,
            timeout=9 * programs.CEILING,  # two of them have to start
        )
        assert stage.stats.wait_for(lambda stats: stats.sessions == 0, PATIENCE)
        assert stage.stats.opened == 1


def test_errors_of_what_came_out_of_a_pickle_name_the_server() -> None:
    with pytest.raises(syncmcp.ConnectFailed) as caught:
        again(Client(HERE, name="far away", retry=None)).call_tool("echo")
    assert caught.value.server == "far away"
