"""Saving of content from a server to a file.

The program names the file. No text from the server (URI, name, MIME type) becomes part of a path.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TypeAlias, Union

from syncmcp import types
from syncmcp._base.checks import flag, whole_number
from syncmcp._concurrency.files import write_atomically
from syncmcp.errors import LimitExceeded, UsageError

__all__ = ["Savable", "save"]

MAX_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that are saved by default."""

Savable: TypeAlias = Union[
    "types.ReadResourceResult",
    "types.TextResourceContents",
    "types.BlobResourceContents",
    "types.EmbeddedResource",
    "types.ImageContent",
    "types.AudioContent",
]
"""Types that can be saved: resources with one content, single contents, images and audio."""


def save(
    content: Savable,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Path:
    """Save the bytes of a resource, an image or audio to a file; text is saved in UTF-8.

    >>> from syncmcp.saving import save
    >>> save(client.read_resource("demo://pixel.png"), "pixel.png").stat().st_size
    70

    The file is written atomically: under a temporary name in the same directory, and then renamed.

    Args:
        content: The result of `Client.read_resource`, if it has one content; or a single content,
            an embedded resource, an image or audio.
        path: The file. Its directory has to exist.
        overwrite: Whether to replace an existing file, whose permissions are kept (not on Windows).
            A symbolic link is replaced, not its target.
        max_bytes: The maximum number of bytes to save.

    Returns:
        The path.

    Raises:
        UsageError: `content` is of another type, `path` names no file, or `max_bytes` is not a
            whole number of at least 1.
        LimitExceeded: There are more bytes; nothing was written.
        InvalidOutput: A result does not have exactly one content, or the content is invalid
            base64.
        FileExistsError: The file exists, and `overwrite` is false.
        OSError: The file cannot be written.
    """
    flag(overwrite, "overwrite")
    limit = whole_number(max_bytes, "max_bytes")
    data = _bytes(content, limit)
    target = Path(path)
    if not target.name or target.is_dir():
        raise UsageError(f"path names a directory, not a file: {str(path)!r}")
    try:
        write_atomically(target, data, mode=0o666, overwrite=overwrite, keep_mode=True)
    except OSError as error:  # its text names the temporary file
        hint = "; overwrite=True replaces it" if isinstance(error, FileExistsError) else ""
        raise OSError(error.errno, f"{error.strerror}{hint}", str(target)) from error
    return target


def _bytes(content: Savable, limit: int) -> bytes:
    if isinstance(content, types.ReadResourceResult):
        content = types.single_content(content)
    if isinstance(content, types.EmbeddedResource):
        content = content.resource
    if isinstance(content, types.TextResourceContents):
        minimum = len(content.text)
    elif isinstance(content, types.BlobResourceContents):
        minimum = len(content.blob) // 4 * 3 - 2  # the fewest bytes that it decodes to
    elif isinstance(content, (types.ImageContent, types.AudioContent)):
        minimum = len(content.data) // 4 * 3 - 2
    else:
        hint = ""
        if hasattr(content, "content"):
            hint = "; pass one resource, image or audio of its content, or write its text yourself"
        elif isinstance(content, types.TextContent):
            hint = "; write its text yourself"
        raise UsageError(f"only resources, images and audio can be saved, not {content!r}{hint}")
    data = b"" if minimum > limit else content.decode()
    size = max(minimum, len(data))
    if size > limit:
        raise LimitExceeded(
            f"the content has more than {limit} bytes (option max_bytes)", delivery=None
        )
    return data
