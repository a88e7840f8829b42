"""Sending a person to the authorization server, and receiving the callback (RFC 8252 §7.3).

The module also makes the pages that a browser gets from `LoopbackReceiver`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeVar
from urllib.parse import parse_qsl

from syncmcp._base.checks import check_callable, kind_of, program_failed
from syncmcp._base.terminal import ask_at_terminal, show_at_terminal
from syncmcp._base.text import redact
from syncmcp._concurrency.fair_lock import FairLock
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import wait
from syncmcp.auth.agreement import SignInRequest, not_agreed
from syncmcp.auth.steps import Redirect
from syncmcp.errors import AuthError, LoginRequired, RequestTimeout, UsageError

# Characters that have a meaning for shells and other programs that open browsers.
_UNSAFE_CHARACTERS: Final = frozenset(' \\<>"`^{|}')

_MOST_PARAMETERS: Final = 32
_LONGEST_ANSWER: Final = 16 * 1024

MOST_PROMPTS: Final = 10
"""The most prompts for one answer."""

_PROMPT: Final = "Paste the address (or Enter to see the instructions again): "
_NO_ANSWER: Final = "That does not answer the prompt."
_QUESTION: Final = "Sign in there? [y/N] "

# The terminal shows one prompt at a time: otherwise an answer could go to another prompt.
_terminal: Final = FairLock()

T = TypeVar("T")


class Waiting(Protocol):
    """A receiver's part of one login: a context manager that frees all resources at its end."""

    @property
    def redirect_uri(self) -> str:
        """The redirect URI of this login."""
        ...

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        """Send a person to `redirect.url`; return the parameters of the callback.

        The parameters contain the `state` of `redirect`, and a `code` or an `error`. The receiver
        checks nothing else.

        Args:
            redirect: The authorization request.
            deadline: The time until which to wait for the callback.

        Raises:
            LoginRequired: No person can be reached.
            RequestTimeout: The deadline passed.
        """
        ...

    def __enter__(self) -> Waiting: ...

    def __exit__(self, *_: object) -> None: ...


class Receiver(Protocol):
    """Asks people, sends them to authorization servers, and receives the callbacks."""

    def agree(self, request: SignInRequest, deadline: Deadline) -> bool:
        """Ask a person whether to sign in at an issuer.

        No client was registered there before, and no person was sent there. The method is called
        once for an issuer, and not for an issuer that the program agrees to.

        Args:
            request: The sign-in to agree to; `SignInRequest.text` is written for a person.
            deadline: The time until which to wait for the answer.

        Returns:
            Whether the person agrees.

        Raises:
            LoginRequired: No person can be asked.
            RequestTimeout: The deadline passed.
        """
        ...

    def start(self, registered: Sequence[str] = ()) -> Waiting:
        """Start a login, and determine its redirect URI.

        Args:
            registered: The redirect URIs that the client is registered with. One of them is reused
                if possible: some servers require the same port each time.

        Raises:
            LoginRequired: No callback can be received, for instance because the port is taken.
        """
        ...


def check_prompts(
    show: Callable[[str], object], ask: Callable[[str], str] | None
) -> Callable[[str], object]:
    """Return `show` in a form that raises `UsageError` if `show` fails.

    Raises:
        UsageError: One of the functions cannot be called with one text.
    """
    check_callable(show, "show", ("text",))
    if ask is not None:
        check_callable(ask, "ask", ("prompt",))
    return partial(_show_by, show)


def _show_by(show: Callable[[str], object], text: str) -> None:
    try:
        show(text)
    except Exception as error:
        raise program_failed("show", error) from error


