"""``${...}`` in files of servers: what stands there, and what takes its place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_KIND = re.compile(r"([A-Za-z][\w-]*):")


class NotFilled(ValueError):
    """A placeholder has no value; the text says why."""


@dataclass(frozen=True)
class Values:
    """What placeholders stand for.

    Attributes:
        folder: The folder that the file belongs to: ``${workspaceFolder}``.
        variables: The environment, if it is not that of this process.
        inputs: Values for ``${input:...}``, by their ids.
    """

    folder: Path
    variables: Mapping[str, str] | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        """Return `text` with each placeholder replaced. What takes its place is not looked at.

        Raises:
            NotFilled: One of them has no value.
        """
        return _PLACEHOLDER.sub(lambda match: self._value(match.group(1), match.group()), text)

    def _value(self, content: str, whole: str) -> str:
        fixed = self._fixed().get(content)
        if fixed is not None:
            return fixed
        kind = _KIND.match(content)
        name, has_default, default = content.partition(":-")
        if kind is not None and kind.group(1) == "input":
            return self._input(content.removeprefix("input:"))
        if kind is not None and kind.group(1) == "env":
            name = name.removeprefix("env:")
        elif not _NAME.fullmatch(name):
            if kind is not None:
                raise NotFilled(f"{whole} is a kind of placeholder that is not supported")
            return whole  # a shell's or a program's own
        return self._variable(name, default if has_default else None)

    def _variable(self, name: str, default: str | None) -> str:
        variables = os.environ if self.variables is None else self.variables
        value = variables.get(name)
        if default is not None:
            return value or default  # as in a shell: an empty one counts as missing
        if value is None:
            raise NotFilled(f"the environment variable {name!r} is not set")
        return value

    def _input(self, name: str) -> str:
        value = self.inputs.get(name)
        if value is None:
            raise NotFilled(f"the input {name!r} has no value: give it as inputs={{{name!r}: ...}}")
        return value

    def _fixed(self) -> dict[str, str]:
        return {
            "workspaceFolder": str(self.folder),
            "workspaceFolderBasename": self.folder.name,
            "userHome": os.path.expanduser("~"),
            "pathSeparator": os.sep,
            "/": os.sep,
        }


def variables_in(text: str) -> list[str]:
    """The environment variables and inputs whose values would become part of `text`."""
    found: list[str] = []
    for content in _PLACEHOLDER.findall(text):
        name = content.partition(":-")[0].removeprefix("env:")
        if name not in _FIXED and name not in found:
            found.append(name)
    return found


_FIXED = frozenset(Values(Path())._fixed())
