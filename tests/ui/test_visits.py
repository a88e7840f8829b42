"""A person visits a page for a server, which reports the completion: in both interfaces."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from queue import Queue

import pytest

import syncmcp
from syncmcp import HandlerContext
from syncmcp.testing import Server, ToolContext
from syncmcp.testing import UrlElicitationRequired as MustVisit
from syncmcp.ui.browser import Browser
from syncmcp.ui.terminal import Terminal
from tests.connection.questions.asking import ELICITATION
from tests.support.stage import PATIENCE, STATEFUL, is_gone
from tests.ui.asking import until
from tests.ui.person import DOWN, ENTER, Person
from tests.ui.visitor import Page, Visitor

URL = "https://pay.example.com/42"


class Bank:
    """A server whose tools need a visit: one asks for it, one fails without it (-32042).

    Attributes:
        agreed: Set when the consent has arrived.
        done: Set to let `pay` return after the consent.
    """

    def __init__(self) -> None:
        self.server = Server("bank")
        self.agreed, self.done = threading.Event(), threading.Event()
        self._contexts: list[ToolContext] = []
        self.server.tool()(self.pay)
        self.server.tool()(self.locked)

    def pay(self, context: ToolContext) -> str:
        """Pay once somebody has been to a page."""
        self._contexts.append(context)
        link = {"mode": "url", "message": "Pay, please.", "url": URL, "elicitationId": "e-1"}
        answer = context.ask(ELICITATION, link).result(PATIENCE)
        self.agreed.set()
        assert self.done.wait(PATIENCE)
        return str(answer["action"])

    def locked(self, context: ToolContext) -> str:
        """Fail until somebody has been to a page."""
        self._contexts.append(context)
        if len(self._contexts) == 1:
            raise MustVisit({"e-1": ("Pay, please.", URL)})
        return "accept"

    def complete(self, client: syncmcp.Client) -> None:
        """Report that the visit is done; return when the client has read the report."""
        self._contexts[0].complete_elicitation("e-1")
        client.ping()
        self.done.set()


@pytest.fixture
def bank() -> Iterator[Bank]:
    bank = Bank()
    yield bank
    bank.done.set()


# -- the terminal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["before the consent", "after the consent"])
@pytest.mark.requirement("ELI-15", "M-18")
def test_at_a_terminal_the_consent_is_sent_and_the_end_is_told(
    order: str, bank: Bank, person: Person
) -> None:
    opened: list[str] = []

    def open_url(url: str) -> bool:
        opened.append(url)
        return True

    terminal = Terminal(person.stdin, person.stdout, open_url=open_url)
    with syncmcp.connect(
        bank.server, mode=STATEFUL, name="my bank", elicitation=terminal
    ) as client:
        call = client.call_tool.future("pay")
        person.sees("What do you want to do?")
        if order == "before the consent":
            bank.complete(client)
        assert not bank.agreed.is_set()
        person.types(DOWN, DOWN, ENTER)
        # The person has not confirmed the visit: the server waits only for the consent.
        assert bank.agreed.wait(PATIENCE)
        assert opened == [URL]
        if order == "after the consent":
            bank.complete(client)
        person.sees("my bank says that the visit is done.")
        assert call.result(PATIENCE).text == "accept"
        assert person.cooked


@pytest.mark.requirement("ELI-15", "ELI-18", "M-18")
def test_at_a_terminal_a_call_that_needs_the_visit_goes_on_when_it_is_done(
    bank: Bank, person: Person, started: Queue[list[str]]
) -> None:
    terminal = Terminal(person.stdin, person.stdout)
    with syncmcp.connect(bank.server, mode=STATEFUL, elicitation=terminal) as client:
        call = client.call_tool.future("locked")
        person.answers(
            "What do you want to do?", DOWN, DOWN, DOWN, ENTER
        )  # the person opens it without the program
        person.sees("Are you done there?")
        bank.complete(client)
        person.sees("The server says that you are done.")
        assert call.result(PATIENCE).text == "accept"
    assert started.empty()


@pytest.mark.requirement("M-18")
def test_at_a_terminal_nothing_is_told_of_a_visit_that_never_ends(
    bank: Bank, person: Person
) -> None:
    terminal = Terminal(person.stdin, person.stdout)
    with syncmcp.connect(bank.server, mode=STATEFUL, elicitation=terminal) as client:
        call = client.call_tool.future("pay")
        person.answers("What do you want to do?", DOWN, DOWN, DOWN, ENTER)
        assert bank.agreed.wait(PATIENCE)
        bank.done.set()
        assert call.result(PATIENCE).text == "accept"
    person.sees("The server learns that you agree")
    assert "is done." not in person.screen


# -- the browser -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "order"), [("pay", "after the consent"), ("locked", "before the consent")]
)
@pytest.mark.requirement("ELI-15", "ELI-18", "M-07", "M-20")
def test_the_page_shows_that_the_visit_is_done(
    tool: str, order: str, bank: Bank, browser: Browser
) -> None:
    with (
        syncmcp.connect(bank.server, mode=STATEFUL, elicitation=browser) as client,
        Visitor(browser) as visitor,
    ):
        call = client.call_tool.future(tool)
        (page,) = visitor.waiting()
        if order == "before the consent":
            assert "already done" not in page.text
            before = visitor.state(page.key)["state"]
            bank.complete(client)
            # A browser reloads the page when the state changes.
            changed = until(lambda: (now := visitor.state(page.key)["state"]) != before and now)
            page = visitor.get(page.url)
            assert "already done" in page.text
            assert f'data-state="{changed}"' in page.source
        after = visitor.send(page, "consent")
        if order == "after the consent":
            assert visitor.state(page.key)["state"] == "visiting"
            assert "I am done" in after.text
            bank.complete(client)
        assert call.result(PATIENCE).text == "accept"
        until(lambda: visitor.state(page.key)["state"] == "visited")
        over = visitor.get(page.url)
        assert "The visit is done." in over.text
        assert over.all("button") == []
    assert visitor.state(page.key)["state"] == "visited"


@pytest.mark.parametrize(("then", "state"), [("done", "visited"), (None, "visiting")])
@pytest.mark.requirement("M-20")
def test_the_page_of_a_visit_keeps_no_client_and_no_question(
    then: str | None, state: str, bank: Bank, browser: Browser
) -> None:
    with Visitor(browser) as visitor:

        def visit() -> tuple[Page, Callable[[], bool]]:
            with syncmcp.connect(bank.server, mode=STATEFUL, elicitation=browser) as client:
                call = client.call_tool.future("pay")
                (page,) = visitor.waiting()
                after = visitor.send(page, "consent")
                bank.done.set()
                assert call.result(PATIENCE).text == "accept"
                if then is not None:
                    visitor.send(after, then)
                assert visitor.state(page.key)["state"] == state
                until(lambda: not contexts_of(client))
            return page, is_gone(client)

        page, gone = visit()
        assert gone()
        ended = "visited" if state == "visited" else "given-up"
        until(lambda: visitor.state(page.key)["state"] == ended)


def contexts_of(client: syncmcp.Client) -> list[HandlerContext]:
    """Return the contexts of this client's handlers that still exist."""
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, HandlerContext)]
    return [each for each in found if each.client is client]
