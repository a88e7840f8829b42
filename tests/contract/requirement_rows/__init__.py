"""The rows of the requirement manifest."""

from __future__ import annotations
