"""What `--output` saves, and where: the name is the caller's, and numbered where there is more."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncmcp.cli.failures import CommandError
from syncmcp.saving import save
from syncmcp.types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent

if TYPE_CHECKING:
    from syncmcp.saving import Savable

__all__ = ["Force", "check_place", "is_medium", "save_all"]

Force = Annotated[
    bool, typer.Option("--force", "-f", help="Let --output replace a file that is there.")
]


def is_medium(block: Any) -> bool:
    """Whether a block of a tool's result has bytes: an image, a sound, a file that is no text."""
    if isinstance(block, EmbeddedResource):
        return isinstance(block.resource, BlobResourceContents)
    return isinstance(block, (ImageContent, AudioContent))


def check_place(path: Path, *, force: bool) -> None:
    """Make sure that a file could be saved there, before anything is asked of a server.

    Raises:
        CommandError: It could not.
    """
    try:
        if path.is_dir():
            raise CommandError(f"{str(path)!r} is a directory", hint="name a file in it")
        if not path.parent.is_dir():
            raise CommandError(f"{str(path)!r} cannot be written: there is no such directory")
        if not force and os.path.lexists(path):
            raise _taken(path)
        if path.exists() and not path.is_file():
            raise CommandError(f"{str(path)!r} is no file, but a device for example")
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def save_all(contents: Sequence[Savable], path: Path, *, force: bool) -> list[Path]:
    """Save one thing as `path`, and others beside it as ``name-2.png`` and so on.

    Nothing that a server says becomes part of a name.

    Raises:
        CommandError: A file is there already, and is not to be replaced, or cannot be written.
        LimitExceeded: One is longer than `syncmcp.saving.MAX_BYTES`.
        InvalidOutput: One is not base64.
    """
    places = [place for place, _ in zip(_names(path), contents, strict=False)]
    for place in places:
        check_place(place, force=force)
    for place, content in zip(places, contents, strict=True):
        try:
            save(content, place, overwrite=force)
        except FileExistsError as error:
            raise _taken(place) from error
        except OSError as error:
            raise CommandError(f"{str(place)!r} cannot be written: {error.strerror}") from error
    return places


def _names(path: Path) -> Iterator[Path]:
    yield path
    number = 2
    while True:
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1


def _taken(path: Path) -> CommandError:
    return CommandError(f"{str(path)!r} is there already", hint="--force replaces it")
