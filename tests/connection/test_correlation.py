"""Each answer finds its own call, whatever the order and whatever else comes."""

from __future__ import annotations

import concurrent.futures
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from tests.support.moved_time import MovedTime
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Wire, in_threads, nervous


class Puppet:
    """An in-process server that shakes hands by itself; the rest is up to the test.

    Attributes:
        requests: What the client asked, as it came.
        notices: What it told.
    """

    name = "puppet"

    def __init__(self) -> None:
        self.requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.notices: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._deliver: Callable[[bytes], None]

    def connect(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None] | None = None
    ) -> Puppet:
        self._deliver = deliver
        return self

    def receive(self, frame: bytes) -> None:
        message = json.loads(frame)
        if message["method"] == "initialize":
            info = {"name": "puppet", "version": "1"}
            capabilities: dict[str, Any] = {"tools": {}}
            self.answer(
                message["id"], protocolVersion=STATEFUL, serverInfo=info, capabilities=capabilities
            )
        elif "id" in message:
            self.requests.put(message)
        else:
            self.notices.put(message)

    def close(self) -> None:
        """Nothing is held."""

    def say(self, message: Any) -> None:
        """Send any JSON value."""
        self._deliver(json.dumps(message).encode())

    def answer(self, id: Any, **result: Any) -> None:
        """Answer a request."""
        self.say({"jsonrpc": "2.0", "id": id, "result": result})

    def next(self) -> dict[str, Any]:
        """The next request."""
        return self.requests.get(timeout=PATIENCE)


@pytest.fixture
def puppet() -> Puppet:
    return Puppet()


@pytest.fixture
def client(puppet: Puppet) -> Iterator[syncmcp.Client]:
    with syncmcp.connect(puppet, mode=STATEFUL) as client:
        puppet.notices.get(timeout=PATIENCE)
        yield client


