"""Sending a person to the authorization server, and receiving the callback (RFC 8252 §7.3).

Also the pages that a browser gets from `LoopbackReceiver`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qsl

from syncmcp._base.text import redact
from syncmcp._http.exchange import wait
from syncmcp.errors import AuthError, LoginRequired, RequestTimeout

if TYPE_CHECKING:
    from syncmcp._concurrency.timing import Deadline
    from syncmcp.auth.steps import Redirect

__all__ = [
    "PAGE_ARRIVED",
    "PAGE_NOT_FOUND",
    "PAGE_WRONG_LOGIN",
    "ConsolePrompt",
    "PasteReceiver",
    "Receiver",
    "Waiting",
    "check_browser_url",
    "instructions",
    "login_timed_out",
    "page",
    "parse_callback",
    "print_to_stderr",
]


# Characters that have a meaning for shells and other programs that open browsers.
_UNSAFE_CHARACTERS: Final = frozenset(' \\<>"`^{|}')

_MOST_PARAMETERS: Final = 32
_LONGEST_ANSWER: Final = 16 * 1024

_PROMPT: Final = "Paste the address (or Enter to see the instructions again): "
_NO_ANSWER: Final = "That is not the answer to this login."


class Waiting(Protocol):
    """A receiver's part of one login: a context manager that frees all resources at its end."""

    @property
    def redirect_uri(self) -> str:
        """The redirect URI of this login."""
        ...

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        """Send a person to `redirect.url`; return the parameters of the callback.

        They contain the `state` of `redirect`, and a `code` or an `error`; the receiver checks
        nothing else.

        Args:
            redirect: The authorization request.
            deadline: Until when to wait for the callback.

        Raises:
            LoginRequired: No person can be reached.
            RequestTimeout: The deadline passed.
            ExchangeAborted: The HTTP exchange on this thread was aborted.
        """
        ...

    def __enter__(self) -> Waiting: ...

    def __exit__(self, *_: object) -> None: ...


class Receiver(Protocol):
    """Sends people to authorization servers and receives the callbacks."""

    def start(self, registered: Sequence[str] = ()) -> Waiting:
        """Start a login, and determine its redirect URI.

        Args:
            registered: The redirect URIs that the client is registered with. One of them is reused
                if possible: some servers require the same port each time.

        Raises:
            LoginRequired: No callback can be received, for instance because the port is taken.
        """
        ...


class PasteReceiver:
    """Shows a URL to a person, who pastes the URL that the browser ends up at.

    For computers without a browser. Nothing listens at the redirect URI: the browser shows an
    error, but its address bar contains the callback.

    Args:
        show: Shows a text to the person.
        ask: Shows a prompt, and returns the line that the person enters. It runs on a daemon
            thread, ``syncmcp-redirect[paste]``, which may outlive the login.
        redirect_uri: The redirect URI that the client is, or will be, registered with.
    """

    def __init__(
        self,
        show: Callable[[str], object] = print,
        ask: Callable[[str], str] = input,
        *,
        redirect_uri: str = "http://127.0.0.1:51763/callback",
    ) -> None:
        self._show = show
        self._ask = ask
        self._redirect_uri = redirect_uri

    def start(self, registered: Sequence[str] = ()) -> Waiting:
        """Start a login. The redirect URI is always that of the constructor."""
        return _PasteLogin(self._show, self._ask, self._redirect_uri)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(redirect_uri={self._redirect_uri!r})"


class _PasteLogin:
    def __init__(
        self, show: Callable[[str], object], ask: Callable[[str], str], redirect_uri: str
    ) -> None:
        self._show = show
        self._ask = ask
        self.redirect_uri = redirect_uri
        self._prompt: ConsolePrompt | None = None

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        """Prompt until the person pastes the callback of this login."""
        check_browser_url(redirect.url)
        ended = threading.Event()
        prompt = self._prompt = ConsolePrompt(self._show, self._ask, redirect, ended.set)
        prompt.start()
        if not wait(ended, deadline.remaining()):
            raise login_timed_out(deadline)
        if prompt.answer is None:
            raise LoginRequired(
                "nobody pasted the answer of the authorization server: "
                f"{prompt.failure or 'there is nobody to ask'}",
                delivery="not_sent",
            )
        return prompt.answer

    def __enter__(self) -> _PasteLogin:
        return self

    def __exit__(self, *_: object) -> None:
        if self._prompt is not None:
            self._prompt.stop()


