"""Roots: the directories and files that a client shows to servers (spec: "Roots").

Roots tell a server where to work. They do not confine it: a server that ignores them can still
access whatever its process can. A host that accesses files on a server's behalf can check paths
with `contains`.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import quote, unquote_to_bytes

from syncmcp import types
from syncmcp._base.checks import check_callable, kind_of
from syncmcp._base.text import logger
from syncmcp._concurrency.limited_log import LimitedLog
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from syncmcp.handlers import RootsHandler
    from syncmcp.handlers.context import HandlerContext
    from syncmcp.types import Root

__all__ = [
    "RootLike",
    "RootSource",
    "RootStatus",
    "Roots",
    "contains",
    "path_of",
    "to_root",
    "uri_of",
]

RootLike: TypeAlias = "Root | str | os.PathLike[str]"
"""A root, or the path or ``file:`` URI of one."""

RootSource: TypeAlias = "Callable[[HandlerContext], Iterable[RootLike]]"
"""A function that returns roots, called on a handler thread each time a server requests them."""

Status = Literal["ok", "missing", "unreadable"]

_log = logger("syncmcp.handlers.roots")

# At least two letters: `C:` is a drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_AUTHORITY = re.compile(r"//([^/]*)")
_DRIVE = re.compile(r"/([A-Za-z]:)(?=/|$)")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HIDDEN_SEPARATOR = re.compile(r"%2f", re.IGNORECASE)


class RootStatus(NamedTuple):
    """A root and whether it can be accessed at this moment.

    Attributes:
        root: The root, as it is sent to servers.
        path: Its path on this computer.
        status: ``"ok"``, ``"missing"`` or ``"unreadable"``.
    """

    root: Root
    path: Path
    status: Status


class Roots:
    """The roots of a client, which may be changed and read at any time, from any thread.

    ::

        with syncmcp.connect(server, roots=["~/project"]) as client:
            client.roots.add("~/notes", name="Notes")

    Args:
        items: Roots, paths or ``file:`` URIs; all must exist and be readable.
        source: A function that returns more roots. It is called each time a server requests the
            roots.

    Raises:
        UsageError: An item is not a valid root (see `to_root`), or `source` is not callable or is
            a coroutine function.
    """

    def __init__(self, items: Iterable[RootLike] = (), *, source: RootSource | None = None) -> None:
        if source is not None:
            check_callable(source, "the source of roots", ("context",))
        self._source = source
        # Guards the two tables; never held during a callback, the source or file system access.
        self._lock = threading.RLock()
        self._roots = _by_uri(items)
        self._limited_log = LimitedLog()  # a server may request the roots any number of times
        self._callbacks: dict[object, Callable[[], object]] = {}

    def __repr__(self) -> str:
        with self._lock:
            named = list(self._roots)
        return f"<Roots {', '.join(map(repr, named))}>" if named else "<Roots>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has the same roots and source, but no callbacks.
        return restored, ([status.root for status in self.list()], self._source)

    def add(self, item: RootLike, name: str | None = None) -> Root:
        """Add a root, or replace the one with the same path.

        Args:
            item: A root, a path or a ``file:`` URI.
            name: A name to show to people.

        Raises:
            UsageError: `item` is not a valid root (see `to_root`).
        """
        root = to_root(item, name)
        with self._lock:
            changed = self._roots.get(root.uri) != root
            self._roots[root.uri] = root
        if changed:
            self._notify()
        return root

    def remove(self, item: RootLike) -> Root:
        """Remove a root and return it.

        The file or directory need not exist any more.

        Raises:
            UsageError: There is no such root.
        """
        uri = _canonical(item)
        with self._lock:
            root = self._roots.pop(uri, None)
        if root is None:
            raise UsageError(f"no such root: {uri}")
        self._notify()
        return root

    def replace(self, items: Iterable[RootLike]) -> None:
        """Replace all added roots by a new list, and keep the source.

        The replacement is atomic for other threads. Servers are notified once, and not at all if
        both lists are equal, including order and names.

        Args:
            items: Roots, paths or ``file:`` URIs; all must exist and be readable.

        Raises:
            UsageError: An item is not a valid root (see `to_root`); nothing is changed.
        """
        roots = _by_uri(items)  # outside of the lock, because it accesses the file system
        with self._lock:
            changed = [*self._roots.values()] != [*roots.values()]
            self._roots = roots
        if changed:
            self._notify()

    def current(self, context: HandlerContext) -> list[Root]:
        """The roots to send to a server now, including those of the source.

        A root that does not exist or is unreadable at the moment is left out, and logged. The
        source runs on the calling thread.

        Raises:
            UsageError: The source returned something that is not a valid root (see `to_root`).
        """
        roots: dict[str, Root] = {}
        found = self.list()
        if self._source is not None:
            found += map(_look_at, _checked_items(self._source(context)))
        for root, path, status in found:
            if status == "ok":
                roots[root.uri] = root
            else:
                text = "the server does not see a root that is %s: %s"
                self._limited_log.log(_log, logging.WARNING, text, status, path)
        return [*roots.values()]

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` after each change, on the thread that made the change.

        Exceptions of the callback are logged.

        Returns:
            A function that removes the callback. The function is idempotent.

        Raises:
            UsageError: `callback` is a coroutine function, or not callable.
        """
        check_callable(callback, "the callback of on_change", ())
        key = object()
        with self._lock:
            self._callbacks[key] = callback

        def unsubscribe() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return unsubscribe

    def _notify(self) -> None:
        with self._lock:
            callbacks = [*self._callbacks.values()]
        for callback in callbacks:
            try:
                callback()
            except Exception:
                _log.exception("a callback for changed roots failed")

    def list(self) -> list[RootStatus]:
        """Return the added roots in order, each with its status, without those of the source."""
        with self._lock:
            roots = [*self._roots.values()]
        found = ((root, Path(path_of(root.uri))) for root in roots)
        return [RootStatus(root, path, _status(path)) for root, path in found]


