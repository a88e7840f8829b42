"""The secrets of one server, removed from text by their values.

`redact` recognizes secrets by the text around them. A server may repeat a secret without its name,
in part, or encoded. So this module stores the values that were given for the server or sent to it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import itertools
import json
import os
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote

from pydantic_core import ValidationError

from syncmcp._base.escapes import readings
from syncmcp._base.origin import split_url
from syncmcp._base.text import MASK, MOST_PROBLEMS, MOST_QUOTED, names_a_secret, redact, visible
from syncmcp._base.text import quote as quote_text
from syncmcp.errors import InterceptorFailed, McpError

SHORTEST = 6
"""The least length of a secret: masking ordinary words ("1", "debug") would ruin every text."""

SHORTEST_NAMED = 4
"""The least length of a value whose name implies a secret, such as ``PASSWORD``."""

SHORTEST_PART = 8
"""The least length of a part of a variable, which is more often an ordinary word."""

MOST_PARTS = 64
"""The most parts of one variable that are masked; those whose names imply secrets come first."""

MOST_SENT = 256
"""The most sent values that are stored; the oldest are removed first."""

# The most characters of all sent values. One response of an authorization server has fewer, so it
# cannot displace the values of its own request.
_MOST_CHARACTERS = 2 * 1024 * 1024

# The most characters of a secret that remain visible where a text is cut.
_SHOWN_AT_CUT = 3

# The most places at which a search for a cut secret compares text. A server could send a text in
# which every place looks like the beginning of the secret.
_MOST_TRIED = 256

# The most characters of an escape at the beginning of a text that was cut within the escape.
_REST_OF_ESCAPE = 11

_WITHIN = b"\1"

# Separates texts that are searched as one text. It ends every escape, and hardly any secret has it.
_BETWEEN = "\0"

# Remains of characters that were cut: replacement characters and surrogates.
_HALVES = "\ufffd" + "".join(map(chr, range(0xD800, 0xE000)))

# Longer secrets are not searched for in base64, and longer variables are not split into parts.
_LONGEST_ENCODED = 16 * 1024

# Headers without secrets. Of the protocol's headers (`mcp-...`), only the session id is secret.
_PUBLIC_HEADERS = frozenset(
    (
        "accept", "accept-encoding", "connection", "content-encoding", "content-length",
        "content-type", "dpop", "host", "last-event-id", "traceparent", "user-agent",
    )
)  # fmt: skip  # A proof (`dpop`) is accepted once, and each request has another one.

# Guards all objects. It is held briefly: to add values, or to compute the forms of new ones.
_lock = threading.RLock()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

_SCHEME = re.compile(r"([A-Za-z][\w-]*)[ \t]+(\S.*)", re.DOTALL)
_CREDENTIAL_SCHEMES = frozenset(("apikey", "basic", "bearer", "dpop", "token"))
_WORDS = re.compile(r"[\s,;]+")
_PATH_MARKS = re.compile(r"[/\\\s]")
_DELIMITERS = re.compile(r"[/?#\[\]@]")


class Secrets:
    """The secrets of one server; `values` are never removed. Thread-safe.

    `seen` caches the last value of each header that was added: further requests with the same
    headers add nothing.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        # Values with their forms, which are computed when first needed; sent values, oldest first.
        # `values` are not split: a copied object passes its given values, which include lines.
        self._given: dict[str, tuple[str, ...]] = {
            value: () for value in values if len(value) >= SHORTEST_NAMED
        }
        self._sent: dict[str, tuple[str, ...]] = {}
        self._sent_characters = 0
        self.seen: dict[str, object] = {}
        self._forms: tuple[str, ...] | None = None
        self._included: tuple[Secrets, ...] = ()

    def __repr__(self) -> str:
        return f"<{len(self._given) + len(self._sent)} secrets>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Secrets, (tuple(self._given),)

    # -- what is secret

    def give(self, value: str, name: str = "") -> None:
        """Add a value of the program's settings, which is never removed.

        It is masked as a whole and line by line. It must have at least six characters, or four if
        `name` implies a secret.
        """
        self._add(self._given, _lines(value), name)

    def give_variables(self, env: Mapping[str, str]) -> None:
        """Add the values of environment variables, and the secrets within them.

        Such secrets are parts of URLs, strings in JSON, values in lists such as ``k=v;k=v``, a
        token after its scheme, and a password after a user name and a colon.
        """
        for variable, whole in env.items():
            if variable.upper() == "PATH":
                continue
            for name, value in ((variable, whole), *_parts(whole)):
                self.give(value, name)
                found = _SCHEME.fullmatch(value)
                if found is not None and found[1].lower() in _CREDENTIAL_SCHEMES:
                    self._add(self._given, _credentials(value), name)
                self.give_url(value)

    def give_headers(self, headers: Mapping[str, Any]) -> None:
        """Add the values of headers that are sent with every request."""
        for name, value in headers.items():
            if _is_secret_header(name):
                self._add(self._given, _header_parts(_decoded(value)), name)

    def give_url(self, url: str) -> None:
        """Add the secrets in a URL: user, password, and the values of its query."""
        self._add_url(self._given, url)

    def _add_url(self, known: dict[str, tuple[str, ...]], url: str) -> None:
        if url.startswith("//"):  # as proxies may be written
            url = f"http:{url}"
        _, marked, rest = url.partition("://")
        if not marked:
            return
        query = rest.partition("?")[2].partition("#")[0]
        userinfo = _userinfo(url)
        for name, value in (
            ("pair", userinfo),  # Basic credentials contain it in base64
            *zip(("user", "password"), userinfo.split(":", 1), strict=False),
            *parse_qsl(query),
        ):
            # An error about an invalid URL quotes its parts, and a delimiter may split a password.
            parts = _DELIMITERS.split(value) if name == "password" else ()
            self._add(known, (value, unquote(value), *parts), name)
        if query and "=" not in query:
            self._add(known, _lines(query), "")

    def add(self, value: str, name: str = "") -> None:
        """Add a value that was sent or received; see `give` for `name`."""
        self._add(self._sent, _lines(value), name)

    def add_url(self, url: str) -> None:
        """Add the secrets in a URL that a server named; see `give_url`."""
        self._add_url(self._sent, url)

    def add_headers(self, headers: Mapping[str, Any]) -> None:
        """Add the values of headers that are being sent: whole, word by word, and decoded."""
        seen = self.seen
        # The server chooses the number of cookies: they must not displace values of the program.
        for name, value in sorted(headers.items(), key=lambda item: item[0].lower() != "cookie"):
            if seen.get(name) != value:
                if _is_secret_header(name):
                    self._add(self._sent, _header_parts(_decoded(value)), name)
                if len(seen) < MOST_SENT:
                    seen[name] = value

    def include(self, other: Secrets) -> None:
        """Mask the secrets of `other`, too, including those that it gets later."""
        with _lock:
            if other is not self and other not in self._included:
                self._included = (*self._included, other)

    def _add(self, known: dict[str, tuple[str, ...]], values: Iterable[str], name: str) -> None:
        least = SHORTEST_NAMED if name and names_a_secret(name) else SHORTEST
        with _lock:
            for value in values:
                if len(value) < least or value in self._given:
                    continue
                forms = self._forget(value) if value in self._sent else ()
                known[value] = forms
                if known is self._sent:
                    self._sent_characters += len(value)
                self._forms = None
            while len(self._sent) > MOST_SENT or (
                self._sent_characters > _MOST_CHARACTERS and len(self._sent) > 1
            ):
                self._forget(next(iter(self._sent)))
                self.seen.clear()  # a removed value is added again when it is sent again

    def _forget(self, value: str) -> tuple[str, ...]:
        self._sent_characters -= len(value)
        return self._sent.pop(value)

    # -- removing it

    def redact(self, text: str, *, starts_cut: bool = False, ends_cut: bool = False) -> str:
        """Return foreign text with every secret replaced by ``***``, by value and by `redact`.

        `starts_cut` and `ends_cut`: it may begin or end within a secret; that part is masked, too.
        """
        return redact(self.mask(text, starts_cut=starts_cut, ends_cut=ends_cut))

    def mask(self, text: str, *, starts_cut: bool = False, ends_cut: bool = False) -> str:
        """Replace secrets by value only, for text that is partly the library's.

        This finds plain values, values with escapes of JSON and of URLs, and values in base64.
        """
        return _masked(text, self._marked(text, starts_cut=starts_cut, ends_cut=ends_cut))

    def _marked(self, text: str, *, starts_cut: bool = False, ends_cut: bool = False) -> bytearray:
        """Return a byte for each character, 1 within a secret; empty if the text has no secret.

        A list of positions could take too much memory: a server may repeat a secret many times.
        """
        marks = bytearray()

        def mark(start: int, end: int) -> None:
            if not marks:
                marks.extend(bytes(len(text)))
            marks[start:end] = _WITHIN * (end - start)

        forms = tuple(self._all_forms())
        if not forms:
            return marks
        for reading in readings(text, ends_cut=ends_cut):
            read = reading.text
            whole = read.rstrip(_HALVES) if ends_cut else read
            for form in forms:
                for start, end in _occurrences(read, form):
                    mark(reading.place(start), reading.place(end))
                if ends_cut and (start := _start_of_cut(whole, form)) >= 0:
                    mark(reading.place(start), len(text))
                if starts_cut and (end := _end_of_cut(read, form)) >= 0:
                    mark(0, reading.place(end))
        return marks

    def mask_value(self, value: Any) -> Any:
        """Do `mask` for a JSON value: for its texts, names and numbers."""
        masked = self.masked_texts(value)
        if not masked:
            return value
        return change_texts(
            value,
            lambda given, _: masked.get(str(given), given),
            lambda name: masked.get(name, name),
        )

    def masked_texts(self, value: Any) -> dict[str, str]:
        """Return the masked form of each text, name and number of a JSON value with a secret.

        All are searched as one text: millions of separate searches would take too long.
        """
        texts = list(_texts(value))
        starts = [0, *itertools.accumulate(len(text) + len(_BETWEEN) for text in texts)]
        marks = self._marked(_BETWEEN.join(texts))
        found: dict[str, str] = {}
        place = marks.find(_WITHIN)
        while place >= 0:
            which = bisect_right(starts, place) - 1
            start, text = starts[which], texts[which]
            found[text] = _masked(text, marks[start : start + len(text)])
            place = marks.find(_WITHIN, starts[which + 1])
        return found

    def quote(self, text: str) -> str:
        """Return a text for an error, without secrets; of a long text only the beginning."""
        return quote_text(text, partial(self.redact, ends_cut=len(text) > MOST_QUOTED))

    def shorten(self, text: str, limit: int) -> str:
        """Mask the secrets in `text`, and return the first `limit` characters of the result."""
        return self.redact(text)[:limit]

    def clean(self, error: McpError) -> None:
        """Remove secrets from the message of an error that quotes a server, and from its causes.

        The text of a foreign exception cannot be changed. Such a cause is removed if it is too long
        to be searched, or has a secret or control characters. This also applies to the exceptions
        that its traceback shows.
        """
        one, seen = error, {id(error)}
        while True:
            if one.args and isinstance(one.args[0], str):
                one.args = (self.mask(one.args[0]), *one.args[1:])
            code = vars(one).get("error")
            if isinstance(code, str):  # the error code of an authorization server
                vars(one)["error"] = self.mask(code)
            cause = _shown_cause(one)
            if cause is None or id(cause) in seen or isinstance(one, InterceptorFailed):
                return  # an exception of the program is shown unchanged
            if not isinstance(cause, McpError):
                if not all(map(self._is_clean, _shown_with(cause))):
                    one.__cause__ = one.__context__ = None
                return
            seen.add(id(cause))
            one = cause

    def _is_clean(self, cause: BaseException) -> bool:
        if isinstance(cause, ValidationError) and cause.error_count() > MOST_PROBLEMS:
            return False  # a server may cause millions, and examining them takes minutes
        text = str(cause)
        if len(text) > MOST_QUOTED:
            return False
        places: list[str] = []
        if isinstance(cause, ValidationError):  # its text has member names on separate lines
            places = [str(part) for problem in cause.errors() for part in problem["loc"]]
        return (
            self.redact(text) == text
            and visible(text, lines=True) == text
            and all(visible(place) == place for place in places)
        )

    def _all_forms(self) -> Iterator[str]:
        with _lock:
            if self._forms is None:
                for known in (self._given, self._sent):
                    for value, made in known.items():
                        known[value] = made or tuple(_forms(value))
                all_forms = (*self._given.values(), *self._sent.values())
                self._forms = tuple(dict.fromkeys(itertools.chain.from_iterable(all_forms)))
            forms, included = self._forms, self._included
        yield from forms
        for other in included:
            yield from other._all_forms()


