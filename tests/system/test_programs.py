"""Whole programs: how they end with a client left open, what Ctrl-C does, what a fork does.

Each program runs in an interpreter of its own, on a server that is a child process of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import CEILING, running


def says(code: str, *lines: str) -> None:
    """Run a program that prints these lines, and nothing else, and ends well."""
    with running(code) as program:
        assert [program.line() for _ in lines] == [*lines]
        assert program.end() == (0, "", "")


# -- the end of a program ------------------------------------------------------------------------

HOLDER = """
class Holder:
    def __init__(self):
        self.client = syncmcp.connect(SERVER)
    def __del__(self):
        self.client.close()
"""

ENDS = {
    "clients left open, a call in flight and threads blocked in calls": """
idle = syncmcp.connect(SERVER)
idle.call_tool("pid")
client = syncmcp.connect(SERVER)
reached = threading.Semaphore(0)
call = client.call_tool.future("wait", on_progress=lambda *_: reached.release())
def block():
    try:
        client.call_tool("wait", on_progress=lambda *_: reached.release())
    except syncmcp.McpError:
        pass
for _ in range(4):
    threading.Thread(target=block, daemon=True).start()
for _ in range(5):
    reached.acquire()
""",
    "a callback and a handler that never return": """
client = syncmcp.Client(SERVER, mode="legacy")
reached = threading.Semaphore(0)
def stuck(*_):
    reached.release()
    threading.Event().wait()
client.on_request("acme/question", stuck)
client.open()
calls = [client.call_tool.future("ask"), client.call_tool.future("wait", on_progress=stuck)]
for _ in calls:
    reached.acquire()
""",
    "closing in a finalizer": f"{HOLDER}Holder()",
    "closing in an atexit function, and in a finalizer at the very end": f"""
client = syncmcp.connect(SERVER)
atexit.register(client.close)
{HOLDER}
holder = Holder()
holder.itself = holder
""",
    "sys.exit in the middle of a with block": """
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


@pytest.mark.pitfall("6", "H7")
def test_sys_exit_in_a_handler_ends_the_handler_and_answers_the_server() -> None:
    code = """
client = syncmcp.Client(SERVER, mode="legacy")
client.on_request("acme/question", lambda params, context: sys.exit(5))
with client:
    for _ in range(2):
        try:
            client.call_tool("ask")
        except syncmcp.ServerError as error:
            say(error.code)  # the tool passes on what it was answered
"""
    with running(code) as program:
        assert [program.line(), program.line()] == ["-32603", "-32603"]
        ended, _, stderr = program.end()
        assert ended == 0
        assert "the handler of acme/question failed" in stderr


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

ALIVE = """
say(client.call_tool("pid").text == pid)
say("cancels:", client.call_tool("cancels").text)
client.close()
"""


@pytest.mark.requirement("STD-05")
@pytest.mark.pitfall("9")
def test_ctrl_c_during_a_call_reaches_the_caller_and_the_server_and_harms_neither() -> None:
    code = f"""
client = syncmcp.connect(SERVER)
pid = client.call_tool("pid").text
try:
    client.call_tool("wait", on_progress=lambda *_: say("ready"))
except KeyboardInterrupt:
    say("interrupted")
{ALIVE}
"""
    with running(code) as program:
        assert program.line() == "ready"
        program.interrupt()
        assert [program.line() for _ in range(3)] == ["interrupted", "True", "cancels: 1"]
        assert program.end() == (0, "", "")


@pytest.mark.pitfall("9")
def test_ctrl_c_during_a_handler_reaches_the_caller_and_lets_the_handler_go_on() -> None:
    code = f"""
client = syncmcp.Client(SERVER, mode="legacy")
gate = threading.Event()
ended = threading.Event()
def handler(params, context):
    say("ready")
    gate.wait()
    ended.set()
client.on_request("acme/question", handler)
client.open()
pid = client.call_tool("pid").text
try:
    client.call_tool("ask")
except KeyboardInterrupt:
    say("interrupted")
gate.set()
say(ended.wait(10))
{ALIVE}
"""
    with running(code) as program:
        assert program.line() == "ready"
        program.interrupt()
        assert [program.line() for _ in range(4)] == ["interrupted", "True", "True", "cancels: 1"]
        assert program.end() == (0, "", "")


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


@pytest.mark.parametrize("module", ["syncmcp.types.base", "syncmcp.types.server_features"])
def test_a_child_that_is_forked_while_another_thread_loads_modules_can_use_them(
    module: str,
) -> None:
    # The import of a module of the models waits for the fork, and ends while the fork waits for it.
    code = f"""
{IN_CHILD}
reached, forking = threading.Event(), threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r} and not reached.is_set():
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


@pytest.mark.pitfall("H12")
def test_a_forked_child_that_lives_on_does_not_keep_the_server_alive() -> None:
    code = f"""
{IN_CHILD}
words = []
server = syncmcp.Stdio(*[SERVER.command, *SERVER.args], stderr=words.append, grace=(10, 10))
client = syncmcp.connect(server, close_timeout=40)
client.call_tool("pid")
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
client.close()
say(words[-1])  # it saw the end of its input, and was not killed
os.close(writer)
os.waitpid(child, 0)
"""
    says(code, "goodbye")


@pytest.mark.pitfall("32")
def test_a_client_can_be_sent_to_a_spawned_process() -> None:
    code = """
import multiprocessing, operator
from concurrent.futures import ProcessPoolExecutor

client = syncmcp.connect(SERVER)
with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
    theirs = pool.submit(operator.methodcaller("call_tool", "pid"), client).result()
say(theirs.text not in ("", client.call_tool("pid").text))
client.close()
"""
    with running(code) as program:
        assert program.line() == "True"
        assert program.end()[0] == 0
