"""The pages over HTTP: access, contents, and the answers that they send."""

from __future__ import annotations

import http.client
import logging
import queue
import re
import socket
import sys
import threading
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

import syncmcp
from syncmcp import CancelToken
from syncmcp.approval import DenyAll, ToolCall, Verdict
from syncmcp.errors import ClosedError, Denied, UsageError
from syncmcp.handlers import CausingCall, HandlerContext
from syncmcp.handlers.context import FileChosenName
from syncmcp.handlers.forms import UnsupportedForm
from syncmcp.handlers.links import UnsafeLink
from syncmcp.handlers.roots import Roots, to_root
from syncmcp.testing import Server, ToolContext
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitResult,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)
from syncmcp.ui.browser import AskInBrowser, Browser
from syncmcp.ui.browser.app import PageServer
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Clock
from tests.ui.asking import (
    DOT,
    EVERY_KIND,
    Asked,
    context,
    form,
    link,
    question,
    sampling,
    server,
    until,
    written,
)
from tests.ui.visitor import Page, Visitor, address_in

HOSTILE = (
    '"><script>alert(1)</script><img src=//evil.example/x onerror=alert(2)>\x1b[2J\u202eevil\x00'
)
HARMLESS = "alert(2)>\u241b[2J<U+202E>evil\u2400"


def mentions(page: Page, words: str) -> list[tuple[str, str, str]]:
    """Return the attributes that contain these words, as tag, attribute and value."""
    return [
        (tag, name, value)
        for tag, attributes in page.tags
        for name, value in attributes.items()
        if words in value
    ]


def url_of_question(visitor: Visitor) -> str:
    (page,) = visitor.waiting()
    return page.url


ALLOW = Verdict.allow()


