"""Private results are cached for one client only, and only if that client has a single user."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import certifi
import pytest
import requests
from requests.auth import AuthBase

import syncmcp
from syncmcp import Http, Interceptor, Message
from syncmcp.auth import Bearer, OAuth
from syncmcp.cache import MemoryCache
from syncmcp.testing import AuthorizationServer, Server, serve_http
from tests.auth.authorization_server import Person
from tests.client.test_cache import Recorder
from tests.support.intercepting import Does
from tests.support.stage import PATIENCE, STATELESS
from tests.transports.http_peer import RawServer, Request, serving


class Mirror:
    """A server whose only tool is named after the user; `scope` is the `cacheScope`."""

    def __init__(self, scope: str | None = "private") -> None:
        self.asked: list[str] = []
        self.scope = scope

    def __call__(self, one: Request) -> None:
        result: dict[str, Any] = {"resultType": "complete"}
        if one.message["method"] == "tools/list":
            who = one.headers.get("authorization", "") + one.headers.get("x-who", "")
            self.asked.append(who)
            tool = {"name": who or "nobody", "inputSchema": {"type": "object"}}
            result.update(tools=[tool], ttlMs=60_000)
            if self.scope is not None:
                result["cacheScope"] = self.scope
        else:
            result.update(supportedVersions=[STATELESS], capabilities={"tools": {}})
        one.connection.json({"jsonrpc": "2.0", "id": one.id, "result": result})


@pytest.fixture
def mirror() -> Mirror:
    return Mirror()


@pytest.fixture
def raw(mirror: Mirror) -> Iterator[RawServer]:
    with serving(mirror) as server:
        yield server


@contextmanager
def connected(raw: RawServer, cache: Any = True, **options: Any) -> Iterator[syncmcp.Client]:
    with syncmcp.connect(Http(raw.url, **options), mode=STATELESS, cache=cache) as client:
        yield client


def who(client: syncmcp.Client, **options: Any) -> str:
    return client.list_tools(**options).tools[0].name


def by_future(client: syncmcp.Client) -> str:
    return client.list_tools.future().result(PATIENCE).tools[0].name


Ask = Callable[[syncmcp.Client], str]
ways = pytest.mark.parametrize("ask", [who, by_future], ids=["blocking", "future"])


# -- clients with one user ------------------------------------------------------------------------
BASIC = "Basic " + base64.b64encode(b"ada:secret").decode()


@ways
@pytest.mark.parametrize(
    ("options", "user"),
    [
        ({}, "nobody"),
        ({"headers": {"X-Who": "ada"}}, "ada"),
        ({"auth": ("ada", "secret")}, BASIC),
        ({"auth": Bearer("ada")}, "Bearer ada"),
        ({"auth": Bearer("ada"), "headers": {"X-Who": "ada"}}, "Bearer adaada"),
    ],
    ids=["none", "headers", "pair", "token", "both"],
)
def test_a_private_result_is_kept_where_the_user_cannot_change(
    ask: Ask, options: Any, user: str, mirror: Mirror, raw: RawServer
) -> None:
    with connected(raw, **options) as client:
        assert ask(client) == ask(client) == user
    assert mirror.asked == [user.replace("nobody", "")]


@pytest.mark.requirement("CCH-03")
def test_new_settings_do_not_change_the_user_of_a_client(mirror: Mirror, raw: RawServer) -> None:
    headers = {"X-Who": "ada"}
    target = Http(raw.url, headers=headers)
    with syncmcp.connect(target, mode=STATELESS) as client:
        headers["X-Who"] = "bob"
        assert who(client) == who(client) == "ada"
        target.headers = {"X-Who": "eve"}
        target.auth = Bearer("eve")
        assert who(client) == who(client, cache="refresh") == "ada"
        # Headers of a single call neither use nor change the cache.
        assert who(client, headers={"X-Who": "dan"}) == "dan"
        assert who(client) == "ada"
        with syncmcp.connect(target, mode=STATELESS) as other:
            assert who(other) == "Bearer eveeve"
    assert mirror.asked == ["ada", "ada", "dan", "Bearer eveeve"]


# -- clients whose user may change ----------------------------------------------------------------
class Named:
    """Sets a header to a name that may change."""

    name = ""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["X-Who"] = self.name
        return request


class NamedAuth(Named, AuthBase):
    """Authentication by an object of the program."""


class NamedBearer(Named, Bearer):
    """A subclass of `Bearer` that adds a header of its own."""


class Who:
    """The current user, in each form in which a program may give it to the client."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "token"
        self.auth, self.bearer, self.session = NamedAuth(), NamedBearer("token"), requests.Session()
        self.session.auth = self.auth

    def switch(self, name: str) -> None:
        self.auth.name = self.bearer.name = name
        self.file.write_text(name)

    def headers(self) -> dict[str, str]:
        return {"X-Who": self.auth.name}


SETTINGS: dict[str, Callable[[Who], dict[str, Any]]] = {
    "headers function": lambda who: {"headers": who.headers},
    "token function": lambda who: {"auth": Bearer(lambda: who.auth.name)},
    "token file": lambda who: {"auth": Bearer(who.file)},
    "own auth": lambda who: {"auth": who.auth},
    "subclass": lambda who: {"auth": who.bearer},
    "session": lambda who: {"session": who.session},
}


@pytest.mark.parametrize(
    ("setting", "ask"), [*zip(SETTINGS, cycle([who, by_future]), strict=False)]
)
@pytest.mark.requirement("CCH-03")
def test_each_user_is_told_their_own_where_the_user_may_change(
    ask: Ask, setting: str, mirror: Mirror, raw: RawServer, tmp_path: Path
) -> None:
    who, store = Who(tmp_path), Recorder()
    who.switch("ada")
    with connected(raw, store, **SETTINGS[setting](who)) as client:
        for name in ("ada", "ada", "bob", "ada", "bob"):
            who.switch(name)
            assert ask(client) == mirror.asked[-1]
        assert (len(mirror.asked), len(set(mirror.asked)), store.kept) == (5, 2, {})
        mirror.scope = "public"
        ask(client)
        ask(client)
        assert (len(mirror.asked), len(store.kept)) == (6, 1)


