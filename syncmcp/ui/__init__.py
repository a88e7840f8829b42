"""User interfaces for questions of servers, and text of servers and models made safe to show.

Text of a server or a model may be deceptive: an escape sequence can move the cursor over text of
the program, characters can be hidden, or the writing direction can be overridden. Every user
interface passes such text through `visible` before it shows the text.
"""

from __future__ import annotations

from syncmcp._base.text import shorten, visible

__all__ = ["shorten", "visible"]
