"""The pages of a model's work: what it is asked to do, and what it has written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, cast

from syncmcp.approval import Question, Verdict
from syncmcp.types import CreateMessageRequestParams, CreateMessageResult
from syncmcp.ui.browser import message
from syncmcp.ui.browser.questions import Answers, Card


class RequestCard(Card[Verdict]):
    """The first review: may a model work on this?"""

    template: ClassVar[str] = "sampling.html"

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        super().__init__(question, human_timeout)
        self.title = "A request to your model"
        self.request = cast("CreateMessageRequestParams", question.request)
        self.messages = [
            message.show(one, f"message-{number}")
            for number, one in enumerate(self.request.messages[: message.MOST_MESSAGES])
        ]
        self.left_out = len(self.request.messages) - len(self.messages)
        self.system = message.editable(self.request.system_prompt or "")

    def facts(self) -> list[tuple[str, str]]:
        """What else is asked for, by name."""
        request = self.request
        wishes = request.model_preferences
        hints = [] if wishes is None else [hint.name or "" for hint in wishes.hints or ()]
        priorities = (
            ()
            if wishes is None
            else (
                ("cost", wishes.cost_priority),
                ("speed", wishes.speed_priority),
                ("intelligence", wishes.intelligence_priority),
            )
        )
        stop = [repr(text) for text in request.stop_sequences or ()]
        facts = [
            ("Messages", str(len(request.messages))),
            ("Models wished for", ", ".join(hints)),
            ("What matters", ", ".join(f"{what} {n:g}" for what, n in priorities if n is not None)),
            ("Stops at", ", ".join(stop)),
            ("Context of other servers", request.include_context or ""),
            ("Tool use", (request.tool_choice.mode or "auto") if request.tool_choice else ""),
            ("For the provider", message.as_json(request.metadata) if request.metadata else ""),
        ]
        return [(name, value) for name, value in facts if value]

    def act(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Approve what stands on the page, or deny."""
        if action not in ("approve", "remember"):
            self.settle(Verdict.deny("a person said no"), "You said no; no model was asked.")
            return {}
        wire = self.request.to_wire()
        problems = self._edit(wire, answers)
        if problems:
            return problems
        changed = wire != self.request.to_wire()
        request = CreateMessageRequestParams.from_wire(wire) if changed else None
        verdict = Verdict.allow(request, remember=action == "remember")
        self.settle(verdict, "You approved the request; the model is at work.")
        return {}

    def _edit(self, wire: dict[str, Any], answers: Answers) -> dict[str, str]:
        instructions = self.request.system_prompt or ""
        if (sent := message.edited("system", instructions, answers)) != instructions:
            wire["systemPrompt"] = sent
        for number, one in enumerate(wire["messages"][: len(self.messages)]):
            message.edit(one, f"message-{number}", answers)
        problems: dict[str, str] = {}
        most = answers.get("max-tokens") or str(self.request.max_tokens)
        if not (most.isascii() and most.isdigit() and 0 < len(most) < 10):
            problems["max-tokens"] = "This must be a whole number."
        elif int(most) > self.request.max_tokens:
            problems["max-tokens"] = f"The server asked for at most {self.request.max_tokens}."
        else:
            wire["maxTokens"] = int(most)
        warmth = answers.get("temperature")
        if warmth == "":
            wire.pop("temperature", None)
        elif warmth is not None and warmth != str(self.request.temperature):
            try:
                wire["temperature"] = _finite(warmth)
            except ValueError:
                problems["temperature"] = "This must be a number."
        return problems


class AnswerCard(Card[Verdict]):
    """The second review: may the server have this?"""

    template: ClassVar[str] = "answer.html"

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        super().__init__(question, human_timeout)
        self.title = "An answer of your model"
        self.result = cast("CreateMessageResult", question.answer)
        self.shown = message.show(self.result, "answer")

    def act(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Send what stands on the page, or nothing."""
        if action not in ("approve", "remember"):
            self.settle(Verdict.deny("a person said no"), "You said no; nothing was sent.")
            return {}
        wire = self.result.to_wire()
        message.edit(wire, "answer", answers)
        changed = wire != self.result.to_wire()
        answer = CreateMessageResult.from_wire(wire) if changed else None
        self.settle(
            Verdict.allow(answer=answer, remember=action == "remember"), "The answer was sent."
        )
        return {}


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
