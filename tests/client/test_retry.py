"""Retries: which requests the client repeats after a failure, how often, and when."""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import Mock, call

import pytest

import syncmcp
from syncmcp import CancelToken, Client, ConnectFailed, HttpError, OutcomeUnknown, Retry, Stdio
from syncmcp._client import retrying
from syncmcp._client.lifetime import Pools
from syncmcp._client.retrying import RetryRules
from syncmcp._concurrency.timing import Backoff
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol.steps import Send
from syncmcp.testing import Cut, FaultProxy, serve_http
from syncmcp.testing import script as s
from syncmcp.types import Tool, ToolAnnotations
from tests.support.scripts import Scripted, opening
from tests.support.session_server import SessionServer, on, session_server
from tests.support.shops import Shop
from tests.support.stage import PATIENCE, STATEFUL, STATELESS
from tests.transports.http_peer import Request

ERAS = pytest.mark.parametrize("era", [STATEFUL, STATELESS])
KINDS = pytest.mark.parametrize("kind", ["blocks", "future"])

OLD: Any = STATEFUL

# Its pauses are too short to notice, but not zero, so that tests can replace them.
SWIFT = Retry(pause=1e-9)


@contextmanager
def shop(era: Any, **options: Any) -> Iterator[tuple[Shop, FaultProxy, Client]]:
    """Connect to a shop through a proxy that makes faults."""
    place = Shop()
    with serve_http(place.server) as http, FaultProxy(http.url) as proxy:
        given: dict[str, Any] = {"mode": era, "retry": SWIFT, **options}
        with syncmcp.connect(proxy.url, **given) as client:
            if era == STATEFUL:  # the stream's connection must exist: the proxy must not cut it
                assert place.server.stats.wait_for(lambda stats: stats.streams == 1)
            yield place, proxy, client


def make(client: Client, kind: str, name: str, *args: Any, **options: Any) -> Any:
    operation = getattr(client, name)
    if kind == "blocks":
        return operation(*args, **options)
    return operation.future(*args, **options).result(PATIENCE)


# -- requests that may have run --------------------------------------------------------------------
# For cuts at each place and on each wire, see tests/transports/test_faults.py.
HINTS: tuple[tuple[dict[str, bool] | None, bool], ...] = (
    ({"readOnlyHint": True}, True),
    ({"idempotentHint": True}, True),
    ({"idempotentHint": False, "readOnlyHint": False}, False),
    (None, False),
)


@pytest.mark.pitfall("16")
@pytest.mark.requirement("TOOL-01")
@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("listing", ["list_tools", "iter_tools", ""])
def test_an_annotation_counts_only_where_the_server_is_trusted_and_the_tool_was_listed(
    trusted: bool, listing: str
) -> None:
    with shop(STATELESS, trusted=trusted) as (shop_, proxy, client):
        for number, (hints, _) in enumerate(HINTS):
            shop_.server.tool(name=f"look{number}", annotations=hints)(lambda: "seen")
        if listing:
            list(getattr(client, listing)())
        for number, (_, safe) in enumerate(HINTS):
            proxy.queue(Cut("sent"), method="tools/call")
            if safe and trusted and listing:
                assert client.call_tool(f"look{number}").text == "seen"
            else:
                with pytest.raises(OutcomeUnknown):
                    client.call_tool(f"look{number}")


def test_what_a_list_said_is_forgotten_with_its_session() -> None:
    with session_server() as server, connect(server, trusted=True) as client:
        tool = {"name": "look", "inputSchema": {}, "annotations": {"readOnlyHint": True}}

        def answer(one: Request) -> bool:
            if b"tools/list" in one.body:
                server.result(one, {"tools": [tool]})
            elif b"tools/call" in one.body and server.known == "session-2":
                one.connection.close()
            else:
                return False
            return True

        server.before = answer
        client.list_tools()
        server.forget()
        client.ping()
        with pytest.raises(OutcomeUnknown):
            client.call_tool("look")


