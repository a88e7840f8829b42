"""Mutants of the pages on which a person sees and decides, in a browser."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, result

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.mutant_switches.change import Function

APPROVAL = "syncmcp.approval:Approval"
PAGES = "syncmcp.ui.browser.app:Pages"
FORM_CARD = "syncmcp.ui.browser.cards"
CONSENT_CARD = "syncmcp.ui.browser.cards"
DESK = "syncmcp.ui.browser.questions:PendingQuestions"


def _page(edit: Callable[[str], str]) -> Callable[[Function], Function]:
    """Change the text of a page; what is no page stays as it is."""
    return result(lambda page: edit(page) if isinstance(page, str) else page)


def _cut(pattern: str) -> Callable[[Function], Function]:
    return _page(lambda page: re.sub(pattern, "", page))


def _before_a_yes(markup: str) -> Callable[[Function], Function]:
    """Add markup to the page that asks about a link; ``{}`` in it is the link."""

    def change(original: Function) -> Function:
        def show(self: Any, key: str, card: Any, problems: Any) -> str:
            page: str = original(self, key, card, problems)
            link = getattr(card, "link", None)
            if link is None:
                return page
            return page.replace("</form>", markup.format(escape(link.url)) + "</form>")

        return show

    return change


def _parts(edit: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Change the parts in which a link stands on a page."""

    def change(original: Function) -> Function:
        return classmethod(lambda cls, link: edit(original.__func__(cls, link)))

    return change


def _join(parts: Any) -> Any:
    return parts._replace(before=parts.before + parts.host, host="")


def _instead(wanted: str, taken: str) -> Callable[[Function], Function]:
    """Take one choice on a page for another."""

    def change(original: Function) -> Function:
        def act(self: Any, action: str, answers: Any) -> Any:
            return original(self, taken if action == wanted else action, answers)

        return act

    return change


def _keep_the_link(original: Function) -> Function:
    def past(self: Any) -> Any:
        return original(self)._replace(visit=self.context, url=self.link.url)

    return past


MUTANTS = (
    Mutant(
        "pages-name-nobody",
        "a page does not say which server is asking, only what it calls itself",
        f"{PAGES}._question_page",
        _cut('<strong class="server">.*?</strong>'),
        ("ELI-05",),
    ),
    Mutant(
        "pages-without-no",
        "the page of a question has no button to say no",
        f"{PAGES}._question_page",
        _cut('<button name="action" value="decline".*?</button>'),
        ("ELI-06",),
    ),
    Mutant(
        "pages-without-leaving",
        "the page of a question has no button to leave",
        f"{PAGES}._question_page",
        _cut('<button name="action" value="cancel".*?</button>'),
        ("ELI-06",),
    ),
    Mutant(
        "no-on-a-page-is-leaving",
        "who says no to a form on its page is told to have left",
        f"{FORM_CARD}:FillCard.submit",
        _instead("decline", "cancel"),
        ("ELI-06",),
    ),
    Mutant(
        "no-on-a-page-opens",
        "who says no to a link on its page gets it to open",
        f"{CONSENT_CARD}:LinkCard.submit",
        _instead("decline", "consent"),
        ("ELI-06", "ELI-08"),
    ),
    Mutant(
        "pages-lose-answers",
        "a form that comes back to be put right has lost what was filled in",
        f"{FORM_CARD}:_FormCard.inputs",
        lambda original: lambda self, answers: original(self, None),
        ("ELI-07",),
    ),
    Mutant(
        "pages-review-in-vain",
        "a program's answers go out as they were, whatever the person made of them on the page",
        f"{FORM_CARD}:ReviewFormCard.parse_answers",
        lambda original: lambda self, answers: (dict(self._shown), {}),
        ("ELI-07",),
    ),
    Mutant(
        "pages-edit-in-vain",
        "a request to a model goes on as it was, whatever the person made of it on its page",
        "syncmcp.ui.browser.cards:RequestCard._apply_edits",
        always({}),
        ("M-17",),
    ),
    Mutant(
        "pages-show-no-progress",
        "what a model has written so far is on no page",
        f"{DESK}.update_draft",
        always(None),
        ("M-17",),
    ),
    Mutant(
        "pages-of-plain-texts",
        "every field of a form on a page is a line of text",
        f"{FORM_CARD}:_widget",
        always(("text", "text")),
        ("M-18",),
    ),
    Mutant(
        "pages-without-host",
        "the host of a link does not stand out on its page",
        f"{CONSENT_CARD}:LinkParts.of",
        _parts(_join),
        ("ELI-08", "ELI-13"),
    ),
    Mutant(
        "pages-open-before",
        "a link can be clicked before the person agreed",
        f"{PAGES}._question_page",
        _before_a_yes('<a href="{}">Open</a>'),
        ("ELI-08",),
    ),
    Mutant(
        "pages-open-after-no",
        "a link can be clicked by whoever said no to it",
        f"{CONSENT_CARD}:LinkCard.to_closed",
        _keep_the_link,
        ("ELI-08",),
    ),
    Mutant(
        "pages-fetch-ahead",
        "the page that asks about a link has the browser fetch it",
        f"{PAGES}._question_page",
        _before_a_yes('<link rel="prefetch" href="{}">'),
        ("ELI-09",),
    ),
    Mutant(
        "pages-open-themselves",
        "the page of a link goes there by itself",
        f"{PAGES}._question_page",
        _before_a_yes('<meta http-equiv="refresh" content="9;url={}">'),
        ("ELI-10",),
    ),
    Mutant(
        "pages-cut-links",
        "of a long link a page shows the beginning",
        f"{CONSENT_CARD}:LinkParts.of",
        _parts(lambda parts: parts._replace(after=parts.after[:10])),
        ("ELI-11",),
    ),
    Mutant(
        "pages-without-giving-up",
        "who has agreed to a link on its page cannot give it up any more",
        f"{PAGES}._closed_page",
        _cut('<button name="action" value="give-up".*?</button>'),
        ("ELI-17",),
    ),
    Mutant(
        "pages-can-be-reached-back",
        "what a link opens learns of the page that it was opened from",
        f"{PAGES}._closed_page",
        _cut(' rel="noopener noreferrer"'),
        ("ELI-12",),
    ),
    Mutant(
        "pages-make-room",
        "a link opens in the place of the page that asked",
        f"{PAGES}._closed_page",
        _cut(' target="_blank"'),
        ("ELI-12",),
    ),
)
