"""What every part may use: checks of arguments, text that is safe to show, private files."""

__version__ = "0.1.0"
