"""Who subscribes to a resource, and who gives it back, when several want to at the same time."""

from __future__ import annotations

import threading

import pytest

import syncmcp
from syncmcp._client.session_state import SUBSCRIBE, UNSUBSCRIBE, ResourceSubscriptions
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import ConnectionLost, RequestTimeout, ResourceNotFound
from syncmcp.testing import ToolContext
from tests.client.test_listening import held, shop, updated
from tests.support.stage import PATIENCE, STATEFUL, in_threads


class Asked:
    """Stands for the server: what it was asked, and what happens meanwhile."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.meanwhile: list[object] = []

    def __call__(self, method: str, uri: str) -> None:
        self.methods.append(method)
        if self.meanwhile:
            happening = self.meanwhile.pop(0)
            if isinstance(happening, Exception):
                raise happening
            assert callable(happening)
            happening()


def test_the_first_asks_and_the_last_gives_back() -> None:
    uris, ask = ResourceSubscriptions(), Asked()
    uris.acquire("a:1", ask, Deadline(None))
    uris.acquire("a:1", ask, Deadline(None))
    assert uris.needed_uris() == [("a:1", "refuse")]
    uris.release("a:1", ask)
    assert ask.methods == [SUBSCRIBE]
    uris.release("a:1", ask)
    assert ask.methods == [SUBSCRIBE, UNSUBSCRIBE]
    assert len(uris) == 0
    uris.release("a:1", ask)
    assert ask.methods == [SUBSCRIBE, UNSUBSCRIBE]


@pytest.mark.parametrize("how", ["acquired", "claimed"])
def test_what_is_wanted_while_it_is_given_back_is_asked_for_again(how: str) -> None:
    uris, ask = ResourceSubscriptions(), Asked()
    uris.acquire("a:1", ask, Deadline(None))
    waiting = threading.Thread(
        target=uris.acquire, args=("a:1", ask, Deadline(PATIENCE)), name="waiting"
    )
    explicit = uris.explicit("a:1")
    ask.meanwhile = [waiting.start if how == "acquired" else explicit.__enter__]
    uris.release("a:1", ask)
    if how == "acquired":
        waiting.join(PATIENCE)
    assert ask.methods == [SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE]
    assert uris.needed_uris() == [("a:1", "refuse")]


def test_a_refusal_is_nothing_to_be_given_back_and_a_broken_wire_may_be() -> None:
    uris, ask = ResourceSubscriptions(), Asked()
    for failure in (ResourceNotFound("no"), ConnectionLost("gone")):
        ask.meanwhile = [failure]
        with pytest.raises(type(failure)):
            uris.acquire("a:1", ask, Deadline(None))
        uris.release("a:1", ask)
        assert len(uris) == 0
    assert ask.methods == [SUBSCRIBE, SUBSCRIBE, UNSUBSCRIBE]


def test_nobody_waits_for_another_one_s_request_longer_than_he_wants() -> None:
    uris, ask = ResourceSubscriptions(), Asked()

    def impatient() -> None:
        with pytest.raises(RequestTimeout, match="not subscribed to a:1 in time"):
            uris.acquire("a:1", ask, Deadline(0.01))
        uris.release("a:1", ask)

    ask.meanwhile = [lambda: in_threads(impatient)]
    uris.acquire("a:1", ask, Deadline(None))
    assert ask.methods == [SUBSCRIBE]
    uris.release("a:1", ask)
    assert len(uris) == 0


def test_when_the_program_gives_it_back_who_began_to_listen_meanwhile_still_listens() -> None:
    server = shop()
    listening: list[syncmcp.Subscription] = []
    asked = threading.Event()

    def unsubscribe(params: dict[str, object], context: ToolContext) -> dict[str, object]:
        asked.set()
        assert server.stats.wait_for(lambda stats: stats.requests["resources/subscribe"] == 2)
        assert context.session is not None
        context.session.subscriptions.discard(str(params["uri"]))
        return {}

    with syncmcp.connect(server, mode=STATEFUL) as client:
        client.subscribe_resource("a:1")
        server.on_request("resources/unsubscribe", unsubscribe)

        def listen() -> None:
            assert asked.wait(PATIENCE)
            listening.append(client.listen(uris=["a:1"], timeout=PATIENCE))

        assert in_threads(lambda: client.unsubscribe_resource("a:1"), listen) == [None, None]
        assert server.stats.requests["resources/subscribe"] == 3
        server.resource_updated("a:1")
        assert next(listening[0]) == updated("a:1")
        del server.handlers["resources/unsubscribe"]
        listening[0].close()
        assert held(server) == 0
