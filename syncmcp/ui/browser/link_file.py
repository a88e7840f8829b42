"""A private file that leads a browser to the pages, so that their link is in no command line."""

from __future__ import annotations

from html import escape

from syncmcp._concurrency.private_page import PrivatePage

# The token is in the body of a request: it stays out of the history of the browser.
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Questions for you</title>
<style>
body {{ margin: 2rem auto; padding: 0 1rem; max-width: 46rem;
  font: 1rem/1.5 system-ui, sans-serif }}
button {{ padding: .5rem 1rem; font: inherit }}
</style></head>
<body>
<p>A program on this computer has a question for you.</p>
<form method="post" action="{address}">
<input type="hidden" name="token" value="{token}">
<button>Go to the questions</button>
</form>
<script>document.forms[0].submit();</script>
</body>
</html>
"""


class LinkFile(PrivatePage):
    """The file that leads to the pages.

    Args:
        address: The URL to which the token is posted.
        token: The token of the link.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, address: str, token: str) -> None:
        page = _PAGE.format(address=escape(address), token=escape(token))
        super().__init__("questions.html", page)
