"""Helpers for all packages: checks of arguments, secrets, safe text, URLs, the terminal."""

__version__ = "0.1.0"
