"""Models are loaded and built when they are first used, by whichever thread that is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import syncmcp.types


def run(program: str) -> str:
    """Run a program in a fresh interpreter, where no model has been used yet."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(syncmcp.types.__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_the_modules_that_are_used_are_loaded() -> None:
    loaded = run(
        "import sys, syncmcp.types as t; t.CallToolResult;"
        "print(*sorted(m for m in sys.modules if m.startswith('syncmcp.types.')))"
    ).split()
    assert "syncmcp.types.server_features" in loaded
    for unused in ("sampling", "elicitation", "form", "task", "prompt", "lifecycle", "error"):
        assert f"syncmcp.types.{unused}" not in loaded


def test_the_package_itself_loads_no_pydantic() -> None:
    assert run(
        "import sys; before = set(sys.modules); import syncmcp; own = set(sys.modules);"
        "import syncmcp.types; print('pydantic' in set(sys.modules) - own)"
    ).split() == ["False"]


def test_nothing_is_built_by_loading() -> None:
    assert run(
        "from syncmcp import types;"
        "names = [n for n in types.__all__ if hasattr(getattr(types, n), 'model_fields')];"
        "print(len(names) > 50,"
        " [n for n in names if getattr(types, n).__pydantic_complete__])"
    ).split() == ["True", "[]"]


def test_sixteen_threads_may_be_the_first_to_use_the_models() -> None:
    assert run(
        """
import sys, threading
sys.setswitchinterval(1e-6)
from syncmcp import types

text = {"type": "text", "text": "x"}
use = {"type": "tool_result", "toolUseId": "1", "content": [text]}
samples = [
    (types.CallToolResult, {"content": [text]}),
    (types.ListToolsResult, {"tools": [{"name": "a", "inputSchema": {}}]}),
    (types.SamplingMessage, {"role": "user", "content": [text, use]}),
    (types.CreateMessageRequestParams, {"messages": [], "maxTokens": 1}),
]
barrier = threading.Barrier(16)
came_back = []

def first_use(number):
    mine = samples[number % 4 :] + samples[: number % 4]
    barrier.wait()
    for model, sample in mine:
        came_back.append(model.from_wire(sample).to_wire() == sample)

threads = [threading.Thread(target=first_use, args=(n,)) for n in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(came_back), all(came_back))
"""
    ).split() == ["64", "True"]


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="CallTolResult"):
        getattr(syncmcp.types, "CallTolResult")  # noqa: B009


def test_every_public_model_is_exported() -> None:
    exported = set(vars(syncmcp.types)["__all__"])
    for name in exported:
        getattr(syncmcp.types, name)
    models = {
        name
        for module_name, module in list(sys.modules.items())
        if module_name.startswith("syncmcp.types.")
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, syncmcp.types.WireModel)
    }
    assert "CallToolResult" in models
    assert {name for name in models if not name.startswith("_")} <= exported
