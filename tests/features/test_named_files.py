"""An approval covers the files of the project that a command names: changes need a new approval."""

from __future__ import annotations

import io
import json
import ntpath
import os
import pickle
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import NotApproved, ServersFileError
from syncmcp.servers_file import ServerEntry, ServerReview, read
from syncmcp.transports._process import locate

pytestmark = pytest.mark.requirement("SEC-06")


@pytest.fixture(autouse=True)
def project(project: Path) -> Path:
    """Make the project a work tree with a script."""
    (project / ".git").mkdir()
    (project / "src").mkdir()
    (project / "src" / "server.py").write_text("good")
    return project


def entry(stated: Any, file: str = ".cursor/mcp.json", **options: Any) -> ServerEntry:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"one": stated}}))
    return read(path, **options)["one"]


def program(*args: str, **more: Any) -> dict[str, Any]:
    return {"command": "interpreter", "args": list(args), **more}


def asks_again(stated: Any, change: Any, file: str = ".cursor/mcp.json") -> bool:
    """Return whether an approved server needs a new approval after `change()`."""
    entry(stated, file).approve()
    assert entry(stated, file).approved, "it asks again although nothing has changed"
    change()
    return not entry(stated, file).approved


def pulled() -> None:
    """Change the script, as a pull may."""
    Path("src/server.py").write_text("evil")


WORDS = (
    *("src/server.py", "./src/../src/server.py", "--script=src/server.py", "-rsrc/server.py"),
    *("@src/server.py", "${workspaceFolder}/src/server.py", "${UNSET:-src/server.py}"),
    *("--import|file://${workspaceFolder}/src/server.py", "-v|src/server.py:/server.py"),
    *("-c|cd x && 'src/server.py' --now", "--directory|src|run|server.py", "-C|src|server.py"),
    *("--directory=src|run|server.py", "--directory|${workspaceFolder}/src|run|server.py"),
    *("-Csrc|server.py", "-c|cd src && run server.py", "src/server", "-uxrsrc/server.py"),
    *("-c|cd deep && cd .. && cd src && run server", "file://${workspaceFolder}/src/%73erver.py"),
    "file://${workspaceFolder}/src/server.py?x=1#y",
)


@pytest.mark.parametrize(
    "stated",
    [
        *(program(*words.split("|")) for words in WORDS),
        *(program("server.py", cwd=cwd) for cwd in ("src", "${workspaceFolder}/src")),
        program("-m", "server", cwd="src"),
        *({"command": command} for command in ("src/server.py", "src/server")),
        *({"command": "./server.py", "cwd": "src"}, {"command": "~/project/src/server.py"}),
        {"command": "server.py", "env": {"PATH": "${workspaceFolder}/src:/usr/bin"}},
        {"command": "server.py", "env": {"PATH": "src"}},
        *({"command": "server.py", "cwd": cwd, "env": {"PATH": "src"}} for cwd in ("deep", "/")),
        {"command": "server.py", "env": {"PATH": "src", "path": "deep"}},
        {"command": "x", "env": {"NODE_OPTIONS": "--require ./src/server.py"}},
    ],
    ids=str,
)
def test_a_change_of_a_named_file_asks_again(stated: Any, project: Path) -> None:
    Path("src/server.py").chmod(0o755)
    Path("deep").mkdir()
    assert asks_again(stated, pulled)
    assert entry(stated).review().files == (str(project / "src" / "server.py"),)


@pytest.mark.parametrize("cwd", [None, "deep", "/"])
@pytest.mark.parametrize("env", [{"PATH": "src"}, {"path": "deep", "PATH": "src"}])
def test_the_program_covered_is_the_one_that_starts(env: dict[str, str], cwd: str | None) -> None:
    for folder in ("src", "deep", "deep/src"):
        Path(folder).mkdir(exist_ok=True)
        Path(folder, "server.py").write_text("")
        Path(folder, "server.py").chmod(0o755)
    stated = {"command": "server.py", "env": env} | ({} if cwd is None else {"cwd": cwd})
    assert locate("server.py", env, cwd) in entry(stated).review().files


