"""What every part may use: checks of arguments, text that is safe to show, private files."""
