"""Applies the mutant in the programs that tests run in an interpreter of their own."""

from __future__ import annotations

import os

from tests.mutant import VARIABLE, apply

if VARIABLE in os.environ:
    from tests.mutant_switches import find

    apply(find(os.environ[VARIABLE]))
