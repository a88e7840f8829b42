"""Mutants of any model: what a provider is told, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.contract.mutant import Mutant

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function


def _unchanged(original: Function) -> Function:
    def to_provider(self: Any, name: str) -> str:
        return name

    return to_provider


MUTANTS = (
    Mutant(
        "names-as-they-are",
        "tools go to a provider under names that it refuses",
        "syncmcp.llm._tools:NameMap.to_provider",
        _unchanged,
        ("M-29",),
    ),
)
