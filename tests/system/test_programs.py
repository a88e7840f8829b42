"""Whole programs: their end with open clients, Ctrl-C, and forks.

Each program runs in a separate interpreter; its server is a child process of the program.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import CEILING, running


def says(code: str, *lines: str) -> None:
    """Run a program, which must print these lines, and nothing else, and exit with code 0."""
    with running(code) as program:
        assert [program.line() for _ in lines] == [*lines]
        assert program.end() == (0, "", "")


# -- the end of a program ------------------------------------------------------------------------

ENDS = {
    "clients left open, threads blocked in calls, a callback and a handler that never return": """
idle = syncmcp.connect(SERVER)
idle.call_tool("pid")
client = syncmcp.Client(SERVER, mode="legacy")
reached = threading.Semaphore(0)
def stuck(*_):
    reached.release()
    threading.Event().wait()
client.on_request("acme/question", stuck)
client.open()
def block():
    try:
        client.call_tool("wait", on_progress=lambda *_: reached.release())
    except syncmcp.McpError:
        pass
for _ in range(4):
    threading.Thread(target=block, daemon=True).start()
calls = [client.call_tool.future("ask"), client.call_tool.future("wait", on_progress=stuck)]
for _ in range(6):
    reached.acquire()
""",
    "closing in an atexit function and in finalizers, and sys.exit in a with block": """
class Holder:
    def __init__(self):
        self.client = syncmcp.connect(SERVER)
    def __del__(self):
        self.client.close()
Holder()
holder = Holder()
holder.itself = holder  # until the very end
atexit.register(syncmcp.connect(SERVER).close)
with syncmcp.connect(SERVER) as client:
    client.call_tool("pid")
    say("end")
    sys.exit(0)
""",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.pitfall("6", "7", "H7", "H8")
def test_a_program_ends_by_itself_with(end: str) -> None:
    says(ENDS[end] + "\nsay('end')\n", "end")


@pytest.mark.pitfall("1")
def test_a_client_is_closed_from_a_signal_handler() -> None:
    code = """
client = syncmcp.connect(SERVER)
signal.signal(signal.SIGUSR1, lambda *_: client.close())
try:
    client.call_tool("wait", on_progress=lambda *_: os.kill(os.getpid(), signal.SIGUSR1))
except syncmcp.ClosedError:
    say("closed")
"""
    says(code, "closed")


# -- Ctrl-C --------------------------------------------------------------------------------------


@pytest.mark.pitfall("7", "9")
def test_ctrl_c_while_connecting_ends_the_server_that_was_being_started() -> None:
    code = """
silent = syncmcp.Stdio(
    sys.executable, "-I", "-S", "-c",
    "import sys; sys.stderr.write('up\\\\n'); sys.stderr.flush(); sys.stdin.read()",
    stderr=lambda line: say("ready"),
)
# Loads all modules: of an import that is interrupted, Python may leave a file open.
syncmcp.connect(SERVER).close()
try:
    syncmcp.connect(silent)
except KeyboardInterrupt:
    say("interrupted")
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    say("no child is left")
with syncmcp.connect(SERVER) as client:
    say(bool(client.call_tool("pid").text))
"""
    with running(code) as program:
        assert program.line() == "ready"
        program.interrupt()
        assert [program.line() for _ in range(3)] == ["interrupted", "no child is left", "True"]
        assert program.end() == (0, "", "")


@pytest.mark.pitfall("9")
def test_ctrl_c_that_nobody_catches_ends_the_program_and_its_server() -> None:
    code = """
with syncmcp.connect(SERVER) as client:
    say(client.call_tool("pid").text)
    client.call_tool("wait", on_progress=lambda *_: say("ready"))