def content(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


@pytest.mark.requirement("M-01", "RPC-05")
@pytest.mark.pitfall("23")
def test_answers_in_any_order_find_their_calls(puppet: Puppet, client: syncmcp.Client) -> None:
    futures = {
        str(number): client.call_tool.future("say", {"text": str(number)}) for number in range(100)
    }
    requests = [puppet.next() for _ in futures]
    random.Random(7).shuffle(requests)
    assert len({request["id"] for request in requests}) == len(futures)
    for request in requests:
        puppet.answer(request["id"], content=content(request["params"]["arguments"]["text"]))
    for text, future in futures.items():
        assert future.result(PATIENCE).text == text


STRAY = {
    "an id never used": {"jsonrpc": "2.0", "id": 10**9, "result": {}},
    "an id as text that is no number": {"jsonrpc": "2.0", "id": "seven", "result": {}},
    "an id of another type": {"jsonrpc": "2.0", "id": 1.5, "result": {}},
    "true, which equals one": {"jsonrpc": "2.0", "id": True, "result": {}},
    "an error for nobody": {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": ""}},
    "a result for nobody": {"jsonrpc": "2.0", "id": None, "result": {}},
    "a negative id": {"jsonrpc": "2.0", "id": -1, "result": {}},
    "a cancel of ours": {
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "$id"},
    },
    "no object": 17,
    "an empty batch": [],
    "an object without anything": {},
}  # fmt: skip


@pytest.mark.parametrize("stray", STRAY.values(), ids=STRAY)
@pytest.mark.pitfall("23", "H10")
def test_a_stray_message_settles_nothing_and_breaks_nothing(
    puppet: Puppet, client: syncmcp.Client, stray: Any
) -> None:
    future = client.call_tool.future("say")
    request = puppet.next()
    puppet.say(json.loads(json.dumps(stray).replace('"$id"', json.dumps(request["id"]))))
    # Frames are taken in order: when this one has been answered, the stray one has been read.
    probe = client.call_tool.future("probe")
    puppet.answer(puppet.next()["id"], content=content("probed"))
    assert probe.result(PATIENCE).text == "probed"
    assert not future.done()
    puppet.answer(request["id"], content=content("said"))
    assert future.result(PATIENCE).text == "said"


@pytest.mark.pitfall("23", "H10")
@pytest.mark.requirement("CAN-05")
def test_the_first_of_two_answers_counts(puppet: Puppet, client: syncmcp.Client) -> None:
    for _ in range(100):
        future = client.call_tool.future("say")
        id = puppet.next()["id"]
        with nervous():
            in_threads(
                partial(puppet.answer, id, content=content("first")),
                partial(puppet.answer, id, content=content("second")),
            )
        settled = future.result(PATIENCE).text
        puppet.answer(id, content=content("third"))
        assert settled in ("first", "second")
        assert future.result(0).text == settled


def test_a_number_that_comes_back_as_text_is_still_the_same_id(
    puppet: Puppet, client: syncmcp.Client
) -> None:
    future = client.call_tool.future("say")
    puppet.answer(str(puppet.next()["id"]), content=content("said"))
    assert future.result(PATIENCE).text == "said"


@pytest.mark.requirement("RPC-04", "M-01")
def test_no_id_is_used_twice_by_many_threads_nor_after_a_reopening(puppet: Puppet) -> None:
    ids: list[Any] = []
    client = syncmcp.Client(puppet, mode=STATEFUL)

    def serve() -> None:
        for _ in range(8 * 50):
            request = puppet.next()
            ids.append(request["id"])
            puppet.answer(request["id"], content=content(request["params"]["arguments"]["text"]))

    def ask(thread: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(50):
                text = f"{thread}/{number}"
                assert client.call_tool("say", {"text": text}, timeout=PATIENCE).text == text

        return run

    for _ in range(2):
        with client, nervous():
            assert in_threads(*map(ask, range(8)), serve) == [None] * 9
    assert len(ids) == len(set(ids)) == 800


@pytest.mark.pitfall("H10", "14")
def test_nothing_that_comes_late_kills_the_reader(puppet: Puppet, client: syncmcp.Client) -> None:
    ids = []
    for number in range(300):
        future = client.call_tool.future("say")
        id = puppet.next()["id"]
        ids.append(id)
        if number % 3 == 0:
            future.cancel()
            puppet.answer(id, content=content("late"))
        elif number % 3 == 1:
            with nervous():
                in_threads(future.cancel, partial(puppet.answer, id, content=content("x")))
        else:
            puppet.answer(id, content=content("in time"))
        concurrent.futures.wait([future], PATIENCE)
        assert future.done()
    told = []
    while not puppet.notices.empty():
        told.append(puppet.notices.get()["params"]["requestId"])
    assert len(told) == len(set(told))
    assert set(told) <= set(ids)
    # Those that were cancelled before anything was answered are told without exception.
    assert set(ids[::3]) <= set(told)
    assert not set(ids[2::3]) & set(told)


@pytest.mark.pitfall("23")
@pytest.mark.requirement("M-01")
def test_a_call_that_is_answered_while_its_limit_passes_has_one_end(
    puppet: Puppet, client: syncmcp.Client, moved: MovedTime
) -> None:
    # The answer comes first, or second, or at the same time.
    ends: dict[int, set[object]] = {0: set(), 1: set(), 2: set()}
    for number in range(150):
        future = client.call_tool.future("say", timeout=600, idle_timeout=None)
        settled = SimpleQueue[object]()
        future.add_done_callback(settled.put)
        answer = partial(puppet.answer, puppet.next()["id"], content=content("said"))
        expire = partial(moved.advance, 600)
        if number % 3 == 0:
            answer()
            future.exception(PATIENCE)
            expire()
        elif number % 3 == 1:
            expire()
            answer()
        else:
            with nervous():
                in_threads(answer, expire)
        error = future.exception(PATIENCE)
        ends[number % 3].add(type(error))
        assert settled.get(timeout=PATIENCE) is future
        assert settled.empty()
        assert error is not None or future.result(0).text == "said"
    assert ends[0] == {type(None)}
    assert ends[1] == {syncmcp.RequestTimeout}
    assert ends[2] <= ends[0] | ends[1]
    final = client.call_tool.future("say")
    puppet.answer(puppet.next()["id"], content=content("still here"))
    assert final.result(PATIENCE).text == "still here"


@pytest.mark.pitfall("23")
@pytest.mark.parametrize(
    "wire", [Wire("stdio", STATELESS), Wire("http", STATEFUL), Wire("http", STATELESS)], ids=str
)
def test_a_crowd_of_threads_gets_its_own_answers_only(wire: Wire) -> None:
    from tests.system.stress.crowd import shuffling_server

    server = shuffling_server(seed=11, together=8)

    def ask(client: syncmcp.Client, thread: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(8):
                nonce = f"{thread}/{number}"
                if number % 2:
                    result = client.call_tool("shuffle", {"nonce": nonce}, timeout=2 * PATIENCE)
                else:
                    future = client.call_tool.future("shuffle", {"nonce": nonce})
                    result = future.result(2 * PATIENCE)
                assert result.text == nonce

        return run

    with wire.connect(server) as client:
        assert in_threads(*(ask(client, thread) for thread in range(64))) == [None] * 64
        overtaken = client.call_tool("overtaken").text
    assert overtaken is not None
    assert int(overtaken) > 0
