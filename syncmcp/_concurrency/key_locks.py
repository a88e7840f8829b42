"""One lock for each key of a store that processes share."""

from __future__ import annotations

import hashlib
import stat
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from syncmcp._base.private import check_owner, reason, unusable
from syncmcp._concurrency.file_lock import FileLock
from syncmcp._concurrency.turns import Wait
from syncmcp.errors import RequestTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from syncmcp._concurrency.timing import Deadline

__all__ = ["KeyLocks"]


class KeyLocks:
    """A directory of lock files, one for each key, made when it is needed first.

    Args:
        directory: Where they are. It has to belong to the user alone.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, FileLock] = {}

    @contextmanager
    def take(
        self, key: str | None, deadline: Deadline, wait: Wait = threading.Event.wait
    ) -> Iterator[None]:
        """Lock `key`, or what `None` stands for, for the length of a `with`.

        Raises:
            RequestTimeout: Others had it until `deadline`.
            AuthError: The lock file cannot be used.
        """
        name = "all" if key is None else hashlib.sha256(key.encode()).hexdigest()[:32]
        lock = self._known.setdefault(name, FileLock(self._directory / f"{name}.lock"))
        with ExitStack() as held:
            try:
                self._make_directory()
                held.enter_context(lock.take(deadline, wait))
            except RequestTimeout:
                raise
            except OSError as error:
                raise unusable(
                    f"{self._directory} cannot be used for locks: {reason(error)}"
                ) from error
            yield

    def _make_directory(self) -> None:
        self._directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        check_owner(self._directory, self._directory.stat(), stat.S_ISDIR)
