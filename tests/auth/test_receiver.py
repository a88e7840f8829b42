"""Receivers of redirects: a listener on this computer, or a pasted address."""

from __future__ import annotations

import errno
import http.client
import re
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
import webbrowser
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from syncmcp.auth import Deadline, LoopbackReceiver, PasteReceiver, Receiver, loopback
from syncmcp.auth.receiver import MOST_PROMPTS
from syncmcp.auth.steps import Redirect
from syncmcp.errors import AuthError, LoginRequired, RequestTimeout, UsageError
from tests.support.pages import address_behind, file_of
from tests.support.parts import Exchange, aborted, was_aborted
from tests.support.stage import elsewhere

WAIT = 20.0
STATE = "canary-state-77ab1c"
PLACE = "https://as.example.com/authorize?client_id=x&state=" + STATE
GOOD = {"code": "a b+c", "state": STATE, "iss": "https://as.example.com/"}


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tests independent of the machine's screen, browser and terminal."""
    for name in ("BROWSER", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(webbrowser, "open", nobody)


@pytest.fixture(autouse=True)
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's download folder."""
    folder = tmp_path / "Downloads"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_DOWNLOAD_DIR", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


def nobody(url: str) -> bool:
    raise AssertionError("no browser was wanted")


class Login:
    """A login on another thread, in an exchange."""

    def __init__(self, receiver: Receiver, url: str = PLACE, seconds: float = WAIT) -> None:
        self.exchange = Exchange()
        started: Queue[str] = Queue()

        def run() -> Mapping[str, str]:
            with self.exchange, receiver.start() as waiting:
                started.put(waiting.redirect_uri)
                redirect = Redirect(url, waiting.redirect_uri, STATE)
                return waiting.receive(redirect, Deadline(seconds))

        self._outcome = elsewhere(run)
        self.redirect_uri = started.get(timeout=WAIT)
        self.port = urlsplit(self.redirect_uri).port or 0

    def join(self) -> Mapping[str, str] | BaseException:
        return self._outcome.exception(WAIT) or self._outcome.result()

    def visit(
        self, target: str, method: str = "GET", **headers: str
    ) -> tuple[int, str, Mapping[str, str]]:
        """Send a request as a browser would; return status, body and headers."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)) as browser:
            browser.request(method, target, headers=headers)
            response = browser.getresponse()
            return response.status, response.read().decode(), dict(response.getheaders())

    def come_back(self, **parameters: str) -> tuple[int, str, Mapping[str, str]]:
        return self.visit("/callback?" + urlencode(parameters or GOOD))

    def ends_well(self) -> None:
        """Complete the login: the person comes back."""
        assert self.come_back()[0] == 200
        assert self.join() == GOOD


class Shown(Queue[str]):
    """The texts that a person was shown, as a queue."""

    __call__ = Queue.put

    def next(self) -> str:
        return self.get(timeout=WAIT)


def listening(**options: Any) -> LoopbackReceiver:
    given: dict[str, Any] = {"open_browser": False, "show": Shown(), **options}
    return LoopbackReceiver(**given)


@contextmanager
def visitors(login: Login, count: int) -> Iterator[list[socket.socket]]:
    """Open connections that send nothing."""
    with ExitStack() as stack:
        place = ("127.0.0.1", login.port)
        connect = partial(socket.create_connection, place, WAIT)
        yield [stack.enter_context(connect()) for _ in range(count)]


def received(visitor: socket.socket) -> bytes:
    """Return the bytes that arrive before the connection ends."""
    try:
        return visitor.recv(65536)
    except ConnectionError:
        return b""


# --- the listener


@pytest.mark.requirement("REG-10")
def test_the_answer_is_what_the_browser_brings_and_the_page_claims_and_needs_nothing() -> None:
    login = Login(listening())
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/callback", login.redirect_uri)
    status, page, headers = login.come_back()
    assert (status, login.join()) == (200, GOOD)
    assert "You can close this page" in page
    assert not re.search(r"success|you are signed in|welcome|done", page, re.IGNORECASE)
    policy = headers["Content-Security-Policy"]
    (style,) = re.findall(r"<style>(.*)</style>", page)
    assert "default-src 'none'" in policy
    assert f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" in policy
    assert "prefers-color-scheme:dark" in style
    assert not re.search(r"script|(src|href|url)\b", page)
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"


def test_an_error_of_the_server_is_an_answer_that_the_page_does_not_show() -> None:
    login = Login(listening())
    answer = {"error": "access_denied", "error_description": "<b>evil</b>", "state": STATE}
    status, page, _ = login.come_back(**answer)
    assert (status, login.join()) == (200, answer)
    assert not re.search("evil|denied", page)


QUERY = urlencode(GOOD)


@pytest.mark.requirement("FLW-10")
def test_what_is_not_the_answer_changes_nothing() -> None:
    login = Login(listening())
    rows = [
        *((404, target) for target in ("/favicon.ico", "/", "/callback/", f"/Callback?{QUERY}")),
        *(
            (404, f"{origin}/callback?{QUERY}")
            for origin in ("//evil.example", "http://evil.example")
        ),
        *((400, f"/callback{query}") for query in ("", "?code=x", f"?state={STATE}")),
        *(
            (400, "/callback?" + urlencode({**GOOD, **changed}))
            for changed in (
                *({"state": state} for state in (STATE[:-1], f"{STATE}x", "é", "")),
                {f"x{number}": "" for number in range(40)},
                {"x": "x" * 20_000},
            )
        ),
        (400, f"/callback?state=x&code=y&state={STATE}"),
        (400, f"/callback?code=x&code=y&state={STATE}"),
    ]
    for status, target in rows:
        found, page, _ = login.visit(target)
        assert (found, "arrived" in page) == (status, False), target
    login.ends_well()


def test_only_a_get_of_this_address_brings_an_answer() -> None:
    login = Login(listening())
    here = f"127.0.0.1:{login.port}"
    # The host name of a web page may resolve to this computer (DNS rebinding).
    names = ("evil.example", f"evil.example:{login.port}", "127.0.0.1", f"localhost:{login.port}")
    others = [(method, here) for method in ("POST", "HEAD", "OPTIONS", "PUT")]
    for method, host in [*others, *(("GET", name) for name in names)]:
        assert login.visit(f"/callback?{QUERY}", method, Host=host)[0] == 404, (method, host)
    login.ends_well()


def test_nonsense_is_turned_away() -> None:
    login = Login(listening())
    host = f"Host: 127.0.0.1:{login.port}\r\n"
    get = f"GET /callback?{QUERY} HTTP/1.1\r\n"
    for head, answered in (
        (f"{get}\r\n".encode(), True),
        (f"{get}{host}{host}\r\n".encode(), True),
        (b"\r\n\r\n", False),
        (b"\xff\xfe\r\n\r\n", True),
        (b"GET\r\n\r\n", True),
        (b"x" * 70_000, False),
    ):
        with visitors(login, 1) as (visitor,):
            visitor.sendall(head)
            answer = received(visitor)
        assert answer[:13] == (b"HTTP/1.1 404 " if answered else b""), head[:200]
    login.ends_well()


def test_a_head_may_come_in_pieces_and_who_says_nothing_is_in_nobodys_way() -> None:
    login = Login(listening())
    message = f"GET /callback?{QUERY} HTTP/1.1\r\nHost: 127.0.0.1:{login.port}\r\n\r\n"
    with visitors(login, 41) as (*_, visitor):
        for piece in (message[:20], message[20:-1], message[-1:]):
            visitor.sendall(piece.encode())
        assert visitor.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert login.join() == GOOD


def test_exactly_one_answer_is_taken() -> None:
    login = Login(listening())
    message = "GET /callback?code={}&state={} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n"
    with visitors(login, 2) as both:
        for code, visitor in enumerate(both):
            visitor.sendall(message.format(code, STATE, login.port).encode())
        outcome = login.join()
        pages = [received(visitor) for visitor in both]
    assert isinstance(outcome, dict)
    taken = int(outcome["code"])
    assert [b"arrived" in page for page in pages] == [taken == 0, taken == 1]


# --- its address


def test_a_port_can_be_chosen_and_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(LoginRequired, match=f"port {port}.*in use"):
            listening(port=port).start()
    with listening(port=port).start() as waiting:
        assert waiting.redirect_uri == f"http://127.0.0.1:{port}/callback"
    uri = f"http://localhost:{port}/signed/in"
    with LoopbackReceiver.at(uri).start() as waiting:
        assert waiting.redirect_uri == uri


def test_a_registered_port_is_used_again_if_it_is_free() -> None:
    with listening().start() as waiting:
        before = waiting.redirect_uri
    others = (
        "https://127.0.0.1:1/callback",
        "http://127.0.0.1:1/other",
        "http://[::1",
        "http://x:y",
    )
    with listening().start([*others, before]) as waiting, listening().start([before]) as second:
        assert waiting.redirect_uri == before != second.redirect_uri


def test_localhost_is_both_addresses() -> None:
    login = Login(listening(host="localhost"))
    assert login.redirect_uri == f"http://localhost:{login.port}/callback"
    reached = 0
    for address in ("127.0.0.1", "::1"):
        with suppress(OSError):
            socket.create_connection((address, login.port), WAIT).close()
            reached += 1
    login.visit(f"/callback?{QUERY}", Host=f"localhost:{login.port}")
    assert login.join() == GOOD
    assert reached == 2 or not socket.has_ipv6


@pytest.mark.requirement("REG-10")
@pytest.mark.parametrize(
    ("make", "given"),
    [
        *((LoopbackReceiver, given) for given in ({"host": "0.0.0.0"}, {"port": 65_536})),
        *((LoopbackReceiver, {"path": path}) for path in ("callback", "/callback?x=1")),
        *(
            (LoopbackReceiver.at, {"redirect_uri": uri})
            for uri in (
                *("https://127.0.0.1:8000/callback", "http://example.com/callback"),
                *("http://127.0.0.1:x/callback", "http://user@127.0.0.1:8000/callback"),
            )
        ),
    ],
    ids=str,
)
def test_nobody_else_s_computer_is_listened_on(
    make: Callable[..., Receiver], given: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        make(**given)


# --- the browser


@pytest.mark.requirement("SEC-04")
def test_the_browser_gets_the_address_unchanged_and_no_shell_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: Queue[list[str]] = Queue()

    class Process:
        def __init__(self, command: list[str], **options: Any) -> None:
            assert not options.get("shell")
            opened.put(command)

        def poll(self) -> None:
            return None

    monkeypatch.setattr("subprocess.Popen", Process)
    monkeypatch.setattr(webbrowser, "open", webbrowser.BackgroundBrowser(["browser", "%s"]).open)
    url = PLACE + "&x='$(reboot);%60reboot%60'&amp=1&lt;"
    login = Login(listening(open_browser=True), url)
    command, page = opened.get(timeout=WAIT)
    assert command == "browser"
    assert address_behind(page) == url
    login.ends_well()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """The addresses with which a browser would be started."""
    pages = Shown()
    monkeypatch.setattr(webbrowser, "open", lambda url: not pages(url))
    return pages


def test_no_command_line_and_nobody_else_s_file_has_the_address(
    downloads: Path, opened: Shown
) -> None:
    shown = Shown()
    login = Login(listening(open_browser=True, show=shown))
    page = opened.next()
    file = file_of(page)
    assert STATE not in page
    assert address_behind(page) == PLACE
    assert [stat.S_IMODE(one.stat().st_mode) for one in (file, file.parent)] == [0o600, 0o700]
    login.ends_well()
    assert list(downloads.iterdir()) == []
    assert shown.empty()


def test_a_file_that_is_ready_after_the_login_is_removed_and_not_opened(
    downloads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, made = threading.Event(), threading.Event(), Queue[str]()
    make = tempfile.mkdtemp

    def slow(*args: Any, **options: Any) -> str:
        begun.set()
        assert go_on.wait(WAIT)
        folder: str = make(*args, **options)
        made.put(folder)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", slow)
    login = Login(listening(open_browser=True))
    assert begun.wait(WAIT)
    (thread,) = (one for one in threading.enumerate() if one.name == "syncmcp-redirect[browser]")
    assert thread.daemon
    login.ends_well()  # the login does not wait for the browser
    go_on.set()
    thread.join(WAIT)
    assert made.qsize() == 1
    assert list(downloads.iterdir()) == []


def test_a_command_that_may_open_pages_elsewhere_is_not_relied_on(
    opened: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER", "forwards-to-another-computer")
    shown = Shown()
    login = Login(listening(open_browser=True, show=shown))
    assert PLACE in shown.next()
    assert opened.next().startswith("file:")
    login.ends_well()


@pytest.mark.requirement("SEC-03", "SEC-05")
@pytest.mark.parametrize(
    "url",
    [
        *("javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", ""),
        "-https://as.example.com",
        *(f"https://as.example.com/{end}" for end in (" --flag", '"x', "\n", "`reboot`", "\u202e")),
    ],
)
def test_nothing_but_a_web_address_is_opened_or_shown(url: str) -> None:
    shown = Shown()
    for receiver in (
        listening(open_browser=True, show=shown),
        listening(show=shown, ask=Person()),
        PasteReceiver(shown, Person()),
    ):
        error = Login(receiver, url).join()
        assert isinstance(error, AuthError)
        assert "address" in str(error)
    assert shown.empty()


def no_folder(downloads: Path, patch: pytest.MonkeyPatch) -> None:
    downloads.rmdir()
    (downloads.parent / "state").write_text("no folder")


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


def no_screen(downloads: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "platform", "linux")
    patch.delenv("DISPLAY")


def with_opening(function: Callable[..., Any]) -> Callable[[Path, pytest.MonkeyPatch], None]:
    return lambda downloads, patch: patch.setattr(webbrowser, "open", function)


@pytest.mark.parametrize(
    "without",
    [
        *(no_folder, no_screen, with_opening(lambda url: False)),
        with_opening(raising(IndexError("no command"))),
    ],
    ids=["no folder", "no screen", "no browser", "IndexError"],
)
def test_where_no_browser_opens_the_address_is_shown(
    without: Callable[[Path, pytest.MonkeyPatch], None],
    downloads: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(downloads, monkeypatch)
    shown = Shown()
    login = Login(listening(open_browser=True, show=shown))
    assert f"\n{PLACE}\n" in shown.next()
    login.ends_well()


def test_the_address_goes_to_stderr_unless_somebody_shows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    login = Login(LoopbackReceiver(open_browser=False))
    login.ends_well()
    output = capsys.readouterr()
    assert PLACE in output.err
    assert output.out == ""


# --- how a login ends


def test_a_port_that_has_no_descriptor_for_a_visitor_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: Queue[float] = Queue()

    class Listener(socket.socket):
        def accept(self) -> Any:
            if pauses.empty():
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    def listen(addresses: Any, port: int) -> list[socket.socket]:
        listener = Listener()
        listener.bind((addresses[0], port))
        listener.listen()
        return [listener]

    monkeypatch.setattr(loopback, "_listen", listen)
    monkeypatch.setattr(loopback, "wait", lambda event, seconds: pauses.put(seconds), raising=False)
    login = Login(listening())
    login.ends_well()
    assert pauses.qsize() == 1


def test_a_cut_ends_the_login_at_once_and_a_later_one_opens_no_browser() -> None:
    shown = Shown()
    login = Login(listening(show=shown))
    shown.next()
    begun = time.monotonic()
    login.exchange.abort()
    assert was_aborted(login.join())
    assert time.monotonic() - begun < WAIT / 2
    receiver = listening(open_browser=True)
    with login.exchange, receiver.start() as waiting, aborted():
        waiting.receive(Redirect(PLACE, waiting.redirect_uri, STATE), Deadline(WAIT))


@pytest.mark.parametrize("ask", [None, lambda prompt: "nonsense"], ids=["shown", "prompted"])
@pytest.mark.parametrize("seconds", [WAIT, 0.1], ids=["in the browser", "by its limit"])
def test_a_dialog_that_stays_open_holds_up_no_login(seconds: float, ask: Any) -> None:
    shown, closed = Shown(), threading.Event()

    def show(text: str) -> None:
        shown(text)
        assert closed.wait(WAIT)

    login = Login(listening(show=show, ask=ask), seconds=seconds)
    assert PLACE in shown.next()
    try:
        if seconds == WAIT:
            login.ends_well()
        else:
            assert isinstance(login.join(), RequestTimeout)
    finally:
        closed.set()


def test_ctrl_c_leaves_nothing_open() -> None:
    def interrupt(text: str) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with listening(show=interrupt).start() as waiting, pytest.raises(KeyboardInterrupt):
        waiting.receive(Redirect(PLACE, waiting.redirect_uri, STATE), Deadline(WAIT))


# --- pasted addresses


class Person:
    """A person who pastes the given lines."""

    def __init__(self, *lines: str) -> None:
        self.asked = Shown()
        self._lines = Shown()
        for line in lines:
            self.paste(line)

    def __call__(self, prompt: str) -> str:
        self.asked(prompt)
        line = self._lines.next()
        if line == "EOF":
            raise EOFError
        return line

    def paste(self, line: str) -> None:
        self._lines(line)


@pytest.mark.requirement("FLW-10")
@pytest.mark.parametrize(
    "line",
    [
        f"http://127.0.0.1:51763/callback?{QUERY}",
        f"  http://127.0.0.1:51763/callback?{QUERY}#_=_\n",
        f"?{QUERY}",
        QUERY,
    ],
)
def test_a_pasted_address_is_an_answer(line: str) -> None:
    shown = Shown()
    login = Login(PasteReceiver(shown, Person(line.replace(STATE, "theirs"), line)))
    assert login.join() == GOOD
    text = shown.next()
    assert f"\n{PLACE}\n" in text
    assert login.redirect_uri in text
    assert "not answer the prompt" in shown.next()


@pytest.mark.requirement("FLW-10")
@pytest.mark.parametrize(
    "wrong",
    ["", "code", "?code=x", f"?code=x&state={STATE}x", "code=x&state=\udc80", "x" * 20_000],
)
def test_what_is_no_answer_is_asked_for_again(wrong: str) -> None:
    shown = Shown()
    assert Login(PasteReceiver(shown, Person(wrong, QUERY))).join() == GOOD
    shown.next()
    assert ("not answer the prompt" in shown.next()) == bool(wrong)


def test_a_paste_is_given_up_after_some_lines_that_are_no_answer() -> None:
    line = "?code=x&state=another"
    shown, person = Shown(), Person(*[line] * MOST_PROMPTS)
    error = Login(PasteReceiver(shown, person)).join()
    assert isinstance(error, LoginRequired)
    assert f"none of the {MOST_PROMPTS} lines entered was an answer" in str(error)
    assert STATE not in str(error)
    assert (person.asked.qsize(), shown.qsize()) == (MOST_PROMPTS, MOST_PROMPTS)
    # The last line may be the answer.
    person = Person(*[line] * (MOST_PROMPTS - 1), QUERY)
    assert Login(PasteReceiver(Shown(), person)).join() == GOOD


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (Person("EOF"), "there was no input"),
        (raising(RuntimeError(f"failed for {STATE}")), "RuntimeError: failed for ***"),
        (lambda _: True, "TypeError: it returned bool, not a line of text"),
    ],
)
def test_a_prompt_that_fails_ends_the_login_without_its_secrets(ask: Any, words: str) -> None:
    error = Login(PasteReceiver(Shown(), ask)).join()
    assert isinstance(error, LoginRequired)
    assert words in str(error)


def test_a_prompt_is_left_behind_on_a_daemon_thread_when_the_call_is_cut() -> None:
    person = Person()
    login = Login(PasteReceiver(Shown(), person))
    person.asked.next()
    (thread,) = [one for one in threading.enumerate() if one.name == "syncmcp-redirect[prompt]"]
    assert thread.daemon
    login.exchange.abort()
    assert was_aborted(login.join())
    person.paste(QUERY)
    thread.join(WAIT)
    assert person.asked.empty()


def test_without_a_browser_the_listener_takes_what_is_pasted_too() -> None:
    shown = Shown()
    login = Login(listening(show=shown, ask=Person("nonsense", f"{QUERY}")))
    assert login.join() == GOOD
    assert "Copy its address" in shown.next()


@pytest.mark.parametrize("lines", [["EOF"], ["y"] * MOST_PROMPTS], ids=["nobody", "no address"])
def test_a_listener_waits_on_when_nobody_pastes_an_answer(lines: list[str]) -> None:
    person = Person(*lines)
    login = Login(listening(ask=person))
    for _ in lines:
        person.asked.next()
    login.ends_well()
    assert person.asked.empty()
