"""Which URLs of a server, and which of their addresses, are used. No test sends a DNS query."""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import AbortableExchange, ExchangeAborted
from syncmcp._http.url_guard import UnsafeUrl, UrlGuard
from syncmcp.auth.fetch import Driver
from syncmcp.auth.steps import HttpRequest
from syncmcp.errors import AuthError
from tests.support.stage import elsewhere
from tests.transports.socks_proxy import socks_proxy

WAIT = 20.0

PUBLIC = "https://mcp.example.com/mcp"
OWN = "http://127.0.0.1:8000/mcp"
HOME = "https://mcp.home.example/mcp"

NAMES = {
    "mcp.example.com": ["93.184.215.14", "2606:2800:21f:cb07::1"],
    "mcp.home.example": ["192.168.1.20"],
    "as.example.com": ["93.184.215.15"],
    "as.home.example": ["10.0.0.7", "fd00::7"],
    "localhost": ["127.0.0.1", "::1"],
}

PRIVATE_ADDRESSES = [
    "10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.0.1", "fd12:3456::1", "fec0::1",
    "100.64.0.1",  # shared by a provider's customers (CGNAT)
    "2002:0a00:0001::1",  # 6to4 of 10.0.0.1
    "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::10.0.0.1",
    "2001:db8::1", "198.18.0.1", "192.0.2.1",
]  # fmt: skip
LOOPBACK_ADDRESSES = ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"]
LINK_ADDRESSES = [
    "169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    # NAT64 of a local network, with a prefix of 48, 56, 64 and 96 bits.
    "64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:a9:fe:a9fe::", "64:ff9b:1:0:a9:fea9:fe00:0",
    "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:6464:64:c800::",
    # The metadata services of clouds at other addresses.
    "100.100.100.200", "::ffff:100.100.100.200", "64:ff9b::6464:64c8", "168.63.129.16",
    "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd00:c1::a9fe:a9fe", "fd20:ce::254",
    "fd00:42::42",
]  # fmt: skip
NOBODYS_ADDRESSES = [
    "0.0.0.0", "0.1.2.3", "::ffff:0.1.2.3", "::", "224.0.0.1", "239.255.255.250", "ff02::1",
    "240.0.0.1", "255.255.255.255", "::8", "::169.254.169.254", "::ffff:0:169.254.169.254",
]  # fmt: skip
HOME_ADDRESSES = PRIVATE_ADDRESSES + LOOPBACK_ADDRESSES
PUBLIC_ADDRESSES = ["93.184.215.14", "2606:2800::1", "64:ff9b::93.184.215.14", "2002:5db8:d70e::1"]


@pytest.fixture(autouse=True)
def no_name_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(host: str, *args: Any) -> Any:
        raise AssertionError(f"the system was asked for {host}")

    monkeypatch.setattr(socket, "getaddrinfo", ask)


def entry(address: str, port: int = 0) -> Any:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return (family, socket.SOCK_STREAM, 6, "", (address, port))


class Resolver:
    """A name service with some names, which stores the names that are looked up."""

    def __init__(self, **names: list[str]) -> None:
        self.names = {**NAMES, **{name.replace("_", "."): found for name, found in names.items()}}
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[Any]:
        self.asked.append(host)
        if host.replace(".", "").isdigit() or ":" in host:
            return [entry(host, port)]
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [entry(address, port) for address in self.names[host]]


def guard(server: str = PUBLIC, *, allow_private: bool = False, **names: list[str]) -> UrlGuard:
    made = UrlGuard(server, allow_private=allow_private, look_up=Resolver(**names))
    if server == HOME:
        made.record_peer(response_from("192.168.1.20"))
    return made


def addresses(judge: UrlGuard, url: str, host: str) -> list[str]:
    return [found[4][0] for found in judge.pin(url)(host, 443)]


def literal(address: str) -> str:
    return f"https://[{address}]/x" if ":" in address else f"https://{address}/x"


def refused(judge: UrlGuard, url: str) -> UnsafeUrl:
    with pytest.raises(UnsafeUrl) as caught:
        judge.check(url)
    return caught.value