FOUND = {
    "dist/index": "dist/index.js|dist/index.mjs|dist/index.cjs|dist/index.ts",
    "dist/server": "dist/server.mts|dist/server.cts|dist/server.tsx|dist/server.jsx",
    "dist": "dist/index.js|dist/index.mts|dist/index.tsx|dist/package.json"
    "|dist/__main__.py|dist/__init__.py",
    "dist.tool": "dist/__init__.py|dist/tool.py|dist.py",
    "dist.lib.tool": "dist/lib.py",
    "dist.server.py": "dist/server/py.py",
    "./dist/": "dist/index.js|dist/__init__.py",
    "file://${workspaceFolder}/dist/a%20b.js": "dist/a b.js",
    "--rules=one,two": "one,two",
    "--rules=one=two": "one=two",
    "-fone,two": "one,two",
    "-umtool": "tool.py",
    "-umdist.tool": "dist/tool.py",
    "~/server.py": "~/server.py",  # a folder with the name `~`
}


@pytest.mark.parametrize(
    ("word", "name"), [(word, name) for word, names in FOUND.items() for name in names.split("|")]
)
def test_a_file_that_a_program_finds_by_a_shorter_name_is_covered(word: str, name: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("good")
    assert asks_again(program(word), lambda: Path(name).write_text("evil"))


@pytest.mark.parametrize(
    "package",
    [
        *({"main": "lib/run.js"}, {"main": "./lib/run"}, {"main": "lib"}),
        {"bin": {"run": "lib/run.js"}},
        {"scripts": {"start": "NODE_ENV=x node lib/run.js --now"}},
    ],
    ids=str,
)
def test_what_a_package_runs_is_covered(package: dict[str, Any]) -> None:
    Path("dist/lib").mkdir(parents=True)
    Path("dist/package.json").write_text(json.dumps(package))
    Path("dist/lib/package.json").write_text(json.dumps({"main": "run", "bin": "../lib"}))
    Path("dist/lib/run.js").write_text("good")
    assert asks_again(program("dist"), lambda: Path("dist/lib/run.js").write_text("evil"))


def test_a_package_that_names_nothing_is_covered_itself(project: Path) -> None:
    for content in ("[", "[1]", '{"main": 1, "bin": [1], "scripts": {"a": {}}}'):
        Path("package.json").write_text(content)
        assert entry(program(".")).review().files == (str(project / "package.json"),)


def test_no_other_computer_is_asked_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a path with a host name, as on Windows, would contact that host.

    An automounter contacts the host, too.
    """
    looked, real = list[str](), os.stat

    def watched(path: Any, **options: Any) -> os.stat_result:
        looked.append(os.fspath(path) if not isinstance(path, int) else "")
        return real(path, **options)

    monkeypatch.setattr(os.path, "splitdrive", ntpath.splitdrive)
    stated = program("//evil/share/a.py", "--x=//evil/share/b", env={"PATH": "//evil/share"})
    made = entry(stated)
    monkeypatch.setattr(os, "stat", watched)
    made.review()
    entry(program("a.py", cwd="//evil/share")).review()
    entry(program("/net/evil/a.py", cwd="/net/evil", env={"PATH": "/net/evil/bin"})).review()
    named = {"main": "/net/evil/a.js", "bin": {"b": "//evil/share/b"}}
    Path("package.json").write_text(json.dumps(named))
    assert entry(program(".")).review().files, "the package itself is covered"
    assert looked
    assert [path for path in looked if path.startswith(("//evil", "/net"))] == []


def test_taking_an_approval_back_leaves_none_of_an_earlier_content() -> None:
    stated, other = program("src/server.py"), program("src/server.py", "--other")
    entry(stated).approve()
    entry(other).approve()
    pulled()
    entry(stated).approve()
    entry(stated).forget()
    entry(stated).forget()
    assert not entry(stated).approved
    Path("src/server.py").write_text("good")
    assert not entry(stated).approved
    assert not entry(other).approved
    # An approval applies to one name of a server.
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"a": stated, "b": stated}}))
    servers = read("mcp.json")
    servers["a"].approve()
    assert not servers["b"].approved
    servers["b"].approve()
    servers["b"].forget()
    assert servers["a"].approved
    assert not servers["b"].approved


def test_a_file_of_the_work_tree_counts_as_one_beside_the_file_of_servers(project: Path) -> None:
    (project / "deep" / ".svn").mkdir(parents=True)  # an inner marker must not hide the outer tree
    stated = program(str(project / "src" / "server.py"))
    assert asks_again(stated, pulled, "deep/mcp.json")
    # This also covers the folder of `cwd`, and files that are added or removed.
    assert asks_again(program("start", cwd="src"), Path("src/package.json").touch)
    assert asks_again(program("late.py"), Path("late.py").touch)
    assert asks_again(program("src/server.py"), Path("src/server.py").unlink)


def relinked(link: Path, target: str) -> None:
    """Make a link lead elsewhere."""
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def test_a_link_is_followed_within_the_project_and_covered_where_it_leads() -> None:
    link = Path("link.py")
    link.symlink_to("src/server.py")
    assert asks_again(program("link.py"), pulled)
    Path("other.py").write_text("evil")  # equal content at another path: the same program
    assert not asks_again(program("link.py"), partial(relinked, link, "other.py"))
    relinked(link, "/bin/sh")
    assert asks_again(program("link.py"), partial(relinked, link, sys.executable))


@pytest.mark.parametrize(
    "stated",
    [
        *(program(f"{start}link/../server.py") for start in ("", "${workspaceFolder}/")),
        *(program("server.py", cwd="link/.."), program("../server.py", cwd="link")),
        *(program("--directory", "link/..", "server.py"), {"command": "./link/../server.py"}),
    ],
)
def test_two_dots_behind_a_link_lead_where_the_system_goes(stated: Any, project: Path) -> None:
    """`..` after a link is the parent of its target; a file next to the link is a decoy."""
    (project / "src" / "deep").mkdir()
    (project / "link").symlink_to("src/deep")
    (project / "server.py").write_text("something else")
    assert asks_again(stated, pulled)
    assert asks_again(stated, partial(relinked, project / "link", sys.prefix))


def test_the_directory_of_the_process_does_not_decide_what_a_relative_word_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    stated, file = program("src/server.py"), str(project / "mcp.json")
    entry(stated, file).approve()
    (tmp_path / "other" / "src").mkdir(parents=True)
    (tmp_path / "other" / "src" / "server.py").write_text("evil")
    monkeypatch.chdir(tmp_path / "other")
    assert entry(stated, file).approved
    assert entry(stated, file).review().files == (str(project / "src" / "server.py"),)


@pytest.mark.parametrize(
    "stated",
    [
        *(program(word) for word in ("src", ".", "pipe", "\0", "\ud800", "x" * 10_000)),
        program("--port", "8000", "https://example.com/src/server.py"),
        *({"command": "sh"}, {"url": "https://example.com/mcp"}),
    ],
    ids=lambda stated: str(stated)[:60],
)
def test_what_names_no_file_of_the_project_is_approved_by_its_words_alone(stated: Any) -> None:
    os.mkfifo("pipe")
    assert entry(stated).review().files == ()
    assert not asks_again(stated, pulled)


def test_a_file_outside_of_the_project_is_not_covered(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("1")
    assert not asks_again({"command": str(tool)}, lambda: tool.write_text("2"))
    stated = {"command": "./tool", "cwd": str(tmp_path)}
    assert not asks_again(stated, lambda: tool.write_text("3"))
    # Folders outside the project are not searched.
    (tmp_path / "server.py").symlink_to(Path("src/server.py").absolute())
    review = entry(program("--directory", str(tmp_path), "server.py")).review()
    assert (review.files, review.folders) == ((), ())


def opened_by(opens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace `open` for the files that a command names."""
    monkeypatch.setattr("syncmcp.servers_file.named_files.open", opens, raising=False)


def test_a_file_is_read_once_for_all_names_and_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise links to one large file could delay a review for hours."""
    pieces: list[int] = []

    class Watched(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            pieces.append(size or -1)
            return super().read(size)

    with open("big.bin", "wb") as big:
        big.truncate(5 * 1024 * 1024)
    names = [f"link{number}" for number in range(20)]
    for name in names:
        Path(name).symlink_to("big.bin")
    opened_by(Watched, monkeypatch)
    files = entry(program(*names)).review().files
    assert {os.path.basename(file) for file in files} == set(names)
    assert len(pieces) == 5
    assert max(pieces) <= 1024 * 1024


def test_a_file_of_any_size_is_looked_at_in_no_time() -> None:
    """For a file that is too large, its size and modification time count."""
    stated = program("huge.bin", "endless")
    with open("huge.bin", "wb") as huge:
        huge.truncate(1024**4)
    Path("endless").symlink_to("/proc/kmsg")  # a regular file without an end
    assert asks_again(stated, lambda: os.utime("huge.bin", (1, 1)))


@pytest.mark.parametrize("word", ["../../../../../../proc/kcore", "/proc/kmsg", "/dev/zero"])
def test_a_file_of_the_system_is_not_read(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert entry(program(word)).review().files == ()
    monkeypatch.chdir("/")
    file = str(Path.home() / "project" / "mcp.json")
    assert entry(program(word.lstrip("./")), file).review().files == ()


@pytest.mark.skipif(not os.path.isdir("/proc/self/cwd"), reason="there is no such folder")
@pytest.mark.parametrize(
    "word", ["/proc/self/cwd/server.py", "//proc/./self/cwd/server.py", "lib/server.py"]
)
def test_a_file_that_is_another_one_to_the_server_is_not_covered(word: str) -> None:
    """The server runs in another directory; the file in this process's directory is a decoy."""
    Path("server.py").write_text("decoy")
    Path("src/lib").symlink_to("/proc/self/cwd")
    review = entry(program(word, cwd="src")).review()
    assert review.files == ()
    assert "does not cover the project's files" in str(review)


def test_a_command_of_too_many_words_is_refused() -> None:
    enough = " ".join(f"{number}" for number in range(4_000))
    assert entry(program(enough)).review().files == ()
    too_many = " ".join(f"{number}" for number in range(200_000))
    one = entry(program(too_many))
    before = time.process_time()
    with pytest.raises(ServersFileError, match="more than 10,000 words") as caught:
        one.target()
    assert time.process_time() - before < 2
    assert caught.value.server == "one"
    # Equal words are looked up once, but finding them takes as long as finding others.
    repeated = {f"V{number}": "a=b," * 1000 for number in range(50)}
    with pytest.raises(ServersFileError, match="more than 10,000 words"):
        entry(program(env=repeated)).review()
    script = "\n".join(f"cat file{number}.txt | grep x && echo {number}" for number in range(90))
    assert entry(program("-c", script)).review().files == ()


def test_words_folders_and_packages_do_not_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp.servers_file.named_files.MAX_WORDS", 500)
    words = [f"d{number}" for number in range(50)]
    for word in words:
        Path(word).mkdir()
    assert len(entry(program(*words[:15])).review().folders) == 15
    with pytest.raises(ServersFileError, match="more than 500 words"):
        entry(program(*words)).review()
    for number in range(3):
        folder = Path(f"p{number}")
        folder.mkdir()
        scripts = {f"s{word}": f"a{word}" for word in range(200)}
        package = {"main": f"../p{number + 1}", "scripts": scripts}
        (folder / "package.json").write_text(json.dumps(package))
    with pytest.raises(ServersFileError, match="more than 500 words"):
        entry(program("p0")).review()
    entry(program("p1")).review()


def test_a_directory_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = entry(program("src/server.py"))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ServersFileError, match="cannot examine the files") as caught:
        one.target()
    assert caught.value.server == "one"


