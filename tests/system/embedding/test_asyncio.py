"""asyncio: coroutines await calls, and a call on the thread of the loop has an end all the same."""

from __future__ import annotations

import asyncio
from queue import SimpleQueue

import pytest

import syncmcp
from syncmcp.handlers import HandlerContext
from syncmcp.testing import demo_server
from syncmcp.types import ElicitRequestFormParams, ElicitResult
from tests.support.stage import PATIENCE
from tests.system.embedding.frameworks import EXAMPLES, finished

pytestmark = pytest.mark.slow


@pytest.mark.requirement("M-01", "M-19")
@pytest.mark.pitfall("3", "14")
def test_coroutines_call_and_give_up_and_answer() -> None:
    assert finished(EXAMPLES / "asyncio_program.py").splitlines() == [
        "['0', '2', '4', '6', '8']",
        "not waited for, and the server knows",
        "the server asks: Sign up for a maths fact a day.",
        '{"action":"accept","content":{"name":"Ada","email":"ada@example.com"}}',
    ]


@pytest.mark.pitfall("3", "4")
def test_a_handler_that_waits_for_a_loop_that_waits_for_its_call_is_given_up() -> None:
    given_up: SimpleQueue[bool] = SimpleQueue()

    async def never_runs() -> ElicitResult:
        raise AssertionError("the loop was free")

    async def main() -> tuple[str, bool]:
        loop = asyncio.get_running_loop()

        def handler(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
            asked = asyncio.run_coroutine_threadsafe(never_runs(), loop)
            context.cancel.on_cancel(lambda: given_up.put(asked.cancel()))
            return asked.result()

        with syncmcp.connect(demo_server(), elicitation=handler, human_timeout=0.2) as client:
            told = client.call_tool("signup_math_facts").raise_for_error().text
            return told, given_up.get(timeout=PATIENCE)  # before the loop is free

    # Nobody answered in time.
    assert asyncio.run(main()) == ('{"action":"cancel"}', True)
