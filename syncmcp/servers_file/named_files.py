"""The files of a project: servers files, and the files that a server's command names.

An approval covers the contents of the files that a command names. Otherwise the next pull could
replace an approved program by another. An approval does not cover files that these files load, and
other files in named directories.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

from syncmcp._concurrency.files import only_user_writes

_PIECE: Final = 1024 * 1024  # bytes that are read at one time
MAX_BYTES: Final = 1024 * 1024 * 1024
"""The largest file, in bytes, whose content is hashed; larger ones count by size and `mtime`."""

MAX_WORDS: Final = 10_000
"""The most different words and parts of words that are looked up as files, in all directories."""

# The most characters of words and parts of words, with duplicates; each part adds `_WORD` to them.
_MAX_CHARACTERS: Final = 64 * 1024 * 1024
_WORD: Final = 16

_LONGEST_PATH: Final = 4096

# A path may be a part of a word: --require=PATH, @PATH, file://PATH, PATH:/in/container, and a text
# that a shell reads. On Windows a path has ":", too.
_SEPARATORS = (re.compile(r"[\s=,;|&<>()'\"`@]+"), re.compile(r"[\s=,;|&<>()'\"`@:]+"))
_SHORT_OPTIONS = re.compile(r"-\w{1,8}")  # -rFILE, -umMODULE
_ABOVE = re.compile(r".*[/\\]\.\.(?=[/\\]|\Z)", re.DOTALL)  # as far as the last ..
_AFTER_PATH = re.compile(r"[?#].*", re.DOTALL)  # the query and the fragment of a file: URL

# Interpreters find these files by a shorter name: without the ending, or by the directory.
_SCRIPT_ENDINGS = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
_ENDINGS = (
    *_SCRIPT_ENDINGS,
    *(f"/index{ending}" for ending in _SCRIPT_ENDINGS),
    *(".py", "/package.json", "/__main__.py", "/__init__.py"),
)
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")  # python -m a.b
# The members of a package.json that name files to run, and the bytes of it that are read at most.
_RUN: Final = ("main", "module", "bin", "scripts")
_LARGEST_PACKAGE: Final = 1024 * 1024


class NamedFiles(NamedTuple):
    """Digests of files by their paths, and directories whose other files are not covered."""

    digests: dict[str, str]
    folders: tuple[str, ...]


def named_files(
    file: Path,
    folder: Path,
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
) -> NamedFiles:
    """Return the files and directories of the project that a command names.

    A file counts if it is in the directory of the project, or in a work tree that contains the
    servers file. Either its path or the path after links are resolved decides. If the `PATH` has
    relative directories, a file in the working directory of this process, or in its work trees,
    also counts. A link that leads out of the project counts by its destination, not by the content
    there.

    Each word is looked up in the directory in which the program would be started, also with the
    endings that interpreters add. It is also looked up in each directory of the project that
    another word names (``--directory DIR``). The values of variables count as words; their `PATH`
    locates the program.

    Raises `OSError` if the directory of this process, or one above the servers file, cannot be
    accessed. Raises `ValueError` for more than `MAX_WORDS` words, counted for each directory.
    """
    base = os.path.join(folder, os.path.expanduser(cwd or "."))
    # All work trees: the marker of a nested one may have come with the project.
    own = {folder, *work_trees(file), *work_trees(Path(os.path.realpath(file)))}
    folders = _search_path(env)
    if not all(map(os.path.isabs, folders)):
        own |= _trees(Path(os.getcwd(), "file"))
    roots = ProjectFolders(own)
    words = _distinct(
        chain([] if cwd is None else [base], _candidates(command, env, folders, roots))
    )
    found = _Digests(roots)
    named: dict[str, None] = {}
    # Grows in the loop: a directory may be named relative to another one.
    places = [*dict.fromkeys((os.path.abspath(base), *_readings(base, roots)))]
    for number, place in enumerate(places, 1):
        if number * len(words) > MAX_WORDS:
            raise _too_many()
        for path in (path for word in words for path in _paths(place, word, roots)):
            if _is_a(path, stat.S_ISDIR) and roots.are_or_contain(path):
                named[path] = None
                if path not in places:
                    places.append(path)
            found.cover(path)
    return NamedFiles(dict(sorted(found.by_path.items())), tuple(sorted(named)))


class _Digests:
    """The digests of the files that a command names; a file with many names is read only once.

    Args:
        roots: The directories of the project.

    Attributes:
        by_path: The digests by the paths of the files.
    """

    def __init__(self, roots: ProjectFolders) -> None:
        self._roots = roots
        self._by_identity: dict[tuple[int, int], str] = {}
        self._packaged = 0  # the words of all package.json
        self.by_path: dict[str, str] = {}

    def cover(self, path: str) -> None:
        """Add the files that a program may find by a path, and files that a package.json names.

        Raises:
            ValueError: All package.json together have more words than `MAX_WORDS`.
        """
        paths = {path: None}  # grows
        while paths:
            path, _ = paths.popitem()
            for each in (path, *(path + ending for ending in _ENDINGS)):
                if each in self.by_path or not _is_a(each, stat.S_ISREG):
                    continue
                real = os.path.realpath(each)
                if self._roots.contain(real):
                    if _differs(each):
                        continue  # the server may find another file
                    self.by_path[each] = self._digest(real)
                    if os.path.basename(each) == "package.json":
                        folder = os.path.dirname(each)
                        words = _distinct(_packaged(real))
                        self._packaged += len(words)
                        if self._packaged > MAX_WORDS:
                            raise _too_many()
                        more = (_readings(os.path.join(folder, one), self._roots) for one in words)
                        paths |= dict.fromkeys(chain.from_iterable(more))
                elif self._roots.contain(each):
                    self.by_path[each] = f"link to {real}"

    def _digest(self, path: str) -> str:
        known = identity_of(path)
        if known is None:
            return _digest(path)
        if known not in self._by_identity:
            self._by_identity[known] = _digest(path)
        return self._by_identity[known]


def _packaged(path: str) -> Iterator[str]:
    """Yield the words of a package.json that may name files to run."""
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(_LARGEST_PACKAGE))
    except (OSError, ValueError, RecursionError):  # no interpreter could read it either
        return
    for name in _RUN if isinstance(content, dict) else ():
        stated = content.get(name)
        for text in stated.values() if isinstance(stated, dict) else (stated,):
            if isinstance(text, str):
                yield from (text, *_parts(text))


def _paths(folder: str, word: str, roots: ProjectFolders) -> Iterator[str]:
    """Yield the paths that a word may mean: a shell expands ``~``, other programs do not."""
    for name in dict.fromkeys((word, os.path.expanduser(word))):
        yield from _readings(os.path.join(folder, name), roots)


def _readings(path: str, roots: ProjectFolders) -> Iterator[str]:
    """Yield the files that a path may name, except those on other computers.

    Some programs remove a directory and the ``..`` after it from the path. The system follows a
    link first: then ``..`` is the directory above the link's target.
    """
    plain = os.path.abspath(path)
    if _is_elsewhere(plain, roots):
        return
    yield plain
    above = _ABOVE.match(path)
    # Looking these up could make an automounter contact a host; and no path has a NUL in it.
    if above is None or "\0" in path or any(host in path for host in _HOSTS):
        return
    if identity_of(above[0]) not in (None, identity_of(os.path.abspath(above[0]))):
        yield path


# Where an automounter mounts the files of the host that a path names.
_HOSTS: Final = ("/net/", "/Network/Servers/")


def _is_elsewhere(path: str, roots: ProjectFolders) -> bool:
    r"""Return whether a look at a path would contact another computer (``\\host\share``, Windows).

    Windows would send it the person's user name and a proof of the password, before any approval.
    """
    share = os.path.normcase(os.path.splitdrive(path)[0])
    if share.startswith(("\\\\", "//")):
        return share not in roots.drives
    return path.startswith(_HOSTS) and not roots.name(path)


def _trees(file: Path) -> set[Path]:
    """Return the directory of a file and the work trees that contain it, without the root ``/``."""
    folder = file.parent
    return {each for each in (folder, *work_trees(file)) if each != each.parent}


def _candidates(
    command: Sequence[str], env: Mapping[str, str], folders: Sequence[str], roots: ProjectFolders
) -> Iterator[str]:
    program, *args = command
    if os.path.dirname(program):
        yield program
    else:
        yield from _on_path(program, folders, roots)
    seen: set[str] = set()
    size = 0
    for text in (*args, *env.values()):
        for part in chain((text,), _parts(text)):
            size += len(part) + _WORD
            if size > _MAX_CHARACTERS:
                raise _too_many()
            if part in seen:
                continue
            seen.add(part)
            yield part
            yield unquote(_AFTER_PATH.sub("", part))
            letters = _SHORT_OPTIONS.match(part)
            options = range(2, letters.end() + 1) if letters else ()
            for word in (part, *(part[end:] for end in options)):
                yield word
                if _MODULE.fullmatch(word):
                    names = word.split(".")
                    yield "/".join(names)
                    # Imported first: its packages, or a module that has the name of one.
                    for package in accumulate(names[:-1], "{}/{}".format):
                        yield f"{package}/__init__.py"
                        yield f"{package}.py"


def _parts(text: str) -> Iterator[str]:
    """Yield the texts between separators, and all text after each: a path may contain some."""
    for separators in _SEPARATORS:
        start = 0
        for found in separators.finditer(text):
            yield text[start : found.start()]
            start = found.end()
            if len(text) - start <= _LONGEST_PATH:
                yield text[start:]
        yield text[start:]


def _distinct(words: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for word in filter(None, words):
        found[word] = None
        if len(found) > MAX_WORDS:
            raise _too_many()
    return list(found)


def _too_many() -> ValueError:
    return ValueError(f"more than {MAX_WORDS:,} words that could be files")


def _search_path(env: Mapping[str, str]) -> list[str]:
    """Return the directories of the server's `PATH`."""
    windows = os.name == "nt"
    given = [value for name, value in env.items() if (name.upper() if windows else name) == "PATH"]
    return (given or [os.environ.get("PATH", os.defpath)])[-1].split(os.pathsep)


