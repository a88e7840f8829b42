"""Installs the programs that some tests run, as Debian packages, if the user may install them.

``make test`` runs this. For each program that is still missing, a line names the tests that are
skipped. In CI, a missing program is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import NamedTuple


class Program(NamedTuple):
    """A program that tests run; without the Debian `package`, the tests in `tests` are skipped."""

    title: str
    commands: tuple[str, ...]
    package: str
    tests: str

    def find(self) -> str | None:
        """Return the path of the program; `None` if it is not installed."""
        return next(filter(None, map(shutil.which, self.commands)), None)


_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
_SANDBOX = "the sandbox in tests/features/test_confined_servers.py"
CHROMIUM = Program("Chromium", _CHROMIUMS, "chromium", "tests/ui/test_browser_chromium.py")
PROGRAMS = (CHROMIUM, Program("bubblewrap", ("bwrap",), "bubblewrap", _SANDBOX))


def in_ci() -> bool:
    """Return True in CI, where a missing program is a failure."""
    return bool(os.environ.get("CI"))


def _prefix() -> list[str] | None:
    """Return the prefix of commands that install packages; `None` if that is not allowed."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return ["sudo", "-n"] if asked.returncode == 0 else None


def _install(prefix: list[str], packages: list[str]) -> None:
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        # A failure (no network, for example) is noticed later: the program is still missing.
        subprocess.run(
            [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", *command],
            stdout=subprocess.DEVNULL,
            check=False,
        )


def main() -> int:
    """Install the missing programs; return 1 in CI if one is still missing, otherwise 0."""
    missing = [program.package for program in PROGRAMS if program.find() is None]
    if missing and (prefix := _prefix()) is not None:
        _install(prefix, missing)
    code = 0
    for program in PROGRAMS:
        found = program.find()
        print(found or f"no {program.title}: {program.tests} is left out")
        if found is None and in_ci():
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