def hidden(judge: UrlGuard, reason: str, scheme: str = "https") -> None:
    """Check that no address of the name `hidden.example` is used."""
    with pytest.raises(UnsafeUrl, match=reason):
        addresses(judge, f"{scheme}://hidden.example/", "hidden.example")


# --- the URL alone


@pytest.mark.requirement("SEC-02", "SEC-05", "ASC-02")
@pytest.mark.parametrize(
    ("server", "url", "host"),
    [
        (PUBLIC, "https://as.example.com/token?x=1", "as.example.com"),
        (PUBLIC, "HTTPS://AS.example.com:8443/t", "as.example.com"),
        (PUBLIC, "https://xn--bcher-kva.example/", "xn--bcher-kva.example"),
        (PUBLIC, "https://bücher.example/", "xn--bcher-kva.example"),
        (PUBLIC, "https://93.184.215.14/", "93.184.215.14"),
        (OWN, "http://127.0.0.1:9000/token", "127.0.0.1"),
        (OWN, "http://localhost:9000/token", "localhost"),
        (OWN, "http://[::1]:9000/token", "::1"),
    ],
)
def test_a_web_address_may_be_used(server: str, url: str, host: str) -> None:
    assert guard(server).check(url) == host


def refused_to_all(url: str, reason: str = "") -> None:
    for judge in (guard(PUBLIC), guard(OWN), guard(PUBLIC, allow_private=True)):
        found = refused(judge, url).reason
        assert found
        assert reason in found


SCHEMES = (
    "javascript:alert(1) JavaScript:alert(1) data:text/html,<script>alert(1)</script>"
    " file:///etc/passwd vbscript:msgbox(1) ftp://as.example.com/ ws://as.example.com/ about:blank"
    " ms-settings: x-apple.systempreferences: as.example.com/authorize //as.example.com/authorize"
    " /authorize -https://as.example.com"
)


@pytest.mark.requirement("SEC-03", "SEC-05")
@pytest.mark.parametrize("url", [*SCHEMES.split(), "java\tscript:alert(1)", ""])
def test_no_other_scheme_is_fetched_or_opened(url: str) -> None:
    refused_to_all(url)


AMBIGUOUS = (
    r"https://user@as.example.com/ https://user:word@as.example.com/"
    r" https://as.example.com\@evil.example/ https://as.example.com\.evil.example/"
    r" https://as%2eexample.com/ https://as.example.com:0/ https://as.example.com:99999/"
    r" https://as.example.com:8a/ https:///token https://[::1 https://[fe80::1%25eth0]/"
    r" https://as.example.com/ü"
)


@pytest.mark.requirement("SEC-05")
@pytest.mark.parametrize(
    "url",
    [
        *AMBIGUOUS.split(),
        *(
            f"https://as.example.com/{end}"
            for end in ("\r\nHost: evil.example", "\n", "\x00", " x")
        ),
        *(f"https://as.example.com/{end}" for end in ("\u202e", "x" * 9000)),
        " https://as.example.com/",
        "https://\uff11\uff12\uff17.0.0.1/",
        "https://127\u30020\u30020\u30021/",
    ],
)
def test_a_url_that_can_be_read_in_two_ways_is_refused(url: str) -> None:
    refused_to_all(url)


@pytest.mark.requirement("SEC-01", "SEC-05")
@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.1", "127.0.1", "017700000001"],
)
def test_an_address_in_another_notation_is_refused(host: str) -> None:
    refused_to_all(f"https://{host}/", "unusual notation")


@pytest.mark.requirement("SEC-02", "ASC-02")
@pytest.mark.parametrize(
    "url", ["http://as.example.com/", "http://93.184.215.14/", "http://10.0.0.1/"]
)
@pytest.mark.parametrize("server", [PUBLIC, OWN, HOME])
def test_plain_http_leads_to_this_computer_only(server: str, url: str) -> None:
    assert "not encrypted" in refused(guard(server), url).reason


