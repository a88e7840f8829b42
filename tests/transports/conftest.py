"""What tests of transports are given: certificates, and pauses that nobody makes."""

from __future__ import annotations

import pytest

from tests.support.parts import without_pauses

from .certificates import Certificates, make


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of an authority that nobody knows, for this computer and for a client."""
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before streams are taken up again, none of which is made."""
    return without_pauses(monkeypatch)
