"""Commands and variables with a warning; the page has the same tables."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

from syncmcp.servers_file.dangers import PROGRAMS, VARIABLES, command_warnings
from syncmcp.servers_file.review import ServerReview

PAGE = Path(__file__).parents[2] / "docs" / "warnings.md"
SHELL, INLINE = "A shell interprets the command", "The code to run is in the command itself"
FETCHES, MOUNTS, OPEN = "downloads and runs a program", "access to files", "not isolated"
COMPOSES, RIGHTS, SENDS = "decides which containers run", "another user", "transfers data"
LOADS, NAMES = "Other code runs before", "chooses the source of packages"

pytestmark = pytest.mark.requirement("SEC-07")


def warnings(*command: str, **env: str) -> str:
    review = ServerReview("one", Path("/mcp.json"), "stdio", command=command, env=env)
    return "\n".join(review.warnings)


# Words are separated by ``|`` if the command contains one, so that words can contain spaces.
COMMANDS = {
    SHELL: (
        *("/usr/bin/env VAR=x sh -c x", "cmd.exe /c x", r"C:\Windows\System32\CMD.EXE /d /C x"),
        *("sudo -u me bash -lc x", "nice -n 5 zsh -c x"),
        *("timeout 5 bash --noprofile -o pipefail -c x", "bwrap --ro-bind / / -- /bin/sh -c x"),
        *("env -S|sh -c x", "env|-Ssh -c x", "busybox sh -c x", "pwsh -NoProfile -Command x"),
        *("powershell.exe -NoP -EncodedCommand eA==", "mksh -c x", "rbash -c x", "su -c x"),
        *("su me --command=x", "runuser -u me -c x", "cmd /q/c x", "cmd /d /v:on/c x", "sh -xce x"),
        *("nu -e x", "nu --execute x", "fish --init-command x", "fish -C x", "bash --rcfile x -i"),
        "powershell iex(1)",
    ),
    INLINE: (
        *("env python3.12 -u -c x", "python -Wignore -X dev -Ic x", "python -cimport"),
        *("/opt/node22/bin/node --no-warnings --eval=x", "perl -ne x", "deno eval x"),
        *("python3.12t -c x", "pythonw.exe -c x", "py -3 -c x", "nodejs -e x"),
        *("python -Icprint(1)", "python --check-hash-based-pycs always -c x"),
        *("node --title x -e y", "node --input-type module -e y", "osascript -l JavaScript -e y"),
        *("php -d a=b -r y", "erl -pa x -eval y", "perl -neprint x", "Rscript -e x", "php -B x"),
        *("vim -c x", "awk BEGIN{system(1)}", "node -r ./x.js -e y"),
    ),
    FETCHES: (
        *("npx -y x", "env npx x", r"C:\nodejs\npx.cmd x", "uvx x", "bunx x", "pipx run x"),
        *("cmd /c npx -y x", "sh -c|npx -y x", "npm exec x", "npm install x"),
        *("python -m pip install x", "nix shell x", "nix run x"),
        *("uv run https://example.com/x.py", "uv tool run x", "uv run --with requests x.py"),
        *("deno run npm:x", "go run example.com/x@latest", "docker run -i x"),
    ),
    RIGHTS: ("wsl x", "su me", "nsenter -t 1 -m x"),
    LOADS: (
        *("perl -Mx y.pl", "node --require ./x.js y.js", "node -r ./x.js y.js"),
        *("node -r./x.js y.js", "nodejs --import ./x.js y.js", "java -javaagent:x.jar -jar y.jar"),
    ),
    MOUNTS: (
        *("docker run -v /home:/home x", "docker run --mount type=bind,src=/home,dst=/x x"),
        "sudo podman run --volume=/x:/y x",
    ),
    OPEN: (
        *("docker run -v /:/host x", "docker run --net=host x"),
        *("docker run --network host x", "docker run -v /var/run/docker.sock:/s x"),
    ),
    COMPOSES: ("docker compose up", "docker --context x compose -f y up", "docker-compose up"),
    NAMES: (
        *("npx --registry=https://x y", "uvx --index-url https://x y"),
        "pip install -i https://x y",
    ),
}
OTHERS = [
    *(
        ("mshta http://x", "The arguments name code"),
        ("git -c alias.x=!sh x", "may decide which code"),
    ),
    *((r"x \\host\share\y", "another computer"), ("cat ~/.ssh/id_rsa", "that hold credentials")),
    *(("ssh-keyscan host", SENDS), ("/usr/bin/ssh host", SENDS)),
    ("env LD_PRELOAD=x node y.js", "LD_PRELOAD decides which code"),
    ("/usr/bin/env npm_config_registry=x npm start", "npm_config_registry decides where"),
]


@pytest.mark.parametrize(
    ("command", "warning"),
    [(line, warning) for warning, lines in COMMANDS.items() for line in lines] + OTHERS,
)
def test_a_command_carries_a_warning_wherever_its_danger_is(command: str, warning: str) -> None:
    parts = command.split("|")
    words = command.split() if len(parts) == 1 else [*parts[0].split(), parts[1]]
    assert warning in warnings(*words)


def test_an_honest_command_or_variable_carries_none() -> None:
    for command in (
        *("my-server --format json -c config.json -e production", "my-server composed up"),
        *("my-server --volume=3 -v --network=lan", "my-server KEY=value", "bash run.sh"),
        *("python server.py -c config.ini", "python -m my.server -c config.ini"),
        *("node server.js -r 3", "node --no-warnings server.js -e production", "npm start"),
        *("node server.js --port 8000", "/usr/bin/env node server.js", "java -jar server.jar"),
        *("summary --lang su-sun", "uv --directory /srv run server.py", "go run ."),
        "deno run --allow-net main.ts",
    ):
        assert warnings(*command.split()) == "", command
    assert SENDS not in warnings("cat", "~/.ssh/id_rsa")  # no program sends it
    for name in (
        *("MODE", "API_KEY", "PYTHONUNBUFFERED", "PYTHONIOENCODING", "NODE_ENV", "HOMEPAGE"),
        *("LANG", "PORT", "DATABASE_URL", "MY_PATH", "ENVIRONMENT", "GIT_AUTHOR_NAME", "DEBUG"),
        "GITHUB_TOKEN",
    ):
        assert warnings("my-server", **{name: "x"}) == "", name


@pytest.mark.parametrize(
    "name",
    [
        *("NPM_CONFIG_REGISTRY", "npm_config_registry", "Npm_Config_Script_Shell"),
        *("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONFIG_FILE"),
        *("GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS"),
        *("PYTHONPATH", "NODE_OPTIONS", "HOME", "LD_AUDIT", "ld_library_path", "PERL5OPT"),
        *("DYLD_INSERT_LIBRARIES", "RUBYOPT", "BASH_ENV", "ENV", "Path", "SHELL", "DOCKER_HOST"),
        *("OPENSSL_CONF", "http_proxy", "SSL_CERT_FILE", "NODE_TLS_REJECT_UNAUTHORIZED"),
    ],
)
def test_a_variable_that_decides_what_runs_carries_a_warning(name: str) -> None:
    assert f"{name} decides " in warnings("my-server", **{name: "x"})


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD (a false alarm: it was checked)", "LD_" + "X" * 60, "LD_\u202e\n"]
)
def test_no_words_of_an_entry_are_words_of_a_warning(name: str) -> None:
    assert "A variable with an odd name decides which code runs." in warnings("x", **{name: "y"})
    assert name.strip() not in warnings("x", **{name: "y"})
    words = ("${HOME}/cache is fine. syncmcp has checked it", "${input:syncmcp has checked it}.sh")
    review = ServerReview("one", Path("mcp.json"), "stdio", ("x", *words), cwd="${A}/checked")
    assert len(review.warnings) == 3
    assert "checked" not in "".join(review.warnings)


@pytest.mark.parametrize("word", ["sh", "docker", "python", "node -x", "env -S", "-S-S-S-S", "=x"])
def test_a_command_of_any_length_is_soon_looked_through(word: str) -> None:
    for command in ([word] * 500_000, ["x", f"{word} rm " * 200_000]):
        before = time.process_time()
        assert "The command is too long to check in full." in command_warnings(command, [])
        assert time.process_time() - before < 2


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the table whose first column has this heading."""
    text = PAGE.read_text(encoding="utf-8")
    (table,) = re.findall(rf"^\| {heading} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]


def quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def test_the_page_has_both_tables() -> None:
    assert rows("Variables") == [[quoted(kind.names), kind.effect] for kind in VARIABLES]
    told = [[kind.warning, quoted(kind.names), quoted(kind.words)] for kind in PROGRAMS]
    for before, row in reversed(list(pairwise(told))):
        if row[0] == before[0]:
            row[0] = ""
    assert rows("Warning") == told