def test_a_default_counts_only_where_it_is_filled_in() -> None:
    """A word that only resembles a placeholder is passed unchanged, and may name a file."""
    for name in ("run", "${1:-run}"):
        Path(f"{name}.js").write_text("1")
    for word, name in (("${1:-run}", "${1:-run}.js"), ("${A:-run}.js", "run.js")):
        files = entry(program(word)).review().files
        assert [os.path.basename(path) for path in files] == [name]

    # The review reads no variables.
    class Watched(dict[str, str]):
        def get(self, *key: Any) -> Any:
            raise AssertionError("looked at")

    stated = program("${PWD}/src/server.py", "${env:X:-src/server.py}")
    review = entry(stated, variables=Watched()).review()
    assert [Path(file).name for file in review.files] == ["server.py"]
    warnings = "\n".join(review.warnings)
    assert "which file, if any, word 2 of the command names" in warnings


def test_where_a_variable_decides_what_runs_there_is_a_warning() -> None:
    words = ("${A}server.py", "${PWD}", "${PWD:-src/../server}", "file://${A}")
    places: list[dict[str, Any]] = [{"args": [word]} for word in words]
    for place in ({"command": "${A}"}, {"cwd": "${A}"}, *places):
        review = entry({"command": "python", **place}).review()
        assert any("environment decides which" in warning for warning in review.warnings), place
    # A secret is not treated as the name of a file.
    review = entry(program("--token=${GITHUB_TOKEN}", "${API_KEY}")).review()
    assert not any("environment decides" in warning for warning in review.warnings)


