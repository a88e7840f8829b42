"""Mutants of change events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncmcp._connection.pending_request import PendingListen
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

SUBSCRIPTION = "syncmcp._protocol.subscription:ChangeFilter"


def _tell_everybody(original: Function) -> Function:
    def route(self: Any, method: str, params: Any, dialect: Any, out: Any) -> None:
        if dialect.stateful:
            original(self, method, params, dialect, out)
            return
        for call in self._table.open_calls():
            if isinstance(call, PendingListen):
                call.on_notification(call, method, params)

    return route


MUTANTS = (
    Mutant(
        "news-for-everybody",
        "a change event reaches all listeners, whatever id it carries",
        "syncmcp._connection.notifications:NotificationRouter.route",
        _tell_everybody,
        ("STD-04",),
    ),
    Mutant(
        "listening-to-whatever",
        "a listener does not say what it wants",
        f"{SUBSCRIPTION}.params",
        always({}),
        ("SUB-02",),
    ),
    Mutant(
        "agreement-unread",
        "a server is taken to agree to everything",
        f"{SUBSCRIPTION}.granted",
        lambda original: lambda self, params: self,
        ("SUB-01",),
    ),
    Mutant(
        "withdrawn-unheard",
        "a notice that a subscription is over is not understood",
        "syncmcp._connection.notifications:NotificationRouter.subscription_end",
        always(None),
        ("SUB-03",),
    ),
    Mutant(
        "listening-to-the-dead",
        "a listener is not set up again when its connection has broken",
        "syncmcp._client.listening:StreamSubscription._listen_again",
        always(None),
        ("STD-08", "SUB-03"),
    ),
    Mutant(
        "subscribed-for-good",
        "the last who listens to a resource does not give it back",
        "syncmcp._client.session_state:ResourceSubscriptions.release",
        always(None),
        ("M-12",),
    ),
)
