"""The secrets of one server, removed from text by their values.

`redact` knows secrets by what stands around them. A server may repeat a secret without its name, in
part, or encoded: therefore the values that were given for it, and those that were sent to it, are
kept here.
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
"""Shorter values are ordinary words ("1", "debug"), and to mask them would ruin every text."""

SHORTEST_NAMED = 4
"""The same for a value whose name tells that it is a secret, such as ``PASSWORD``."""

SHORTEST_PART = 8
"""The same for a part of a variable, which is more often an ordinary word than the whole is."""

MOST_PARTS = 64
"""The most parts of one variable that are known on their own; those with telling names first."""

MOST_SENT = 256
"""The most values kept of those that were sent; the oldest are forgotten first."""

# The most characters of them together. One answer of an authorization server has fewer: it cannot
# push out what was sent for it.
_MOST_CHARACTERS = 2 * 1024 * 1024

# A cut shows this many characters of a secret at most.
_SHOWN_AT_CUT = 3

# At so many places of a text it is tried whether a secret is cut there. A server could write one
# that begins like the secret everywhere.
_MOST_TRIED = 256

# A text that begins within an escape begins with so many characters of it at most.
_REST_OF_ESCAPE = 11

_WITHIN = b"\1"

# Stands between texts that are searched as one. It ends each escape, and hardly a secret has it.
_BETWEEN = "\0"

# Halves of what was cut: replaced bytes, and surrogates.
_HALVES = "\ufffd" + "".join(map(chr, range(0xD800, 0xE000)))

# Longer secrets are not looked for in base64.
_LONGEST_ENCODED = 16 * 1024

# Headers that say nothing secret. Those of the protocol begin with `mcp-`; only the session is one.
_PUBLIC_HEADERS = frozenset(
    (
        "accept", "accept-encoding", "connection", "content-encoding", "content-length",
        "content-type", "dpop", "host", "last-event-id", "traceparent", "user-agent",
    )
)  # fmt: skip  # A proof (`dpop`) is accepted once, and each request has another one.

# Guards the changes of all objects, each of which takes no longer than to copy some values.
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
    """The secrets of one server, and `values` that are never forgotten. Used from any thread.

    `seen` has the last value of each header that was added, so that a request with the same headers
    costs a look at these.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        # Each value with its forms, once these were needed; those that were sent, the oldest first.
        # A copy of an object has the same values: their lines are among them, unless too short.
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
        """Add a value of the program's settings, which is never forgotten.

        It is masked as a whole and line by line. If `name` tells that it is a secret, a value of
        four characters is masked, too; otherwise it takes six.
        """
        self._add(self._given, _lines(value), name)

    def give_variables(self, env: Mapping[str, str]) -> None:
        """Add the values of environment variables, and what in them is secret on its own.

        That is a token behind its scheme, parts of a URL, the strings of JSON, the values of lists
        such as ``k=v;k=v``, and a password behind its user and a colon.
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
        """Add what is secret in a URL: user, password, and the values of its query."""
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
            ("pair", userinfo),  # as Basic credentials have it, in base64
            *zip(("user", "password"), userinfo.split(":", 1), strict=False),
            *parse_qsl(query),
        ):
            # An error about an invalid URL quotes its parts, and a password may be in several.
            parts = _DELIMITERS.split(value) if name == "password" else ()
            self._add(known, (value, unquote(value), *parts), name)
        if query and "=" not in query:
            self._add(known, _lines(query), "")

    def add(self, value: str, name: str = "") -> None:
        """Add a value that was sent or received; see `give` for `name`."""
        self._add(self._sent, _lines(value), name)

    def add_url(self, url: str) -> None:
        """Add what is secret in a URL that a server named; see `give_url`."""
        self._add_url(self._sent, url)

    def add_headers(self, headers: Mapping[str, Any]) -> None:
        """Add the values of headers that are being sent: whole, word by word, and decoded."""
        seen = self.seen
        # The server says how many cookies there are: they must not push out what the program sends.
        for name, value in sorted(headers.items(), key=lambda item: item[0].lower() != "cookie"):
            if seen.get(name) != value:
                if _is_secret_header(name):
                    self._add(self._sent, _header_parts(_decoded(value)), name)
                if len(seen) < MOST_SENT:
                    seen[name] = value

    def include(self, other: Secrets) -> None:
        """Mask what `other` knows, too: now, and what it learns later."""
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
                self.seen.clear()  # what is forgotten and sent again is learned again

    def _forget(self, value: str) -> tuple[str, ...]:
        self._sent_characters -= len(value)
        return self._sent.pop(value)

    # -- removing it

    def redact(self, text: str, *, starts_cut: bool = False, ends_cut: bool = False) -> str:
        """Return foreign text with every secret replaced by ``***``, by value and by `redact`.

        `starts_cut` and `ends_cut`: it may begin or end within a secret, whose rest is then masked.
        """
        return redact(self.mask(text, starts_cut=starts_cut, ends_cut=ends_cut))

    def mask(self, text: str, *, starts_cut: bool = False, ends_cut: bool = False) -> str:
        """Do the part of `redact` that is by value, for text that is not foreign throughout.

        Found are the values as they are, with the escapes of JSON and of URLs, and in base64.
        """
        return _masked(text, self._marked(text, starts_cut=starts_cut, ends_cut=ends_cut))

    def _marked(self, text: str, *, starts_cut: bool = False, ends_cut: bool = False) -> bytearray:
        """A byte for each character, which is 1 within a secret; empty if there is none.

        A server may repeat a secret at each place: a list of places would take too much memory.
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
        """What `mask` makes of those texts, names and numbers of a JSON value that have secrets.

        All are searched as one text: for each of millions it would take too long.
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
        """Return what an error quotes of a text without secrets: of a long one the beginning."""
        return quote_text(text, partial(self.redact, ends_cut=len(text) > MOST_QUOTED))

    def shorten(self, text: str, limit: int) -> str:
        """Return `text` without secrets, and then its first `limit` characters."""
        return self.redact(text)[:limit]

    def clean(self, error: McpError) -> None:
        """Remove secrets from the message of an error that quotes a server, and from its causes.

        The text of an exception of others cannot be changed: if it, or one that a traceback shows
        with it, would show a secret or control characters of a server, or is too long to be
        searched, it is not kept as the cause.
        """
        one, seen = error, {id(error)}
        while True:
            if one.args and isinstance(one.args[0], str):
                one.args = (self.mask(one.args[0]), *one.args[1:])
            code = vars(one).get("error")
            if isinstance(code, str):  # that of an authorization server
                vars(one)["error"] = self.mask(code)
            cause = _shown_cause(one)
            if cause is None or id(cause) in seen or isinstance(one, InterceptorFailed):
                return  # an exception of the program's is shown as it is
            if not isinstance(cause, McpError):
                if not all(map(self._is_clean, _shown_with(cause))):
                    one.__cause__ = one.__context__ = None
                return
            seen.add(id(cause))
            one = cause

    def _is_clean(self, cause: BaseException) -> bool:
        if isinstance(cause, ValidationError) and cause.error_count() > MOST_PROBLEMS:
            return False  # a server may cause millions, and to look at each takes minutes
        text = str(cause)
        if len(text) > MOST_QUOTED:
            return False
        places: list[str] = []
        if isinstance(cause, ValidationError):  # its text has names of members in lines of its own
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
    """The names, texts and numbers of a JSON value, in any order."""
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
    """The exception that a traceback shows before `error`."""
    return error.__context__ if not error.__suppress_context__ else error.__cause__


def _shown_with(error: BaseException) -> list[BaseException]:
    """`error`, and the exceptions that its traceback shows as well."""
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
    """A header value, its words but for the scheme, what is behind a `=`, and Basic decoded."""
    yield value
    yield from _credentials(value)
    found = _SCHEME.fullmatch(value)
    for word in _WORDS.split(value if found is None else found[2]):
        yield word
        yield word.partition("=")[2].strip("\"'")


def _parts(value: str) -> list[tuple[str, str]]:
    """Names and texts of what stands within a variable and may be secret on its own."""
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
    """The strings of a JSON value, with the name of the member that they are in."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, name)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, key)