def test_a_folder_has_other_names(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a case-insensitive file system, where no link reveals the other name."""
    project.with_name("other").symlink_to(project)
    monkeypatch.setattr(os.path, "realpath", lambda path, **_: os.path.abspath(path))
    assert asks_again(program("../other/src/server.py"), pulled)


def test_an_unreadable_file_is_covered_by_size_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: str, mode: str) -> Any:
        raise PermissionError(path)

    stated = program("src/server.py")
    opened_by(refuses, monkeypatch)
    assert asks_again(stated, lambda: os.utime("src/server.py", ns=(1, 1)))
    # When the file becomes readable, it counts as changed.
    assert asks_again(stated, partial(opened_by, open, monkeypatch))


def test_the_prompt_says_what_is_covered_and_what_is_not(project: Path) -> None:
    text = str(entry(program("src/server.py")).review())
    assert f"covers what these files hold now: {project}/src/server.py" in text
    assert "may change later without a new prompt" in text
    assert "does not cover the project" not in text
    for stated in (program("x"), program("--directory", "src", "missing.py")):
        text = str(entry(stated).review())
        assert "covers what these files" not in text
        assert "The approval does not cover the project's files: " in text
    assert "The command names a directory of the project. The approval does not cover" in text
    assert f"the other files there: {project}/src" in text


def test_what_changes_while_a_person_reads_is_asked_about_again() -> None:
    seen: list[ServerReview] = []

    def approve(review: ServerReview) -> bool:
        seen.append(review)
        if len(seen) == 1:
            pulled()
        return True

    stated = program("src/server.py")
    entry(stated, approve=approve).target()
    first, second = seen
    assert first.digest != second.digest
    assert entry(stated).approved
    # The approval is for the reviewed content.
    one = entry(stated)
    review = one.review()
    Path("src/server.py").write_text("worse")
    one.approve(review)
    assert not one.approved
    with pytest.raises(NotApproved):
        one.target()
    one.approve()
    assert one.approved


def test_what_changes_before_a_start_is_not_started() -> None:
    """The script is replaced before the client is opened again."""
    serves = "from syncmcp.testing.__main__ import main; main()"
    script = Path("src/server.py")
    script.write_text(serves)
    found = entry({"command": sys.executable, "args": ["src/server.py"]})
    found.approve()
    client = syncmcp.Client(found)
    assert pickle.loads(pickle.dumps(client)) is not client
    with client:
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
    script.write_text(f"open('ran', 'w'); {serves}")
    with pytest.raises(NotApproved, match="has changed since") as caught:
        client.open()
    assert caught.value.review.server == "one"
    assert not Path("ran").exists()
    script.write_text(serves)
    with client:  # the approved content is restored
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