class ConsolePrompt:
    """Prompts a person for the callback, on a thread of its own, as input cannot be interrupted.

    Attributes:
        answer: The parameters of the callback, once they were entered.
        failure: Why no callback can be entered; `None` before that.
    """

    def __init__(
        self,
        show: Callable[[str], object],
        ask: Callable[[str], str],
        redirect: Redirect,
        ended: Callable[[], object],
    ) -> None:
        self._show = show
        self._ask = ask
        self._redirect = redirect
        self._ended = ended
        self._stopped = False
        self.answer: Mapping[str, str] | None = None
        self.failure: str | None = None

    def start(self) -> None:
        """Start the thread, which calls `ended` at its end."""
        threading.Thread(target=self._run, name="syncmcp-redirect[paste]", daemon=True).start()

    def stop(self) -> None:
        """Show no further prompt. The input for the current prompt is ignored."""
        self._stopped = True

    def _run(self) -> None:
        try:
            self.answer = self._ask_until_valid()
        except (EOFError, KeyboardInterrupt):
            self.failure = "there was no input"
        except Exception as error:  # of the user's functions
            self.failure = redact(f"{type(error).__name__}: {error}", [self._redirect.state])
        finally:
            self._ended()

    def _ask_until_valid(self) -> Mapping[str, str] | None:
        self._show(instructions(self._redirect, paste=True))
        while not self._stopped:
            text = self._ask(_PROMPT).strip()
            if self._stopped:
                break
            answer = parse_callback(text, self._redirect.state)
            if answer is not None:
                return answer
            self._show(_NO_ANSWER if text else instructions(self._redirect, paste=True))
        return None


def parse_callback(text: str, state: str) -> Mapping[str, str] | None:
    """Parse the parameters of a callback.

    Args:
        text: A URL, or only its query.
        state: The expected `state`, compared in constant time.

    Returns:
        The parameters; `None` if `text` is no callback, or that of another login.
    """
    if len(text) > _LONGEST_ANSWER:
        return None
    query = text.partition("#")[0].rpartition("?")[2]
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        return None
    parameters = dict(pairs)
    if len(parameters) != len(pairs) or not ("code" in parameters or "error" in parameters):
        return None
    given = parameters.get("state", "").encode(errors="replace")
    if not hmac.compare_digest(given, state.encode()):
        return None
    return parameters


def instructions(redirect: Redirect, *, paste: bool) -> str:
    """The text for a person who has to open a browser."""
    text = f"To sign in, open this address in a browser:\n\n{redirect.url}\n"
    if paste:
        text += (
            "\nThe browser ends up at a page that begins with\n"
            f"{redirect.redirect_uri} and may not load. Copy its address from the address bar.\n"
        )
    return text


def check_browser_url(url: str) -> None:
    """Check a URL before a browser opens it.

    Raises:
        AuthError: It is not http(s), or contains characters that no URL contains.
    """
    web = url.lower().startswith(("https://", "http://"))
    if not web or not url.isprintable() or not _UNSAFE_CHARACTERS.isdisjoint(url):
        raise AuthError(
            "the authorization request is no address that a browser may open", delivery="not_sent"
        )


def login_timed_out(deadline: Deadline) -> RequestTimeout:
    """The error of a login that was not completed in time."""
    return RequestTimeout("nobody signed in in time", seconds=deadline.seconds, delivery="not_sent")


def print_to_stderr(text: str) -> None:
    """Print a text to stderr, apart from the program's output."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - it is for a person


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

# Only the state was checked: whether the sign-in worked is not known yet.
PAGE_ARRIVED: Final = (
    HTTPStatus.OK,
    "Back to your program",
    "Your answer has arrived. You can close this page; the program says how it goes on.",
)
PAGE_WRONG_LOGIN: Final = (
    HTTPStatus.BAD_REQUEST,
    "Not the answer that is waited for",
    "This page belongs to another sign-in, perhaps an older one. The program still waits.",
)
PAGE_NOT_FOUND: Final = (
    HTTPStatus.NOT_FOUND,
    "Nothing to see here",
    "A program on this computer waits here for the end of a sign-in, and for nothing else.",
)


def page(content: tuple[HTTPStatus, str, str]) -> bytes:
    """The whole HTTP response with a page that loads no resources and runs no scripts."""
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