@pytest.mark.requirement("SEC-01", "SEC-02")
def test_a_public_server_may_not_name_an_address_that_is_not_nor_a_name_that_leads_there() -> None:
    for address in [*HOME_ADDRESSES, *LINK_ADDRESSES, *NOBODYS_ADDRESSES]:
        assert "it leads to a" in refused(guard(PUBLIC), literal(address)).reason, address
        hidden(guard(PUBLIC, hidden_example=[address]), "it leads to a")


@pytest.mark.parametrize("server", [PUBLIC, OWN, HOME])
def test_everybody_may_name_a_public_address(server: str) -> None:
    for address in PUBLIC_ADDRESSES:
        guard(server).check(literal(address))


@pytest.mark.parametrize("server", [OWN, HOME, "https://localhost/mcp", "https://10.0.0.1/mcp"])
def test_a_server_at_home_may_name_others_there(server: str) -> None:
    for address in PRIVATE_ADDRESSES:
        guard(server).check(literal(address))


@pytest.mark.parametrize("address", LOOPBACK_ADDRESSES)
def test_only_a_server_of_this_computer_may_name_this_computer(address: str) -> None:
    for server in (OWN, "https://localhost/mcp"):
        guard(server).check(literal(address))
    for server in (HOME, "https://10.0.0.1/mcp", "https://[fd12:3456::1]/mcp"):
        for url in (literal(address), "http://localhost:80/"):
            assert "this computer" in refused(guard(server), url).reason
        hidden(guard(server, hidden_example=[address]), "this computer")
    moved = guard(OWN)
    moved.record_peer(response_from("10.0.0.1"))  # as if its name now led elsewhere
    assert "this computer" in refused(moved, literal(address)).reason


def test_the_user_can_allow_private_addresses() -> None:
    judge = guard(PUBLIC, allow_private=True)
    for address in HOME_ADDRESSES:
        judge.check(literal(address))
        judge.check(literal(address).replace("https:", "http:"))
    assert addresses(judge, "http://as.home.example/", "as.home.example")


@pytest.mark.requirement("SEC-01")
@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize("server", [PUBLIC, OWN, HOME, "https://169.254.1.2/mcp"])
def test_nobody_may_name_or_allow_cloud_metadata(server: str, allow: bool) -> None:
    for address in LINK_ADDRESSES:
        judge = guard(server, allow_private=allow, hidden_example=[address])
        for scheme in ("https", "http")[: 1 + allow]:
            error = refused(judge, literal(address).replace("https:", f"{scheme}:"))
            assert "local link" in error.reason, address
            assert "allow_private" not in error.reason
            hidden(judge, "local link", scheme)
    hidden(guard(server, hidden_example=["fe80::1%eth0"]), "local link")


@pytest.mark.requirement("SEC-01")
def test_nobody_may_name_or_allow_an_address_that_is_nobodys() -> None:
    for address in NOBODYS_ADDRESSES:
        for server, allow in ((OWN, False), (HOME, False), (PUBLIC, True)):
            judge = guard(server, allow_private=allow, hidden_example=[address])
            assert "reserved" in refused(judge, literal(address)).reason, address
            hidden(judge, "reserved")


@pytest.mark.parametrize(
    ("way", "url", "reason"),
    [
        ("check", "http://x.example/", "it is not encrypted: http is for this computer only"),
        ("check", "https://10.0.0.1/", "an address of a private network"),
        ("allowed", "http://93.184.215.14/", "it is not encrypted, and leads to a public address"),
        ("allowed", "https://169.254.1.2/", "an address of the local link or of cloud metadata"),
        ("page", "http://unknown.example/", "it is not encrypted, and its address is unknown"),
        ("page", "http://as.example.com/", "it is not encrypted, and leads to a public address"),
        ("pin", "http://localhost/", "the name of this computer leads to a public address"),
        ("pin", "http://as.example.com/", "it is not encrypted, and leads to a public address"),
    ],
)
def test_the_error_names_the_url_and_what_is_wrong_with_it(way: str, url: str, reason: str) -> None:
    judge = guard(allow_private=way != "check", localhost=["93.184.215.14"])
    ways: dict[str, Callable[[str], object]] = {
        "page": judge.check_page,
        "pin": lambda url: addresses(judge, url, urlsplit(url).hostname or ""),
    }
    if reason.startswith("an address"):
        reason = f"it leads to {reason}"
        reason += " (allow_private allows it)" if way == "check" else ""
    with pytest.raises(UnsafeUrl) as caught:
        ways.get(way, judge.check)(url)
    assert caught.value.reason == reason
    assert caught.value.message == f"the client refuses to use a URL: {reason}: '{url}'"


