"""Mutants of what signing in touches: addresses, stores, browsers."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urljoin

from syncmcp._http.connecting import look_up
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.contract.mutant_switches.change import Function

GUARD = "syncmcp._http.url_guard:UrlGuard"


def _agree_to_plain_http(original: Function) -> Function:
    def secured(self: Any, url: str) -> str:
        return f"https:{url[5:]}" if url[:5].lower() == "http:" else url

    return secured


def _ask_the_system(original: Function) -> Function:
    """What was checked is not what is connected to."""

    def resolve(host: str, port: int, exchange: Any, find: Any = look_up) -> list[Any]:
        addresses: list[Any] = original(host, port, exchange, look_up)
        return addresses

    return resolve


def _judge_names_alone(original: Function) -> Function:
    """A name is taken for what it looks like, wherever it leads."""

    def pin(self: Any, url: str) -> Any:
        self.check(url)
        return self._look_up

    return pin


def _follow_every_redirect(original: Function) -> Function:
    def target(request: Any, url: str, fetched: Any) -> str | None:
        location = fetched.headers.get("location")
        return urljoin(url, location) if location else None

    return target


def _use_a_shell(original: Function) -> Function:
    def open_browser(url: str) -> bool:
        subprocess.Popen(f"xdg-open {url}", shell=True)
        return True

    return open_browser


def _take_any_state(original: Function) -> Function:
    def parse_callback(text: str, state: str) -> Mapping[str, str] | None:
        found = dict(parse_qsl(text.partition("#")[0].rpartition("?")[2]))
        return found if "code" in found or "error" in found else None

    return parse_callback


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "private-addresses-agreed",
        "a public server makes us reach private addresses",
        f"{GUARD}._check_kind",
        always(None),
        ("SEC-01", "SEC-02"),
    ),
    Mutant(
        "names-taken-at-their-word",
        "a name may lead into a private network",
        f"{GUARD}.pin",
        _judge_names_alone,
        ("SEC-01", "SEC-02"),
    ),
    Mutant(
        "addresses-looked-up-again",
        "a connection goes to another address than the one that was checked",
        "syncmcp._http.connecting:resolve",
        _ask_the_system,
        ("SEC-01", "SEC-02"),
    ),
    Mutant(
        "plain-http-agreed",
        "a server may send us to where nothing is encrypted",
        f"{GUARD}._with_https",
        _agree_to_plain_http,
        ("SEC-02", "ASC-02"),
    ),
    Mutant(
        "redirects-followed-anywhere",
        "a redirect of a request with secrets is followed",
        "syncmcp.auth.fetch:_redirect_target",
        _follow_every_redirect,
        ("SEC-02",),
    ),
    Mutant(
        "anything-opened",
        "what is no web address goes to the browser, too",
        "syncmcp.auth.loopback:check_browser_url",
        always(None),
        ("SEC-03", "SEC-05"),
    ),
    Mutant(
        "opened-by-a-shell",
        "a shell reads the address on its way to the browser",
        "syncmcp.auth.loopback:_open_browser_page",
        _use_a_shell,
        ("SEC-04",),
    ),
    Mutant(
        "tokens-for-everybody",
        "a token file that others can read is used",
        "syncmcp._concurrency.files:_check_private",
        always(None),
        ("TOK-04",),
    ),
    Mutant(
        "tokens-shown",
        "a store shows what it keeps",
        "syncmcp.auth.store:MemoryStore.__repr__",
        lambda original: lambda self: repr(vars(self)),
        ("TOK-04", "TOK-05"),
    ),
    Mutant(
        "any-state-taken",
        "an answer to another login is taken",
        "syncmcp.auth.loopback:parse_callback",
        _take_any_state,
        ("FLW-10",),
    ),
)
