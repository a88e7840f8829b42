"""One server of a file: validation of its entry, approval, and conversion into a target."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from syncmcp._base.checks import kind_of
from syncmcp._base.numbers import is_number
from syncmcp._base.secrets import Secrets
from syncmcp._base.similar import comparable, similar
from syncmcp._base.text import visible
from syncmcp.config import Http, Stdio, check_url
from syncmcp.errors import Denied, UsageError
from syncmcp.servers_file.named_files import NamedFiles, named_files
from syncmcp.servers_file.review import (
    ApprovedServers,
    MissingValue,
    PlaceholderValues,
    ServerReview,
    ServersFileError,
)

Approve = Callable[[ServerReview], bool]
"""A function that asks a person about a server, on the thread that is about to use the server."""

MAX_DEPTH: Final = 64
"""The maximum number of levels of objects and lists in an entry."""

_logger = logging.getLogger(__name__)

_SCALARS: Final = (str, int, float, type(None))

_STDIO: Final = ("stdio",)
_HTTP: Final[Mapping[str, Literal["auto", "streamable", "sse"]]] = {
    "http": "auto",  # as in the editors, which fall back to HTTP+SSE
    "streamable-http": "streamable",
    "streamable_http": "streamable",
    "streamablehttp": "streamable",
    "sse": "sse",
}

_KEYS: Final = (
    *("command", "args", "env", "cwd", "url", "headers"),
    *("type", "transport", "timeout", "disabled", "envFile"),
)

# Keys for other programs, such as `disabledTools`, are less similar to those above.
_MISSPELT: Final = 0.8

_REMEDY: Final = 'write a command as "command", not as "url"'


# The arguments of `named_files`.
_Names: TypeAlias = tuple[Path, Path, tuple[str, ...], Mapping[str, str], str | None]


class NotApproved(Denied):
    """A server that a guarded file names is not approved; it was neither started nor contacted.

    The error is also raised at a start if a file that the command names has changed since the
    approval.

    Attributes:
        review: The description of the server to approve.
    """

    review: ServerReview


@dataclass(frozen=True)
class FileRules:
    """The settings for all servers of a file. The servers of a `guarded` file need approval."""

    file: Path
    guarded: bool
    values: PlaceholderValues
    approved: ApprovedServers
    approve: Approve | None
    confine: tuple[str, ...]


class _ParsedEntry(NamedTuple):
    """The validated entry of a server, with unexpanded placeholders."""

    command: str | None
    args: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    url: str
    transport: Literal["auto", "streamable", "sse"]
    headers: dict[str, str]
    timeout: float | None


class ServerEntry:
    """One server of a file, which is a target for `syncmcp.connect`.

    Nothing is expanded, started or contacted before `target` is called. The constructor of `Client`
    calls `target`.

    Attributes:
        name: The server's name in the file.
        file: The path of the file.
        stated: The entry as in the file, unexpanded, including keys for other programs.
    """

    def __init__(self, name: str, stated: Any, rules: FileRules) -> None:
        self.name = name
        self.file = rules.file
        self.stated = stated
        self._rules = rules
        self._warn_of_misspelt_keys()

    @property
    def disabled(self) -> bool:
        """Whether the file disables the server."""
        return isinstance(self.stated, dict) and self.stated.get("disabled") is True

    @property
    def problem(self) -> ServersFileError | None:
        """The error of an invalid entry; `None` if the entry is valid as far as the file tells."""
        try:
            url = self._parse().url
            if url and "${" not in url:
                check_url(url, _REMEDY)
        except ServersFileError as error:
            return error
        except UsageError as error:
            return self._error(error.message)
        return None

    @property
    def options(self) -> dict[str, Any]:
        """The entry's options for `Client`: `name`, and `timeout` (in seconds) if it has one.

        Raises:
            ServersFileError: The entry is invalid.
        """
        timeout = self._parse().timeout
        return {"name": self.name, **({} if timeout is None else {"timeout": timeout})}

    @property
    def approved(self) -> bool:
        """Whether the server may be used without asking: it was approved, or needs no approval.

        Raises:
            ServersFileError: The entry is invalid, or the stored approvals cannot be read.
        """
        return not self._rules.guarded or self.review().digest in self._rules.approved

    def approve(self, review: ServerReview | None = None) -> None:
        """Store the approval of a person.

        The approval covers the server as `review` describes it, and nothing else.

        Args:
            review: The description that the person has seen; by default that of the server as it is
                now.

        Raises:
            ServersFileError: The entry is invalid, or the approval cannot be stored.
        """
        self._rules.approved.add(self.review() if review is None else review)

    def forget(self) -> None:
        """Discard all stored approvals of the server, also for earlier entries.

        The method is idempotent.

        Raises:
            ServersFileError: The stored approvals cannot be changed.
        """
        self._rules.approved.remove(self.name, self.file)

    def review(self) -> ServerReview:
        """Describe the server for the person who is to approve it.

        The method reads the files that the command of the server names.

        Raises:
            ServersFileError: The entry is invalid.
        """
        parsed = self._parse()
        command = () if parsed.command is None else (parsed.command, *parsed.args)
        files, folders = self._named_files(parsed) if command else NamedFiles({}, ())
        return ServerReview(
            self.name,
            self.file,
            "http" if parsed.command is None else "stdio",
            (*self._rules.confine, *command) if command else (),
            parsed.url or None,
            parsed.env,
            parsed.headers,
            parsed.cwd or str(self._rules.values.folder) if command else None,
            _digest([*self._facts(), files]),
            tuple(files),
            folders,
        )

    def target(self) -> Stdio | Http:
        """Make the target to connect to, with all placeholders expanded.

        The method may ask a person for approval.

        Raises:
            NotApproved: The server is not approved, or the person who was asked refused.
            ServersFileError: The entry is invalid or disabled, or uses a variable that is not set;
                or the stored approvals cannot be read or written.
        """
        if (problem := self.problem) is not None:  # no approval is requested for it
            raise problem
        parsed = self._parse()
        if self.disabled:
            raise self._error('the file disables this server, by "disabled": true')
        approved = self._approved_review() if self._rules.guarded else None
        made: Stdio | Http
        if parsed.command is None:
            made, shown, hidden = self._http(parsed), [parsed.url], parsed.headers
        else:
            made = self._stdio(parsed, parsed.command)
            shown, hidden = [parsed.command, *parsed.args, parsed.cwd or ""], parsed.env
            if approved is not None:
                made.before_start = _Unchanged(approved, self._names(parsed), self._facts())
        # A server may print a value on its own that is only a part of a word here.
        values = self._rules.values
        for text in shown:
            made.secrets.give_variables(values.secrets_in(text, defaults=False))
        for text in hidden.values():
            made.secrets.give_variables(values.secrets_in(text))
        return made

    def _approved_review(self) -> ServerReview:
        ask = self._rules.approve
        # Again after each approval: a named file may have changed while the person was reading.
        while (review := self.review()).digest not in self._rules.approved:
            if ask is None:
                unasked = "nobody approved this server, and the file that names it may have come"
                changed = "this server, or a file that it names, has changed since it was approved"
                before = self._rules.approved.digests(self.name, self.file)
                raise self._not_approved(
                    review,
                    changed if before else f"{unasked} with a project",
                    by="nobody",
                    hint="pass approve= or trust=True to servers_file.read",
                )
            if (answer := ask(review)) is not True:
                text = "this server was not approved"
                if not isinstance(answer, bool):
                    text += f": approve returned {kind_of(answer)}, not True or False"
                raise self._not_approved(review, text, by="person")
            self.approve(review)
        return review

    def _not_approved(self, review: ServerReview, message: str, **facts: Any) -> NotApproved:
        return NotApproved(message, server=self.name, kind="server", review=review, **facts)

    def _named_files(self, parsed: _ParsedEntry) -> NamedFiles:
        try:
            return named_files(*self._names(parsed))
        except OSError as error:  # the directory of the process is gone, for example
            reason = error.strerror or type(error).__name__
            raise self._error(f"cannot examine the files of the command: {reason}") from error
        except ValueError as error:
            raise self._error(f"the command has {error}") from error

    def _names(self, parsed: _ParsedEntry) -> _Names:
        values = self._rules.values
        return (
            self.file,
            values.folder,
            tuple(values.settle(word) for word in (parsed.command or "", *parsed.args)),
            {name: values.settle(value) for name, value in parsed.env.items()},
            None if parsed.cwd is None else values.settle(parsed.cwd),
        )

    def _facts(self) -> list[Any]:
        """Return what the digest covers besides the files that the command names."""
        # The path of the file is included: the same command in another directory may start another
        # program. So is the name, which `forget` looks for.
        return [str(self.file), self.name, self._rules.confine, self.stated]

    # -- validation of the entry -----------------------------------------------------------------

    def _parse(self) -> _ParsedEntry:
        stated = self.stated
        if not isinstance(stated, dict):
            raise self._error(f"a server must be an object, not {_json_kind(stated)}")
        self._check_values(stated)
        if not isinstance(disabled := stated.get("disabled", False), bool):
            raise self._must_be("true or false", disabled, "disabled")
        if stated.get("envFile") is not None:
            raise self._error("envFile is not supported: list the variables in env", "envFile")
        command, url = self._text("command"), self._text("url")
        if (command is None) == (url is None):
            both = "both a command and a url" if command else "neither a command nor a url"
            others = [] if command else [key for key in stated if stated[key] is not None]
            close = [
                f": did you mean {name!r} instead of {key!r}?"
                for key in others
                for name in similar(key, ("command", "url"), 1)
            ]
            raise self._error(f"the server has {both}{''.join(close[:1])}")
        kind = self._text("type") or self._text("transport")
        kinds = _STDIO if command is not None else tuple(_HTTP)
        if kind is not None and kind.lower() not in kinds:
            what = "command" if command is not None else "url"
            raise self._error(f"type cannot be {kind!r} for a server with a {what}", "type")
        args, env, cwd = self._list("args"), self._mapping("env"), self._text("cwd")
        headers = self._mapping("headers")
        if any(name.lower() == "host" for name in headers):
            raise self._error(
                "headers cannot have Host, which would name another server than the url", "headers"
            )
        if command is not None and cwd is None and _is_open_to_all(self._rules.values.folder):
            raise self._error(
                "cwd is required: the server would start in the directory of the file, where every"
                " user of this computer can put code that the server loads",
                "cwd",
            )
        if command is not None and self._rules.confine:
            self._check_confined(command, args, env)
        return _ParsedEntry(
            command,
            args,
            env,
            cwd,
            url or "",
            "auto" if kind is None or command else _HTTP[kind.lower()],
            headers,
            self._timeout(),
        )

    def _warn_of_misspelt_keys(self) -> None:
        keys = self.stated if isinstance(self.stated, dict) else {}
        for key in comparable(key for key in keys if key not in _KEYS):
            for name in similar(key, _KEYS, 1, cutoff=_MISSPELT):
                if name not in keys:
                    file, shown = visible(str(self.file)), visible(key)
                    text = "%s [%s]: the key %r is ignored: did you mean %r?"
                    _logger.warning(text, file, visible(self.name), shown, name)

    def _check_values(self, stated: Any) -> None:
        """Refuse values that cannot be written as JSON again, also in keys for other programs."""
        level = [stated]
        for _ in range(MAX_DEPTH):
            if any(isinstance(value, float) and not math.isfinite(value) for value in level):
                raise self._error("the server has a number that is too large, or NaN")
            # The values in the values, level by level.
            inner = [value.values() if isinstance(value, dict) else value for value in level]
            level = [each for one in inner if not isinstance(one, _SCALARS) for each in one]
            if not level:
                return
        raise self._error("the server is nested too deeply")

    def _check_confined(self, command: str, args: Sequence[str], env: Mapping[str, str]) -> None:
        # `env` and `sudo` read NAME=value before the command as an assignment.
        if command.startswith("-") or "=" in command:
            raise self._error(
                "command begins with - or contains =: the program of confine= could read it as its"
                " own",
                "command",
            )
        # Many programs read their options anywhere in the line, up to a "--".
        if not _ends_own_options(self._rules.confine):
            for i, word in enumerate(args):
                if word.startswith("-"):
                    raise self._error(
                        f"args[{i}] begins with -: the program of confine= could read it as"
                        " its own, unless confine= ends with --",
                        f"args[{i}]",
                    )
        for name in env:
            if not _VARIABLE.fullmatch(name):  # the shell in the sandbox exports it
                raise self._error(
                    f"env.{name} has a name that cannot be passed into the sandbox of confine=",
                    f"env.{name}",
                )

    def _text(self, key: str) -> str | None:
        value = self.stated.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self._must_be("a non-empty string", value, key)
        return value

    def _list(self, key: str) -> tuple[str, ...]:
        value = self.stated.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self._must_be("a list of strings", value, key)
        for i, item in enumerate(value):
            if not isinstance(item, str):
                raise self._must_be("a string", item, f"{key}[{i}]")
        return tuple(value)

    def _mapping(self, key: str) -> dict[str, str]:
        value = self.stated.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._must_be("an object", value, key)
        found: dict[str, str] = {}
        for name, content in value.items():
            if isinstance(content, (int, float)) and not isinstance(content, bool):
                found[name] = str(content)
            elif isinstance(content, str):
                found[name] = content
            elif content is not None:  # null counts as missing
                raise self._must_be("a string or a number", content, f"{key}.{name}")
        return found

    def _timeout(self) -> float | None:
        value = self.stated.get("timeout")
        if value is None:
            return None
        if not is_number(value) or value <= 0:
            raise self._error("timeout must be a positive number of milliseconds", "timeout")
        return float(value) / 1000

    # -- conversion into a target ----------------------------------------------------------------

    def _stdio(self, parsed: _ParsedEntry, command: str) -> Stdio:
        words = [self._expand(command, "command")]
        words += [self._expand(word, f"args[{i}]") for i, word in enumerate(parsed.args)]
        env = {name: self._expand(value, f"env.{name}") for name, value in parsed.env.items()}
        # Not in the current directory, which may be that of a foreign project: interpreters and
        # package managers load code and settings from the directory that they start in.
        cwd = str(self._rules.values.folder)
        if parsed.cwd is not None:
            cwd = os.path.join(cwd, os.path.expanduser(self._expand(parsed.cwd, "cwd")))
        if not words[0]:
            raise self._error("command is empty once its placeholders are filled in", "command")
        words[0] = os.path.expanduser(words[0])
        if self._rules.confine:
            self._check_confined(words[0], words[1:], env)
            words, env = _passed_within(words, env)
        line = [*self._rules.confine, *words]
        try:
            return Stdio(line[0], *line[1:], env=env, cwd=cwd)
        except ValueError as error:
            raise self._error(_message(error)) from error

    def _http(self, parsed: _ParsedEntry) -> Http:
        url = self._expand(parsed.url, "url")
        headers = {
            name: self._expand(value, f"headers.{name}") for name, value in parsed.headers.items()
        }
        try:
            check_url(url, _REMEDY)
            return Http(url, transport=parsed.transport, headers=headers or None)
        except ValueError as error:
            # Without the cause: both quote the URL, with the values of placeholders in it.
            secrets = Secrets()
            secrets.give_variables(self._rules.values.secrets_in(parsed.url))
            raise self._error(secrets.redact(_message(error))) from None

    def _expand(self, text: str, key: str) -> str:
        try:
            return self._rules.values.expand(text)
        except MissingValue as error:
            raise self._error(f"in {key}, {error}", key) from error

    def _error(self, message: str, key: str | None = None) -> ServersFileError:
        return ServersFileError(message, file=str(self.file), server=self.name, key=key)

    def _must_be(self, what: str, value: object, key: str) -> ServersFileError:
        return self._error(f"{key} must be {what}, not {_json_kind(value)}", key)

    def __repr__(self) -> str:
        return f"<ServerEntry {self.name!r} of {str(self.file)!r}>"


def _json_kind(value: object) -> str:
    """Return the JSON type of a value, for an error: the value itself may be secret."""
    if value == "":
        return "an empty one"
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else kinds.get(type(value), "a number")


def _is_open_to_all(folder: Path) -> bool:
    """Return whether a directory is like ``/tmp``: all may create files, but not change others'."""
    try:
        mode = folder.stat().st_mode
    except OSError:  # the start will report it
        return False
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


