"""Applies the mutant in each interpreter that has this folder in its `PYTHONPATH`."""

from __future__ import annotations

import os

from tests.contract.mutant import VARIABLE, find, install

if VARIABLE in os.environ:
    install(find(os.environ[VARIABLE]))
