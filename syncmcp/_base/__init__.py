"""Helpers for all packages: checks of arguments, redaction of text, private files."""

__version__ = "0.1.0"
