"""`syncmcp doctor`: why a server does not work, step by step."""

from __future__ import annotations

import itertools
import socket
import sys
from typing import Any

import pytest

from syncmcp.testing import AuthorizationServer, ScriptedPeer, Server, script, serve_http
from tests.cli.running import DEMO, Command, Ran


def verdicts(ran: Ran) -> dict[str, str]:
    return {step["step"]: step["verdict"] for step in ran.result["steps"]}


def step(ran: Ran, name: str) -> dict[str, Any]:
    (found,) = [step for step in ran.result["steps"] if step["step"] == name]
    return dict(found)


def last(ran: Ran) -> dict[str, Any]:
    step: dict[str, Any] = ran.result["steps"][-1]
    return step


def test_a_healthy_server_gets_a_word_for_every_step(
    command: Command, demo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("doctor", "inspection"):  # on this clock, no server is slow
        monkeypatch.setattr(f"syncmcp.cli.{module}.perf_counter", lambda: 0.0)
    found = command("doctor", demo, "--json")
    steps = ["target", "name", "connection", "sign-in", "opening", "capabilities"]
    steps += ["tools", "resources", "prompts", "latency"]
    assert (found.code, verdicts(found)) == (0, dict.fromkeys(steps, "ok"))
    rows = command("doctor", demo).rows
    assert [row[1] for row in rows] == steps
    monkeypatch.setenv("OF_MINE", "1")
    ran = command("doctor", "--json", "-e", "A_KEY=secret-value", *DEMO)
    assert list(verdicts(ran))[:4] == ["target", "command", "start", "opening"]
    said = step(ran, "start")["said"]
    assert [name in said for name in ("A_KEY", "PATH", "OF_MINE")] == [True, True, False]
    assert "secret-value" not in ran.out


def test_https_to_a_port_of_http_is_said(command: Command, demo: str) -> None:
    ran = command("doctor", demo.replace("http:", "https:"), "--json")
    found = step(ran, "certificate")
    assert found["said"].startswith("this port does not accept TLS: ")
    assert found["hint"] == "should the URL begin with http://?"
    assert ("should the URL begin with http://?" in last(ran)["said"], "hint" in last(ran)) == (
        True,
        False,
    )


def test_a_server_that_takes_its_time_is_a_warning(
    command: Command, demo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("doctor", "inspection"):
        clock = itertools.count(step=2.0)  # seconds for each reading
        monkeypatch.setattr(f"syncmcp.cli.{module}.perf_counter", clock.__next__)
    found = command("doctor", demo, "--json")
    slow = {step: verdict for step, verdict in verdicts(found).items() if verdict != "ok"}
    assert (found.code, slow) == (0, {"opening": "warning", "latency": "warning"})
    ending = last(command("doctor", "--json", *DEMO))  # after it has closed the server's stdin
    assert (ending["step"], ending["verdict"]) == ("end", "warning")
    assert ending["said"] == "the server ended, in 2.00 s"


@pytest.mark.parametrize(
    ("target", "place", "code", "said"),
    [
        (["nowhere"], "target", 2, "no server named 'nowhere'"),
        (["--", "no-such-command"], "command", 4, "command not found"),
        (
            ["--", sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit('no key')"],
            "start",
            4,
            "no key",
        ),
        (["http://no-such-host.invalid/mcp"], "name", 4, "cannot resolve the name"),
    ],
)
def test_the_first_step_that_fails_is_the_last(
    command: Command,
    target: list[str],
    place: str,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nameless(*asked: Any, **more: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nameless)
    ran = command("doctor", "--json", *target)
    found = last(ran)
    assert (ran.code, found["step"], found["verdict"]) == (code, place, "failed")
    assert said in found["said"]
    assert found["hint"]


def test_a_closed_port_and_a_silent_program_are_told_apart(command: Command) -> None:
    with socket.socket() as taken:  # by a socket that does not listen
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert last(command("doctor", url, "--json"))["step"] == "connection"
    silent = "import sys; sys.stdin.read()"
    ran = command("doctor", "--json", "--open-timeout", "0.5", "--", sys.executable, "-c", silent)
    assert (ran.code, last(ran)["step"]) == (6, "opening")
    assert verdicts(ran)["start"] == "ok"


def test_who_has_to_sign_in_first_is_told_so(command: Command) -> None:
    with (
        AuthorizationServer() as issuer,
        serve_http(Server("closed"), authorization_server=issuer) as http,
    ):
        ran = command("doctor", http.url, "--json")
    assert (ran.code, last(ran)["step"]) == (3, "sign-in")
    assert "auth login" in last(ran)["hint"]


def test_what_is_no_mcp_server_is_told_so(command: Command, demo: str) -> None:
    ran = command("doctor", demo.replace("/mcp", "/other"), "--json")
    assert (ran.code, last(ran)["step"]) == (1, "opening")
    assert ("is the path right?" in last(ran)["said"], "hint" in last(ran)) == (True, False)


def test_what_the_body_of_a_refusal_says_is_shown(command: Command) -> None:
    head = {"content-type": "text/plain", "content-length": "7"}
    refusal = [script.head(421, head, chunked=False), script.chunk(b"ask ops")]
    steps = [script.expect("server/discover"), *refusal, script.expect("initialize"), *refusal]
    with ScriptedPeer(steps) as peer:
        ran = command("doctor", peer.url, "--json")
    found = last(ran)
    assert found["said"].endswith("; the body of its response began with: ask ops")
    assert "hint" not in found
    assert found["error"]["body"] == "ask ops"


def test_a_schema_that_cannot_be_used_is_a_warning(command: Command) -> None:
    server = Server("odd")
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/a"}}}
    server.add_tool(lambda a: a, name="odd", input_schema=schema)
    with serve_http(server) as http:
        ran = command("doctor", http.url, "--json")
    found = step(ran, "tools")
    assert (ran.code, found["verdict"]) == (0, "warning")
    assert found["said"].startswith("1 tool; unusable schemas: odd: ")


def test_a_server_that_prints_on_its_stdout_is_a_warning_with_the_line(command: Command) -> None:
    prints = "print('Starting up', flush=True)\nimport runpy\n"
    code = prints + "runpy.run_module('syncmcp.testing', run_name='__main__')"
    ran = command("doctor", "--json", "--", sys.executable, "-c", code)
    found = step(ran, "stdout")
    assert (ran.code, found["verdict"]) == (0, "warning")
    assert "Starting up" in found["said"]
    assert "stderr" in found["hint"]


@pytest.mark.parametrize("line", ['{"jsonrpc": "2.0", broken', '{"level": "info"}'])
def test_a_server_that_prints_no_message_at_all_is_not_said_to_be_silent(
    command: Command, line: str
) -> None:
    code = f"import sys\nfor _ in sys.stdin: print({line!r}, flush=True)"
    ran = command("doctor", "--json", "--open-timeout", "1", "--", sys.executable, "-c", code)
    found = step(ran, "stdout")
    assert repr(line) in found["said"]
    assert f"not messages, the first: {line!r}" in last(ran)["said"]
    assert last(ran)["hint"] == "is the program an MCP server? Its stdout may contain only messages"
