"""The web application of the pages, its web server, and its access control."""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from flask import (
    Blueprint,
    Flask,
    Response,
    abort,
    make_response,
    redirect,
    render_template,
    request,
    url_for,
)
from jinja2 import StrictUndefined
from markupsafe import Markup, escape
from werkzeug.exceptions import HTTPException
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from syncmcp._base.text import logger
from syncmcp.errors import UsageError
from syncmcp.ui import shorten, visible
from syncmcp.ui.browser.cards import FillCard, ReviewFormCard
from syncmcp.ui.browser.message import breakable, cause_of
from syncmcp.ui.browser.questions import (
    Card,
    ClosedQuestion,
    LiveDraft,
    PendingQuestions,
    duration,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _typeshed.wsgi import WSGIApplication
    from flask import Request
    from flask.typing import ResponseReturnValue

    from syncmcp.handlers.roots import Roots


# The limits, in bytes, of a submitted form, and of a posted token, which anybody can send.
_MAX_FORM_BYTES = 64 * 2**20
_MAX_ENTRY_BYTES = 1_000

# The page of a question warns during these last seconds before it expires.
_SOON = 60.0


def make_visible(value: Any) -> Any:
    """Make hidden characters visible in each value that Jinja inserts, before it is escaped."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value, lines=True)
    return value


def _file(name: str, kind: str) -> Response:
    # Not by Flask, which leaves the file open if the connection breaks.
    return Response(Path(__file__).with_name("static").joinpath(name).read_bytes(), mimetype=kind)


class _App(Flask):
    jinja_options = {"finalize": make_visible, "undefined": StrictUndefined}  # noqa: RUF012 - as in Flask


class Pages:
    """The pages as a Flask application. All methods but `__init__` run on web server threads.

    Args:
        questions: The questions to show.
        access: Decides which requests are accepted.
        roots: Returns the roots to manage, or `None`.
        page_viewed: Called with `False` when a page is loaded. When a page polls its state, it is
            called with whether the person can see the page: a browser lets a hidden page poll less
            often.
    """

    def __init__(
        self,
        questions: PendingQuestions,
        access: AccessControl,
        roots: Callable[[], Roots | None],
        page_viewed: Callable[[bool], object],
    ) -> None:
        self._questions = questions
        self._access = access
        self._roots = roots
        self._page_viewed = page_viewed
        self._csrf = secrets.token_urlsafe(24)
        self.app = self._make_app()

    def _make_app(self) -> Flask:
        app = _App(__name__, static_folder=None)
        app.debug = False  # even if FLASK_DEBUG is set
        app.config["MAX_CONTENT_LENGTH"] = app.config["MAX_FORM_MEMORY_SIZE"] = _MAX_FORM_BYTES
        app.add_template_filter(visible, "line")
        app.add_template_filter(shorten, "short")
        app.add_template_filter(breakable, "path")
        app.before_request(self._guard)
        app.after_request(self._access.add_headers)
        app.add_url_rule("/open/<token>", "open", self._open)
        app.add_url_rule("/open", "enter", self._enter, methods=["POST"])
        app.register_error_handler(HTTPException, self._error_page)
        blueprint = Blueprint("pages", __name__, url_prefix=f"/{self._access.path_prefix}")
        # Without the secret prefix, because pages that refuse access use it, too.
        app.add_url_rule("/page.css", "style", partial(_file, "page.css", "text/css"))
        blueprint.add_url_rule("/page.js", "script", partial(_file, "page.js", "text/javascript"))
        blueprint.add_url_rule("/", "index", self._index)
        blueprint.add_url_rule("/state", "state", self._state)
        blueprint.add_url_rule(
            "/questions/<key>", "question", self._question, methods=["GET", "POST"]
        )
        blueprint.add_url_rule(
            "/writing/<key>", "writing", self._draft_page, methods=["GET", "POST"]
        )
        blueprint.add_url_rule("/directories", "roots", self._roots_page, methods=["GET", "POST"])
        app.register_blueprint(blueprint)
        return app

    def _guard(self) -> ResponseReturnValue | None:
        enters = request.endpoint == "enter"
        public = request.endpoint in ("enter", "open", "style")
        reason = self._access.refusal(request, from_file=enters)
        if enters and not 0 < (request.content_length or 0) <= _MAX_ENTRY_BYTES:
            reason = "This request does not come from the program's file."
        if reason is None and not public and not self._access.has_cookie(request):
            reason = (
                "Only the browser that opened the program's link has access: use that one, "
                "or open a new link of the program."
            )
        if reason is not None:
            abort(403, reason)
        return None

    @staticmethod
    def _error_page(error: HTTPException) -> Response:
        title, reason, home = "This was refused", error.description, ""
        if error.code == 404:  # only for a browser with access
            title, reason = "Page not found", "Its question may have ended long ago."
            home = url_for("pages.index")
        page = render_template("refused.html", title=title, reason=reason, home=home)
        return Response(page, error.code, dict(error.get_headers()))

    def _open(self, token: str) -> ResponseReturnValue:
        """Handle the link that the program shows."""
        # A prefetch or a preview by the browser must not consume the link.
        looks = request.method == "HEAD" or "prefetch" in request.headers.get("Sec-Purpose", "")
        if looks or not self._access.redeem(token):
            self._refuse_link()
        return self._let_in(redirect(self._first_page(), 303))

    def _enter(self) -> ResponseReturnValue:
        """Handle the token of the link, which the program's file posts."""
        if not self._access.redeem(request.form.get("token", "")):
            self._refuse_link()
        # No redirect: browsers send no `SameSite=Strict` cookie in a navigation from a file.
        return self._let_in(render_template("entered.html", target=self._first_page()))

    @staticmethod
    def _refuse_link() -> NoReturn:
        words = (
            "This link has been used or is invalid. If you did not use it, somebody else "
            "has access to these pages: end the program. Otherwise the program can show you a"
            " new link."
        )
        abort(403, words)

    def _first_page(self) -> str:
        waiting = self._questions.waiting()
        return self._url_of(waiting[0]) if len(waiting) == 1 else url_for("pages.index")

    def _let_in(self, page: ResponseReturnValue) -> Response:
        self._page_viewed(False)
        response: Response = make_response(page)
        self._access.set_cookie(response)
        return response

    def _index(self) -> ResponseReturnValue:
        return self._render("index.html", heading="Questions for you")

    def _question(self, key: str) -> ResponseReturnValue:
        card = self._questions.card(key)
        if card is None or card.state != "waiting":
            closed = self._find_closed(key)
            return abort(404) if closed is None else self._closed_page(key, closed)
        if request.method == "GET":
            return self._question_page(key, card, {})
        self._check_csrf(card.csrf)
        problems = card.submit(request.form.get("action", ""), request.form)
        if problems:
            return self._question_page(key, card, problems), 422
        waiting = [] if card.goes_on else self._questions.waiting()
        if not waiting:
            return redirect(url_for("pages.question", key=key), 303)
        return redirect(url_for("pages.question", key=waiting[0].id, after=key), 303)

    def _question_page(self, key: str, card: Card[Any], problems: Mapping[str, str]) -> str:
        answers = request.form if request.method == "POST" else None
        inputs = card.inputs(answers) if isinstance(card, (FillCard, ReviewFormCard)) else []
        left = card.time_left()
        return self._render(
            card.template,
            page=key,
            state=card.page_state,
            heading=f"{card.title} · {card.server.name}",
            card=card,
            inputs=inputs,
            problems=problems,
            decided=self._find_closed(request.args.get("after", "")),
            cause=cause_of(card.question),
            left=duration(left),
            soon=is_soon(left),
        )

    def _find_closed(self, key: str) -> ClosedQuestion | None:
        """A question that is closed, or is just being closed."""
        card = self._questions.card(key)
        if card is None:
            return self._questions.closed(key)
        return None if card.state == "waiting" else card.to_closed()

    def _closed_page(self, key: str, closed: ClosedQuestion) -> ResponseReturnValue:
        visit = closed.visit
        if request.method == "POST" and visit is not None:
            self._check_csrf(closed.csrf)
            done = request.form.get("action") == "done"
            if not done and closed.token is not None:
                closed.token.cancel("the person gave up")
            visit.settle(done=done)
        if request.method == "POST":
            return redirect(url_for("pages.question", key=key), 303)
        # The URL was checked when the card was made; `visible` must not change it.
        href = Markup(escape(closed.url))  # noqa: S704 - escaped right here
        state = closed_state(closed)
        return self._render(
            "over.html", page=key, state=state, heading=closed.title, closed=closed, href=href
        )

    def _draft_page(self, key: str) -> ResponseReturnValue:
        draft = self._questions.draft(key)
        if draft is None:
            abort(404)
        if request.method == "POST":
            self._check_csrf(draft.csrf)
            draft.cancel()
            return redirect(url_for("pages.writing", key=key), 303)
        return self._render(
            "writing.html",
            page=key,
            state="over" if draft.finished else "writing",
            heading=draft.title,
            draft=draft,
            cause=draft.cause,
            progress=draft.progress,
        )

    def _roots_page(self) -> ResponseReturnValue:
        roots = self._roots()
        if roots is None:
            abort(404)
        problems: dict[str, str] = {}
        if request.method == "POST":
            self._check_csrf(self._csrf)
            try:
                if request.form.get("action") == "remove":
                    roots.remove(request.form.get("uri", ""))
                else:
                    roots.add(request.form.get("path", ""), request.form.get("name") or None)
            except UsageError as error:
                problems["path"] = str(error)
            else:
                return redirect(url_for("pages.roots"), 303)
        page = self._render(
            "roots.html",
            heading="Directories",
            roots=roots.list(),
            csrf=self._csrf,
            problems=problems,
        )
        return page, (422 if problems else 200)

    def _state(self) -> ResponseReturnValue:
        """Return the state of a page that polls, as JSON."""
        self._page_viewed(request.args.get("visible") == "yes")
        key = request.args.get("page", "")
        news: dict[str, Any] = {"state": "", "left": "", "soon": False, "next": None}
        if (card := self._questions.card(key)) is not None and card.state == "waiting":
            left = card.time_left()
            news |= {"state": card.page_state, "left": duration(left), "soon": is_soon(left)}
        elif (draft := self._questions.draft(key)) is not None:
            news |= {
                "state": "over" if draft.finished else "writing",
                "text": visible(draft.tail, lines=True),
                "progress": draft.progress,
                "next": self._next_url(key, draft),
            }
        elif (closed := self._find_closed(key)) is not None:
            news |= {"state": closed_state(closed), "next": self._next_url(key, closed)}
        return news | {"waiting": self._queue(key)}

    def _next_url(self, key: str, of: ClosedQuestion | LiveDraft) -> str | None:
        then = self._questions.find_by_token(of.token)
        return None if then is None or then.id == key else self._url_of(then)

    def _queue(self, key: str) -> list[dict[str, str]]:
        """Return the open questions except that of this page, for the list on the page."""
        return [
            {
                "url": self._url_of(one),
                "title": one.title,
                "server": visible(one.server_name),
            }
            for one in self._questions.open_items()
            if one.id != key
        ]

    @staticmethod
    def _url_of(of: Card[Any] | LiveDraft) -> str:
        page = "pages.writing" if isinstance(of, LiveDraft) else "pages.question"
        return url_for(page, key=of.id)

    def _render(self, template: str, *, heading: str, **values: Any) -> str:
        self._page_viewed(False)
        sent = request.form if request.method == "POST" else {}

        def value(name: str, otherwise: object) -> Markup:
            """The value of a field: as the person submitted it, or else its initial value."""
            return escape(sent[name] if name in sent else make_visible(otherwise))

        key = values.setdefault("page", "")
        values.setdefault("state", "")
        return render_template(
            template,
            heading=heading,
            waiting=self._queue(key),
            queue_title="Also waiting for you" if key else "Waiting for you",
            has_roots=self._roots() is not None,
            code=self._access.code,
            program=program_name(),
            process=os.getpid(),
            value=value,
            **values,
        )

    @staticmethod
    def _check_csrf(csrf: str) -> None:
        """Reject a form that was not submitted from this page."""
        if not hmac.compare_digest(request.form.get("csrf", "").encode(), csrf.encode()):
            abort(403, "This form does not belong to the page as it is now: reload the page.")


def closed_state(closed: ClosedQuestion) -> str:
    """The state of a closed question, by which a page notices changes."""
    if closed.visit is None:
        return closed.state
    if not closed.visit.settled:
        return "visiting"
    return "visited" if closed.visit.done else "given-up"


def program_name() -> str:
    """The name of this program, as it was started."""
    file = Path(sys.argv[0] if sys.argv else "")
    name = file.parent.name if file.name == "__main__.py" else file.name
    return "Python" if name in ("", "-", "-c", "-m") else name


def is_soon(left: float | None) -> bool:
    """Return whether a question is about to expire, so that its page warns."""
    return left is not None and left < _SOON


# The web server of the pages: on the loopback interface, on daemon threads.


_log = logger("syncmcp.ui.browser")

# How often, in seconds, the server checks whether it is to stop.
_STOP_POLL_SECONDS = 0.1

# The most connections at one time. Each has a thread and a descriptor, and every user of the
# computer can open some.
_MOST_CONNECTIONS = 64


class PageServer(ThreadedWSGIServer):
    """Serves one application on a port that the operating system chooses."""

    # On Windows, another user could listen on the same port otherwise.
    allow_reuse_address = False

    def __init__(self) -> None:
        # Guards the open connections; held to add or remove one.
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__("127.0.0.1", 0, _no_pages_yet, _Handler)
        self._thread = threading.Thread(
            target=self.serve_forever,
            args=(_STOP_POLL_SECONDS,),
            name="syncmcp-browser",
            daemon=True,
        )

    def start(self, pages: WSGIApplication) -> None:
        """Start to serve `pages`."""
        self.app = pages
        self._thread.start()

    def stop(self) -> None:
        """Stop, and shut down the connections that a browser keeps open."""
        self.shutdown()
        self._thread.join()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # already closed by the browser
                continue

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own; close it if there are too many."""
        with self._lock:
            if served := len(self._open) < _MOST_CONNECTIONS:
                self._open.add(request)
        if served:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Unregister a connection, and close it."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def log(self, type: str, message: str, *args: Any) -> None:
        """Log to the logger of the library."""
        _log.log(logging.ERROR if type == "error" else logging.DEBUG, message, *args)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of a connection."""
        _log.exception("a connection of the browser failed")


class _Handler(WSGIRequestHandler):
    # The timeout, in seconds, for a connection on which the browser sends nothing.
    timeout = 30.0
    protocol_version = "HTTP/1.0"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Do not log single requests: their URLs hold a token."""

    def version_string(self) -> str:
        return "syncmcp"


def _no_pages_yet(environ: Any, start_response: Any) -> list[bytes]:
    start_response("503 Service Unavailable", [])
    return []


# Access control: only the browser that opened the link, and only requests from our own pages.
#
# Other programs and users of this computer can reach the port, and every web page that the person
# visits can send requests to it. So a request must have our `Host` header (against DNS rebinding),
# must not be cross-site or from another port, and must carry a cookie, which is issued once, for a
# link with an unguessable token.


COOKIE: Final = "syncmcp"

# The characters of the code: none that looks like another one.
_CODE_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class AccessControl:
    """Accepts or rejects requests, by `Host`, origin and cookie.

    Args:
        port: The port of the web server.
        entered: Called when the token of the link was used.
        reused: Called when a token is presented that was used before. Such a token is refused.

    Attributes:
        code: Six characters on every page, by which a person can tell the pages from fake ones.
    """

    def __init__(
        self, port: int, entered: Callable[[], object], reused: Callable[[], object]
    ) -> None:
        self._entered, self._reused = entered, reused
        letters = "".join(secrets.choice(_CODE_LETTERS) for _ in range(6))
        self.code = f"{letters[:3]}-{letters[3:]}"
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self.path_prefix = secrets.token_urlsafe(9)
        """The first path segment of all pages; it limits the cookie, because ports do not."""
        self._cookie = secrets.token_urlsafe(32)
        # Guards the token of the link, and those that were used.
        self._lock = threading.Lock()
        self._token = secrets.token_urlsafe(32)
        self._used = set[str]()

    @property
    def address(self) -> str:
        """A link that opens the pages once; then the token is replaced."""
        return f"{self.door}/{self.token}"

    @property
    def door(self) -> str:
        """The address that accepts the token."""
        return f"http://{self._hosts[0]}/open"

    @property
    def token(self) -> str:
        """The token of the link."""
        with self._lock:
            return self._token

    def refusal(self, request: Request, *, from_file: bool) -> str | None:
        """Return the reason to reject a request by its `Host` and origin; `None` to accept it.

        Args:
            request: The request.
            from_file: Whether the program's file sends the request, which then has no origin.
        """
        host = request.headers.get("Host", "")
        if host not in self._hosts:
            return "This server answers only at its own address."
        if from_file:
            return None
        site = request.headers.get("Sec-Fetch-Site")
        # "none": the person typed the address, or another program opened it.
        if site not in (None, "same-origin", "none"):
            return "This page cannot be opened from another one; copy the link into a new tab."
        if request.method in ("GET", "HEAD"):
            return None
        # Under our Referrer-Policy a browser may send `Origin: null` with our own forms.
        origin = request.headers.get("Origin", "null")
        if origin not in ("null", f"http://{host}") or (origin == "null" and site != "same-origin"):
            return "This was not sent from a page of this server."
        return None

    def has_cookie(self, request: Request) -> bool:
        """Return whether a request carries the cookie."""
        sent = request.cookies.get(COOKIE, "")
        return hmac.compare_digest(sent.encode(), self._cookie.encode())

    def redeem(self, token: str) -> bool:
        """Consume the token of the link; return whether `token` is that token."""
        with self._lock:
            used = token in self._used
            valid = hmac.compare_digest(token.encode(), self._token.encode())
            if valid:
                self._used.add(token)
                self._token = secrets.token_urlsafe(32)
        if valid:
            self._entered()
        elif used:
            self._reused()
        return valid

    def set_cookie(self, response: Response) -> None:
        """Issue the cookie, which the browser deletes when it is closed."""
        response.set_cookie(
            COOKIE, self._cookie, path=f"/{self.path_prefix}/", httponly=True, samesite="Strict"
        )

    @staticmethod
    def add_headers(response: Response) -> Response:
        """Set the security headers of a page."""
        response.headers.update(_HEADERS)
        return response
