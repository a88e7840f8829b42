"""Nonsense from a server: whatever it sends, its sound answers are heard and nothing breaks.

Everything is drawn from one seed, which is printed; `SYNCMCP_STRESS_SEED` runs it again. `make
stress` runs the full sizes. A thread that ends by an exception fails its test (pytest), and so does
one that is left behind (`tests/conftest.py`).
"""

from __future__ import annotations

import json
import logging
import random
import re
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pytest

import syncmcp
from syncmcp.testing import Server
from syncmcp.testing.demo import demo_server
from syncmcp.transports._pipes import LineReader
from syncmcp.types import LoggingMessageNotificationParams
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, in_threads, relayed
from tests.system.stress.sizes import seeded, sizes

# No call may take longer, in seconds.
LIMIT = 60.0

# The one revision with batches, and one of each era.
REVISIONS: Final = ("2025-03-26", STATEFUL, STATELESS)

THREADS = 4

# Ids of the client are small numbers; this finds what could be meant for one of its calls.
_OURS = re.compile(rb'"id"\s*:\s*"?(0*\d{1,6})\b')

METHODS = (
    *("notifications/progress", "notifications/message", "notifications/cancelled"),
    *("notifications/initialized", "notifications/tools/list_changed"),
    *("notifications/resources/updated", "notifications/elicitation/complete"),
    *("sampling/createMessage", "elicitation/create", "roots/list"),
    *("acme/question", "acme/question", "ping", "tools/call", "initialize", "no/such", ""),
)

KEYS = (
    *("_meta", "capabilities", "content", "contents", "completion", "data", "isError", "level"),
    *("logger", "message", "messages", "name", "nextCursor", "progress", "prompts", "reason"),
    *("resources", "resultType", "structuredContent", "text", "tools", "total", "type"),
    "ü\u2028",
)

SCALARS = (
    *("null", "true", "false", "0", "-1", "1.5", "-0.0", "1e400", "NaN", "9" * 30, "9" * 5000),
    *('""', '"text"', '"complete"', '"input_required"', '"info"'),
    *(r'"\ud83d\ude00"', r'"\ud800"', r'"\u0000"', '"\u2028\u0085"', '"unfinished', "tru"),
)


