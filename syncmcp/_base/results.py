"""Makes models of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from syncmcp.errors import InvalidOutput

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")


def validate(model: type[M], raw: dict[str, Any], method: str) -> M:
    """Build the model of a result.

    Raises:
        InvalidOutput: It does not fit.
    """
    try:
        # The library's own models are read by wire names alone; a caller's as that caller wrote it.
        read: Callable[[Any], M] = getattr(model, "from_wire", model.model_validate)
        return read(raw)
    except ValueError as error:
        raise InvalidOutput(
            f"the result does not fit {model.__name__}: {_first_problem(error)}", method=method
        ) from error


def _first_problem(error: ValueError) -> str:
    # Without the input: it may hold anything, secrets too.
    problem = error.errors(include_input=False, include_url=False)[0]  # type: ignore[attr-defined]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
