"""`import syncmcp` is light: what a program does not use, it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "anthropic",
    "asyncio",
    "google.genai",
    "httpx",
    "httpx2",
    "idna",
    "jsonschema",
    "openai",
    "platformdirs",
    "referencing",
    "requests",
    "sseclient",
    "tkinter",
    "uritemplate",
    "urllib3",
    "yaml",
)
"""What takes long to load, or belongs to something that the program may never use."""


def loaded_by(code: str) -> set[str]:
    """The modules that are loaded once `code` has run in a fresh interpreter."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(ended.stdout.split())


def test_the_import_loads_nothing_heavy() -> None:
    loaded = loaded_by("import syncmcp")
    assert "syncmcp._client.client" in loaded
    assert loaded.isdisjoint(HEAVY)
    assert not {name for name in loaded if name.startswith("syncmcp.transports.")} & {
        "syncmcp.transports.http",
        "syncmcp.transports.memory",
        "syncmcp.transports.stdio",
    }
    # Neither the models nor what they are made with.
    assert loaded.isdisjoint({"pydantic", "syncmcp.types.base"})
    assert not {name for name in loaded if name.startswith(("syncmcp.testing", "syncmcp.ui"))}


@pytest.mark.parametrize(
    "use", ["connect(syncmcp.testing.Server())", "Stdio('x')", "Http('http://x')"]
)
def test_a_program_without_http_never_loads_the_http_stack(use: str) -> None:
    code = f"import syncmcp, syncmcp.testing\nmade = syncmcp.{use}\ngetattr(made, 'close', bool)()"
    assert loaded_by(code).isdisjoint({"requests", "urllib3", "sseclient", "jsonschema"})


def test_the_import_starts_no_thread_and_touches_no_logging_of_the_program() -> None:
    code = """
import threading, logging, sys
import syncmcp
assert threading.active_count() == 1
assert logging.getLogger().handlers == []
assert logging.getLogger("syncmcp").handlers == []  # without any, Python prints warnings to stderr
"""
    loaded_by(code)