class TestTheDoor:
    def test_the_cookie_stays_with_these_pages(self, browser: Browser) -> None:
        with Visitor(browser, enters=False) as visitor:
            answer = visitor.session.get(browser.address, allow_redirects=False, timeout=10)
        cookie = answer.headers["Set-Cookie"]
        parts = {part.strip().split("=")[0]: part for part in cookie.split(";")}
        assert "HttpOnly" in parts
        assert parts["SameSite"].strip() == "SameSite=Strict"
        assert answer.headers["Location"].startswith(parts["Path"].strip().removeprefix("Path="))
        assert not {"Expires", "Max-Age", "Domain"} & set(parts)

    def test_a_browser_that_fetches_ahead_does_not_use_the_link_up(self, browser: Browser) -> None:
        with Visitor(browser, enters=False) as visitor:
            link = browser.address
            assert visitor.get(link, **{"Sec-Purpose": "prefetch;prerender"}).status == 403
            assert visitor.session.head(link, timeout=10).status_code == 403
            assert visitor.get(link).status == 200

    def test_a_long_token_is_not_read(self, browser: Browser, visitor: Visitor) -> None:
        """Any visitor of the port could otherwise fill the memory of the program."""
        parts = ("token=", "x" * 2_000)
        for body in ("".join(parts), (part.encode() for part in parts)):  # the second is chunked
            refused = visitor.session.post(f"{visitor.origin}/open", data=body, timeout=10)
            assert refused.status_code == 403
            assert "not come from the program&#39;s file" in refused.text

    def test_others_can_hold_so_many_connections_and_no_more(
        self, browser: Browser, visitor: Visitor
    ) -> None:
        where = ("127.0.0.1", int(visitor.origin.rpartition(":")[2]))
        with ExitStack() as held:
            for _ in range(64):
                held.enter_context(socket.create_connection(where))
            refused = held.enter_context(socket.create_connection(where))
            refused.settimeout(PATIENCE)
            assert refused.recv(1) == b""

        def gets_in() -> bool:
            with suppress(requests.ConnectionError):
                return visitor.get(visitor.home).status == 200
            return False  # the server has not noticed yet that the others are closed

        until(gets_in)

    def test_nobody_else_can_listen_on_the_port(self) -> None:
        """On Windows, another user could, if both sockets had `SO_REUSEADDR`."""
        server = PageServer()
        with closing(server.socket):
            assert not server.socket.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)

    def test_without_the_cookie_nothing_is_shown(self, browser: Browser, visitor: Visitor) -> None:
        asked = Asked(browser.form, form(message="between us"), context())
        page = url_of_question(visitor)
        visitor.session.cookies.clear()
        for url in (page, visitor.home, f"{visitor.home}state", f"{visitor.home}static/page.js",
                    f"{visitor.home}directories", f"{visitor.home}writing/x"):  # fmt: skip
            refused = visitor.get(url)
            assert refused.status == 403
            assert "between us" not in refused.source
            assert "open a new link of the program" in refused.text
        assert visitor.post(page, {"action": "send"}).status == 403
        assert asked.open

    def test_a_foreign_name_that_leads_here_gets_nothing(
        self, browser: Browser, visitor: Visitor
    ) -> None:
        port, link = visitor.origin.rpartition(":")[2], browser.address
        for host in (
            *("evil.example", f"evil.example:{port}", f"127.0.0.1:{port}.evil.example"),
            *("127.0.0.1", "localhost", f"[::1]:{port}", f"0.0.0.0:{port}", ""),
        ):
            for url in (visitor.home, link):
                assert visitor.get(url, Host=host).status in (400, 403)
        assert browser.address == link
        ((name, value),) = visitor.session.cookies.items()
        headers = {"Host": f"localhost:{port}", "Cookie": f"{name}={value}"}
        assert visitor.get(visitor.home, **headers).status == 200

    def test_a_host_in_the_request_line_counts_as_well(self, visitor: Visitor) -> None:
        host, port = visitor.origin.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.request(
            "GET", f"http://evil.example:{port}/", headers={"Host": f"{host}:{port}"}
        )
        assert connection.getresponse().status == 403
        connection.close()

    def test_other_sites_and_other_ports_get_nothing(self, visitor: Visitor) -> None:
        for site, status in (
            *(("cross-site", 403), ("same-site", 403)),
            *(("same-origin", 200), ("none", 200)),
        ):
            assert visitor.get(visitor.home, **{"Sec-Fetch-Site": site}).status == status

    def test_an_answer_from_elsewhere_is_refused(self, visitor: Visitor) -> None:
        asked, page = visitor.ask("form", form())
        fields = {"csrf": page.csrf, "action": "decline"}
        for origin, site in (
            *(("http://evil.example", site) for site in ("cross-site", "same-origin", "")),
            *(("null", ""), ("null", "cross-site"), ("", "")),
            *(("https://127.0.0.1:1", "same-site"), ("http://127.0.0.1:1", "")),
        ):
            headers = {"Origin": origin, "Sec-Fetch-Site": site}
            assert visitor.post(page.url, fields, **headers).status == 403
        assert asked.open
        # Browsers send these with a form of the pages: their policy is `no-referrer`, so `null`.
        ours = {"Origin": "null", "Sec-Fetch-Site": "same-origin"}
        assert visitor.post(page.url, fields, **ours).status == 200
        assert asked.answer().action == "decline"

    def test_each_question_has_a_secret_of_its_own(
        self, browser: Browser, visitor: Visitor
    ) -> None:
        asked = [Asked(browser.form, form(), context()) for _ in range(2)]
        one, other = visitor.waiting(2)
        assert one.csrf != other.csrf
        for csrf in (other.csrf, "", "ü", one.csrf[:-1]):
            refused = visitor.post(one.url, {"csrf": csrf, "action": "send"})
            assert refused.status == 403
            assert "does not belong to the page as it is now" in refused.text
        assert visitor.post(one.url, {"action": "send"}).status == 403
        assert all(one.open for one in asked)
        visitor.send(one, "decline")
        visitor.send(other, "decline")
        assert [one.answer().action for one in asked] == ["decline", "decline"]

    def test_every_response_says_what_a_page_may_do(
        self, browser: Browser, visitor: Visitor
    ) -> None:
        Asked(browser.form, form(), context())
        pages = [
            *visitor.waiting(),
            *map(visitor.get, ("", "state", "page.js", "no-such-page")),
            visitor.get("", Host="evil.example"),
            visitor.post("", {}),
        ]
        assert {page.status for page in pages} == {200, 403, 404, 405}
        for page in pages:
            assert page.headers["Content-Security-Policy"] == (
                "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                "img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
            )
            assert page.headers["X-Content-Type-Options"] == "nosniff"
            assert page.headers["Referrer-Policy"] == "no-referrer"
            assert page.headers["Cache-Control"] == "no-store"
            assert page.headers["X-Frame-Options"] == "DENY"
            assert page.headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert "Access-Control-Allow-Origin" not in page.headers
            assert "Werkzeug" not in page.headers["Server"]

    def test_garbage_disturbs_nobody(self, visitor: Visitor) -> None:
        host, port = visitor.origin.removeprefix("http://").split(":")
        for garbage in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a" * 70_000):
            answer = b""
            with (
                suppress(ConnectionError),  # the server may close the connection before the end
                socket.create_connection((host, int(port)), timeout=PATIENCE) as connection,
            ):
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(65_536):
                    answer += piece
            assert b" 200 " not in answer
        for page in ("questions/x", "writing/x", "static/../app.py", "static/%2e%2e/app.py"):
            assert visitor.get(page).status == 404
        assert visitor.get("").status == 200

    def test_nothing_secret_is_logged(
        self, browser: Browser, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with caplog.at_level(logging.DEBUG):
            token = browser.address.rpartition("/")[2]
            with Visitor(browser) as visitor:
                visitor.get(f"{visitor.origin}/open/{token}")
        ours = [record.getMessage() for record in caplog.records if "syncmcp" in record.name]
        assert token not in "".join(ours) + "".join(capfd.readouterr())


class TestForms:
    @pytest.mark.requirement("M-18", "ELI-05", "ELI-06", "ELI-14")
    def test_each_kind_of_field_gets_its_input(self, browser: Browser, visitor: Visitor) -> None:
        required = ("name", "age", "adult", "country")
        request = form(EVERY_KIND, required)
        call = CausingCall("tools/call", {"name": "borrow"})
        _, page = visitor.ask("form", request, context(server("my books"), call=call))
        names = {name: f"field-{number}" for number, name in enumerate(EVERY_KIND)}

        def input_of(name: str) -> dict[str, str]:
            return page.one("input", name=names[name])

        types = {"name": "text", "mail": "email", "site": "url", "day": "date",
                 "moment": "datetime-local", "age": "number", "share": "number",
                 "password": "password", "news": "checkbox"}  # fmt: skip
        assert {name: input_of(name)["type"] for name in types} == types
        assert page.one("textarea", name=names["about"])
        assert input_of("age").items() >= {("step", "1"), ("min", "0"), ("max", "150")}
        assert input_of("share").items() >= {("step", "any"), ("value", "0.5")}
        assert "required" in input_of("age")
        assert "required" not in input_of("mail")
        assert "checked" in input_of("news")
        assert "checked" in page.all("input", name=names["size"])[1]
        assert len(page.all("input", name=names["size"], type="radio")) == 3
        assert "required" in page.one("select", name=names["country"])
        assert len(page.all("input", name=names["topics"], type="checkbox")) == 2
        assert "checked" not in page.one("input", name=names["adult"])
        assert '<strong class="server">my books</strong>' in page.source
        described = input_of("mail")["aria-describedby"]
        assert page.one("p", id=described)
        for words in ("my books", "Books", "called the tool “borrow”", "Your name",
                      "For the receipt", "Please fill this in.", "A whole number from 0 to 150.",
                      "From 2 to 40 characters.", "In this computer's time zone.",
                      "An e-mail address, like name@example.com.", "At least 1 of the options.",
                      "At least 1 character.", "looks like a secret", "Send me news", "Algebra",
                      "Country 8", "Time to answer"):  # fmt: skip
            assert words in page.text
        assert "A date" not in page.text  # the inputs show dates in the browser's notation
        assert [one["value"] for one in page.all("button")] == ["decline", "cancel", "send"]
        for found in page.all("label"):
            assert "for" not in found or page.all("input", id=found["for"]) or page.all(
                "select", id=found["for"]
            ) or page.all("textarea", id=found["for"])  # fmt: skip

    def test_answers_arrive_with_their_types_and_without_what_is_empty(
        self, visitor: Visitor
    ) -> None:
        asked, page = visitor.ask("form", form(EVERY_KIND, ("name",)))
        sent = ["Ada", "", "", "2026-02-28", "2026-03-01T10:20", "two\r\nlines", "36", "0.25",
                None, "no", "2", "8", ["0", "1"], ""]  # fmt: skip
        fields = {f"field-{n}": value for n, value in enumerate(sent) if value is not None}
        after = visitor.send(page, "send", **fields)
        assert "Your answers were sent." in after.text
        result = asked.answer()
        assert result.action == "accept"
        moment = result.content.pop("moment")  # with the offset of this computer
        assert re.fullmatch(r"2026-03-01T10:20:00(Z|[+-]\d\d:\d\d)", moment)
        assert result.content == {
            "name": "Ada", "day": "2026-02-28", "about": "two\nlines", "age": 36, "share": 0.25,
            "news": False, "adult": False, "size": "l", "country": "8", "topics": ["a", "g"],
        }  # fmt: skip

    @pytest.mark.requirement("ELI-07", "ELI-14")
    def test_what_does_not_fit_comes_back_with_words_beside_each_field(
        self, visitor: Visitor
    ) -> None:
        fields = {name: EVERY_KIND[name] for name in ("name", "mail", "age", "size", "topics")}
        asked, page = visitor.ask("form", form(fields, ("name", "topics")))
        wrong = {"field-0": "A", "field-1": "nowhere", "field-2": "200", "field-3": "7"}
        again = visitor.send(page, "send", **{**wrong, "field-0": ""})
        listed = [link["href"] for link in again.all("a") if link["href"].startswith("#field")]
        assert listed == [f"#field-{number}" for number in range(5)]
        again = visitor.send(again, "send", **wrong)
        assert again.status == 422
        assert asked.open
        for number in range(5):
            assert again.one("p", id=f"field-{number}-problem")
            assert again.one("a", href=f"#field-{number}")
        assert again.one("input", name="field-0")["value"] == "A"
        assert again.one("input", name="field-1")["aria-invalid"] == "true"
        assert again.one("input", name="field-2")["value"] == "200"
        right = {"field-0": "Ada", "field-1": "a@example.com", "field-2": "20", "field-3": "",
                 "field-4": "1"}  # fmt: skip
        visitor.send(again, "send", **right)
        assert asked.answer().content == {
            "name": "Ada", "mail": "a@example.com", "age": 20, "topics": ["g"],
        }  # fmt: skip

    @pytest.mark.requirement("ELI-06", "ELI-08")
    @pytest.mark.parametrize(
        ("kind", "about", "last", "action"),
        [("form", form({"a": {"type": "string"}}, ("a",)), "send", "cancel"),
         ("url", link(), "consent", "decline")],
    )  # fmt: skip
    def test_saying_no_sends_nothing_and_leaves_nothing_to_open(
        self, kind: str, about: Any, last: str, visitor: Visitor, action: str
    ) -> None:
        asked, page = visitor.ask(kind, about)
        assert [one["value"] for one in page.all("button")] == ["decline", "cancel", last]
        after = visitor.send(page, action, **{"field-0": "half an answer"})
        assert f"You {action}" in after.text
        assert mentions(after, "example") == []
        assert asked.answer() == ElicitResult(action=action)  # type: ignore[arg-type]

    def test_defaults_are_seen_and_sent_as_they_came_and_what_a_person_types_is_kept(
        self, visitor: Visitor
    ) -> None:
        defaults = {"at": "2026-03-01T10:20:30.5Z", "text": "one\ntwo", "hidden": "a\u200bb",
                    "password": "I agree to pay"}  # fmt: skip
        own = "\U0001f469\u200d\U0001f680 <&>"
        fields: dict[str, Any] = {
            name: {"type": "string", "default": default} for name, default in defaults.items()
        }
        fields["at"]["format"] = "date-time"
        asked, page = visitor.ask(
            "form",
            form({**fields, "b": {"type": "string"}, "c": {"type": "string", "minLength": 2}}),
        )
        at, hidden, secret = (page.one("input", name=f"field-{number}") for number in (0, 2, 3))
        assert "Z" not in at["value"]
        assert hidden["value"] == "a<U+200B>b"
        assert secret["type"] == "text"
        sent = [at["value"], "one\r\ntwo", hidden["value"], secret["value"], own]
        typed = {f"field-{number}": text for number, text in enumerate(sent)}
        again = visitor.send(page, "send", **typed, **{"field-5": "x"})
        assert again.one("input", name="field-2")["value"] == hidden["value"]
        assert again.one("input", name="field-4")["value"] == own
        visitor.send(again, "send", **typed)
        assert asked.answer().content == {**defaults, "b": own}

    @pytest.mark.parametrize(
        ("kind", "about", "error"),
        [("form", form({"a": {"type": "object"}}), UnsupportedForm),
         ("url", link("javascript:alert(1)"), UnsafeLink)],
    )  # fmt: skip
    def test_what_no_person_should_answer_is_not_shown(
        self, kind: str, about: Any, error: type[Exception], browser: Browser, visitor: Visitor
    ) -> None:
        with pytest.raises(error):
            getattr(browser, kind)(about, context())
        assert visitor.state()["waiting"] == []

    @pytest.mark.requirement("ELI-07")
    def test_answers_of_a_program_are_looked_over_and_edited(self, visitor: Visitor) -> None:
        asking = form({"name": {"type": "string"}, "age": {"type": "integer"}})
        given = ElicitResult(action="accept", content={"name": "Bob", "age": 7})
        asked, page = visitor.ask("review", question("form", asking, answer=given))
        assert page.one("input", name="field-0")["value"] == "Bob"
        visitor.send(page, "send", **{"field-0": "Eve", "field-1": "7"})
        edited = ElicitResult.accept({"name": "Eve", "age": 7})
        assert asked.answer() == Verdict.allow(answer=edited)
        asked, page = visitor.ask("review", question("form", asking, answer=given))
        assert visitor.send(page, "send", **{"field-0": "", "field-1": "x"}).status == 422
        visitor.send(page, "decline", **{"field-0": "Eve", "field-1": "7"})
        assert not asked.answer().allowed

    def test_what_a_program_answered_is_seen_and_sent_as_it_is(self, visitor: Visitor) -> None:
        """Neither the name of a field nor the length of an answer hides any part of the answer."""
        content: dict[str, Any] = {
            "pin": "12 Elm Street", "note": "one\ntwo", "hidden": "a\u200bb",
            "long": f"yes{' ' * 300}and the rest", "page": f"https://example.com/{'x' * 300}",
            "at": "2026-03-01T10:20:30.5Z", "empty": "",
        }  # fmt: skip
        fields: dict[str, Any] = {name: {"type": "string"} for name in content}
        fields["page"]["format"], fields["at"]["format"] = "uri", "date-time"
        given = ElicitResult(action="accept", content=content)
        asked, page = visitor.ask("review", question("form", form(fields), answer=given))
        assert page.one("input", name="field-0")["type"] == "text"
        for number in (1, 3, 4):
            assert page.one("textarea", name=f"field-{number}")
        shown = [page.one("input", name=f"field-{number}")["value"] for number in (0, 2, 5, 6)]
        pin, hidden, at, empty = shown
        sent = (pin, "one\r\ntwo", hidden, content["long"], content["page"], at, empty)
        visitor.send(page, "send", **{f"field-{n}": text for n, text in enumerate(sent)})
        answer: Any = asked.answer().answer
        assert answer.content == content

    def test_no_row_of_a_form_cuts_a_text_off(self, visitor: Visitor) -> None:
        """An input of one line, or a list, would show only the beginning of a long text."""
        fits, goes_on = "x" * 40, f"{'x' * 40} and 100 dollars"
        options = [{"const": str(number), "title": str(number)} for number in range(9)]
        fields: dict[str, Any] = {
            "text": {"type": "string", "default": goes_on},
            "mail": {"type": "string", "format": "email", "default": f"{fits}@example.com"},
            "number": {"type": "integer", "default": 10**40},
            "choice": {"type": "string", "oneOf": [*options, {"const": "x", "title": goes_on}]},
            "short": {"type": "string", "default": fits},
            "few": {"type": "integer", "default": 7},
            "list": {"type": "string", "oneOf": [*options, {"const": "x", "title": fits}]},
        }
        asked, page = visitor.ask("form", form(fields))
        for number in range(3):
            assert page.one("textarea", name=f"field-{number}")
        assert len(page.all("input", name="field-3", type="radio")) == 11
        shown = [page.one("input", name=f"field-{number}")["type"] for number in (4, 5)]
        assert shown == ["text", "number"]
        assert page.one("select", id="field-6")
        visitor.send(page, "send", **{"field-2": str(10**40), "field-3": "9", "field-5": "8"})
        assert asked.answer().content == {"number": 10**40, "choice": "x", "few": 8}


class TestSampling:
    @pytest.mark.requirement("M-17", "SAMP-08", "SAMP-09")
    def test_the_card_shows_all_that_is_asked_for(self, visitor: Visitor) -> None:
        request = sampling(
            "# Title\nSome **bold** words",
            systemPrompt="Be brief.",
            temperature=0.7,
            stopSequences=["END"],
            includeContext="allServers",
            metadata={"project": "p-1"},
            modelPreferences={"hints": [{"name": "claude"}, {"name": "gpt"}], "costPriority": 0.3},
            tools=[{"name": "look_up", "description": "Looks up", "inputSchema": {}}],
            toolChoice={"mode": "required"},
        )
        asked, page = visitor.ask("review", question("sampling", request))
        for words in ("library", "Messages", "claude, gpt", "cost 0.3", "'END'", "allServers",
                      "p-1", "Be brief.", "look_up", "Looks up", "required",
                      "Some bold words"):  # fmt: skip
            assert words in page.text, words
        assert page.one("input", name="max-tokens")["value"] == "500"
        assert page.one("input", name="temperature")["value"] == "0.7"
        assert page.all("strong")
        assert page.all("details")
        assert "no model was asked" in visitor.send(page, "deny").text
        assert not asked.answer().allowed

    def test_a_request_that_is_left_alone_goes_on_unchanged(self, visitor: Visitor) -> None:
        text = "\n\nodd\r\n\u200btext\u202e \r\n"
        request = sampling(text, "other", systemPrompt=text, temperature=0.123456789)
        asked, page = visitor.ask("review", question("sampling", request))
        as_browsers_do = "\r\n\r\nodd\r\n<U+200B>text<U+202E> \r\n"
        fields = {"message-0-0": as_browsers_do, "message-1-0": "other", "system": as_browsers_do,
                  "max-tokens": "500", "temperature": "0.123456789"}  # fmt: skip
        visitor.send(page, "approve", **fields)
        assert asked.answer() == Verdict.allow()

    @pytest.mark.requirement("M-17")
    def test_what_is_approved_is_exactly_what_was_edited(self, visitor: Visitor) -> None:
        request = sampling("one", "two", systemPrompt="Old.", temperature=1.0, unknown={"kept": 1})
        asked, page = visitor.ask("review", question("sampling", request))
        fields = {"message-0-0": "one", "message-1-0": "zwei\r\ndrei", "system": "New.",
                  "max-tokens": "20", "temperature": ""}  # fmt: skip
        visitor.send(page, "approve", **fields)
        verdict = asked.answer()
        assert verdict.allowed
        expected = sampling(
            "one", "zwei\ndrei", systemPrompt="New.", maxTokens=20, unknown={"kept": 1}
        )
        assert verdict.request.to_wire() == expected.to_wire()

    def test_a_request_made_with_constructors_can_be_edited_as_well(self, visitor: Visitor) -> None:
        request = sampling()
        request.messages = [SamplingMessage(role="user", content=[TextContent(text="a")])]
        asked, page = visitor.ask("review", question("sampling", request))
        visitor.send(page, "approve", **{"message-0-0": "b", "system": "S"})
        edited: Any = asked.answer().request
        assert edited.messages[0].text == "b"
        assert edited.system_prompt == "S"

    def test_limits_that_are_none_or_above_those_of_the_server_come_back(
        self, visitor: Visitor
    ) -> None:
        asked, page = visitor.ask("review", question("sampling"))
        wrong = {"max-tokens": "many", "temperature": "nan", "message-0-0": "edited"}
        again = visitor.send(page, "approve", **wrong)
        assert again.status == 422
        assert again.one("p", id="max-tokens-problem")
        assert again.one("p", id="temperature-problem")
        assert "edited" in again.text, "an edit survives a mistake elsewhere"
        assert asked.open
        again = visitor.send(again, "approve", **{"max-tokens": "501"})
        assert again.status == 422
        assert again.one("p", id="max-tokens-problem")
        assert "at most 500" in again.text
        visitor.send(again, "approve", **{"max-tokens": "500"})
        assert asked.answer().request is None

    @pytest.mark.parametrize(("sent", "edited"), [("Something.", False), ("Else.", True)])
    def test_the_answer_is_reviewed_and_edited(
        self, visitor: Visitor, sent: str, edited: bool
    ) -> None:
        answer = written(stopReason="endTurn", unknown=1)
        asked, page = visitor.ask("review", question("sampling", answer=answer))
        assert "parrot-1" in page.text
        assert "endTurn" in page.text
        visitor.send(page, "approve", **{"answer-0": sent})
        changed = written(sent, stopReason="endTurn", unknown=1) if edited else None
        assert asked.answer() == Verdict.allow(answer=changed)

    def test_pictures_are_shown_if_they_are_some_and_never_fetched(self, visitor: Visitor) -> None:
        svg = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4="
        images = [(DOT, "image/png"), (DOT, "text/html"), (svg, "image/svg+xml"),
                  (svg, "image/png"), ("no base64!", "image/png"),
                  ("A" * 4_000_000, "image/png")]  # fmt: skip
        content = [{"type": "image", "data": data, "mimeType": kind} for data, kind in images]
        content.append({"type": "text", "text": "![x](https://evil.example/x.png)"})
        _, page = visitor.ask("review", question("sampling", sampling(content=content)))
        assert [found["src"] for found in page.all("img")] == [f"data:image/png;base64,{DOT}"] * 2
        assert page.text.count("cannot be shown safely") == 4
        assert "![x](https://evil.example/x.png)" in page.text

    def test_tools_in_a_conversation_are_shown(self, visitor: Visitor) -> None:
        use = {"type": "tool_use", "id": "1", "name": "look_up", "input": {"word": "<b>"}}
        result = {"type": "tool_result", "toolUseId": "1", "structuredContent": {"found": 3},
                  "content": [{"type": "text", "text": "three"},
                              {"type": "resource_link", "name": "r", "uri": "file:///r"},
                              {"type": "resource",
                               "resource": {"uri": "u:1", "text": "inside"}}]}  # fmt: skip
        others = [{"type": "audio", "data": "", "mimeType": "audio/wav"}, {"type": "odd", "x": 1}]
        content = [use, result, *others]
        _, page = visitor.ask("review", question("sampling", sampling(content=content)))
        for words in ("look_up", '"<b>"', '"found": 3', "three", "file:///r", "inside",
                      "audio/wav", "odd"):  # fmt: skip
            assert words in page.text, words
        assert not page.all("textarea", name="message-0-1-0"), "what a tool gave is not edited"

    def test_no_words_of_a_content_pass_for_those_of_the_program(self, visitor: Visitor) -> None:
        forged = f"x). {'This program has checked all of it. ' * 9}("
        content = [
            {"type": "image", "data": "", "mimeType": forged},
            {"type": "audio", "data": "", "mimeType": forged},
            {"type": "tool_use", "id": "1", "name": forged, "input": {}},
            {"type": "tool_result", "toolUseId": "1", "content": [
                {"type": "resource_link", "name": "r", "uri": forged},
                {"type": "resource", "resource": {"uri": forged, "text": "inside"}}]},
        ]  # fmt: skip
        call = CausingCall("tools/call", {"name": f"pay. {'This program has checked it. ' * 9}"})
        about = question("sampling", sampling(content=content), within=context(call=call))
        _, page = visitor.ask("review", about)
        assert re.search(r"called the tool “pay. This program.* more characters\)”\.", page.text)
        notes = re.findall('<p class="quiet">(.*?)</p>', page.source)
        assert len([note for note in notes if "“x)." in note and "more characters)”" in note]) == 5
        assert not [note for note in notes if len(note) > 250]

    def test_what_an_overview_has_no_place_for_is_cut_and_on_the_page_all_the_same(
        self, visitor: Visitor
    ) -> None:
        end = "word " * 20_000 + "the end of it"
        tools = [{"name": f"t{n}", "inputSchema": {"description": f"s{n}."}} for n in range(60)]
        request = sampling(end, *(f"message {n}" for n in range(150)), tools=tools)
        asked, page = visitor.ask("review", question("sampling", request))
        for words in (end, "message 149", "s59.", "Too long to edit here.",
                      "50,013 more characters", "51 more messages"):  # fmt: skip
            assert words in page.text
        visitor.send(page, "approve", **{"message-1-0": "edited"})
        edited: Any = asked.answer().request
        assert edited.messages[0].text == end
        assert edited.messages[1].text == "edited"
        assert len(edited.messages) == 151
        answer = written(content=[{"type": "text", "text": f"part {n}"} for n in range(60)])
        asked, page = visitor.ask("review", question("sampling", answer=answer))
        assert "part 59" in page.text
        assert "nothing was sent" in visitor.send(page, "deny").text
        assert not asked.answer().allowed
        for kind, made in (("form", form(message=end)), ("url", link(message=end))):
            asked, page = visitor.ask(kind, made, context())
            assert "the end of it" in page.text
            visitor.send(page, "decline")
            asked.answer()

    def test_no_text_passes_for_the_bytes_of_a_picture(self, visitor: Visitor) -> None:
        """Neither `data` in JSON with the members of a picture, nor invalid base64."""

        def picture(words: str) -> dict[str, str]:
            return {"type": "image", "data": words, "mimeType": "image/png"}

        content = [
            picture(DOT),
            picture("first, obey"),
            {"type": "tool_use", "id": "1", "name": "t", "input": picture("SecondObey")},
            {"type": "tool_result", "toolUseId": "1", "content": [picture(DOT)],
             "structuredContent": picture("ThirdObey")},
        ]  # fmt: skip
        tools = [{"name": "t", "inputSchema": {"properties": picture("FourthObey")}}]
        request = sampling(content=content, tools=tools, metadata=picture("FifthObey"))
        _, page = visitor.ask("review", question("sampling", request))
        (whole,) = re.findall(
            "as the server sent it</summary><pre.*?>(.*?)</pre>", page.source, re.DOTALL
        )
        for words in ("first, obey", "SecondObey", "ThirdObey", "FourthObey", "FifthObey"):
            assert words in whole
        assert whole.count(f"({len(DOT)} characters of base64)") == 2

    def test_no_words_of_a_form_stand_where_the_page_names_things(self, visitor: Visitor) -> None:
        fields = {"a": {"type": "string", "title": "Checked by this program", "description": "ok"}}
        _, page = visitor.ask("review", question("form", form(fields)))
        assert re.findall("<dt>(.*?)</dt>", page.source) == ["Message", "Its fields"]
        assert "Checked by this program: ok" in page.text

    @pytest.mark.requirement("M-17")
    def test_the_text_so_far_is_shown_and_can_be_stopped(
        self, browser: Browser, visitor: Visitor
    ) -> None:
        within = context()
        asked, page = visitor.ask("review", question("sampling", within=within))
        after = visitor.send(page, "approve")
        key = after.key
        assert visitor.state(key)["next"] is None
        browser.update(question("sampling", within=within), "Once <b>upon\u202e")
        live = visitor.get(visitor.state(key)["next"])
        assert "Once <b>upon<U+202E>" in live.text
        assert not live.all("b")
        browser.update(question("sampling", within=within), "Once upon a time")
        assert visitor.state(live.key)["text"] == "Once upon a time"
        assert not within.cancel.cancelled
        assert "You stopped it" in visitor.send(live, "stop").text
        assert within.cancel.cancelled
        assert asked.answer().allowed
        browser.update(question("sampling", within=within), "too late")
        assert visitor.state()["waiting"] == []


class TestLinks:
    @pytest.mark.requirement("ELI-08", "ELI-09", "ELI-10", "ELI-11", "ELI-12", "ELI-13")
    def test_a_link_can_be_opened_only_after_a_yes(self, visitor: Visitor) -> None:
        url = "https://pay.example.com:8443/42?next=https://other.example&x=<"
        within = context()
        url = url.replace("<", "%3C")
        asked, page = visitor.ask("url", link(url, "See https://elsewhere.example"), within)
        assert url in page.text
        assert "<mark>pay.example.com:8443</mark>" in page.source
        assert mentions(page, "example") == []  # no tag leads there before the consent
        after = visitor.send(page, "consent")
        assert asked.answer().action == "accept"
        assert mentions(after, "example") == [("a", "href", url)]
        (opening,) = after.all("a", href=url)
        assert opening["rel"] == "noopener noreferrer"
        assert opening["target"] == "_blank"
        assert not within.wait_completed(0)
        done = visitor.send(after, "done")
        assert within.wait_completed(0)
        assert not within.cancel.cancelled
        assert "The visit is done." in done.text

    @pytest.mark.requirement("ELI-17")
    def test_who_agreed_can_still_give_up(self, visitor: Visitor) -> None:
        within = context()
        asked, page = visitor.ask("url", link(), within)
        after = visitor.send(page, "consent")
        asked.answer()
        assert "Nobody is waiting for the visit any more." in visitor.send(after, "give-up").text
        assert within.cancel.cancelled

    def test_odd_links_carry_their_warnings(self, visitor: Visitor) -> None:
        asked, page = visitor.ask("url", link("https://xn--pypal-4ve.com/"))
        assert page.all("ul", **{"class": "notice wrong"})
        visitor.send(page, "decline")
        assert asked.answer().action == "decline"


class TestConsent:
    @pytest.mark.parametrize(
        ("trusted", "hints", "action"),
        [(False, None, "approve"), (False, ToolAnnotations(read_only_hint=True), "remember"),
         (True, None, "remember"), (True, ToolAnnotations(read_only_hint=False), "approve")],
    )  # fmt: skip
    def test_a_call_that_may_change_something_takes_a_word(
        self, visitor: Visitor, trusted: bool, hints: ToolAnnotations | None, action: str
    ) -> None:
        call = ToolCall("rm", {"path": "/"}, hints)
        asked, page = visitor.ask("review", question("tool", call, of=server(trusted=trusted)))
        for word in ({}, {"word": ""}, {"word": "yes"}):
            page = visitor.send(page, action, **word)
            assert page.status == 422
            assert page.one("p", id="word-problem")
            assert asked.open
        assert page.one("input", name="word")["value"] == "yes"
        visitor.send(page, action, word=" run ")
        assert asked.answer() == Verdict.allow(remember=action == "remember")

    @pytest.mark.parametrize(("length", "whole"), [(3_984, True), (3_985, False)])
    def test_all_arguments_of_a_call_are_on_the_page(
        self, visitor: Visitor, length: int, whole: bool
    ) -> None:
        text = ("a\u202e" * length)[: length - 8] + "rm -rf /"
        _, page = visitor.ask("review", question("tool", ToolCall("sh", {"text": text}, None)))
        assert text.replace("\u202e", "<U+202E>") in page.text
        overview = page.text[: page.text.index("All of the arguments")]
        assert (text.replace("\u202e", "<U+202E>") in overview) is whole
        if not whole:
            assert re.search(r": 1 \([\d,]+ characters; both ends of each\)", overview)
            assert "rm -rf /" in overview
            assert f"{length - 300:,} of {length:,} characters are not shown" in overview

    @pytest.mark.requirement("M-14")
    @pytest.mark.parametrize(
        ("trusted", "words"),
        [(True, "The server says it only reads"), (False, "The server, unchecked, says it only")],
    )
    def test_that_a_call_only_reads_is_the_word_of_a_server_which_counts_if_it_is_trusted(
        self, visitor: Visitor, trusted: bool, words: str
    ) -> None:
        call = ToolCall("ls", {}, ToolAnnotations(read_only_hint=True))
        asked, page = visitor.ask("review", question("tool", call, of=server(trusted=trusted)))
        assert words in page.text.replace("says", "says ").replace("  ", " ")
        assert bool(page.all("input", name="word")) is not trusted
        visitor.send(page, "approve", **({} if trusted else {"word": "run"}))
        assert asked.answer() == Verdict.allow()

    @pytest.mark.parametrize(
        ("about", "words", "action", "verdict"),
        [
            ({"kind": "form", "request": form(EVERY_KIND)}, "Your name", "approve", ALLOW),
            ({"kind": "url"}, "<mark>pay.example.com</mark>", "approve", ALLOW),
            ({"kind": "url", "answer": ElicitResult.accept()}, "agreed for you", "approve", ALLOW),
            ({"kind": "roots"}, "", "remember", Verdict.allow(remember=True)),
            ({"kind": "roots"}, "", "deny", Verdict.deny("a person said no")),
        ],
    )
    def test_a_program_may_be_let_do_what_it_would(
        self, visitor: Visitor, about: Any, words: str, action: str, verdict: Verdict
    ) -> None:
        asked, page = visitor.ask("review", question(**about))  # made here: its time limit begins
        assert words in page.source
        visitor.send(page, action)
        assert asked.answer() == verdict

    def test_the_roots_that_a_server_would_get_are_listed(
        self, visitor: Visitor, tmp_path: Path
    ) -> None:
        (tmp_path / "a").mkdir()
        sent = (to_root(tmp_path), to_root(tmp_path / "a", "Mine"))
        _, page = visitor.ask("review", replace(question("roots"), roots=sent))
        assert f"{tmp_path}\n{tmp_path / 'a'} (Mine)" in page.text

    def test_what_the_policy_decides_nobody_is_asked(self, browser: Browser) -> None:
        with pytest.raises(Denied):
            AskInBrowser(DenyAll(), browser=browser).review_request(question("tool"))

    def test_a_call_of_ours_without_a_question_is_bounded_too(self) -> None:
        with Browser(open_page=None, human_timeout=0.0) as browser, pytest.raises(Denied):
            AskInBrowser(browser=browser).before_call("t", {}, None, server())


class TestTheEnd:
    @pytest.mark.requirement("M-20")
    def test_a_withdrawn_question_says_so(self, visitor: Visitor) -> None:
        cancel = CancelToken()
        asked, page = visitor.ask("form", form(), context(cancel=cancel))
        cancel.cancel("the server thought again")
        assert asked.answer().action == "cancel"
        key = page.key
        assert visitor.state(key)["state"] == "withdrawn"
        late = visitor.send(page, "send")
        assert "withdrawn" in late.text
        assert not late.all("form")

    @pytest.mark.requirement("M-20")
    def test_a_question_out_of_time_says_so(self, visitor: Visitor, clock: Clock) -> None:
        within = context(timeout=300.0)
        asked, page = visitor.ask("review", question("sampling", within=within))
        assert page.all("strong", id="left")
        clock.advance(250)
        assert re.fullmatch(r"\d\d s", visitor.state(page.key)["left"])
        clock.advance(50)
        within.cancel.cancel()  # as the library does at the time limit
        with pytest.raises(Denied, match="nobody answered"):
            asked.answer()
        assert "Time ran out" in visitor.get(page.url).text

    @pytest.mark.requirement("M-19", "M-20")
    def test_nobody_looks_and_nothing_hangs(self, browser: Browser) -> None:
        assert browser.form(form(), context(timeout=0.05)).action == "cancel"
        assert browser.url(link(), context(timeout=0.05)).action == "cancel"
        with pytest.raises(Denied, match="nobody answered"):
            browser.review(question("tool", within=context(timeout=0.05)))
        gone = CancelToken()
        gone.cancel()
        assert browser.form(form(), context(cancel=gone, timeout=None)).action == "cancel"

    def test_the_first_answer_counts(self, visitor: Visitor) -> None:
        asked, page = visitor.ask("form", form())
        visitor.send(page, "decline")
        late = visitor.send(page, "send")
        assert "You declined" in late.text
        assert asked.answer().action == "decline"

    def test_closing_answers_what_waits_and_refuses_what_comes(self, browser: Browser) -> None:
        with Visitor(browser) as visitor:
            asked = Asked(browser.form, form(), context())
            visitor.waiting()
            browser.close()
        assert asked.answer().action == "cancel"
        assert browser.form(form(), context()).action == "cancel"
        with pytest.raises(Denied, match="nobody answered"):
            browser.review(question("tool"))
        with pytest.raises(ClosedError):
            browser.start()
        with pytest.raises(ClosedError):
            _ = browser.address
        browser.close()

    def test_closing_ends_the_connections_of_the_browser(self, browser: Browser) -> None:
        host, port = browser.address.split("/")[2].split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as idle:
            # The server answers the next connection, so it has accepted this one.
            with Visitor(browser):
                browser.close()
            assert idle.recv(1) == b""

    def test_what_is_over_is_forgotten_after_a_while(
        self, browser: Browser, visitor: Visitor
    ) -> None:
        gone = CancelToken()
        asked, page = visitor.ask("form", form(), context(cancel=gone))
        gone.cancel()
        asked.answer()
        assert visitor.get(page.url).status == 200
        for _ in range(100):
            browser.form(form(), context(cancel=gone))
        assert visitor.get(page.url).status == 404

    def test_several_questions_wait_side_by_side(self, browser: Browser, visitor: Visitor) -> None:
        asked = []
        for number in range(3):
            asked.append(Asked(browser.form, form(), context(server(f"server {number}"))))
            visitor.waiting(number + 1)
        first, second, third = visitor.waiting(3)
        listed = visitor.get("")
        assert listed.text.index("server 0") < listed.text.index("server 2")
        assert "server 1" in first.text
        assert "server 1" in second.text
        visitor.send(second, "decline")
        assert asked[1].answer().action == "decline"
        assert [one.open for one in asked] == [True, False, True]
        visitor.send(third, "decline")
        after = visitor.send(first, "send")
        assert [one.answer().action for one in asked] == ["accept", "decline", "decline"]
        assert not after.all("li")
        assert "There are no questions" in visitor.get("").text


class TestForeignText:
    @pytest.mark.requirement("SAMP-08")
    def test_nothing_of_it_is_obeyed_anywhere(self, browser: Browser, visitor: Visitor) -> None:
        fields: dict[str, Any] = {
            HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE,
                      "default": HOSTILE},
            "b": {"type": "string", "oneOf": [{"const": HOSTILE, "title": HOSTILE}]},
        }  # fmt: skip
        tool = {"name": HOSTILE, "description": HOSTILE, "inputSchema": {}}
        asking = sampling(
            f"```{HOSTILE}\n{HOSTILE}\n```\n# {HOSTILE}\n- {HOSTILE}\n> {HOSTILE}\n`{HOSTILE}`",
            systemPrompt=HOSTILE, stopSequences=[HOSTILE], metadata={HOSTILE: HOSTILE},
            modelPreferences={"hints": [{"name": HOSTILE}]}, tools=[tool],
            includeContext=HOSTILE, toolChoice={"mode": HOSTILE},
        )  # fmt: skip
        liar = server("library", info={"name": HOSTILE, "version": "1"})
        call = CausingCall("tools/call", {"name": HOSTILE})
        within = context(liar, call=call)
        given = ElicitResult(action="accept", content={HOSTILE: HOSTILE})
        asked: list[Asked[Any]] = [
            Asked(browser.form, form(fields, message=HOSTILE), within),
            Asked(browser.url, link(message=HOSTILE), within),
            Asked(browser.review, question("form", form(fields), within=within)),
            Asked(browser.review, question("form", form(fields), answer=given, within=within)),
            Asked(browser.review, question("sampling", asking, within=within)),
            Asked(
                browser.review,
                question("sampling", answer=written(HOSTILE, stopReason=HOSTILE), within=within),
            ),
        ]
        visitor.waiting(len(asked))
        writing = context(liar)
        browser.update(question("sampling", within=writing), HOSTILE)
        pages = visitor.waiting(len(asked) + 1)
        assert [bool(page.all("pre", id="live")) for page in pages] == [False] * len(asked) + [True]
        for page in pages:
            assert HARMLESS in page.text
            self.assert_harmless(page)

    @staticmethod
    def assert_harmless(page: Page) -> None:
        (script,) = page.all("script")
        assert script["src"].endswith("/page.js")
        assert not page.all("img")
        for control in "\x00\x1b\u202e":
            assert control not in page.source
        for _, attributes in page.tags:
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            assert "evil.example" not in attributes.get("src", "") + attributes.get("href", "")

    def test_the_banner_names_the_server_as_the_program_does(
        self, browser: Browser, visitor: Visitor
    ) -> None:
        liar = server("library", info={"name": "bank, which this program trusts", "version": "1"})
        _, page = visitor.ask("form", form(message="Asked by the server bank."), context(liar))
        assert '<strong class="server">library</strong>.' in page.source
        assert "“bank, which this program trusts”" in page.text

    def test_a_name_that_a_file_chose_is_told_as_such(
        self, browser: Browser, visitor: Visitor
    ) -> None:
        for name, told in ((FileChosenName("bank"), True), ("bank", False)):
            asked, page = visitor.ask("form", form(), context(server(name)))
            assert ("bank, a name that a servers file chose." in page.text) is told
            visitor.send(page, "decline")
            asked.answer()


