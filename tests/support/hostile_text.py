"""A text of a hostile server, and the check of a text that contains it."""

from __future__ import annotations

import unicodedata

FORGED = "2026-01-01 CRITICAL forged"
HIDDEN = "\x00\x07\b\x7f\x9b31m\u202e\u200b\ufeff\u2066"
EVIL = f"\x1b[2J\r\n{FORGED}\n{FORGED}{HIDDEN}\u2028{FORGED}\u2029"


def check_text(text: str, *, one_line: bool = False) -> None:
    """Check that a text cannot move the cursor, hide text, or forge a line."""
    odd = {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp")}
    assert odd <= (set() if one_line else {"\n"}), ascii(text)
    assert not any(line.startswith(FORGED) for line in text.split("\n")), text
