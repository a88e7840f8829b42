"""The rows of the requirement manifest, one module for each part of the protocol."""

from __future__ import annotations
