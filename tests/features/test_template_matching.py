"""Matching URIs with templates: which URIs match, and the values of their variables."""

from __future__ import annotations

import re
import string
import time
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from syncmcp.errors import UsageError
from syncmcp.templates import UriTemplate

pytestmark = pytest.mark.requirement("M-11")

# A template, a URI, and the values of the variables.
VALUES = """
    acme://a/{x} acme://a/b x=b   acme://a/{x} acme://a/ x=   acme://a/{x} acme://a/%c3%a9 x=é
    acme://a/{x}.json acme://a/b.json.json x=b.json   a/{x}a a/a x=   a/{x}%41 a/b%41 x=b
    {x}/{y} a/b x=a y=b   {x}.v/w-{y}-z a.v/w-b-z x=a y=b   file:///{+path} file:///50%25 path=50%25
    {x}/b/{+y} a/b/c/b/d x=a y=c/b/d   {x}/b/{+y} a/b/ x=a y=   a/{+x}/info a/b/info/info x=b/info
    a{?x,y} a?x=1&y=2 x=1 y=2   a{?x,y} a?y= y=   a{?x,y} a   a{?x,xy} a?xy=2 xy=2
    a{?%c3%a9} a?%c3%a9=1 %c3%a9=1   a?z=1/{x}{?y} a?z=1/b?y=%26 x=b y=&   a/{x}{?q} a/b?q=c x=b q=c
    a/{x}.json{?q} a/b.json?q=c x=b q=c   %41{x} %41b x=b   %c3%a9{x} éb x=b   a a
"""
# A template, and URIs that do not match. ("41" ends an escape there, so no value can end before.)
NONE = """
    acme://a/{x} acme://a/b/c acme://b/c acme://a/%ff acme://a/%f
    acme://a/{x}.json acme://a/b.txt acme://a/json   a{x}a a   a/{x}41 a/b%41   a/{x}1 a/b%41
    a/{+x}41 a/b%41   {x}/{y} a/b/c   {x}.v/w-{y}-z a/w-b-z   file:///{+path} file:///%ff file:///%f
    a/{+x}/info a/b?c#d/info a/info   a{?x,y} a?y=1&x=2 a&x=1 a?x=1?y=2 a?x=1=2 a?x a? a?x=1&
    a{?x} a?x=1&z=2   a{?x.y} a?x_y=1   a/{x}.json{?q} a/b?q=c.json   a b
"""


def rows(table: str) -> list[list[str]]:
    return [row.split() for row in re.split(r"\n *|   ", table.strip())]


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        *(
            (one, uri, dict(word.split("=", 1) for word in values))
            for one, uri, *values in rows(VALUES)
        ),
        *(("acme://a/{x}", f"acme://a/New{gap}York", {"x": "New York"}) for gap in ("%20", " ")),
        ("file:///{+path}", "file:///a%20b/c%2Fd", {"path": "a b/c%2Fd"}),
        ("", "", {}),
    ],
)
def test_a_uri_tells_its_values(template: str, uri: str, values: dict[str, str]) -> None:
    read = UriTemplate(template)
    assert read.ambiguity is None
    assert read.match(uri) == values


@pytest.mark.parametrize(("template", "uris"), [(one, uris) for one, *uris in rows(NONE)])
def test_another_uri_has_none(template: str, uris: list[str]) -> None:
    read = UriTemplate(template)
    assert read.ambiguity is None
    assert [read.match(uri) for uri in uris] == [None] * len(uris)


@pytest.mark.parametrize(
    ("templates", "words"),
    [
        (["{x}{y}", "{x}-{y}", "{x}%2F{y}", "{x}{+y}"], "the end of 'x' is ambiguous"),
        (["{+x}/{y}", "{+x}/{+y}", "{+x}{?q}"], "the end of 'x' is ambiguous"),
        (["{x}/{y}{z}"], "the end of 'y' is ambiguous"),
        (["{?x}/y", "{?x}{?y}"], "'{?x}' must be at its end"),
        (["{x}/{x}", "{x}{?x}", "{?x,x}", "{?%2f,%2F}"], "it uses a variable twice"),
        (["{x:3}", "{+x:3}", "{x*}", "{?x*}", "{x,y}", "{+x,y}"], "can be matched, not '{}'"),
        (["{/x}", "{.x}", "{;x}", "{#x}"], "can be matched, not '{}'"),
        (["a?b=c{&x}"], "can be matched, not '{&x}'"),
    ],
)
def test_a_template_whose_uris_do_not_tell_says_so(templates: list[str], words: str) -> None:
    for template in templates:
        read, told = UriTemplate(template), words.replace("{}", template)
        assert told in (read.ambiguity or "")
        with pytest.raises(UsageError, match=re.escape(told)):
            read.match("a")


NAMES = [one + two for one in string.ascii_letters for two in string.ascii_letters]
# Each template has about the maximum length.
QUERY = f"{{?{','.join(NAMES[:1_364])}}}"
SEGMENTS = "".join(f"{{{name}}}/" for name in NAMES[:819])
TAILS = "".join(f"{{{name}}}a/" for name in NAMES[:682])
TAIL = f"{'a' * 4_000}b"
FULL_QUERY = "?" + "&".join(f"{name}={'a' * 40}" for name in NAMES[:1_364])


