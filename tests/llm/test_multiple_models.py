"""One tool for every model, and no package of a provider before it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.llm.double import double
from tests.llm.providers import ANTHROPIC, GEMINI, RESPONSES, Call
from tests.system.test_examples import environment

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "multiple_models.py"


@pytest.mark.requirement("M-29")
def test_the_example_asks_every_model_that_it_has_a_key_for(tmp_path: Path) -> None:
    call = Call("1", "weather", {"city": "Bergen"})
    with double() as claude, double() as gpt, double() as gemini:
        for there, provider in ((claude, ANTHROPIC), (gpt, RESPONSES), (gemini, GEMINI)):
            there.say(
                provider.turn(calls=[call], reason="toolUse"), provider.turn(f"By {provider}.")
            )
        keys = {f"{name}_API_KEY": "key" for name in ("ANTHROPIC", "OPENAI", "GEMINI")}
        ended = subprocess.run(
            [sys.executable, "-W", "error", str(EXAMPLE), "How is Bergen?"],
            cwd=tmp_path,
            env=environment(
                **keys,
                ANTHROPIC_BASE_URL=claude.url,
                OPENAI_BASE_URL=f"{gpt.url}/v1",
                GOOGLE_GEMINI_BASE_URL=gemini.url,
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert "model-1-dated: By anthropic.\n" in ended.stdout
        assert "model-1-dated: By openai-responses.\n" in ended.stdout
        assert ended.stdout.endswith("model-1-dated: By gemini.\n12 messages\n")
        assert "9.5" in str(gemini.body)


def test_neither_formats_nor_handlers_load_a_package_before_it_is_used() -> None:
    code = """
import sys
from syncmcp.llm import AnthropicFormat, AnthropicSampling, GeminiSampling, OpenAISampling
from syncmcp.types import Tool
AnthropicFormat([Tool(name="a", input_schema={})]).render_tools()
for handler in (AnthropicSampling, OpenAISampling, GeminiSampling):
    handler("m")
loaded = {"anthropic", "openai", "google.genai", "httpx", "httpx2"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
