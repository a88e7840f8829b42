"""Which model answers: what a server hints at, or what matters most to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from syncmcp.types import ModelPreferences

__all__ = ["Model", "as_models", "preferred"]


@dataclass(frozen=True)
class Model:
    """A model that may be chosen, and what is known of it.

    Attributes:
        name: What its provider calls it.
        aliases: Other names that a server may hint at: those of like models of other providers.
        cheapness: From 0 to 1, the cheapest; compared with the other models alone, like the rest.
        speed: From 0 to 1.
        intelligence: From 0 to 1.
    """

    name: str
    aliases: tuple[str, ...] = ()
    cheapness: float = 0.5
    speed: float = 0.5
    intelligence: float = 0.5

    def __post_init__(self) -> None:
        if not self.name:
            raise UsageError("a model has a name")
        for name in ("cheapness", "speed", "intelligence"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is from 0 to 1, not {getattr(self, name)!r}")


def as_models(given: str | Model | Iterable[str | Model]) -> tuple[Model, ...]:
    """One model or several.

    Raises:
        UsageError: There is none.
    """
    several = [given] if isinstance(given, (str, Model)) else list(given)
    if not several:
        raise UsageError("at least one model is needed")
    return tuple(Model(each) if isinstance(each, str) else each for each in several)


def preferred(models: Sequence[Model], preferences: ModelPreferences | None) -> Model:
    """The model for a request (spec: sampling, "Model Preferences").

    Hints come first, in their order, each as a part of a name or an alias in any case. Where none
    fits, the model is the one whose cheapness, speed and intelligence, each times the priority that
    the server gives it, come to the most; of equal ones, and without priorities, the first.
    """
    if preferences is None:
        return models[0]
    for hint in preferences.hints or ():
        wanted = (hint.name or "").casefold()
        for model in models:
            if wanted and any(wanted in name.casefold() for name in (model.name, *model.aliases)):
                return model
    cost, speed, intelligence = (
        priority or 0.0
        for priority in (
            preferences.cost_priority,
            preferences.speed_priority,
            preferences.intelligence_priority,
        )
    )
    return max(
        models,
        key=lambda model: (
            cost * model.cheapness + speed * model.speed + intelligence * model.intelligence
        ),
    )
