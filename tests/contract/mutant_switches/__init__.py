"""The switches of `mutants.py`: each switches exactly one behaviour of the library off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.mutant_switches import (
    auth_io,
    batch,
    caching,
    content,
    faults,
    goal,
    grants,
    groups,
    http,
    listening,
    machinery,
    mirroring,
    models,
    negotiation,
    oauth,
    pages,
    process,
    protocol,
    questions,
    retry,
    schema,
    skills,
    sse,
    tasks,
    ui,
)

if TYPE_CHECKING:
    from tests.contract.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    protocol.MUTANTS
    + negotiation.MUTANTS
    + machinery.MUTANTS
    + process.MUTANTS
    + http.MUTANTS
    + goal.MUTANTS
    + questions.MUTANTS
    + ui.MUTANTS
    + pages.MUTANTS
    + sse.MUTANTS
    + faults.MUTANTS
    + retry.MUTANTS
    + schema.MUTANTS
    + auth_io.MUTANTS
    + oauth.MUTANTS
    + grants.MUTANTS
    + listening.MUTANTS
    + content.MUTANTS
    + mirroring.MUTANTS
    + skills.MUTANTS
    + caching.MUTANTS
    + batch.MUTANTS
    + tasks.MUTANTS
    + groups.MUTANTS
    + models.MUTANTS
)


def find(name: str) -> Mutant:
    """The mutant of that name.

    Raises:
        LookupError: There is none.
    """
    for mutant in MUTANTS:
        if mutant.name == name:
            return mutant
    raise LookupError(f"no mutant is called {name}")
