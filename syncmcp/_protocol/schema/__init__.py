"""Makes checks of schemas."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from syncmcp._protocol.schema.document import DEFAULT, Dialect, Document, Target, dialect_of
from syncmcp._protocol.schema.keywords import LAST_MAKERS, MAKERS
from syncmcp._protocol.schema.run import (
    MAX_PATTERNS,
    MAX_STEPS,
    Check,
    Pattern,
    Problem,
    Run,
    Seen,
    anything,
    nothing,
    too_deep,
)
from syncmcp.errors import UnsupportedSchema

__all__ = ["Problem", "Schema", "compile_schema"]


_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class Schema:
    """A compiled schema. Never changes; any thread may use it."""

    def __init__(self, check: Check, dialect: Dialect) -> None:
        self._check = check
        self.dialect = dialect.name

    def problem(self, value: Any) -> Problem | None:
        """Say why `value` does not fit; `None` if it does.

        Raises:
            UnsupportedSchema: To find out takes too many steps, or goes too deep.
        """
        try:
            return self._check(value, Run(MAX_STEPS), None)
        except RecursionError:
            # The caller's own stack may leave less room than there are levels allowed.
            raise too_deep() from None


def compile_schema(schema: Any) -> Schema:
    """Compile a schema, in the dialect that it names; 2020-12 if it names none.

    Raises:
        UnsupportedSchema: It is no schema, or one that cannot be checked with here.
    """
    dialect = dialect_of(schema)
    if not isinstance(schema, (dict, bool)):
        raise UnsupportedSchema("it is neither an object nor a boolean")
    try:
        return Schema(_Compiler(Document(schema, dialect)).compile(), dialect)
    except RecursionError:
        raise too_deep() from None


class _Cell:
    """A schema that is referred to: references can be made before it is compiled."""

    __slots__ = ("base", "check")

    def __init__(self, base: str) -> None:
        self.base = base
        self.check: Check = nothing

    def follow(self, value: Any, run: Run, seen: Seen | None) -> Problem | None:
        """Check by it. References are what makes a schema endless, so each is counted."""
        run.spend(1)
        run.descend()
        run.scope.append(self.base)
        problem = self.check(value, run, seen)
        run.scope.pop()
        run.nesting -= 1
        return problem


class _Compiler:
    def __init__(self, document: Document) -> None:
        self.document = document
        self._cells: dict[tuple[int, str], _Cell] = {}
        self._waiting: deque[tuple[_Cell, Target]] = deque()
        self._patterns: dict[str, Pattern] = {}
        self._pattern_size = 0

    def compile(self) -> Check:
        root = self.cell(self.document.root)
        # Not by recursion: a chain of references may be as long as it likes.
        while self._waiting:
            cell, target = self._waiting.popleft()
            cell.check = _Place(self, target.base).check(target.schema)
        return root.follow

    def cell(self, target: Target) -> _Cell:
        key = (id(target.schema), target.base)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell(target.base)
            self._waiting.append((cell, target))
        return cell

    def pattern(self, pattern: str) -> Pattern:
        compiled = self._patterns.get(pattern)
        if compiled is None:
            compiled = self._patterns[pattern] = Pattern(pattern)
            self._pattern_size += compiled.size
            if self._pattern_size > MAX_PATTERNS:
                raise UnsupportedSchema("its patterns are too large together")
        return compiled


class _Place:
    """The schemas of one resource; a `place.Place`."""

    def __init__(self, compiler: _Compiler, base: str) -> None:
        self._compiler = compiler
        self._base = base

    @property
    def _dialect(self) -> Dialect:
        return self._compiler.document.dialect

    @property
    def integers_are_written(self) -> bool:
        return self._dialect.id_word == "id"

    @property
    def contains_counts(self) -> bool:
        return self._dialect is DEFAULT

    def pattern(self, pattern: str) -> Pattern:
        return self._compiler.pattern(pattern)

    def check(self, schema: Any) -> Check:
        if isinstance(schema, bool):
            return anything if schema else nothing
        document = self._compiler.document
        base = document.base_of(schema, self._base)
        if base != self._base:
            # Another resource begins here.
            return self._compiler.cell(Target(schema, base)).follow
        # Without the words of other dialects, whose values may be anything.
        known = {word: schema[word] for word in schema.keys() & self._dialect.words.keys()}
        checks = [self._reference(word, known[word]) for word in _REFERENCES if word in known]
        if checks and self._dialect.lone_ref:
            return checks[0]
        for word, make in MAKERS.items():
            if word in known:
                check = make(known[word], known, self)
                if check is not None:
                    checks.append(check)
        last = [
            make(known[word], known, self) for word, make in LAST_MAKERS.items() if word in known
        ]
        return _together(checks, last)

    def _reference(self, word: str, reference: str) -> Check:
        document = self._compiler.document
        target = document.resolve(reference, self._base)
        cell = self._compiler.cell(target)
        if not isinstance(target.schema, dict):
            return cell.follow
        if word == "$dynamicRef":
            name = target.schema.get("$dynamicAnchor")
            if name is not None and reference.endswith(f"#{name}"):
                return self._dynamic(cell, document.dynamic_targets(name))
        elif word == "$recursiveRef" and target.schema.get("$recursiveAnchor") is True:
            return self._dynamic(cell, document.recursive_targets())
        return cell.follow

    def _dynamic(self, start: _Cell, targets: list[Target]) -> Check:
        """A reference to whichever of `targets` was entered first on the way."""
        by_base = {target.base: self._compiler.cell(target) for target in targets}

        def follow(value: Any, run: Run, seen: Seen | None) -> Problem | None:
            run.spend(len(run.scope))
            for base in run.scope:
                if base in by_base:
                    return by_base[base].follow(value, run, seen)
            return start.follow(value, run, seen)

        return follow


def _together(checks: list[Check], last: list[Check]) -> Check:
    """All of `checks`, and then `last` with the knowledge of what they have looked at."""
    if last:

        def check_and_count(value: Any, run: Run, seen: Seen | None) -> Problem | None:
            run.descend()
            own = Seen()
            for check in (*checks, *last):
                problem = check(value, run, own)
                if problem is not None:
                    run.nesting -= 1
                    return problem
            run.nesting -= 1
            if seen is not None:
                seen.add(own)
            return None

        return check_and_count
    if not checks:
        return anything
    if len(checks) == 1:
        return checks[0]

    def check_all(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        for check in checks:
            problem = check(value, run, seen)
            if problem is not None:
                return problem
        return None

    return check_all


# JSON Schema for what a server wrote: compiled once, and every check of a value has an end.
#
# Both sides of a check come from a server: the schema and the value. So nothing is ever fetched,
# no pattern backtracks, and depth, size and steps are counted. The words of the dialects stand in
# `dialect`, what each of them demands of a value in `keyword`, references in `document`.
