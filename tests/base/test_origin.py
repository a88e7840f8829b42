"""URLs are taken apart in bounded time, whatever a server writes."""

from __future__ import annotations

import time
from functools import partial
from urllib.parse import urljoin, urlsplit

import pytest

from syncmcp._base.origin import LONGEST_HOST, join_url, origin_of, split_url

# Each is sorted in among those before it when it is normalized: so many take seconds.
MARKS = "\u0301\u0316" * 30_000
LONGEST = "\u00e9" * LONGEST_HOST


@pytest.mark.parametrize(
    "url",
    [
        f"https://a{MARKS}/mcp",
        f"https://a{MARKS}",
        f"https://user:{MARKS}@a:8080/mcp",
        f"//a{MARKS}?query",
        f" \n\x00https:/\t/a{MARKS}#fragment",
    ],
    ids=["host", "host alone", "user", "without a scheme", "with white space"],
)
def test_a_long_host_beyond_ascii_is_refused_before_it_is_normalized(url: str) -> None:
    before = time.process_time()
    for parse in (
        split_url,
        origin_of,
        partial(join_url, url),
        partial(join_url, "https://example.com/"),
    ):
        with pytest.raises(ValueError, match="its host name is too long"):
            parse(url)
    assert time.process_time() - before < 0.5


@pytest.mark.parametrize(
    "url",
    [
        f"https://example.com/{MARKS}?{MARKS}#{MARKS}",
        f"https://user:{'p' * 1000}@example.com/caf\u00e9",
        f"https://{'a' * 1000}/caf\u00e9",
        f"https://{LONGEST}/",
        f"urn:{MARKS}",
        f"{MARKS}://a",
        "https://b\u00fccher.example:8080/",
        "caf\u00e9",
        "",
    ],
    ids=["path", "user", "long ASCII", "longest", "urn", "scheme", "short", "relative", "empty"],
)
def test_any_other_url_is_split_and_joined_as_ever(url: str) -> None:
    assert split_url(url) == urlsplit(url)
    assert join_url("https://example.com/a/b", url) == urljoin("https://example.com/a/b", url)