class TestRoots:
    def test_directories_are_added_and_removed(self, tmp_path: Path, browser: Browser) -> None:
        one, other = tmp_path / "one", tmp_path / "<b>other"
        one.mkdir()
        other.mkdir()
        roots = Roots([one])
        with Visitor(browser) as visitor:
            assert visitor.get("directories").status == 404
            assert "Directories" not in visitor.get("").text
            browser.roots = roots
            assert "Directories" in visitor.get("").text
            page = visitor.get("directories")
            assert str(one) in page.text
            assert "file:" not in page.text
            assert page.one("button", value="remove")["aria-label"] == f"Remove {one}"
            page = visitor.send(page, "add", path=str(other), name="<i>Other")
            assert "<i>Other" in page.text
            assert not page.all("i")
            assert [status.root.uri for status in roots.list()] == [one.as_uri(), other.as_uri()]
            page = visitor.send(page, "remove", uri=one.as_uri())
            assert [status.root.uri for status in roots.list()] == [other.as_uri()]
            again = visitor.send(page, "add", path=str(tmp_path / "no such"), name="kept")
            assert again.status == 422
            assert again.one("p", id="path-problem")
            assert again.one("input", name="name")["value"] == "kept"
            other.rmdir()
            page = visitor.get("directories")
            assert "missing" in page.text
            page = visitor.send(page, "remove", uri=other.as_uri())
            assert "None: this program tells its servers about no directory." in page.text
            assert roots.list() == []
            refused = visitor.post("directories", {"csrf": "x", "action": "remove"})
            assert refused.status == 403


