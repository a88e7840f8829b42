"""Sees to the programs that some tests run, with Debian's packages where those may be installed.

``make test`` runs this. Where a program is missing and may not be installed, one line says which
tests are left out; in CI that is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import NamedTuple


class Program(NamedTuple):
    """A program that tests run: `tests` says what cannot be tested without Debian's `package`."""

    title: str
    commands: tuple[str, ...]
    package: str
    tests: str

    def find(self) -> str | None:
        """The path of the program, if it is there."""
        return next(filter(None, map(shutil.which, self.commands)), None)


_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
_SANDBOX = "the sandbox in tests/features/test_confined_servers.py"
CHROMIUM = Program("Chromium", _CHROMIUMS, "chromium", "tests/ui/test_browser_chromium.py")
PROGRAMS = (CHROMIUM, Program("bubblewrap", ("bwrap",), "bubblewrap", _SANDBOX))


def in_ci() -> bool:
    """Whether a missing program is a failure."""
    return bool(os.environ.get("CI"))


def _prefix() -> list[str] | None:
    """What to put before a command that installs something; `None` if it may not be done."""
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
        # One that fails (no network, say) shows in the program that is not there afterwards.
        subprocess.run(
            [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", *command],
            stdout=subprocess.DEVNULL,
            check=False,
        )


def main() -> int:
    """Install what is missing; the exit code of the program."""
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
