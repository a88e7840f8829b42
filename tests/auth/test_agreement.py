"""The agreement to a sign-in: when the client needs it, who gives it, and how long it lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from syncmcp.auth import (
    Deadline,
    LoopbackReceiver,
    MemoryStore,
    OAuth,
    PasteReceiver,
    SignInRequest,
)
from syncmcp.auth.agreement import Allowed, not_agreed
from syncmcp.auth.receiver import MOST_PROMPTS
from syncmcp.errors import AuthError, LoginRequired, RequestTimeout, UsageError
from syncmcp.types.extensions import AuthorizationServerMetadata
from tests.auth.authorization_server import (
    WAIT,
    AuthorizationServer,
    Person,
    ResourceServer,
    call,
    world,
)
from tests.support.parts import Exchange, aborted

SERVER = "https://mcp.example/mcp"
ISSUER = "https://as.example"


def no(request: SignInRequest) -> bool:
    return False


def silent(request: SignInRequest) -> bool:
    raise RequestTimeout("nobody signed in in time", delivery="not_sent")


@contextmanager
def mixed_up(friends: bool = False) -> Iterator[tuple[ResourceServer, AuthorizationServer]]:
    """Yield a server whose issuer uses the page of an honest issuer, and the honest issuer.

    Args:
        friends: Whether the two issuers belong together: they share codes and clients.
    """
    with world() as resource, AuthorizationServer() as honest:
        evil = resource.authorization_server
        for name in ("authorization_endpoint", "registration_endpoint"):
            evil.metadata[name] = honest.metadata[name]
        del evil.metadata["authorization_response_iss_parameter_supported"]
        honest.callback = lambda back: {name: back[name] for name in ("code", "state")}
        if friends:
            evil.codes, evil.clients = honest.codes, honest.clients
        yield resource, honest


def metadata(**more: Any) -> AuthorizationServerMetadata:
    return AuthorizationServerMetadata(issuer=ISSUER, token_endpoint=f"{ISSUER}/token", **more)


# What the person has to agree to


@pytest.mark.parametrize(
    ("endpoint", "promised", "page"),
    [
        ("https://AS.example:443/authorize", False, None),
        ("https://honest.example/authorize", False, "https://honest.example"),
        ("https://as.example:8443/authorize", False, "https://as.example:8443"),
        ("http://as.example/authorize", False, "http://as.example"),
        # The client rejects redirects of the honest issuer: they name that issuer, or none.
        ("https://honest.example/authorize", True, None),
        (None, False, None),
    ],
)
def test_a_page_of_another_site_is_named_unless_redirects_name_their_issuer(
    endpoint: str | None, promised: bool, page: str | None
) -> None:
    found = metadata(
        authorization_endpoint=endpoint,
        authorization_response_iss_parameter_supported=promised,
        # Another site for registrations is not named: no code of a person goes there.
        registration_endpoint="https://elsewhere.example/register",
    )
    assert SignInRequest.of(SERVER, found, SERVER) == SignInRequest(SERVER, ISSUER, page)


@pytest.mark.parametrize(
    ("url", "resource", "shown"),
    [
        (SERVER, SERVER, None),
        (SERVER, f"{SERVER}/", None),
        (f"{SERVER}?tenant=x", SERVER, None),
        ("https://MCP.example:443/mcp", SERVER, None),
        (SERVER, None, None),  # a token that was stored without it
        (SERVER, "https://mcp.example/", "https://mcp.example/"),
        ("https://mcp.example/tenants/x/mcp", "https://mcp.example/tenants", ...),
        ("https://mcp.example/tenants/x/mcp", "https://mcp.example/tenants/x/", ...),
    ],
)
def test_a_resource_that_is_more_than_the_server_has_to_be_agreed_to(
    url: str, resource: str | None, shown: Any
) -> None:
    request = SignInRequest.of(url, metadata(), resource)
    expected = resource if shown is ... else shown
    assert request.resource == expected
    assert ("more than this server" in request.text) is (expected is not None)


@pytest.mark.parametrize(
    ("issuer", "warning"),
    [
        (ISSUER, None),
        ("https://accounts.example.com/tenant", None),
        ("https://accounts.google.com.evil.example/", "ends with com.evil.example: that end shows"),
        (f"https://google.com.{'a' * 60}.{'b' * 60}.evil.example", f"ends with {'b' * 60}.evil"),
        ("https://xn--pple-43d.example", "reads '\\u0430pple.example'"),
        ("https://\u0430pple.example", "mixes letters of several scripts"),
        ("https://203.0.113.7", "a bare address"),
        ("https://as.example:8443", "an unusual port"),
        ("https://google.com@evil.example", "a user name before its host"),
        ("https://google.com\\.evil.example", "characters that URLs cannot contain"),
        ("http://127.0.0.1:1", "a program on this computer"),
        ("https://a.7.b.7.example", "ends with b.7.example"),
    ],
)
def test_what_is_odd_about_an_address_is_said_before_it_is_agreed_to(
    issuer: str, warning: str | None
) -> None:
    for request in (SignInRequest(SERVER, issuer), SignInRequest(SERVER, ISSUER, page=issuer)):
        assert ("Warning: " in request.text) is (warning is not None)
        assert (warning or "") in request.text
        assert request.text.isascii()


def test_each_oddity_is_a_line_of_its_own() -> None:
    odd = "https://a.b.c.example:8443"
    text = SignInRequest(SERVER, odd).text
    assert text.splitlines() == [
        f"The server {SERVER}",
        f"wants you to sign in at {odd}",
        "Warning: The address leads to an unusual port: 8443.",
        "Warning: Its host ends with b.c.example: that end shows who owns it.",
    ]
    assert text.endswith("owns it.\n")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://mcp.example/{'x' * 280}", f"https://mcp.example/{'x' * 280}"),
        (f"https://mcp.example/{'x' * 281}", "https://mcp.example... (282 more characters)"),
        (f"https://{'a' * 292}/x", f"https://{'a' * 292}... (2 more characters)"),
        (f"https://{'a' * 293}/", "(too long to be shown)"),
        ("x" * 301, "(too long to be shown)"),
    ],
    ids=["whole", "cut", "host", "long-host", "no-host"],
)
def test_of_a_long_url_a_person_sees_whose_it_is(url: str, shown: str) -> None:
    text = SignInRequest(url, ISSUER).text
    assert text == f"The server {shown}\nwants you to sign in at {ISSUER}\n"
    assert "does not say where" in SignInRequest(url, ISSUER, assumed=True).text
    assert text.isascii()


@pytest.mark.parametrize(
    ("page", "resource", "what", "option"),
    [
        (None, "https://r", " for a token for https://r", "allow"),
        ("https://p", "https://r", " on a page of https://p for a token for https://r", "issuer"),
    ],
)
def test_an_error_names_all_that_nobody_agreed_to_and_the_option_for_it(
    page: str | None, resource: str | None, what: str, option: str
) -> None:
    error = not_agreed(SignInRequest(SERVER, ISSUER, page, resource), "nobody agreed")
    assert error.message == f"nobody agreed to sign in at '{ISSUER}'{what}, which {SERVER} names"
    assert error.hint == f"if you trust this issuer, pass it to OAuth as {option}="
    assert f"; {error.hint})" in str(error)
    assumed = not_agreed(SignInRequest(SERVER, ISSUER, page, resource, True), "nobody agreed")
    assert assumed.message.endswith(f"at '{ISSUER}'{what}, because {SERVER} does not say where")


def test_a_resource_that_grows_after_the_agreement_is_agreed_to_anew() -> None:
    with world() as resource:
        issuer, store, person = resource.authorization_server, MemoryStore(), Person()
        issuer.refresh = False
        assert call(resource, OAuth(receiver=person, store=store)).status_code == 200
        resource.metadata["resource"] = resource.origin
        issuer.expire()
        auth = OAuth(receiver=person, store=store)
        assert call(resource, auth).status_code == 200
        issuer.expire()
        assert call(resource, auth).status_code == 200
        assert call(resource, OAuth(receiver=person, store=store)).status_code == 200
        assert [one.resource for one in person.asked] == [None, resource.origin]


def test_a_program_that_agrees_to_an_issuer_gets_a_token_for_a_parent_of_its_url() -> None:
    with world() as resource:
        issuer, person = resource.authorization_server.issuer, Person()
        agreements: list[dict[str, Any]] = [{"allow": issuer}, {"issuer": issuer}]
        for options in agreements:
            resource.metadata["resource"] = resource.origin
            auth = OAuth(receiver=person, **options)
            assert call(resource, auth).status_code == 200
            assert auth.token is not None
            assert (auth.token.resource, person.asked) == (resource.origin, [])
            # A resource that is not a parent of the URL is refused, even if the issuer is allowed.
            resource.metadata["resource"] = f"{resource.origin}/other"
            with pytest.raises(AuthError, match="describes another server"):
                call(resource, OAuth(receiver=person, **options))


def test_a_person_is_told_both_names_and_nothing_moves_the_cursor() -> None:
    text = SignInRequest("https://mcp.example/\x1b[2J", "https://\u0430s.example", "https://p").text
    assert text.isascii()
    assert "\x1b" not in text
    for name in (r"https://mcp.example/\x1b[2J", r"https://\u0430s.example", "https://p"):
        assert name in text
    assert "another site" not in SignInRequest(SERVER, ISSUER).text
    assert len(SignInRequest(SERVER, f"{ISSUER}/{'x' * 9_000}").text) < 1_000


@pytest.mark.parametrize(
    ("given", "included"),
    [
        (ISSUER, True),
        (lambda server, issuer: (server, issuer) == (SERVER, ISSUER), True),
        (f"{ISSUER}/", False),
        (frozenset({"https://other.example"}), False),
        pytest.param(lambda server, issuer: "no", False, id="a word"),
    ],
)
def test_a_program_allows_issuers_letter_by_letter(given: Any, included: bool) -> None:
    assert Allowed(given).includes(SignInRequest(SERVER, ISSUER)) is included


def test_a_function_that_fails_is_named_and_an_assumed_issuer_is_known_as_such() -> None:
    with pytest.raises(UsageError, match=r"^allow failed: ZeroDivisionError$"):
        Allowed(lambda server, issuer: 1 / 0 > 1).includes(SignInRequest(SERVER, ISSUER))
    assert SignInRequest.of(SERVER, metadata(), None).assumed is False
    assert SignInRequest.of(SERVER, metadata(), None, assumed=True).assumed is True


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *(
            (given, f"allow must be an issuer, several issuers or a function, not {given}")
            for given in (True, 7)
        ),
        *(
            (given, "allow must name issuers by their URLs, not 'as.example'")
            for given in ("as.example", [ISSUER, "as.example"])
        ),
        (b"h", "allow must name issuers by their URLs, not '104'"),
        (lambda: True, "allow must accept the arguments (server, issuer)"),
    ],
)
def test_what_names_no_issuer_is_refused_when_it_is_given(given: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        OAuth(allow=given)
    assert caught.value.message == message


def test_only_true_is_a_yes_of_a_receiver() -> None:
    person = Person(agrees=lambda request: cast("bool", "no"))
    with world() as resource, pytest.raises(LoginRequired):
        call(resource, OAuth(receiver=person))
    assert person.redirects == []


# Before the person has agreed


@pytest.mark.parametrize("by_hand", [True, False])
def test_nothing_happens_at_an_issuer_before_the_person_has_agreed(by_hand: bool) -> None:
    with world() as resource:
        person = Person(agrees=no)
        auth = OAuth(resource.url, receiver=person)
        with pytest.raises(LoginRequired, match="permission was denied"):
            auth.login() if by_hand else call(resource, auth)
        issuer = resource.authorization_server
        assert issuer.paths() == ["/.well-known/oauth-authorization-server"]
        assert (person.redirects, person.registered) == ([], [])
        assert person.asked == [SignInRequest(resource.url, issuer.issuer)]


def test_an_issuer_that_borrows_the_page_of_another_one_gets_no_code_of_it() -> None:
    with mixed_up() as (resource, honest):
        evil = resource.authorization_server
        person = Person(agrees=lambda request: request.page is None)
        with pytest.raises(LoginRequired):
            call(resource, OAuth(receiver=person))
        assert evil.token_requests == []
        assert honest.seen == []
        assert person.asked[0].page == honest.origin
        # A program that allows only the issuer has not agreed to the site of its page.
        allow = lambda server, issuer: True  # noqa: E731
        for given in (evil.issuer, [evil.issuer], allow):
            with pytest.raises(LoginRequired, match="to OAuth as issuer="):
                call(resource, OAuth(receiver=LoopbackReceiver(open_browser=False), allow=given))
        assert evil.token_requests == []
        assert honest.seen == []


def test_a_program_that_allows_asks_nobody_and_one_that_does_not_is_refused() -> None:
    with world() as resource:
        issuer, asked = resource.authorization_server, list[tuple[str, str]]()

        def allow(server: str, named: str) -> bool:
            asked.append((server, named))
            return True

        for given in (issuer.issuer, {issuer.issuer}, allow):
            person = Person()
            assert call(resource, OAuth(receiver=person, allow=given)).status_code == 200
            assert person.asked == []
        assert asked == [(resource.url, issuer.issuer)]
        before = len(issuer.seen)
        for refused in ("https://as.example", (), lambda server, issuer: False):
            person = Person()
            with pytest.raises(LoginRequired, match="allow="):
                call(resource, OAuth(receiver=person, allow=refused))
            assert (person.asked, person.redirects) == ([], [])
        assert {one.method for one in issuer.seen[before:]} == {"GET"}


def test_of_several_issuers_the_one_is_taken_that_was_agreed_to() -> None:
    with world() as resource, AuthorizationServer() as evil:
        honest = resource.authorization_server
        resource.metadata["authorization_servers"] = [evil.issuer, honest.issuer]
        person = Person(agrees=no)
        with pytest.raises(LoginRequired):
            call(resource, OAuth(receiver=person))
        assert [one.issuer for one in person.asked] == [evil.issuer]
        assert call(resource, OAuth(receiver=person, allow=honest.issuer)).status_code == 200
        assert evil.paths("POST") == []


def test_where_nobody_can_be_asked_the_error_names_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with world() as resource:
        issuer = resource.authorization_server
        auth = OAuth()
        for _ in range(5):  # attempts that ask nobody do not count towards the limit
            with pytest.raises(
                LoginRequired, match=f"{issuer.issuer}.*to OAuth as allow="
            ) as caught:
                call(resource, auth)
            assert resource.url in str(caught.value)
        assert issuer.paths("POST") == []


@pytest.mark.parametrize(("agrees", "error"), [(no, LoginRequired), (silent, RequestTimeout)])
def test_a_person_who_says_no_or_nothing_is_not_asked_without_end(
    agrees: Callable[[SignInRequest], bool], error: type[Exception]
) -> None:
    with world() as resource:
        person = Person(agrees=agrees)
        auth = OAuth(resource.url, receiver=person)
        for _ in range(3):
            with pytest.raises(error):
                call(resource, auth)
        with pytest.raises(LoginRequired, match="limit is reached"):
            call(resource, auth)
        assert len(person.asked) == 3
        with pytest.raises(error):
            auth.login()
        assert len(person.asked) == 4


# After the person has agreed


def test_an_agreement_is_kept_with_the_sign_in() -> None:
    with world() as resource, AuthorizationServer() as new:
        issuer, store, person = resource.authorization_server, MemoryStore(), Person()
        issuer.refresh = False
        first = OAuth(receiver=person, store=store)
        assert call(resource, first).status_code == 200
        issuer.expire()
        assert call(resource, OAuth(receiver=person, store=store)).status_code == 200
        resource.needed["more"] = "more"
        assert call(resource, first, "more").status_code == 200
        assert (len(person.redirects), len(person.asked)) == (3, 1)
        # Another issuer, or another page of the same issuer, needs a new agreement.
        for one in (issuer, new):
            del one.metadata["authorization_response_iss_parameter_supported"]
        new.callback = lambda back: {name: back[name] for name in ("code", "state")}
        issuer.metadata["authorization_endpoint"] = f"{new.issuer}/authorize"
        issuer.codes = new.codes
        issuer.expire()
        assert call(resource, OAuth(receiver=person, store=store)).status_code == 200
        resource.metadata["authorization_servers"] = [new.issuer]
        resource.authorization_server = new
        assert call(resource, OAuth(receiver=person, store=store)).status_code == 200
        asked = [(one.issuer, one.page) for one in person.asked]
        assert asked == [(issuer.issuer, None), (issuer.issuer, new.origin), (new.issuer, None)]


def test_an_agreement_ends_with_the_sign_in_that_it_is_kept_with() -> None:
    with world() as resource:
        store, person = MemoryStore(), Person()
        auth = OAuth(receiver=person, store=store)
        for count, used in enumerate((auth, auth, OAuth(receiver=person, store=store)), 1):
            call(resource, used)
            assert len(person.asked) == count
            used.logout()


# Stored logins, and the issuers that the program allows


OTHER = "https://other.example"


@contextmanager
def left_in_store() -> Iterator[tuple[ResourceServer, MemoryStore]]:
    """A server, and a store with a login there that a person has agreed to."""
    with world() as resource:
        store = MemoryStore()
        assert call(resource, OAuth(receiver=Person(), store=store)).status_code == 200
        resource.authorization_server.seen.clear()
        resource.seen.clear()
        yield resource, store


@pytest.mark.parametrize(
    ("given", "expired"),
    [
        ({"allow": OTHER}, False),
        ({"allow": ()}, True),
        ({"allow": lambda server, issuer: False}, False),
        ({"issuer": OTHER}, True),
    ],
)
def test_a_stored_login_at_an_issuer_that_is_not_allowed_counts_as_absent(
    given: Any, expired: bool
) -> None:
    with left_in_store() as (resource, store):
        issuer = resource.authorization_server
        if expired:
            issuer.expire()
        auth = OAuth(resource.url, receiver=Person(), store=store, **given)
        assert auth.token is None
        with pytest.raises(AuthError):
            call(resource, auth)
        assert [one.bearer for one in resource.calls] == [None]
        assert (issuer.paths("POST"), issuer.authorizations) == ([], [])


@pytest.mark.parametrize("by_step_up", [False, True])
def test_a_remembered_agreement_does_not_replace_what_is_allowed(by_step_up: bool) -> None:
    permitted = True
    with world() as resource:
        issuer = resource.authorization_server
        auth = OAuth(resource.url, receiver=Person(), allow=lambda server, named: permitted)
        assert call(resource, auth).status_code == 200
        issuer.seen.clear()
        permitted = False
        resource.needed["more"] = "more"
        with pytest.raises(LoginRequired, match="allow="):
            call(resource, auth, "more") if by_step_up else auth.login()
        assert (issuer.paths("POST"), issuer.authorizations) == ([], [])


def test_a_page_that_somebody_else_agreed_to_is_agreed_to_again_where_allow_is_given() -> None:
    with mixed_up(friends=True) as (resource, honest):
        issuer, store, person = resource.authorization_server.issuer, MemoryStore(), Person()
        first = OAuth(receiver=Person(), store=store, issuer=issuer)
        assert call(resource, first).status_code == 200
        auth = OAuth(resource.url, receiver=person, store=store, allow=issuer)
        auth.login()
        auth.login()
        assert [one.page for one in person.asked] == [honest.origin]


# How people are asked


REQUEST = SignInRequest(SERVER, ISSUER)


class Typist:
    """A terminal that records the shown texts and enters the given lines."""

    def __init__(self, *lines: str) -> None:
        self.shown: list[str] = []
        self._lines = iter(lines)

    def ask(self, prompt: str) -> str:
        assert prompt.endswith("[y/N] ")
        line = next(self._lines, None)
        if line is None:
            raise EOFError
        return line


RECEIVERS: list[Callable[[Typist], Any]] = [
    lambda typist: LoopbackReceiver(show=typist.shown.append, ask=typist.ask),
    lambda typist: PasteReceiver(typist.shown.append, typist.ask),
]
of_receivers = pytest.mark.parametrize("make", RECEIVERS, ids=["browser", "paste"])


@of_receivers
@pytest.mark.parametrize(
    ("lines", "agreed"),
    [(["y"], True), ([" YES "], True), ([""], False), (["n"], False), (["what?", "no"], False)],
)
def test_only_a_yes_is_an_agreement(
    make: Callable[[Typist], Any], lines: list[str], agreed: bool
) -> None:
    typist = Typist(*lines)
    assert make(typist).agree(REQUEST, Deadline(WAIT)) is agreed
    assert typist.shown[0] == REQUEST.text
    assert len(typist.shown) == len(lines)


@of_receivers
def test_an_agreement_is_given_up_at_the_end_or_after_lines_that_are_neither_yes_nor_no(
    make: Callable[[Typist], Any],
) -> None:
    with pytest.raises(LoginRequired, match=r"no input.*allow="):
        make(Typist()).agree(REQUEST, Deadline(WAIT))
    typist = Typist(*["maybe"] * (MOST_PROMPTS + 1))
    with pytest.raises(LoginRequired, match=f"{MOST_PROMPTS} lines .*allow="):
        make(typist).agree(REQUEST, Deadline(WAIT))
    assert len(typist.shown) == MOST_PROMPTS
    typist = Typist(*["maybe"] * (MOST_PROMPTS - 1), "yes")
    assert make(typist).agree(REQUEST, Deadline(WAIT)) is True


@of_receivers
def test_waiting_for_an_agreement_ends_with_the_call(make: Callable[[Any], Any]) -> None:
    go_on = threading.Event()
    exchange = Exchange()

    class Silent(Typist):
        def ask(self, prompt: str) -> str:
            exchange.abort()
            assert go_on.wait(WAIT)
            return "y"

    try:
        with exchange, aborted():
            make(Silent()).agree(REQUEST, Deadline(WAIT))
    finally:
        go_on.set()