class PasteReceiver:
    """Shows a URL to a person, who pastes the URL that the browser ends up at.

    Use it on computers without a browser. Nothing listens at the redirect URI: the browser shows an
    error, but its address bar contains the callback. After ten lines that are not an answer, the
    sign-in ends with `LoginRequired`. `show` and `ask` run on a daemon thread,
    ``syncmcp-redirect[prompt]``, which may outlive the login.

    Args:
        show: Shows a text to the person; by default `print`. Without `ask`, the prompt whether to
            sign in appears at the terminal instead.
        ask: Shows a prompt, and returns the line that the person enters. The default is `input`,
            which at a terminal ignores input until no line has come for half a second.
        redirect_uri: The redirect URI that the client is, or will be, registered with.

    Raises:
        UsageError: `show` or `ask` cannot be called with one text.
    """

    def __init__(
        self,
        show: Callable[[str], object] = print,
        ask: Callable[[str], str] = ask_at_terminal,
        *,
        redirect_uri: str = "http://127.0.0.1:51763/callback",
    ) -> None:
        self._show = check_prompts(show, ask)
        self._ask = ask
        self._redirect_uri = redirect_uri

    def agree(self, request: SignInRequest, deadline: Deadline) -> bool:
        """Ask the person, who enters ``y`` to agree.

        Raises:
            LoginRequired: The person cannot be asked, or entered ten lines that are neither a yes
                nor a no.
            RequestTimeout: The deadline passed.
        """
        return ask_for_agreement(self._show, self._ask, request, deadline)

    def start(self, registered: Sequence[str] = ()) -> Waiting:
        """Start a login with the redirect URI of the constructor."""
        return _PasteLogin(self._show, self._ask, self._redirect_uri)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(redirect_uri={self._redirect_uri!r})"


@dataclass(eq=False, repr=False)
class _PasteLogin:
    show: Callable[[str], object]
    ask: Callable[[str], str]
    redirect_uri: str
    prompt: ConsolePrompt[Mapping[str, str]] | None = None

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        """Prompt until the person pastes the callback of this login; see `ConsolePrompt.result`."""
        check_browser_url(redirect.url)
        ended = threading.Event()
        prompt = self.prompt = callback_prompt(self.show, self.ask, redirect, ended.set)
        prompt.start()
        if not wait(ended, deadline.remaining()):
            raise login_timed_out(deadline)
        answer = prompt.result()
        if answer is None:
            raise LoginRequired(
                "nobody pasted the response of the authorization server: "
                f"{prompt.failure or 'there is nobody to ask'}",
                delivery="not_sent",
            )
        return answer

    def __enter__(self) -> _PasteLogin:
        return self

    def __exit__(self, *_: object) -> None:
        if self.prompt is not None:
            self.prompt.stop()


@dataclass(eq=False, repr=False)
class ConsolePrompt(Generic[T]):
    """Prompts a person for an answer, on a thread of its own, as input cannot be interrupted.

    The prompt ends after `MOST_PROMPTS` lines that are not an answer. Without `ask`, it only shows
    the text: a `show` that opens a dialog may return when the person closes the dialog.

    Attributes:
        text: The text before the prompt, shown again after an empty line that is not an answer.
        read: Parses a line; returns `None` to prompt the person again, if the line is not an
            answer.
        ended: Called at the end, on the thread of the prompt.
        secret: A text that is removed from `failure`.
        failure: The reason why no answer can be entered; `None` before that.
    """

    show: Callable[[str], object]
    ask: Callable[[str], str] | None
    text: str
    prompt: str
    read: Callable[[str], T | None]
    ended: Callable[[], object]
    secret: str = ""
    failure: str | None = field(default=None, init=False)
    _answer: T | None = field(default=None, init=False)
    _error: UsageError | None = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)

    def start(self) -> None:
        """Start the thread, which calls `ended` at its end."""
        threading.Thread(target=self._run, name="syncmcp-redirect[prompt]", daemon=True).start()

    def stop(self) -> None:
        """Show no further prompt. The input for the current prompt is ignored."""
        self._stopped = True

    def result(self) -> T | None:
        """Return the parsed answer, or `None`; raise the error of a failed `show`."""
        if self._error is not None:
            raise self._error
        return self._answer

    def _run(self) -> None:
        try:
            self._answer = self._ask_until_valid()
        except (EOFError, KeyboardInterrupt):
            self.failure = "there was no input"
        except UsageError as error:
            self._error = error
        except Exception as error:  # of the user's functions
            self.failure = redact(f"{type(error).__name__}: {error}", [self.secret])
        finally:
            self.ended()

    def _ask_until_valid(self) -> T | None:
        text = self.text
        for _ in range(MOST_PROMPTS):
            self.show(text)
            if self.ask is None:
                return None
            line = "" if self._stopped else self.ask(self.prompt)
            if not isinstance(line, str):
                raise TypeError(f"it returned {kind_of(line)}, not a line of text")
            line = line.strip()
            if self._stopped:
                return None
            answer = self.read(line)
            if answer is not None:
                return answer
            text = _NO_ANSWER if line else self.text
        # Perhaps no person types, and `ask` returns the same line at once, each time.
        self.failure = f"none of the {MOST_PROMPTS} lines entered was an answer"
        return None