class Nonsense:
    """Draws frames, from almost sound to plain garbage."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def frame(self, id: int | None = None) -> bytes:
        """One frame; with `id` perhaps an answer to that call, without it to no call that is open.

        Even without `id` it may be a notification about it, or a question.
        """
        while True:
            kind = self._dice.choices(
                (self._message, self._batch, self._deep, self._garbage, self._mutated),
                (60, 8, 2, 10, 20),
            )[0]
            frame = kind(id)
            # A mutation may have made another id out of it.
            if all(int(found) == id for found in _OURS.findall(frame)):
                return frame

    def _message(self, id: int | None) -> bytes:
        kind = self._dice.choice(
            (self._result, self._error, self._notification, self._request, self._oddity)
        )
        members = [("jsonrpc", self._dice.choice(('"2.0"',) * 9 + ('"1.0"',))), *kind(id)]
        if self._dice.random() < 0.1:
            # Twice the same key, with another value.
            members.append((self._dice.choice(members)[0], self._value(2)))
        if self._dice.random() < 0.1:
            members.remove(self._dice.choice(members))
        if self._dice.random() < 0.2:
            self._dice.shuffle(members)
        return self._object(members).encode("utf-8", "surrogatepass")

    def _result(self, id: int | None) -> list[tuple[str, str]]:
        return [("id", self._id(id)), ("result", self._value())]

    def _error(self, id: int | None) -> list[tuple[str, str]]:
        code = self._dice.choice(("-32603", "-32042", "1", self._value(2)))
        members = [("code", code), ("message", self._value(2)), ("data", self._value(1))]
        error = self._dice.choice((self._object(members), self._value()))
        return [("id", self._id(id)), ("error", error)]

    def _notification(self, id: int | None) -> list[tuple[str, str]]:
        return [("method", self._method()), ("params", self._params())]

    def _request(self, id: int | None) -> list[tuple[str, str]]:
        # An id of the server's: it may well be equal to one of ours.
        own = str(self._dice.randrange(50))
        question = self._dice.choice((own, self._id(None)))
        return [("method", self._method()), ("id", question), ("params", self._params())]

    def _oddity(self, id: int | None) -> list[tuple[str, str]]:
        choices = [*self._result(id), *self._error(id), *self._request(None)]
        return self._dice.sample(choices, self._dice.randrange(4))

    def _batch(self, id: int | None) -> bytes:
        items = [
            self._message(id) if self._dice.random() < 0.9 else self._value().encode()
            for _ in range(self._dice.randrange(5))
        ]
        return b"[" + b",".join(items) + b"]"

    def _deep(self, id: int | None) -> bytes:
        depth = self._dice.choice((50, 190, 250, 10_000))
        opening, closing = self._dice.choice((("[", "]"), ('{"a":', "}")))
        deep = opening * depth + "0" + closing * depth
        return self._object([("id", self._id(id)), ("result", deep)]).encode()

    def _garbage(self, id: int | None) -> bytes:
        length = self._dice.randrange(200)
        noise = self._dice.choice((b"[INFO] ready", b"", b"\xef\xbb\xbf", b"{", b"[{", b"\0"))
        return noise + bytes(self._dice.choices(range(256), k=length))

    def _mutated(self, id: int | None) -> bytes:
        frame = bytearray(self._message(id))
        for _ in range(self._dice.randrange(1, 4)):
            at = self._dice.randrange(len(frame) + 1)
            to = at + self._dice.randrange(8)
            piece = bytes(self._dice.choices(b'{}[],:"\\ \t\r\nntue\xff\xc3\0', k=2))
            frame[at:to] = self._dice.choice((b"", piece, frame[at:to] * 2))
        return bytes(frame)

    def _method(self) -> str:
        if self._dice.random() < 0.9:
            return json.dumps(self._dice.choice(METHODS))
        return self._value(2)

    def _params(self) -> str:
        if self._dice.random() < 0.2:
            return self._value()
        # What the client looks at, with a sound type or any other.
        members = [
            (name, sound if self._dice.random() < 0.5 else self._value(2))
            for name, sound in (
                ("progressToken", str(self._dice.randrange(50))),
                ("progress", str(self._dice.random())),
                ("requestId", str(self._dice.randrange(50))),
                ("level", '"warning"'),
                ("data", '"said"'),
            )
            if self._dice.random() < 0.7
        ]
        return self._object(members)

    def _id(self, id: int | None) -> str:
        if id is not None and self._dice.random() < 0.7:
            return self._dice.choice((f"{id}", f"{id}", f'"{id}"', f"{id}.0", f'"0{id}"'))
        stranger = str(self._dice.randrange(10**9, 10**10))
        return self._dice.choice((stranger, f"-{stranger}", f'"x{stranger}"', self._value(2)))

    def _value(self, depth: int = 0) -> str:
        kind = self._dice.random()
        if depth >= 3 or kind < 0.5:
            # Mostly something that can be read at all.
            return self._dice.choice(SCALARS[: 7 if self._dice.random() < 0.5 else None])
        count = range(self._dice.randrange(4))
        if kind < 0.7:
            return "[" + ",".join(self._value(depth + 1) for _ in count) + "]"
        return self._object([(self._dice.choice(KEYS), self._value(depth + 1)) for _ in count])

    @staticmethod
    def _object(members: list[tuple[str, str]]) -> str:
        return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members) + "}"


def cut(dice: random.Random, data: bytes) -> list[bytes]:
    """`data` in pieces, some of them empty."""
    places = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(8)))
    return [data[start:end] for start, end in pairwise((0, *places, len(data)))]


class Disturbed:
    """A sound server on a bad line: each of its answers comes in the midst of nonsense.

    The nonsense answers no call of `echo`; other calls are victims, and may be answered by it.
    """

    name = "disturbed"

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._seed = seed
        self._session: Any = None
        # Guards the set, and tells of each frame from the client.
        self.heard = threading.Condition()
        self._victims: set[int] = set()
        self._latest = b""
        self.frames = 0
        self.sessions = 0

    def connect(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None] | None = None
    ) -> Disturbed:
        self.sessions += 1
        self._session = self._server.connect(partial(self._send, deliver))
        return self

    def receive(self, frame: bytes) -> None:
        """Every frame of the client's must be sound, whatever it has heard."""
        message = json.loads(frame)
        assert message["jsonrpc"] == "2.0"
        with self.heard:
            if "method" in message and "id" in message:
                if (message.get("params") or {}).get("name") != "echo":
                    self._victims.add(message["id"])
            elif "method" not in message:
                assert ("result" in message) != ("error" in message)
                assert type(message["id"]) in (int, str)
            self.heard.notify_all()
        self._session.receive(frame)

    def close(self) -> None:
        self._session.close()

    def _send(self, deliver: Callable[[bytes], None], answer: bytes) -> None:
        message = json.loads(answer)
        id = message.get("id")
        if id is None or "protocolVersion" in str(message) or "supportedVersions" in str(message):
            deliver(answer)
            return
        dice = random.Random(f"{self._seed}/{id}")
        with self.heard:
            target = id if id in self._victims else None
            # An answer that came already comes again.
            again, self._latest = self._latest, answer
        nonsense = Nonsense(dice)
        frames = [nonsense.frame(target) for _ in range(dice.randrange(10))]
        if dice.random() < 0.2:
            frames.append(again)
        for frame in frames:
            deliver(frame)
        deliver(answer)
        with self.heard:
            self.frames += len(frames)


