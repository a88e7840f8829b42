"""What servers of the three oldest revisions send, and the extension shapes no package has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncmcp import types

# One in a line: the revision, the name of the model, and the sample as it goes over the wire.
LINES = Path(__file__).with_name("older_samples.jsonl").read_text("utf-8").splitlines()
SAMPLES = [
    pytest.param(model, sample, id=f"{revision}-{model}-{number}")
    for number, (revision, model, sample) in enumerate(map(json.loads, LINES))
]


@pytest.mark.parametrize(("model", "sample"), SAMPLES)
def test_a_sample_comes_back_as_it_was(model: str, sample: dict[str, Any]) -> None:
    parsed = getattr(types, model).from_wire(sample)
    assert parsed.to_wire() == sample
    assert not parsed.model_extra
