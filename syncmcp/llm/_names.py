"""Names that a provider accepts, in the place of names that it may not."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["NameRule", "Names"]

_DIGEST = 8


@dataclass(frozen=True)
class NameRule:
    """What a provider accepts as a name.

    Attributes:
        longest: In characters.
        others: Characters besides ASCII letters and digits, ``_`` and ``-``.
        begins_with_letter: Whether the first must be a letter or ``_``.
    """

    longest: int
    others: str = ""
    begins_with_letter: bool = False
    _foreign: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        foreign = re.compile(f"[^A-Za-z0-9_{re.escape(self.others)}-]")
        object.__setattr__(self, "_foreign", foreign)

    def accepts(self, name: str) -> bool:
        """Whether the provider takes this name as it is."""
        return (
            0 < len(name) <= self.longest
            and self._foreign.search(name) is None
            and not self._begins_badly(name)
        )

    def fitted(self, name: str, attempt: int = 0) -> str:
        """The name itself, or one for it: the same for the same name, and recognisable.

        Args:
            name: Any string.
            attempt: Another number gives another name, where the first is taken.
        """
        if not attempt and self.accepts(name):
            return name
        seed = f"{attempt}:{name}".encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(seed).hexdigest()[:_DIGEST]
        begin = self._foreign.sub("_", name[: self.longest])
        if self._begins_badly(begin):
            begin = f"_{begin}"
        return f"{begin[: self.longest - _DIGEST - 1]}_{digest}"

    def _begins_badly(self, name: str) -> bool:
        return self.begins_with_letter and not (name[:1].isalpha() or name[:1] == "_")


class Names:
    """A translation of names that can be undone.

    Args:
        rule: What is accepted.
        names: All names there are. A name that needs no change is never taken by another one,
            whatever a server calls its tools.
    """

    def __init__(self, rule: NameRule, names: Iterable[str]) -> None:
        self._rule = rule
        self._out: dict[str, str] = {}
        given = list(dict.fromkeys(names))
        self._back = {name: name for name in given if rule.accepts(name)}
        for name in given:
            if rule.accepts(name):
                continue
            attempt = 0
            while (fitted := rule.fitted(name, attempt)) in self._back:
                attempt += 1
            self._out[name] = fitted
            self._back[fitted] = name

    @property
    def changes(self) -> bool:
        """Whether any name is changed."""
        return bool(self._out)

    def out(self, name: str) -> str:
        """The name for the provider; also of one that was not announced."""
        return self._out.get(name) or self._rule.fitted(name)

    def changed(self, name: str) -> str:
        """The name for the provider if it was announced, else the name itself."""
        return self._out.get(name, name)

    def back(self, name: str) -> str:
        """The name that the provider's stands for; itself if it stands for none."""
        return self._back.get(name, name)
