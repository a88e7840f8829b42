"""The requests of one list are sent in one session."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from syncmcp._protocol.steps import SessionChanged, SessionPin
from syncmcp.errors import ConnectionLost, McpError


@dataclass
class Life:
    """A session, or what it ended with."""

    close_error: McpError | None = None


@pytest.mark.requirement("PAG-04")
def test_until_a_page_has_come_any_session_will_do() -> None:
    one, other = SessionPin(), Life()
    one.check(Life())
    one.check(other)
    one.pin()
    one.check(other)
    with pytest.raises(SessionChanged):
        one.check(Life())


@pytest.mark.requirement("PAG-04")
def test_a_request_that_belongs_to_a_session_is_not_sent_in_another_one() -> None:
    ended = ConnectionLost("gone")
    one = SessionPin(Life(ended))
    with pytest.raises(SessionChanged, match=r"^the session has ended \(") as caught:
        one.check(Life())
    assert caught.value.cause is ended
    assert caught.value.delivery == "not_sent"
