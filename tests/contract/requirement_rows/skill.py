"""Skills: the extension ``io.modelcontextprotocol/skills``."""

# fmt: off
from __future__ import annotations

from .row import EXT_SKILLS, EXTENSION, Row

INTEGRITY = f"{EXT_SKILLS}#integrity-and-verification"

ROWS = (
    Row("SKL-01", "MUST NOT", EXTENSION, f"{EXT_SKILLS}#capability-negotiation",
        "Nothing of the extension is asked for unless both sides have it, and no directory unless "
        "the server says that it lists them."),
    Row("SKL-02", "MUST NOT", EXTENSION, INTEGRITY,
        "No file of a skill is read before it is wanted: not when connecting, nor when listing."),
    Row("SKL-03", "MUST", EXTENSION, INTEGRITY,
        "Each file that is read has the digest and the size of its entry, or is not used."),
    Row("SKL-04", "MUST", EXTENSION, INTEGRITY,
        "The frontmatter of a skill is that of its entry, field by field, or it is not loaded."),
    Row("SKL-05", "MUST", EXTENSION, INTEGRITY,
        "Only files of the entry are read; relative names stay inside of the skill."),
    Row("SKL-06", "MUST", EXTENSION, f"{EXT_SKILLS}#resources",
        "A skill of 512 files and 16 MiB can be loaded; one whose entry does not say which files "
        "it has cannot, and one without digests only if that is asked for."),
    Row("SKL-07", "MUST NOT", EXTENSION, f"{EXT_SKILLS}#names",
        "Skills with the same name do not hide each other; a skill is known by server and URI."),
    Row("SKL-08", "MUST", EXTENSION, f"{EXT_SKILLS}#getting-a-skill",
        "A skill that is not listed is found by its URI, whatever its scheme."),
)
