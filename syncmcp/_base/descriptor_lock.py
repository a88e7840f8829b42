"""A lock on an open file, which threads and processes share.

The system releases it when the file is closed, or its process ends, however it ends.
"""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import errno
    import msvcrt

    # Windows keeps others from reading what is locked: so it is a byte that no file of ours has.
    _PLACE = 0x7FFF_FFFE

    # Somebody else has it.
    _TAKEN = (errno.EACCES, errno.EDEADLK)

    def take(descriptor: int) -> bool:
        """Lock an open file, if nobody else has; returns at once.

        Args:
            descriptor: Of a file that is open for writing. Its position stays.

        Returns:
            Whether it is locked now.

        Raises:
            OSError: It cannot be locked at all.
        """
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)
        return True

else:
    import fcntl

    def take(descriptor: int) -> bool:
        """Lock an open file, if nobody else has; returns at once.

        Args:
            descriptor: Of a file that is open for writing. Its position stays.

        Returns:
            Whether it is locked now.

        Raises:
            OSError: It cannot be locked at all.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
