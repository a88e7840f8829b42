"""One field of a form: its type and constraints, and the validation of an answer to it."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, cast

from syncmcp._base.numbers import is_number
from syncmcp._base.origin import split_url
from syncmcp._base.text import counted
from syncmcp._concurrency.forks import delaying_forks

if TYPE_CHECKING:
    from syncmcp._protocol.patterns import Pattern

Format = Literal["email", "uri", "date", "date-time"]
"""The format of a text field."""

_MAX_EMAIL = 320
_MAX_URI = 8_192
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]+"
_LABEL = (
    r"[A-Za-z0-9\x80-\U0010ffff](?:[A-Za-z0-9\x80-\U0010ffff-]{0,61}[A-Za-z0-9\x80-\U0010ffff])?"
)
_EMAIL = re.compile(rf"({_ATOM}(?:\.{_ATOM})*)@{_LABEL}(?:\.{_LABEL})*")
_URI_PART = r"(?:[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
_URI = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:{_URI_PART}+(?:#{_URI_PART}*)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATE_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?"
    r"(?:[Zz]|[+-]([0-9]{2}):([0-9]{2}))"
)
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?")

_INTEGER = re.compile(r"[+-]?[0-9]{1,310}")
_DECIMAL = re.compile(
    r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,5})?"
)

# As people and HTML inputs write them.
_YES: Final = frozenset({"yes", "y", "true", "on", "1"})
_NO: Final = frozenset({"no", "n", "false", "off", "0"})

# No language has more combining marks than this on one letter.
_MOST_MARKS: Final = 8

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# fmt: off
_SECRET_WORDS: Final = frozenset({
    "apikey", "bearer", "card", "credential", "credentials", "cvc", "cvv", "iban", "jwt",
    "mnemonic", "otp", "passcode", "passkey", "pin", "pwd", "secret", "secrets", "ssn",
    "token", "totp", "contraseña", "kennwort", "motdepasse", "passwort", "senha", "пароль",
})
_SECRET_PHRASES: Final = (
    "access code", "access key", "account number", "api key", "auth code", "auth key",
    "authentication code", "encryption key", "license key", "login code", "mot de passe",
    "one time code", "private key", "recovery code", "recovery phrase", "secret key",
    "security code", "seed phrase", "session cookie", "signing key", "social security",
    "ssh key", "verification code",
)
_SECRET_PARTS: Final = (
    "password", "passwd", "passphrase", "apikey", "creditcard", "privatekey",
    "密码", "密碼", "パスワード", "비밀번호",
)
# fmt: on


def _is_email(text: str) -> bool:
    """RFC 5321 without quoted local parts and address literals."""
    if len(text) > _MAX_EMAIL:
        return False
    found = _EMAIL.fullmatch(text)
    return found is not None and len(found[1]) <= 64 and not any(map(str.isspace, text))


def _is_uri(text: str) -> bool:
    """RFC 3986: absolute, in ASCII."""
    # The pattern repeats a group, which takes memory for each character.
    if len(text) > _MAX_URI or not _URI.fullmatch(text):
        return False
    try:
        parts = split_url(text)
        return parts.scheme not in ("http", "https") or (bool(parts.hostname) and parts.port != 0)
    except ValueError:  # brackets that do not match, a port out of range
        return False


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    """RFC 3339, leap seconds included."""
    found = _DATE_TIME.fullmatch(text)
    if found is None or not _is_date(found[1]):
        return False
    hour, minute, second, east, past = (int(part or 0) for part in found.groups()[1:])
    return hour < 24 and minute < 60 and second <= 60 and east < 24 and past < 60


# How an answer is checked, and the words for it in a hint and in a problem.
_FORMATS: Final[Mapping[Format, tuple[Callable[[str], bool], str]]] = {
    "email": (_is_email, "an e-mail address, like name@example.com."),
    "uri": (_is_uri, "a full address, like https://example.com/page."),
    "date": (_is_date, "a date, like 2026-01-31."),
    "date-time": (
        _is_date_time,
        "a date and time with its offset, like 2026-01-31T14:30:00+01:00.",
    ),
}


def local_date_time(text: str) -> str:
    """Add this computer's UTC offset to a date and time without one; keep other texts."""
    if not _LOCAL.fullmatch(text):
        return text
    try:
        return datetime.fromisoformat(text.upper()).astimezone().isoformat()
    except (ValueError, OverflowError):  # no such date; the format check reports it
        return text


