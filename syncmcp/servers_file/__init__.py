"""Servers in the configuration files of editors: `mcpServers` (Claude Desktop, Cursor), `servers`.

::

    from syncmcp import servers_file

    servers = servers_file.read("claude_desktop_config.json")
    with syncmcp.connect(servers["weather"]) as client:
        ...

A file outside of the person's own settings may have come with a project, and so from an untrusted
author. Before a person has approved, the servers of such a file are neither started nor contacted,
and no variables are expanded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from syncmcp._base.checks import check_callable, check_mapping, flag, kind_of
from syncmcp._base.similar import comparable, similar
from syncmcp._base.text import visible
from syncmcp._concurrency.files import read_object
from syncmcp.errors import UsageError
from syncmcp.handlers.context import FileChosenName
from syncmcp.servers_file.entry import Approve, FileRules, NotApproved, ServerEntry, sandbox_line
from syncmcp.servers_file.named_files import is_own, settings_folder
from syncmcp.servers_file.review import (
    ApprovedServers,
    PlaceholderValues,
    ServerReview,
    ServersFileError,
    project_folder,
)

__all__ = [
    "MAX_BYTES",
    "Approve",
    "EditorFile",
    "NotApproved",
    "ServerEntry",
    "ServerReview",
    "ServersFile",
    "ServersFileError",
    "known_files",
    "read",
]


# JSON with comments and trailing commas (JSONC), as editors write it. The patterns match whole
# strings, so they remove no text in a string that looks like a comment. They also match
# unterminated strings and comments: otherwise the search would restart at each of their characters.
_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
_TOKEN = re.compile(rf"{_STRING}|//[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_NO_BREAK = re.compile(r"[^\n]+")

# Python converts this many digits under any setting (`sys.set_int_max_str_digits`). A longer number
# exceeds every float.
_MOST_DIGITS = 640

# Characters of a key that an error shows.
_SHOWN = 60


def parse(text: str) -> Any:
    """Parse JSON with comments and trailing commas.

    A number that no float holds becomes infinite, and ``NaN`` is accepted. An entry with such a
    number is invalid, but the other entries can be used.

    Raises:
        ValueError: The text is invalid, has a duplicate key, or is nested too deeply.
    """
    try:
        return _loads(text)
    except _KeyTwice:
        raise
    except ValueError:
        # Comments and commas become blanks, so that errors have the line and column of the file.
        if "//" in text or "/*" in text:
            text = _TOKEN.sub(_blanked, text)
        return _loads(_LAST_COMMA.sub(_blanked, text))


def _loads(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _blanked(match: re.Match[str]) -> str:
    found = match.group()
    if found.startswith('"'):
        return found
    return _NO_BREAK.sub(lambda line: " " * len(line.group()), found)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        # A person may read the first value, while a parser would use the last.
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _KeyTwice(f"the key {name[:_SHOWN]!r} appears twice")
            seen.add(name)
    return members


class _KeyTwice(ValueError):
    """An object has a key twice, so to remove comments and commas would not help."""


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


MAX_BYTES: Final = 4 * 1024 * 1024
"""The largest file that is read, in bytes."""


class ServersFile(Mapping[str, ServerEntry]):
    """A mapping of names to the servers of a file, in the file's order; returned by `read`.

    >>> from pathlib import Path
    >>> from syncmcp import servers_file
    >>> _ = Path("mcp.json").write_text('{"mcpServers": {"web": {"url": "https://example.com"}}}')
    >>> servers = servers_file.read("mcp.json")
    >>> list(servers), servers.guarded
    (['web'], True)

    A name in a guarded file proves nothing, so rules and budgets that allow something do not match
    such a name. They match a name that the program gives: as `name=` of a client, or as a key of a
    group that differs from the name in the file.

    To look up an unknown name raises a `KeyError`, which lists the names.

    Attributes:
        path: The path of the file.
        guarded: Whether the servers need approval, because the file is neither the person's own
            (see `read`) nor trusted.
        inputs: The inputs that the file declares (VS Code): their descriptions by the ids in
            ``${input:...}``.
    """

    def __init__(
        self, stated: Mapping[str, Any], inputs: Mapping[str, str], rules: FileRules
    ) -> None:
        self.path = rules.file
        self.guarded = rules.guarded
        self.inputs = inputs
        chosen = FileChosenName if rules.guarded else str
        names = map(chosen, stated)
        self._entries = {name: ServerEntry(name, stated[name], rules) for name in names}

    def __getitem__(self, name: str) -> ServerEntry:
        try:
            return self._entries[name]
        except KeyError:
            names = visible(", ".join(self._entries)) or "no servers"
            raise KeyError(
                f"no server named {name!r} in {str(self.path)!r}, which has: {names}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        names = visible(", ".join(self._entries)) or "no servers"
        return f"<ServersFile {str(self.path)!r}: {names}>"


class EditorFile(NamedTuple):
    """A configuration file of an editor.

    Attributes:
        editor: The editor that reads the file.
        scope: Whether the file is the person's own, or belongs to a project.
        path: The path of the file.
    """

    editor: Literal["Claude Desktop", "VS Code", "Cursor"]
    scope: Literal["user", "project"]
    path: Path


def read(
    path: str | os.PathLike[str],
    *,
    approve: Approve | None = None,
    trust: bool = False,
    variables: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    confine: Sequence[str] = (),
    approvals: str | os.PathLike[str] | None = None,
) -> ServersFile:
    """Read the servers of a file.

    Nothing is started, contacted or expanded.

    ::

        from syncmcp import servers_file

        servers = servers_file.read("~/.cursor/mcp.json")
        with syncmcp.connect(servers["files"]) as client:
            print(client.list_tools().tools)

    The servers of a file need approval unless the file is the person's own. Such a file is directly
    in the settings of Claude Desktop, VS Code or Cursor, or in the directory ``syncmcp`` next to
    these. It is in no work tree of a version control system, and other users of the computer cannot
    write to it. Both its path and its path with all symbolic links resolved must fulfil these
    conditions.

    An invalid server becomes an entry like the others. Such an entry has a `ServerEntry.problem`,
    and fails when it is used.

    With `confine`, an entry is invalid

    - if its command begins with ``-`` or contains ``=``;
    - if an argument begins with ``-``, unless the words of the sandbox end with ``--``, or their
      last program accepts no options after its operands (chroot, docker, env, nerdctl, nice,
      podman, sandbox-exec, sudo).

    The library adds ``--`` for bwrap, firejail, nsjail, runuser, setpriv, systemd-run and unshare,
    unless ``--`` is among the words. Variables of an entry do not reach the sandbox itself: a
    ``/bin/sh`` inside the sandbox sets the variables for the command.

    Args:
        path: The path of the file, with ``~`` for the home directory. The JSON may have comments
            and trailing commas.
        approve: Asks a person about a server that needs approval. It is called when the server is
            first used, on the thread that uses the server. An approval is stored under a digest of
            the entry.
        trust: Whether to trust the file, for scripts: no approval is needed, and none is stored.
        variables: The values of ``${VAR}`` and ``${env:VAR}``; by default the environment.
        inputs: The values of ``${input:...}`` by id (VS Code).
        confine: A sandbox through which every command of the file is started: a program and its
            arguments. Write absolute paths, because the sandbox is started in the directory that an
            entry names.
        approvals: The file that stores approvals; by default one in the user's state directory. Do
            not name a file in a project: the project could bring its own approvals.

    Raises:
        ServersFileError: The file cannot be read, or names no servers.
        UsageError: An argument is invalid.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"path must be the path of a file, not {kind_of(path)}")
    file = Path(os.path.abspath(Path(path).expanduser()))
    if not isinstance(trust, bool):
        raise UsageError(f"trust must be True or False, not {trust!r}")
    if isinstance(confine, str) or not all(isinstance(word, str) for word in confine):
        raise UsageError(f"confine must be a list of strings, not {confine!r}")
    check_mapping(variables, "variables")
    check_mapping(inputs, "inputs")
    if approve is not None:
        check_callable(approve, "approve", ("review",))
    content = _content(file)
    rules = FileRules(
        file,
        guarded=not flag(trust, "trust") and not is_own(file),
        values=PlaceholderValues(project_folder(file), variables, dict(inputs or {})),
        approved=ApprovedServers(None if approvals is None else Path(approvals)),
        approve=approve,
        confine=sandbox_line(confine),
    )
    return ServersFile(_servers(content, file), _inputs(content, file), rules)


