"""Sign in to a server, use the stored login later, and sign out.

``python sign_in.py https://example.com/mcp`` asks at the terminal whether to sign in at the issuer
that the server names, and opens the browser. Without a URL, the program starts a test server and an
authorization server that agrees to every sign-in; a thread plays the browser.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import urllib.request
from pathlib import Path

import syncmcp
from syncmcp.auth import FileStore, LoopbackReceiver, OAuth
from syncmcp.errors import LoginRequired
from syncmcp.testing import AuthorizationServer, Server, serve_http


def show_tools(url: str, login: OAuth) -> None:
    """Open a client, which signs in if necessary, and print the names of the tools."""
    with syncmcp.connect(syncmcp.Http(url, auth=login)) as client:
        names = ", ".join(tool.name for tool in client.list_tools().tools)
        print(f"signed in to {url}, which has the tools: {names}")


def visit(text: str) -> None:
    """Open the address in a text and follow its redirects, as a browser would."""
    (address,) = (word for word in text.split() if word.startswith("http"))

    def fetch() -> None:
        with urllib.request.urlopen(address, timeout=30) as page:
            page.read()

    threading.Thread(target=fetch).start()


def run_locally(store: FileStore) -> None:
    """Sign in, use the stored login and sign out, with servers on this computer."""
    server = Server("notebook")
    server.add_tool(lambda: "a line", name="read", description="Reads a line.")
    with (
        AuthorizationServer() as issuer,
        serve_http(server, authorization_server=issuer) as http,
    ):
        receiver = LoopbackReceiver(open_browser=False, show=visit)
        login = OAuth(receiver=receiver, store=store, client_name="Example", allow=issuer.issuer)
        show_tools(http.url, login)

        # Later, perhaps in another program: the client renews the expired token without a person.
        issuer.expire()
        later = OAuth(http.url, receiver=None, store=store)
        show_tools(http.url, later)
        print(f"tokens were issued for: {', '.join(issuer.granted)}")

        later.logout()
        try:
            show_tools(http.url, OAuth(receiver=None, store=store))
        except LoginRequired:
            print("signed out: a person must sign in again")


def main() -> None:
    """Sign in to the server on the command line, or to a local test server."""
    parser = argparse.ArgumentParser(description="Sign in to an MCP server.")
    parser.add_argument("url", nargs="?", help="the MCP server (default: a local test server)")
    parser.add_argument("--allow", help="the issuer at which to sign in without a question")
    parser.add_argument("--store", type=Path, help="the file for the tokens (default: temporary)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        store = FileStore(options.store or Path(directory) / "tokens.json")
        if options.url:
            login = OAuth(store=store, client_name="Example", allow=options.allow)
            show_tools(options.url, login)
        else:
            run_locally(store)


if __name__ == "__main__":
    main()
