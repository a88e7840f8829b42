"""Processes of tests that are told a line, and answer with one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Peer:
    """A running process."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen

    def tell(self, command: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{command}\n")
        self.popen.stdin.flush()

    def heard(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()


@contextmanager
def peer(module: str, *arguments: object, descriptors: tuple[int, ...] = ()) -> Iterator[Peer]:
    """Run this module beside; it keeps the descriptors, and is killed at the end."""
    command = [sys.executable, "-m", f"tests.auth.{module}", *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, pass_fds=descriptors
    ) as popen:
        try:
            yield Peer(popen)
        finally:
            popen.kill()
