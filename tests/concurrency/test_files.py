"""Private files, atomic replacement, shared files, and fair locks."""

from __future__ import annotations

import os
import runpy
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from syncmcp._concurrency import files
from syncmcp._concurrency.fair_lock import FairLock
from syncmcp._concurrency.files import FileLock, SharedJson, UnusableFile, write_atomically
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import RequestTimeout
from tests.support.stage import PATIENCE


@pytest.fixture
def shared(tmp_path: Path) -> SharedJson:
    return SharedJson(tmp_path / "private" / "shared.json", "test", "objects", 1_000)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
@pytest.mark.parametrize("given", ["", "relative", "./relative", "{}/elsewhere"])
def test_the_state_directory_is_the_users_and_relative_paths_are_ignored(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = "elsewhere" if "{}" in given else "home/.local/state"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", given.format(tmp_path))
    assert files.state_directory() == tmp_path / parent / "syncmcp"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "folder"),
    [("macos", "Library/Application Support/syncmcp"), ("windows", "AppData/Local/syncmcp")],
)
def test_other_systems_have_the_folders_that_the_documentation_names(
    module: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check platformdirs' class for each system with the arguments of the library."""
    import platformdirs

    given: list[Any] = []
    monkeypatch.setattr(
        platformdirs, "user_state_path", lambda *args, **named: given.append((args, named))
    )
    files.state_directory()
    ((args, named),) = given
    name = {"macos": "MacOS", "windows": "Windows"}[module]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    dirs = __import__(f"platformdirs.{module}", fromlist=[name])
    monkeypatch.setattr(
        "platformdirs.windows.get_win_folder", lambda _: str(tmp_path / "AppData" / "Local")
    )
    assert Path(getattr(dirs, name)(*args, **named).user_state_dir) == tmp_path / folder


def test_objects_are_read_as_they_were_written_if_they_can_be(shared: SharedJson) -> None:
    assert shared.read() == {}
    assert not shared.path.parent.exists()
    with shared.change() as objects:
        objects["a"] = {"x": 1}
    assert shared.read() == {"a": {"x": 1}}
    assert shared.path.stat().st_mode & 0o777 == 0o600
    before = shared.path.stat()
    with shared.change() as objects:
        objects["a"] = {"x": 1}
    with pytest.raises(ZeroDivisionError), shared.change() as objects:
        objects["b"] = {"x": 1 / 0}
    with pytest.raises(UnusableFile, match="longer than 1,000 bytes"), shared.change() as objects:
        objects["b"] = {"text": "x" * 1_000}
    now = shared.path.stat()  # reading may change the access time
    assert (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert shared.read() == {"a": {"x": 1}}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b" " * 1_001, "'test'"),
        (b'{"format": "other", "version": 1, "objects": {}}', "'test'"),
        (b'{"format": "test", "version": 1, "objects": {"a": 1}}', "'test'"),
        (b'{"format": "test", "version": 2, "objects": {}}', "another version"),
    ],
)
def test_a_file_of_something_else_is_left(shared: SharedJson, content: bytes, problem: str) -> None:
    files.make_private_directory(shared.path.parent)
    write_atomically(shared.path, content)
    with pytest.raises(UnusableFile, match=problem) as caught:
        shared.read()
    assert caught.value.path == shared.path
    with pytest.raises(UnusableFile, match=problem), shared.change():
        pass
    assert shared.path.read_bytes() == content


def test_a_lock_that_is_held_is_not_waited_for_where_it_is_only_wanted_if_free() -> None:
    lock = FairLock()
    with lock.take_if_free() as free:
        assert free
        with lock.take_if_free() as again:
            assert not again
        with pytest.raises(RequestTimeout), lock.take(Deadline(0.0)):
            pass
    with lock.take_if_free() as free:
        assert free


def test_those_who_wait_are_counted_and_take_turns_in_the_order_in_which_they_came() -> None:
    lock, order = FairLock(), list[str]()
    assert lock.waiting == 0
    with lock.take(Deadline(PATIENCE)):
        assert lock.waiting == 0
        threads = [queued(lock, str(number), order) for number in range(20)]
        assert lock.waiting == 20
    for thread in threads:
        thread.join(PATIENCE)
    assert order == [str(number) for number in range(20)]
    assert lock.waiting == 0


def test_files_are_opened_as_bytes_where_a_system_would_change_their_line_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On Windows `os` has this flag. Elsewhere the test adds one that has no meaning.
    monkeypatch.setattr(os, "O_BINARY", 1 << 29, raising=False)
    monkeypatch.delattr(os, "register_at_fork")
    module = runpy.run_path(files.__file__)
    assert module["_CREATE"] & module["_READ"] & 1 << 29


def queued(turns: FairLock | FileLock, name: str, order: list[str]) -> threading.Thread:
    """Start a thread that waits for its turn; return once it waits."""
    waits = threading.Event()

    def wait(event: threading.Event, seconds: float | None) -> bool:
        if not event.is_set():  # not the first in this process, which polls the file's lock
            waits.set()
        return event.wait(seconds)

    def run() -> None:
        with turns.take(Deadline(PATIENCE), wait):
            order.append(name)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert waits.wait(PATIENCE)
    return thread


def test_ctrl_c_in_the_wait_costs_nobody_else_a_turn() -> None:
    turns, order = FairLock(), list[str]()

    def interrupted(event: threading.Event, seconds: float | None) -> bool:
        raise KeyboardInterrupt

    with turns.take(Deadline(PATIENCE)):
        with pytest.raises(KeyboardInterrupt), turns.take(Deadline(PATIENCE), interrupted):
            pass
        thread = queued(turns, "next", order)
    thread.join(PATIENCE)
    assert order == ["next"]


def test_who_has_passed_the_gate_is_next(tmp_path: Path) -> None:
    # The second lock stands for another process.
    lock, other = (FileLock(tmp_path / "x.lock") for _ in range(2))
    order: list[str] = []
    with lock.take(Deadline(PATIENCE)):
        thread = queued(other, "other", order)
    with lock.take(Deadline(PATIENCE)):
        order.append("again")
    thread.join(PATIENCE)
    assert order == ["other", "again"]
