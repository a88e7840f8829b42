"""A server that misbehaves in a different way at each call, over stdio or HTTP.

``python -m tests.system.stress.hostile stdio`` speaks over its own pipes; ``... http`` prints its
URL and serves until stdin ends. Each call of its tool names the way, one of `WAYS`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from tests.support.stage import STATELESS
from tests.system.stress.doubles import encode, event, saying, sound
from tests.transports.http_peer import Request, serving


class Raw(NamedTuple):
    """Bytes that are written as they are, without an end of a frame."""

    data: bytes


class Pause(NamedTuple):
    """Nothing is written for so many seconds."""

    seconds: float


class Cut(NamedTuple):
    """The connection, or the process, ends."""


class Zipped(NamedTuple):
    """A whole body in gzip (HTTP)."""

    data: bytes


Step: TypeAlias = "bytes | Raw | Pause | Cut | Zipped"
"""What is sent: a frame, or one of the others."""

SLOW: Final = 0.01
"""Seconds between two pieces of what drips."""

_MANY: Final = 2_000
_DEEP: Final = 1_000_000


class Call(NamedTuple):
    """A call of the tool.

    Attributes:
        id: The id of the request.
        token: Its progress token.
        nonce: The text of a sound answer.
        answers: The answers that came with it (2026-07-28).
    """

    id: Any
    token: Any
    nonce: str
    answers: Mapping[str, Any]

    @property
    def sound(self) -> bytes:
        """The answer that a server that behaves would send."""
        return saying(self.id, self.nonce)


def _request(method: str, params: Any = None) -> bytes:
    return encode({"jsonrpc": "2.0", "id": os.urandom(4).hex(), "method": method, "params": params})


def _notification(method: str, params: Any) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


_SAMPLING: Final = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}],
    "maxTokens": 5,
}


def _pings(call: Call) -> Iterator[Step]:
    for _ in range(4 * _MANY):
        yield _request("ping")
    yield call.sound


def _logs(call: Call) -> Iterator[Step]:
    for _ in range(_MANY):
        yield _notification("notifications/message", {"level": "error", "data": "x" * 50})
        yield b'{"jsonrpc": "2.0", "method": 5}'
    yield call.sound


def _progress(call: Call) -> Iterator[Step]:
    for count in range(_MANY):
        told = {"progressToken": call.token, "progress": count}
        yield _notification("notifications/progress", told)
    yield call.sound


def _changes(call: Call) -> Iterator[Step]:
    for kind in ("tools", "prompts", "resources") * (_MANY // 3):
        yield _notification(f"notifications/{kind}/list_changed", {})
    yield call.sound


def _strays(call: Call) -> Iterator[Step]:
    for count in range(_MANY):
        yield saying(10**9 + count, "for nobody")
        yield b"not JSON"
    yield call.sound


def _drip(call: Call) -> Iterator[Step]:
    for byte in call.sound:
        yield Raw(bytes([byte]))
        yield Pause(SLOW * 10)
    yield Raw(b"\n")


def _dripping_pings(_call: Call) -> Iterator[Step]:
    for _ in range(300):
        yield _request("ping")
        yield Pause(SLOW)


def _roots(call: Call) -> Iterator[Step]:
    for _ in range(500):
        yield _request("roots/list")
        yield Pause(SLOW / 2)
    yield call.sound


def _models(call: Call) -> Iterator[Step]:
    for _ in range(500):
        yield _request("sampling/createMessage", _SAMPLING)
    yield call.sound


def _rounds(call: Call) -> Iterator[Step]:
    asked = {f"q{n}": {"method": "roots/list", "params": {}} for n in range(20)}
    result = {"resultType": "input_required", "inputRequests": asked, "requestState": call.nonce}
    yield encode({"jsonrpc": "2.0", "id": call.id, "result": result})


def _depth(call: Call) -> Iterator[Step]:
    yield b'{"jsonrpc": "2.0", "id": %b, "result": %b%b}' % (
        *(json.dumps(call.id).encode(), b"[" * _DEEP, b"]" * _DEEP),
    )


def _values(call: Call) -> Iterator[Step]:
    """As many as are accepted, but for a few, by a program that accepts frames of 4 MiB."""
    yield b'{"jsonrpc": "2.0", "id": %b, "result": {"content": [], "x": [%b[]]}}' % (
        *(json.dumps(call.id).encode(), b"[]," * 262_000),
    )


def _more_values(call: Call) -> Iterator[Step]:
    yield b'{"jsonrpc": "2.0", "id": %b, "result": {"content": [], "x": [%b[]]}}' % (
        *(json.dumps(call.id).encode(), b"[]," * _DEEP),
    )


def _huge(call: Call) -> Iterator[Step]:
    yield saying(call.id, "x" * (16 * 2**20))


def _numbers(call: Call) -> Iterator[Step]:
    yield b'{"jsonrpc": "2.0", "id": %b, "result": {"content": [], "_meta": {"n": %b}}}' % (
        *(json.dumps(call.id).encode(), b"9" * 10_000),
    )
    yield b'{"jsonrpc": "2.0", "id": 1e400, "result": {}}'
    yield call.sound


def _zipped(_: Call) -> Iterator[Step]:
    yield Zipped(_bomb())


def _lines(call: Call) -> Iterator[Step]:
    yield Raw(b":\n" * _DEEP)
    yield call.sound


def _early_cut(_: Call) -> Iterator[Step]:
    yield Cut()


def _late_cut(call: Call) -> Iterator[Step]:
    yield Raw(call.sound[:20])
    yield Cut()


def _silence(_: Call) -> Iterator[Step]:
    yield Pause(3.0)


def _honest(call: Call) -> Iterator[Step]:
    yield call.sound


@cache
def _bomb() -> bytes:
    """256 MiB of zeros, in gzip."""
    press = zlib.compressobj(wbits=31)
    return b"".join(press.compress(bytes(2**20)) for _ in range(256)) + press.flush()


WAYS: Final[Mapping[str, Callable[[Call], Iterator[Step]]]] = {
    "honest": _honest,
    "flood: pings": _pings,
    "flood: logs": _logs,
    "flood: progress": _progress,
    "flood: changes": _changes,
    "flood: strays": _strays,
    "drip: bytes": _drip,
    "drip: pings": _dripping_pings,
    "questions: roots": _roots,
    "questions: models": _models,
    "questions: rounds": _rounds,
    "bomb: depth": _depth,
    "bomb: values": _values,
    "bomb: more values": _more_values,
    "bomb: huge": _huge,
    "bomb: numbers": _numbers,
    "bomb: zipped": _zipped,
    "bomb: lines": _lines,
    "cut: early": _early_cut,
    "cut: late": _late_cut,
    "silence": _silence,
}


def steps(message: Any) -> Iterator[Step]:
    """What is sent because of a message of the client's."""
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
        answers = params.get("inputResponses") or {}
        call = Call(id, meta.get("progressToken"), given["nonce"], answers)
        yield from WAYS[given["way"]](call)
    else:
        yield sound(id, {})


def over_stdio() -> None:
    """Serve the process's own pipes; each call has a thread, so that one does not hold another."""
    lock = threading.Lock()

    def write(data: bytes) -> None:
        with lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def serve(message: Any) -> None:
        for step in steps(message):
            match step:
                case bytes():
                    write(step + b"\n")
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
    """Serve a port of loopback until stdin ends."""
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
