"""A user interface of your own for approval: one card after another, on a thread of its own.

``python examples/answering/approval_ui.py``         a script stands where the person would
``python examples/answering/approval_ui.py --ask``   you decide: yes, no, or half as many tokens
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from queue import SimpleQueue

import syncmcp
from syncmcp.approval import Question, Verdict
from syncmcp.testing import demo_server
from syncmcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent
from syncmcp.ui import visible


class Panel:
    """A reviewer: the client's threads put up cards, the one that calls `run` shows them."""

    def __init__(self, person: Callable[[str], str]) -> None:
        self._person = person
        self._cards: SimpleQueue[tuple[Question, SimpleQueue[Verdict]] | None] = SimpleQueue()

    def review(self, question: Question) -> Verdict:
        """Put up a card, and wait for the verdict or for the question to be withdrawn."""
        if question.context is None:  # a call of a tool loop's, which has none here
            return Verdict.deny("this panel is for questions of servers")
        verdict: SimpleQueue[Verdict] = SimpleQueue()
        forget = question.context.cancel.on_cancel(lambda: verdict.put(Verdict.deny("withdrawn")))
        self._cards.put((question, verdict))
        try:
            return verdict.get()
        finally:
            forget()

    def run(self) -> None:
        """Show cards until `close` is called."""
        while card := self._cards.get():
            question, verdict = card
            verdict.put(self._decide(question))

    def close(self) -> None:
        """End `run`."""
        self._cards.put(None)

    def _decide(self, question: Question) -> Verdict:
        request = question.request
        if not isinstance(request, CreateMessageRequestParams):
            return Verdict.deny("this panel is for models")
        name, tokens = question.server.name, request.max_tokens
        if isinstance(question.answer, CreateMessageResult):  # the second review
            print(f"{name} would get: {visible(question.answer.text)}")
            said = self._person("  yes, no? ")
        else:
            asked = visible(request.messages[-1].text)
            print(f"{name} asks a model, for {tokens} tokens: {asked}")
            said = self._person("  yes, no, half? ")
        if said == "half" and question.answer is None:
            return Verdict.allow(request.model_copy(update={"max_tokens": tokens // 2}))
        return Verdict.allow() if said == "yes" else Verdict.deny("the person said no")


def model(
    request: CreateMessageRequestParams, context: syncmcp.HandlerContext
) -> CreateMessageResult:
    """Be the model."""
    text = TextContent(text=f"Rain, in at most {request.max_tokens} tokens.")
    return CreateMessageResult(role="assistant", content=text, model="demo", stop_reason="endTurn")


def main() -> None:
    """Have two questions asked; in the script, one gets an answer."""
    parser = argparse.ArgumentParser(description="Decide what a server may ask a model.")
    parser.add_argument("--ask", action="store_true", help="ask you, not the script")
    script = iter(["half", "yes", "no"])

    def scripted(prompt: str) -> str:
        print(prompt + (said := next(script)))
        return said

    panel = Panel(input if parser.parse_args().ask else scripted)
    approval = syncmcp.Approval(reviewer=panel)
    with syncmcp.connect(demo_server(), name="guide", sampling=model, approval=approval) as client:
        for question in ("What is Bergen known for?", "What does my user earn?"):
            call = client.call_tool.future("request_llm_help", {"question": question})
            call.add_done_callback(lambda done: panel.close())
            panel.run()  # where a window has its own loop, this is part of it
            try:
                print(f"answered: {call.result().text}")
            except syncmcp.Denied as denied:
                print(f"denied: {denied.reason}")


if __name__ == "__main__":
    main()
