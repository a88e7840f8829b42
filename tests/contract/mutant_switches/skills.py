"""Mutants of skills: what is read when, what is checked, and what is told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncmcp.errors import InvalidParams
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, result

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

SKILLS = "syncmcp.skills:Skills"
LOADED = "syncmcp.skills:LoadedSkill"
ENTRY = "syncmcp.skills.entry"


def _read_ahead(original: Function) -> Function:
    def listed(self: Any, **options: Any) -> Any:
        found = original(self, **options)
        for skill in found:
            self._client.read_resource(skill.uri)
        return found

    return listed


def _only_listed(original: Function) -> Function:
    def get(self: Any, uri: str, **options: Any) -> Any:
        for skill in self.list(**options):
            if skill.uri == uri:
                return skill
        raise InvalidParams("No skill is served: it is not listed")

    return get


def _any_kind(original: Function) -> Function:
    def load(self: Any, skill: Any, *, dynamic: bool = False, **options: Any) -> Any:
        return original(self, skill, dynamic=True, **options)

    return load


def _trust_sizes(original: Function) -> Function:
    def verify(self: Any, data: bytes, uri: str, file: Any) -> None:
        if file is None or len(data) != file.size:
            original(self, data, uri, file)

    return verify


MUTANTS = (
    Mutant(
        "skills-anyway",
        "skills are asked for whether or not both sides have the extension",
        f"{SKILLS}._settings",
        always({"directoryRead": True}),
        ("SKL-01",),
    ),
    Mutant(
        "directories-anyway",
        "directories are asked for whether or not the server lists them",
        f"{SKILLS}._settings",
        result(lambda settings: {**settings, "directoryRead": True}),
        ("SKL-01",),
    ),
    Mutant(
        "skills-read-ahead",
        "listing reads each skill's first file",
        f"{SKILLS}.list",
        _read_ahead,
        ("SKL-02",),
    ),
    Mutant(
        "files-unchecked",
        "a file of a skill is used whatever it is",
        f"{LOADED}._verify",
        always(None),
        ("SKL-03",),
    ),
    Mutant(
        "digests-unchecked",
        "a file of a skill is used if it has the right size",
        f"{LOADED}._verify",
        _trust_sizes,
        ("SKL-03",),
    ),
    Mutant(
        "reads-on",
        "after a file that is not what it should be, others are read",
        f"{LOADED}._refuse_all",
        always(None),
        ("SKL-03",),
    ),
    Mutant(
        "frontmatter-unchecked",
        "a skill is loaded whatever its frontmatter says",
        "syncmcp.skills.entry:difference",
        always(None),
        ("SKL-04",),
    ),
    Mutant(
        "frontmatter-loosely",
        "true and 1 are the same in frontmatter",
        "syncmcp.skills.entry:_equal",
        lambda _: lambda reading, stated: reading == stated,
        ("SKL-04",),
    ),
    Mutant(
        "frontmatter-anyhow-deep",
        "frontmatter may be nested as deep as it likes",
        "syncmcp.skills.entry:MAX_DEPTH",
        lambda _: 10**9,
        ("SKL-04",),
    ),
    Mutant(
        "names-that-lead-out",
        "names in a skill may have segments that mean something else",
        f"{ENTRY}:_is_plain",
        always(True),
        ("SKL-05",),
    ),
    Mutant(
        "small-skills-only",
        "a skill may have 256 files",
        f"{ENTRY}:MAX_FILES",
        lambda _: 256,
        ("SKL-06",),
    ),
    Mutant(
        "dynamic-unasked",
        "skills without digests are loaded like any other",
        f"{SKILLS}.load",
        _any_kind,
        ("SKL-06",),
    ),
    Mutant(
        "one-skill-a-name",
        "of several skills with the same name, the last one is listed",
        f"{SKILLS}.list",
        result(lambda found: list({skill.name: skill for skill in found}.values())),
        ("SKL-07",),
    ),
    Mutant(
        "skills-by-uri",
        "a skill is known by its URI alone",
        "syncmcp.types.extensions:Skill.key",
        lambda _: property(lambda skill: (None, skill.uri)),
        ("SKL-07",),
    ),
    Mutant(
        "listed-skills-only",
        "a skill that is not listed is not found",
        f"{SKILLS}.get",
        _only_listed,
        ("SKL-08",),
    ),
)
