"""A server sends a person to a page, for what no form may ask, and says when that is done.

``python examples/answering/url_elicitation.py``  a function agrees to small sums, and goes there
``python examples/answering/url_elicitation.py --ask``  you are asked, and your browser goes there
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

visits: dict[str, Callable[[], None]] = {}  # what happens when somebody comes to a path
under_way: list[threading.Thread] = []  # each goes to a page, and waits for the news of it


class Page(BaseHTTPRequestHandler):
    """The bank's own page, where it would ask for a password."""

    def do_GET(self) -> None:
        """Show the page."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"Thank you. You may close this page.")
        visits.pop(self.path, lambda: None)()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def bank(address: str) -> Server:
    """A server that pays when somebody has been to its page."""
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
        if answer["action"] == "accept":  # the person agreed, and is not done yet
            confirmed.wait(60)
        visits.pop(f"/{ticket}", None)
        return "paid" if confirmed.is_set() else f"not paid: {answer['action']}"

    return server


def visitor(agrees: Callable[[str], bool], go: Callable[[str], object]) -> syncmcp.Elicitation:
    """Return what answers links: it shows all of them, and fetches nothing before the yes."""

    def follow(url: str, context: syncmcp.HandlerContext) -> None:
        go(url)
        print("  done" if context.wait_completed(timeout=60) else "  the bank says nothing")

    def visit(request: ElicitRequestURLParams, context: syncmcp.HandlerContext) -> ElicitResult:
        link = Link.read(request.url)
        print(f"{context.server.name} sends you to {link.url}", *link.warnings, sep="\n  ")
        if not agrees(visible(request.message)):
            return ElicitResult.decline()
        under_way.append(threading.Thread(target=follow, args=(link.url, context)))
        under_way[-1].start()
        return ElicitResult.accept()  # at once: it says that you agreed, not that you are done

    return syncmcp.Elicitation(url=visit)


def main() -> None:
    """Pay a little, then a lot."""
    parser = argparse.ArgumentParser(description="Pay, with a visit to the bank's page.")
    parser.add_argument("--ask", action="store_true", help="ask you, and use your browser")
    if parser.parse_args().ask:
        you = visitor(lambda message: input(f"{message} Go there (y/n)? ") == "y", webbrowser.open)
    else:
        you = visitor(lambda message: "1000" not in message, urllib.request.urlopen)
    with ThreadingTCPServer(("127.0.0.1", 0), Page) as pages:
        threading.Thread(target=pages.serve_forever, args=(0.02,)).start()
        server = bank(f"http://127.0.0.1:{pages.server_address[1]}")
        # Only this revision has a server say when a visit is done.
        with syncmcp.connect(server, name="bank", mode="2025-11-25", elicitation=you) as client:
            for euros in (10, 1000):
                result = client.call_tool("pay", {"euros": euros}).text
                while under_way:
                    under_way.pop().join()
                print(f"{euros} euros: {result}")
        pages.shutdown()


if __name__ == "__main__":
    main()
