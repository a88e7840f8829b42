"""Mutants of signing in: discovery, registration, the code flow, tokens, scopes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from syncmcp.auth.tokens import Registration
from syncmcp.errors import AuthError, DiscoveryFailed
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, result, without

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.contract.mutant_switches.change import Function

DISCOVERY = "syncmcp.auth.discovery"
FLOW = "syncmcp.auth.flow"
OAUTH = "syncmcp.auth.oauth:OAuth"
REGISTRATION = "syncmcp.auth.registration"
SCOPE = "syncmcp.auth.discovery"
TOKEN_AUTH = "syncmcp.auth.token_auth:TokenAuth"


def _find_nothing(original: Function) -> Function:
    def find(*_: Any) -> Generator[Any, Any, None]:
        return
        yield

    return find


def _fall_on_nothing(original: Function) -> Function:
    def fallback(*_: Any) -> Generator[Any, Any, None]:
        raise DiscoveryFailed("the server has no metadata")
        yield

    return fallback


def _believe_any_issuer(original: Function) -> Function:
    def find(issuer: str, **named: Any) -> Generator[Any, Any, Any]:
        steps = original(issuer, **named)
        fetched = None
        while True:
            try:
                fetch = steps.send(fetched)
            except StopIteration as end:
                return end.value
            fetched = yield fetch
            if fetched.status == 200:
                value = {**json.loads(fetched.body), "issuer": issuer}
                fetched = replace(fetched, body=json.dumps(value).encode())

    return find


def _one_client_everywhere(original: Function) -> Function:
    first: dict[int, Registration] = {}

    def registered(self: Any, auth_server: Any, *rest: Any) -> Any:
        known = first.get(id(self))
        if known is None:
            known = first[id(self)] = original(self, auth_server, *rest)
        return replace(known, issuer=auth_server.metadata.issuer)

    return registered


def _nobody(original: Function) -> Function:
    return lambda *args: replace(original(*args), client_id="")


def _crash_when_refused(original: Function) -> Function:
    def registered(fetched: Any, *rest: Any) -> Any:
        if fetched.status == 400:
            raise KeyError("client_id")
        return original(fetched, *rest)

    return registered


def _asking(edit: Callable[[Any, dict[str, str]], dict[str, str]]) -> Callable[[Any], Any]:
    """Change the query of the authorization request."""

    def change(original: Any) -> Any:
        def redirect(self: Any) -> Any:
            made = original.fget(self)
            page, _, query = made.url.partition("?")
            fields = edit(self, dict(parse_qsl(query, keep_blank_values=True)))
            return replace(made, url=f"{page}?{urlencode(fields)}")

        return property(redirect)

    return change


def _without_pkce(_: Any, fields: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if "challenge" not in name}


def _plain_pkce(attempt: Any, fields: dict[str, str]) -> dict[str, str]:
    return {**fields, "code_challenge": attempt.verifier, "code_challenge_method": "plain"}


def _send_with_credentials(original: Function) -> Function:
    def send(self: Any, out: Any) -> None:
        out.body = out.body.replace(b"{", b'{"authorization":"Bearer x",', 1)
        original(self, out)

    return send


def _without_resource(original: Function) -> Function:
    def token_request(server: Any, registration: Any, fields: Any, *rest: Any) -> Any:
        fields = {name: value for name, value in fields.items() if name != "resource"}
        return original(server, registration, fields, *rest)

    return token_request


def _coming_back(edit: Callable[[Any, Any], Any]) -> Callable[[Function], Function]:
    """Change what a callback seems to hold."""
    return lambda original: lambda attempt, callback: original(attempt, edit(attempt, callback))


def _right_issuer(attempt: Any, callback: Any) -> Any:
    return {**callback, "iss": attempt.auth_server.metadata.issuer}


def _similar_issuer(attempt: Any, callback: Any) -> Any:
    issuer, ours = callback.get("iss"), attempt.auth_server.metadata.issuer
    alike = issuer is not None and issuer.rstrip("/").lower() == ours.rstrip("/").lower()
    return {**callback, "iss": ours} if alike else callback


def _show_what_came(original: Function) -> Function:
    def authorization_code(attempt: Any, callback: Any) -> Any:
        try:
            return original(attempt, callback)
        except AuthError as error:
            raise type(error)(f"{error.message}: {callback.get('error')}") from error

    return authorization_code


def _token_in_the_url(original: Function) -> Function:
    def sign(self: Any, request: Any, login: Any) -> None:
        original(self, request, login)
        request.url += f"?access_token={login.token.access_token}"

    return sign


def _need_a_refresh_token(original: Function) -> Function:
    def read_token(*args: Any) -> Any:
        token = original(*args)
        if token.refresh_token is None:
            raise AuthError("there is no refresh token")
        return token

    return read_token


def _selecting(edit: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> Callable[[Any], Any]:
    """Change what the scope is chosen from."""
    return lambda original: (
        lambda auth_server, **given: original(auth_server, **edit(auth_server, given))
    )


def _only_what_is_listed(auth_server: Any, given: dict[str, Any]) -> dict[str, Any]:
    words = (given.get("challenged") or "").split()
    kept = " ".join(word for word in words if word in (auth_server.scopes or ()))
    return {**given, "challenged": kept or None}


def _ask_twice(original: Function) -> Function:
    def fetch(self: Any, request: Any) -> Any:
        try:
            return original(self, request)
        except AuthError:
            return original(self, request)

    return fetch


FINDING = (
    Mutant(
        "resource-metadata-unread",
        "the resource's metadata are not looked for",
        f"{DISCOVERY}:find_resource",
        _find_nothing,
        ("AUD-01",),
    ),
    Mutant(
        "challenges-unread",
        "no challenge is understood",
        "syncmcp.auth.steps:auth_challenge",
        always(None),
        ("AUD-02",),
    ),
    Mutant(
        "resource-metadata-backwards",
        "the addresses of the resource's metadata are tried in reverse",
        f"{DISCOVERY}:_resource_metadata_urls",
        result(lambda places: places[::-1]),
        ("AUD-03",),
    ),
    Mutant(
        "openid-unknown",
        "only the first address of a server's metadata is tried",
        f"{DISCOVERY}:_server_metadata_urls",
        result(lambda places: places[:1]),
        ("AUD-04", "AUD-05", "AUD-06"),
    ),
    Mutant(
        "server-metadata-backwards",
        "the addresses of a server's metadata are tried in reverse",
        f"{DISCOVERY}:_server_metadata_urls",
        result(lambda places: places[::-1]),
        ("AUD-05", "AUD-06"),
    ),
    Mutant(
        "metadata-of-anybody",
        "metadata of another issuer are used",
        f"{DISCOVERY}:find_server",
        _believe_any_issuer,
        ("AUD-07",),
    ),
    Mutant(
        "old-servers-unknown",
        "a server without metadata of its own cannot be signed in to",
        f"{DISCOVERY}:_fallback",
        _fall_on_nothing,
        ("AUD-08",),
    ),
    Mutant(
        "resources-of-anybody",
        "metadata about another resource are used",
        f"{DISCOVERY}:covers",
        always(True),
        ("AUD-12",),
    ),
    Mutant(
        "pkce-unasked",
        "a server that offers no PKCE is used",
        f"{DISCOVERY}:require_pkce",
        always(None),
        ("FLW-03",),
    ),
    Mutant(
        "resource-with-a-slash",
        "a slash is added to the address of the server",
        f"{DISCOVERY}:canonical_resource",
        result(lambda url: f"{url}/"),
        ("FLW-05",),
    ),
)

CLIENTS = (
    Mutant(
        "one-client-everywhere",
        "the client of one authorization server is used at the next",
        f"{OAUTH}._registration_at",
        _one_client_everywhere,
        ("AUD-10", "AUD-11", "REG-07"),
    ),
    Mutant(
        "no-client",
        "the browser opens without a client id",
        f"{OAUTH}._registration_at",
        _nobody,
        ("REG-01",),
    ),
    Mutant(
        "documents-anywhere",
        "a metadata document may have any address",
        f"{REGISTRATION}:_check_metadata_url",
        always(None),
        ("REG-03",),
    ),
    Mutant(
        "application-type-unsaid",
        "registration does not say what kind of program this is",
        f"{REGISTRATION}:client_metadata",
        without("application_type"),
        ("REG-04",),
    ),
    Mutant(
        "refused-registration-crashes",
        "a refused registration ends in a crash",
        f"{REGISTRATION}:_read_registration",
        _crash_when_refused,
        ("REG-05",),
    ),
    Mutant(
        "registration-of-nobody",
        "a registration does not say whose it is",
        f"{REGISTRATION}:_read_registration",
        result(lambda registration: replace(registration, issuer="")),
        ("REG-06",),
    ),
    Mutant(
        "any-registration",
        "a registration serves every redirect",
        f"{REGISTRATION}:is_usable",
        always(True),
        ("REG-06", "REG-09"),
    ),
    Mutant(
        "redirects-anywhere",
        "a redirect may go anywhere",
        f"{REGISTRATION}:check_redirect_uri",
        always(None),
        ("REG-10",),
    ),
)

CODES = (
    Mutant(
        "no-pkce",
        "the authorization request has no PKCE challenge",
        f"{FLOW}:PendingAuthorization.redirect",
        _asking(_without_pkce),
        ("FLW-01", "FLW-02"),
    ),
    Mutant(
        "plain-pkce",
        "the PKCE challenge is the verifier itself",
        f"{FLOW}:PendingAuthorization.redirect",
        _asking(_plain_pkce),
        ("FLW-02",),
    ),
    Mutant(
        "resource-unsaid",
        "token requests do not name the resource",
        "syncmcp.auth.flow:token_request",
        _without_resource,
        ("FLW-04",),
    ),
    Mutant(
        "issuer-unjudged",
        "the issuer in a redirect is not looked at",
        f"{FLOW}:authorization_code",
        _coming_back(_right_issuer),
        ("FLW-06", "FLW-07", "FLW-08", "FLW-09"),
    ),
    Mutant(
        "issuer-normalised",
        "issuers that look alike are the same",
        f"{FLOW}:authorization_code",
        _coming_back(_similar_issuer),
        ("FLW-08",),
    ),
    Mutant(
        "errors-of-anybody",
        "what a redirect from elsewhere says is shown",
        f"{FLOW}:authorization_code",
        _show_what_came,
        ("FLW-09",),
    ),
    Mutant(
        "state-unjudged",
        "a redirect with another state is taken",
        f"{FLOW}:authorization_code",
        _coming_back(lambda attempt, callback: {**callback, "state": attempt.state}),
        ("FLW-10",),
    ),
    Mutant(
        "codes-sent-twice",
        "a token request whose answer was lost is made again",
        "syncmcp.auth.fetch:Driver._fetch",
        _ask_twice,
        ("ASC-01",),
    ),
    Mutant(
        "any-page",
        "every address that a server names is used",
        "syncmcp._http.url_guard:UrlGuard.check",
        always("127.0.0.1"),
        ("SEC-03", "SEC-05", "ASC-02"),
    ),
)

TOKENS = (
    Mutant(
        "token-unsaid",
        "requests do not carry the token",
        f"{TOKEN_AUTH}._sign",
        always(None),
        ("TOK-01",),
    ),
    Mutant(
        "token-in-the-url",
        "the token is part of the URL",
        f"{TOKEN_AUTH}._sign",
        _token_in_the_url,
        ("TOK-02",),
    ),
    Mutant(
        "tokens-for-anybody",
        "the token goes to every server",
        "syncmcp.auth.token_manager:TokenManager.is_for",
        always(True),
        ("TOK-03",),
    ),
    Mutant(
        "refresh-token-needed",
        "a login without a refresh token fails",
        f"{FLOW}:read_token",
        _need_a_refresh_token,
        ("TOK-06",),
    ),
    Mutant(
        "offline-access-always",
        "offline access is asked for everywhere",
        f"{SCOPE}:select_scope",
        result(lambda scope: f"{scope or ''} offline_access".strip()),
        ("TOK-08",),
    ),
    Mutant(
        "challenged-scope-cut",
        "of a challenge's scopes only those in the metadata count",
        f"{SCOPE}:select_scope",
        _selecting(_only_what_is_listed),
        ("SCO-02", "SCO-03"),
    ),
    Mutant(
        "earlier-scope-lost",
        "a step-up forgets the scopes there were",
        f"{SCOPE}:select_scope",
        _selecting(lambda _, given: {**given, "earlier": None}),
        ("SCO-04",),
    ),
    Mutant(
        "credentials-in-frames",
        "a transport of another kind gets frames with credentials that it has not asked for",
        "syncmcp.transports.memory:MemoryTransport.send",
        _send_with_credentials,
        ("ASC-03",),
    ),
    Mutant(
        "people-asked-for-ever",
        "each request to a server that refuses every token opens a browser",
        "syncmcp.auth.token_manager:LoginLimiter.check",
        always(None),
        ("SCO-05", "SEC-08"),
    ),
    Mutant(
        "step-ups-unlimited",
        "one operation may lead to any number of sign-ins",
        "syncmcp.auth.token_manager:_MOST_STEP_UPS",
        lambda original: 1000,
        ("SCO-05",),
    ),
    Mutant(
        "newer-tokens-unseen",
        "a token that another process stored is not noticed",
        "syncmcp.auth.tokens:Login.same_token",
        always(True),
        ("17",),
    ),
)

MUTANTS = FINDING + CLIENTS + CODES + TOKENS
