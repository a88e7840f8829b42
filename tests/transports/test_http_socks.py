"""HTTP through SOCKS proxies, which use other connection classes than the library."""

from __future__ import annotations

import pytest
import requests

import syncmcp
from syncmcp.config import Http
from syncmcp.errors import ConnectFailed, RequestTimeout, UsageError
from tests.support.parts import raising
from tests.transports.certificates import Certificates
from tests.transports.http_peer import WAIT, Held, request, serving, withdraw
from tests.transports.http_peer import opened as opened_http
from tests.transports.old_peer import connected, old_server, target
from tests.transports.socks_proxy import socks_proxy

NAME = "mcp.invalid"
"""A host that only the proxy can resolve."""


@pytest.mark.pitfall("25")
def test_calls_go_through_the_proxy_which_looks_the_name_up() -> None:
    with (
        serving(lambda one: one.connection.result(one)) as server,
        socks_proxy(server.port) as proxy,
    ):
        http = Http(f"http://{NAME}:{server.port}/mcp", proxies={"http": proxy.url})
        with opened_http(http) as (transport, receiver):
            for _ in range(3):
                transport.send(request())
            assert receiver.failures == []
    assert proxy.asked == [(NAME, server.port)]
    assert len(server.requests) == 3
    assert len(server.connections) == 1


@pytest.mark.pitfall("H1b")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_withdrawing_ends_the_wait_for_an_answer(scheme: str, certificates: Certificates) -> None:
    held, context = Held(), certificates.server_context() if scheme == "https" else None
    with serving(held, context) as server, socks_proxy(server.port) as proxy:
        http = Http(server.url, proxies={scheme: proxy.url}, verify=certificates.authority)
        with opened_http(http) as (transport, receiver):
            withdraw(transport, held.came)
            assert held.gone.wait(WAIT)
            transport.send(request(seconds=0.1))
            assert isinstance(receiver.error, RequestTimeout)


def test_a_proxy_that_is_not_there_leaves_the_request_unsent() -> None:
    with socks_proxy(1) as proxy:
        url = proxy.url
    with opened_http(Http(f"http://{NAME}/mcp", proxies={"http": url})) as (transport, receiver):
        transport.send(request())
    assert isinstance(receiver.error, ConnectFailed)
    assert receiver.error.delivery == "not_sent"


def test_without_its_package_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = requests.exceptions.InvalidSchema("Missing dependencies for SOCKS support.")
    monkeypatch.setattr("requests.adapters.SOCKSProxyManager", raising(missing))
    http = Http(f"http://{NAME}/mcp", proxies={"http": "socks5h://127.0.0.1:1"})
    with pytest.raises(UsageError, match=r"install syncmcp-client\[socks\]"):
        syncmcp.connect(http)


def test_the_older_transport_goes_through_the_proxy_and_may_be_silent_for_long() -> None:
    with old_server() as old, socks_proxy(old.server.port) as proxy:
        for old.closes in (False, True):
            http = target(old, proxies={"http": proxy.url})
            with connected(old, http) as client:
                assert client.call_tool("work").text == "done"
    assert len(proxy.asked) == len(old.server.connections)
