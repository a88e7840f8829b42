"""Sees to a Chromium for the tests of the pages, with Debian's packages where that may be done.

``make test`` runs this. Where there is none and it may not be installed, one line says which tests
are left out; in CI that is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
TESTS = "tests/ui/test_browser_chromium.py"


def chromium() -> str | None:
    """The path of the browser, if there is one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def in_ci() -> bool:
    """Whether a missing browser is a failure."""
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


def _install(prefix: list[str]) -> None:
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
    ):
        # One that fails (no network, say) shows in the browser that is not there afterwards.
        subprocess.run(
            [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", *command],
            stdout=subprocess.DEVNULL,
            check=False,
        )


def main() -> int:
    """Install a browser if need be; the exit code of the program."""
    if chromium() is None and (prefix := _prefix()) is not None:
        _install(prefix)
    found = chromium()
    print(f"browser: {found}" if found else f"no Chromium: {TESTS} is left out")
    return 1 if found is None and in_ci() else 0


if __name__ == "__main__":
    sys.exit(main())
