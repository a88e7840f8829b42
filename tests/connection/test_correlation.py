"""Matching of responses and calls: in any order, and with stray messages between them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp._base.secrets import Secrets
from tests.connection.puppet import Puppet
from tests.support.moved_time import MovedTime
from tests.support.stage import PATIENCE, STATEFUL, in_threads, nervous


@pytest.fixture
def puppet() -> Puppet:
    return Puppet()


@pytest.fixture
def client(puppet: Puppet) -> Iterator[syncmcp.Client]:
    with syncmcp.connect(puppet, mode=STATEFUL) as client:
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
    requests[0]["id"] = str(requests[0]["id"])  # the same id, sent back as text
    random.Random(7).shuffle(requests)
    assert len({request["id"] for request in requests}) == len(futures)
    for request in requests:
        puppet.answer(request["id"], content=content(request["params"]["arguments"]["text"]))
    for text, future in futures.items():
        assert future.result(PATIENCE).text == text


WHAT = {"code": -32700, "message": "what?"}
STRANGERS = (
    *(
        '"+{}"',
        '"-{}"',
        '" {}"',
        '"{} "',
        '"{}\\n"',
        '"x{}"',
        '"{}x"',
        '"{}.0"',
        '"{}e0"',
        '"0x{}"',
    ),
    *('"{}_0"', "-{}", "{}1", "1{}", "{}.5", "[{}]", '{{"id":{}}}', "true", '""'),
    '"\u0660{}"',  # a digit that Python's `int` accepts
)
"""Ids that resemble the id of a call."""
STRAY: dict[str, Any] = {
    **{f"an answer to {near.format(1)}": near for near in STRANGERS},
    "an id never used": {"id": 10**9, "result": {}},
    "a huge id": {"id": "9" * 5000, "result": {}},
    "an id that is a float": {"id": 1.5, "result": {}},
    "an id that is a list": {"id": [1], "result": {}},
    "an id alone": {"id": 77},
    "an error for nobody": {"id": None, "error": WHAT},
    "an error for an id never used": {"id": 10**9, "error": WHAT},
    "a result for nobody": {"id": None, "result": {}},
    "a cancel of ours": {"method": "notifications/cancelled", "params": {"requestId": "$id"}},
    "a request with a null id": {"id": None, "method": "acme/what"},
    "params that are a list": {"method": "acme/what", "params": [1]},
    "no object": 17,
    "an empty batch": [],
    "a batch of nothing": [None, 7, "x", [], {}],
    "progress of nothing": {"method": "notifications/progress"},
    "a log message that is a text": {"method": "notifications/message", "params": "text"},
    "a method that is a number": {"method": 7},
    "half a message": b'{"jsonrpc":"2.0","id":2,"res',
    "too deep a message": b'{"jsonrpc":"2.0","method":"x","params":%b}' % (b"[" * 5000),
}


@pytest.mark.parametrize("stray", STRAY.values(), ids=STRAY)
@pytest.mark.requirement("RPC-09", "RPC-10")
@pytest.mark.pitfall("12", "23", "H10")
def test_a_stray_message_settles_nothing_is_not_answered_and_not_searched_for_secrets(
    puppet: Puppet, client: syncmcp.Client, stray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    monkeypatch.setattr(Secrets, "quote", lambda _, text: searched.append(text))
    future = client.call_tool.future("say")
    request = puppet.next()
    if isinstance(stray, str):
        stray = f'{{"jsonrpc":"2.0","id":{stray.format(request["id"])},"result":{{}}}}'.encode()
    elif isinstance(stray, dict):
        text = json.dumps({"jsonrpc": "2.0", **stray})
        stray = text.replace('"$id"', json.dumps(request["id"])).encode()
    puppet.say(stray)
    # Frames are read in order: once this call is answered, the stray response has been read.
    probe = client.call_tool.future("probe")
    puppet.answer(puppet.next()["id"], content=content("probed"))
    assert probe.result(PATIENCE).text == "probed"
    assert not future.done()
    puppet.answer(request["id"], content=content("said"))
    assert future.result(PATIENCE).text == "said"
    assert (puppet.answers, searched) == ([], [])


@pytest.mark.parametrize(
    "answer",
    [
        *(b'"result":null', b'"result":%b' % (b"[" * 300 + b"]" * 300), b'"error":"text"'),
        *(b'"error":{"message":"no code"}', b'"result":{},"error":{"code":1,"message":"both"}'),
    ],
    ids=["null", "too deep", "a text", "no code", "both"],
)
def test_a_wrong_answer_ends_its_call(
    puppet: Puppet, client: syncmcp.Client, answer: bytes
) -> None:
    future = client.call_tool.future("say")
    puppet.say(b'{"jsonrpc":"2.0","id":%d,%b}' % (puppet.next()["id"], answer))
    error = future.exception(PATIENCE)
    assert isinstance(error, syncmcp.ProtocolError)
    assert error.method == "tools/call"


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


@pytest.mark.pitfall("23")
@pytest.mark.requirement("M-01")
def test_a_call_that_is_answered_while_its_limit_passes_has_one_end(
    puppet: Puppet, client: syncmcp.Client, moved: MovedTime
) -> None:
    # The answer arrives before the timeout, after it, or at the same time.
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
    assert (ends[0], ends[1]) == ({type(None)}, {syncmcp.RequestTimeout})
    assert ends[2] <= ends[0] | ends[1]
    final = client.call_tool.future("say")
    puppet.answer(puppet.next()["id"], content=content("still here"))
    assert final.result(PATIENCE).text == "still here"