def _on_path(program: str, folders: Sequence[str], roots: ProjectFolders) -> Iterator[str]:
    """Yield the absolute path of the program in the `PATH`, which this process looks up."""
    for folder in folders:
        path = os.path.join(os.getcwd(), folder)
        found = None if _is_elsewhere(path, roots) else shutil.which(program, path=path)
        if found is not None:
            yield os.path.abspath(found)
            return


def _is_a(path: str, is_kind: Callable[[int], bool]) -> bool:
    """Whether a path exists and is a file or a directory, as `is_kind` checks."""
    if len(path) > _LONGEST_PATH:
        return False
    try:
        return is_kind(os.stat(path).st_mode)
    except (OSError, ValueError):  # no program of this person could open it, or it has a NUL
        return False


# The most links that the system follows to a file.
_MOST_LINKS: Final = 40


def _differs(path: str) -> bool:
    """Whether a path leads through ``/proc``, such as ``/proc/self/cwd``, directly or by links.

    For the server, such a path means another file than for this process.
    """
    done, left, links = os.sep, path.split(os.sep), 0
    while left and links <= _MOST_LINKS:
        done = os.path.normpath(os.path.join(done, left.pop(0)))
        if done == "/proc":
            return True
        if os.path.islink(done):
            links += 1
            target = os.readlink(done)
            left = target.split(os.sep) + left
            done = os.sep if os.path.isabs(target) else os.path.dirname(done)
    return False


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > MAX_BYTES:
                return f"{status.st_size} bytes of {status.st_mtime_ns}"
            # No further than its size: a special file (/proc) may have no end.
            left = status.st_size
            while left > 0 and (piece := file.read(min(left, _PIECE))):
                digest.update(piece)
                left -= len(piece)
    except OSError:  # a program may be executable but not readable
        return _unread(path)
    return digest.hexdigest()


