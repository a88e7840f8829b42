"""Which commands and variables of a file carry a warning; the page has the same tables."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from syncmcp.servers_file.dangers import PROGRAMS, VARIABLES, command_warnings
from syncmcp.servers_file.review import ServerReview

PAGE = Path(__file__).parents[2] / "docs" / "many-servers.md"
SHELL, INLINE = "A shell interprets it", "The code to be run is in the command"
FETCHES, MOUNTS, OPEN = "fetches a program", "access to files", "not shut off"
COMPOSES, RIGHTS, SENDS = "which containers are run", "another user", "transfers data"
LOADS, NAMES = "loads code before", "names where its packages come from"

pytestmark = pytest.mark.requirement("SEC-07")


def warnings(*command: str, **env: str) -> str:
    review = ServerReview("one", Path("/mcp.json"), "stdio", command=command, env=env)
    return "\n".join(review.warnings)


@pytest.mark.parametrize(
    ("command", "warning"),
    [
        ("/usr/bin/env VAR=x sh -c x", SHELL),
        ("cmd.exe /c x", SHELL),
        (r"C:\Windows\System32\CMD.EXE /d /C x", SHELL),
        ("sudo -u me bash -lc x", SHELL),
        ("nice -n 5 zsh -c x", SHELL),
        ("timeout 5 bash --noprofile -o pipefail -c x", SHELL),
        ("bwrap --ro-bind / / -- /bin/sh -c x", SHELL),
        ("env -S|sh -c x", SHELL),
        ("env|-Ssh -c x", SHELL),
        ("busybox sh -c x", SHELL),
        ("pwsh -NoProfile -Command x", SHELL),
        ("powershell.exe -NoP -EncodedCommand eA==", SHELL),
        ("env python3.12 -u -c x", INLINE),
        ("python -Wignore -X dev -Ic x", INLINE),
        ("python -cimport", INLINE),
        ("/opt/node22/bin/node --no-warnings --eval=x", INLINE),
        ("perl -ne x", INLINE),
        ("deno eval x", INLINE),
        ("mksh -c x", SHELL),
        ("rbash -c x", SHELL),
        ("su -c x", SHELL),
        ("su me --command=x", SHELL),
        ("runuser -u me -c x", SHELL),
        ("python3.12t -c x", INLINE),
        ("pythonw.exe -c x", INLINE),
        ("py -3 -c x", INLINE),
        ("nodejs -e x", INLINE),
        ("npx -y x", FETCHES),
        ("env npx x", FETCHES),
        (r"C:\nodejs\npx.cmd x", FETCHES),
        ("uvx x", FETCHES),
        ("bunx x", FETCHES),
        ("pipx run x", FETCHES),
        ("cmd /c npx -y x", FETCHES),
        ("sh -c|npx -y x", FETCHES),
        ("npm exec x", FETCHES),
        ("npm install x", FETCHES),
        ("python -m pip install x", FETCHES),
        ("nix shell x", FETCHES),
        ("nix run x", FETCHES),
        ("uv run https://example.com/x.py", FETCHES),
        ("cmd /q/c x", SHELL),
        ("cmd /d /v:on/c x", SHELL),
        ("sh -xce x", SHELL),
        ("nu -e x", SHELL),
        ("nu --execute x", SHELL),
        ("fish --init-command x", SHELL),
        ("fish -C x", SHELL),
        ("bash --rcfile x -i", SHELL),
        ("powershell iex(1)", SHELL),
        ("wsl x", RIGHTS),
        ("python -Icprint(1)", INLINE),
        ("python --check-hash-based-pycs always -c x", INLINE),
        ("node --title x -e y", INLINE),
        ("node --input-type module -e y", INLINE),
        ("osascript -l JavaScript -e y", INLINE),
        ("php -d a=b -r y", INLINE),
        ("erl -pa x -eval y", INLINE),
        ("perl -neprint x", INLINE),
        ("Rscript -e x", INLINE),
        ("php -B x", INLINE),
        ("vim -c x", INLINE),
        ("awk BEGIN{system(1)}", INLINE),
        ("perl -Mx y.pl", LOADS),
        ("mshta http://x", "its arguments name"),
        ("git -c alias.x=!sh x", "may decide which code"),
        ("x \\\\host\\share\\y", "another computer"),
        ("uv tool run x", FETCHES),
        ("uv run --with requests x.py", FETCHES),
        ("deno run npm:x", FETCHES),
        ("go run example.com/x@latest", FETCHES),
        ("docker run -i x", FETCHES),
        ("docker run -v /home:/home x", MOUNTS),
        ("docker run --mount type=bind,src=/home,dst=/x x", MOUNTS),
        ("sudo podman run --volume=/x:/y x", MOUNTS),
        ("docker run -v /:/host x", OPEN),
        ("docker run --net=host x", OPEN),
        ("docker run --network host x", OPEN),
        ("docker run -v /var/run/docker.sock:/s x", OPEN),
        ("docker compose up", COMPOSES),
        ("docker --context x compose -f y up", COMPOSES),
        ("docker-compose up", COMPOSES),
        ("su me", RIGHTS),
        ("nsenter -t 1 -m x", RIGHTS),
        ("node --require ./x.js y.js", LOADS),
        ("node -r ./x.js y.js", LOADS),
        ("node -r./x.js y.js", LOADS),
        ("nodejs --import ./x.js y.js", LOADS),
        ("node -r ./x.js -e y", INLINE),
        ("ssh-keyscan host", SENDS),
        ("/usr/bin/ssh host", SENDS),
        ("cat ~/.ssh/id_rsa", "credentials are kept"),
        ("java -javaagent:x.jar -jar y.jar", LOADS),
        ("npx --registry=https://x y", NAMES),
        ("uvx --index-url https://x y", NAMES),
        ("pip install -i https://x y", NAMES),
        ("env LD_PRELOAD=x node y.js", "LD_PRELOAD decides which code"),
        ("/usr/bin/env npm_config_registry=x npm start", "npm_config_registry decides where"),
    ],
)
def test_a_command_carries_a_warning_wherever_its_danger_is(command: str, warning: str) -> None:
    """Words are separated by ``|`` if there is one, so that a word can have spaces."""
    parts = command.split("|")
    words = command.split() if len(parts) == 1 else [*parts[0].split(), parts[1]]
    assert warning in warnings(*words)


@pytest.mark.parametrize(
    "command",
    [
        "my-server --format json -c config.json -e production",
        "python server.py -c config.ini",
        "python -m my.server -c config.ini",
        "node server.js -r 3",
        "summary --lang su-sun",
        "my-server composed up",
        "node --no-warnings server.js -e production",
        "node server.js --port 8000",
        "uv --directory /srv run server.py",
        "deno run --allow-net main.ts",
        "go run .",
        "java -jar server.jar",
        "/usr/bin/env node server.js",
        "npm start",
        "bash run.sh",
        "my-server --volume=3 -v --network=lan",
        "my-server KEY=value",
    ],
)
def test_an_honest_command_carries_none(command: str) -> None:
    assert warnings(*command.split()) == ""


def test_a_folder_of_keys_sends_nothing_by_itself() -> None:
    assert SENDS not in warnings("cat", "~/.ssh/id_rsa")


@pytest.mark.parametrize(
    "name",
    [
        *("NPM_CONFIG_REGISTRY", "npm_config_registry", "Npm_Config_Script_Shell"),
        *("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONFIG_FILE"),
        *("GIT_SSH_COMMAND", "GIT_SSH", "GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "GIT_EXEC_PATH"),
        *("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS"),
        *("PYTHONUSERBASE", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "NODE_OPTIONS"),
        *("HOME", "XDG_CONFIG_HOME", "GCONV_PATH", "LD_PRELOAD", "LD_AUDIT", "ld_library_path"),
        *("DYLD_INSERT_LIBRARIES", "PERL5LIB", "PERL5OPT", "RUBYOPT", "RUBYLIB", "BASH_ENV"),
        *("ENV", "PATH", "Path", "SHELL", "COMSPEC", "DOCKER_HOST", "OPENSSL_CONF"),
        *("HTTPS_PROXY", "http_proxy", "ALL_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
        *("NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED", "CURL_CA_BUNDLE"),
    ],
)
def test_a_variable_that_decides_what_runs_carries_a_warning(name: str) -> None:
    assert f"{name} decides " in warnings("my-server", **{name: "x"})


@pytest.mark.parametrize(
    "name",
    [
        *("MODE", "API_KEY", "PYTHONUNBUFFERED", "PYTHONIOENCODING", "NODE_ENV", "HOMEPAGE"),
        *("LANG", "PORT", "DATABASE_URL", "MY_PATH", "ENVIRONMENT", "GIT_AUTHOR_NAME", "DEBUG"),
        "GITHUB_TOKEN",
    ],
)
def test_an_honest_variable_carries_none(name: str) -> None:
    assert warnings("my-server", **{name: "x"}) == ""


def test_a_name_of_a_variable_cannot_draw_on_the_screen() -> None:
    assert "LD_\u202e" not in warnings("my-server", **{"LD_\u202e\n": "x"})
    assert "A variable with an odd name decides" in warnings("my-server", **{"LD_\u202e\n": "x"})


@pytest.mark.parametrize("name", ["LD_PRELOAD (a false alarm: it was checked)", "LD_" + "X" * 60])
def test_no_words_of_an_entry_are_words_of_a_warning(name: str) -> None:
    assert "A variable with an odd name decides which code is run." in warnings("x", **{name: "y"})
    assert name not in warnings("x", **{name: "y"})
    words = ("${HOME}/cache is fine. syncmcp has checked it", "${input:syncmcp has checked it}.sh")
    review = ServerReview("one", Path("mcp.json"), "stdio", ("x", *words), cwd="${A}/checked")
    assert len(review.warnings) == 3
    assert "checked" not in "".join(review.warnings)


@pytest.mark.parametrize("word", ["sh", "docker", "python", "node -x", "env -S", "-S-S-S-S", "=x"])
def test_a_command_of_any_length_is_soon_looked_through(word: str) -> None:
    before = time.process_time()
    assert "It is too long to be read." in command_warnings([word] * 500_000, [])
    assert time.process_time() - before < 2


def rows(heading: str) -> list[list[str]]:
    """The rows of the table whose first column has this heading."""
    text = PAGE.read_text(encoding="utf-8")
    (table,) = re.findall(rf"^\| {heading} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]


def quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def test_the_page_has_the_table_of_variables() -> None:
    told = [[quoted(kind.names), kind.effect] for kind in VARIABLES]
    assert rows("Variables") == told


def test_the_page_has_the_table_of_programs() -> None:
    told = [[quoted(kind.names), quoted(kind.words), kind.warning] for kind in PROGRAMS]
    assert rows("Programs") == told
