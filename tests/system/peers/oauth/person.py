"""A person at a browser: opens pages, keeps cookies, fills in forms."""

from __future__ import annotations

import threading
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import requests

from syncmcp.auth import LoopbackReceiver

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE = 30.0
MOST_PAGES = 12


def anywhere(server: str, issuer: str) -> bool:
    """Agrees to every issuer."""
    return True


class Page(HTMLParser):
    """The form of a page.

    Attributes:
        action: Where it goes; `None`: there is no form.
        fields: What it holds.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.action = facts["action"]
        elif tag == "input" and "name" in facts:
            self.fields[facts["name"]] = facts.get("value", "")


class Person:
    """Somebody who is shown an address to sign in at, and does so on a thread of their own.

    Attributes:
        pages: What they were shown, by the name of the step.
        saw: The last page they saw.
        failure: What kept them from getting there.
    """

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.saw = ""
        self.failure: BaseException | None = None
        self._session = requests.Session()
        self._session.trust_env = False
        self._threads: list[threading.Thread] = []

    def receiver(self) -> LoopbackReceiver:
        """What shows this person the address, and waits for their browser to come back."""
        return LoopbackReceiver(open_browser=False, show=self.read)

    def read(self, text: str) -> None:
        """Reads what a program shows, and opens the address in it."""
        [address] = [word for word in text.split() if word.startswith("http")]
        thread = threading.Thread(target=self._browse, args=(address,))
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Waits for the browser to be done.

        Raises:
            BaseException: What the browser stumbled over.
        """
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        self._session.close()
        if self.failure is not None:
            raise self.failure

    def _browse(self, address: str) -> None:
        try:
            response = self._session.get(address, timeout=PATIENCE)
            for _ in range(MOST_PAGES):
                self.saw = response.text
                response.raise_for_status()
                page = Page(response.text)
                if page.action is None:
                    return
                response = self._fill_in(page, response.url)
            raise AssertionError(f"no end of pages: {self.pages}")
        except BaseException as error:
            self.failure = error

    def _fill_in(self, page: Page, where: str) -> requests.Response:
        self.pages.append(page.fields["prompt"])
        known = {"login": "ann", "password": "open sesame"}
        form = {name: known.get(name, value) for name, value in page.fields.items()}
        return self._session.post(urljoin(where, page.action), data=form, timeout=PATIENCE)
