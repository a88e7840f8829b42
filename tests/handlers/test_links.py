"""Which URLs of a server may be shown, and the warnings about them."""

from __future__ import annotations

import pickle
import socket
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp import UsageError
from syncmcp.handlers.links import Link, UnsafeLink

ORDINARY = {
    **{
        f"https://example.com{more}": "example.com"
        for more in ("", "/a/b?c=d%20e#f", ":443/", "./", "/@user", "#@evil.com")
    },
    "HTTPS://Example.COM/Path": "example.com",
    "https://my_host.example.com/": "my_host.example.com",
    "https://example.com/?next=https://other.example@x": "example.com",
}


def test_an_ordinary_link_is_kept_and_asks_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("socket", "getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, lambda *_, **__: pytest.fail("the network was asked"))
    for url, host in ORDINARY.items():
        link = Link.read(url)
        assert (link.url, link.host, link.warnings) == (url, host, ())
        assert "".join(link.parts) == url
        assert link.parts[1].lower().rstrip(".") == host
    for authority, middle in (
        ("Example.com:8443", "Example.com"),
        ("[2001:db8::1]:8443", "[2001:db8::1]"),
        ("m\u00fcnchen.de", "m\u00fcnchen.de"),
    ):
        parts = Link.read(f"https://{authority}/x").parts
        assert parts[1] == middle  # an interface can highlight the host
        assert "".join(parts) == f"https://{authority}/x"


UNUSUAL = (
    *("127.1", "2130706433", "0x7f000001", "0177.0.0.1"),
    *("127.0.0.256", "1.2.3.4.5", "evil.com.0x1", "0x"),
)
IMPOSSIBLE = (
    *("[::1", "::1", "[]", "[::g]", "[v1.x]", "[1.2.3.4]", "[::1]x", "x[::1]", "a&b.com"),
    *("example.com:", "example.com:x", "example.com:-1", "example.com:80:80", "example.com:0"),
    *("example.com:65536", "example.com:999999", "example.com:\uff18\uff10", ".example.com"),
    *("a..b", "example.com..", "-a.com", "a-.com", "a,b", "a;b", "a$b", "a" * 64 + ".com"),
    *(".".join(["a" * 50] * 6), "\u00e9" * 60 + ".com"),
)
REFUSED: list[tuple[str, list[Any]]] = [
    ("not a string", [None, 5, b"https://example.com", ["https://example.com"]]),
    ("'javascript'", ["javascript:alert(1)", "JavaScript://example.com/%0aalert(1)"]),
    ("characters that URLs cannot contain", ["data:text/html,<b>"]),
    *(
        (f"'{url.partition(':')[0]}'", [url])
        for url in (
            *("data:text/html,hello", "file:///etc/passwd", "ws://localhost/"),
            *("blob:https://example.com/x", "view-source:https://example.com"),
            "mailto:a@example.com",
        )
    ),
    ("not a full URL", ["", "example.com", "//example.com/", "/path", "-https://example.com"]),
    ("no host", ["https:example.com", "https:/example.com", "https:///example.com", "https:"]),
    ("no host", ["https://", "https://?x", "https://:443/", "https://./"]),
    (
        "user name",
        [
            *("https://user@evil.example/", "https://user:password@evil.example/"),
            *("https://bank.example%40evil.example@x", "https://@evil.example/"),
            *("https://[::1]@evil.example/", "http://127.0.0.1@evil.example/"),
            "http://localhost:80@evil.example/",
        ],
    ),
    (
        "percent-encoded",
        [
            *(f"https://example.com{x}" for x in ("/\u00e9", "?q=\u05d0", "#\u0430", "/\u4e2d")),
            *("https://ex%61mple.com/", "https://example%2ecom/"),
            "https://evil.com%2f.example.com/",
        ],
    ),
    (
        "not encrypted",
        [
            *("http://example.com/", "http://127.0.0.1.evil.com", "http://localhost.evil.com/"),
            *("http://evil.com/?localhost", "http://evil.com#localhost", "http://notlocalhost/"),
            *("http://10.0.0.1/", "http://192.168.1.1/", "http://[::2]/"),
            *("http://[::ffff:10.0.0.1]/", "http://xn--lcalhost-54a/"),
        ],
    ),
    (
        "unusual notation",
        [f"{scheme}://{host}/" for scheme in ("http", "https") for host in UNUSUAL],
    ),
    ("network interface", [f"http://[{host}]/" for host in ("fe80::1%eth0", "::1%25lo")]),
    ("", [f"https://{authority}/" for authority in IMPOSSIBLE]),
]


@pytest.mark.parametrize(("reason", "urls"), REFUSED)
def test_what_is_no_safe_address_is_refused_with_the_reason(reason: str, urls: list[Any]) -> None:
    for url in urls:
        with pytest.raises(UnsafeLink) as caught:
            Link.read(url)
        assert reason in caught.value.reason
        assert caught.value.reason in str(caught.value)


STRANGE = (
    "\0\t\n\r\x1b\x7f\x85 \u00a0\u00ad\u200b\u200e\u202e\u2028\u2066\u3000\ufeff\ud800\U000e0041"
    '\\<>"`'
)


def test_control_invisible_and_strange_characters_are_refused_anywhere() -> None:
    example = "https://example.com/"
    for place in ("{}" + example, "https://exa{}mple.com/", example + "{}", "ht{}tps://a.b"):
        for character in STRANGE:
            with pytest.raises(UnsafeLink):
                Link.read(place.format(character))


LOCAL = "The address leads to a program on this computer."


def test_a_link_to_this_computer_says_so_and_may_be_unencrypted_if_its_name_is_certain() -> None:
    for host in (
        *("localhost", "LOCALHOST:3000", "localhost.", "127.0.0.1:8080", "127.9.8.7"),
        *("[::1]:3000", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]"),
    ):
        assert LOCAL in Link.read(f"https://{host}/callback?x=1").warnings
        assert Link.read(f"http://{host}/callback?x=1").warnings == (LOCAL,)
    for host in (
        *("foo.localhost", "a.b.LOCALHOST.", "localhost.localdomain", "ip6-localhost"),
        *("ip6-loopback", "0.0.0.0:8443", "[::]", "[::ffff:0.0.0.0]"),
    ):
        assert Link.read(f"https://{host}/").warnings == (LOCAL,)
        with pytest.raises(UnsafeLink, match="not encrypted"):
            Link.read(f"http://{host}/")


CYRILLIC = "several scripts: Cyrillic and Latin"


def test_a_host_beyond_ascii_is_shown_twice() -> None:
    apple, munich = "\u0430\u0440\u0440\u04cf\u0435.com", "m\u00fcnchen.de"
    paypal, google = "p\u0430ypal.com", "g\u03bf\u03bfgle.com"  # not all of their letters are Latin
    for host, ascii_form, words in (
        *(
            (host, "xn--mnchen-3ya.de", [f"reads '{munich}'"])
            for host in (munich, "M\u00dcNCHEN.de", "XN--MNCHEN-3YA.de")
        ),
        ("xn--80ak6aa92e.com", "xn--80ak6aa92e.com", ["can look like others", f"reads '{apple}'"]),
        *(
            (host, "xn--pypal-4ve.com", [f"reads '{paypal}'", CYRILLIC])
            for host in (paypal, "xn--pypal-4ve.com")
        ),
        (google, "xn--ggle-0nda.com", [f"reads '{google}'", "several scripts: Greek and Latin"]),
        # a mixture that resembles no other name
        ("ab\u0436.com", "xn--ab-rlc.com", [CYRILLIC]),
        (f"login.{paypal}", "login.xn--pypal-4ve.com", [f"reads 'login.{paypal}'", CYRILLIC]),
    ):
        link = Link.read(f"https://{host}/")
        assert link.host == ascii_form
        told = " ".join(link.warnings)
        assert [word for word in (ascii_form, *words) if word not in told] == []


def test_an_honest_name_in_another_script_gets_no_warning_but_its_spelling() -> None:
    for host in (
        "\u043f\u0440\u0438\u043c\u0435\u0440.\u0440\u0444",
        *("\u65e5\u672c\u3072\u3089.jp", "\ud55c\uad6d\u97d3.kr"),
    ):
        link = Link.read(f"https://{host}/")
        (warning,) = link.warnings
        assert link.host.isascii()
        assert host in warning


@pytest.mark.parametrize(
    "host",
    [
        *("\uff45xample.com", "ex\u2460.com"),  # full width, a number in a circle
        "a\u0301.com",  # decomposed
        *("example\u3002com", "example\u2024com"),  # other full stops
        *(f"{filler}example.com" for filler in "\u115f\u1160\u3164"),
        *("a\u034fb.com", "a\ufe0fb.com", "\u2044evil.com", "\U0001f600.com"),
        *("xn--", "xn--a", "xn--\u0430", "xn--google-.com", "xn--99999999.com"),
        *("xn--zzzzzzzz99999.com", "xn--a-ecp.ru"),
        *("\u212aelvin.com", "\u212a.com"),  # a sign that becomes the letter k
        *("xn---bbk.com", "p\u0430-.com"),  # a second spelling of xn--bbk
        "\u05d0a.com",  # from right to left, and from left to right
        "xn--" + "\u0915\u094d\u200d\u0937".encode("punycode").decode() + ".com",  # a joiner
    ],
)
def test_a_host_in_disguise_is_refused(host: str) -> None:
    with pytest.raises(UnsafeLink, match="host"):
        Link.read(f"https://{host}/")


def test_what_is_odd_about_a_link_is_told() -> None:
    for url, warning in {
        "https://192.0.2.1/": "The host is a bare address: 192.0.2.1.",
        "https://[2001:DB8:0::1]/": "The host is a bare address: 2001:db8::1.",
        "https://example.com:80/": "The address leads to an unusual port: 80.",
        "https://127.0.0.1.evil.com/": "127.0.0.1.evil.com",
        "https://localhost.evil.com/": "localhost.evil.com",
    }.items():
        (told,) = Link.read(url).warnings
        assert warning in told


def test_a_link_may_be_long_but_not_endless_and_a_hostile_one_is_refused_at_once() -> None:
    start = "https://example.com/"
    assert Link.read(start.ljust(8_192, "x")).url == start.ljust(8_192, "x")
    with pytest.raises(UnsafeLink, match="8192"):
        Link.read(start.ljust(8_193, "x"))
    for kind, url in HOSTILE.items():
        started = time.thread_time()
        with pytest.raises(UnsafeLink):
            Link.read(url)
        assert time.thread_time() - started < 5, kind


@given(
    url=st.builds(
        "{}{}{}".format,
        st.sampled_from(["https://", "http://", "https:", "https://xn--", ""]),
        st.text("abz019.-_:[]%@\u0430\u0435\u03bf\u00fc\u0301\u200b", max_size=20) | st.text(),
        st.sampled_from(["", "/", "?x", "#y", ":80/", "/\u00e9"]),
    )
)
def test_whatever_comes_is_a_link_that_shows_where_it_leads_or_unsafe(url: str) -> None:
    try:
        link = Link.read(url)
    except UnsafeLink as unsafe:
        assert unsafe.reason  # noqa: PT017 - not each URL is unsafe
        return
    assert link.url == url == "".join(link.parts)
    assert url.isprintable()
    assert link.host
    assert link.host.isascii()
    assert link.warnings or (url.isascii() and "xn--" not in link.host)


HOSTILE = {
    "dots": "https://" + "a." * 5_000_000,
    "brackets": "https://" + "[" * 8_000,
    "hyphens": "https://" + "a-" * 4_000,
    "marks": "https://" + "\u0301" * 8_000,
    "middle dots": "https://" + "\u30fb" * 8_000,  # IDNA compares each of them with all others
    "punycode": "https://xn--" + "z" * 8_000,
    "no scheme": "h" * 10_000_000,
    "percents": "https://example.com/" + "%" * 10_000_000,
}


def test_an_unsafe_link_is_a_usage_error_that_keeps_its_reason_when_pickled() -> None:
    with pytest.raises(UsageError) as caught:
        Link.read("ftp://example.com/")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, UnsafeLink)
    assert copy.reason == caught.value.__dict__["reason"]