def change_texts(
    value: Any,
    change: Callable[[Any, str], Any],
    rename: Callable[[str], str],
    member: str = "",
) -> Any:
    """Return a JSON value with each name renamed, and each text and number changed.

    `change` gets the text or number, and the name of the `member` that it is in.
    """
    if isinstance(value, dict):
        return {
            rename(name): change_texts(item, change, rename, name) for name, item in value.items()
        }
    if isinstance(value, list):
        return [change_texts(item, change, rename, member) for item in value]
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return change(value, member)
    return value


def _texts(value: Any) -> Iterator[str]:
    """Yield the names, texts and numbers of a JSON value, in any order."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, (str, int, float)) and not isinstance(one, bool):
            yield str(one)


def _shown_cause(error: BaseException) -> BaseException | None:
    """Return the exception that a traceback shows before `error`."""
    return error.__context__ if not error.__suppress_context__ else error.__cause__


def _shown_with(error: BaseException) -> list[BaseException]:
    """Return `error` and the other exceptions that its traceback shows."""
    found = [error]
    while (cause := _shown_cause(found[-1])) is not None and cause not in found:
        found.append(cause)
    return found


def _lines(value: str) -> Iterator[str]:
    yield value
    yield from value.splitlines()


def _decoded(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _is_secret_header(name: str) -> bool:
    name = name.lower()
    return name not in _PUBLIC_HEADERS and (not name.startswith("mcp-") or name == "mcp-session-id")


def _header_parts(value: str) -> Iterator[str]:
    """Yield a header value, its words except the scheme, texts after `=`, and decoded Basic."""
    yield value
    yield from _credentials(value)
    found = _SCHEME.fullmatch(value)
    for word in _WORDS.split(value if found is None else found[2]):
        yield word
        yield word.partition("=")[2].strip("\"'")


def _parts(value: str) -> list[tuple[str, str]]:
    """Return the names and texts of the parts of a variable that may be secrets."""
    if len(value) > _LONGEST_ENCODED:
        return []
    try:
        found = list(_strings(json.loads(value)))
    except (ValueError, RecursionError):
        items = [item for mark in (";", ",", "&", None) for item in value.split(mark)]
        pairs = [item.partition("=") for item in items]
        found = [(name, text.strip("\"'")) for name, _, text in pairs]
        if not _PATH_MARKS.search(value):
            found.append(("", value.partition(":")[2]))
    telling = {part: names_a_secret(part[0]) for part in found}
    kept = [part for part, told in telling.items() if told or len(part[1]) >= SHORTEST_PART]
    return sorted(kept, key=lambda part: not telling[part])[:MOST_PARTS]


def _strings(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the strings of a JSON value, each with the name of its member."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, name)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, key)


def _userinfo(url: str) -> str:
    """Return user and password of a URL, even if an unencoded character makes it invalid."""
    with contextlib.suppress(ValueError):
        parts = split_url(url)
        if parts.hostname and parts.port != 0:
            return parts.netloc.rpartition("@")[0]
    found = url.partition("://")[2].rpartition("@")[0]
    return found if ":" in found else ""


def _credentials(value: str) -> Iterator[str]:
    """Yield the credentials in an `Authorization` value; of Basic also user and password."""
    found = _SCHEME.fullmatch(value)
    if found is None:
        return
    yield found[2]
    if found[1].lower() != "basic":
        return
    try:
        raw = base64.b64decode(found[2])
    except (binascii.Error, ValueError):
        return
    try:
        pair = raw.decode()
    except UnicodeDecodeError:
        pair = raw.decode("latin-1")  # as `requests` writes them
    yield pair
    yield from pair.split(":", 1)


def _forms(value: str) -> Iterator[str]:
    """Yield the forms of a value in a text without escapes: plain, as it was sent, in base64."""
    yield value
    # A client's secret is encoded before it is sent (RFC 6749 §2.3.1), and so are many cookies.
    if "%" in value and len(plain := unquote(value)) >= SHORTEST:
        yield plain
    if " " in value:
        yield value.replace(" ", "+")
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) > _LONGEST_ENCODED:
        return
    # Within a longer text, the value may begin at any of the three bytes of a group. Characters
    # that also encode other bytes are left out.
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + raw).decode()
        core = encoded[(0, 2, 3)[offset] :].rstrip("=")
        if (offset + len(raw)) % 3:
            core = core[:-1]
        if len(core) >= SHORTEST:
            yield core
            yield core.translate(_URLSAFE)


_URLSAFE = str.maketrans("+/", "-_")


def _occurrences(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Yield the places of `form` in `text`; occurrences that overlap or touch are one place."""
    length = len(form)
    start = text.find(form)
    while start >= 0:
        last = start
        # Not one by one: a text of one repeated letter has an occurrence at each position.
        while (further := text.rfind(form, last + 1, last + 2 * length)) >= 0:
            last = further
        yield start, last + length
        start = text.find(form, last + length)


