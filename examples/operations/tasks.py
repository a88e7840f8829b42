"""Work that takes longer than a connection: start it, leave, come back for its result."""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import syncmcp
from syncmcp import tasks
from syncmcp.testing import Server, ToolContext
from syncmcp.types import ElicitRequestFormParams, ElicitResult

TASKS: dict[str, dict[str, object]] = {tasks.EXTENSION: {}}
FORM = {"type": "object", "properties": {"frame": {"type": "string"}}, "required": ["frame"]}


def studio(canvas: threading.Event) -> Server:
    """A server whose pictures take as long as it takes for a canvas to come."""
    server = Server("studio")

    @server.tool(task_support="required")
    def paint(context: ToolContext, subject: str) -> str:
        context.describe_task("waiting for a canvas")
        canvas.wait(60)
        frame = context.elicit("Which frame?", FORM)["content"]["frame"]
        return f"{subject}, in {frame}"

    return server


def answer(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
    """Choose a frame."""
    print(f"asked: {request.message}")
    return ElicitResult(action="accept", content={"frame": "oak"})


def order(server: Server, notes: Path) -> None:
    """Start the work, and write down which it is."""
    with syncmcp.connect(server, extensions=TASKS, elicitation=answer) as client:
        task = client.start_task("paint", {"subject": "a harbour"})
        print(f"started: {task.status}, and there within a tenth of a second: {task.wait(0.1)}")
        notes.write_text(task.id or "", encoding="utf-8")


def fetch(server: Server, notes: Path) -> None:
    """Come back for it: this might be another program, on another day."""
    with syncmcp.connect(server, extensions=TASKS, elicitation=answer) as client:
        task = client.task(notes.read_text(encoding="utf-8"), tool="paint")
        for update in task:
            print(f"now: {update.status}")
        print(f"fetched: {task.result(timeout=60).text}")


def main() -> None:
    """Order a picture, and fetch it."""
    canvas = threading.Event()
    server = studio(canvas)
    with TemporaryDirectory() as directory:
        notes = Path(directory, "task")
        order(server, notes)
        canvas.set()
        fetch(server, notes)


if __name__ == "__main__":
    main()