def _by_uri(items: Iterable[RootLike]) -> dict[str, Root]:
    """Return roots by URI; the later of two with one path takes the place of the earlier."""
    return {root.uri: root for root in map(to_root, _checked_items(items))}


def restored(items: list[Root], source: RootSource | None) -> Roots:
    """Return the roots of a pickle or a file, unchecked."""
    roots = Roots(source=source)
    # Not checked: restoring must not depend on the present state of the file system.
    roots._roots.update((root.uri, root) for root in items)
    return roots


def to_root(value: RootLike, name: str | None = None) -> Root:
    """Validate a root and normalize its URI.

    A path may be relative and begin with ``~``. A URI must be an absolute ``file:`` URI of this
    computer, without ``.`` and ``..`` segments, encoded separators, query and fragment.

    Args:
        value: A root, a path or a URI.
        name: A name to show to people; by default a `Root` keeps its own.

    Raises:
        UsageError: The value is not a root, a path or such a URI, or the path does not exist or is
            unreadable.
    """
    root, path, status = _look_at(value)
    if status != "ok":
        problem = "does not exist" if status == "missing" else f"is {status}"
        raise UsageError(f"the root {str(path)!r} {problem}")
    return root if name is None else root.model_copy(update={"name": name})


def _look_at(value: RootLike) -> RootStatus:
    uri = _canonical(value)
    path = Path(path_of(uri))
    root = (
        value.model_copy(update={"uri": uri})
        if isinstance(value, types.Root)
        else types.Root(uri=uri)
    )
    return RootStatus(root, path, _status(path))


def path_of(uri: str, flavour: type[PurePath] = PurePath) -> PurePath:
    """Return the path of a ``file:`` URI, without access to the file system.

    Args:
        uri: The URI of a root.
        flavour: `PurePosixPath` or `PureWindowsPath`; the one of this computer by default.

    Raises:
        UsageError: `uri` is not a valid URI of a root (see `to_root`).
    """
    scheme, colon, rest = uri.partition(":")
    if not colon or scheme.lower() != "file":
        raise UsageError(f"a root must be a file: URI, not {uri!r}")
    authority = _AUTHORITY.match(rest)
    if authority is not None:
        if authority[1].lower() not in ("", "localhost"):
            raise UsageError(f"a root must be on this computer, not on {authority[1]!r}: {uri!r}")
        rest = rest[authority.end() :]
    if not rest.startswith("/") or rest.startswith("//"):
        raise UsageError(f"a root must have an absolute path on this computer: {uri!r}")
    if "?" in rest or "#" in rest:
        raise UsageError(f"a root has no query or fragment; write %3F for ? and %23 for #: {uri!r}")
    if _BAD_ESCAPE.search(rest):
        raise UsageError(f"a % must be followed by two hexadecimal digits: {uri!r}")
    path = flavour()
    windows = isinstance(path, PureWindowsPath)
    raw = unquote_to_bytes(rest)
    if _HIDDEN_SEPARATOR.search(rest) or (windows and b"\\" in raw) or b"\0" in raw:
        raise UsageError(f"a root cannot have encoded separators or NUL in its path: {uri!r}")
    if not {b".", b".."}.isdisjoint(raw.split(b"/")):
        raise UsageError(f"a root cannot have '.' or '..' in its path: {uri!r}")
    text = raw.decode("utf-8", "surrogateescape")
    if windows:
        drive = _DRIVE.match(text)
        if drive is None:
            raise UsageError(f"a root must name its drive: {uri!r}")
        text = f"{drive[1]}/{text[drive.end() :].lstrip('/')}"
    return flavour(text)


