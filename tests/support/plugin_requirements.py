"""Pytest plugin: checks the requirement marks, and selects tests by row.

``--shows ID`` (repeatable) runs only the tests whose marks name one of these rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.requirement_marks import KINDS
from tests.contract.requirements import ROWS, faults

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--shows``."""
    parser.addoption(
        "--shows",
        action="append",
        default=[],
        metavar="ID",
        help="run only tests that carry this row of tests/contract/requirements.py (repeatable)",
    )


def _wanted(config: pytest.Config) -> set[str]:
    return set(config.getoption("shows") or ())


def pytest_configure(config: pytest.Config) -> None:
    """Reject ``--shows`` with an id that no row has."""
    unknown = _wanted(config) - {row.id for row in ROWS}
    if unknown:
        raise pytest.UsageError(f"--shows: no such row: {', '.join(sorted(unknown))}")


def _ids(item: pytest.Item, kind: str) -> Iterator[object]:
    for mark in item.iter_markers(kind):
        yield from mark.args


@pytest.hookimpl(tryfirst=True)  # also checks the marks of tests that later hooks deselect
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reject wrong marks; then deselect the tests that ``--shows`` does not ask for."""
    wrong = [
        f"{item.nodeid}: {fault}"
        for item in items
        for kind in KINDS
        for fault in faults(kind, _ids(item, kind))
    ]
    if wrong:
        raise pytest.UsageError("wrong requirement marks:\n" + "\n".join(dict.fromkeys(wrong)))
    wanted = _wanted(config)
    if not wanted:
        return
    carried = {item: {row_id for kind in KINDS for row_id in _ids(item, kind)} for item in items}
    left_out = [item for item in items if not carried[item] & wanted]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if carried[item] & wanted]
