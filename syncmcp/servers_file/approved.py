"""The memory of which servers, named by files, a person has approved."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from syncmcp._base.files import read_object
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import RequestTimeout
from syncmcp.servers_file.review import ServerReview, ServersFileError

_FORMAT: Final = "syncmcp-approved-servers"
_VERSION: Final = 1

_NO_APPROVALS: Final = "holds no approvals that can be read; move it away to begin anew"

# A longer file, in bytes, is something else.
_LONGEST: Final = 4 * 1024 * 1024

# To change the file takes milliseconds.
_LOCK_SECONDS: Final = 10.0

# On Windows, a file that somebody has open cannot be replaced.
_READERS_BLOCK: Final = sys.platform == "win32"

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def default_path() -> Path:
    """Where approvals are kept unless a program says otherwise: in the user's state folder."""
    home = Path.home()
    if sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = home / "Library" / "Application Support"
    else:
        stated = os.environ.get("XDG_STATE_HOME", "")
        # By its specification a relative path is to be ignored.
        folder = Path(stated) if os.path.isabs(stated) else home / ".local" / "state"
    return folder / "syncmcp" / "approved-servers.json"


class ApprovedServers:
    """One JSON file of mode 0600, which threads and processes may share.

    Args:
        path: The file; its directory is made, with mode 0700, if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __contains__(self, digest: str) -> bool:
        """Whether this was approved.

        Raises:
            ServersFileError: The file cannot be read, or somebody else may have written it.
        """
        try:
            if not self.path.exists():
                return False
            with self._locked() if _READERS_BLOCK else contextlib.nullcontext():
                return digest in self._read()
        except OSError as error:
            raise self._unusable(error) from error

    def add(self, review: ServerReview) -> None:
        """Remember that this was approved. It is on the disk when this returns.

        Raises:
            ServersFileError: The file cannot be used.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                approved = self._read()
                approved[review.digest] = {
                    "server": review.server,
                    "file": str(review.file),
                    "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                }
                self._write(approved)
        except OSError as error:
            raise self._unusable(error) from error

    def remove(self, digest: str) -> None:
        """Forget it: the next who wants that server has to ask again.

        Raises:
            ServersFileError: The file cannot be used.
        """
        try:
            if not self.path.exists():
                return
            with self._locked():
                approved = self._read()
                if approved.pop(digest, None) is not None:
                    self._write(approved)
        except OSError as error:
            raise self._unusable(error) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        from syncmcp._concurrency.file_lock import FileLock

        lock = FileLock(self.path.with_name(self.path.name + ".lock"))
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(lock.take(Deadline(_LOCK_SECONDS)))
            except RequestTimeout as error:
                raise self._error("is locked by another process") from error
            yield

    def _read(self) -> dict[str, Any]:
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return {}
        with open(descriptor, "rb") as file:
            self._check_owner(os.fstat(descriptor))
            try:
                content = read_object(file, _LONGEST)
            except ValueError as error:
                raise self._error(_NO_APPROVALS) from error
        approved = content.get("approved")
        stated = (content.get("format"), content.get("version"))
        if stated != (_FORMAT, _VERSION) or not isinstance(approved, dict):
            raise self._error(_NO_APPROVALS)
        return approved

    def _check_owner(self, status: os.stat_result) -> None:
        # Windows has no modes: there the permissions of the directory decide.
        if sys.platform == "win32":
            return
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or mode & 0o077:
            raise self._error(
                f"is no file that its owner alone can use (mode {mode:04o}), and may hold what"
                " somebody else approved; look into it, then move it away or chmod 600 it"
            )

    def _write(self, approved: dict[str, Any]) -> None:
        content = {"format": _FORMAT, "version": _VERSION, "approved": approved}
        # One name is enough: nobody else writes now.
        new = self.path.with_name(self.path.name + ".new")
        new.unlink(missing_ok=True)
        try:
            with open(os.open(new, _CREATE, 0o600), "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def _unusable(self, error: OSError) -> ServersFileError:
        reason = error.strerror or type(error).__name__
        return self._error(f"cannot be used for approvals: {reason}")

    def _error(self, message: str) -> ServersFileError:
        return ServersFileError(message, file=str(self.path))