def _unread(path: str) -> str:
    """Return a substitute for the digest of a file that cannot be read."""
    try:
        status = os.stat(path)
    except OSError:  # it no longer exists
        return "unreadable"
    return f"unreadable: {status.st_size} bytes of {status.st_mtime_ns}"


# -- which servers files are a person's own; every other one may have come with a project ----------

MARKERS: Final = (
    ".git",
    ".hg",
    ".jj",
    ".svn",
    ".sl",
    ".bzr",
    ".pijul",
    "_darcs",
    ".fslckout",
    "_FOSSIL_",
    "CVS",
)
"""Names of directories or files that mark the root of a work tree of a version control system."""


def settings_folder(home: Path) -> Path:
    """Return the directory in which programs store the settings of the person."""
    # Not by `platformdirs`, which follows the XDG variables on macOS: editors do not.
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    xdg_config = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(xdg_config) if os.path.isabs(xdg_config) else home / ".config"


def is_own(file: Path) -> bool:
    """Return whether a file belongs to the person's settings, so that its servers need no approval.

    Such a file is directly in a settings directory of an editor or of syncmcp, in no work tree, and
    not writable by other users of the computer. Both its path and its path with all symbolic links
    resolved must fulfil this. The working directory of the process does not matter.
    """
    try:
        paths = (file, Path(os.path.realpath(file)))
        return all(
            _is_in_settings(path)
            and not work_trees(path)
            and only_user_writes(path)
            and only_user_writes(path.parent)
            for path in paths
        )
    except OSError:  # unknown, so the file is not trusted
        return False


