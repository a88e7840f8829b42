"""Invalid options of `Stdio` and `Http`: the errors that are raised before opening."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from requests.auth import HTTPBasicAuth
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

import syncmcp
from syncmcp import Http, McpError, Stdio, UsageError
from syncmcp.auth import EnterpriseManaged, OAuth

URL = "http://127.0.0.1:1/mcp"


def _shown(option: str, *values: Any) -> list[tuple[str, Any, str]]:
    """Return values of an option that the error shows."""
    return [(option, value, repr(value)) for value in values]


STDIO: list[tuple[str, Any, str]] = [
    *_shown("max_frame", "1", 0, -1, 1.5, True, None),
    *_shown("grace", 2, (1,), (float("inf"), 0)),
    *(("grace", pair, repr(pair[0])) for pair in (("a", "b"), (-1, 0), (float("nan"), 0))),
    ("grace", (True, 0), "True"),
    *_shown("stderr", "logg", "discard", None, subprocess.DEVNULL),
    *(("stderr", sys.__stderr__, "TextIOWrapper"), ("cwd", 5, "int")),
    ("env", {"PORT": 8080}, "'PORT' must be a str, not int"),
    *(("env", {"PORT": None}, "'PORT' must be a str, not None"), ("env", {5: "a"}, "5")),
    *(("env", ["A=1"], "list"), ("env", {"A=B": "x"}, "'A=B'"), ("env", {"": "x"}, "''")),
    *(("env", {"A": "x\0y"}, "NUL"), *_shown("inherit_env", "some"), *_shown("restart", "always")),
]
HTTP: list[tuple[str, Any, str]] = [
    *(("headers", "a: b", "str"), ("headers", [("a", "b")], "list")),
    *((option, 5, "int") for option in ("auth", "session", "verify", "cert")),
    *(("auth", ("user",), "tuple"), *_shown("verify", "/no/such.pem", None)),
    *(*_shown("cert", "/no/such"), ("cert", ("/no/such", "/nor/this"), "/no/such")),
    *(("proxies", {"http": 5}, "int"), ("proxies", "http://proxy", "str")),
    *_shown("max_body", "x", 0, True),
]


@pytest.mark.parametrize(
    ("make", "option", "value", "came"),
    [
        *((partial(Stdio, "server"), *row) for row in STDIO),
        *((partial(Http, URL), *row) for row in HTTP),
    ],
)
def test_a_wrong_option_is_named_with_it(make: Any, option: str, value: Any, came: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(**{option: value})
    assert option in str(caught.value)
    assert came in str(caught.value)


def test_a_command_that_is_no_text_is_refused_and_no_secret_is_shown() -> None:
    for command in (None, 5, b"server"):
        wrong: Any = command
        with pytest.raises(UsageError, match="command"):
            Stdio(wrong)
        with pytest.raises(UsageError, match="argument"):
            Stdio("server", wrong)
    with pytest.raises(UsageError, match="KEY") as caught:
        Stdio("server", env={"KEY": "canary\0"})
    assert "canary" not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        Http("http://me:canary-word@h:99999/?token=canary-word")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "rest",
    [
        *("evil.example\\@good.example/", "evil.example\\.good.example/", "good.example/\n"),
        *("evil.example\t@good.example/", "good.example%2eevil.example/", "good.example\n/"),
        *("user@%65vil.example:80/", "good.example/a b", "good.example/\u2028", "x/\u202e"),
    ],
)
def test_a_url_whose_host_could_be_read_in_two_ways_is_refused(rest: str) -> None:
    for make in (Http, OAuth):
        with pytest.raises(UsageError, match="is not a URL"):
            make(f"https://{rest}")


@given(st.text("ab./:@?#%[];,&=!~\\\t\n \x00\u2028\uff0f\u3002-_0", max_size=12))
def test_the_host_that_is_shown_is_the_host_that_is_contacted(text: str) -> None:
    try:
        url = Http(f"https://{text}").url
    except UsageError:
        return
    try:
        contacted = parse_url(url).host or ""
    except LocationParseError:  # urllib3 rejects it, so no host is contacted
        return
    assert (urlsplit(url).hostname or "").lower() == contacted.strip("[]").lower()


REFUSED: dict[str, Callable[[str], object]] = {
    "url": lambda name: Http(f"https://{name}@h:x/mcp"),
    "url of another scheme": lambda name: Http(f"htps://{name}@h/mcp"),
    "url without a scheme": lambda name: Http(f"{name}@h/mcp"),
    "client": lambda name: syncmcp.connect(f"https://{name}@h:x/mcp"),
    "sign-in": lambda name: OAuth(f"https://{name}@h:x/mcp"),
    "allowed issuer": lambda name: OAuth(allow=f"htps://{name}@h/mcp"),
    "redirect": lambda name: OAuth(client_id="a", redirect_uri=f"http://{name}@localhost:1/"),
    "document of a client": lambda name: OAuth(client_metadata_url=f"http://{name}@h/mcp"),
    "identity provider": lambda name: EnterpriseManaged(
        "id-token", idp_issuer=f"http://{name}@h", idp_client_id="a", client_id="b", issuer=None
    ),
}


@pytest.mark.parametrize(
    "userinfo", ["u:SE/CRET", "u:SE#CRET", "u:SE?CRET", "u:SE/@CRET", "u:SE CRET", "u:SE[CRET"]
)
@pytest.mark.parametrize("place", REFUSED)
def test_a_password_that_is_not_encoded_is_not_shown(place: str, userinfo: str) -> None:
    with pytest.raises(UsageError) as caught:
        REFUSED[place](userinfo)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert "CRET" not in shown
    assert "'SE'" not in shown
    assert caught.value.__cause__ is None


def test_what_is_no_url_is_shown_for_a_person_to_see_the_mistake() -> None:
    shown = "npx -y @scope/server", "server.py", "localhost:8000/mcp", "https://h:x/a", "ftp://h/"
    urls: list[tuple[Any, str]] = [
        *((text, text) for text in shown),
        *((f"http://h:{port}/", f":{port}") for port in (99999, 0, -1)),
        *((url, "") for url in (None, 5, "", "http://", "http:///mcp", "https://[::1")),
    ]
    for url, words in urls:
        for make in (Http, syncmcp.Client):
            with pytest.raises(UsageError) as caught:
                make(url)
            assert words in str(caught.value)


def test_the_password_of_a_proxy_that_cannot_be_used_is_not_shown() -> None:
    target = Http("http://127.0.0.1:1/mcp", proxies={"http": "http://u:SECRETIVE/rest-word@h:1"})
    with pytest.raises(McpError) as caught:
        syncmcp.connect(target, open_timeout=5)
    shown = "".join(traceback.format_exception(caught.value))
    assert "CRETIVE" not in shown
    assert "rest-word" not in shown


def test_what_fits_is_kept_as_it_came(tmp_path: Path) -> None:
    words = ("log", "inherit", "devnull")
    for word in (*words, "./logg", "server.log", "a\\b"):
        assert Stdio("server", stderr=word).stderr == word
    assert Stdio("server", stderr=Path("logg")).stderr == "logg"
    assert all(f'"{word}"' in (Stdio.__doc__ or "") for word in words)
    program = Stdio("server", env={"A": "1"}, max_frame=1, grace=(0, 0.5), cwd=Path("here"))
    assert (program.env, program.max_frame, program.grace) == ({"A": "1"}, 1, (0, 0.5))
    assert program.cwd == "here"
    file = tmp_path / "some.pem"
    file.write_text("")
    pem, session = str(file), requests.Session()
    options: dict[str, Any] = {"headers": {"X-Key": "a b\tc"}, "auth": ("user", "password")}
    options |= {"proxies": {"http": "http://proxy:1"}, "max_body": 1, "session": session}
    server = Http(URL, verify=pem, cert=(pem, pem), **options)
    assert (server.verify, server.cert, server.session) == (pem, (pem, pem), session)
    # The program itself may use any address.
    for url in (URL, "http://10.0.0.1/mcp", "http://169.254.169.254/mcp"):
        assert Http(url).url == url
    assert Http(URL, auth=HTTPBasicAuth("a", "b"), verify=file, headers=dict).verify == str(file)
