"""What a mutant is, and how it is applied to the library in this process."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE: Final = "SYNCMCP_MUTANT"
"""The environment variable that names the mutant to apply."""


@dataclass(frozen=True)
class Mutant:
    """One behaviour that can be switched off.

    Attributes:
        name: What it is called on the command line.
        effect: What the library then does wrong.
        target: Where the behaviour lives, as ``module:Class.attribute`` or ``module:function``.
        change: Makes the replacement out of the original, which comes as it stands in its class
            (a property as the property).
        shows: The rows of `requirements.py` whose tests must then go red, each of them.
    """

    name: str
    effect: str
    target: str
    change: Callable[[Any], Any]
    shows: tuple[str, ...]


def _locate(mutant: Mutant) -> tuple[Any, str, Any]:
    """The owner of the target, its name there, and what stands there now.

    Raises:
        LookupError: The library has no such place (any more).
    """
    module, _, path = mutant.target.partition(":")
    *owners, name = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        return owner, name, inspect.getattr_static(owner, name)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"mutant {mutant.name}: no {mutant.target}: {error}") from error


def check(mutant: Mutant) -> None:
    """Make sure that the target exists.

    Raises:
        LookupError: It does not.
    """
    _locate(mutant)


def apply(mutant: Mutant, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Switch the behaviour off in this process.

    A function of a module is replaced under its name in every loaded module of the library, as
    ``from ... import`` has copied it there.

    Raises:
        LookupError: The target does not exist.
    """
    owner, name, original = _locate(mutant)
    replacement = mutant.change(original)
    put(owner, name, replacement)
    if not inspect.ismodule(owner):
        return
    package = owner.__name__.partition(".")[0]
    for module in list(sys.modules.values()):
        if module.__name__.partition(".")[0] == package:
            for alias, value in list(vars(module).items()):
                if value is original:
                    put(module, alias, replacement)


def reach_programs() -> None:
    """Have the programs that this process runs apply the mutant, too; servers get no such path."""
    here = Path(__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join((str(here / "mutant_site"), str(here.parents[1])))
