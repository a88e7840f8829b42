"""Skills: the extension ``io.modelcontextprotocol/skills``."""

# fmt: off
from __future__ import annotations

from .row import EXT_SKILLS, EXTENSION, Row

INTEGRITY = f"{EXT_SKILLS}#integrity-and-verification"

ROWS = (
    Row("SKL-01", "MUST NOT", EXTENSION, f"{EXT_SKILLS}#capability-negotiation",
        "Skills are requested only if both sides declare them, directories likewise."),
    Row("SKL-02", "MUST NOT", EXTENSION, INTEGRITY,
        "Connecting and listing read no file of a skill."),
    Row("SKL-03", "MUST", EXTENSION, INTEGRITY,
        "Each file that is read has its entry's digest and size."),
    Row("SKL-04", "MUST", EXTENSION, INTEGRITY,
        "A skill loads only if its frontmatter equals that of its entry."),
    Row("SKL-05", "MUST", EXTENSION, INTEGRITY,
        "Only files of the entry are read; relative names stay inside."),
    Row("SKL-06", "MUST", EXTENSION, f"{EXT_SKILLS}#resources",
        "A skill loads if its entry lists its files, within bounds."),
    Row("SKL-07", "MUST NOT", EXTENSION, f"{EXT_SKILLS}#names",
        "Skills are identified by server and URI, not by name."),
    Row("SKL-08", "MUST", EXTENSION, f"{EXT_SKILLS}#getting-a-skill",
        "An unlisted skill is found by its URI, whatever its scheme."),
)
