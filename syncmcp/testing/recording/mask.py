"""Takes the secrets out of messages that are about to be written down."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from syncmcp._base.text import MASK, names_a_secret, redact

MASKED = re.compile(rf"{re.escape(MASK)}\d*")
"""What stands in the place of a secret: the mask, and a number that tells secrets apart."""

# Members whose values are words of the protocol or of JSON Schema. A variable of the environment
# may well be called the same, and a message without them would be none.
_WORDS = frozenset(
    (
        "action",
        "jsonrpc",
        "level",
        "method",
        "mimeType",
        "protocolVersion",
        "resultType",
        "role",
        "stopReason",
        "type",
    )
)


class Masks:
    """Replaces secrets, each by a mask of its own, the same one wherever it occurs.

    So a cursor that comes back can still be told from another one. Not to be used by several
    threads at once.

    Args:
        secrets: Values that are secret wherever they occur, names of members included.
        more: Given each text; returns it with ``***`` for what else is a secret in it.
    """

    def __init__(
        self, secrets: Iterable[str] = (), more: Callable[[str], str] | None = None
    ) -> None:
        self._secrets = frozenset(secrets)
        self._more = more
        self._known = set(self._secrets)
        self._numbers: dict[str, int] = {}

    def learn(self, secrets: Iterable[str]) -> None:
        """Note more values that are secret, except in the names of members."""
        self._known.update(secrets)

    def value(self, value: Any, member: str = "") -> Any:
        """Return a JSON value without its secrets; `member` is what it is called."""
        if isinstance(value, str):
            if member in _WORDS:
                return value
            return self._numbered(value, MASK) if self._is_secret(member) else self.text(value)
        if isinstance(value, dict):
            return {self._name(name): self.value(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, member) for item in value]
        return value

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        shown = redact(text, self._known)
        return self._numbered(text, shown if self._more is None else self._more(shown))

    def _is_secret(self, member: str) -> bool:
        return bool(member) and names_a_secret(member)

    def _name(self, name: str) -> str:
        return self._numbered(name, redact(name, self._secrets)) if self._secrets else name

    def _numbered(self, text: str, shown: str) -> str:
        if shown == text or not text:
            return text
        number = self._numbers.setdefault(text, len(self._numbers) + 1)
        return shown.replace(MASK, f"{MASK}{number}")
