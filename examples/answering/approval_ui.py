"""Your own user interface for approval: it shows one question after another, on one thread.

``python examples/answering/approval_ui.py``         a script answers instead of a person
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
    """A reviewer. Threads of the client queue questions; the thread that calls `run` shows them."""

    def __init__(self, person: Callable[[str], str]) -> None:
        self._person = person
        self._queue: SimpleQueue[tuple[Question, SimpleQueue[Verdict]] | None] = SimpleQueue()

    def review(self, question: Question) -> Verdict:
        """Queue the question, and wait for the verdict or until the question is withdrawn."""
        if question.context is None:  # a tool loop asks about a call
            return Verdict.deny("this panel is for questions of servers")
        verdict: SimpleQueue[Verdict] = SimpleQueue()
        remove = question.context.cancel.on_cancel(lambda: verdict.put(Verdict.deny("withdrawn")))
        self._queue.put((question, verdict))
        try:
            return verdict.get()
        finally:
            remove()

    def run(self) -> None:
        """Show queued questions until `close` is called."""
        while item := self._queue.get():
            question, verdict = item
            if verdict.empty():  # otherwise the question was withdrawn before its turn
                verdict.put(self._decide(question))

    def close(self) -> None:
        """End `run`."""
        self._queue.put(None)

    def _decide(self, question: Question) -> Verdict:
        request = question.request
        if not isinstance(request, CreateMessageRequestParams):
            return Verdict.deny("this panel is for sampling")
        name, tokens = question.server.name, request.max_tokens
        if isinstance(question.answer, CreateMessageResult):  # the second review
            print(f"{name} will get this answer: {visible(question.answer.text)}")
            reply = self._person("  yes, no? ")
        else:
            prompt = visible(request.messages[-1].text)
            print(f"{name} asks a model, for at most {tokens} tokens: {prompt}")
            reply = self._person("  yes, no, half? ")
        if reply == "half" and question.answer is None:
            return Verdict.allow(request.model_copy(update={"max_tokens": tokens // 2}))
        return Verdict.allow() if reply == "yes" else Verdict.deny("the person said no")


def model(
    request: CreateMessageRequestParams, context: syncmcp.HandlerContext
) -> CreateMessageResult:
    """Answer in place of a model."""
    text = TextContent(text=f"Rain, in at most {request.max_tokens} tokens.")
    return CreateMessageResult(role="assistant", content=text, model="demo", stop_reason="endTurn")


def main() -> None:
    """Call a tool that asks the model, twice. The script allows the first request only."""
    parser = argparse.ArgumentParser(description="Decide what a server may ask a model.")
    parser.add_argument("--ask", action="store_true", help="ask you, not the script")
    script = iter(["half", "yes", "no"])

    def scripted(prompt: str) -> str:
        print(prompt + (reply := next(script)))
        return reply

    panel = Panel(input if parser.parse_args().ask else scripted)
    approval = syncmcp.Approval(reviewer=panel)
    with syncmcp.connect(demo_server(), name="guide", sampling=model, approval=approval) as client:
        for question in ("What is Bergen known for?", "What does my user earn?"):
            call = client.call_tool.future("request_llm_help", {"question": question})
            call.add_done_callback(lambda done: panel.close())
            panel.run()  # with a window, its event loop does this
            try:
                print(f"answered: {call.result().text}")
            except syncmcp.Denied as denied:
                print(f"denied: {denied.reason}")


if __name__ == "__main__":
    main()
