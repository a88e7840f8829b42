"""The requests of signing in: contents, limits, redirects, addresses and failures."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from syncmcp._http.url_guard import UnsafeUrl, UrlGuard
from syncmcp.auth.fetch import Driver
from syncmcp.auth.steps import HttpRequest, HttpResponse
from syncmcp.errors import AuthError, ConnectFailed, UsageError
from tests.support.parts import Exchange, aborted, was_aborted
from tests.support.programs import running
from tests.support.stage import elsewhere
from tests.transports import certificates
from tests.transports.http_peer import RawServer, Request, Script, serving

WAIT = 20.0
SECRET = "canary-9c1f3e7a"
OWN = "http://127.0.0.1:1/mcp"
PUBLIC = "https://mcp.example.com/mcp"


def found(address: str, port: int) -> Any:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))


class Resolver:
    """Resolves names to `answers` (default: this computer), except that of the public server."""

    def __init__(self, *answers: str) -> None:
        self.asked: list[str] = []
        self._answers = answers or ("127.0.0.1",)

    def __call__(self, host: str, port: int) -> list[Any]:
        self.asked.append(host)
        if host == "mcp.example.com":
            return [found("93.184.215.14", port)]
        if host.replace(".", "").isdigit():
            return [found(host, port)]
        return [found(address, port) for address in self._answers]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(autouse=True)
def no_name_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that resolves a name with the system, which would send packets."""
    original = socket.getaddrinfo

    def ask(host: str, *args: Any, **named: Any) -> Any:
        assert host == "127.0.0.1"
        return original(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", ask)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.make(tmp_path_factory.mktemp("papers"))


@contextmanager
def driver(guard: UrlGuard | None = None, **options: Any) -> Iterator[Driver]:
    made = Driver(guard or UrlGuard(OWN), **options)
    try:
        yield made
    finally:
        made.close()


def get(url: str, **headers: str) -> HttpRequest:
    return HttpRequest("GET", url, headers)


def post(url: str, body: bytes = b"code=x") -> HttpRequest:
    return HttpRequest("POST", url, {"Content-Type": "application/x-www-form-urlencoded"}, body)


def answering(one: Request) -> None:
    one.connection.json({"path": one.path})


def here(server: RawServer, path: str = "/x") -> str:
    return server.url.replace("/mcp", path)


def fetching(made: Driver, request: HttpRequest) -> tuple[Exchange, Future[HttpResponse]]:
    """Fetch on another thread, in an exchange."""
    exchange = Exchange()

    def run() -> HttpResponse:
        with exchange:
            return made.fetch(request)

    return exchange, elsewhere(run)


# --- requests and responses


def test_requests_go_as_they_are_and_answers_come_whole_with_names_in_lower_case() -> None:
    with serving(answering) as server, driver() as made:
        fetched = made.fetch(get(here(server, "/meta?a=b")))
        made.fetch(post(here(server), b"a=1&b=%20"))
    assert fetched.status == 200
    assert fetched.body == b'{"path": "/meta?a=b"}'
    assert fetched.headers["content-type"] == "application/json"
    asked, posted = server.requests
    assert asked.headers["accept"] == "application/json"
    assert asked.headers["user-agent"].startswith("syncmcp")
    assert (posted.method, posted.body) == ("POST", b"a=1&b=%20")
    assert posted.headers["content-type"] == "application/x-www-form-urlencoded"


def test_nothing_of_the_program_s_session_or_netrc_goes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password word\n")
    monkeypatch.setenv("NETRC", str(netrc))
    session = requests.Session()
    session.headers["X-Mine"] = "1"
    session.auth = ("user", "word")
    session.params = {"mine": "1"}
    session.cookies.set("mine", "1", domain="127.0.0.1")

    def script(one: Request) -> None:
        one.connection.json({}, headers={"Set-Cookie": "theirs=1; Path=/"})

    with session, serving(script) as server, driver(session=session) as made:
        for _ in range(2):
            made.fetch(get(here(server)))
    assert len(server.requests) == 2
    for one in server.requests:
        assert one.path == "/x"
        assert not {"authorization", "cookie", "x-mine"} & set(one.headers)
    assert [cookie.name for cookie in session.cookies] == ["mine"]


def test_a_header_that_would_begin_another_is_not_sent() -> None:
    with serving(answering) as server, driver() as made:
        with pytest.raises(UsageError) as caught:
            made.fetch(get(here(server), Authorization=f"Basic {SECRET}\r\nX: y"))
        assert SECRET not in str(caught.value)
    assert server.requests == []


def test_one_connection_serves_a_flow_and_closing_is_no_end() -> None:
    with serving(answering) as server, driver() as made:
        made.fetch(get(here(server)))
        made.fetch(post(here(server)))
        assert len(server.connections) == 1
        made.close()
        assert server.connection(0).ended.wait(WAIT)
        assert made.fetch(get(here(server))).status == 200
        assert len(server.connections) == 2


def test_closing_disturbs_no_request_of_another_thread() -> None:
    asked, answer = threading.Event(), threading.Event()

    def script(one: Request) -> None:
        asked.set()
        assert answer.wait(WAIT)
        one.connection.json({})

    with serving(script) as server, driver() as made:
        _, other = fetching(made, get(here(server)))
        assert asked.wait(WAIT)
        made.close()
        answer.set()
        assert other.result(WAIT).status == 200


def test_a_fork_in_the_middle_of_a_login_takes_no_connection_along() -> None:
    code = """
import warnings
from syncmcp._http.url_guard import UrlGuard
from syncmcp.auth.fetch import Driver
from syncmcp.auth.steps import HttpRequest

warnings.simplefilter("ignore", DeprecationWarning)  # forking a program with threads
request = HttpRequest("GET", URL)
driver = Driver(UrlGuard(URL))

def one():
    yield request

def two():
    yield request
    if os.fork() == 0:
        try:
            driver.run(one())
        finally:
            os._exit(0)
    os.wait()
    yield request

driver.run(two())
"""
    with serving(answering) as server:
        with running(f"URL = {here(server)!r}\n{code}") as program:
            assert program.end() == (0, "", "")
        assert [one.connection.number for one in server.requests] == [0, 1, 0]


# --- limits


def announced(one: Request) -> None:
    one.connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    one.connection.wait_for_end()


def endless(one: Request) -> None:
    one.connection.start_events()
    while one.connection.sock.fileno() >= 0 and not one.connection.ended.is_set():
        try:
            one.connection.sock.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        except OSError:
            return


def packed(one: Request) -> None:
    body = gzip.compress(bytes(1_000_000))
    assert len(body) < 4096
    one.connection.respond(200, body, {"Content-Encoding": "gzip"})


@pytest.mark.requirement("SEC-01")
@pytest.mark.parametrize("script", [announced, endless, packed])
def test_a_body_has_a_limit_after_decoding(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp.auth.fetch._LIMIT", 4096)
    with serving(script) as server, driver() as made:
        with pytest.raises(AuthError, match="longer than 4096 bytes") as caught:
            made.fetch(get(here(server)))
        assert caught.value.delivery == "not_sent"
        if script is not packed:
            assert server.connection(0).ended.wait(WAIT)


def test_a_body_as_long_as_the_limit_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp.auth.fetch._LIMIT", 4096)
    respond = lambda one: one.connection.respond(200, bytes(4096))  # noqa: E731
    with serving(respond) as server, driver() as made:
        assert len(made.fetch(get(here(server))).body) == 4096


def silent(one: Request) -> None:
    one.connection.wait_for_end()


def test_a_cut_ends_the_request_and_its_connection_and_a_later_one_begins_none() -> None:
    reached = threading.Event()

    def telling(one: Request) -> None:
        reached.set()
        silent(one)

    with serving(telling) as server, driver() as made:
        exchange, cut = fetching(made, get(here(server)))
        assert reached.wait(WAIT)
        exchange.abort()
        assert was_aborted(cut.exception(WAIT))
        assert server.connection(0).ended.wait(WAIT)
        with exchange, aborted():
            made.fetch(get(here(server)))
        assert len(server.connections) == 1


# --- redirects


def redirecting(status: int, location: Callable[[Request], str], name: str = "Location") -> Script:
    def script(one: Request) -> None:
        if one.path == "/end":
            one.connection.json({"path": "/end"})
        else:
            one.connection.respond(status, b"", {name: location(one)})

    return script


@pytest.mark.requirement("HTM-07")
@pytest.mark.parametrize(
    ("status", "location", "name"),
    [(308, "end", "lOCATION"), *((status, "/end", "Location") for status in (301, 302, 303, 307))],
)
def test_a_get_follows_a_redirect_on_its_own_server(status: int, location: str, name: str) -> None:
    with serving(redirecting(status, lambda one: location, name)) as server, driver() as made:
        fetched = made.fetch(get(here(server), **{"MCP-Protocol-Version": "2025-03-26"}))
    assert fetched.body == b'{"path": "/end"}'
    assert server.requests[1].headers["mcp-protocol-version"] == "2025-03-26"


def test_five_redirects_are_followed_and_the_sixth_is_the_answer() -> None:
    with serving(redirecting(302, lambda one: f"{one.path}x")) as server, driver() as made:
        fetched = made.fetch(get(here(server, "/")))
    assert [one.path for one in server.requests] == [f"/{'x' * number}" for number in range(6)]
    assert (fetched.status, fetched.headers["location"]) == (302, "/xxxxxx")


@pytest.mark.requirement("SEC-02")
@pytest.mark.parametrize(
    ("status", "secret"),
    [
        *((status, None) for status in (301, 302, 303, 307, 308)),
        *((302, name) for name in ("Authorization", "DPoP", "cookie")),
    ],
)
def test_neither_a_post_nor_a_get_with_a_secret_follows_a_redirect(
    status: int, secret: str | None
) -> None:
    with serving(redirecting(status, lambda one: "/end")) as server, driver() as made:
        place = here(server)
        request = get(place, **{secret: SECRET}) if secret else post(place)
        assert made.fetch(request).status == status
    assert [one.method for one in server.requests] == ["GET" if secret else "POST"]


@pytest.mark.requirement("SEC-02")
def test_a_redirect_to_another_server_is_not_followed() -> None:
    with serving(answering) as other:
        script = redirecting(302, lambda one: here(other, "/end"))
        with serving(script) as server, driver() as made:
            assert made.fetch(get(here(server))).status == 302
    assert other.connections == []


@pytest.mark.requirement("SEC-01", "SEC-02", "SEC-05")
@pytest.mark.parametrize(
    "location",
    [
        *("https://169.254.169.254/latest", "https://as.example.com/", "https://[::1"),
        *("https://as.example.com:x/", "file:///etc/passwd"),
        *("https://user@127.0.0.1/", "https://0x7f000001/"),
    ],
)
def test_a_redirect_that_the_guard_refuses_is_the_answer(location: str) -> None:
    guard = UrlGuard(OWN, look_up=Resolver("169.254.169.254"))
    with serving(redirecting(302, lambda one: location)) as server, driver(guard) as made:
        fetched = made.fetch(get(here(server)))
    assert (fetched.status, fetched.headers["location"]) == (302, location)


# --- the addresses


@pytest.mark.requirement("SEC-01", "SEC-02")
@pytest.mark.parametrize("host", ["127.0.0.1", "LOCALHOST.", "as.example.com"])
def test_a_public_server_does_not_make_us_reach_this_computer(host: str) -> None:
    resolver = Resolver()
    with serving(answering) as server:
        with (
            driver(UrlGuard(PUBLIC, look_up=resolver)) as made,
            pytest.raises(UnsafeUrl, match="this computer"),
        ):
            made.fetch(get(f"https://{host}:{server.port}/"))
        assert server.connections == []
    # Only a name needs the resolver, which maps it to this computer.
    assert resolver.asked == (["as.example.com"] if host == "as.example.com" else [])


@pytest.mark.requirement("SEC-01", "SEC-02")
def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    # A forbidden address, and then a good one. The system cannot resolve the name.
    resolver = Resolver("224.0.0.1", "127.0.0.1")
    guard = UrlGuard(PUBLIC, allow_private=True, look_up=resolver)
    with serving(answering) as server, driver(guard) as made:
        for _ in range(2):
            made.fetch(get(f"http://as.example.com:{server.port}/x"))
    assert [one.headers["host"] for one in server.requests] == [f"as.example.com:{server.port}"] * 2
    assert resolver.asked == ["as.example.com"]  # once: there was one connection


@pytest.mark.requirement("SEC-01")
def test_the_guard_learns_where_the_server_is_from_what_it_publishes() -> None:
    with serving(answering) as server:
        url = f"http://mcp.home.example:{server.port}/mcp"
        guard = UrlGuard(url, allow_private=True, look_up=Resolver("127.0.0.1"))
        with driver(guard) as made:
            made.fetch(get(f"http://as.example.com:{server.port}/metadata"))
            assert not guard._server_kinds
            made.fetch(get(f"http://mcp.home.example:{server.port}/metadata"))
            assert guard._server_kinds


# --- failures


def test_a_refused_connection_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with driver() as made, pytest.raises(ConnectFailed, match="refused") as caught:
        made.fetch(get(f"http://127.0.0.1:{port}/x?code={SECRET}"))
    assert caught.value.delivery == "not_sent"
    # The message names this endpoint: the MCP server of the call does answer.
    assert f"signing in: http://127.0.0.1:{port}/x?code=***: the conn" in str(caught.value)


def test_a_lost_connection_says_nothing_about_the_call_that_needs_the_token() -> None:
    with (
        serving(lambda one: one.connection.close()) as server,
        driver() as made,
        pytest.raises(AuthError, match="the connection ended") as caught,
    ):
        made.fetch(post(here(server), f"refresh_token={SECRET}".encode()))
    assert caught.value.delivery == "not_sent"
    assert SECRET not in str(caught.value)
    assert len(server.requests) == 1  # the client does not retry


# --- proxies and certificates


def test_certificates_are_checked_and_shown_as_the_session_says(
    papers: certificates.Certificates,
) -> None:
    with serving(answering, papers.server_context(wants_client=True)) as server:
        with driver() as made, pytest.raises(ConnectFailed, match="TLS failed"):
            made.fetch(get(here(server)))
        assert server.requests == []
        with requests.Session() as session:
            session.verify, session.cert = papers.authority, papers.client
            with driver(session=session) as made:
                assert made.fetch(get(here(server))).status == 200


def test_a_proxy_looks_names_up_itself() -> None:
    resolver = Resolver()
    guard = UrlGuard(PUBLIC, allow_private=True, look_up=resolver)
    with serving(answering) as proxy, requests.Session() as session:
        session.proxies = {"http": f"http://127.0.0.1:{proxy.port}"}
        with driver(guard, session=session) as made:
            made.fetch(get("http://as.example.com/x"))
    assert [one.path for one in proxy.requests] == ["http://as.example.com/x"]
    assert resolver.asked == []


def test_the_environment_names_the_proxy_once_for_each_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(answering) as proxy, serving(answering) as server, driver() as made:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        made.fetch(get(here(server)))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        made.fetch(get(here(server)))
        assert (len(proxy.requests), len(server.requests)) == (2, 0)
        with driver() as other:
            other.fetch(get(here(server)))
        assert (len(proxy.requests), len(server.requests)) == (2, 1)