class TestOpening:
    def test_a_page_is_opened_when_there_is_a_question_and_no_page(self) -> None:
        opened: queue.SimpleQueue[str] = queue.SimpleQueue()
        with Browser(open_page=opened.put) as browser:
            assert opened.empty()
            first = Asked(browser.form, form(), context())
            assert address_in(opened.get(timeout=PATIENCE)) == browser.address
            with Visitor(browser) as visitor:
                (page,) = visitor.waiting()
                second = Asked(browser.form, form(), context())
                visitor.waiting(2)
                assert opened.empty()
                visitor.send(page, "decline")
                assert first.answer().action == "decline"
        assert second.answer().action == "cancel"

    @pytest.mark.requirement("SEC-04")
    def test_by_default_the_browser_gets_a_file_and_no_shell_does(
        self, started: queue.Queue[list[str]]
    ) -> None:
        with AskInBrowser().browser as browser:
            asked = Asked(browser.form, form(), context())
            program, file = started.get(timeout=PATIENCE)
            assert program == "browser"
            assert address_in(file) == browser.address
        assert asked.answer().action == "cancel"
        assert started.empty()

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_browser_that_cannot_be_opened_is_a_line_in_the_log(
        self, caplog: pytest.LogCaptureFixture, fails: bool
    ) -> None:
        def open_page(address: str) -> bool:
            if fails:
                raise OSError("no display")
            return False

        with Browser(open_page=open_page) as browser:
            asked = [Asked(browser.form, form(), context())]
            until(lambda: caplog.text.count("could not open") == 1)
            asked.append(Asked(browser.form, form(), context()))
            until(lambda: caplog.text.count("could not open") == 2)
            assert browser.address not in caplog.text
        assert [one.answer().action for one in asked] == ["cancel", "cancel"]

    def test_without_a_package_it_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for package in ("markdown_it", "flask"):
            monkeypatch.setitem(sys.modules, package, None)
            with pytest.raises(UsageError, match=rf"{package}: install syncmcp-client\[browser\]"):
                AskInBrowser()

    def test_the_environment_cannot_switch_debugging_on(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FLASK_DEBUG", "1")
        with Browser(open_page=None) as browser, Visitor(browser) as visitor:
            assert "Traceback" not in visitor.get("no-such-page").text
            assert visitor.get("console").status == 404


class TestThroughAClient:
    @pytest.mark.requirement("M-17", "M-18", "M-19")
    @pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
    def test_a_server_asks_and_a_person_answers(self, browser: Browser, mode: syncmcp.Mode) -> None:
        asking = Server("asking")
        writing = threading.Event()

        @asking.tool()
        def explain(context: ToolContext) -> str:
            """Ask what to explain, and have it explained."""
            fields = {"what": {"type": "string"}, "short": {"type": "boolean", "default": True}}
            form = context.elicit("What?", {"type": "object", "properties": fields})
            answer = context.sample(str(form["content"]), max_tokens=50)
            return str(answer["content"]["text"])

        def model(
            request: CreateMessageRequestParams, context: HandlerContext
        ) -> CreateMessageResult:
            context.show("So far")
            assert writing.wait(PATIENCE)
            said = TextContent(text=f"About {request.messages[0].text}")
            return CreateMessageResult(role="assistant", content=said, model="parrot-1")

        with (
            syncmcp.connect(
                asking,
                mode=mode,
                name="my server",
                elicitation=browser,
                sampling=model,
                approval=AskInBrowser(browser=browser),
            ) as client,
            Visitor(browser) as visitor,
        ):
            call = client.call_tool.future("explain")
            (page,) = visitor.waiting()
            assert "my server" in page.text
            assert "because this program called the tool “explain”." in page.text
            visitor.send(page, "send", **{"field-0": "<rings>", "field-1": "yes"})
            (page,) = visitor.waiting()
            assert "<rings>" in page.text
            after = visitor.send(page, "approve", **{"message-0-0": "fields"})
            live = until(lambda: visitor.state(after.key)["next"])
            assert "So far" in visitor.get(live).text
            writing.set()
            review = until(lambda: visitor.state(live.rpartition("/")[2])["next"])
            visitor.send(visitor.get(review), "approve", **{"answer-0": "About all fields"})
            assert call.result(PATIENCE).text == "About all fields"
            assert visitor.state()["waiting"] == []
