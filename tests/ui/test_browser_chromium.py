"""The pages in a real browser: what a person sees and clicks.

With ``SYNCMCP_PICTURES=1``, the tests save pictures of the pages in ``docs/pictures/``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import (
    ConsoleMessage,
    Dialog,
    Page,
    Route,
    expect,
    sync_playwright,
)

from syncmcp import CancelToken
from syncmcp.approval import ToolCall
from syncmcp.errors import Denied
from syncmcp.types import Tool, ToolAnnotations
from syncmcp.ui.browser import AskInBrowser, Browser
from tests.support.setup_programs import CHROMIUM, in_ci
from tests.support.stage import Clock
from tests.ui.asking import (
    DOT,
    Asked,
    context,
    form,
    link,
    question,
    sampling,
    server,
    written,
)
from tests.ui.person import WAIT

PROGRAM = CHROMIUM.find()
if PROGRAM is None and not in_ci():
    # `tests/support/setup_programs.py` has reported it.
    pytest.skip("there is no Chromium here", allow_module_level=True)

pytestmark = pytest.mark.peer

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
# The messages of Chromium about a rejected form, and about a closed connection.
EXPECTED = re.compile(
    "status of 422|ERR_CONNECTION_(REFUSED|RESET)|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED"
)
HOSTILE = '"><script>document.title="forged"</script><img src=x onerror=alert(1)>\u202e\x1b[0m'

PREFERENCES: dict[str, Any] = {
    "name": {"type": "string", "title": "Name", "minLength": 2,
             "description": "As it should stand in the report"},
    "mail": {"type": "string", "title": "E-mail", "format": "email"},
    "site": {"type": "string", "title": "Web site", "format": "uri"},
    "from": {"type": "string", "title": "First day", "format": "date"},
    "at": {"type": "string", "title": "Time of the report", "format": "date-time"},
    "count": {"type": "integer", "title": "Entries", "minimum": 1, "maximum": 100, "default": 20},
    "share": {"type": "number", "title": "Sample", "minimum": 0, "maximum": 1},
    "format": {"type": "string", "title": "Format", "default": "markdown",
               "oneOf": [{"const": "json", "title": "JSON"},
                         {"const": "markdown", "title": "Markdown"},
                         {"const": "plain", "title": "Plain text"}]},
    "topics": {"type": "array", "title": "Topics", "minItems": 1,
               "items": {"type": "string", "enum": ["algebra", "geometry", "logic"]}},
    "stamps": {"type": "boolean", "title": "With time stamps", "default": True},
    "share_it": {"type": "boolean", "title": "May it be published?"},
}  # fmt: skip
NAMES = {name: f"field-{number}" for number, name in enumerate(PREFERENCES)}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with sync_playwright() as playwright:
        program = playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        expect.set_options(timeout=1000 * WAIT)
        yield program
        program.close()


@pytest.fixture
def tab(chromium: Chromium, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """A tab with the pages; at the end, it must have no errors and no requests elsewhere."""
    monkeypatch.setattr("sys.argv", ["agent.py"])  # the name of the program on the pages
    complaints: list[str] = []
    asked: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not EXPECTED.search(message.text):
            complaints.append(message.text)

    def stopped(dialog: Dialog) -> None:
        complaints.append("a dialog")
        dialog.dismiss()

    own = chromium.new_context(color_scheme="light", viewport={"width": 780, "height": 240})
    own.set_default_timeout(1000 * WAIT)
    tab = own.new_page()
    tab.on("console", heard)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("dialog", stopped)
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(browser.address)
    origin = tab.url.split("/")[2]
    yield tab
    own.close()
    assert complaints == []
    assert {url.split("/")[2] for url in asked if not url.startswith("data:")} == {origin}


def picture(tab: Page, name: str) -> None:
    if os.environ.get("SYNCMCP_PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        for button in tab.locator("main button").all():
            expect(button).to_be_enabled()
        tab.screenshot(path=PICTURES / f"{name}.png", full_page=True)


def open_only(tab: Page) -> None:
    """Open the only question from the list, once the list shows it."""
    tab.get_by_role("link", name="Questions").click()
    expect(tab.locator("#waiting a")).to_have_count(1)
    tab.locator("#waiting a").click()


def ask(tab: Page, how: Callable[..., Any], *about: Any) -> Asked[Any]:
    """Ask a question in the browser while no other one is open, and open its page."""
    asked = Asked(how, *about)
    open_only(tab)
    return asked


def press(tab: Page, name: str) -> None:
    button = tab.get_by_role("button", name=name, exact=True)
    button.wait_for()
    tab.wait_for_load_state()  # its script checks the form
    button.click()


def hold_timers(tab: Page) -> None:
    """Delay jobs that the next page schedules in over 500 ms until `let_go`."""
    tab.add_init_script("""(() => {
        const soon = window.setTimeout;
        window.held = [];
        window.setTimeout = (job, ms) => ms > 500 ? window.held.push(job) : soon(job, ms);
    })()""")


def let_go(tab: Page) -> None:
    tab.evaluate("window.held.forEach(job => job())")


def outcome(tab: Page, words: str) -> None:
    expect(tab.locator("#outcome")).to_contain_text(words)


class TestForms:
    @pytest.mark.requirement("M-18", "ELI-05", "ELI-07", "ELI-14")
    def test_what_does_not_fit_is_put_right_and_every_kind_of_field_is_filled_in(
        self, tab: Page, browser: Browser
    ) -> None:
        message = "Before I write the report, tell me how you want it."
        asked = ask(tab, browser.form, form(PREFERENCES, ("name", "topics"), message), context())
        expect(tab.locator(".banner")).to_contain_text("library")
        expect(tab.get_by_label("Entries")).to_have_value("20")
        tab.get_by_label("Name").fill("A")
        tab.get_by_label("First day").fill("2026-03-01")
        press(tab, "Send these answers")
        expect(tab.locator("#problems")).to_contain_text("Some answers need another look")
        for name in ("name", "topics"):
            expect(tab.locator(f"#{NAMES[name]}-problem")).to_be_visible()
        expect(tab.locator("#problems")).to_be_focused()
        picture(tab, "form-problems")
        assert asked.open
        expect(tab.get_by_label("First day")).to_have_value("2026-03-01")
        for label, text in {
            "Name": "Ada", "E-mail": "ada@example.com", "Web site": "https://example.com/ada",
            "Time of the report": "2026-03-02T07:30", "Entries": "12", "Sample": "0.25",
        }.items():  # fmt: skip
            tab.get_by_label(label).fill(text)
        for label in ("JSON", "geometry", "logic"):
            tab.get_by_label(label).check()
        tab.get_by_label("With time stamps").uncheck()
        tab.get_by_label("May it be published?").select_option("Yes")
        picture(tab, "form")
        press(tab, "Send these answers")
        outcome(tab, "Your answers were sent.")
        content = asked.answer().content
        assert content is not None
        assert str(content.pop("at")).startswith("2026-03-02T07:30:00")
        assert content == {
            "name": "Ada", "mail": "ada@example.com", "site": "https://example.com/ada",
            "from": "2026-03-01", "count": 12, "share": 0.25, "format": "json",
            "topics": ["geometry", "logic"], "stamps": False, "share_it": True,
        }  # fmt: skip

    def test_what_the_browser_cannot_read_is_not_sent_as_nothing_and_the_rest_as_it_came(
        self, tab: Page, browser: Browser
    ) -> None:
        moments = ("2026-03-01T10:20:00Z", "2026-03-01t10:20:30.5+05:30", "2016-12-31T23:59:60Z")
        fields = {name: PREFERENCES[name] for name in ("name", "from", "share")}
        fields |= {
            str(number): {"type": "string", "format": "date-time", "default": moment}
            for number, moment in enumerate(moments)
        }
        asked = ask(tab, browser.form, form(fields, ("name",)), context())
        day, share = tab.get_by_label("First day"), tab.get_by_label("Sample")
        day.press_sequentially("03")  # only the month
        share.press_sequentially("1e")
        press(tab, "Send these answers")
        expect(tab.locator("#field-1-unread")).to_have_text("This date or time is not complete.")
        expect(tab.locator("#field-2-unread")).to_have_text("This is not a number.")
        expect(day).to_be_focused()
        assert asked.open
        day.fill("2026-03-01")
        share.fill("0.5")
        # The program reports a missing value, in the same style, not the browser.
        press(tab, "Send these answers")
        expect(tab.locator("#field-0-problem")).to_be_visible()
        expect(tab.locator(".unread")).to_have_count(0)
        tab.get_by_label("Name").fill("Ada")
        press(tab, "Send these answers")
        outcome(tab, "Your answers were sent.")
        # Unchanged times are sent as they came. A time that no input can show is left out here;
        # the client fills in its default before it sends.
        assert asked.answer().content == {
            "name": "Ada", "from": "2026-03-01", "share": 0.5, "0": moments[0], "1": moments[1],
        }  # fmt: skip

    def test_enter_sends_no_form_and_what_a_page_hears_later_does_not_stop_one_that_is_sent(
        self, tab: Page, browser: Browser
    ) -> None:
        asked = ask(tab, browser.form, form({"name": {"type": "string"}}), context())
        expect(tab.get_by_role("button", name="Send these answers")).to_be_enabled()
        tab.get_by_label("name").fill("Ada")
        tab.get_by_label("name").press("Enter")
        expect(tab.get_by_label("name")).to_have_value("Ada")
        assert asked.open
        looks: list[Route] = []
        posts: list[Route] = []
        tab.route("**/state?*", lambda route: looks.insert(0, route))
        tab.route("**/heard", lambda route: route.fulfill(body=""))
        with tab.expect_request("**/state?*"):
            tab.evaluate("""() => {
                const soon = window.setTimeout;
                window.setTimeout = (job, ms) => { if (ms === 500) fetch("heard"); soon(job, ms); };
            }""")
        tab.route(lambda url: url == tab.url, lambda route: posts.insert(0, route))
        with tab.expect_request(tab.url):
            tab.get_by_role("button", name="Send these answers").click(no_wait_after=True)
        with tab.expect_request("**/heard"):
            looks[0].fulfill(json={"state": "another one", "waiting": []})
        assert [route.request.method for route in posts] == ["POST"]
        posts[0].continue_()
        outcome(tab, "Your answers were sent.")
        assert asked.answer().content == {"name": "Ada"}


class TestSampling:
    @pytest.mark.requirement("M-17", "SAMP-09")
    def test_a_request_is_edited_and_approved_and_its_answer_reviewed(
        self, tab: Page, browser: Browser
    ) -> None:
        approval = AskInBrowser(browser=browser)
        within = context(method="sampling/createMessage")
        request = sampling(
            "Here is a **draft** of the proof:\n\n```\nn*n - n = n*(n - 1)\n```\n- it is short",
            "Explain why the product of two neighbours is *even*.",
            systemPrompt="You are a patient teacher.",
            modelPreferences={"hints": [{"name": "claude"}], "intelligencePriority": 0.8},
            temperature=0.4,
            tools=[{"name": "look_up", "description": "Looks a word up", "inputSchema": {}}],
        )
        asked = ask(tab, approval.review_request, question("sampling", request, within=within))
        picture(tab, "sampling")
        last = tab.locator("details.message-card").last
        last.get_by_text("Edit this text").click()
        last.locator("textarea").fill("Explain it to a child.\nIn one line.")
        tab.get_by_label("Maximum tokens").fill("80")
        press(tab, "Approve")
        outcome(tab, "You approved it; the model is at work.")
        edited: Any = asked.answer()
        expected = request.to_wire()
        expected["messages"][1]["content"]["text"] = "Explain it to a child.\nIn one line."
        expected["maxTokens"] = 80
        assert edited.to_wire() == expected

        # The page updates itself: first the partial text, then the second review.
        approval.update(question("sampling", within=within), "One of two neighbours")
        expect(tab.locator("#live")).to_have_text("One of two neighbours")
        approval.update(question("sampling", within=within), "One of two neighbours is even, so")
        expect(tab.locator("#live")).to_have_text("One of two neighbours is even, so")
        picture(tab, "sampling-live")
        answer = written("One of two neighbours is even, so the product is.", stopReason="endTurn")
        final = Asked(
            approval.review_answer, question("sampling", request, answer=answer, within=within)
        )
        expect(tab.get_by_role("heading", name="An answer from your model")).to_be_visible()
        picture(tab, "sampling-answer")
        tab.get_by_text("Edit this text").click()
        tab.locator("textarea").fill("It is even.")
        press(tab, "Send this answer")
        outcome(tab, "The answer was sent.")
        sent: Any = final.answer()
        assert sent.text == "It is even."
        assert sent.model == "parrot-1"

    def test_a_click_that_was_meant_for_the_page_before_answers_nothing(
        self, tab: Page, browser: Browser
    ) -> None:
        within = context()
        browser.update(question("sampling", within=within), "Once upon a")
        open_only(tab)
        hold_timers(tab)
        asked = Asked(browser.review, question("sampling", answer=written(), within=within))
        send = tab.get_by_role("button", name="Send this answer")
        expect(send).to_be_disabled()
        let_go(tab)
        send.click()
        outcome(tab, "The answer was sent.")
        assert asked.answer().allowed

    def test_a_picture_is_shown(self, tab: Page, browser: Browser) -> None:
        content = [{"type": "image", "data": DOT, "mimeType": "image/png"}]
        asked = ask(tab, browser.review, question("sampling", sampling(content=content)))
        width = "image => image.naturalWidth"
        assert tab.locator("img").evaluate(width) == 1
        press(tab, "Deny")
        outcome(tab, "You said no; no model was asked.")
        assert not asked.answer().allowed


class TestTheEnd:
    @pytest.mark.requirement("M-20")
    def test_a_withdrawn_question_says_so_by_itself(self, tab: Page, browser: Browser) -> None:
        cancel = CancelToken()
        asked = ask(tab, browser.form, form(PREFERENCES), context(cancel=cancel))
        tab.get_by_label("Name").fill("half an ans")
        cancel.cancel()
        outcome(tab, "The question was withdrawn")
        expect(tab.get_by_role("button")).to_have_count(0)
        picture(tab, "withdrawn")
        assert asked.answer().action == "cancel"

    @pytest.mark.requirement("M-20")
    def test_the_time_is_counted_down_until_it_is_out(
        self, tab: Page, browser: Browser, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, "syncmcp._concurrency.timing")
        within = context(timeout=300.0)
        asked = ask(tab, browser.review, question("sampling", within=within))
        expect(tab.locator("#left")).to_contain_text("min")
        expect(tab.locator("#soon")).to_be_hidden()
        clock.advance(250)
        expect(tab.locator("#left")).to_have_text(re.compile(r"^\d\d s$"))
        expect(tab.locator("#soon")).to_have_text(re.compile(r"Time is almost up\. Without"))
        expect(tab.locator("#clock")).to_have_class(re.compile("soon"))
        clock.advance(50)
        within.cancel.cancel()  # as the library does at the time limit
        outcome(tab, "Time ran out")
        picture(tab, "expired")
        with pytest.raises(Denied, match="nobody answered"):
            asked.answer()

    @pytest.mark.requirement("ELI-06")
    def test_a_program_that_has_gone_is_noticed(self, tab: Page, browser: Browser) -> None:
        asked = ask(tab, browser.form, form(PREFERENCES, ("name",)), context())
        expect(tab.locator("#gone")).to_be_hidden()
        expect(tab.get_by_role("button", name="Decline")).to_be_enabled()
        # The program cannot be reached for a moment.
        tab.route("**/state?*", lambda route: route.abort("connectionrefused"))
        expect(tab.locator("#gone")).to_be_visible()
        expect(tab.locator("#clock")).to_be_hidden()
        for name in ("Decline", "Cancel", "Send these answers"):
            expect(tab.get_by_role("button", name=name)).to_be_disabled()
        tab.unroute("**/state?*")
        expect(tab.locator("#gone")).to_be_hidden()
        press(tab, "Decline")  # works although a required field is empty
        outcome(tab, "You declined")
        assert asked.answer().action == "decline"
        tab.wait_for_load_state()  # includes the script

        def end(look: Route) -> None:  # between two responses, to cut none off
            browser.close()
            look.continue_()

        tab.route("**/state?*", end)
        expect(tab.locator("#gone")).to_be_visible()


class TestLinks:
    @pytest.mark.requirement("ELI-08", "ELI-09", "ELI-10", "ELI-11", "ELI-13", "ELI-17")
    def test_a_link_is_shown_agreed_to_and_done(self, tab: Page, browser: Browser) -> None:
        url = "https://accounts.xn--exmple-cua.com/connect?state=af0ifjsldkj&scope=read"
        within = context()
        message = "To go on, connect your account. Not here: https://example.com/"
        asked = ask(tab, browser.url, link(url, message), within)
        expect(tab.locator(".link")).to_have_text(url)
        expect(tab.locator("mark")).to_have_text("accounts.xn--exmple-cua.com")
        assert tab.locator("main a").count() == 0
        picture(tab, "link")
        press(tab, "Agree to open it")
        opening = tab.locator("main a")
        expect(opening).to_have_attribute("href", url)
        expect(opening).to_have_attribute("rel", "noopener noreferrer")
        assert asked.answer().action == "accept"
        picture(tab, "link-agreed")
        press(tab, "I am done")
        expect(tab.locator("#visit")).to_have_text("The visit is done.")
        assert within.wait_completed(0)

    def test_the_page_that_is_opened_learns_nothing(self, tab: Page, browser: Browser) -> None:
        asked = ask(tab, browser.url, link(), context())
        press(tab, "Agree to open it")
        asked.answer()
        heard: list[str] = []

        def serve(route: Route) -> None:
            heard.extend(route.request.headers)
            route.fulfill(body="<title>pay</title>", content_type="text/html")

        tab.context.route("https://pay.example.com/**", serve)
        with tab.expect_popup() as opened:
            tab.locator("main a").click()
        opened.value.wait_for_load_state()
        assert opened.value.evaluate("window.opener === null && document.referrer === ''")
        assert heard
        assert not {"cookie", "referer"} & set(heard)


def test_a_file_leads_to_the_pages(chromium: Chromium) -> None:
    opened: SimpleQueue[str] = SimpleQueue()
    with Browser(open_page=opened.put) as browser, chromium.new_context() as own:
        asked = Asked(browser.form, form(message="only this"), context())
        tab = own.new_page()
        tab.goto(opened.get(timeout=WAIT))
        expect(tab.locator("main")).to_contain_text("only this")
        expect(tab.locator("#code")).to_contain_text(browser.code)
        assert browser.address.rpartition("/")[2] not in tab.content()
        press(tab, "Decline")
        assert asked.answer().action == "decline"


class TestQueue:
    def test_several_questions_wait_and_the_list_follows(self, tab: Page, browser: Browser) -> None:
        expect(tab.locator("#none")).to_be_visible()
        asked = []
        how: list[tuple[str, Callable[..., Any], Any]] = [
            ("library", browser.form, form()), ("calendar", browser.form, form()),
            ("bank", browser.url, link()),
        ]  # fmt: skip
        for name, method, about in how:
            asked.append(Asked(method, about, context(server(name))))
            expect(tab.locator("#waiting li")).to_have_count(len(asked))
        assert tab.title().startswith("(3) ")
        expect(tab.locator("#none")).to_be_hidden()
        picture(tab, "questions")
        tab.locator("#waiting li", has_text="calendar").get_by_role("link").click()
        expect(tab.locator(".banner .server")).to_have_text("calendar")
        expect(tab.locator("#waiting li")).to_have_count(2)
        press(tab, "Decline")
        assert asked[1].answer().action == "decline"
        # The page then shows the oldest of the other questions.
        expect(tab.locator("#decided")).to_contain_text("You declined; no answers were sent.")
        expect(tab.locator(".banner .server")).to_have_text("library")
        tab.locator("#waiting li", has_text="bank").get_by_role("link").click()
        press(tab, "Cancel")
        assert asked[2].answer().action == "cancel"
        expect(tab.locator(".banner .server")).to_have_text("library")
        press(tab, "Send these answers")
        assert asked[0].answer().action == "accept"
        expect(tab.locator("#queue")).to_be_hidden()

    def test_a_question_in_the_list_stays_under_the_pointer(
        self, tab: Page, browser: Browser
    ) -> None:
        first = Asked(browser.form, form(), context(server("library")))
        tab.goto(tab.url)
        expect(tab.locator("#waiting li")).to_have_count(1)
        tab.locator("#waiting li").evaluate("item => window.pointed = item")
        # Neither a new question nor the end of all questions replaces the item.
        second = Asked(browser.url, link(), context(server("bank")))
        expect(tab.locator("#waiting li")).to_have_count(2)
        browser.close()
        expect(tab.locator("#gone")).to_be_visible()
        assert tab.evaluate("window.pointed.isConnected")
        assert [asked.answer().action for asked in (first, second)] == ["cancel", "cancel"]

    def test_a_call_is_allowed(self, tab: Page, browser: Browser) -> None:
        definition = Tool.from_wire(
            {"name": "delete_book", "title": "Delete a book", "inputSchema": {},
             "description": "Removes a book and all of its loans from the catalogue."}
        )  # fmt: skip
        hints = ToolAnnotations(destructive_hint=True)
        call = ToolCall("delete_book", {"id": 7}, hints, definition)
        asked = ask(tab, browser.review, question("tool", call))
        picture(tab, "tool")
        # Enter denies the call; in a field, it does nothing.
        expect(tab.get_by_role("button", name="Deny")).to_be_focused()
        word = tab.get_by_label("The tool may change something.")
        word.fill("run")
        word.press("Enter")
        assert asked.open
        press(tab, "Allow all calls of this tool")
        outcome(tab, "You allowed the call, and all later ones.")
        assert asked.answer().remember

    @pytest.mark.parametrize("kind", ["tool", "url", "answer"])
    def test_enter_and_a_sentence_that_is_being_typed_agree_to_nothing(
        self, tab: Page, browser: Browser, kind: Any
    ) -> None:
        asked: Asked[Any]
        if kind == "url":
            asked = Asked(browser.url, link(), context())
        else:
            about = question("sampling", answer=written()) if kind == "answer" else question(kind)
            asked = Asked(browser.review, about)
        hold_timers(tab)
        open_only(tab)
        safe = tab.locator("main button.safe")
        expect(safe).to_be_disabled()
        tab.keyboard.press("Enter")
        assert asked.open
        let_go(tab)
        expect(safe).to_be_focused()
        tab.keyboard.type("yes")
        tab.keyboard.press("Enter")
        answer = asked.answer()
        assert answer.action == "decline" if kind == "url" else not answer.allowed


class TestForeignText:
    @pytest.mark.requirement("SAMP-08")
    def test_nothing_of_it_runs(self, tab: Page, browser: Browser) -> None:
        fields = {
            "a": {"type": "string", **dict.fromkeys(("title", "description", "default"), HOSTILE)}
        }
        liar = server("library", info={"name": HOSTILE, "version": "1"})
        request = sampling(HOSTILE, systemPrompt=HOSTILE)
        about: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
            (browser.form, (form(fields, message=HOSTILE), context(liar)), "Decline"),
            (browser.review, (question("sampling", request, of=liar),), "Deny"),
        ]
        for how, asking, no in about:
            asked = ask(tab, how, *asking)
            expect(tab.locator("main")).to_contain_text("<U+202E>\u241b[0m")
            expect(tab.locator(".banner .server")).to_have_text("library")
            self.assert_harmless(tab)
            press(tab, no)
            asked.answer()
        within = context(liar)
        browser.update(question("sampling", within=within), HOSTILE)
        open_only(tab)
        expect(tab.locator("#live")).to_contain_text('"><script>')
        self.assert_harmless(tab)

    @staticmethod
    def assert_harmless(tab: Page) -> None:
        assert tab.locator("main script, main img").count() == 0
        assert "forged" not in tab.title()
