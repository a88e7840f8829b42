"""Interceptors for tests: `Seen` records, `Does` acts; and two ways to call a tool, ``ask``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from syncmcp import Client, Interceptor, Message
from tests.support.stage import PATIENCE, STATEFUL, Wire, rotated_with

MEMORY = Wire("memory", STATEFUL)

Ask = Callable[[Client, str], Any]


def block(client: Client, text: str) -> Any:
    return client.call_tool("echo", {"text": text})


def future(client: Client, text: str) -> Any:
    return client.call_tool.future("echo", {"text": text}).result(PATIENCE)


def call_of(client: Client, ask: Ask) -> Callable[..., Any]:
    """Return the function that calls a tool in the way of `ask`."""
    if ask is block:
        return client.call_tool
    return lambda *args, **named: client.call_tool.future(*args, **named).result(PATIENCE)


both_ways = pytest.mark.parametrize("ask", [block, future])
rotated_asks = rotated_with("ask", [block, future])


class Seen(Interceptor):
    """Records each message with its hook, and the name of the thread that called the hook."""

    def __init__(self, name: str = "seen", log: list[tuple[str, str, Message]] | None = None):
        self.name = name
        self.log = [] if log is None else log
        self.threads: list[str] = []
        self.changed = threading.Condition()

    def _note(self, hook: str, message: Message) -> None:
        with self.changed:
            self.log.append((self.name, hook, message))
            self.threads.append(threading.current_thread().name)
            self.changed.notify_all()

    def outgoing(self, message: Message) -> None:
        self._note("outgoing", message)

    def incoming(self, message: Message) -> None:
        self._note("incoming", message)

    def ended(self, answer: Message) -> None:
        self._note("ended", answer)

    def of(self, method: str) -> list[tuple[str, Message]]:
        return [(hook, each) for _, hook, each in self.log if each.method == method]

    def hooks(self, method: str) -> list[tuple[str, str]]:
        return [(hook, message.kind) for hook, message in self.of(method)]

    def wait(self, method: str, kind: str, *, settled: bool | None = None) -> Message:
        """Wait for a message of this method and kind; return the first one."""

        def found() -> list[Message]:
            of_kind = [each for _, each in self.of(method) if each.kind == kind]
            return [each for each in of_kind if settled in {None, each.settled}]

        with self.changed:
            assert self.changed.wait_for(found, PATIENCE), f"no {kind} {method}"
            return found()[0]


class Does(Interceptor):
    """Runs an action for the messages of one method in one hook, and forwards the others."""

    def __init__(self, hook: str, method: str, action: Callable[[Message], Any]) -> None:
        self._hook, self._method, self._action = hook, method, action

    def _do(self, hook: str, message: Message) -> Any:
        if (hook, message.method) == (self._hook, self._method):
            return self._action(message)
        return None

    def outgoing(self, message: Message) -> Any:
        return self._do("outgoing", message)

    def incoming(self, message: Message) -> Any:
        return self._do("incoming", message)

    def ended(self, answer: Message) -> None:
        self._do("ended", answer)


def on_call(hook: str, action: Callable[[Message], Any]) -> Does:
    return Does(hook, "tools/call", action)


def throws(error: BaseException) -> Callable[[Message], NoReturn]:
    def action(message: Message) -> NoReturn:
        raise error

    return action


class Gate:
    """An action that blocks until the test sets `open`, and fails if the test does not."""

    def __init__(self) -> None:
        self.inside = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, message: Message) -> None:
        self.inside.release()
        assert self.open.wait(6 * PATIENCE)

    def reached(self) -> None:
        assert self.inside.acquire(timeout=PATIENCE)
