"""Limits of how often something may happen."""

from __future__ import annotations

from functools import partial

from syncmcp import RateLimit
from tests.support.stage import interrupted


def test_a_signal_handler_may_ask_in_the_middle_of_a_question() -> None:
    number = 1
    while True:
        limit = RateLimit(calls=5, tokens=5, per=60)
        take = partial(limit.take, "server", calls=1, tokens=1)
        if not interrupted(take, number, take):
            break
        number += 1
    assert number > 10
