"""The protocol's published revisions, oldest first, and what separates them.

Revision names are an enumerated list. They are never compared as strings: an unknown name must
not sort before or after a known one.
"""

from __future__ import annotations

from collections.abc import Iterable

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Every revision this server speaks, oldest first."""

STATELESS = ("2026-07-28",)
"""Revisions without a handshake: each request says in `_meta` what it speaks."""

BATCHING = "2025-03-26"
"""The only revision with JSON-RPC batches."""


def select(revisions: Iterable[str]) -> tuple[str, ...]:
    """Return `revisions` in order of age.

    Raises:
        ValueError: One of them is unknown, or there are none.
    """
    wanted = set(revisions)
    unknown = wanted.difference(REVISIONS)
    if unknown or not wanted:
        raise ValueError(f"revisions must be some of {REVISIONS}, not {sorted(wanted)}")
    return tuple(revision for revision in REVISIONS if revision in wanted)


def since(revision: str, first: str) -> bool:
    """Return whether `revision` is `first` or a newer one."""
    return REVISIONS.index(revision) >= REVISIONS.index(first)
