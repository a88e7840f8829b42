"""A server sends a person to a web page, and reports when the visit is done.

``python examples/answering/url_elicitation.py``  a function agrees to small sums
``python examples/answering/url_elicitation.py --ask``  asks you, and opens your browser
"""

from __future__ import annotations

import argparse
import threading
import urllib.request
import uuid
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

import syncmcp
from syncmcp.handlers.links import Link
from syncmcp.testing import Server, ToolContext
from syncmcp.types import ElicitRequestURLParams, ElicitResult
from syncmcp.ui import visible

visits: dict[str, Callable[[], None]] = {}  # by path: the function that a visit calls
followers: list[threading.Thread] = []  # each opens a page, and waits for its completion


class Page(BaseHTTPRequestHandler):
    """The bank's page. It may ask for a password, which a form must not do."""

    def do_GET(self) -> None:
        """Show the page, and confirm the payment."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"Thank you. You may close this page.")
        visits.pop(self.path, lambda: None)()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def bank(address: str) -> Server:
    """Create a server that pays after a person has visited its page."""
    server = Server("bank")

    @server.tool()
    def pay(context: ToolContext, euros: int) -> str:
        """Pay."""
        ticket, confirmed = str(uuid.uuid4()), threading.Event()

        def confirm() -> None:
            context.complete_elicitation(ticket)
            confirmed.set()

        visits[f"/{ticket}"] = confirm
        answer = context.elicit_url(f"Confirm {euros} euros.", f"{address}/{ticket}", ticket)
        if answer["action"] == "accept":  # the consent; the visit comes later
            confirmed.wait(60)
        visits.pop(f"/{ticket}", None)
        return "paid" if confirmed.is_set() else f"not paid: {answer['action']}"

    return server


def visitor(agrees: Callable[[str], bool], load: Callable[[str], object]) -> syncmcp.Elicitation:
    """Return a handler for links. It shows each link, and opens it only after the consent."""

    def follow(url: str, context: syncmcp.HandlerContext) -> None:
        load(url)
        print("  done" if context.wait_completed(timeout=60) else "  no report from the bank")

    def visit(request: ElicitRequestURLParams, context: syncmcp.HandlerContext) -> ElicitResult:
        link = Link.read(request.url)
        print(f"{context.server.name} sends you to {link.url}", *link.warnings, sep="\n  ")
        if not agrees(visible(request.message)):
            return ElicitResult.decline()
        followers.append(threading.Thread(target=follow, args=(link.url, context)))
        followers[-1].start()
        return ElicitResult.accept()  # at once: this is the consent, not the end of the visit

    return syncmcp.Elicitation(url=visit)


def main() -> None:
    """Pay a small sum, then a large one."""
    parser = argparse.ArgumentParser(description="Pay, with a visit to the bank's page.")
    parser.add_argument("--ask", action="store_true", help="ask you, and use your browser")
    if parser.parse_args().ask:
        links = visitor(lambda text: input(f"{text} Go there (y/n)? ") == "y", webbrowser.open)
    else:
        links = visitor(lambda text: "1000" not in text, urllib.request.urlopen)
    with ThreadingTCPServer(("127.0.0.1", 0), Page) as pages:
        threading.Thread(target=pages.serve_forever, args=(0.02,)).start()
        server = bank(f"http://127.0.0.1:{pages.server_address[1]}")
        # Only in this revision does a server report the end of a visit.
        with syncmcp.connect(server, name="bank", mode="2025-11-25", elicitation=links) as client:
            for euros in (10, 1000):
                result = client.call_tool("pay", {"euros": euros}).text
                while followers:
                    followers.pop().join()
                print(f"{euros} euros: {result}")
        pages.shutdown()


if __name__ == "__main__":
    main()
