"""Secrets that a server repeats in an error are masked before the command prints them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Http
from syncmcp._base.text import MOST_QUOTED
from syncmcp.cli.app import run_command
from syncmcp.cli.person import Person
from syncmcp.cli.session import SharedClient
from syncmcp.testing import RpcError, Server, serve_http
from tests.cli.running import Command

KEY = "k3y-4711-0815"
REPEATS = {"config": [{"headers": {"Authorization": f"Bearer {KEY}"}}], KEY: 1, "pin": 471100}
MASKED = {"config": [{"headers": {"Authorization": "***"}}], "***": 1, "pin": "***"}


def fails(data: Any) -> Any:
    raise RpcError(-32603, f"401 for {KEY}", data)


def shop() -> Server:
    server = Server("shop")
    server.add_tool(lambda: fails(REPEATS), name="buy")
    return server


def test_a_result_that_does_not_fit_is_shown_without_secrets(
    command: Command, tmp_path: Path
) -> None:
    token, server = tmp_path / "token", Server("shop")
    token.write_text(KEY)
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    server.add_tool(lambda: {"n": KEY}, name="buy", output_schema=schema)
    with serve_http(server) as http:
        ran = command("call", "--yes", http.url, "buy", "--bearer", f"@{token}")
    assert (ran.code, KEY in ran.err, KEY in ran.out) == (1, False, False)
    assert ran.error["result"]["structuredContent"] == {"n": "***"}


# A program that answers each request except `initialize` with an error.
LISTLESS = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    error = {"code": -32603, "message": "no", "data": {"env": dict(os.environ)}}
    answer = {"error": error}
    if asked["method"] == "initialize":
        answer = {"result": {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": os.environ["API_KEY"], "version": "1"},
        }}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def test_the_data_of_an_error_shows_no_token_of_the_command(
    command: Command, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(KEY)
    with serve_http(shop()) as http:
        ran = command(
            "call", "--yes", http.url, "buy", "--bearer", f"@{token}", "--header", "X-Pin:471100"
        )
    assert (ran.code, ran.error["message"], ran.error["data"]) == (1, "401 for ***", MASKED)


@pytest.mark.parametrize("way", ["tools", "doctor"])
def test_a_program_that_repeats_its_variables_shows_none(command: Command, way: str) -> None:
    ran = command(way, "--json", "-e", f"API_KEY={KEY}", "--", sys.executable, "-c", LISTLESS)
    (error,) = [ran.error] if way == "tools" else [
        step["error"] for step in ran.result["steps"] if step["step"] == "tools"
    ]  # fmt: skip
    assert error["data"]["env"]["API_KEY"] == "***"
    assert KEY not in ran.out + ran.err


def test_the_text_of_a_tool_that_failed_shows_no_secret_nor_the_beginning_of_one(
    command: Command,
) -> None:
    phrase = "correct horse battery staple"
    texts = iter((f"no access with {phrase}", phrase.rjust(MOST_QUOTED + 7, ".")))

    def login() -> Any:
        return {"content": [{"type": "text", "text": next(texts)}], "isError": True}

    server = Server("shop")
    server.add_tool(login)
    with serve_http(server) as http:
        words = ("call", "--yes", http.url, "login", "--header", f"X-Phrase:{phrase}")
        short, long = command(*words), command(*words)
    assert (short.code, short.error["message"]) == (5, "no access with ***")
    assert "horse" not in long.err


def test_commands_of_a_shell_mask_what_their_common_client_knows(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_http(shop()) as http, syncmcp.connect(Http(http.url, token=KEY)) as client:
        assert run_command(["call", "--yes", "buy"], SharedClient(client, Person())) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["data"]["config"] == MASKED["config"]