class Listener:
    """What a program would hang on a client; remembers what no callback should be given."""

    def __init__(self) -> None:
        self.wrong: list[tuple[object, ...]] = []

    def log(self, params: LoggingMessageNotificationParams) -> None:
        self._check(isinstance(params, LoggingMessageNotificationParams), params)

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        # Annotations promise nothing here.
        given: tuple[Any, ...] = (progress, total, message)
        number, text = (int, float), (str, type(None))
        sound = isinstance(given[0], number) and isinstance(given[1], (*number, type(None)))
        self._check(sound and isinstance(given[2], text), *given)

    def notification(self, method: str, params: dict[str, Any]) -> None:
        self._check(type(method) is str and type(params) is dict, method, params)

    def question(self, params: dict[str, Any], context: syncmcp.HandlerContext) -> dict[str, Any]:
        self._check(type(params) is dict, params)
        return {"echo": params}

    def _check(self, sound: bool, *given: object) -> None:
        if not sound:
            self.wrong.append(given)


def victim(client: syncmcp.Client, dice: random.Random) -> None:
    """A call that nonsense may answer: it ends, with a result or an error of ours."""
    calls: tuple[Callable[..., object], ...] = (
        client.list_tools,
        client.list_resources,
        client.list_resource_templates,
        client.list_prompts,
        partial(client.read_resource, "demo://readme"),
        partial(client.get_prompt, "hello"),
        partial(client.call_tool, "greet", {"name": "you"}),
        partial(client.call_tool, "weather", {"city": "Rome"}),
        partial(client.request, "no/such", result=dict),
    )
    try:
        dice.choice(calls)(timeout=LIMIT)
    except syncmcp.RequestTimeout:
        raise
    except syncmcp.McpError:
        return


def disturb(target: Any, double: Disturbed, revision: Any, seed: int, calls: int) -> None:
    """Make calls from several threads; each sound one must have its own answer."""
    listener = Listener()
    client = syncmcp.Client(
        target,
        mode=revision,
        on_log=listener.log,
        on_progress=listener.progress,
        on_notification=listener.notification,
    )
    client.on_request("acme/question", listener.question)

    def caller(thread: int) -> None:
        dice = random.Random(f"{seed}/{thread}")
        for number in range(calls):
            if dice.random() < 0.5:
                victim(client, dice)
            nonce = f"{thread}/{number}"
            result = client.call_tool(
                "echo", {"text": nonce}, timeout=LIMIT, on_progress=listener.progress
            )
            assert result.text == nonce

    with client:
        connection = client._core.connection
        outcomes = in_threads(*(partial(caller, n) for n in range(THREADS)), patience=1000.0)
        assert outcomes == [None] * THREADS
        assert client.call_tool("echo", {"text": "again"}, timeout=LIMIT).text == "again"
        # A reader that failed would have been replaced together with its connection.
        assert client._core.connection is connection
        assert connection is not None
        assert len(connection._table) == 0
        with double.heard:
            assert double.heard.wait_for(lambda: len(connection.questions) == 0, PATIENCE)
    assert double.sessions == 1
    assert double.frames > calls
    assert listener.wrong == []
    print(f"{double.frames} frames of nonsense around {calls * THREADS} calls")


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep the many warnings out of memory; errors are kept."""
    caplog.set_level(logging.ERROR, "syncmcp")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("revision", REVISIONS)
@sizes(12, 2000, 1200)
def test_sound_answers_are_heard_amid_nonsense(revision: str, size: int) -> None:
    seed = seeded()
    double = Disturbed(demo_server(), seed)
    disturb(double, double, revision, seed, size)


@pytest.mark.usefixtures("quiet")
@pytest.mark.pitfall("12")
@pytest.mark.parametrize("revision", REVISIONS)
@sizes(12, 400, 1200)
def test_sound_answers_are_heard_amid_nonsense_in_pieces(
    revision: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = seeded()
    cuts = random.Random(seed)

    class Crumbs(LineReader):
        """Takes what was read in pieces, as another pipe might have given it."""

        def feed(self, chunk: bytes) -> list[bytes]:
            return [line for piece in cut(cuts, chunk) for line in super(Crumbs, self).feed(piece)]

    monkeypatch.setattr("syncmcp.transports.stdio.LineReader", Crumbs)
    double = Disturbed(demo_server(), seed)
    with relayed(double) as target:
        disturb(target, double, revision, seed, size)
