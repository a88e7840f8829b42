"""A simulated person with a browser, who opens pages, stores cookies and fills in forms."""

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
    """Allow every issuer."""
    return True


class Page(HTMLParser):
    """The form of a page.

    Attributes:
        action: The URL to which it is sent; `None` if there is no form.
        fields: Its values by field.
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
    """A person who signs in at each address that they are shown, on another thread.

    Attributes:
        pages: The prompt of each form that they filled in: "login" or "consent".
        saw: The text of the last page.
        failure: The error that ended the visit.
    """

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.saw = ""
        self.failure: BaseException | None = None
        self._session = requests.Session()
        self._session.trust_env = False
        self._threads: list[threading.Thread] = []

    def receiver(self) -> LoopbackReceiver:
        """Return a receiver that shows this person the address, and waits for the redirect."""
        return LoopbackReceiver(open_browser=False, show=self.read)

    def read(self, text: str) -> None:
        """Open the address in the text that a program shows."""
        [address] = [word for word in text.split() if word.startswith("http")]
        thread = threading.Thread(target=self._browse, args=(address,))
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Wait for the end of all visits.

        Raises:
            BaseException: The error of a visit.
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