@dataclass(frozen=True)
class _Unchanged:
    """Checks before each start that the files that a command names are still as approved.

    It can be pickled with the target. An entry may have an `approve` function, which cannot be
    pickled.
    """

    review: ServerReview
    names: _Names
    facts: list[Any]

    def __call__(self) -> None:
        if _digest([*self.facts, named_files(*self.names).digests]) != self.review.digest:
            raise NotApproved(
                "a file that the command names has changed since the approval",
                server=self.review.server,
                kind="server",
                by="nobody",
                review=self.review,
            )


def _digest(content: list[Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def resolve_entry(entry: ServerEntry, name: str | None) -> tuple[Stdio | Http, str, float | None]:
    """Return the target, name and `timeout` (in seconds) of an entry; see `target` for errors."""
    target = entry.target()
    return target, entry.name if name is None else name, entry._parse().timeout


def _message(error: ValueError) -> str:
    return error.message if isinstance(error, UsageError) else str(error)


# -- the program through which commands are started: `confine=` of `servers_file.read` -------------
#
# Words of a file must not become options of the sandbox, nor its variables change the sandbox.

# Programs that read "--" as the end of their own options.
_HAS_SEPARATOR: Final = (
    *("bwrap", "firejail", "nsjail", "runuser", "setpriv", "systemd-run", "unshare"),
)

# Programs that read no options after their first operand. `docker run IMAGE --` would start "--",
# and `sandbox-exec` does not know "--".
_READS_NO_MORE: Final = (
    *("chroot", "docker", "env", "nerdctl", "nice", "podman", "sandbox-exec", "sudo"),
)


# The prefix of a variable's name outside of the sandbox, to which it then means nothing.
_PREFIX: Final = "SYNCMCP_WITHIN_"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def sandbox_line(confine: Sequence[str]) -> tuple[str, ...]:
    """Return the words that come before the command of an entry.

    A program with a directory in its name becomes absolute: otherwise it would be looked up in the
    directory that the entry names. The separator ``--`` is added if the program has one, unless the
    separator is among the words.
    """
    if not confine:
        return ()
    program, *rest = confine
    if os.path.dirname(program):
        program = os.path.abspath(program)
    if PurePath(program).name in _HAS_SEPARATOR and "--" not in rest:
        rest.append("--")
    return (program, *rest)


def _ends_own_options(line: Sequence[str]) -> bool:
    """Return whether no program of a sandbox line reads a word after the line as its own option."""
    words = list(line)
    if "--" in words:  # another program may follow, as in `bwrap ... -- nice`
        words = words[len(words) - words[::-1].index("--") :]
    return not words or PurePath(words[0]).name.removesuffix(".exe") in _READS_NO_MORE


def _passed_within(
    command: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command to run in the sandbox, and the variables for starting the sandbox.

    A variable of an entry could change the sandbox itself (``LD_PRELOAD``, ``PATH``). So it is
    passed under another name, and a shell in the sandbox restores the name. Its value is in no
    command line, which other users could read. If the sandbox passes no variables on, the start
    fails.
    """
    if not env:
        return list(command), {}
    script = "".join(
        f'export {name}="${{{_PREFIX}{name}?}}"; unset {_PREFIX}{name}; ' for name in env
    )
    words = ["/bin/sh", "-c", f'{script}exec "$@"', "sh", *command]
    return words, {f"{_PREFIX}{name}": value for name, value in env.items()}
