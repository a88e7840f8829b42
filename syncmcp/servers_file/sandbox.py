"""The program through which commands of a file are started: `confine=` of `servers_file.read`.

What a file names must neither become an option of the sandbox nor change what the sandbox does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

# Those that take "--" as the end of their own options. `docker run IMAGE --` would start "--", and
# `sandbox-exec` has no such word.
_HAS_SEPARATOR: Final = ("bwrap", "firejail", "setpriv", "systemd-run", "unshare")


def sandbox_line(confine: Sequence[str]) -> tuple[str, ...]:
    """The words before the command of an entry.

    A program with a directory in its name becomes absolute: otherwise it would be looked up in the
    directory that the entry names. The separator ``--`` is added where the program has one, unless
    one is among the words.
    """
    if not confine:
        return ()
    program, *rest = confine
    if os.path.dirname(program):
        program = os.path.abspath(program)
    if PurePath(program).name in _HAS_SEPARATOR and "--" not in rest:
        rest.append("--")
    return (program, *rest)


def is_taken_for_option(command: str) -> bool:
    """Whether a sandbox might read a command as one of its options, or as an assignment.

    An assignment as of `env` and `sudo`: ``NAME=value`` before the command.
    """
    return command.startswith("-") or "=" in command
