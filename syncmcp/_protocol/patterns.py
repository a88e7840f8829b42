"""Patterns of JSON Schema (ECMA-262) for an engine that never backtracks.

The engine's time is linear in the text, and proportional to the size of the pattern with its
counted repetitions expanded. So the size is computed before the engine gets the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

from syncmcp.errors import UnsupportedSchema

MAX_PATTERN: Final = 2_000
"""The most characters of a pattern, and its largest size with repetitions expanded."""
MAX_PATTERNS: Final = 10_000
"""The largest total size of all patterns of a schema."""

# Size of a pattern times length of a text that the engine, in its slowest mode, matches in a step.
_PER_STEP: Final = 200

# The steps of compiling a pattern: for every pattern, by its size, and for each Unicode property.
_COMPILE: Final = 20
_PER_SIZE: Final = 10
_PER_PROPERTY: Final = 200

# The bytes of memory for a pattern: a constant, and by its size. Then the same for each byte of a
# searched text, at most the size of the engine's two caches.
_TAKEN: Final = 64 * 1024, 4 * 1024
_CACHED: Final = 256, 8
_CACHES: Final = 4 * 1024 * 1024

# Escapes of the engine that have another meaning in ECMA-262, or match only ASCII there.
_ESCAPES: Final = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": r"[\s\uFEFF]",
    "S": r"[^\s\uFEFF]",
    "0": r"\x00",
    "<": "<",
    ">": ">",
}
_ANY_CHARACTER: Final = r"[^\n\r\u2028\u2029]"
_REPETITION: Final = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_PROPERTY: Final = re.compile(r"\\[pP]\{[A-Za-z0-9_=]+\}")
_CONTROL: Final = re.compile(r"\\c([A-Za-z])")
_CODE: Final = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})")
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]|\\u[0-9A-Fa-f]{4}|\\x[89A-Fa-f][0-9A-Fa-f]")
_SET: Final = re.compile(r"-\\[dDwWsSpP]")
# The beginning of a group. Python's spelling of named groups is accepted, too. The engine refuses
# lookaround. Flags are refused: they would change the meaning of the rest of the pattern.
_GROUP: Final = re.compile(r"\((\?(:|P?<[^\W\d]\w*>|<?[=!]))?")

# Rough sizes of the parts of a pattern that match a single character.
_PLAIN: Final = 1
_WIDE: Final = 5
_UNICODE: Final = 20


class Pattern:
    """A pattern to search for in texts; `size` is its size with repetitions expanded.

    The constructor checks and translates it; each use compiles it. Compiling takes at most
    `compiling` steps and `memory` bytes, to which searches add. `UnsupportedSchema` if the pattern
    is too large, or needs an engine that backtracks.
    """

    __slots__ = ("compiling", "memory", "size", "text")

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise UnsupportedSchema(f"a pattern has more than {MAX_PATTERN:,} characters")
        reader = _Reader(pattern)
        reader.read()
        self.size = reader.size
        self.text = reader.text
        properties = self.text.lower().count(r"\p{")
        self.compiling = _COMPILE + _PER_SIZE * self.size + _PER_PROPERTY * properties
        self.memory = _TAKEN[0] + _TAKEN[1] * self.size
        try:
            self.compiled()
        except SchemaError as error:
            if _is_pattern(pattern):
                raise UnsupportedSchema(
                    "a pattern cannot be matched without backtracking", backtracking=True
                ) from error
            raise UnsupportedSchema("a pattern is not a regular expression") from error

    def compiled(self) -> Callable[[str], bool]:
        """Return a function that checks whether some part of a text matches."""
        schema = core_schema.str_schema(pattern=self.text, regex_engine="rust-regex")
        return SchemaValidator(schema).isinstance_python

    def cost(self, text: str) -> float:
        """Return the number of steps of a search of `text`."""
        return 1 + self.size * len(text) / _PER_STEP

    def growth(self, text: str) -> int:
        """Return the bytes of memory that a search of `text` may add."""
        size = len(text) if text.isascii() else 4 * len(text)
        return min(size * (_CACHED[0] + _CACHED[1] * self.size), _CACHES)


def _is_pattern(pattern: str) -> bool:
    """Return whether an engine that backtracks accepts the pattern, which is compiled only.

    Other characters than ASCII are replaced: that engine examines each character of a range.
    """
    try:
        re.compile(_BEYOND_ASCII.sub("~", pattern))
    except (re.error, OverflowError, RecursionError, Warning):  # a program may raise warnings
        return False
    return True


class _Reader:
    """Translates a pattern and computes its size, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._parts: list[str] = []
        self.size = 0
        # The size of the part that a repetition would repeat, and of those before open groups.
        self._last = 0
        self._outside: list[int] = []

    @property
    def text(self) -> str:
        """The translation."""
        return "".join(self._parts)

    def read(self) -> None:
        """Read all of it; `UnsupportedSchema` if it is not a pattern, or too large."""
        while self._at < len(self._pattern):
            self._piece(self._pattern[self._at])
            if self.size > MAX_PATTERN:
                raise UnsupportedSchema("a pattern is too large after its repetitions are expanded")

    def _piece(self, char: str) -> None:
        match char:
            case "\\":
                self._escape(inside=False)
            case "[":
                self._class()
            case "(":
                self._outside.append(self.size)
                found = _GROUP.match(self._pattern, self._at)
                assert found is not None  # it may be a bare parenthesis
                if found[0] == "(" and self._pattern.startswith("(?", self._at):
                    raise UnsupportedSchema(
                        "a pattern has flags or a group unknown to ECMA-262",
                        backtracking=_is_pattern(self._pattern),
                    )
                self.size = 0 if found[0] == "(?:" else _PLAIN  # the engine records the position
                self._take(found[0], found[0])
            case ")":
                if not self._outside:
                    raise UnsupportedSchema("a pattern closes a group that it did not open")
                self._last = self.size
                self.size += self._outside.pop()
                self._take(char, char)
            case "{":
                self._brace()
            case ".":
                self._atom(char, _ANY_CHARACTER, _WIDE)
            case "*" | "+" | "?":
                self._take(char, char)
                self._repeat(1)
            case "|":
                self._take(char, char)
                self.size += _PLAIN
            case _:
                self._atom(char, char, len(char.encode(errors="surrogatepass")))

    def _take(self, original: str, translated: str) -> None:
        self._at += len(original)
        self._parts.append(translated)

    def _atom(self, original: str, translated: str, size: int) -> None:
        self._take(original, translated)
        self.size += size
        self._last = size

    def _brace(self) -> None:
        found = _REPETITION.match(self._pattern, self._at)
        if found is None:
            self._atom("{", r"\{", _PLAIN)
            return
        self._take(found[0], found[0])
        times = max(int(found[3] or 0), int(found[1]), 1)
        self._repeat(times, fork=_PLAIN if found[2] else 0)

    def _repeat(self, times: int, fork: int = _PLAIN) -> None:
        """Multiply the size of the last part; `fork` is the size of an optional repetition."""
        before = self.size - self._last
        self._last = self._last * times + fork
        self.size = before + self._last

    def _escape(self, *, inside: bool) -> None:
        """Translate an escape and add its size; `inside` says that it is in a class."""
        unicode = _PROPERTY.match(self._pattern, self._at)
        control = _CONTROL.match(self._pattern, self._at)
        code = _CODE.match(self._pattern, self._at)
        whole = self._pattern[self._at : self._at + 2]
        translated, size = _ESCAPES.get(whole[1:], whole), _PLAIN
        if unicode is not None:
            whole = translated = unicode[0]
            size = _UNICODE
        elif control is not None:
            whole = control[0]
            translated = f"\\x{ord(control[1]) % 32:02x}"
        elif code is not None and not inside:
            whole = translated = code[0]
            size = len(whole) // 2  # at least the number of its bytes in UTF-8
        elif whole in {r"\p", r"\P"}:
            raise UnsupportedSchema("a pattern is not a regular expression")
        elif whole == r"\b":
            translated = r"\x08" if inside else r"(?-u:\b)"
        elif whole in {r"\D", r"\W", r"\S"}:
            size = _WIDE
        self._atom(whole, translated, size)

    def _class(self) -> None:
        opened = "[^" if self._pattern.startswith("[^", self._at) else "["
        if self._pattern.startswith("]", self._at + len(opened)):
            # `[]` matches no character, and `[^]` matches every character.
            self._atom(f"{opened}]", r"[\s\S]" if opened == "[^" else r"[^\s\S]", _WIDE)
            return
        before, beyond = self.size, 0
        self._take(opened, opened)
        while not self._pattern.startswith("]", self._at):
            char = self._pattern[self._at : self._at + 1]
            beyond += char > "\x7f" or self._pattern[self._at : self._at + 2] in {r"\u", r"\x"}
            if char == "\\":
                self._escape(inside=True)
            elif not char:
                raise UnsupportedSchema("a pattern has an unclosed character class")
            elif (
                char in "[&~"
                or self._pattern.startswith("--", self._at)
                or _SET.match(self._pattern, self._at)
            ):
                # The engine has nested sets, and would read the bracket of a translated escape as
                # the end of a range.
                self._take(char, f"\\{char}")
            else:
                self._take(char, char)
        self._take("]", "]")
        # A class of ASCII characters is one state, whatever their number; other classes are many.
        widest = _WIDE if opened == "[^" else _PLAIN
        self._last = max(widest, min(self.size - before, _UNICODE)) + beyond
        self.size = before + self._last
