"""Applies the mutant in the programs that tests run in an interpreter of their own."""

from __future__ import annotations

import os

from tests.contract.mutant import VARIABLE, apply

if VARIABLE in os.environ:
    from tests.contract.mutant_switches import find

    apply(find(os.environ[VARIABLE]))