def test_a_long_url_is_left_out_of_the_error() -> None:
    url = f"https://10.0.0.1/{'x' * 183}"
    assert refused(guard(), url).message.endswith(f": '{url}'")
    assert refused(guard(), f"{url}x").message.endswith("): (too long to be shown)")


def test_the_error_is_one_of_signing_in_and_keeps_its_facts() -> None:
    error = refused(guard(PUBLIC), "https://10.0.0.1/x?code=canary-58ac21\u202e")
    assert isinstance(error, AuthError)
    assert error.delivery == "not_sent"
    assert "canary-58ac21" not in str(error)
    assert str(error).isascii()
    again = pickle.loads(pickle.dumps(error))
    assert (again.reason, str(again)) == (error.reason, str(error))


# --- the addresses of a name


@pytest.mark.requirement("SEC-01")
def test_only_the_addresses_that_may_be_used_are_handed_out() -> None:
    judge = guard(PUBLIC, mixed_example=["10.0.0.1", "93.184.215.14", "169.254.169.254"])
    assert addresses(judge, "https://mixed.example/", "mixed.example") == ["93.184.215.14"]
    found = addresses(guard(HOME), "https://as.home.example/", "as.home.example")
    assert found == NAMES["as.home.example"]  # allowed for a server in a private network


@pytest.mark.requirement("SEC-01")
def test_a_name_is_looked_up_at_each_use_and_judged_at_each() -> None:
    resolver = Resolver()
    judge = UrlGuard(PUBLIC, look_up=resolver)
    url = "https://as.example.com/"
    assert addresses(judge, url, "as.example.com") == ["93.184.215.15"]
    resolver.names["as.example.com"] = ["127.0.0.1"]
    with pytest.raises(UnsafeUrl, match="this computer"):
        addresses(judge, url, "as.example.com")


@pytest.mark.requirement("SEC-02")
def test_a_server_whose_name_led_to_a_public_address_once_stays_public() -> None:
    judge = guard("https://AS.example.com/mcp", hidden_example=["10.0.0.5"])
    assert addresses(judge, "https://as.example.com/mcp", "as.example.com")
    hidden(judge, "private network")


def test_only_its_own_name_makes_a_server_public() -> None:
    judge = guard(HOME, mcp_home_example=["93.184.215.14"], hidden_example=["10.0.0.5"])
    assert addresses(judge, "https://as.example.com/", "as.example.com")
    assert addresses(judge, "https://hidden.example/", "hidden.example") == ["10.0.0.5"]
    assert addresses(judge, HOME, "mcp.home.example") == ["93.184.215.14"]
    hidden(judge, "private network")


def test_a_dot_at_the_end_of_a_host_makes_no_other_server() -> None:
    assert guard("https://mcp.example.com./mcp").is_own(PUBLIC)
    assert not guard(PUBLIC).is_own("https://mcp.example.com:8443/mcp")


@pytest.mark.requirement("SEC-02", "ASC-02")
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        *((literal(address).replace("https:", "http:"), "public") for address in PUBLIC_ADDRESSES),
        ("http://as.example.com/authorize", "public"),
        ("http://mixed.example/authorize", "public"),
        ("http://link.example/authorize", "local link"),
        ("http://unknown.example/authorize", "is unknown"),
        ("http://as.home.example/authorize", None),
        ("http://10.0.0.1/authorize", None),
        ("http://localhost:8000/authorize", None),
        ("https://as.example.com/authorize", None),
        ("https://unknown.example/authorize", None),
    ],
)
def test_a_page_to_sign_in_at_is_encrypted_or_at_home(url: str, reason: str | None) -> None:
    judge = guard(
        PUBLIC,
        allow_private=True,
        mixed_example=["10.0.0.1", "93.184.215.14"],
        link_example=["169.254.169.254"],
    )
    if reason is None:
        judge.check_page(url)
        return
    with pytest.raises(UnsafeUrl, match=f"not encrypted.*{reason}"):
        judge.check_page(url)


