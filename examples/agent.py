"""An agent: its model uses a server's tools, and the server asks back for a form and for the model.

``python examples/agent.py``                         unattended: the script below answers
``python examples/agent.py --script answers.json``   unattended: your script answers
``python examples/agent.py --ui terminal``           you fill in forms and approve, right here
``python examples/agent.py --ui browser``            the same on a page in the browser

Anything after ``--`` is a server to start instead of the bundled one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

import syncmcp
from syncmcp.approval import AuditRecord
from syncmcp.tools import ModelTurn, Step, ToolFinished
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    TextContent,
    ToolUseContent,
)

if TYPE_CHECKING:
    from syncmcp.ui.browser import Browser
    from syncmcp.ui.terminal import Terminal

BUNDLED = (sys.executable, "-m", "syncmcp.testing")


class Wish(BaseModel):
    """A turn in which the model wants a tool."""

    tool: str
    arguments: dict[str, str | int | float | bool] = {}


class Script(BaseModel):
    """What is said where no model and no person are: turns of the model, answers to forms."""

    task: str = "Find out how I like my answers, then tell me about Bergen."
    model: list[Wish | str] = [
        Wish(tool="ask_user_preferences"),
        Wish(tool="request_llm_help", arguments={"question": "What is Bergen known for?"}),
        "Rain, mountains, and a fish market.",  # the server asked for this one
        Wish(tool="weather", arguments={"city": "Bergen"}),
        "Bergen: rain, mountains, fish, and 9.5 degrees today.",
    ]
    forms: list[dict[str, str | int | float | bool | list[str]]] = [{"outputFormat": "plain"}]


class ScriptedModel:
    """Stands where your model goes: call it in `__call__` with what `request` says."""

    def __init__(self, turns: list[Wish | str]) -> None:
        self._turns = iter(turns)

    def __call__(
        self, request: CreateMessageRequestParams, context: syncmcp.HandlerContext
    ) -> CreateMessageResult:
        """Say the next thing in the script; after its end, repeat what was said last."""
        turn = next(self._turns, f"You said: {request.messages[-1].text}")
        if isinstance(turn, Wish):
            use = ToolUseContent(id=turn.tool, name=turn.tool, input=turn.arguments)
            return CreateMessageResult(
                role="assistant", content=use, model="script", stop_reason="toolUse"
            )
        context.show(turn)  # a model that streams shows here what it has written so far
        content = TextContent(text=turn)
        return CreateMessageResult(role="assistant", content=content, model="script")


def scripted_forms(script: Script) -> syncmcp.FormHandler:
    """Return what answers forms from the script, and declines once it has ended."""
    contents = iter(script.forms)

    def fill_in(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
        content = next(contents, None)
        return ElicitResult.decline() if content is None else ElicitResult.accept(content)

    return fill_in


@contextmanager
def answering(
    ui: str | None, script: Script
) -> Iterator[tuple[Terminal | Browser | syncmcp.FormHandler, syncmcp.Approval]]:
    """Yield who answers forms, and who approves everything else."""
    if ui == "terminal":
        from syncmcp.ui.terminal import AskOnTerminal, Terminal

        yield Terminal(), AskOnTerminal(audit=report)
    elif ui == "browser":
        from syncmcp.ui.browser import AskInBrowser, Browser

        with Browser() as browser:
            yield browser, AskInBrowser(browser=browser, audit=report)
    else:
        # Nothing is approved by itself: a program that runs alone has to say so.
        yield scripted_forms(script), syncmcp.Approval(syncmcp.AllowAll(), audit=report)


def report(record: AuditRecord) -> None:
    """Print one decision."""
    print(f"  [{record.decision.value} by {record.by}: {record.question} ({record.review})]")


def show(step: Step) -> None:
    """Print one step of the loop."""
    if isinstance(step, ModelTurn) and step.result.text:
        print(f"agent: {step.result.text}")
    elif isinstance(step, ToolFinished):
        said = " ".join(
            block.text for block in step.result.content if isinstance(block, TextContent)
        )
        print(f"{step.use.name} {json.dumps(step.use.input)}\n  -> {said}")


def run(command: list[str], ui: str | None, script: Script) -> None:
    """Do the script's task."""
    model = ScriptedModel(script.model)
    with (
        answering(ui, script) as (elicitation, approval),
        syncmcp.connect(
            syncmcp.Stdio(*command),
            name="demo",  # what questions and approvals call the server
            sampling=model,
            elicitation=elicitation,
            approval=approval,
        ) as client,
    ):
        syncmcp.ToolLoop(model, client, approval=approval, on_step=show).run(script.task)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="An agent that answers its server.")
    parser.add_argument("--ui", choices=("terminal", "browser"), help="where you are asked")
    parser.add_argument("--script", type=Path, metavar="FILE.json", help="see the class Script")
    parser.add_argument("command", nargs="*", default=BUNDLED, help="the server, after --")
    options = parser.parse_args()
    script = Script.model_validate_json(options.script.read_bytes()) if options.script else Script()
    run([*options.command], options.ui, script)


if __name__ == "__main__":
    main()
