"""The class of a row of the requirement manifest, and the constants that its rows share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "GOAL", "GUARD"]
"""How binding a duty is: a keyword of the specification, a goal of this project, or a guard
against a failure that was observed in other clients."""

ALL: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
STATEFUL: Final = ALL[:4]
STATELESS: Final = ALL[4:]
STREAMABLE: Final = ALL[1:4]
"""The stateful revisions that have Streamable HTTP."""
FROM_2503: Final = ALL[1:]
FROM_2506: Final = ALL[2:]
FROM_2511: Final = ALL[3:]
BEFORE_2511: Final = ALL[:3]
ONLY_2411: Final = ALL[:1]
ONLY_2503: Final = ALL[1:2]
ONLY_2511: Final = ALL[3:4]
FROM_2506_TO_2511: Final = ALL[2:4]
EXTENSION: Final = ("extension",)
"""The duty belongs to an extension, which has its own versions."""

# Sources of duties: pages below https://modelcontextprotocol.io/ (`seps`, `specification`,
# `tutorials`), the schema files of the specification's repository, and the repositories of the
# extensions.
S24: Final = "specification/2024-11-05"
S2503: Final = "specification/2025-03-26"
S2506: Final = "specification/2025-06-18"
S2511: Final = "specification/2025-11-25"
S26: Final = "specification/2026-07-28"
SCHEMA_2511: Final = "schema/2025-11-25/schema.ts"
SCHEMA_26: Final = "schema/2026-07-28/schema.ts"
EXT_TASKS: Final = "ext-tasks/specification/2026-07-28/tasks"
EXT_AUTH: Final = "ext-auth/specification"
EXT_SKILLS: Final = "ext-skills/specification/stable/skills"
PRACTICES: Final = "tutorials/security/security_best_practices"

# Optional behaviour that this client does not have.
DRAWING: Final = "icons are neither drawn nor fetched"
RECEIVING: Final = "no tasks are run for servers, nor offered to any"


@dataclass(frozen=True)
class Row:
    """One duty of the client.

    Attributes:
        id: The id in the marks of tests.
        level: How binding the duty is.
        revisions: The protocol revisions in which it holds.
        source: Its place in the public specification, as path#anchor.
        duty: What the client does, in a sentence of at most twelve words.
        moot: Why the duty does not apply: the client does not have the optional behaviour that it
            regulates. Empty for all duties that need a test.
        examples: The programs in ``examples/`` that demonstrate it, without their suffix.
    """

    id: str
    level: Level
    revisions: tuple[str, ...]
    source: str
    duty: str
    moot: str = ""
    examples: tuple[str, ...] = ()

    @property
    def shown(self) -> bool:
        """True if the row needs a test."""
        return not self.moot

    @property
    def revisions_in_words(self) -> str:
        """The revisions as text for a table: all, one, or from the first to the last."""
        if self.revisions == ALL:
            return "all"
        if len(self.revisions) == 1:
            return self.revisions[0]
        return f"{self.revisions[0]} to {self.revisions[-1]}"
