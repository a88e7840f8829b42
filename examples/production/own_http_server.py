"""An HTTP server of your own, with an MCP server at one of its paths, and a client that calls it.

`HttpEndpoint` gets headers and body and returns what to write back; sockets and threads are yours.
"""

from __future__ import annotations

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

import syncmcp
from syncmcp.testing import HttpEndpoint, HttpReply, Server

server = Server("shop", instructions="Prices are in cents.")
endpoint = HttpEndpoint(server, allowed_hosts=["127.0.0.1"])


@server.tool()
def price(item: str) -> int:
    """Say what an item costs."""
    return {"apple": 30, "pear": 45}[item]


class Site(BaseHTTPRequestHandler):
    """A page about the shop, and beside it the endpoint."""

    def do_GET(self) -> None:
        """Show the page, or the events of a session."""
        if self.path == "/mcp":
            self.reply(endpoint.handle_get(dict(self.headers)))
        else:
            self.reply(HttpReply(200, {"content-type": "text/plain"}, b"Open from 9 to 5."))

    def do_POST(self) -> None:
        """Answer a message. It may take as long as the tool: each request has a thread."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.reply(endpoint.handle_post(dict(self.headers), body))

    def do_DELETE(self) -> None:
        """End a session."""
        self.reply(endpoint.handle_delete(dict(self.headers)))

    def reply(self, reply: HttpReply) -> None:
        """Write a body, or a stream of events as they come; the connection's end is its end."""
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if isinstance(reply.body, bytes):
            self.wfile.write(reply.body)
            return
        try:
            self.wfile.writelines(reply.body)
        except ConnectionError:
            print("the client has gone")
        finally:
            reply.body.close()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def main() -> None:
    """Look at the page, then ask for two prices."""
    # An `HTTPServer` would look its own name up first, which may take seconds.
    with ThreadingTCPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, args=(0.02,)).start()
        address = f"http://127.0.0.1:{site.server_address[1]}"
        with urllib.request.urlopen(address, timeout=10) as page:
            print(f"the page says: {page.read().decode()}")
        with syncmcp.connect(f"{address}/mcp") as client:
            print(f"the server says: {client.server.instructions}")
            print(f"a pear costs {client.call_tool('price', {'item': 'pear'}).text}")
            print(f"a plum: is_error={client.call_tool('price', {'item': 'plum'}).is_error}")
        with server.stats as stats:
            print(f"the server saw {stats.requests['tools/call']} calls")
        endpoint.close()  # which ends the streams of events, and so their threads
        site.shutdown()


if __name__ == "__main__":
    main()
