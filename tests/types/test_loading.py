"""Models are loaded and built when they are first used, on any thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import syncmcp.types

# Runs in a process that has not used a model yet.
PROGRAM = """
import sys, threading

before = set(sys.modules)
import syncmcp.types as types
print("pydantic" in set(sys.modules) - before)

types.CallToolResult
print(*sorted(m for m in sys.modules if m.startswith("syncmcp.types.")))

names = [n for n in types.__all__ if hasattr(getattr(types, n), "model_fields")]
print(len(names) > 50, [n for n in names if getattr(types, n).__pydantic_complete__])

sys.setswitchinterval(1e-6)
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


def test_models_are_loaded_and_built_when_sixteen_threads_first_use_them() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(syncmcp.types.__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    loads_pydantic, loaded, built, used = done.stdout.splitlines()
    assert loads_pydantic == "False"
    assert "syncmcp.types.server_features" in loaded.split()
    for unused in ("client_features", "extensions"):
        assert f"syncmcp.types.{unused}" not in loaded.split()
    assert built == "True []"
    assert used == "64 True"


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
