"""What a browser gets from the loopback receiver: pages that need nothing and run nothing."""

from __future__ import annotations

import base64
import hashlib
import html
from http import HTTPStatus
from typing import Final

__all__ = ["ARRIVED", "NOT_HERE", "NOT_THIS_LOGIN", "page"]

_STYLE: Final = (
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1c1c1e;--soft:#5b5b60}"
    "@media(prefers-color-scheme:dark){:root{--paper:#1c1c1e;--ink:#f2f2f5;--soft:#a5a5ab}}"
    "body{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--paper);"
    "color:var(--ink);font:17px/1.5 system-ui,sans-serif}"
    "main{max-width:28em;padding:2em;text-align:center}"
    "h1{font-size:1.5em;font-weight:600;margin:0 0 .5em}p{margin:0;color:var(--soft)}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)

# Whether the sign-in worked is not known yet, and not said: nothing was checked but the state.
ARRIVED: Final = (
    HTTPStatus.OK,
    "Back to your program",
    "Your answer has arrived. You can close this page; the program says how it goes on.",
)
NOT_THIS_LOGIN: Final = (
    HTTPStatus.BAD_REQUEST,
    "Not the answer that is waited for",
    "This page belongs to another sign-in, perhaps an older one. The program still waits.",
)
NOT_HERE: Final = (
    HTTPStatus.NOT_FOUND,
    "Nothing to see here",
    "A program on this computer waits here for the end of a sign-in, and for nothing else.",
)


def page(content: tuple[HTTPStatus, str, str]) -> bytes:
    """The whole HTTP response: status, headers and page."""
    status, title, text = content
    body = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{html.escape(title)}</h1><p>{html.escape(text)}</p></main></body></html>"
    ).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Content-Security-Policy: {_POLICY}\r\n"
        "Cache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
