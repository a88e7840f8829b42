"""How people write what forms ask for: numbers, dates, addresses; and the words of secrets."""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import date, datetime
from typing import Final, Literal
from urllib.parse import urlsplit

__all__ = [
    "Format",
    "asks_for_a_secret",
    "format_problem",
    "local_date_time",
    "read_boolean",
    "read_number",
]

Format = Literal["email", "uri", "date", "date-time"]
"""What a text must be written as."""

_MAX_EMAIL = 320
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

_YES: Final = frozenset({"yes", "y", "true", "on", "1"})
_NO: Final = frozenset({"no", "n", "false", "off", "0"})

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


def format_problem(kind: Format, text: str) -> str | None:
    """Say in a sentence for a person why a text is not written as `kind`; `None` if it is."""
    match kind:
        case "email":
            return None if _is_email(text) else "Give an e-mail address, like name@example.com."
        case "uri":
            return None if _is_uri(text) else "Give a full address, like https://example.com/page."
        case "date":
            return None if _is_date(text) else "Give a date, like 2026-01-31."
        case "date-time":
            if _is_date_time(text):
                return None
            return "Give a date and time with its offset, like 2026-01-31T14:30:00+01:00."


def _is_email(text: str) -> bool:
    """RFC 5321 without quoted local parts and address literals."""
    if len(text) > _MAX_EMAIL:
        return False
    found = _EMAIL.fullmatch(text)
    return found is not None and len(found[1]) <= 64 and not any(map(str.isspace, text))


def _is_uri(text: str) -> bool:
    """RFC 3986: absolute, in ASCII."""
    if not _URI.fullmatch(text):
        return False
    try:
        parts = urlsplit(text)
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
    """RFC 3339, with its leap seconds."""
    found = _DATE_TIME.fullmatch(text)
    if found is None or not _is_date(found[1]):
        return False
    hour, minute, second, east, past = (int(part or 0) for part in found.groups()[1:])
    return hour < 24 and minute < 60 and second <= 60 and east < 24 and past < 60


def local_date_time(text: str) -> str:
    """Give a date and time without an offset the one of this computer; leave others alone."""
    if not _LOCAL.fullmatch(text):
        return text
    try:
        return datetime.fromisoformat(text.upper()).astimezone().isoformat()
    except (ValueError, OverflowError):  # no such date; the check of the format says so
        return text


def read_number(text: str) -> int | float | None:
    """Read a decimal number, an `int` where it is whole; `None` if it is none that can be sent."""
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _DECIMAL.fullmatch(text):
        return None
    number = float(text)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def read_boolean(text: str) -> bool | None:
    """Read a yes or a no, as people and HTML inputs give it."""
    word = text.strip().lower()
    return True if word in _YES else False if word in _NO else None


def asks_for_a_secret(*texts: str) -> bool:
    """Whether the words of a field are such as ask for a password, a key, a card or the like."""
    for text in texts:
        # Invisible characters and unusual forms of letters must not hide a word.
        plain = "".join(
            character
            for character in unicodedata.normalize("NFKC", text)
            if unicodedata.category(character) != "Cf"
        )
        words = [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", plain))]
        spaced = f" {' '.join(words)} "
        if (
            not _SECRET_WORDS.isdisjoint(words)
            or any(part in word for word in words for part in _SECRET_PARTS)
            or any(f" {phrase}" in spaced for phrase in _SECRET_PHRASES)
        ):
            return True
    return False