@pytest.mark.requirement("CCH-03")
def test_nothing_private_is_kept_for_a_person_who_signs_in() -> None:
    server = Server("notebook", ttl_ms=60_000)
    server.add_tool(lambda: "", name="read")
    auth = OAuth(receiver=Person())
    with (
        AuthorizationServer() as issuer,
        serve_http(server, authorization_server=issuer) as http,
        syncmcp.connect(Http(http.url, auth=auth), mode=STATELESS) as client,
    ):
        for lists in (1, 2):
            assert (who if lists == 1 else by_future)(client) == "read"
            assert server.stats.requests["tools/list"] == lists
            auth.logout()


# -- clients that share a store -------------------------------------------------------------------
@pytest.mark.parametrize("scope", ["private", None, "Public", "everybody"])
@pytest.mark.requirement("CCH-03")
def test_clients_share_nothing_private_in_a_store(
    scope: str | None, mirror: Mirror, raw: RawServer
) -> None:
    mirror.scope = scope
    store = MemoryCache()
    names = ("ada", "bob", "ada")
    with ExitStack() as stack:
        connections = [connected(raw, store, headers={"X-Who": name}) for name in names]
        clients = [*map(stack.enter_context, connections)]
        for _ in range(2):
            assert tuple(map(who, clients)) == names
    assert mirror.asked == list(names)


def test_clients_that_share_a_store_share_what_is_public_at_their_server() -> None:
    here, elsewhere, store = Mirror("public"), Mirror("public"), MemoryCache()
    with serving(here) as one, serving(elsewhere) as two:
        for server, cache, name, shown in (
            (one, store, "ada", "ada"),
            (one, store, "bob", "ada"),
            (one, True, "eve", "eve"),
            (two, store, "dan", "dan"),
        ):
            with connected(server, cache, headers={"X-Who": name}) as client:
                assert who(client) == shown
    assert (here.asked, elsewhere.asked) == (["ada", "eve"], ["dan"])


# -- clients that reach a server in different ways ------------------------------------------------
WAYS_THERE = (
    *("unchecked", "bundle", "certificate", "certificate and key", "proxy", "session"),
    *("REQUESTS_CA_BUNDLE", "HTTPS_PROXY"),
)


@pytest.mark.parametrize("way", WAYS_THERE)
def test_what_is_public_is_shared_by_clients_that_trust_the_same_alone(
    way: str, mirror: Mirror, raw: RawServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.scope = "public"
    one, other, proxy = str(tmp_path / "one"), str(tmp_path / "other"), "http://127.0.0.1:9"
    for bundle in (one, other):
        Path(bundle).write_bytes(Path(certifi.where()).read_bytes())
    ways: dict[str, dict[str, Any]] = {
        "unchecked": {"verify": False},
        "bundle": {"verify": one},
        "certificate": {"cert": one},
        "certificate and key": {"cert": (one, other)},
        "proxy": {"proxies": {"https": proxy}},
        "session": {"session": requests.Session()},
    }
    store, settings = MemoryCache(), ways.get(way, {})
    if way not in ways:
        monkeypatch.setenv(way, proxy if way == "HTTPS_PROXY" else one)
    with connected(raw, store, headers={"X-Who": "mallory"}, **settings) as client:
        assert who(client) == who(client) == "mallory"
    if "session" not in settings:
        with connected(raw, store, headers={"X-Who": "eve"}, **settings) as client:
            assert who(client) == "mallory"
    monkeypatch.undo()
    with connected(raw, store, headers={"X-Who": "ada"}) as client:
        assert who(client) == "ada"
    assert mirror.asked == ["mallory", "ada"]


# -- interceptors, and the contents of a store ----------------------------------------------------
def rename(message: Message) -> Message:
    """Change the name of the tool in a list."""
    tool = {**message.result["tools"][0], "name": "renamed"}
    return message.with_result({**message.result, "tools": [tool]})


def introduce(message: Message) -> Message:
    """Add to each request on whose behalf it is made."""
    meta = {**message.params.get("_meta", {}), "example.com/for": "ada"}
    return message.with_params({**message.params, "_meta": meta})


@ways
@pytest.mark.parametrize(
    "interceptor",
    [Does("incoming", "tools/list", rename), Does("outgoing", "tools/list", introduce)],
    ids=["result", "request"],
)
def test_what_interceptors_have_changed_is_not_kept(
    ask: Ask, interceptor: Interceptor, mirror: Mirror, raw: RawServer
) -> None:
    mirror.scope = "public"
    options: dict[str, Any] = {"mode": STATELESS, "cache": MemoryCache()}
    with syncmcp.connect(raw.url, **options, interceptors=[interceptor]) as client:
        assert ask(client) == ask(client)
    assert len(mirror.asked) == 2
    with syncmcp.connect(raw.url, **options) as client:
        assert ask(client) == "nobody"
    assert len(mirror.asked) == 3


def test_what_is_kept_names_no_credential(mirror: Mirror, raw: RawServer) -> None:
    store = Recorder()
    with connected(raw, store, headers={"X-Who": "ada"}, auth=Bearer("canary")) as client:
        assert who(client) == who(client) == "Bearer canaryada"
    ((key, kept),) = store.kept.items()
    assert len(mirror.asked) == 1
    assert "canary" not in key + repr(kept) + repr(client._core.cache)
