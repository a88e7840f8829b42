"""`confine=`: no entry of a file adds options to the sandbox, or changes its behaviour."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import McpError, ServersFileError, Stdio
from syncmcp.servers_file import ServersFile, read
from tests.support.stage import PATIENCE

PAGE = Path(__file__).parents[2] / "docs" / "configuration-files.md"

pytestmark = [pytest.mark.requirement("SEC-07"), pytest.mark.usefixtures("project")]


def confined(entry: Any, *words: str, **options: Any) -> ServersFile:
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"one": entry}}))
    return read("mcp.json", confine=words, trust=True, **options)


def line(entry: Any, *words: str) -> list[str]:
    target = confined(entry, *words)["one"].target()
    assert isinstance(target, Stdio)
    return [target.command, *target.args]


def refused(servers: ServersFile, key: str) -> None:
    with pytest.raises(ServersFileError, match="of confine=") as caught:
        servers["one"].target()
    assert (caught.value.server, caught.value.key) == ("one", key)


@pytest.mark.parametrize(
    "command",
    [
        *("-", "--", "--bind", "-v", "--bind=/", "LD_PRELOAD=x", "./a=b"),
        *("${SAID}", "${env:SAID}", "${NONE:---bind}"),
    ],
)
@pytest.mark.parametrize("sandbox", ["bwrap", "/usr/bin/env", "anything"])
def test_a_command_a_sandbox_could_take_for_its_own_is_refused(command: str, sandbox: str) -> None:
    stated = {"command": command, "args": ["/", "/", "sh"]}
    servers = confined(stated, sandbox, "--tight", variables={"SAID": "--bind"})
    # The value of a placeholder is known only when the placeholder is filled in.
    assert (servers["one"].problem is None) == ("$" in command)
    refused(servers, "command")


JAIL = """
import json, os, sys
with open("jail.json", "w") as file:
    json.dump(dict(os.environ), file)
os.execv(sys.argv[2], sys.argv[2:])
"""
SHOWS = "import json, os; json.dump(dict(os.environ), open('within.json', 'w'))"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /bin/sh")
def test_no_variable_of_an_entry_reaches_the_sandbox() -> None:
    """Only the command of the entry gets them, unchanged."""
    given = {"LD_PRELOAD": "", "PATH": "/evil", "DBUS_SESSION_BUS_ADDRESS": "evil:", "IFS": "x"}
    given["API_KEY"] = "a b\n'\"$(id)`id`\\ \u6f22"
    stated = {"command": sys.executable, "args": ["-c", SHOWS], "env": given}
    with pytest.raises(McpError):  # the program is not a server
        syncmcp.connect(confined(stated, sys.executable, "-c", JAIL, "--")["one"])
    jail, within = (json.loads(Path(f"{name}.json").read_text()) for name in ("jail", "within"))
    assert {name: within[name] for name in given} == given
    assert not [name for name in within if name.startswith("SYNCMCP_WITHIN")]
    assert [name for name, value in given.items() if jail.get(name) == value] == []
    assert given["API_KEY"] not in " ".join(line(stated, "jail", "--"))
    # If the sandbox removes the variables, the command is not started.
    Path("within.json").unlink()
    drops = "import os, sys; os.execve(sys.argv[2], sys.argv[2:], {})"
    stated = {"command": sys.executable, "args": ["-c", SHOWS], "env": {"API_KEY": "k"}}
    with pytest.raises(McpError, match="SYNCMCP_WITHIN_API_KEY"):
        syncmcp.connect(confined(stated, sys.executable, "-c", drops, "--")["one"])
    assert not Path("within.json").exists()


@pytest.mark.parametrize("name", ["A B", "x;id", "BASH_FUNC_x%%", "1", "\u00e4", "${A}"])
def test_a_name_that_a_shell_would_read_in_another_way_is_refused(name: str) -> None:
    refused(confined({"command": "x", "env": {name: "1"}}, "bwrap"), f"env.{name}")


@pytest.mark.parametrize("option", ["-u", "--", "${SAID}"])
@pytest.mark.parametrize("words", ["jail", "su nobody", "bwrap -- lxc-attach -n x"])
def test_no_argument_becomes_an_option_of_a_sandbox_that_reads_on(words: str, option: str) -> None:
    """It is unknown whether an unknown sandbox reads options after the command."""
    entry = {"command": "x", "args": ["y", option]}
    refused(confined(entry, *words.split(), variables={"SAID": "-u"}), "args[1]")


@pytest.mark.parametrize("option", ["-u", "--", "A=b", "${SAID}"])
@pytest.mark.parametrize(
    ("words", "separator"),
    [
        *(("bwrap --ro-bind / /", "--"), ("/usr/bin/firejail --quiet", "--"), ("bwrap --", "")),
        *(("runuser -u nobody", "--"), ("/usr/bin/nsjail -Mo", "--"), ("jail --", "")),
        *(("bwrap -- nice -n 5", ""), ("sandbox-exec -f /p", ""), ("docker run -i image", "")),
        ("", ""),
    ],
)
def test_a_separator_is_put_before_the_command(words: str, separator: str, option: str) -> None:
    stated, variables = {"command": "x", "args": ["y", option]}, {"SAID": "-u"}
    servers = confined(stated, *words.split(), variables=variables)
    begins = (*words.split(), *separator.split(), "x", "y")
    assert servers["one"].review().command == (*begins, option)
    target = servers["one"].target()
    assert isinstance(target, Stdio)
    assert (target.command, *target.args) == (*begins, variables.get(option[2:-1], option))


def test_the_directory_of_an_entry_does_not_choose_the_sandbox() -> None:
    """Otherwise a relative program would be searched for in the entry's directory."""
    assert line({"command": "x", "cwd": "/evil"}, "./jail")[0] == os.path.abspath("jail")


