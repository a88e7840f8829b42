"""What an error about an invalid value says of its problems."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from syncmcp import McpError, types
from syncmcp._base.checks import validate
from syncmcp._base.secrets import Secrets
from syncmcp._base.text import MOST_PROBLEMS
from syncmcp.errors import InvalidOutput


def test_no_error_looks_at_each_of_many_problems() -> None:
    class Theirs(pydantic.BaseModel):
        numbers: list[int]

    many: dict[str, Any] = {"numbers": ["x"] * (MOST_PROBLEMS + 1)}
    with pytest.raises(InvalidOutput, match=f"{MOST_PROBLEMS + 1} problems") as caught:
        validate(Theirs, many, "a/method")

    Secrets().clean(caught.value)
    assert caught.value.__cause__ is None

    result = types.CallToolResult(content=[], structured_content=many)
    with pytest.raises(InvalidOutput, match=f"{MOST_PROBLEMS + 1} problems"):
        result.parse(Theirs)


def test_a_few_problems_are_told_and_remain_the_cause() -> None:
    with pytest.raises(McpError, match=r"content\.0\.unknown") as caught:
        validate(types.CallToolResult, {"content": [1]}, "tools/call")

    Secrets().clean(caught.value)
    assert isinstance(caught.value.__cause__, pydantic.ValidationError)
