"""Code of the program that fails while a client signs in is no failure of the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import requests

import syncmcp
from syncmcp import UsageError
from syncmcp.auth import LoopbackReceiver, OAuth, PasteReceiver, Receiver
from syncmcp.testing import AuthorizationServer, Server, serve_http

SERVER = Server("shop")


class Counted:
    """A function that fails, with any arguments."""

    def __init__(self, error: Exception) -> None:
        self.calls = 0
        self._error = error

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.calls += 1
        raise self._error


def hooked(function: Any) -> requests.Session:
    session = requests.Session()
    session.hooks["response"].append(function)
    return session


def with_sending(function: Any) -> requests.Session:
    session: Any = type("Own", (requests.Session,), {"send": function})()
    return session  # type: ignore[no-any-return]


GIVEN: dict[str, Callable[[Any], dict[str, Any]]] = {
    "the headers function": lambda function: {"headers": function},
    "auth": lambda function: {"auth": function},
    "a response hook": lambda function: {"session": hooked(function)},
    "the session": lambda function: {"session": with_sending(function)},
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_function_that_fails_in_an_exchange_is_named_and_called_once(name: str) -> None:
    failing = Counted(RuntimeError("k3y-4711"))
    with (
        serve_http(SERVER) as http,
        pytest.raises(UsageError, match=rf"{name} failed: RuntimeError$") as failed,
    ):
        syncmcp.connect(syncmcp.Http(http.url, **GIVEN[name](failing)))
    assert (failing.calls, failed.value.attempts) == (1, 1)
    assert str(failed.value.__cause__) == "k3y-4711"


def test_an_auth_that_returns_no_request_is_told_so() -> None:
    nothing: Any = lambda request: None  # noqa: E731
    with (
        serve_http(SERVER) as http,
        pytest.raises(UsageError, match="auth must return the request, not None"),
    ):
        syncmcp.connect(syncmcp.Http(http.url, auth=nothing))


@pytest.mark.parametrize("error", [RuntimeError("no"), ConnectionError("no")])
def test_an_allow_that_fails_is_named_and_called_once(error: Exception) -> None:
    allow = Counted(error)
    with (
        AuthorizationServer() as authorization,
        serve_http(SERVER, authorization_server=authorization) as http,
        pytest.raises(UsageError, match=f"allow failed: {type(error).__name__}$"),
    ):
        syncmcp.connect(syncmcp.Http(http.url, auth=OAuth(allow=allow)))
    assert allow.calls == 1


def asked(prompt: str) -> str:
    pytest.fail("asked")


RECEIVERS: dict[str, Callable[[Any], Receiver]] = {
    "a listener": lambda show: LoopbackReceiver(open_browser=False, show=show),
    "a listener that asks": lambda show: LoopbackReceiver(open_browser=False, show=show, ask=asked),
    "a paste": lambda show: PasteReceiver(show, asked),
}


@pytest.mark.parametrize(
    ("make", "agreed"),
    [*((make, True) for make in RECEIVERS.values()), (RECEIVERS["a paste"], False)],
    ids=[*RECEIVERS, "an agreement"],
)
def test_a_show_that_fails_ends_the_sign_in_at_once(
    make: Callable[[Any], Receiver], agreed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp.auth.loopback._terminal_input", lambda: None)
    show = Counted(OSError("no"))
    with (
        AuthorizationServer() as authorization,
        serve_http(SERVER, authorization_server=authorization) as http,
    ):
        allow = authorization.issuer if agreed else None
        login = OAuth(allow=allow, receiver=make(show), login_timeout=20.0)
        with pytest.raises(UsageError, match=r"show failed: OSError$"):
            syncmcp.connect(syncmcp.Http(http.url, auth=login))
    assert show.calls == 1