def page_line() -> tuple[str, ...]:
    """Return the `confine=` of docs/configuration-files.md for the test's project."""
    text = PAGE.read_text(encoding="utf-8")
    block = text[text.index("SANDBOX = (") :]
    names: dict[str, Any] = {"project": os.getcwd()}
    exec(block[: block.index("\n```")], names)
    found: tuple[str, ...] = names["SANDBOX"]
    return found


def _bwrap_runs() -> bool:
    """Return whether bwrap can make namespaces, regardless of the options in the docs."""
    if sys.platform != "linux" or shutil.which("bwrap") is None:
        return False
    tried = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return subprocess.run(tried, capture_output=True, timeout=PATIENCE, check=False).returncode == 0


_REASON = "NO SANDBOX WAS TESTED: bwrap (the package bubblewrap) is not here, or may not run"


def test_the_line_of_the_page_keeps_a_server_from_the_rest(project: Path, tmp_path: Path) -> None:
    if not _bwrap_runs():
        pytest.skip(_REASON)
    (project.parent / "secret.txt").write_text("s3cret")
    (project / "server.py").write_text(SERVER)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "agent"))
    listener.listen()
    outside = socket.create_server(("127.0.0.1", 0))
    reaches = {
        "secret": str(project.parent / "secret.txt"),
        "agent": str(tmp_path / "agent"),
        "port": outside.getsockname()[1],
    }
    # The interpreter of the tests may be outside the folders that the sandbox shows.
    own = {sys.prefix, sys.base_prefix, *filter(os.path.isdir, sys.path)}
    binds = [word for path in sorted(own) for word in ("--ro-bind", path, path)]
    env = {"REACHES": json.dumps(reaches)}
    entry = {"command": sys.executable, "args": ["server.py"], "env": env}
    with (
        closing(outside),
        closing(listener),
        syncmcp.connect(confined(entry, *page_line(), *binds)["one"]) as client,
    ):
        reached = json.loads(client.call_tool("reach").text)
    assert reached == {"own": True, **dict.fromkeys((*reaches, "write"), False), "sockets": []}


SERVER = """
import json, os, socket, stat
from syncmcp.testing import Server

server = Server()
reaches = json.loads(os.environ["REACHES"])
ways = {
    "own": lambda: open("server.py").close(),
    "secret": lambda: open(reaches["secret"]).close(),
    "agent": lambda: socket.socket(socket.AF_UNIX).connect(reaches["agent"]),
    "port": lambda: socket.create_connection(("127.0.0.1", reaches["port"]), 5),
    "write": lambda: open("written", "w").close(),
}


def works(way):
    try:
        way()
    except OSError:
        return False
    return True


@server.tool()
def reach() -> str:
    walks = map(os.walk, ("/run", "/var", "/tmp", "/home", "/root"))
    files = [os.path.join(at, name) for walk in walks for at, _, names in walk for name in names]
    sockets = [file for file in files if stat.S_ISSOCK(os.lstat(file).st_mode)]
    return json.dumps({**{name: works(way) for name, way in ways.items()}, "sockets": sockets})


server.run_stdio()
"""