def read_number(text: str) -> int | float | None:
    """Parse a decimal number, as an `int` if it is whole; `None` if it is invalid or infinite."""
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _DECIMAL.fullmatch(text):
        return None
    number = float(text)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def asks_for_a_secret(*texts: str) -> bool:
    """Guess from the words of a field whether it asks for a password, a key, a card or the like."""
    for text in texts:
        words = [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", _plain(text)))]
        spaced = f" {' '.join(words)} "
        if (
            not _SECRET_WORDS.isdisjoint(words)
            or any(part in word for word in words for part in _SECRET_PARTS)
            or any(f" {phrase}" in spaced for phrase in _SECRET_PHRASES)
        ):
            return True
    return False


def _plain(text: str) -> str:
    """Return a text without the invisible characters and compatibility forms that can hide a word.

    Only the first combining marks on a letter are kept: normalizing takes quadratic time in their
    number, and holds the interpreter lock.
    """
    if text.isascii():
        return text
    kept: list[str] = []
    marks = 0
    for character in text:
        for part in unicodedata.normalize("NFKD", character):
            if unicodedata.category(part) == "Cf":
                continue
            marks = marks + 1 if unicodedata.combining(part) else 0
            if marks <= _MOST_MARKS:
                kept.append(part)
    return unicodedata.normalize("NFKC", "".join(kept))


Kind = Literal["string", "number", "integer", "boolean", "choice", "choices"]
"""The type of a field; a ``"choice"`` is one of its options, ``"choices"`` a list of options."""

Value: TypeAlias = "str | int | float | bool | list[str]"
"""The answer to a field, as it is sent."""

MAX_MATCHED: Final = 2_000
"""The longest answer that is matched with a pattern, in characters.

The time of the engine is proportional to this length times the size of the pattern.
"""


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = Absent.ABSENT
"""The value of `Field.default` in a field without a default."""


class Option(NamedTuple):
    """One option of a choice.

    Attributes:
        value: The value that is sent.
        title: The text to show; the value if the server gave no title.
    """

    value: str
    title: str


class Bounds(NamedTuple):
    """The minimum and maximum of a field.

    They limit the number of characters of a text, the value of a number, or the number of choices.

    Attributes:
        minimum: The smallest value or count, inclusive; `None` for no limit.
        maximum: The largest value or count, inclusive; `None` for no limit.
    """

    minimum: int | float | None = None
    maximum: int | float | None = None


_UNBOUNDED: Final = Bounds()


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a form.

    Attributes:
        name: The key of the field in the content of an answer.
        label: The text to show to people: the title, or the name of a field without a title.
        description: A longer text for people, or `None`.
        required: Whether the field must be answered.
        kind: The type of the answer.
        format: The format of a text, or `None`.
        pattern: A regular expression that a text must match, or `None`. Without anchors, the match
            may be anywhere in the text.
        options: The options of a choice, in the order to show them.
        default: The value that is sent without an answer, or `ABSENT`. A default that is not valid
            for its own field counts as absent, because it could not be sent.
        bounds: The minimum and maximum.
    """

    name: str
    label: str
    kind: Kind
    description: str | None = None
    required: bool = False
    format: Format | None = None
    pattern: str | None = None
    options: tuple[Option, ...] = ()
    default: Value | Absent = ABSENT
    bounds: Bounds = _UNBOUNDED

    @cached_property
    def secret(self) -> bool:
        """Whether the field seems to ask for a password, a key, a card or the like.

        Servers must not ask for secrets in a form, so warn the person. The value is a guess from
        the words of the field, not a protection. It is always `False` for choices and booleans.
        """
        typed = self.kind in ("string", "number", "integer")
        return typed and asks_for_a_secret(self.name, self.label, self.description or "")

    @property
    def hint(self) -> str:
        """The type and the limits of an answer, in words for a person, before the person answers.

        The hint has no words of the server: the pattern and the options are not part of it. It is
        empty for a field without limits whose type is evident.
        """
        limits = self._limits()
        if self.kind in ("number", "integer"):
            what = "A whole number" if self.kind == "integer" else "A number"
            comma = "" if limits.startswith("from") else ","
            return f"{what}{comma} {limits}." if limits else f"{what}."
        words = [] if self.format is None else [_capitalized(_FORMATS[self.format][1])]
        if limits:
            unit = " of the options" if self.kind == "choices" else ""
            words.append(f"{_capitalized(limits)}{unit}.")
        return " ".join(words)

    def _limits(self) -> str:
        """Return the minimum and the maximum in words; an empty text without limits."""
        least, most = self.bounds
        if least is not None and least == most:
            return f"exactly {self.sized(least)}"
        if least is not None and most is not None:
            return f"from {least} to {self.sized(most)}"
        if least is not None:
            return f"at least {self.sized(least)}"
        return "" if most is None else f"at most {self.sized(most)}"

    def problem(self, value: object) -> str | None:
        """Explain in a sentence for a person why an answer is invalid; `None` if it is valid."""
        match self.kind:
            case "string":
                return self._text_problem(value)
            case "number" | "integer":
                return self._number_problem(value)
            case "boolean":
                return None if isinstance(value, bool) else "Answer yes or no."
            case "choice":
                fits = isinstance(value, str) and value in self._values
                return None if fits else self._one_of()
            case "choices":
                return self._choices_problem(value)

    def parse(self, text: str) -> Value:
        """Parse an answer that a person typed.

        An option is named by its value or its title. Several options are separated by line ends or
        commas. A date and time without an offset is in this computer's time zone.

        Raises:
            ValueError: The text is not valid for this field; the message is a sentence for a
                person.
        """
        value: Value | None
        match self.kind:
            case "string":
                value = text.strip() if self.format else text
                if self.format == "date-time":
                    value = local_date_time(value)
            case "number" | "integer":
                value = read_number(text)
            case "boolean":
                word = text.strip().lower()
                value = True if word in _YES else False if word in _NO else None
            case "choice":
                value = self._choice(text)
            case "choices":
                value = self._choices(text)
        problem = self.problem(value)
        if problem is not None or value is None:
            raise ValueError(problem)
        return value

    def _one_of(self) -> str:
        """Name the options if they are few and short."""
        values = [option.value for option in self.options]
        named = ", ".join(map(repr, values))
        short = len(named) <= 80 and all(value.isascii() for value in values)
        return f"Choose one of {named}." if short else "Choose one of the options."

    @cached_property
    def _values(self) -> frozenset[str]:
        return frozenset(option.value for option in self.options)

    def _text_problem(self, value: object) -> str | None:
        if not isinstance(value, str):
            return "Enter text."
        beyond = self._beyond(len(value))
        if beyond is not None:
            return f"Enter {beyond}, not {len(value)}."
        if not is_unicode(value):
            return "This text has characters that cannot be sent."
        if self.pattern is not None:
            if len(value) > MAX_MATCHED:
                return f"Enter at most {MAX_MATCHED} characters, not {len(value)}."
            if not read_pattern(self.pattern).compiled()(value):
                return f"Enter text that matches the pattern {self.pattern}"
        if self.format is None:
            return None
        is_of_format, words = _FORMATS[self.format]
        return None if is_of_format(value) else f"Enter {words}"

    def _number_problem(self, value: object) -> str | None:
        whole = self.kind == "integer"
        if not is_number(value) or (whole and value != value // 1):
            return "Enter a whole number." if whole else "Enter a number."
        beyond = self._beyond(value)
        return None if beyond is None else f"Enter a number that is {beyond}."

    def _choices_problem(self, value: object) -> str | None:
        if not isinstance(value, list):
            return "Choose from the options."
        chosen = cast("list[object]", value)
        if not all(isinstance(choice, str) and choice in self._values for choice in chosen):
            return "Choose from the options only."
        if len(set(chosen)) < len(chosen):
            return "Choose each option only once."
        beyond = self._beyond(len(chosen))
        return None if beyond is None else f"Choose {beyond}, not {len(chosen)}."

    def _beyond(self, size: float) -> str | None:
        """Return the limit that a size or number exceeds, as text; `None` if it is within both."""
        least, most = self.bounds
        if least is not None and size < least:
            return f"at least {self.sized(least)}"
        return f"at most {self.sized(most)}" if most is not None and size > most else None

    def sized(self, bound: float) -> str:
        """Return a limit as text; for a text field, with the unit."""
        return counted(int(bound), "characters") if self.kind == "string" else f"{bound}"

    def _choice(self, text: str) -> str | None:
        for given in (text, text.strip()):
            if given in self._values:
                return given
            titled = [option.value for option in self.options if option.title == given]
            if len(titled) == 1:  # a title of several options is ambiguous
                return titled[0]
        return None

    def _choices(self, text: str) -> list[str] | None:
        alone = self._choice(text)
        if alone is not None:  # a value or title may contain a comma
            return [alone]
        parts = text.splitlines() if "\n" in text.strip() else text.split(",")
        chosen = [self._choice(part) for part in parts if part.strip()]
        return None if None in chosen else cast("list[str]", chosen)


def _capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]


def read_pattern(pattern: str) -> Pattern:
    """Parse a pattern; raise `UnsupportedSchema` if it could take too much time or memory."""
    with delaying_forks():
        from syncmcp._protocol.patterns import Pattern

    return Pattern(pattern)


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a text.

    JSON can escape lone surrogates, but UTF-8 cannot encode them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
