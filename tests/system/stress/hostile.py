"""A server that misbehaves in a different way in each call, over stdio or HTTP.

``python -m tests.system.stress.hostile stdio`` serves over its own pipes; ``... http`` prints its
URL and serves until stdin ends. The argument ``way`` of its tool names one of `WAYS`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from tests.support.stage import STATELESS
from tests.system.stress.doubles import encode, event, saying, sound
from tests.transports.http_peer import Request, serving


class Raw(NamedTuple):
    """Bytes that are written unchanged, without a delimiter of frames."""

    data: bytes


class Pause(NamedTuple):
    """A pause before the next step."""

    seconds: float


class Cut(NamedTuple):
    """The end of the connection, or over stdio of the process."""


class Zipped(NamedTuple):
    """A whole HTTP body, compressed by gzip."""

    data: bytes


Step: TypeAlias = "bytes | Raw | Pause | Cut | Zipped"
"""One step of an answer; bytes are a frame."""

SLOW: Final = 0.01
"""Seconds between two pieces of a slow answer."""

_MANY: Final = 2_000
_DEEP: Final = 1_000_000


class Call(NamedTuple):
    """A call of the tool.

    Attributes:
        id: The id of the request.
        token: Its progress token.
        nonce: The text of a valid answer.
    """

    id: Any
    token: Any
    nonce: str

    @property
    def sound(self) -> bytes:
        """The valid answer."""
        return saying(self.id, self.nonce)


def _request(method: str, params: Any = None) -> bytes:
    return encode({"jsonrpc": "2.0", "id": os.urandom(4).hex(), "method": method, "params": params})


def _notification(method: str, params: Any) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


_SAMPLING: Final = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}],
    "maxTokens": 5,
}


def _result(call: Call, result: bytes) -> bytes:
    return b'{"jsonrpc": "2.0", "id": %b, "result": %b}' % (json.dumps(call.id).encode(), result)


def _lists(count: int) -> bytes:
    """Return a result with `count` + 1 empty lists."""
    return b'{"content": [], "x": [%b[]]}' % (b"[]," * count)


def _round(call: Call) -> bytes:
    asked = {f"q{n}": {"method": "roots/list", "params": {}} for n in range(20)}
    result = {"resultType": "input_required", "inputRequests": asked, "requestState": call.nonce}
    return encode({"jsonrpc": "2.0", "id": call.id, "result": result})


@cache
def _bomb() -> bytes:
    """Return 256 MiB of zeros, compressed by gzip."""
    press = zlib.compressobj(wbits=31)
    return b"".join(press.compress(bytes(2**20)) for _ in range(256)) + press.flush()


WAYS: Final[Mapping[str, Callable[[Call], Iterable[Step]]]] = {
    "honest": lambda call: [call.sound],
    "flood: pings": lambda call: [*(_request("ping") for _ in range(4 * _MANY)), call.sound],
    "flood: logs": lambda call: [
        *[
            _notification("notifications/message", {"level": "error", "data": "x" * 50}),
            b'{"jsonrpc": "2.0", "method": 5}',
        ]
        * _MANY,
        call.sound,
    ],
    "flood: progress": lambda call: [
        *(
            _notification("notifications/progress", {"progressToken": call.token, "progress": n})
            for n in range(_MANY)
        ),
        call.sound,
    ],
    "flood: changes": lambda call: [
        *(
            _notification(f"notifications/{kind}/list_changed", {})
            for kind in ("tools", "prompts", "resources") * (_MANY // 3)
        ),
        call.sound,
    ],
    "flood: strays": lambda call: [
        *(step for n in range(_MANY) for step in (saying(10**9 + n, "for nobody"), b"not JSON")),
        call.sound,
    ],
    "drip: bytes": lambda call: [
        *(step for byte in call.sound for step in (Raw(bytes([byte])), Pause(10 * SLOW))),
        Raw(b"\n"),
    ],
    "drip: pings": lambda call: [
        step for _ in range(300) for step in (_request("ping"), Pause(SLOW))
    ],
    "questions: roots": lambda call: [
        *(step for _ in range(500) for step in (_request("roots/list"), Pause(SLOW / 2))),
        call.sound,
    ],
    "questions: models": lambda call: [
        *(_request("sampling/createMessage", _SAMPLING) for _ in range(500)),
        call.sound,
    ],
    "questions: rounds": lambda call: [_round(call)],
    "bomb: depth": lambda call: [_result(call, b"[" * _DEEP + b"]" * _DEEP)],
    # Slightly fewer values than a client with `max_frame` of 4 MiB accepts.
    "bomb: values": lambda call: [_result(call, _lists(262_000))],
    "bomb: more values": lambda call: [_result(call, _lists(_DEEP))],
    "bomb: huge": lambda call: [saying(call.id, "x" * (16 * 2**20))],
    "bomb: numbers": lambda call: [
        _result(call, b'{"content": [], "_meta": {"n": %b}}' % (b"9" * 10_000)),
        b'{"jsonrpc": "2.0", "id": 1e400, "result": {}}',
        call.sound,
    ],
    "bomb: zipped": lambda call: [Zipped(_bomb())],
    "bomb: lines": lambda call: [Raw(b":\n" * _DEEP), call.sound],
    "cut: early": lambda call: [Cut()],
    "cut: late": lambda call: [Raw(call.sound[:20]), Cut()],
    "silence": lambda call: [Pause(3.0)],
}
"""The steps of the answer to a call, by the name of the way."""


def steps(message: Any) -> Iterator[Step]:
    """Yield the steps of the answer to a message of the client."""
    if not isinstance(message, dict) or "method" not in message or "id" not in message:
        return
    id, method, params = message["id"], message["method"], message.get("params") or {}
    declared = {
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "serverInfo": {"name": "hostile", "version": "1"},
    }
    if method == "server/discover":
        cached = {"ttlMs": 0, "cacheScope": "private"}
        yield sound(id, {"supportedVersions": [STATELESS], **declared, **cached})
    elif method == "initialize":
        yield sound(id, {"protocolVersion": params["protocolVersion"], **declared})
    elif method == "tools/call":
        given = params["arguments"]
        meta = params.get("_meta") or {}
        call = Call(id, meta.get("progressToken"), given["nonce"])
        yield from WAYS[given["way"]](call)
    else:
        yield sound(id, {})


def over_stdio() -> None:
    """Serve over stdin and stdout; each message has a thread, so that no call delays another."""
    lock, unfinished = threading.Lock(), False

    def write(data: bytes, *, frame: bool = False) -> None:
        nonlocal unfinished
        with lock:
            # A frame must not continue the unfinished line of another answer: it would be lost.
            sys.stdout.buffer.write(b"\n" * (frame and unfinished) + data)
            sys.stdout.buffer.flush()
            unfinished = not data.endswith(b"\n")

    def serve(message: Any) -> None:
        for step in steps(message):
            match step:
                case bytes():
                    write(step + b"\n", frame=True)
                case Raw(data):
                    write(data)
                case Pause(seconds):
                    time.sleep(seconds)
                case Cut():
                    os._exit(1)
                case Zipped():
                    write(b"\x1f\x8b\n")

    for line in sys.stdin.buffer:
        threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()


def over_http() -> None:
    """Serve over HTTP on loopback until stdin ends."""
    with serving(_answer) as server:
        print(server.url, flush=True)
        sys.stdin.read()


def _answer(request: Request) -> None:
    connection = request.connection
    if request.method != "POST":
        connection.respond(405)
        return
    started = False
    for step in steps(request.message):
        if isinstance(step, Zipped):
            kinds = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
            connection.respond(200, step.data, kinds)
            return
        if not started:
            connection.start_events()
            started = True
        match step:
            case bytes():
                connection.chunk(event(step))
            case Raw(data):
                connection.chunk(data)
            case Pause(seconds):
                if connection.ended.wait(seconds):
                    return
            case Cut():
                connection.shut_down()
                return
    if started:
        connection.end_events()
    else:
        connection.respond(202)


if __name__ == "__main__":
    over_http() if sys.argv[1] == "http" else over_stdio()