@pytest.mark.parametrize(("bound", "most"), [("_MOST_TOOLS", 10), ("_MOST_CHARACTERS", 1000)])
def test_of_ever_new_tools_few_are_remembered(
    bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(name: str) -> Tool:
        hints = ToolAnnotations(read_only_hint=True)
        return Tool(name=name, input_schema={"type": "object"}, annotations=hints)

    def known(name: str) -> bool:
        call = Send("tools/call", {"name": name})
        return rules.is_idempotent(call, ResolvedOptions(None, None))

    monkeypatch.setattr(retrying, bound, most)
    rules = RetryRules(Retry(), trusted=True, reopens=True)
    names = [f"{number:03}{'x' * 97}" for number in range(100)]
    for _ in range(5):  # tools that are listed again count once
        rules.learn(map(listed, names[:10]))
    assert all(map(known, names[:10]))
    for name in names:
        rules.learn([listed(name)])
        assert known(name)
        assert sum(map(known, names)) <= 11


# -- refused requests ------------------------------------------------------------------------------
def connect(server: SessionServer, **options: Any) -> Client:
    """Connect without probing for the newest revision."""
    given: dict[str, Any] = {"mode": OLD, "retry": SWIFT, **options}
    return syncmcp.connect(server.url, **given)


def refusing(times: int, status: int, **headers: str) -> Callable[[Request], bool]:
    """Reject the first `times` requests that are not part of the opening."""
    left = iter(range(times))
    given = {name.replace("_", "-"): value for name, value in headers.items()}

    def refuse(one: Request) -> bool:
        refused = b'"tools/' in one.body and next(left, None) is not None
        if refused:
            one.connection.respond(status, b"later", given)
        return refused

    return refuse


@pytest.mark.parametrize(
    ("name", "status", "times", "kind"),
    [
        *(("list_tools", status, 3, "blocks") for status in (429, 502, 503, 504)),
        *(("list_tools", status, 1, "future") for status in (400, 401, 403, 405, 500)),
        *(("call_tool", 429, 3, kind) for kind in ("blocks", "future")),
        ("call_tool", 503, 1, "blocks"),
    ],
)
def test_a_status_says_what_is_sent_again(name: str, status: int, times: int, kind: str) -> None:
    arguments = ["buy"] if name == "call_tool" else []
    with session_server() as server, connect(server) as client:
        if times > 1:
            server.before = refusing(times - 1, status)
            make(client, kind, name, *arguments)
        server.before = refusing(9, status)
        method = "tools/call" if arguments else "tools/list"
        before = server.count(method)
        with pytest.raises(HttpError) as caught:
            make(client, kind, name, *arguments)
        assert (caught.value.status, caught.value.attempts) == (status, times)
        assert server.count(method) == before + times
        if status == 503:
            assert caught.value.delivery == "unknown"


def test_a_json_rpc_error_in_a_503_is_no_answer_but_one_in_a_500_is() -> None:
    statuses = iter((503, 500))

    def refuse(one: Request) -> None:
        error = {"code": -32603, "message": "no"}
        one.connection.json({"jsonrpc": "2.0", "id": one.id, "error": error}, next(statuses))

    with session_server() as server, connect(server) as client:
        server.before = on(b'"tools/', act=refuse)
        with pytest.raises(syncmcp.InternalError) as caught:
            client.list_tools()
        assert caught.value.attempts == 2


@KINDS
def test_the_end_says_how_often_it_was_tried(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with session_server() as server, connect(server) as client:
        server.before = refusing(3, 503)
        with caplog.at_level(logging.WARNING, "syncmcp.retry"), pytest.raises(HttpError) as caught:
            make(client, kind, "list_tools")
        assert caught.value.attempts == server.count("tools/list") == 3
        assert "3 attempts" in str(caught.value)
        assert len(caplog.messages) == 2
        for line in caplog.messages:
            assert "sending tools/list again" in line
            assert "503" in line
            assert line.count("tools/list") == 1
        assert pickle.loads(pickle.dumps(caught.value)).attempts == 3
        for attempts in (2, 1):
            server.before = refusing(attempts - 1, 503)
            future = client.list_tools.future()
            assert future.result(PATIENCE).tools == []
            assert future.attempts == attempts


@pytest.mark.parametrize("policy", [None, Retry(1)])
def test_without_a_policy_nothing_is_sent_again(policy: Retry | None) -> None:
    with session_server() as server, connect(server, retry=policy) as client:
        server.before = refusing(1, 429)
        with pytest.raises(HttpError):
            client.list_tools()
        assert server.count("tools/list") == 1


# -- the time of retries ---------------------------------------------------------------------------
def skip_pauses(monkeypatch: pytest.MonkeyPatch, on_pause: Callable[[float], object]) -> None:
    """End each pause of a client at once, after `on_pause(seconds)`."""

    def pause(self: Pools, seconds: float, *_: object) -> CancelToken:
        on_pause(seconds)
        over = CancelToken()
        over.cancel()
        return over

    monkeypatch.setattr(Pools, "pause", pause)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The lengths of the client's pauses, all of which end at once."""
    made: list[float] = []
    skip_pauses(monkeypatch, made.append)
    return made


LATER, NOW = "Wed, 21 Oct 2015 07:28:20 GMT", "Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.mark.requirement("HTM-07")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "7"}, 7),
        ({"Retry_After": LATER, "Date": NOW}, 20),
        ({"RETRY_AFTER": LATER, "date": NOW}, 20),
        *(({"Retry_After": useless}, 0) for useless in (LATER, "soon", "-5")),
    ],
)
def test_the_server_s_wish_comes_before_ours(
    headers: Any, seconds: float, pauses: list[float]
) -> None:
    with session_server() as server, connect(server, retry=Retry(pause=0.5)) as client:
        server.before = refusing(1, 429, **headers)
        client.list_tools()
        [pause] = pauses
        assert seconds <= pause <= seconds + 0.5


