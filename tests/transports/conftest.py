"""Fixtures of the transport tests: certificates, and pauses that end at once."""

from __future__ import annotations

import pytest

from tests.support.parts import without_pauses

from .certificates import Certificates, make


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Make certificates of an unknown authority, for this computer and for a client."""
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the lengths of the pauses before streams are reopened, all of which end at once."""
    return without_pauses(monkeypatch)
