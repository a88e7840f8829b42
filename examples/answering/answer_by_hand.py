"""One process begins a call and saves it as JSON; another one answers and ends it (2026-07-28).

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
    """Begin a call, and save the server's question in a file."""
    with syncmcp.connect(url) as client:
        pending = client.begin_tool("signup_math_facts", can=("form",))
        if not isinstance(pending, syncmcp.InputRequired):
            raise SystemExit("the server asked no question")
        for question in pending.questions.values():
            print(f"the server asks: {(question.params or {}).get('message')}")
        # The file has the server's state of the call: protect it like a password.
        file.touch(mode=0o600)
        file.write_text(json.dumps(pending.to_json()), encoding="utf-8")


def answer(url: str, file: Path, name: str) -> None:
    """Load the call, minutes or days later, and send the answer."""
    saved = json.loads(file.read_text(encoding="utf-8"))
    pending: syncmcp.InputRequired[CallToolResult] = syncmcp.InputRequired.from_json(saved)
    content = ElicitResult.accept({"name": name, "email": f"{name.lower()}@example.com"})
    with syncmcp.connect(url) as client:
        result = client.resume(pending, dict.fromkeys(pending.questions, content))
    if not isinstance(result, syncmcp.InputRequired):  # else the server has another question
        print(f"another process gets: {result.raise_for_error().text}")


def main() -> None:
    """Run a server, begin the call here, and answer it in another process."""
    if len(sys.argv) == 4:
        answer(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
        return
    name = sys.argv[1] if len(sys.argv) == 2 else "Ada"
    with serve_http(demo_server()) as http, TemporaryDirectory() as folder:
        file = Path(folder) / "pending.json"
        ask(http.url, file)
        subprocess.run([sys.executable, __file__, http.url, str(file), name], check=True)


if __name__ == "__main__":
    main()
