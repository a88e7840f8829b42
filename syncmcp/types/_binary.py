"""Decoding of binary fields."""

from __future__ import annotations


def decode_base64(data: str, source: str) -> bytes:
    """Decode base64 strictly: nothing but its alphabet, with complete padding.

    Args:
        data: The encoded bytes.
        source: What holds them, for the error message.

    Raises:
        syncmcp.errors.InvalidOutput: If ``data`` is not base64.
    """
    import base64

    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        from syncmcp.errors import InvalidOutput

        raise InvalidOutput(f"the data of {source} is not base64: {error}") from error
