"""The lock for building models, which forks acquire, too (`_concurrency/forks.py`)."""

from __future__ import annotations

import threading

build_lock = threading.RLock()
"""Held while a model is built.

Two threads may use a model for the first time at the same time, and pydantic 2.12 has no lock of
its own. Reentrant, because a build may trigger another one.
"""