def test_an_abort_ends_the_look_up_of_a_page() -> None:
    asked, answer = threading.Event(), threading.Event()

    def slow(host: str, port: int) -> list[Any]:
        asked.set()
        answer.wait(WAIT)
        return [entry("10.0.0.1")]

    judge = UrlGuard(PUBLIC, allow_private=True, look_up=slow)

    def check() -> None:
        with exchange:
            judge.check_page("http://slow.example/")

    exchange = AbortableExchange(Deadline(WAIT))
    checking = elsewhere(check)
    assert asked.wait(WAIT)
    exchange.abort()
    assert type(checking.exception(WAIT)) is ExchangeAborted
    answer.set()


@pytest.mark.requirement("SEC-01")
def test_an_address_that_cannot_be_read_is_refused_and_an_unknown_name_left_alone() -> None:
    with pytest.raises(UnsafeUrl):
        addresses(guard(PUBLIC, odd_example=["nonsense"]), "https://odd.example/", "odd.example")
    with pytest.raises(socket.gaierror):
        addresses(guard(PUBLIC), "https://unknown.example/", "unknown.example")


# --- the location of the server


def response_from(address: str | None) -> Any:
    return SimpleNamespace(raw=SimpleNamespace(connection=SimpleNamespace(peer=address)))


@pytest.mark.requirement("SEC-01")
@pytest.mark.parametrize("server", [PUBLIC, "http://mcp.example.com/mcp", "https://no.example/"])
def test_no_look_up_tells_that_a_server_is_at_home(server: str) -> None:
    """DNS may return one address for the request, and another one for the guard."""
    name = urlsplit(server).hostname or ""
    for address in HOME_ADDRESSES:
        judge = guard(server, mcp_example_com=[address], hidden_example=[address])
        with contextlib.suppress(socket.gaierror, UnsafeUrl):
            addresses(judge, f"https://{name}/metadata", name)
        hidden(judge, "it leads to a")
        refused(judge, literal(address))


@pytest.mark.requirement("SEC-01")
def test_the_origin_that_the_user_chose_may_be_at_home() -> None:
    judge = UrlGuard(HOME, look_up=Resolver())
    found = addresses(judge, "https://mcp.home.example:443/metadata", "mcp.home.example")
    assert found == NAMES["mcp.home.example"]
    for other in ("https://mcp.home.example:8443/", "https://as.home.example/"):
        with pytest.raises(UnsafeUrl, match="private network"):
            addresses(judge, other, urlsplit(other).hostname or "")


@pytest.mark.requirement("SEC-01")
def test_a_server_is_where_it_was_met() -> None:
    judge = guard(HOME)
    judge.record_peer(response_from("93.184.215.14"))
    assert "private" in refused(judge, "https://10.0.0.1/").reason  # the public address counts
    judge = guard("https://only.proxied.example/mcp")
    judge.record_peer(response_from("192.168.1.20"))
    judge.record_peer(response_from(None))
    judge.record_peer(SimpleNamespace(raw=None))  # type: ignore[arg-type]
    judge.check("https://10.0.0.1/")


@pytest.mark.requirement("SEC-01", "SEC-02")
@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/token", "https://127.0.0.1/token", "http://10.0.0.1/token"]
)
def test_no_proxy_is_asked_for_an_address_that_the_guard_refuses(url: str) -> None:
    with socks_proxy(1) as proxy, requests.Session() as session:
        session.proxies = {"http": proxy.url, "https": proxy.url}
        judge = UrlGuard(PUBLIC, look_up=lambda *_: [entry("93.184.215.14", 443)])
        driver = Driver(judge, session=session)
        with pytest.raises(UnsafeUrl):
            driver.fetch(HttpRequest("GET", url, {}))
        driver.close()
    assert proxy.asked == []
