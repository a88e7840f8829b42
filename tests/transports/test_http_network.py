"""The network: TLS, proxies, redirects, DNS, credentials of the machine, and sessions."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.structures import CaseInsensitiveDict

from syncmcp.config import Http
from syncmcp.errors import ConnectFailed, HttpError
from tests.support.parts import raising

from .certificates import Certificates
from .http_peer import (
    WAIT,
    Connection,
    FakeReceiver,
    Held,
    RawServer,
    Request,
    calling,
    opened,
    request,
    serving,
    withdraw,
)
from .socks_proxy import pump


def answer(one: Request) -> None:
    one.connection.result(one)


def send_one(config: Http | str) -> FakeReceiver:
    with opened(config) as (transport, receiver):
        transport.send(request())
    return receiver


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "http_proxy https_proxy all_proxy no_proxy requests_ca_bundle curl_ca_bundle netrc"
    for name in names.split():
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


# Connection failures


@contextmanager
def answering_once(status: int) -> Iterator[tuple[int, list[bytes]]]:
    """Answer one request with this status; yield the port and the first bytes of the request."""
    pieces: list[bytes] = []

    def answer(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            pieces.append(sock.recv(65536))
            Connection(sock, 0).respond(status)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1], pieces
        thread.join(WAIT)


def unsent(config: Http | str, words: str) -> ConnectFailed:
    """Return the error of a request that cannot connect."""
    error = send_one(config).error
    assert type(error) is ConnectFailed
    assert error.delivery == "not_sent"
    assert words in error.message
    return error


@pytest.mark.pitfall("8")
def test_a_connection_that_cannot_be_made_says_why(
    closed_port: int, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = unsent(f"http://127.0.0.1:{closed_port}/mcp?key=secret-value", "refused")
    assert isinstance(error.__cause__, ConnectionRefusedError)
    assert "secret-value" not in str(error)
    with serving(answer, certificates.server_context()) as server:
        assert isinstance(unsent(server.url, "verify=").__cause__, ssl.SSLError)
    with answering_once(400) as (port, _):
        unsent(
            f"https://127.0.0.1:{port}/",
            "does not speak TLS here (should the URL begin with http://?)",
        )

    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", raising(unknown))
    error = unsent("http://mcp.invalid/", "(DNS): Name or service not known")  # no error number
    assert isinstance(error.__cause__, socket.gaierror)


# Connections


def test_an_idle_connection_that_the_server_closed_costs_no_error() -> None:
    closed = threading.Event()

    def script(one: Request) -> None:
        answer(one)
        one.connection.close()
        closed.set()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        for count in range(3):
            transport.send(request())
            assert closed.wait(WAIT)
            closed.clear()
            assert len(receiver.frames) == count + 1
        assert not receiver.failures
    assert len(server.connections) == 3


def test_head_and_body_leave_together() -> None:
    out = request()
    with (
        answering_once(500) as (port, pieces),
        opened(f"http://127.0.0.1:{port}/") as (transport, _),
    ):
        transport.send(out)
    assert pieces[0].startswith(b"POST / HTTP/1.1\r\n")
    assert pieces[0].endswith(b"\r\n\r\n" + out.body)


# TLS


@pytest.mark.pitfall("25")
def test_the_authority_is_named_and_a_client_certificate_shown(certificates: Certificates) -> None:
    with serving(answer, certificates.server_context(wants_client=True)) as server:
        config = Http(server.url, verify=certificates.authority, cert=certificates.client)
        with opened(config) as (transport, receiver):
            transport.send(request())
            transport.send(request())
        assert not receiver.failures
        assert len(server.connections) == 1
        assert not send_one(config).failures
        assert send_one(Http(server.url, verify=certificates.authority)).failures


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_the_authority_may_come_from_the_environment_or_be_nobodys(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer, certificates.server_context()) as server:
        assert not send_one(Http(server.url, verify=False)).failures
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", certificates.authority)
        assert not send_one(server.url).failures


# Proxies


class Proxy(RawServer):
    """A proxy that answers plain requests itself, and tunnels CONNECT to `target`."""

    def __init__(self, target: int = 0) -> None:
        super().__init__(self._proxy)
        self.target = target

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _proxy(self, one: Request) -> None:
        if one.method != "CONNECT":
            answer(one)
            return
        client = one.connection.sock
        with socket.create_connection(("127.0.0.1", self.target)) as upstream:
            one.connection.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            back = threading.Thread(target=pump, args=(upstream, client), daemon=True)
            back.start()
            pump(client, upstream)
            back.join(WAIT)


def test_tls_is_tunnelled_through_a_proxy_and_can_be_withdrawn(certificates: Certificates) -> None:
    held = Held()
    with (
        serving(calling(held, answer), certificates.server_context()) as server,
        Proxy(server.port) as proxy,
    ):
        proxies = {"https": f"http://127.0.0.1:{proxy.port}"}
        config = Http(server.url, verify=certificates.authority, proxies=proxies)
        with opened(config) as (transport, receiver):
            transport.send(request("ping"))
            assert len(receiver.frames) == 1
            withdraw(transport, held.came)
            assert not receiver.failures
    assert [one.method for one in proxy.requests] == ["CONNECT"]


@pytest.mark.pitfall("25")
def test_the_environment_names_a_proxy_and_its_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy() as proxy:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert not send_one("http://mcp.invalid/").failures
        assert len(proxy.requests) == 1
        with serving(answer) as server:
            assert not send_one(Http(server.url, proxies={})).failures
            for name in ("NO_PROXY", "no_proxy"):
                monkeypatch.setenv(name, "127.0.0.1")
            assert not send_one(server.url).failures
            assert len(server.requests) == 2
        assert len(proxy.requests) == 1


# Redirects


@pytest.mark.requirement("HTL-01", "HTM-07")
@pytest.mark.parametrize(
    ("status", "name"), [(307, "Location"), (308, "location"), (307, "LOCATION")]
)
def test_a_redirect_within_the_origin_is_followed_as_it_is(status: int, name: str) -> None:
    def script(one: Request) -> None:
        if one.path == "/mcp":
            one.connection.respond(status, b"moved", {name: "/other?x=1#top"})
        else:
            answer(one)

    with serving(script) as server:
        url = server.url.replace("http://", "http://me:pa55@")  # with a user, still the same origin
        config = Http(url, headers={"Authorization": "Bearer abc.def-g"})
        with opened(config) as (transport, receiver):
            out = request()
            transport.send(out)
            transport.send(request())
    assert not receiver.failures
    # A redirect is not remembered: the next request uses the original URL, too.
    assert [one.path for one in server.requests] == ["/mcp", "/other?x=1"] * 2
    assert server.requests[1].method == "POST"
    assert server.requests[1].body == out.body
    assert server.requests[1].headers["authorization"] == "Bearer abc.def-g"
    assert len(server.connections) == 1


@pytest.mark.parametrize(
    ("status", "location"),
    [
        *((status, "/other") for status in (301, 302, 303)),
        (307, "http://localhost:{port}/other?secret=abcdef"),
        (307, "https://127.0.0.1:{port}/other"),
        (308, "http://127.0.0.1:1/other"),
        (307, "http://me:password@127.0.0.1:{port}/other"),
        (307, "http://127.0.0.1:notaport/"),
    ],
)
@pytest.mark.pitfall("24")
def test_any_other_redirect_is_an_error_that_names_its_target(status: int, location: str) -> None:
    def script(one: Request) -> None:
        where = location.replace("{port}", str(one.connection.sock.getsockname()[1]))
        one.connection.respond(status, b"", {"Location": where})

    with serving(script) as server:
        error = send_one(server.url).error
    assert isinstance(error, HttpError)
    assert (error.status, error.delivery) == (status, "refused")
    assert len(server.requests) == 1
    if "notaport" not in location:
        assert "/other" in error.message
    assert "abcdef" not in str(error)
    assert "password" not in str(error)


def test_redirects_that_go_on_for_ever_are_given_up() -> None:
    with serving(lambda one: one.connection.respond(307, b"", {"Location": "/mcp"})) as server:
        assert isinstance(send_one(server.url).error, HttpError)
    assert len(server.requests) == 6


# Credentials


@pytest.mark.pitfall("H4", "24")
def test_netrc_replaces_and_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with serving(answer) as server, requests.Session() as session:
        session.headers["Authorization"] = "Bearer def"
        send_one(Http(server.url, headers={"Authorization": "Bearer abc"}))
        send_one(server.url)
        send_one(Http(server.url, session=session))
    sent = [one.headers.get("authorization") for one in server.requests]
    assert sent == ["Bearer abc", None, "Bearer def"]


def test_user_and_password_of_the_url_are_sent_and_never_shown() -> None:
    with serving(answer) as server:
        url = server.url.replace("http://", "http://me:hunter22@")
        assert not send_one(url).failures
    assert server.requests[0].headers["authorization"].startswith("Basic ")
    assert "@" not in server.requests[0].path
    assert "hunter22" not in Http(url).label


class Signing(AuthBase):
    """Adds a signature of the body to each request."""

    def __call__(self, prepared: Any) -> Any:
        prepared.headers["X-Signature"] = str(len(prepared.body or b""))
        return prepared


def test_an_auth_object_sees_each_request_with_its_body() -> None:
    outs = [request(), request(params={"more": "text"})]
    with serving(answer) as server, opened(Http(server.url, auth=Signing())) as (transport, _):
        for out in outs:
            transport.send(out)
    signatures = [one.headers["x-signature"] for one in server.requests]
    assert signatures == [str(len(out.body)) for out in outs]


# Sessions


def cookies_after(cookies: list[str], config: Callable[[str], Http]) -> list[str]:
    """Return the cookies of the last request, after each response has set one."""
    left = iter(cookies)

    def script(one: Request) -> None:
        one.connection.result(one, Set_Cookie=next(left, "last=1; Path=/"))

    with serving(script) as server, opened(config(server.url)) as (transport, _):
        for _ in range(len(cookies) + 1):
            transport.send(request())
    return sorted((server.requests[-1].headers.get("cookie") or "").split("; "))


PAST = "Thu, 01 Jan 1970 00:00:00 GMT"


def times(value: int, *numbers: int) -> list[str]:
    """Return numbered cookies, each with a value of this length."""
    return [f"c{number:03}={'b' * value}" for number in range(*numbers)]


def everywhere(cookies: list[str]) -> list[str]:
    return [f"{cookie}; Path=/" for cookie in cookies]


COOKIES: dict[str, tuple[str, list[str], list[str]]] = {
    "many": ("nothing", everywhere(times(1, 120)), times(1, 70, 120)),
    "elsewhere": ("a session", [f"c=1; Path=/p{'/' * number}" for number in range(3)], [""]),
    "long": ("an adapter", ["a=1; Path=/", f"a={'b' * 4_096}; Path=/"], [""]),
    "long attributes": ("nothing", ["a=1; Path=/", f"b=1; Path=/; Junk={'b' * 4_096}"], ["a=1"]),
    "again": ("a session", ["a=1; Path=/", "b=2; Path=/", "a=3; Path=/"], ["a=3", "b=2"]),
    "much": ("an adapter", everywhere(times(3_000, 9)), times(3_000, 4, 9)),
    "deleted": ("nothing", ["a=1; Path=/", "b=2; Path=/", "a=; Path=/; Max-Age=0"], ["b=2"]),
    "deleted in an adapter": ("an adapter", ["a=1; Path=/", "a=; Path=/; Max-Age=0"], [""]),
    "expired": ("a session", ["a=1; Path=/", f"a=1; Expires={PAST}", "b=2; Path=/"], ["b=2"]),
    "deleted before": ("nothing", ["a=; Path=/; Max-Age=0", "a=1; Path=/"], ["a=1"]),
    "deleted elsewhere": ("a session", ["a=1; Path=/", "a=; Path=/x; Max-Age=0"], ["a=1"]),
}


@pytest.mark.parametrize(("theirs", "cookies", "kept"), COOKIES.values(), ids=COOKIES)
def test_only_so_many_cookies_are_kept(theirs: str, cookies: list[str], kept: list[str]) -> None:
    with requests.Session() as session:
        if theirs == "an adapter":
            session.mount("http://", Counting())
        given = None if theirs == "nothing" else session
        assert cookies_after(cookies, lambda url: Http(url, session=given)) == sorted(kept)


def test_the_cookies_of_the_program_stay_however_many_the_server_sets() -> None:
    with requests.Session() as session:
        for number in range(60):
            session.cookies.set(f"mine{number}", "1")
        theirs = [f"c{number}=1; Path=/" for number in range(60)]
        back = cookies_after(theirs, lambda url: Http(url, session=session))
    assert sum(one.startswith("mine") for one in back) == 60
    assert sum(one.startswith("c") for one in back) == 50


@pytest.mark.parametrize(
    ("domain", "order"),
    [
        (".elsewhere.example", "mine=; Domain=elsewhere.example; Path=/; Max-Age=0"),
        ("127.0.0.1", f"mine={'b' * 4_096}; Path=/"),
    ],
    ids=["deleted", "too long"],
)
def test_a_server_deletes_no_cookie_of_the_program(domain: str, order: str) -> None:
    with requests.Session() as session:
        session.cookies.set("mine", "1", domain=domain, path="/")
        cookies_after([order], lambda url: Http(url, session=session))
        assert session.cookies.get("mine") == "1"


@pytest.mark.pitfall("25")
def test_the_settings_of_a_session_are_taken_over() -> None:
    with Proxy() as proxy, requests.Session() as session:
        session.headers["X-Theirs"] = "1"
        session.headers["Accept"] = "text/plain"
        session.auth = ("me", "secret-word")
        session.cookies.set("theirs", "2")
        session.params = {"tenant": "3"}
        session.proxies = {"http": f"http://user:word@127.0.0.1:{proxy.port}"}
        assert not send_one(Http("http://mcp.invalid/mcp", session=session)).failures
        assert type(session.adapters["http://"]) is HTTPAdapter
    [one] = proxy.requests
    assert one.path == "http://mcp.invalid/mcp?tenant=3"
    assert one.headers["host"] == "mcp.invalid"
    assert one.headers["proxy-authorization"].startswith("Basic ")
    assert one.headers["x-theirs"] == "1"
    assert one.headers["accept"] == "application/json, text/event-stream"
    assert one.headers["authorization"].startswith("Basic ")
    assert one.headers["cookie"] == "theirs=2"


@pytest.mark.parametrize("hooked", [False, True])
def test_no_header_is_sent_twice_however_it_is_spelled(hooked: bool) -> None:
    names = "user-agent ACCEPT content-type content-length x-both accept-encoding"
    with requests.Session() as session:
        session.headers.clear()
        session.headers.update(dict.fromkeys(names.split(), "theirs"))
        session.cookies.set("jar", "1")
        if hooked:
            session.hooks["response"].append(lambda response, **_: response)
        with serving(answer) as server:
            ours = {"X-Both": "ours", "COOKIE": "ours=1"}
            assert not send_one(Http(server.url, session=session, headers=ours)).failures
    [one] = server.requests  # the server rejects duplicate headers
    sent = {
        "user-agent": "theirs",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "gzip",
        "content-type": "application/json",
        "content-length": str(len(one.body)),
        "x-both": "ours",
        "cookie": "ours=1",
    }
    assert {**one.headers, **sent} == one.headers


def test_code_of_the_program_gets_the_mappings_of_requests() -> None:
    met: list[requests.Response] = []

    def set_a_cookie(one: Request) -> None:
        one.connection.result(one, Set_Cookie="sticky=node-7; Path=/")

    with requests.Session() as session, serving(set_a_cookie) as server:
        session.hooks["response"].append(lambda response, **_: met.append(response))
        assert not send_one(Http(server.url, session=session)).failures
    [response] = met
    assert type(response.headers) is CaseInsensitiveDict
    assert type(response.request.headers) is CaseInsensitiveDict
    assert response.headers["SET-COOKIE"].startswith("sticky=node-7")
    assert response.cookies.get_dict() == {"sticky": "node-7"}


class Counting(HTTPAdapter):
    """An adapter of the program."""

    sent = closed = 0

    def send(self, *args: Any, **kwargs: Any) -> Any:
        self.sent += 1
        return super().send(*args, **kwargs)

    def close(self) -> None:
        self.closed += 1
        super().close()


def test_a_session_with_an_adapter_of_its_own_is_used_as_it_is() -> None:
    def begin(connection: Connection) -> None:
        connection.stream({"jsonrpc": "2.0", "method": "notifications/x"}, end=False)
        receiver.wait_for(lambda: len(receiver.frames) == 3)

    held, adapter = Held(begin), Counting()
    with requests.Session() as session:
        session.mount("http://", adapter)
        with serving(calling(held, answer)) as server:
            with opened(Http(server.url, session=session)) as (transport, receiver):
                transport.send(request("ping"))
                transport.send(request("ping"))
                assert len(receiver.frames) == 2
                withdraw(transport, held.came)
                assert not receiver.failures
            assert (adapter.sent, adapter.closed) == (3, 0)
            assert len(server.connections) == 1
    assert adapter.closed == 1


def test_a_request_through_a_foreign_adapter_is_never_said_to_be_unsent(closed_port: int) -> None:
    with requests.Session() as session:
        session.mount("http://", Counting())
        receiver = send_one(Http(f"http://127.0.0.1:{closed_port}/", session=session))
    assert receiver.error.delivery == "unknown"  # type: ignore[attr-defined]
