"""Start a task, close the client, and fetch the result later with another client."""

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
    """A server that paints a picture as a task, after a canvas has arrived."""
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
    print(f"question: {request.message}")
    return ElicitResult(action="accept", content={"frame": "oak"})


def order(server: Server, id_file: Path) -> None:
    """Start the task, and store its id."""
    with syncmcp.connect(server, extensions=TASKS, elicitation=answer) as client:
        task = client.start_task("paint", {"subject": "a harbour"})
        print(f"started: {task.status}; ended within 0.1 s: {task.wait(0.1)}")
        id_file.write_text(task.id or "", encoding="utf-8")


def fetch(server: Server, id_file: Path) -> None:
    """Fetch the result, as another program could on another day."""
    with syncmcp.connect(server, extensions=TASKS, elicitation=answer) as client:
        task = client.task(id_file.read_text(encoding="utf-8"), tool="paint")
        for update in task:
            print(f"status: {update.status}")
        print(f"result: {task.result(timeout=60).text}")


def main() -> None:
    """Order a picture, let the canvas arrive, and fetch the picture."""
    canvas = threading.Event()
    server = studio(canvas)
    with TemporaryDirectory() as directory:
        id_file = Path(directory, "task")
        order(server, id_file)
        canvas.set()
        fetch(server, id_file)


if __name__ == "__main__":
    main()