def callback_prompt(
    show: Callable[[str], object],
    ask: Callable[[str], str] | None,
    redirect: Redirect,
    ended: Callable[[], object],
) -> ConsolePrompt[Mapping[str, str]]:
    """Make a prompt for the URL that the browser ends up at; without `ask`, show only a URL."""
    return ConsolePrompt(
        show,
        ask,
        _instructions(redirect, paste=ask is not None),
        _PROMPT,
        lambda line: parse_callback(line, redirect.state),
        ended,
        redirect.state,
    )


def ask_for_agreement(
    show: Callable[[str], object],
    ask: Callable[[str], str],
    request: SignInRequest,
    deadline: Deadline,
) -> bool:
    """Prompt until the person answers yes or no; return whether they agree to the sign-in.

    With `ask_at_terminal`, the text is shown on the screen of the prompt, not by `show`: a person
    must not agree without having seen the text.

    Raises `LoginRequired` without any input, or after `MOST_PROMPTS` lines that are not an answer.
    """
    ended = threading.Event()
    shown = show_at_terminal if ask is ask_at_terminal else show
    prompt = ConsolePrompt(shown, ask, request.text, _QUESTION, _read_agreement, ended.set)
    with ExitStack() as held:
        if ask is ask_at_terminal:
            try:
                held.enter_context(_terminal.take(deadline, wait))
            except RequestTimeout:
                raise login_timed_out(deadline) from None
        held.callback(prompt.stop)
        prompt.start()
        if not wait(ended, deadline.remaining()):
            raise login_timed_out(deadline)
    agreed = prompt.result()
    if agreed is None:
        raise not_agreed(request, f"cannot ask anybody ({prompt.failure}) whether")
    return agreed


def _read_agreement(line: str) -> bool | None:
    """Return whether a line is a yes; `None` if neither yes nor no. An empty line is a no."""
    return {"y": True, "yes": True, "": False, "n": False, "no": False}.get(line.lower())


def parse_callback(text: str, state: str) -> Mapping[str, str] | None:
    """Return the parameters of a callback, from a URL or only the query of a URL.

    The result is `None` if this is not the callback of this login. The `state` is compared in
    constant time.
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


def _instructions(redirect: Redirect, *, paste: bool) -> str:
    """The text for a person who has to open a browser."""
    text = f"To sign in, open this address in a browser:\n\n{redirect.url}\n"
    if paste:
        text += (
            "\nThe browser goes to a page whose address begins with\n"
            f"{redirect.redirect_uri} and may not load. Copy its address from the address bar.\n"
        )
    return text


def check_browser_url(url: str) -> None:
    """Raise `AuthError` unless a URL is http(s), without characters that are invalid in URLs."""
    web = url.lower().startswith(("https://", "http://"))
    if not web or not url.isprintable() or not _UNSAFE_CHARACTERS.isdisjoint(url):
        raise AuthError(
            "the authorization request is not an address that a browser may open",
            delivery="not_sent",
        )


def login_timed_out(deadline: Deadline) -> RequestTimeout:
    """Return the error of a login that was not completed in time."""
    limit = deadline.seconds
    text = f"nobody signed in within {limit or 0.0:g} s (option login_timeout)"
    return RequestTimeout(text, kind="login", seconds=limit, delivery="not_sent")


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
    "Your answer has arrived. You can close this page and return to the program.",
)
PAGE_WRONG_LOGIN: Final = (
    HTTPStatus.BAD_REQUEST,
    "Not the expected answer",
    "This page belongs to another sign-in, perhaps an older one. The program is still waiting.",
)
PAGE_NOT_FOUND: Final = (
    HTTPStatus.NOT_FOUND,
    "Nothing to see here",
    "This address only receives the end of a sign-in for a program on this computer.",
)


def page(content: tuple[HTTPStatus, str, str]) -> bytes:
    """Return a whole HTTP response with a page that loads no resources and runs no scripts."""
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
