"""The text of the pages in each state: who asks and why, the decision, the next question."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from syncmcp.approval import Kind, ToolCall
from syncmcp.errors import UsageError
from syncmcp.handlers import CausingCall
from syncmcp.handlers.roots import Roots
from syncmcp.types import CreateMessageResult, Tool, ToolAnnotations
from syncmcp.ui.browser import Browser
from syncmcp.ui.everything import MOST_SHOWN, check_length
from tests.support.stage import Clock
from tests.ui.asking import Asked, context, form, link, question, sampling, server, written
from tests.ui.visitor import Visitor


def tool(title: str = "", description: str = "") -> Tool:
    wire = {"name": "move", "title": title, "description": description, "inputSchema": {}}
    return Tool.from_wire(wire)


class TestWhoDoesNotGetIn:
    @pytest.mark.parametrize("where", ["used link", "without the cookie", "no such page"])
    def test_they_see_a_page_with_the_look_of_the_others(
        self, where: str, browser: Browser, visitor: Visitor
    ) -> None:
        used = browser.address
        visitor.get(used)
        if where == "without the cookie":
            visitor.session.cookies.clear()
        page = visitor.get({"used link": used, "no such page": "questions/x"}.get(where, ""))
        assert page.status == (404 if where == "no such page" else 403)
        assert page.all("div", **{"class": "banner refused"})
        assert not page.all("script")
        assert browser.code not in page.text
        assert bool(page.all("a")) is (where == "no such page")
        look = page.one("link", rel="stylesheet")["href"]
        visitor.session.cookies.clear()
        assert visitor.get(look).status == 200
        assert visitor.get(look, Host="evil.example").status == 403
        assert visitor.get(look, **{"Sec-Fetch-Site": "cross-site"}).status == 403


class TestWhoAsks:
    @pytest.mark.parametrize(
        ("started_as", "name"),
        [("/home/ada/agent.py", "agent.py"), ("/lib/tidy/__main__.py", "tidy"), ("-c", "Python"),
         ("", "Python"), ("\u202egap", "<U+202E>gap")],
    )  # fmt: skip
    def test_every_page_names_the_program(
        self, started_as: str, name: str, browser: Browser, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.argv", [started_as])
        browser.roots = Roots()
        with Visitor(browser) as visitor:
            asked, page = visitor.ask("form", form())
            writing = question("sampling", within=context())
            browser.update(writing, "Some")
            pages = [page, visitor.get(""), visitor.get("directories"), *visitor.waiting(2)]
            pages.append(visitor.send(page, "decline"))
            for one in pages:
                assert re.search(rf"Program {re.escape(name)}, process \d+", one.text)
        asked.answer()

    def test_a_question_says_why_it_is_asked(self, browser: Browser, visitor: Visitor) -> None:
        causes: list[tuple[CausingCall | None, str]] = [
            (CausingCall("tools/call", {"name": "borrow"}), "called the tool “borrow”."),
            (CausingCall("resources/read", {"uri": "a:b"}), "read the resource “a:b”."),
            (CausingCall("prompts/get", {"name": "ask"}), "got the prompt “ask”."),
            (CausingCall("completion/complete", {}), "sent completion/complete."),
            (None, "This program cannot tell which of its calls led to it."),
        ]
        for call, words in causes:
            asked, page = visitor.ask("form", form(), context(call=call))
            assert words in page.text
            visitor.send(page, "decline")
            asked.answer()
        within = context(call=causes[0][0])
        browser.update(question("sampling", within=within), "Some")
        (draft,) = visitor.waiting()
        assert causes[0][1] in draft.text


class TestAfterAnAnswer:
    def test_the_next_question_comes_with_what_was_decided(
        self, browser: Browser, visitor: Visitor
    ) -> None:
        first, page = visitor.ask("review", question("tool"))
        for words in ("wants to send a call to the server", "delete_book", '"id": 7', "may destroy",
                      "unchecked"):  # fmt: skip
            assert words in page.text
        second = Asked(browser.form, form(message="the next"), context(server("bank")))
        visitor.waiting(2)
        after = visitor.send(page, "deny")
        assert "the next" in after.text
        assert after.one("p", id="decided")
        assert "You denied the call." in after.text
        assert "“delete_book”, server library" in after.text
        assert not first.answer().allowed
        again = visitor.send(after, "send", **{"field-0": "x"})
        assert second.answer().action == "accept"
        assert "Your answers were sent." in again.text

    def test_a_closing_page_says_what_was_decided(self, visitor: Visitor) -> None:
        asked, page = visitor.ask("review", question("tool"))
        listed = visitor.get("").one("p", id="none")
        after = visitor.send(page, "remember", word="run")
        assert asked.answer().remember
        assert after.one("span", id="outcome")
        assert "You allowed the call, and all later ones." in after.text
        assert "“delete_book”" in after.text
        assert "hidden" not in after.one("p", id="none")
        assert "You can close this page" in after.text
        assert "hidden" in listed
        assert "hidden" not in visitor.get("").one("p", id="none")

    @pytest.mark.parametrize(
        ("kind", "about", "action"),
        [("review", lambda: question("sampling"), "approve"), ("url", link, "consent")],
    )
    def test_what_goes_on_keeps_its_page(
        self, kind: str, about: Any, action: str, browser: Browser, visitor: Visitor
    ) -> None:
        asked, page = visitor.ask(kind, about())  # here its time limit begins
        Asked(browser.form, form(), context())
        visitor.waiting(2)
        after = visitor.send(page, action)
        asked.answer()
        assert after.key == page.key
        assert after.all("li")

    def test_nothing_is_said_of_a_question_that_is_still_open(self, visitor: Visitor) -> None:
        _, page = visitor.ask("form", form())
        for key in (page.key, "x", ""):
            assert not visitor.get(f"{page.url}?after={key}").all("p", id="decided")


class TestTheClock:
    def test_it_warns_in_the_last_minute(self, visitor: Visitor, clock: Clock) -> None:
        _, page = visitor.ask("form", form(), context(timeout=300.0))
        for seconds, soon in ((0.0, False), (240.0, False), (0.5, True)):
            clock.advance(seconds)
            page = visitor.get(page.url)
            assert visitor.state(page.key)["soon"] is soon
            assert ("soon" in page.one("p", id="clock")["class"]) is soon
            assert ("hidden" not in page.one("span", id="soon")) is soon

    def test_a_question_without_a_limit_has_none(self, visitor: Visitor) -> None:
        _, page = visitor.ask("form", form(), context(timeout=None))
        assert not page.all("p", id="clock")
        assert visitor.state(page.key)["soon"] is False


class TestAModelThatWrites:
    def test_time_and_tokens_are_shown(
        self, browser: Browser, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, "syncmcp.ui.browser.questions", stands=True)
        about = question("sampling", sampling(maxTokens=1_200), within=context())
        browser.update(about, "One of two")
        (page,) = visitor.waiting()
        assert "0 s, about 3 of at most 1,200 tokens" in page.text
        clock.advance(75.0)
        assert visitor.state(page.key)["progress"].startswith("1 min 15 s, about 3 of")
        browser.update(about, "x" * 400)
        assert "about 100 of" in visitor.state(page.key)["progress"]
        over = visitor.send(page, "stop")
        clock.advance(600.0)
        assert "1 min 15 s, about 100 of" in visitor.get(over.url).text
        assert "Your model has stopped writing" in over.text


class TestTheStrongestGrant:
    def test_it_stands_apart_and_says_what_it_gives_and_there_is_none_for_links(
        self, visitor: Visitor
    ) -> None:
        grants: list[tuple[Kind, CreateMessageResult | None, str]] = [
            ("tool", None, "this tool may then be called with any arguments"),
            ("roots", None, "this server then learns your directories whenever it asks"),
            ("form", None, "this program then answers all forms of this server for you"),
            ("sampling", None, "this server may then use your model for anything"),
            ("sampling", written(), "everything your model writes for it, unreviewed"),
        ]
        for kind, answer, words in grants:
            asked, page = visitor.ask("review", question(kind, answer=answer))
            assert page.one("button", value="remember")["class"] == "always"
            order = ('value="deny"', 'value="approve"', '<div class="grant">')
            places = [page.source.index(words) for words in order]
            assert places == sorted(places)
            (grant,) = re.findall('<div class="grant">(.*?)</div>', page.source, re.DOTALL)
            assert words in grant
            assert 'value="remember"' in grant
            visitor.send(page, "deny")
            asked.answer()
        asked, page = visitor.ask("review", question("url"))
        assert '<div class="grant">' not in page.source
        visitor.post(page.url, {"csrf": page.csrf, "action": "remember"})
        assert not asked.answer().remember


class TestACall:
    def test_title_and_description_are_the_words_of_the_server(self, visitor: Visitor) -> None:
        call = ToolCall("move", {}, None, tool("Move files", "Moves <b>them</b>.\u202e"))
        asked, page = visitor.ask("review", question("tool", call))
        (said,) = re.findall('<div class="foreign message">(.*?)</div>', page.source, re.DOTALL)
        assert "Move files" in said
        assert "Moves &lt;b&gt;them&lt;/b&gt;.&lt;U+202E&gt;" in said
        assert "in its own words" in page.text
        assert "Arguments: none" in page.text
        assert "led to it" not in page.text, "a call of the program itself has no cause"
        visitor.send(page, "deny")
        asked.answer()
        call = ToolCall("move", {}, ToolAnnotations(title="Move files"))  # another place for it
        _, page = visitor.ask("review", question("tool", call))
        assert "Move files" in page.text

    @pytest.mark.parametrize(("title", "more"), [("t" * 201, ""), ("t", "d" * 1_001)])
    def test_what_is_cut_of_a_description_stands_below(
        self, title: str, more: str, visitor: Visitor
    ) -> None:
        call = ToolCall("move", {}, None, tool(title, more))
        _, page = visitor.ask("review", question("tool", call))
        assert "characters are not shown here" in page.text
        assert f"{title}\n{more}" in page.text[page.text.index("All of the description") :]

    def test_each_argument_is_shown_as_a_person_reads_it(self, visitor: Visitor) -> None:
        values = [
            ("/home/ada/a b.txt", "/<wbr>home/<wbr>ada/<wbr>a b.txt"),
            ("C:\\Users\\ada", "C:\\<wbr>Users\\<wbr>ada"), ("two\nlines\n", "two\nlines\n"),
            (7, "7"), ("7", "&#34;7&#34;"), (True, "true"), ("true", "&#34;true&#34;"),
            (None, "null"), ("", "&#34;&#34;"), (" padded", "&#34; padded&#34;"),
            (["a"], "[\n  &#34;a&#34;\n]"),
        ]  # fmt: skip
        arguments = {f"n{number}": value for number, (value, _) in enumerate(values)}
        _, page = visitor.ask("review", question("tool", ToolCall("move", arguments, None)))
        (pairs,) = re.findall('<dl class="foreign">(.*?)</dl>', page.source, re.DOTALL)
        told = re.findall(
            r"<dt><code>(.*?)</code></dt><dd><code>(.*?)</code></dd>", pairs, re.DOTALL
        )
        assert told == [(name, shown) for name, (_, shown) in zip(arguments, values, strict=True)]
        assert "Arguments: 11" in page.text

    def test_arguments_that_an_overview_leaves_out_are_counted(self, visitor: Visitor) -> None:
        call = ToolCall("move", {f"n{number}": "x" * 300 for number in range(25)}, None)
        _, page = visitor.ask("review", question("tool", call))
        assert "5 more arguments are listed below." in page.text
        whole = page.text[page.text.index("All of the arguments") :]
        assert '"n24":' in whole

    @pytest.mark.parametrize(
        "call",
        [lambda text: ToolCall("move", {}, ToolAnnotations(title=text)),
         lambda text: ToolCall("move", {}, None, tool(description=text))],
        ids=["annotations", "definition"],
    )  # fmt: skip
    def test_the_words_of_the_server_count_for_the_length(
        self, call: Callable[[str], ToolCall]
    ) -> None:
        check_length(question("tool", call("x" * (MOST_SHOWN - 100))))
        with pytest.raises(UsageError, match="the question is too long to show: it has over"):
            check_length(question("tool", call("x" * MOST_SHOWN)))


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG 2 defines it."""
    digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(scheme: str, visitor: Visitor) -> None:
    light, _, rest = visitor.get("/page.css").source.partition(
        "@media (prefers-color-scheme: dark)"
    )
    colours = dict(
        re.findall(r"--([\w-]+): #(\w+)", light if scheme == "light" else rest[: rest.index("}")])
    )
    grounds = {"quiet": "paper banner over card foreign", "accent": "paper card wrong-paper",
               "ink": "paper card banner over foreign grave-paper wrong-paper",
               "wrong": "paper card banner wrong-paper", "grave": "grave-paper",
               "on-accent": "accent", "on-mark": "mark"}  # fmt: skip
    for text, names in grounds.items():
        for ground in names.split():
            dark, bright = sorted((luminance(colours[text]), luminance(colours[ground])))
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (text, ground)
