"""Time limits of the tool loop, completion and the doctor, by a clock that tests move."""

from __future__ import annotations

import socket
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import syncmcp
from syncmcp import RequestTimeout
from syncmcp.approval import Approval
from syncmcp.cli.doctor import _check_address
from syncmcp.completion import Completer
from syncmcp.config import Http
from syncmcp.handlers import HandlerContext
from syncmcp.llm import _sampling
from syncmcp.tools import ToolLoop
from syncmcp.types import CreateMessageRequestParams, CreateMessageResult, Prompt, PromptArgument
from tests.features.test_tool_loop import DONE, Absent, Model, adder, use, wants
from tests.support.moved_time import MovedTime
from tests.support.stage import PATIENCE, STATELESS, Stage
from tests.ui.asking import context

LIMIT = 600.0
SOONER = 10.0


@pytest.mark.parametrize("outer", [None, SOONER])
def test_a_model_is_told_how_long_it_has(outer: float | None, moved: MovedTime) -> None:
    left: list[float | None] = []

    def says(request: CreateMessageRequestParams, within: HandlerContext) -> CreateMessageResult:
        left.append(within.time_left())
        return DONE

    with syncmcp.connect(adder()) as client:
        loop = ToolLoop(Model(says), client, timeout=LIMIT)
        loop.run("go", context=None if outer is None else context(timeout=outer))
    assert left == [outer or LIMIT]


def test_a_person_decides_about_a_tool_until_human_timeout(moved: MovedTime) -> None:
    reached = threading.Event()
    person = Absent(reached.set)
    model, approval = Model(wants(use("u", "fail")), DONE), Approval(reviewer=person)
    with syncmcp.connect(adder(), approval=approval, human_timeout=LIMIT) as client:
        loop = ToolLoop(model, client, timeout=None)
        run = moved.start(partial(loop.run, "go"))
        assert reached.wait(PATIENCE)
        (within,) = person.asked
        assert within.time_left() == LIMIT
        moved.advance(LIMIT - 0.5)
        assert not within.cancel.cancelled
        moved.advance(0.5)
        assert within.cancel.wait(PATIENCE)
        assert not isinstance(run.get(timeout=PATIENCE), BaseException)


@pytest.mark.parametrize("which", ["pause", "timeout"])
def test_completions_are_asked_for_after_the_pause_and_waited_for_until_the_limit(
    which: str, moved: MovedTime
) -> None:
    stage, asked = Stage(), threading.Event()

    def hold(_: object, within: Any) -> dict[str, Any]:
        asked.set()
        within.cancelled.wait(3 * PATIENCE)
        return {}

    stage.server.prompt(name="letter")(lambda tone: tone)
    stage.server.completion(prompt="letter", argument="tone")(lambda typed, _: [typed])
    letter = Prompt(name="letter", arguments=[PromptArgument(name="tone")])
    with syncmcp.connect(stage.server, mode=STATELESS, timeout=None, idle_timeout=None) as client:
        if which == "timeout":
            stage.server.on_request("completion/complete", hold)
        pause, timeout = (LIMIT, None) if which == "pause" else (0.0, LIMIT)
        completer = Completer(client, letter, pause=pause, timeout=timeout)
        waits = (
            partial(moved.waits_for, LIMIT) if which == "pause" else partial(asked.wait, PATIENCE)
        )
        outcome = moved.ending(LIMIT, partial(completer.suggest, "tone", "c"), waits)
    assert isinstance(outcome, RequestTimeout) == (which == "timeout")


def test_the_doctor_looks_a_name_up_until_its_limit(
    moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def look_up(*args: Any, **options: Any) -> Any:
        gate.wait(3 * PATIENCE)
        return []

    monkeypatch.setattr("syncmcp._http.connecting.socket.getaddrinfo", look_up)

    def check() -> list[Any]:
        return list(_check_address(Http("http://a.example/mcp"), LIMIT))

    findings = moved.ending(LIMIT, check, partial(moved.waits_for, LIMIT))
    gate.set()
    assert [finding.step for finding in findings] == ["name"]


def test_the_doctor_connects_to_each_address_until_its_limit(
    moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []

    def connect(address: object, timeout: float | None) -> Any:
        limits.append(timeout)
        raise OSError("no")

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{one}", 80)) for one in (1, 2)]
    monkeypatch.setattr("syncmcp._http.connecting.socket.getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr("syncmcp.cli.doctor.socket.create_connection", connect)
    list(_check_address(Http("http://a.example/mcp"), LIMIT))
    assert limits == [LIMIT, LIMIT]


def test_a_server_is_told_twice_a_second_how_far_a_model_is(
    moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[float] = []
    monkeypatch.setattr(_sampling, "monotonic", moved.now)
    shown: Any = SimpleNamespace(
        show=lambda text: None, report_progress=lambda length, message: reports.append(length)
    )
    progress = _sampling._AnswerProgress(shown, "parrot")
    for seconds in (0.0, 0.4, 0.1):
        moved.advance(seconds)
        progress.add("x")
    assert reports == [1, 3]
