"""The review of a file's server before its use: placeholders, warnings, and stored approvals."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, Literal

from syncmcp._base.origin import split_url
from syncmcp._base.text import MASK, names_a_secret, redact, visible
from syncmcp._concurrency.files import SharedJson, UnusableFile, state_directory
from syncmcp.errors import UsageError
from syncmcp.handlers.links import host_warnings
from syncmcp.servers_file.dangers import command_warnings, is_telling


class ServersFileError(UsageError):
    """A servers file, one of its entries, or the file of approvals cannot be used.

    Attributes:
        file: The path of the file.
        server: The name of the server concerned, or `None`.
        key: The key concerned, such as ``env.TOKEN`` or ``args[0]``, or `None`.
    """

    file: str = ""
    key: str | None = None

    def _subject(self) -> str:
        return self.file


_PROJECT_FOLDERS: Final = (".vscode", ".cursor")


def project_folder(file: Path) -> Path:
    """Return the directory of the project to which a servers file belongs."""
    return file.parent.parent if file.parent.name in _PROJECT_FOLDERS else file.parent


# -- placeholders: ``${...}`` in an entry ---------------------------------------------------------

_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_KIND = re.compile(r"[A-Za-z][\w-]*:")
_INPUT, _ENV = "input:", "env:"


class MissingValue(ValueError):
    """A placeholder has no value; the message says why."""


@dataclass(frozen=True)
class PlaceholderValues:
    """The values of placeholders; `variables` are by default those of the environment."""

    folder: Path
    variables: Mapping[str, str] | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)

    def expand(self, text: str) -> str:
        """Return `text` with placeholders replaced, not recursively, or raise `MissingValue`."""
        return _PLACEHOLDER.sub(lambda match: self._value(match.group(1), match.group()), text)

    def secrets_in(self, text: str, *, defaults: bool = True) -> dict[str, str]:
        """Return the values of variables and inputs in `text`, by name, that may be secrets.

        Absolute paths are omitted, unless their name suggests a secret. Without `defaults`, values
        that the file shows as defaults are omitted, too.
        """
        found = {}
        for content in _PLACEHOLDER.findall(text):
            name, _, default = content.partition(":-")
            value = self._value(content, "")
            shown = os.path.isabs(value) or (value == default and not defaults)
            if content not in _FIXED and (names_a_secret(name) or not shown):
                found[name.removeprefix("env:")] = value
        return found

    def settle(self, text: str) -> str:
        """Return `text` with fixed placeholders replaced, and others by their defaults, if any."""
        return _PLACEHOLDER.sub(lambda match: self._settled(match.group(1), match.group()), text)

    def _settled(self, content: str, whole: str) -> str:
        fixed = self._fixed().get(content)
        if fixed is not None or not _named(content):
            return whole if fixed is None else fixed
        _, has_default, default = content.partition(":-")
        return default if has_default else whole

    def _value(self, content: str, whole: str) -> str:
        fixed = self._fixed().get(content)
        if fixed is not None:
            return fixed
        named = _named(content)
        if named is None:
            if _KIND.match(content):
                raise MissingValue(f"{whole} is an unsupported kind of placeholder")
            return whole  # syntax of a shell or of another program
        if named.startswith(_INPUT):
            name = named.removeprefix(_INPUT)
            value = self.inputs.get(name)
            if value is None:
                raise MissingValue(
                    f"the input {name!r} has no value: pass it in Python, inputs={{{name!r}: ...}},"
                    " or write ${env:NAME} in the file instead"
                )
            return value
        value = (os.environ if self.variables is None else self.variables).get(named)
        _, has_default, default = content.partition(":-")
        if has_default:
            return value or default  # as in a shell, an empty value counts as missing
        if value is None:
            raise MissingValue(f"the environment variable {named!r} is not set")
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
    """Return the names of the environment variables and inputs that `text` uses."""
    contents = (content for content in _PLACEHOLDER.findall(text) if content not in _FIXED)
    return list(dict.fromkeys(name for content in contents if (name := _named(content))))


def _named(content: str) -> str | None:
    """Return the variable, or the input with its prefix, that a placeholder names, if any."""
    if content.startswith(_INPUT):
        return content
    name = content.partition(":-")[0]
    if name.startswith(_ENV):
        return name.removeprefix(_ENV)
    return name if _NAME.fullmatch(name) else None


_FIXED = frozenset(PlaceholderValues(Path())._fixed())


# -- the review for a person ----------------------------------------------------------------------

# A word that may be the path of a file.
_PATH = re.compile(r"[/\\]|\.[A-Za-z]\w{0,5}$")

# The most characters of a command in which placeholders are replaced for the warnings.
_MOST_SETTLED = 16_000

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class ServerReview:
    """A server of a file as described in the file, with unexpanded placeholders.

    `str()` is a text for a person: the file, the whole command or URL, and the warnings.

    Attributes:
        server: The server's name in the file.
        file: The path of the file.
        kind: ``"stdio"`` if a program would be started, ``"http"`` if a URL would be contacted.
        command: The program and its arguments, after the sandbox command if there is one.
        url: The URL, or `None`.
        env: The environment variables that the program would get in addition to the usual ones.
        headers: The headers that would be sent with each request.
        cwd: The working directory of the program, as in the file. The default is the directory of
            the file, or the one above ``.vscode`` or ``.cursor``. A relative path is relative to
            the default.
        digest: The digest under which the approval is stored.
        files: The files of the project that the command names. Their contents are part of the
            digest.
        folders: The directories of the project that the command names. Of their contents, only
            `files` are part of the digest.
    """

    server: str
    file: Path
    kind: Literal["stdio", "http"]
    command: tuple[str, ...] = ()
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    digest: str = ""
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the environment variables and inputs whose values the server would get."""
        texts = (*self.command, self.url or "", self.cwd or "")
        texts += (*self.env.values(), *self.headers.values())
        found = (name for text in texts for name in variables_in(text))
        return tuple(dict.fromkeys(found))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Suspicious properties, one sentence each.

        A server without warnings may be malicious, too.
        """
        return tuple(self._command_warnings() if self.kind == "stdio" else self._url_warnings())

    def _command_warnings(self) -> list[str]:
        found = command_warnings(self.command, self.env)
        # A placeholder with a default could split a program's name.
        settled = [*self._settled()]
        if settled != [*self.command]:
            found = list(dict.fromkeys([*found, *command_warnings(settled, self.env)]))
        # Warnings quote no text of the entry, because it could look like text of this program.
        found += [
            f"The environment decides which file, if any, word {number} of the command names: you"
            " will not see changes to that file."
            for number, word in enumerate(self.command, 1)
            if (names := variables_in(word))
            and (number == 1 or _PATH.search(word) or not all(map(names_a_secret, names)))
        ]
        if variables_in(self.cwd or ""):
            found.append(
                "The environment decides which directory the server runs in: you will not see"
                " changes to"
                " the files there."
            )
        return found

    def _settled(self) -> Iterator[str]:
        values, left = PlaceholderValues(project_folder(self.file)), _MOST_SETTLED
        for word in self.command:
            yield values.settle(word[:left]) + word[left:]
            left = max(left - len(word), 0)

    def _url_warnings(self) -> list[str]:
        found = []
        try:
            parts = split_url(self.url or "")
            host = parts.hostname
        except ValueError:
            return ["The URL cannot be read."]
        if variables_in(self.url or ""):
            found.append("The environment decides where the URL leads.")
        if parts.scheme == "http" and host not in _LOOPBACK:
            found.append("Others on the network can read and change everything sent there.")
        if not variables_in(parts.netloc):
            found += host_warnings(f"[{host}]" if ":" in (host or "") else host or "")
        if parts.username is not None or parts.password is not None:
            found.append("The URL contains a user name or password.")
        return found

    def __str__(self) -> str:
        lines = [f"{visible(str(self.file))} names a server, {visible(self.server)}."]
        if self.kind == "stdio":
            lines.append("Using the server starts this program, with all of your rights:")
            lines.append(f"  {visible(shlex.join(self.command))}")
        else:
            lines.append("Using the server contacts this address:")
            lines.append(f"  {visible(self.url or '')}")
        if self.cwd is not None:
            lines.append(f"in {visible(self.cwd)}")
        lines += [f"with {_shown(name, value)}" for name, value in self.env.items()]
        # Secrets are masked on the screen.
        lines += [
            f"sending {visible(redact(f'{name}={value}'))}" for name, value in self.headers.items()
        ]
        if self.variables:
            lines.append(f"The server gets the values of: {visible(', '.join(self.variables))}.")
        lines += self._coverage() if self.kind == "stdio" else []
        lines += [f"Warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def _coverage(self) -> Iterator[str]:
        if self.files:
            files = visible(", ".join(self.files))
            yield f"The approval covers what these files hold now: {files}."
            yield (
                "Other files that the server loads or fetches may change later without a new "
                "prompt."
            )
        else:
            yield (
                "The approval does not cover the project's files: their code may change without a "
                "new prompt."
            )
        if self.folders:
            folders = "a directory" if len(self.folders) == 1 else "directories"
            yield (
                f"The command names {folders} of the project. The approval does not cover the"
                " other files there: "
                f"{visible(', '.join(self.folders))}."
            )

    def __repr__(self) -> str:  # other attributes may contain secrets
        return f"ServerReview({self.server!r}, {str(self.file)!r})"


# A secret is one word. Words of letters that are joined by dots or slashes are no secret: they may
# name code, which a person has to see.
_OPAQUE = re.compile(r"(?![A-Za-z_-]+(?:[./][A-Za-z_-]+)+\Z)[A-Za-z0-9_][A-Za-z0-9_.~+/=%-]*")
_PASSWORD = re.compile(r"(?<=://)([A-Za-z0-9_.~%-]*):[A-Za-z0-9_.~%+-]+(?=@)")
_MASKED_PASSWORD = rf"\1:{MASK}"


def _shown(variable: str, value: str) -> str:
    """Return a variable as text for a person, and mask only what is certainly a secret."""
    if is_telling(variable):
        return visible(f"{variable}={value}")
    masked = names_a_secret(variable) and _OPAQUE.fullmatch(value)
    return visible(f"{variable}={MASK if masked else _PASSWORD.sub(_MASKED_PASSWORD, value)}")


# -- the file of approvals ------------------------------------------------------------------------

# The largest file of approvals that is read, in bytes.
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024


class ApprovedServers:
    """The digests of approved servers in a private JSON file, shared by threads and processes.

    The default is ``approved-servers.json`` in the user's state directory. The directory is
    created, with mode 0700, if it does not exist. All methods raise `ServersFileError` if the file
    cannot be used, or if another user could have written it.
    """

    def __init__(self, path: Path | None = None) -> None:
        path = state_directory() / "approved-servers.json" if path is None else path
        self._file = SharedJson(path, "syncmcp-approved-servers", "approved", _MAX_FILE_BYTES)

    def __contains__(self, digest: str) -> bool:
        with self._as_own_errors():
            return digest in self._file.read()

    def add(self, review: ServerReview) -> None:
        """Store an approval durably: the file is synced before the method returns."""
        with self._as_own_errors(), self._file.change() as approved:
            approved[review.digest] = {
                "server": review.server,
                "file": str(review.file),
                "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            }

    def digests(self, server: str, file: Path) -> list[str]:
        """Return the digests of all approvals of a server of a file, whatever they cover."""
        with self._as_own_errors():
            return _digests(self._file.read(), server, file)

    def remove(self, server: str, file: Path) -> None:
        """Discard all approvals of a server of a file, whatever they cover; idempotent."""
        if self.digests(server, file):
            with self._as_own_errors(), self._file.change() as approved:
                for digest in _digests(approved, server, file):
                    del approved[digest]

    @contextmanager
    def _as_own_errors(self) -> Iterator[None]:
        try:
            yield
        except UnusableFile as error:
            path = str(error.path)
            raise ServersFileError(f"the file {error.problem}", file=path) from error


def _digests(approved: Mapping[str, Any], server: str, file: Path) -> list[str]:
    wanted = (server, str(file))
    return [
        digest
        for digest, facts in approved.items()
        if (facts.get("server"), facts.get("file")) == wanted
    ]
