"""Sign in to a server, and use it again later without signing in.

``python sign_in.py https://example.com/mcp`` asks whether to sign in where that server says, and
opens the browser. Without a URL, there is a server here, an authorization server at which everybody
agrees, and a thread that plays the browser.
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


def look_around(url: str, login: OAuth) -> None:
    """Open a client, and say what is there. If somebody has to sign in, that happens here."""
    with syncmcp.connect(syncmcp.Http(url, auth=login)) as client:
        names = ", ".join(tool.name for tool in client.list_tools().tools)
        print(f"{url} lets us in and has the tools: {names}")


def visit(text: str) -> None:
    """Play the browser: go to the address in a text, and to where that leads."""
    (address,) = (word for word in text.split() if word.startswith("http"))

    def go() -> None:
        with urllib.request.urlopen(address, timeout=30) as page:
            page.read()

    threading.Thread(target=go).start()


def rehearse(store: FileStore) -> None:
    """Do all of it on this computer."""
    server = Server("notebook")
    server.add_tool(lambda: "a line", name="read", description="Reads a line.")
    with (
        AuthorizationServer() as issuer,
        serve_http(server, authorization_server=issuer) as http,
    ):
        somebody = LoopbackReceiver(open_browser=False, show=visit)
        login = OAuth(receiver=somebody, store=store, client_name="Example", allow=issuer.issuer)
        look_around(http.url, login)

        # Later, in another program perhaps: the store has what it takes, and nobody is asked.
        issuer.expire()
        later = OAuth(http.url, receiver=None, store=store)
        look_around(http.url, later)
        print(f"tokens were issued for: {', '.join(issuer.granted)}")

        later.logout()
        try:
            look_around(http.url, OAuth(receiver=None, store=store))
        except LoginRequired:
            print("logged out: somebody has to sign in again")


def main() -> None:
    """Sign in where the command line says, or here."""
    parser = argparse.ArgumentParser(description="Sign in to an MCP server.")
    parser.add_argument("url", nargs="?", help="the server; without, everything is on loopback")
    parser.add_argument("--allow", help="where to sign in without being asked: an issuer")
    parser.add_argument("--store", type=Path, help="the file to keep tokens in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        store = FileStore(options.store or Path(directory) / "tokens.json")
        if options.url:
            login = OAuth(store=store, client_name="Example", allow=options.allow)
            look_around(options.url, login)
        else:
            rehearse(store)


if __name__ == "__main__":
    main()
