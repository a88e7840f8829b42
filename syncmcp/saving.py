"""Saves what a server gave to a file.

The caller names the file. Nothing of what the server says (URI, name, type) becomes part of a path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, Union

from syncmcp._base.checks import whole_number
from syncmcp.errors import LimitExceeded, UsageError

if TYPE_CHECKING:
    from syncmcp.types import (
        AudioContent,
        BlobResourceContents,
        EmbeddedResource,
        ImageContent,
        ReadResourceResult,
        TextResourceContents,
    )

__all__ = ["Savable", "save"]

MAX_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that are saved, unless the caller allows more."""

Savable: TypeAlias = Union[
    "ReadResourceResult",
    "TextResourceContents",
    "BlobResourceContents",
    "EmbeddedResource",
    "ImageContent",
    "AudioContent",
]
"""What has bytes: a resource of one content, one content of it, and media in a tool's result."""

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def save(
    content: Savable,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Path:
    """Save the bytes of a resource or a medium to a file; texts in UTF-8.

    The file appears as a whole or not at all: it is written under another name beside the final
    one, which must be in a directory that is there.

    Args:
        content: The result of `Client.read_resource`, if it has one content; or one content of it,
            an embedded resource, an image or a sound.
        path: The file.
        overwrite: Replace a file that is there already; a symbolic link itself is replaced, too.
        max_bytes: The most bytes to save.

    Returns:
        The path.

    Raises:
        LimitExceeded: There are more bytes; nothing was written.
        InvalidOutput: A result has not just one content, or a content is not base64.
        FileExistsError: There is such a file, and it is not to be replaced.
        OSError: The file cannot be written.
    """
    limit = whole_number(max_bytes, "max_bytes")
    data = _bytes(content, limit)
    target = Path(path)
    if not overwrite and os.path.lexists(target):
        raise _exists(target)
    new = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with open(os.open(new, _CREATE, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(new, target)
        else:
            _name(new, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
    return target


def _bytes(content: Savable, limit: int) -> bytes:
    from syncmcp import types

    if isinstance(content, types.ReadResourceResult):
        content = types.single_content(content)
    if isinstance(content, types.EmbeddedResource):
        content = content.resource
    if isinstance(content, types.TextResourceContents):
        least = len(content.text)
    elif isinstance(content, types.BlobResourceContents):
        least = _least(content.blob)
    elif isinstance(content, (types.ImageContent, types.AudioContent)):
        least = _least(content.data)
    else:
        raise UsageError(f"only resources, images and sounds can be saved, not {content!r}")
    data = b"" if least > limit else content.decode()
    size = max(least, len(data))
    if size > limit:
        raise LimitExceeded(f"more than {limit} bytes (option max_bytes)", delivery=None)
    return data


def _least(encoded: str) -> int:
    """How many bytes base64 holds at least, without decoding it."""
    return len(encoded) // 4 * 3 - 2


def _name(new: Path, target: Path) -> None:
    """Give the new file its name, unless somebody else was faster."""
    try:
        os.link(new, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:  # a file system without hard links: the name is taken, then filled
        os.close(os.open(target, _CREATE, 0o666))
        try:
            os.replace(new, target)
        except BaseException:
            target.unlink()
            raise


def _exists(target: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
