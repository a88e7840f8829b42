"""A file that holds one JSON object, read up to a size."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, BinaryIO


def read_object(
    file: BinaryIO, longest: int, parse: Callable[[str], Any] = json.loads
) -> dict[str, Any]:
    """The JSON object that a file holds, in UTF-8.

    Args:
        file: The file, open for reading.
        longest: The most bytes that it may have.
        parse: Makes a value of its text, and raises `ValueError` if it is none.

    Raises:
        ValueError: It holds something else; the text says what, as "is no UTF-8".
        OSError: It cannot be read.
    """
    data = file.read(longest + 1)
    if len(data) > longest:
        raise ValueError(f"is longer than {longest:,} bytes")
    try:
        content = parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError("is no UTF-8") from error
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("is no JSON: it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - of the value of a file
    return content