"""
    with running(code) as program:
        server = int(program.line())
        assert program.line() == "ready"
        program.interrupt()
        exit_code, _, err = program.end()
        assert exit_code == -2
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert not Path(f"/proc/{server}").exists()


# -- processes -----------------------------------------------------------------------------------

IN_CHILD = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking a program with threads

def in_child(function):
    "Fork; run the function in the child; return its exit code."
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException as error:
            say("in the child:", repr(error))
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


@pytest.mark.pitfall("32")
def test_after_a_fork_the_child_gets_a_clear_error_or_a_new_client_and_the_parent_goes_on() -> None:
    code = f"""
{IN_CHILD}
client = syncmcp.connect(SERVER)
pid = client.call_tool("pid").text
def with_the_old_one():
    for attempt in (
        client.ping,
        lambda: client.call_tool("pid"),
        lambda: client.call_tool.future("pid").result(),
        client.open,
    ):
        try:
            attempt()
        except syncmcp.ForkedError as error:
            say("parent" in str(error))
    client.close()  # the parent's business: nothing happens
def with_a_new_one():
    # Timer, reaper and pools are made anew: a time limit and a future prove it.
    with syncmcp.connect(SERVER) as new:
        assert new.call_tool.future("pid").result(10).text != pid
        try:
            new.call_tool.future("wait", timeout=0.05).result(10)
        except syncmcp.RequestTimeout:
            say("timed out")
say(in_child(with_the_old_one))
say(client.call_tool("pid").text == pid)
say(in_child(with_a_new_one))
say(client.call_tool.future("pid", timeout=10).result(10).text == pid)
client.close()
"""
    says(code, *["True"] * 4, "0", "True", "timed out", "0", "True")


def test_a_child_that_is_forked_while_another_thread_loads_modules_can_use_them() -> None:
    # The import of a module of the models is paused until the fork begins, which waits for its end.
    code = f"""
{IN_CHILD}
reached, forking = threading.Event(), threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "syncmcp.types.server_features" and not reached.is_set():
            reached.set()
            forking.wait()
sys.meta_path.insert(0, Slow())
os.register_at_fork(before=forking.set)
def call():
    with syncmcp.connect(SERVER) as client:
        client.call_tool("pid")
thread = threading.Thread(target=call)
thread.start()
reached.wait()
def child():
    signal.alarm({int(CEILING / 2)})
    call()
say(in_child(child))
thread.join()
"""
    says(code, "0")


def test_the_first_calls_of_a_program_load_no_module_of_the_library() -> None:
    code = """
client = syncmcp.connect(SERVER)
before = set(sys.modules)
client.list_tools()
client.call_tool("pid")
client.call_tool.future("pid").result()
say(sorted(name for name in set(sys.modules) - before if name.startswith("syncmcp")))
client.close()
"""
    says(code, "[]")


def test_a_fork_waits_for_a_model_that_another_thread_builds() -> None:
    code = f"""
{IN_CHILD}
import pydantic
from syncmcp.types import base
reached, forking = threading.Event(), threading.Event()
rebuild = pydantic.BaseModel.model_rebuild.__func__
def slow(cls, **options):
    if not reached.is_set():
        reached.set()
        forking.wait()
    return rebuild(cls, **options)
pydantic.BaseModel.model_rebuild = classmethod(slow)
os.register_at_fork(before=forking.set)
thread = threading.Thread(target=base.Icon.model_rebuild, kwargs={{"force": True}})
thread.start()
reached.wait()
def child():
    signal.alarm({int(CEILING / 2)})
    base.Icon.model_rebuild(force=True)
say(in_child(child))
thread.join()
"""
    says(code, "0")


@pytest.mark.pitfall("32")
def test_a_client_that_is_not_open_at_a_fork_works_on_both_sides() -> None:
    code = f"""
{IN_CHILD}
unused = syncmcp.Client(SERVER, lazy=True)
closed = syncmcp.connect(SERVER)
pids = {{closed.call_tool("pid").text}}
closed.close()
with unused._core.lock:  # as if another thread were about to open it
    def child():
        say(unused.call_tool("pid").text != unused.call_tool.future("pid").result(10).text)
        with closed:
            say(closed.call_tool("pid").text in pids)
        unused.close()
    say(in_child(child))
pids |= {{unused.call_tool("pid").text, closed.open().call_tool("pid").text}}
say(len(pids))
unused.close()
closed.close()
"""
    says(code, "False", "False", "0", "3")
