"""What is private is kept for one identity: its client, and the credentials that were sent."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from requests.auth import AuthBase, HTTPBasicAuth

import syncmcp
from syncmcp import Http, Interceptor, Message
from syncmcp.auth import Bearer, OAuth
from syncmcp.cache import CachedResult, MemoryCache
from syncmcp.testing import AuthorizationServer, Server, serve_http
from tests.auth.authorization_server import Person
from tests.support.stage import PATIENCE, STATELESS, Wire, in_threads
from tests.transports.http_peer import RawServer, Request, serving


class Mirror:
    """A server whose list of tools is the name of whoever asks.

    Attributes:
        asked: Who asked, each time.
        scope: Who may have the list.
    """

    def __init__(self, scope: str | None = "private") -> None:
        self.asked: list[str] = []
        self.scope = scope

    def __call__(self, one: Request) -> None:
        result: dict[str, Any] = {
            "resultType": "complete",
            "supportedVersions": [STATELESS],
            "capabilities": {"tools": {}},
        }
        if one.message["method"] == "tools/list":
            who = one.headers.get("authorization", "") + one.headers.get("x-who", "")
            self.asked.append(who)
            tool = {"name": who or "nobody", "inputSchema": {"type": "object"}}
            result = {"resultType": "complete", "tools": [tool], "ttlMs": 60_000}
            if self.scope is not None:
                result["cacheScope"] = self.scope
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
    (tool,) = client.list_tools(**options).tools
    return tool.name


def by_future(client: syncmcp.Client) -> str:
    (tool,) = client.list_tools.future().result(PATIENCE).tools
    return tool.name


ways = pytest.mark.parametrize("ask", [who, by_future], ids=["blocking", "future"])


@ways
@pytest.mark.requirement("CCH-03")
def test_a_function_that_gives_other_headers_gives_another_identity(
    ask: Callable[[syncmcp.Client], str], mirror: Mirror, raw: RawServer
) -> None:
    current = "ada"
    with connected(raw, headers=lambda: {"X-Who": current}) as client:
        for current in ("ada", "bob", "ada", "bob", "bob"):
            assert ask(client) == current
    assert mirror.asked == ["ada", "bob"]


@ways
@pytest.mark.requirement("CCH-03")
def test_what_counts_is_as_whom_it_was_sent_and_not_who_looked_for_it(
    ask: Callable[[syncmcp.Client], str], mirror: Mirror, raw: RawServer
) -> None:
    asking: list[str] = []

    def headers() -> dict[str, str]:
        # Another one each time, as where threads change what a program's function looks at.
        asking.append("x")
        return {"X-Who": ("ada", "bob")[len(asking) % 2]}

    with connected(raw, headers=headers) as client:
        for _ in range(4):
            before = len(asking)
            told = ask(client)
            looked_as = ("ada", "bob")[(before + 1) % 2]
            asked_for_it = len(asking) > before + 1
            assert told == mirror.asked[-1] if asked_for_it else told == looked_as


@pytest.mark.requirement("CCH-03")
def test_headers_that_a_program_changes_give_another_identity(
    mirror: Mirror, raw: RawServer
) -> None:
    headers = {"X-Who": "ada"}
    with connected(raw, headers=headers) as client:
        assert who(client) == who(client) == "ada"
        headers["X-Who"] = "bob"
        assert who(client) == "bob"
    assert mirror.asked == ["ada", "bob"]


@pytest.mark.requirement("CCH-03")
def test_headers_of_one_call_are_nobody_elses_business(mirror: Mirror, raw: RawServer) -> None:
    with connected(raw, headers={"X-Who": "ada"}) as client:
        assert who(client, headers={"X-Who": "bob"}) == "bob"
        assert who(client) == "ada"
        assert who(client, headers={"X-Who": "eve"}) == "eve"
        assert who(client) == "ada"
    assert mirror.asked == ["bob", "ada", "eve"]


@ways
@pytest.mark.requirement("CCH-03")
def test_another_token_is_another_identity(
    ask: Callable[[syncmcp.Client], str], mirror: Mirror, raw: RawServer
) -> None:
    token = "ada"
    with connected(raw, auth=Bearer(lambda: token)) as client:
        for token in ("ada", "bob", "ada", "bob"):
            assert ask(client) == f"Bearer {token}"
    assert mirror.asked == ["Bearer ada", "Bearer bob"]


def test_a_user_name_with_a_password_is_an_identity(mirror: Mirror, raw: RawServer) -> None:
    word = base64.b64encode(b"ada:secret").decode()
    with connected(raw, auth=("ada", "secret")) as client:
        assert who(client) == who(client) == f"Basic {word}"
    assert len(mirror.asked) == 1


class OwnAuth(AuthBase):
    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["X-Who"] = "somebody"
        return request


class OwnBearer(Bearer):
    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["X-Who"] = "somebody"
        return super().__call__(request)


@ways
@pytest.mark.parametrize(
    "options",
    [
        {"auth": OwnAuth()},
        {"auth": OwnBearer("token")},
        {"auth": HTTPBasicAuth("ada", "secret")},
        {"session": requests.Session()},
    ],
    ids=["auth", "subclass", "of requests", "session"],
)
@pytest.mark.requirement("CCH-03")
def test_where_nobody_can_tell_the_identity_nothing_private_is_kept(
    ask: Callable[[syncmcp.Client], str], options: Any, mirror: Mirror, raw: RawServer
) -> None:
    with connected(raw, **options) as client:
        ask(client)
        ask(client)
        assert len(mirror.asked) == 2
        mirror.scope = "public"
        ask(client)
        ask(client)
        assert len(mirror.asked) == 3


@pytest.mark.parametrize("scope", ["private", None, "Public", "everybody"])
@pytest.mark.requirement("CCH-03")
def test_clients_that_share_a_store_share_nothing_that_is_not_public(
    scope: str | None, mirror: Mirror, raw: RawServer
) -> None:
    mirror.scope = scope
    store = MemoryCache()
    for name in ("ada", "bob", "ada"):
        with connected(raw, store, headers={"X-Who": name}) as client:
            assert who(client) == who(client) == name
    assert mirror.asked == ["ada", "bob", "ada"]


def test_clients_that_share_a_store_share_what_is_public_and_others_do_not(
    mirror: Mirror, raw: RawServer
) -> None:
    mirror.scope = "public"
    store = MemoryCache()
    for name in ("ada", "bob"):
        with connected(raw, store, headers={"X-Who": name}) as client:
            assert who(client) == "ada"
    for name in ("eve", "dan"):
        with connected(raw, headers={"X-Who": name}) as client:
            assert who(client) == name
    assert mirror.asked == ["ada", "eve", "dan"]


def test_what_is_public_at_one_server_is_not_that_of_another() -> None:
    first, second, store = Mirror("public"), Mirror("public"), MemoryCache()
    with serving(first) as one, serving(second) as two:
        with connected(one, store, headers={"X-Who": "ada"}) as client:
            assert who(client) == "ada"
        with connected(two, store, headers={"X-Who": "bob"}) as client:
            assert who(client) == "bob"


@pytest.mark.parametrize("transport", ["memory", "stdio"])
def test_servers_without_a_url_share_nothing(transport: str) -> None:
    server, store = Server("a", ttl_ms=60_000, cache_scope="public"), MemoryCache()
    server.add_tool(lambda: "", name="one")
    for _ in range(2):
        with Wire(transport, STATELESS).connect(server, cache=store) as client:
            client.list_tools()
            client.list_tools()
    assert server.stats.requests["tools/list"] == 2


class Renaming(Interceptor):
    """Makes something else of every list."""

    def incoming(self, message: Message) -> Message:
        if message.kind == "response" and message.method == "tools/list":
            tool = {**message.result["tools"][0], "name": "renamed"}
            return message.with_result({**message.result, "tools": [tool]})
        return message


class Introducing(Interceptor):
    """Says in every request on whose behalf it is made."""

    def __init__(self, name: str) -> None:
        self.name = name

    def outgoing(self, message: Message) -> Message:
        meta = {**message.params.get("_meta", {}), "example.com/for": self.name}
        return message.with_params({**message.params, "_meta": meta})


class Watching(Interceptor):
    """Counts requests."""

    def __init__(self) -> None:
        self.requests = 0

    def outgoing(self, message: Message) -> None:
        self.requests += message.method == "tools/list"


@ways
@pytest.mark.parametrize("interceptor", [Renaming(), Introducing("ada")], ids=["result", "request"])
def test_what_interceptors_have_changed_is_not_kept(
    ask: Callable[[syncmcp.Client], str],
    interceptor: Interceptor,
    mirror: Mirror,
    raw: RawServer,
) -> None:
    mirror.scope = "public"
    options: dict[str, Any] = {"mode": STATELESS, "cache": MemoryCache()}
    with syncmcp.connect(raw.url, **options, interceptors=[interceptor]) as client:
        assert ask(client) == ask(client)
    assert len(mirror.asked) == 2
    with syncmcp.connect(raw.url, **options) as client:
        assert ask(client) == "nobody"
    assert len(mirror.asked) == 3


@ways
def test_interceptors_that_only_look_see_what_is_sent_and_nothing_else(
    ask: Callable[[syncmcp.Client], str], mirror: Mirror, raw: RawServer
) -> None:
    watching = Watching()
    with syncmcp.connect(raw.url, mode=STATELESS, interceptors=[watching]) as client:
        assert ask(client) == ask(client) == "nobody"
    assert watching.requests == len(mirror.asked) == 1


@ways
@pytest.mark.requirement("CCH-03")
def test_who_signs_in_anew_is_another_identity(ask: Callable[[syncmcp.Client], str]) -> None:
    server = Server("notebook", ttl_ms=60_000)
    server.add_tool(lambda: "", name="read")
    auth = OAuth(receiver=Person())
    with (
        AuthorizationServer() as issuer,
        serve_http(server, authorization_server=issuer) as http,
        syncmcp.connect(Http(http.url, auth=auth), mode=STATELESS) as client,
    ):
        for lists in (1, 2):
            assert ask(client) == ask(client) == "read"
            assert server.stats.requests["tools/list"] == lists
            auth.login()
        ask(client)
        issuer.expire()
        client.list_tools(cache="refresh")  # which renews the token, and is kept for the new one
        assert server.stats.requests["tools/list"] == 4
        assert ask(client) == "read"
        assert server.stats.requests["tools/list"] == 4
        auth.logout()
        ask(client)
        assert server.stats.requests["tools/list"] == 5


def test_a_function_is_not_asked_for_headers_before_there_is_something_private(
    mirror: Mirror, raw: RawServer
) -> None:
    mirror.scope = "public"
    asked: list[str] = []

    def headers() -> dict[str, str]:
        asked.append(threading.current_thread().name)
        return {"X-Who": "ada"}

    with connected(raw, headers=headers) as client:
        before = len(asked)
        for _ in range(3):
            who(client)
        assert len(asked) == before + 1


def test_a_function_that_fails_fails_the_call(mirror: Mirror, raw: RawServer) -> None:
    broken = False

    def headers() -> dict[str, str]:
        if broken:
            raise OSError("no token")
        return {"X-Who": "ada"}

    with connected(raw, headers=headers) as client:
        assert who(client) == "ada"
        broken = True
        with pytest.raises(syncmcp.UsageError, match="headers function failed"):
            who(client)
        broken = False
        assert who(client) == "ada"
    assert mirror.asked == ["ada"]


def test_what_is_kept_names_no_credential(mirror: Mirror, raw: RawServer) -> None:
    class Recorder:
        def __init__(self) -> None:
            self.kept: dict[str, CachedResult] = {}

        def get(self, key: str) -> CachedResult | None:
            return self.kept.get(key)

        def put(self, key: str, result: CachedResult) -> None:
            self.kept[key] = result

    store = Recorder()
    with connected(raw, store, headers={"X-Who": "ada"}, auth=Bearer("canary")) as client:
        assert who(client) == who(client) == "Bearer canaryada"
    ((key, kept),) = store.kept.items()
    assert len(mirror.asked) == 1
    assert "canary" not in key + repr(kept) + repr(client._core.cache)


@pytest.mark.requirement("CCH-03")
def test_threads_that_speak_as_several_users_get_their_own_answers(
    mirror: Mirror, raw: RawServer
) -> None:
    user = threading.local()
    seen: list[tuple[str, str]] = []

    with connected(raw, headers=lambda: {"X-Who": getattr(user, "name", "main")}) as client:

        def speak(name: str) -> Callable[[], None]:
            def job() -> None:
                user.name = name
                seen.extend((name, who(client)) for _ in range(20))

            return job

        names = ("ada", "bob", "eve")
        assert in_threads(*map(speak, names)) == [None] * 3
    assert len(seen) == 60
    assert all(told == name for name, told in seen)
    assert sorted(set(mirror.asked)) == sorted(names)
    assert len(mirror.asked) == 3