def uri_of(path: PurePath) -> str:
    r"""Return the canonical ``file:`` URI of an absolute path, without access to the file system.

    Raises:
        UsageError: The path is relative, or a path of another computer (``\\host\share``).
    """
    drive, rest = "", path.as_posix()
    if isinstance(path, PureWindowsPath):
        found = _DRIVE.match(f"/{rest}")
        if found is None:
            raise UsageError(f"a root must name a drive of this computer: {str(path)!r}")
        drive, rest = f"/{found[1].upper()}", rest[len(found[1]) :]
    if not rest.startswith("/") or rest.startswith("//"):
        raise UsageError(f"a root must have an absolute path on this computer: {str(path)!r}")
    return f"file://{drive}{quote(rest.encode('utf-8', 'surrogateescape'))}"


def contains(roots: Iterable[RootLike] | Roots, path: str | os.PathLike[str]) -> bool:
    """Return whether a path is inside the roots, after all symbolic links are resolved.

    This is for hosts that restrict which files they access for a server. The links are resolved at
    the time of the call. An attacker who can change the links afterwards can still escape, so open
    a checked path without delay.

    Args:
        roots: Roots, paths or URIs, or a `Roots` (without the roots of its source).
        path: A path, which need not exist, or a ``file:`` URI; ``~`` is not expanded.

    Raises:
        UsageError: One of the roots is not valid.
    """
    items = [status.root for status in roots.list()] if isinstance(roots, Roots) else roots
    inside = [_resolved(path_of(_canonical(root))) for root in _checked_items(items)]
    try:
        text = os.fspath(path)
        real = _resolved(path_of(text) if _scheme(text) == "file" else text)
    except (UsageError, ValueError):  # not a path of this computer, or one with NUL in it
        return False
    return any(real.is_relative_to(root) for root in inside)


def _resolved(path: str | os.PathLike[str]) -> PurePath:
    return PurePath(os.path.normcase(os.path.realpath(path)))


def _canonical(value: object) -> str:
    """Return the canonical URI of a root, a path or a URI."""
    if isinstance(value, types.Root):
        path = path_of(value.uri)
    else:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(text, str):
            raise UsageError(f"a root must be a path, a file: URI or a Root, not {kind_of(text)}")
        path = _absolute(text) if _scheme(text) is None else path_of(text)
    return uri_of(path)


def _absolute(text: str) -> PurePath:
    if not text or "\0" in text:
        raise UsageError(f"{text!r} is not the path of a root")
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:  # no such user
        raise UsageError(f"cannot find the home directory in {text!r}") from error
    # After a symbolic link, `..` is the parent of the link's target.
    return Path(os.path.realpath(path)) if ".." in path.parts else path.absolute()


def _scheme(text: str) -> str | None:
    """Return the scheme if the text is a URI: `file:...` or anything with `://`; else `None`."""
    found = _SCHEME.match(text)
    if found is None:
        return None
    scheme = found[1].lower()
    return scheme if scheme == "file" or text.startswith("//", found.end()) else None


def _status(path: Path) -> Status:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:
        return "unreadable"
    needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    return "ok" if os.access(path, needed) else "unreadable"


def _checked_items(items: object) -> Iterator[RootLike]:
    """Iterate over roots; refuse a single root, though it may be iterable."""
    if isinstance(items, (str, bytes, os.PathLike, types.Root)) or not isinstance(items, Iterable):
        raise UsageError(f"roots must be a list, not {kind_of(items)}: write [...]")
    return iter(cast("Iterable[RootLike]", items))


def is_plain_list(handler: RootsHandler | None) -> bool:
    """Return whether a handler is that of a `Roots` without a source, and so runs no user code."""
    if getattr(handler, "__func__", None) is not Roots.current:
        return False
    roots: Roots = handler.__self__  # type: ignore[union-attr]
    return roots._source is None


def as_roots(given: Iterable[RootLike] | RootsHandler | Roots) -> Roots:
    """Convert the option `roots`; raise `UsageError` if it is invalid."""
    if isinstance(given, Roots):
        return given
    if callable(given):
        return Roots(source=given)
    return Roots(given)
