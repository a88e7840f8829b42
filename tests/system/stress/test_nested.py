"""Nested questions: tools ask the client, whose handlers call tools, with eight handler slots.

Each outer call asks two questions, and the handler of each calls two tools. The first of these
blocks until there are more such calls than handler slots. If waiting handlers did not release
their slots, this would be a deadlock.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from syncmcp import HandlerContext
from syncmcp.testing import Server, ToolContext
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    TextContent,
)
from tests.support.stage import Wire, nervous, rotated
from tests.system.stress.sizes import seeded, sizes

MAX_HANDLERS = 8

# The number of concurrent calls of the tool `meet` after which they may return.
QUORUM = MAX_HANDLERS + 1

# The limit of each wait, in seconds: it detects a test that hangs.
LIMIT = 300.0

SCHEMA = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}


class Meeting:
    """A server with a tool that asks, and the handlers that call its tools.

    Attributes:
        most_nested: The most handlers that were in a call of `meet` at the same time.
        wrong: Questions whose context named the wrong call.
    """

    def __init__(self) -> None:
        self.server = Server("meeting")
        for tool in (self.ask, self.meet, self.echo):
            self.server.tool()(tool)
        # Guards the following attributes, and notifies waiting threads of changes.
        self._changed = threading.Condition()
        self._met = False
        self._in_tool = 0
        self._nested = 0
        self.most_nested = 0
        self.wrong: list[str] = []

    # -- the server

    def ask(self, context: ToolContext, nonce: str, together: bool) -> str:
        """Ask for a text and for a form, and return both answers."""
        text, form = f"text {nonce}", f"form {nonce}"
        if together:
            message = {"role": "user", "content": {"type": "text", "text": text}}
            sampling = {"messages": [message], "maxTokens": 10}
            elicitation = {"message": form, "requestedSchema": SCHEMA}
            questions: dict[str, tuple[str, dict[str, Any]]] = {
                "text": ("sampling/createMessage", sampling),
                "form": ("elicitation/create", elicitation),
            }
            answers = context.ask_all(questions)
            sampled, filled = answers["text"], answers["form"]
        else:
            sampled = context.sample(text, max_tokens=10)
            filled = context.elicit(form, SCHEMA)
        return f"{sampled['content']['text']}; {filled['content']['said']}"

    def meet(self, nonce: str) -> str:
        """Wait for `QUORUM` calls at the same time."""
        with self._changed:
            self._in_tool += 1
            if self._in_tool >= QUORUM:
                self.let_go()
            assert self._changed.wait_for(lambda: self._met, LIMIT), "nobody else came"
            self._in_tool -= 1
        return f"met {nonce}"

    def echo(self, nonce: str) -> str:
        return nonce

    def let_go(self) -> None:
        """Release all calls of `meet`, also later ones."""
        with self._changed:
            self._met = True
            self._changed.notify_all()

    # -- the handlers

    def sampling(
        self, request: CreateMessageRequestParams, context: HandlerContext
    ) -> CreateMessageResult:
        content = TextContent(text=self._call_back(request.messages[0].text, context))
        return CreateMessageResult(role="assistant", content=content, model="none")

    def form(self, request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
        return ElicitResult.accept({"said": self._call_back(request.message, context)})

    def _call_back(self, question: str, context: HandlerContext) -> str:
        if context.call is not None:
            arguments = (context.call.params or {})["arguments"]
            if arguments["nonce"] != question.split()[1]:
                self.wrong.append(f"{question} was said to come from {arguments}")
        with self._changed:
            self._nested += 1
            self.most_nested = max(self.most_nested, self._nested)
        met = context.client.call_tool("meet", {"nonce": question}).text
        with self._changed:
            self._nested -= 1
        return f"{met}, {context.client.call_tool('echo', {'nonce': question}).text}"


@pytest.mark.pitfall("13")
@rotated
@sizes(24, 200, 1800)
def test_more_handlers_than_threads_call_back_at_one_time(wire: Wire, size: int) -> None:
    dice, meeting = random.Random(seeded()), Meeting()
    options: dict[str, Any] = {
        "sampling": meeting.sampling,
        "elicitation": meeting.form,
        "max_handlers": MAX_HANDLERS,
        "max_questions": 2 * size,
        "timeout": LIMIT,
        "idle_timeout": None,
    }
    with wire.connect(meeting.server, **options) as client, nervous():
        ask = client.call_tool.future
        futures = {
            nonce: ask("ask", {"nonce": nonce, "together": dice.random() < 0.5})
            for nonce in map(str, range(size))
        }
        try:
            results = {nonce: future.result(LIMIT).text for nonce, future in futures.items()}
        finally:
            meeting.let_go()
        connection = client._core.connection
        assert connection is not None
        assert len(connection._table) == 0
        assert len(connection.questions) == 0
        assert client._core.pools.handlers.waiting == 0
    # No answer was lost or assigned to another call.
    assert results == {
        nonce: "; ".join(f"met {kind} {nonce}, {kind} {nonce}" for kind in ("text", "form"))
        for nonce in futures
    }
    assert meeting.wrong == []
    assert meeting.server.stats.violations == []
    assert meeting.most_nested > MAX_HANDLERS
