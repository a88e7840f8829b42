"""Negotiations, driven by hand: what is asked of a server, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp._protocol.negotiate import (
    ClientHello,
    EffectOutcome,
    Negotiated,
    NegotiationEffect,
    SendNotification,
    SendRequest,
    ServerExited,
    UseLegacySse,
    negotiate,
)
from syncmcp.errors import McpError

HELLO = ClientHello({"name": "tests", "version": "1"}, OfferedCapabilities(roots=True))
NEWEST = "2026-07-28"

PROBE = "server/discover 2026-07-28, as a probe"
DISCOVER = "server/discover 2026-07-28"
INITIALIZE = "initialize 2025-11-25"
INITIALIZED = "notifications/initialized"
RESTART = "restart"
OLDER_TRANSPORT = "the older transport"


def initialized(revision: Any = "2025-11-25") -> dict[str, Any]:
    return {"protocolVersion": revision, "capabilities": {}, "serverInfo": {"name": "s"}}


def agrees(
    said: Sequence[str], revision: str, *outcomes: EffectOutcome, **options: Any
) -> Negotiated:
    """Play a negotiation that says this and agrees on that revision."""
    played = Played(*outcomes, **options)
    negotiated = played.run()
    assert negotiated.dialect.revision == revision
    assert played.said == list(said)
    return negotiated


def gives_up(said: Sequence[str], *outcomes: EffectOutcome, **options: Any) -> McpError:
    """Play a negotiation that says this, and raises what it was told last."""
    played = Played(*outcomes, **options)
    last = outcomes[-1]
    error = played.fail()
    assert error is (last.error if isinstance(last, ServerExited) else last)
    assert played.said == list(said)
    return error


class Played:
    """A negotiation whose questions get these answers, in this order."""

    def __init__(
        self,
        *outcomes: EffectOutcome,
        mode: str = "auto",
        known: str | None = None,
        hello: ClientHello = HELLO,
        **options: bool,
    ) -> None:
        self.effects: list[NegotiationEffect] = []
        self.said: list[str] = []
        self._outcomes = list(outcomes)
        self._steps = negotiate(mode, hello, known, **options)

    def run(self) -> Negotiated:
        outcome: EffectOutcome = None
        while True:
            try:
                effect = self._steps.send(outcome)
            except StopIteration as stop:
                assert not self._outcomes, "not every answer was asked for"
                negotiated: Negotiated = stop.value
                return negotiated
            self.effects.append(effect)
            self.said.append(in_words(effect))
            answered = isinstance(effect, SendRequest | UseLegacySse)
            outcome = self._outcomes.pop(0) if answered else None

    def fail(self) -> McpError:
        with pytest.raises(McpError) as caught:
            self.run()
        assert not self._outcomes, "not every answer was asked for"
        return caught.value


def in_words(effect: NegotiationEffect) -> str:
    if isinstance(effect, SendRequest):
        words = f"{effect.method} {effect.dialect.revision}"
        return f"{words}, as a probe" if effect.probe else words
    if isinstance(effect, UseLegacySse):
        return OLDER_TRANSPORT
    return effect.method if isinstance(effect, SendNotification) else RESTART
