"""Visits the pages without a browser, and parses their tags."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests

from syncmcp.ui.browser import Browser
from tests.support.pages import file_of
from tests.ui.asking import Asked, context, until


def address_in(file: str) -> str:
    """Return the link to the pages in a file; `file` is the URL that a browser is started with."""
    page = file_of(file).read_text()
    (action,) = re.findall(r'action="([^"]+)"', page)
    (token,) = re.findall(r'name="token" value="([^"]+)"', page)
    return f"{action}/{token}"


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__()
        self.status = response.status_code
        self.headers = response.headers
        self.url = response.url
        self.source = response.content.decode()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        """Return the attributes of all such tags."""
        return [
            found
            for name, found in self.tags
            if name == tag and attributes.items() <= found.items()
        ]

    def one(self, tag: str, **attributes: str) -> dict[str, str]:
        """Return the attributes of the only such tag."""
        (found,) = self.all(tag, **attributes)
        return found

    @property
    def key(self) -> str:
        """The key of its question, for `state`."""
        return self.url.rpartition("/")[2].partition("?")[0]

    @property
    def csrf(self) -> str:
        return self.all("input", name="csrf")[0]["value"]


class Visitor:
    """Sends the HTTP requests of a browser."""

    def __init__(self, browser: Browser, *, enters: bool = True) -> None:
        self._browser = browser
        self.session = requests.Session()
        self.session.trust_env = False
        address = urlsplit(browser.address)
        self.origin = f"{address.scheme}://{address.netloc}"
        self.home = ""
        if enters:
            self.home = self.get(browser.address).url
            self.home = urljoin(self.home, "/" + urlsplit(self.home).path.split("/")[1] + "/")

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.session.close()

    def get(self, url: str, **headers: str) -> Page:
        with self.session.get(urljoin(self.home, url), headers=headers, timeout=10) as response:
            return Page(response)

    def post(self, url: str, fields: dict[str, Any], **headers: str) -> Page:
        """Send a form as the page's own browser does, unless `headers` say otherwise."""
        sent = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin", **headers}
        sent = {name: value for name, value in sent.items() if value}
        with self.session.post(
            urljoin(self.home, url), data=fields, headers=sent, timeout=10
        ) as response:
            return Page(response)

    def state(self, page: str = "") -> dict[str, Any]:
        """Return the state that pages request to stay up to date."""
        address = urljoin(self.home, "state")
        with self.session.get(address, params={"page": page}, timeout=10) as response:
            found: dict[str, Any] = response.json()
            return found

    def waiting(self, number: int = 1) -> list[Page]:
        """Wait until `number` questions are waiting; return their pages."""
        found = until(lambda: [] if len(new := self.state()["waiting"]) != number else new)
        return [self.get(one["url"]) for one in found]

    def ask(self, how: str, request: Any, *within: Any) -> tuple[Asked[Any], Page]:
        """Ask a question in the browser while no other one is open; return it and its page."""
        if how != "review" and not within:
            within = (context(),)
        asked = Asked[Any](getattr(self._browser, how), request, *within)
        (page,) = self.waiting()
        return asked, page

    def send(self, page: Page, action: str, **fields: Any) -> Page:
        """Press a button on a page, with these values of its fields."""
        assert page.all("button", name="action", value=action), f"no button to {action}"
        return self.post(page.url, {"csrf": page.csrf, "action": action, **fields})
