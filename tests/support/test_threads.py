"""The jobs that a test runs at once: what one of them asserts is not lost."""

from __future__ import annotations

import pytest

from tests.support.stage import in_threads


def fail() -> None:
    raise AssertionError("of a job")


def test_what_a_job_asserts_the_test_asserts() -> None:
    with pytest.raises(AssertionError, match="of a job"):
        in_threads(lambda: 1, fail)


def test_other_errors_are_outcomes() -> None:
    first, second = in_threads(lambda: 1, lambda: 1 / 0)
    assert first == 1
    assert isinstance(second, ZeroDivisionError)
