"""The changes that mutants make, by what they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncmcp._protocol.dialect import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

Function = Any
"""A function of the library: what it takes and returns is its own business."""


def result(edit: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Change what a function returns."""
    return lambda original: lambda *args, **named: edit(original(*args, **named))


def always(value: Any) -> Callable[[Function], Function]:
    return lambda original: lambda *args, **named: value


def without(key: str) -> Callable[[Function], Function]:
    """Leave a key out of the mapping that a function returns."""
    return result(lambda mapping: {name: mapping[name] for name in mapping if name != key})


def meta(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Function], Function]:
    """Change the `_meta` of the requests that a dialect makes."""

    def change(request: tuple[str, dict[str, Any] | None]) -> tuple[str, dict[str, Any] | None]:
        method, params = request
        if not params or "_meta" not in params:
            return request
        return method, {**params, "_meta": edit(params["_meta"])}

    return result(change)


def meta_without(key: str) -> Callable[[Function], Function]:
    return meta(lambda meta: {name: meta[name] for name in meta if name != key})


def of_replies(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Leave alone what comes of a look into the cache."""
    return lambda outcome: answer(outcome) if isinstance(outcome, Reply) else outcome


def effects(
    edit: Callable[[Any], list[Any]], answer: Callable[[Any], Any] = lambda outcome: outcome
) -> Callable[[Function], Function]:
    """Change what a negotiation does (each effect into several or none) and what comes of it."""

    def change(original: Function) -> Function:
        def mutated(*args: Any, **named: Any) -> Generator[Any, Any, Any]:
            steps = original(*args, **named)
            outcome = None
            while True:
                try:
                    effect = steps.send(outcome)
                except StopIteration as end:
                    return end.value
                outcome = None
                for changed in edit(effect):
                    outcome = answer((yield changed))

        return mutated

    return change