LARGE = {
    "a long last segment": (SEGMENTS, "a/" * 800 + "a" * 60_000),
    "escapes": (SEGMENTS, "%41" * 21_845),
    "tails": (TAILS, "aa/" * 21_845),
    "a query that goes on": (QUERY, f"{FULL_QUERY}!"),
    "a long value": (QUERY, f"?aa={'a' * 65_000}!"),
    "one name again": (QUERY, "?aa=&" + "aa=&" * 16_000),
    "question marks": (QUERY, "?" * 65_536),
    "a tail": (f"{{x}}{TAIL}", "a" * 65_536),
    "a tail and a query": (f"{{x}}{TAIL}{{?q}}", "a" * 65_000 + "?q=b"),
    "a raw value": (f"{{+x}}/{TAIL}", "/" + "a" * 65_535),
}


@pytest.mark.parametrize(("template", "uri"), LARGE.values(), ids=LARGE)
def test_a_hostile_template_or_uri_is_read_in_linear_time(template: str, uri: str) -> None:
    read = UriTemplate(template)
    assert read.match("#") is None  # compiles the pattern before the measurement
    assert len(uri) <= 65_536
    started = time.thread_time()
    assert read.match(uri) is None
    assert time.thread_time() - started < 0.5


def test_what_is_no_uri_or_endless_is_not_read() -> None:
    template = UriTemplate("a/{x}")
    assert template.match("a/\ud800") is None
    assert UriTemplate("a\ud800{?x}").expand({"x": "b"}) == "a%ED%A0%80?x=b"
    assert template.match("a/" + "b" * 65_534) == {"x": "b" * 65_534}
    assert template.match("a/" + "b" * 65_535) is None
    for wrong in (None, b"a/b", 1):
        with pytest.raises(UsageError, match="uri must be a string"):
            template.match(wrong)  # type: ignore[arg-type]


any_text = st.text(max_size=6)
literals = ("/", "/x", "x/", "?", "-", ".", "41", "%41", "\u00e9")
readable = ("{a}", "{c}", "{+b}", "{?a,c}", "{?d,e}")


@given(
    st.lists(st.sampled_from([*readable, *literals]), max_size=6),
    st.fixed_dictionaries(
        # Escapes in a value of `{+b}` are not decoded.
        {"a": any_text, "b": any_text.filter(lambda text: "%" not in text), "c": any_text},
        optional={"d": any_text, "e": any_text},
    ),
)
def test_what_a_readable_template_gives_is_read(parts: list[str], values: dict[str, str]) -> None:
    template = UriTemplate("".join(parts))
    assume(template.ambiguity is None)
    values = {name: value for name, value in values.items() if name in template.variables}
    free = template.variables
    assert template.match(template.expand(values, unchecked=free), unchecked=free) == values


ELSEWHERE = {
    "https://example.org{+x}": [
        *("https://example.org.evil.com/a", "https://example.org@evil.com/a"),
        *("https://example.org:80/a", "https://example.org/a?b=c", "https://example.org/a#b"),
        "https://example.org\\@evil.com",
    ],
    "file:///{+x}": ["file:///a/../b", "file:///a/%2E%2E/b", "file:///a%0Ab"],
    "file:///a/{x}": ["file:///a/..", "file:///a/%2e."],
    "/{x}/a": ["//a"],
    "fetch:{+x}": ["fetch:https://example.org/"],
}


@pytest.mark.parametrize(
    ("text", "uri", "values"),
    [
        ("https://example.org{+x}", "https://example.org/a/b", {"x": "/a/b"}),
        ("https://example.org{+x}", "https://example.org", {"x": ""}),
        *((text, uri, None) for text, uris in ELSEWHERE.items() for uri in uris),
    ],
)
def test_refused_values_are_not_read(text: str, uri: str, values: dict[str, str] | None) -> None:
    template = UriTemplate(text)
    assert template.match(uri) == values
    assert template.match(uri, unchecked="x") is not None
    with pytest.raises(UsageError, match="no variable 'y'"):
        template.match(uri, unchecked=["y"])


# Delimiters of the parts of a URI, and characters that parsers may take for them.
nasty = st.lists(
    st.sampled_from(
        [*"/?#@:.\\[];=&,% \t\n", "//", "..", "evil.com", "a", "%2F", "%40", "\uff0f", "é"]
    ),
    max_size=5,
).map("".join)


@given(
    st.sampled_from(["{+x}{y}", "/a{+x}/{y}", "{/x,y}", "{/x*}{+y}", "{+x}{+y}", "/{x}{y}/a"]),
    nasty,
    nasty,
)
def test_what_is_expanded_is_read_as_its_template_by_anybody(text: str, x: str, y: str) -> None:
    template = UriTemplate(f"https://example.org{text}")
    with suppress(UsageError):
        uri = template.expand({"x": x, "y": y})
        parts = urlsplit(uri)
        assert (parts.scheme, parts.netloc) == ("https", "example.org")
        assert (parts.query, parts.fragment) == ("", "")
        assert set("?#\\").isdisjoint(uri)
        assert {".", ".."}.isdisjoint(parts.path.replace("%2E", ".").replace("%2e", ".").split("/"))
        if template.ambiguity is None:
            assert template.match(uri) == {"x": x, "y": y}
