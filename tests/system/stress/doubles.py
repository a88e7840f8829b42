"""A fake server whose answers a test writes, over memory, pipes and HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final, NamedTuple

import syncmcp
from syncmcp import Mode
from syncmcp.types import CallToolResult, LoggingMessageNotificationParams
from tests.support.stage import STATEFUL, STATELESS, relayed
from tests.transports.http_peer import RawServer, Request, serving

LIMIT: Final = 30.0
"""The timeout of each call, in seconds: a call that reaches it hangs, and the test fails."""

Answer = Callable[[dict[str, Any]], "list[bytes] | None"]
"""Returns the frames to send for a request, valid or not; `None` for a valid answer."""


def encode(message: Any) -> bytes:
    return json.dumps(message).encode()


def sound(id: Any, result: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", **result}})


def saying(id: Any, text: str) -> bytes:
    """Return a valid answer to a call of a tool."""
    return sound(id, {"content": [{"type": "text", "text": text}]})


def in_pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Split `data` at the offsets `cuts`, each modulo its length plus one."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


class Double:
    """The fake server.

    Attributes:
        answer: Returns the frames for a request; set by each test.
        sessions: The number of connections so far, except over HTTP.
    """

    name = "double"

    def __init__(self) -> None:
        self.answer: Answer = lambda message: None
        self.sessions = 0

    def frames(self, message: Any) -> list[bytes]:
        """Return the frames to send after a message of the client."""
        if "method" not in message or "id" not in message:
            return []
        id, method, params = message["id"], message["method"], message.get("params") or {}
        info = {"serverInfo": {"name": self.name, "version": "1"}}
        abilities = {"capabilities": {"tools": {}}, **info}
        if method == "server/discover":
            return [sound(id, {"supportedVersions": [STATELESS], **abilities, **_CACHED})]
        if method == "initialize":
            return [sound(id, {"protocolVersion": params["protocolVersion"], **abilities})]
        if method == "tools/call" and params.get("name") == "echo":
            return [saying(id, params["arguments"]["text"])]
        given = self.answer(message)
        return [sound(id, {"tools": [], **_CACHED})] if given is None else given

    # Over memory, and over pipes through a relay.

    def connect(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None] | None = None
    ) -> Session:
        self.sessions += 1
        return Session(self, deliver)

    # Over HTTP.

    def script(self, request: Request) -> None:
        if request.method != "POST":
            request.connection.respond(405)
            return
        frames = self.frames(request.message)
        if not frames:
            request.connection.respond(202)
            return
        request.connection.start_events()
        for frame in frames:
            request.connection.chunk(event(frame))
        request.connection.end_events()


_CACHED: Final = {"ttlMs": 0, "cacheScope": "private"}


def event(frame: bytes) -> bytes:
    lines = re.split(rb"\r\n|\r|\n", frame)
    return b"".join(b"data: %b\n" % line for line in lines) + b"\n"


class Session:
    """One connection to the fake server."""

    def __init__(self, double: Double, deliver: Callable[[bytes], None]) -> None:
        self._double = double
        self._deliver = deliver

    def receive(self, frame: bytes) -> None:
        for answer in self._double.frames(json.loads(frame)):
            self._deliver(answer)

    def close(self) -> None:
        """Do nothing: a session has no resources."""


def call(client: syncmcp.Client) -> CallToolResult:
    """Call a tool that the test answers."""
    return client.call_tool("victim", {}, validate_output="off", validate_input=False)


class Way(NamedTuple):
    """A transport and a revision."""

    wire: str
    era: Mode

    def __str__(self) -> str:
        return f"{self.wire}-{self.era}"


WAYS: Final = (
    Way("memory", STATELESS),
    Way("memory", "2025-03-26"),  # the one revision with batches
    Way("memory", STATEFUL),
    Way("stdio", STATEFUL),
    Way("http", STATELESS),
)


class Callbacks:
    """The callbacks of a client.

    Attributes:
        wrong: The arguments of callbacks that had a wrong type.
    """

    def __init__(self) -> None:
        self.wrong: list[tuple[object, ...]] = []

    def log(self, params: LoggingMessageNotificationParams) -> None:
        self._check(isinstance(params, LoggingMessageNotificationParams), params)

    def progress(self, progress: Any, total: Any, message: Any) -> None:
        number = (int, float)
        sound = isinstance(progress, number) and isinstance(total, (*number, type(None)))
        self._check(sound and isinstance(message, (str, type(None))), progress, total, message)

    def notification(self, method: str, params: dict[str, Any]) -> None:
        self._check(type(method) is str and type(params) is dict, method, params)

    def question(self, params: dict[str, Any], context: syncmcp.HandlerContext) -> dict[str, Any]:
        self._check(type(params) is dict, params)
        return {"echo": params}

    def _check(self, sound: bool, *given: object) -> None:
        if not sound:
            self.wrong.append(given)


class Bench:
    """A fake server and a client of it, which examples share.

    After each example, the client must still work on the same connection. After a failure, the
    next example gets a new client, so that Hypothesis can shrink the counterexample.

    Attributes:
        double: The fake server.
        own_streams: True if each call has its own stream.
    """

    def __init__(self, double: Double, target: Any, era: Mode, own_streams: bool = False) -> None:
        self.double = double
        self.own_streams = own_streams
        self._target = target
        self._era: Mode = era
        self._client: syncmcp.Client | None = None
        self._callbacks = Callbacks()
        self._count = 0

    @property
    def client(self) -> syncmcp.Client:
        if self._client is None:
            self._callbacks = Callbacks()
            self._client = syncmcp.Client(
                self._target,
                mode=self._era,
                timeout=LIMIT,
                retry=None,
                max_pages=10,
                validate_input=True,
                on_log=self._callbacks.log,
                on_progress=self._callbacks.progress,
                on_notification=self._callbacks.notification,
            )
            self._client.on_request("acme/question", self._callbacks.question)
            self._client.open()
        return self._client

    def examine(self, answer: Answer, use: Callable[[syncmcp.Client], object]) -> Any:
        """Use the client while the server answers with `answer`; then check that both still work.

        Returns:
            The result of `use`, or the `McpError` that it raised.
        """
        client = self.client
        connection = client._core.connection
        self.double.answer = answer
        try:
            try:
                outcome = use(client)
            except syncmcp.RequestTimeout as error:
                raise AssertionError("the call hung") from error
            except syncmcp.McpError as error:
                outcome = error
            except Exception as error:
                raise AssertionError("something else than an McpError came out") from error
            self._count += 1
            nonce = f"still here {self._count}"
            # Unchecked: the schema of an unlisted tool would be looked up in the double's lists.
            unchecked: Any = {"validate_input": False, "validate_output": "off"}
            assert client.call_tool("echo", {"text": nonce}, **unchecked).text == nonce
            # After a failure, the client would have replaced the connection.
            assert client._core.connection is connection
            assert connection is not None
            assert len(connection._table) == 0
            assert self._callbacks.wrong == []
        except BaseException:
            self.close()
            raise
        return outcome

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


@contextmanager
def bench(way: Way) -> Iterator[Bench]:
    """Serve a fake server over that transport; yield the bench."""
    double = Double()
    if way.wire == "memory":
        made = Bench(double, double, way.era)
        try:
            yield made
        finally:
            made.close()
    elif way.wire == "stdio":
        with relayed(double) as target:
            made = Bench(double, target, way.era)
            try:
                yield made
            finally:
                made.close()
    else:
        with http_bench(double.script, double, way.era) as (made, _):
            yield made


@contextmanager
def http_bench(
    script: Callable[[Request], None], double: Double, era: Mode
) -> Iterator[tuple[Bench, RawServer]]:
    """Serve over HTTP by `script`; yield the bench and the HTTP server."""
    with serving(script) as server:
        made = Bench(double, server.url, era, own_streams=True)
        try:
            yield made, server
        finally:
            made.close()