def _userinfo(url: str) -> str:
    """User and password of a URL; also if a character makes it invalid that has to be encoded."""
    with contextlib.suppress(ValueError):
        parts = split_url(url)
        if parts.hostname and parts.port != 0:
            return parts.netloc.rpartition("@")[0]
    found = url.partition("://")[2].rpartition("@")[0]
    return found if ":" in found else ""


def _credentials(value: str) -> Iterator[str]:
    """What is behind the scheme of an `Authorization` value; of Basic also user and password."""
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
    """A value as it stands in a text without escapes, in a form that was sent, and in base64."""
    yield value
    # A client's secret is encoded before it is sent (RFC 6749 §2.3.1), and so are many cookies.
    if "%" in value and len(plain := unquote(value)) >= SHORTEST:
        yield plain
    if " " in value:
        yield value.replace(" ", "+")
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) > _LONGEST_ENCODED:
        return
    # Within a longer text the first byte may be any of three of a group. Characters that other
    # bytes have a part in are left out.
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
    """Where `form` stands in `text`; occurrences that overlap or touch are one place."""
    length = len(form)
    start = text.find(form)
    while start >= 0:
        last = start
        # Not one by one: in a text of one letter there is one at each place.
        while (further := text.rfind(form, last + 1, last + 2 * length)) >= 0:
            last = further
        yield start, last + length
        start = text.find(form, last + length)


def _start_of_cut(text: str, form: str) -> int:
    """Where `text` ends with the beginning of `form`; -1 if with no more than may be shown."""
    anchor = form[: _SHOWN_AT_CUT + 1]
    start = text.find(anchor, max(0, len(text) - len(form)))
    for _ in range(_MOST_TRIED):
        if start < 0 or form.startswith(text[start:]):
            break
        start = text.find(anchor, start + 1)
    return start


def _end_of_cut(text: str, form: str) -> int:
    """Where the end of `form` ends with which `text` begins; -1 as above."""
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
    """Replace what is marked."""
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