def _start_of_cut(text: str, form: str) -> int:
    """Return where the beginning of `form` starts that ends `text`; -1 if absent or too short."""
    anchor = form[: _SHOWN_AT_CUT + 1]
    start = text.find(anchor, max(0, len(text) - len(form)))
    for _ in range(_MOST_TRIED):
        if start < 0 or form.startswith(text[start:]):
            break
        start = text.find(anchor, start + 1)
    return start


def _end_of_cut(text: str, form: str) -> int:
    """Return where the end of `form` that begins `text` ends; -1 if absent or too short."""
    first = len(text) - len(text.lstrip(_HALVES))
    anchor = form[-_SHOWN_AT_CUT - 1 :]
    for begun in range(first, first + _REST_OF_ESCAPE + 1):
        end = text.rfind(anchor, begun, begun + len(form)) + len(anchor)
        for _ in range(_MOST_TRIED):
            if end < len(anchor) or form.endswith(text[begun:end]):
                break
            end = text.rfind(anchor, begun, end - 1) + len(anchor)
        if end >= len(anchor):
            return end
    return -1


def _masked(text: str, marks: bytearray) -> str:
    """Replace the marked characters of a text by ``***``."""
    start = marks.find(_WITHIN)
    if start < 0:
        return text
    shown, done = io.StringIO(), 0
    while start >= 0:
        shown.write(text[done:start])
        shown.write(MASK)
        done = marks.find(0, start)
        if done < 0:
            return shown.getvalue()
        start = marks.find(_WITHIN, done)
    shown.write(text[done:])
    return shown.getvalue()