def known_files(project: str | os.PathLike[str] | None = None) -> list[EditorFile]:
    """List the existing files of Claude Desktop, VS Code and Cursor, without reading them.

    Files of the person come before files of the project.

    Args:
        project: The directory of a project; by default the current directory.
    """
    home = Path.home()
    settings = settings_folder(home)
    folder = Path.cwd() if project is None else Path(os.path.abspath(project))
    places = (
        EditorFile("Claude Desktop", "user", settings / "Claude" / "claude_desktop_config.json"),
        EditorFile("VS Code", "user", settings / "Code" / "User" / "mcp.json"),
        EditorFile("Cursor", "user", home / ".cursor" / "mcp.json"),
        # Last: in this order, a program finds the person's servers before those of the project.
        EditorFile("VS Code", "project", folder / ".vscode" / "mcp.json"),
        EditorFile("Cursor", "project", folder / ".cursor" / "mcp.json"),
    )
    found: dict[Path, EditorFile] = {}
    for place in places:  # in the home directory, the user's and the project's file are the same
        if place.path.is_file():
            found.setdefault(place.path, place)
    return list(found.values())


def _content(file: Path) -> dict[str, Any]:
    try:
        with open(file, "rb") as opened:
            return read_object(opened, MAX_BYTES, parse)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise _error(file, f"the file cannot be read: {why}") from error
    except ValueError as error:
        raise _error(file, f"the file {error}") from error


def _servers(content: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the servers in a file: the value of `mcpServers` or `servers`."""
    settings = content.get("mcp")  # the settings of VS Code as a whole
    if isinstance(settings, dict) and "servers" in settings:
        content = settings
    keys = [key for key in ("mcpServers", "servers") if key in content]
    if len(keys) != 1:
        problem = "both mcpServers and servers" if keys else "neither mcpServers nor servers"
        close = [
            f": did you mean {name!r} instead of {visible(key)!r}?"
            for key in ([] if keys else comparable(content))
            for name in similar(key, ("mcpServers", "servers"), 1)
        ]
        raise _error(file, f"the file has {problem}{''.join(close[:1])}")
    servers = content[keys[0]]
    if not isinstance(servers, dict):
        raise _error(file, f"{keys[0]} must be an object that maps names to servers", keys[0])
    if "" in servers:
        raise _error(file, f"a server in {keys[0]} has no name", keys[0])
    return servers


def _inputs(content: dict[str, Any], file: Path) -> dict[str, str]:
    stated = content.get("inputs", [])
    if not isinstance(stated, list):
        raise _error(file, "inputs must be a list", "inputs")
    found: dict[str, str] = {}
    for position, item in enumerate(stated):
        if not isinstance(item, dict) or not isinstance(item.get("id"), str):
            raise _error(file, f"inputs[{position}] has no id", f"inputs[{position}]")
        found[item["id"]] = str(item.get("description", ""))
    return found


def _error(file: Path, message: str, key: str | None = None) -> ServersFileError:
    return ServersFileError(message, file=str(file), key=key)
