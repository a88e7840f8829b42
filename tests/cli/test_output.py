"""`--output`: images, sounds and files are saved under a name that the caller chooses."""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import syncmcp.saving
from syncmcp.testing import Server, serve_http
from tests.cli.running import Command, Ran

Call = Callable[..., Ran]
CALLS: list[str] = []
PICTURE, SOUND, FILE = b"\x89PNG picture", b"RIFF sound", b"\x00file"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def studio() -> Iterator[str]:
    """The URL of a server with media; `CALLS` lists the called tools."""
    server = Server("studio")

    def tool(name: str, *content: dict[str, Any], **more: Any) -> None:
        def run() -> Any:
            CALLS.append(name)
            return {"content": list(content), **more}

        server.add_tool(run, name=name, annotations={"readOnlyHint": True})

    picture = {"type": "image", "data": encoded(PICTURE), "mimeType": "image/png"}
    sound = {"type": "audio", "data": encoded(SOUND), "mimeType": "audio/wav"}
    evil = {"uri": "file:///../../.ssh/authorized_keys", "blob": encoded(FILE), "mimeType": "../x"}
    file = {"type": "resource", "resource": evil}
    tool("draw", {"type": "text", "text": "Here it is."}, picture)
    tool("film", picture, {"type": "text", "text": "and"}, sound, file)
    tool("series", *[picture] * 1_103)
    tool("speak", {"type": "text", "text": "Words."})
    tool("break", {**picture, "data": "no base64!"})
    tool("count", structuredContent={"n": 1})
    with serve_http(server) as http:
        yield http.url


@pytest.fixture
def call(command: Command, studio: str) -> Call:
    """Return a function that calls a tool."""
    CALLS.clear()
    return partial(command, "call", studio)


def test_a_picture_is_saved_and_the_words_are_printed(call: Call) -> None:
    ran = call("draw", "--output", "a picture.png")
    assert (ran.code, ran.out) == (0, "Here it is.\n")
    assert "saved to a picture.png" in ran.err
    assert Path("a picture.png").read_bytes() == PICTURE
    again = call("draw", "--output", "a picture.png")
    assert (again.code, again.error["hint"]) == (2, "--force replaces it")
    assert CALLS == ["draw"]  # the second call was not sent
    Path("a picture.png").write_text("other")
    wire = call("draw", "-o", "a picture.png", "--force", "--json")
    assert wire.result["content"][1]["data"] == encoded(PICTURE)
    assert Path("a picture.png").read_bytes() == PICTURE


def test_several_are_numbered_and_replace_no_file_but_the_one_that_is_named(
    call: Call, elsewhere: Path
) -> None:
    """The server has no influence on the names either."""
    ran = call("film", "-o", "film.bin")
    assert (ran.code, ran.out) == (0, "and\n")
    made = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    assert made == {"film.bin": PICTURE, "film-2.bin": SOUND, "film-3.bin": FILE}
    Path("film.bin").write_bytes(b"named")
    Path("film-2.bin").write_bytes(b"mine")
    Path("film-3.bin").unlink()
    Path("film-4.bin").symlink_to("nowhere")
    ran = call("film", "-o", "film.bin", "--force")
    assert (ran.code, ran.out) == (0, "and\n")
    made = {path.name: path.read_bytes() for path in elsewhere.iterdir() if path.exists()}
    assert made == {
        "film.bin": PICTURE, "film-2.bin": b"mine", "film-3.bin": SOUND, "film-5.bin": FILE
    }  # fmt: skip


def test_of_many_the_first_are_saved_and_the_others_are_counted(
    call: Call, elsewhere: Path
) -> None:
    ran = call("series", "-o", "one.bin")
    said = "1,003 more files were not saved: the limit is 100 files of one result"
    assert (ran.code, ran.error["message"]) == (1, said)
    assert {path.name for path in elsewhere.iterdir()} == {
        "one.bin", *(f"one-{number}.bin" for number in range(2, 101))
    }  # fmt: skip


def test_places_that_cannot_be_are_refused_before_the_call(
    call: Call, command: Command, studio: str
) -> None:
    for place, said in ((".", "is a directory"), ("no/such/file", "no such directory")):
        for ran in (call("draw", "-o", place), command("read", studio, "x://y", "-o", place)):
            assert (ran.code, said in ran.error["message"]) == (2, True)
    assert CALLS == []


def test_text_alone_is_saved_and_not_printed(call: Call, elsewhere: Path) -> None:
    assert call("speak", "-o", "words") == (0, "", "saved to words\n")
    wire = call("count", "-o", "numbers", "--json")
    assert (wire.code, wire.result["structuredContent"]) == (0, {"n": 1})
    assert call("break", "-o", "broken").code == 1
    made = {path.name: path.read_text() for path in elsewhere.iterdir()}
    assert made == {"words": "Words.", "numbers": '{\n  "n": 1\n}'}


def test_a_disk_that_is_full_is_no_fault_of_the_command_line(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Any, path: Path, *, overwrite: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left", str(path))

    monkeypatch.setattr("syncmcp.cli.calls.save", full)
    ran = call("draw", "-o", "picture")
    assert (ran.code, ran.error["message"]) == (1, "'picture' cannot be written: No space left")
    assert ran.error["hint"] == "the tool was called"


def test_what_appears_during_the_call_has_the_error_of_what_was_there_before(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def appears(_: Any, path: Path, *, overwrite: bool) -> None:
        path.mkdir()
        raise FileExistsError(errno.EEXIST, "File exists", str(path))

    monkeypatch.setattr("syncmcp.cli.calls.save", appears)
    ran, again = (call("draw", "-o", "picture") for _ in range(2))
    assert (ran.code, ran.error) == (2, again.error)


def test_there_is_a_limit_to_what_is_saved(
    call: Call, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = partial(syncmcp.saving.save, max_bytes=4)
    monkeypatch.setattr("syncmcp.cli.calls.save", limited)
    ran = call("draw", "-o", "big")
    assert (ran.code, ran.error["kind"]) == (1, "LimitExceeded")
    assert list(elsewhere.iterdir()) == []


def test_what_is_no_file_is_not_replaced(call: Call) -> None:
    os.mkfifo("pipe")
    ran = call("draw", "--output", "pipe", "--force")
    assert (ran.code, "is not a regular file" in ran.error["message"]) == (2, True)
    ran = call("draw", "--output", "x" * 300)
    assert (ran.code, "cannot write 'xxx" in ran.error["message"]) == (2, True)
    assert CALLS == []
