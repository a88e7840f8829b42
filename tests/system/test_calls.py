"""What a tool call costs in Python, by counts that no machine changes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.sides.base import ROOT

pytestmark = pytest.mark.slow

# The functions that one call enters, those of other packages too, and the files of the library.
# With many futures in flight, it depends on the load how many answers come with one read.
CEILINGS = {
    "stdio": (62, 18),
    "stdio_futures": (80, 20),
    "json": (218, 21),
    "json_futures": (288, 27),
    "sse": (260, 22),
}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there, comprehensions are functions, too")
def test_a_tool_call_enters_no_more_functions_and_files_than_these() -> None:
    program = [sys.executable, "-m", "benchmarks.calls"]
    ran = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    counted = json.loads(ran.stdout.splitlines()[-1])
    assert counted.keys() == CEILINGS.keys()
    more = {
        key: one
        for key, one in counted.items()
        if one["calls"] > CEILINGS[key][0] or one["files"] > CEILINGS[key][1]
    }
    assert more == {}
    assert all(one["calls"] > 20 for one in counted.values())
