"""A request that lasts: ``subscriptions/listen`` (2026-07-28)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.call import Call
from syncmcp._connection.options import Options
from syncmcp._protocol.subscription import LISTEN


class ListenCall(Call):
    """It ends with the subscription; until then the server tells of changes, tagged with its id.

    Args:
        take: Given the method and the parameters of each notification, by the thread that reads.
        done: Told of the end, as for every call.
    """

    __slots__ = ("acknowledged", "answered", "take")

    def __init__(
        self,
        take: Callable[[ListenCall, str, dict[str, Any]], object],
        done: Callable[[Call], object],
    ) -> None:
        super().__init__(LISTEN, Options(None, None), Deadline(None), done)
        self.take = take
        self.acknowledged = False
        # Released once the server has agreed, or the request has ended.
        self.answered = threading.Lock()
        self.answered.acquire()
