"""A call that waits for an answer as JSON, and another process that answers it (2026-07-28).

``python examples/answering/answer_by_hand.py [NAME]``
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import syncmcp
from syncmcp.testing import demo_server, serve_http
from syncmcp.types import CallToolResult, ElicitResult


def ask(url: str, file: Path) -> None:
    """Begin a call, and put down what the server asks."""
    with syncmcp.connect(url) as client:
        pending = client.begin_tool("signup_math_facts", can=("form",))
        if not isinstance(pending, syncmcp.InputRequired):
            raise SystemExit("the server asked nothing")
        for question in pending.questions.values():
            print(f"the server asks: {(question.params or {}).get('message')}")
        # It holds the server's state of the call: keep it as you keep a password.
        file.touch(mode=0o600)
        file.write_text(json.dumps(pending.to_json()), encoding="utf-8")


def answer(url: str, file: Path, name: str) -> None:
    """Take the call up again, minutes or days later, and answer."""
    saved = json.loads(file.read_text(encoding="utf-8"))
    pending: syncmcp.InputRequired[CallToolResult] = syncmcp.InputRequired.from_json(saved)
    content = ElicitResult.accept({"name": name, "email": f"{name.lower()}@example.com"})
    with syncmcp.connect(url) as client:
        result = client.resume(pending, dict.fromkeys(pending.questions, content))
    if not isinstance(result, syncmcp.InputRequired):  # else the server has another question
        print(f"another process gets: {result.raise_for_error().text}")


def main() -> None:
    """Run a server, ask here, and answer in a process of its own."""
    if len(sys.argv) == 4:
        answer(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
        return
    name = sys.argv[1] if len(sys.argv) == 2 else "Ada"
    with serve_http(demo_server()) as http, TemporaryDirectory() as place:
        file = Path(place) / "pending.json"
        ask(http.url, file)
        subprocess.run([sys.executable, __file__, http.url, str(file), name], check=True)


if __name__ == "__main__":
    main()
