"""Applies the mutant in this interpreter and in the programs that it runs."""

from __future__ import annotations

import os

from tests.contract.mutant import VARIABLE, find, install

if VARIABLE in os.environ:
    install(find(os.environ[VARIABLE]))
