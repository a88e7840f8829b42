"""A server that says what a transcript tells it to, over stdio and HTTP."""
