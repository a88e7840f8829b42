"""Which servers files are a person's own; all others need an approval."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import syncmcp
from syncmcp import ServersFileError
from syncmcp.servers_file import read
from syncmcp.servers_file.named_files import MARKERS, is_own
from tests.support.shops import CHILD

pytestmark = pytest.mark.requirement("SEC-06")


@pytest.fixture(autouse=True)
def elsewhere(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run outside the home folder, and outside any project."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")


def settings(home: Path) -> Path:
    if sys.platform == "win32":
        return home / "AppData" / "Roaming"
    return home / ("Library/Application Support" if sys.platform == "darwin" else ".config")


def written(path: Path, servers: Any = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    stated = servers or {"one": {"command": "touch", "args": ["ran"]}}
    path.write_text(json.dumps({"mcpServers": stated}))
    return path


def own_files(home: Path) -> list[Path]:
    names = ("Claude/claude_desktop_config.json", "Code/User/mcp.json", "syncmcp/servers.json")
    return [*(settings(home) / name for name in names), home / ".cursor" / "mcp.json"]


@pytest.mark.parametrize(
    "path",
    [
        *("mcp.json", "Downloads/servers.json", ".config/mcp.json", ".cursorx/mcp.json"),
        *(".config/Claude/of/somebody/mcp.json", ".cursor/extensions/x/mcp.json"),
        "project/.cursor/mcp.json",
    ],
)
def test_other_files_need_approval(home: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(home / path)
    assert not read(file, trust=True).guarded
    for folder in (".", file.parent):
        monkeypatch.chdir(folder)
        assert read(file).guarded


@pytest.mark.parametrize("number", range(4))
def test_own_files_need_none(home: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(own_files(home)[number])
    assert not read(file).guarded
    # This also holds if the program runs in the home directory.
    monkeypatch.chdir(home)
    for path in (file, os.path.relpath(file), f"~/{file.relative_to(home)}"):
        assert not read(path).guarded


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize("at", ["tree", "settings", "home"])
def test_a_file_within_a_work_tree_needs_approval(home: Path, marker: str, at: str) -> None:
    file = written(home / ".cursor" / "mcp.json")
    assert not read(file).guarded
    place = {"tree": home / ".cursor", "settings": home, "home": home.parent}[at] / marker
    place.mkdir()
    assert read(file).guarded
    place.rmdir()
    assert not read(file).guarded
    place.write_text("gitdir: /elsewhere\n")
    assert read(file).guarded
    place.unlink()
    place.symlink_to("nowhere")
    assert read(file).guarded


@pytest.mark.skipif(sys.platform == "win32", reason="there are no modes")
@pytest.mark.parametrize("others", [0o002, 0o020], ids=["everybody", "a group"])
@pytest.mark.parametrize("place", ["file", "folder", "destination"])
def test_a_file_that_others_can_write_or_have_needs_approval(
    home: Path, place: str, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grp.getgrgid", lambda _: SimpleNamespace(gr_name="staff", gr_mem=[]))
    file = written(home / ".cursor" / "mcp.json")
    link = settings(home) / "syncmcp" / "mcp.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(file)
    assert not read(file).guarded
    assert not read(link).guarded
    changed = file.parent if place == "folder" else file
    mode = changed.stat().st_mode
    changed.chmod(mode | others)
    assert read(link if place == "destination" else file).guarded
    changed.chmod(mode)
    assert not read(file).guarded
    monkeypatch.setattr("os.geteuid", lambda: file.stat().st_uid + 1)  # as if another user owned it
    assert read(file).guarded


def test_no_link_makes_a_file_of_a_project_the_persons_own(home: Path) -> None:
    project = home / "project"
    foreign = written(project / ".cursor" / "mcp.json")
    own = written(home / ".cursor" / "mcp.json")
    # A link in a person's own folder to another file, and a link in a project to an own file.
    (home / ".cursor" / "linked.json").symlink_to(foreign)
    (project / "linked.json").symlink_to(own)
    assert read(home / ".cursor" / "linked.json").guarded
    assert read(project / "linked.json").guarded
    # A folder of settings that is a link into a work tree.
    (project / ".git").mkdir()
    settings(home).mkdir(parents=True, exist_ok=True)
    (settings(home) / "syncmcp").symlink_to(project / ".cursor")
    assert read(settings(home) / "syncmcp" / "mcp.json").guarded
    assert read(foreign).guarded


def test_settings_behind_a_link_are_the_persons_own_and_none_without_a_home(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    (home / ".cursor").symlink_to(tmp_path / "disk")
    file = written(home / ".cursor" / "mcp.json")
    assert not read(file).guarded
    assert is_own(file)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert not is_own(file)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such folders")
@pytest.mark.parametrize("trust", [True, False])
def test_no_server_starts_where_every_user_can_put_code(tmp_path: Path, trust: bool) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    there = {"command": "x", "cwd": str(tmp_path)}
    stated = {"one": {"command": "x"}, "two": {"url": "http://x"}, "three": there}
    servers = read(written(shared / "mcp.json", stated), trust=trust)
    with pytest.raises(ServersFileError, match="every user of this computer can put code"):
        syncmcp.connect(servers["one"])
    assert servers["two"].problem is servers["three"].problem is None


@pytest.mark.parametrize(
    ("path", "stated", "start"),
    [
        (".config/Claude/claude_desktop_config.json", {}, ".config/Claude"),
        *(("checkout/mcp.json", {}, "checkout"), ("checkout/.vscode/mcp.json", {}, "checkout")),
        ("checkout/.cursor/mcp.json", {"cwd": "src/x"}, "checkout/src/x"),
        *(("checkout/mcp.json", {"cwd": "~/src"}, "src"), ("checkout/mcp.json", {"cwd": "/"}, "/")),
    ],
)
def test_a_server_starts_beside_its_file(home: Path, path: str, stated: Any, start: str) -> None:
    entry = read(written(home / path, {"one": {"command": "x", **stated}}), trust=True)["one"]
    target = entry.target()
    assert isinstance(target, syncmcp.Stdio)
    assert target.cwd == str(home / start)
    assert entry.review().cwd == stated.get("cwd", str(home / start))
    assert f"\nin {entry.review().cwd}\n" in str(entry.review())


@pytest.mark.slow
def test_no_code_of_the_current_directory_is_run(home: Path) -> None:
    Path("syncmcp.py").write_text("open('ran', 'w')")
    file = written(home / "mcp.json", {"one": CHILD})
    with syncmcp.connect(read(file, trust=True)["one"]) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
    assert not Path("ran").exists()
