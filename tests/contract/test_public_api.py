"""What users may rely on: the names syncmcp exports and how they are called."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from typing import get_origin

from tests.contract.public_api import MODULES, SNAPSHOT, describe


def test_names_and_signatures_are_those_of_the_snapshot() -> None:
    # When a change is meant: `make api`, and an entry in CHANGELOG.md.
    assert describe().splitlines() == SNAPSHOT.read_text(encoding="utf-8").splitlines()


def test_every_announced_name_exists_once() -> None:
    for name in MODULES:
        module = importlib.import_module(name)
        assert len(module.__all__) == len(set(module.__all__)) > 0, name
        for public in module.__all__:
            assert hasattr(module, public), f"{name}.{public} is announced but missing"


def test_modules_are_attributes_of_the_package_without_another_import() -> None:
    parts = sorted({name.split(".")[1] for name in MODULES if "." in name} | {"executors"})
    code = f"import syncmcp\nfor name in {parts}: getattr(syncmcp, name)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_class_function_and_method_is_documented() -> None:
    assert {name: bare for name in MODULES if (bare := undocumented(name))} == {}


def undocumented(name: str) -> list[str]:
    module = importlib.import_module(name)
    values = {public: getattr(module, public) for public in module.__all__}
    for owner, value in [*values.items()]:
        if inspect.isclass(value) and value.__module__.startswith("syncmcp"):
            values |= {
                f"{owner}.{member}": getattr(value, member)
                for member, kept in vars(value).items()
                if not member.startswith("_")
                and (inspect.isroutine(kept) or isinstance(kept, property))
            }
    return [
        public
        for public, value in values.items()
        # On 3.10 an alias of a generic type passes for a class.
        if get_origin(value) is None
        and (inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, property))
        and not inspect.getdoc(value)
    ]
