"""The program through which commands of a file are started: `confine=` of `servers_file.read`.

What a file names must neither become an option of the sandbox nor change what the sandbox does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

# Those that take "--" as the end of their own options. `docker run IMAGE --` would start "--", and
# `sandbox-exec` has no such word.
_HAS_SEPARATOR: Final = ("bwrap", "firejail", "setpriv", "systemd-run", "unshare")


# What a variable is called on its way through the sandbox, so that it means nothing to that.
_PREFIX: Final = "SYNCMCP_WITHIN_"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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


def is_variable(name: str) -> bool:
    """Whether a shell within the sandbox can give the command a variable of this name."""
    return _NAME.fullmatch(name) is not None


def passed_within(
    command: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command behind the sandbox, and the variables with which the sandbox is started.

    A variable of an entry could change what the sandbox does (``LD_PRELOAD``, ``PATH``). So it
    comes under another name, and a shell within the sandbox gives it its own. Its value is in no
    command line, which other users could read. A sandbox that lets no variables through makes the
    start fail.
    """
    if not env:
        return list(command), {}
    script = "".join(
        f'export {name}="${{{_PREFIX}{name}?}}"; unset {_PREFIX}{name}; ' for name in env
    )
    words = ["/bin/sh", "-c", f'{script}exec "$@"', "sh", *command]
    return words, {f"{_PREFIX}{name}": value for name, value in env.items()}