def test_pauses_are_parts_of_a_bound_that_doubles(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    uniform = Mock(side_effect=lambda low, high: high / 2)
    monkeypatch.setattr("syncmcp._client.retrying.random.uniform", uniform)
    policy = Retry(6, pause=0.5, longest_pause=3, budget=60)
    with session_server() as server, connect(server, retry=policy) as client:
        server.before = refusing(5, 503)
        client.list_tools()
    assert uniform.mock_calls == [call(0, most) for most in (0.5, 1, 2, 3, 3)]
    assert pauses == [0.25, 0.5, 1, 1.5, 1.5]


# -- no connection ---------------------------------------------------------------------------------
@contextmanager
def coming_back(
    monkeypatch: pytest.MonkeyPatch, proxy: FaultProxy, after: int = 1
) -> Iterator[list[float]]:
    """Stop the server; start it again at the `after`th pause."""
    pauses: list[float] = []
    with ExitStack() as down:

        def on_pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == after:
                down.close()

        skip_pauses(monkeypatch, on_pause)
        down.enter_context(proxy.down())
        yield pauses


@ERAS
@KINDS
def test_a_tool_that_was_not_sent_is_called_when_the_server_is_back(
    kind: str, era: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop(era) as (shop_, proxy, client):
        with coming_back(monkeypatch, proxy, after=2) as pauses:
            assert make(client, kind, "call_tool", "buy").text == "sold"
        assert len(pauses) == 2
        assert shop_.sold == 1


def test_opening_waits_for_a_server_that_comes_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = Shop()
    caplog.set_level(logging.WARNING, "syncmcp.retry")
    with serve_http(place.server) as http, FaultProxy(http.url) as proxy:
        for lazy in (True, False):
            with coming_back(monkeypatch, proxy) as pauses:
                client = Client(proxy.url, mode=STATELESS, lazy=lazy)
                if lazy:
                    assert client.call_tool.future("buy").result(PATIENCE).text == "sold"
                else:
                    client.open()
            client.close()
            assert len(pauses) == 1
    assert place.sold == 1
    began = [text.split(" in ")[0].split("] ")[1] for text in caplog.messages]
    assert began == ["sending tools/call again", "connecting again"]


@pytest.mark.parametrize("sent", [False, True])
def test_a_server_that_stays_away_is_given_up(sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop(STATELESS) as (shop_, proxy, client), ExitStack() as down:
        if sent:  # the request is sent before the server goes down
            proxy.queue(Cut("head", after=5), method="tools/call")
        else:
            down.enter_context(proxy.down())

        def go_down(_: float) -> None:
            skip_pauses(monkeypatch, lambda _: None)
            if sent:
                down.enter_context(proxy.down())

        skip_pauses(monkeypatch, go_down)
        with pytest.raises(ConnectFailed) as caught:
            client.call_tool("buy", idempotent=True)
        delivery = "unknown" if sent else "not_sent"
        assert (caught.value.delivery, caught.value.attempts) == (delivery, 3)
        assert shop_.sold == sent


def test_a_command_that_cannot_be_started_is_tried_once(pauses: list[float]) -> None:
    with pytest.raises(ConnectFailed) as caught:
        syncmcp.connect(Stdio(sys.executable, "-c", "exit(3)"), mode=OLD)
    assert caught.value.attempts == 1
    assert pauses == []


# -- child processes that die ----------------------------------------------------------------------
@KINDS
@pytest.mark.pitfall("5", "16")
def test_a_call_of_a_dead_server_is_repeated_if_it_may(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "next", lambda self: 0.0)
    dies = [*opening(), s.expect("tools/call"), s.cut()]
    lives = [*opening(), s.expect("tools/call"), s.reply({"content": []})]
    with Scripted(*[dies] * 4, lives) as peer, syncmcp.connect(peer, mode=OLD) as client:
        for idempotent, attempts in ((False, 1), (True, 3)):
            with pytest.raises(OutcomeUnknown) as caught:
                make(client, kind, "call_tool", "die", idempotent=idempotent)
            assert caught.value.attempts == attempts
        assert make(client, kind, "call_tool", "lives").content == []


# -- `Retry` as a value ----------------------------------------------------------------------------
def test_a_policy_is_a_value() -> None:
    policy = Retry(4, budget=5, pause=0.1, longest_pause=1)
    assert policy == Retry(4, budget=5, pause=0.1, longest_pause=1)
    assert hash(policy) == hash(pickle.loads(pickle.dumps(policy)))
    assert policy != Retry()
    assert repr(policy) == "Retry(attempts=4, budget=5, pause=0.1, longest_pause=1)"
    client = Client("http://127.0.0.1:1/mcp", retry=policy, ping_interval=3)
    options = pickle.loads(pickle.dumps(client))._configuration()[1]
    assert (options["retry"], options["ping_interval"]) == (policy, 3)