def work_trees(path: Path) -> list[Path]:
    """Return the roots of the work trees around `path`.

    Raises `OSError` if a directory is inaccessible.
    """
    return [folder for folder in path.parents if any(_has(folder, name) for name in MARKERS)]


class ProjectFolders:
    """The directories of a project, compared by path, by resolved path, and by identity.

    A directory may have several names in a file system, for example if the case of letters is
    ignored.

    Args:
        folders: Absolute paths.

    Attributes:
        drives: On Windows, the drives and shares of the directories.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        names = {name for each in folders for name in (str(each), os.path.realpath(each))}
        self._paths = {os.path.normcase(name) for name in names}
        self._identities = {identity_of(name) for name in names} - {None}
        self.drives = {os.path.splitdrive(path)[0] for path in self._paths}

    def contain(self, path: str) -> bool:
        """Return whether a path is below one of the directories."""
        return self.name(path) or any(
            identity_of(str(parent)) in self._identities for parent in Path(path).parents
        )

    def name(self, path: str) -> bool:
        """Return whether a path is below one of the directories, by its text only."""
        return any(os.path.normcase(str(parent)) in self._paths for parent in Path(path).parents)

    def are_or_contain(self, folder: str) -> bool:
        """Return whether a directory is one of these, or below one, by path or resolved path."""
        return any(
            self.contain(os.path.join(name, "file")) for name in (folder, os.path.realpath(folder))
        )


def identity_of(path: str) -> tuple[int, int] | None:
    """Return a value that is equal for all names of a file or directory; `None` if unknown."""
    try:
        status = os.stat(path)
    except OSError:  # it does not exist, or is inaccessible
        return None
    return (status.st_dev, status.st_ino) if status.st_ino else None


def _is_in_settings(path: Path) -> bool:
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # the home directory is unknown
        return False
    settings = settings_folder(home)
    folders = (
        settings / "Claude",
        settings / "Code" / "User",
        settings / "syncmcp",
        home / ".cursor",
    )
    # By identity: a directory may have several names in a file system.
    return any(folder.is_dir() and os.path.samefile(path.parent, folder) for folder in folders)


def _has(folder: Path, name: str) -> bool:
    try:
        os.lstat(folder / name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
