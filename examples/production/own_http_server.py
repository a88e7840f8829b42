"""Add an MCP test server to your own HTTP server, and call it with a client.

`HttpEndpoint` takes headers and a body, and returns a reply. The sockets and threads are yours.
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
    """Return the price of an item."""
    return {"apple": 30, "pear": 45}[item]


class Site(BaseHTTPRequestHandler):
    """Handles requests for a page about the shop, and for the MCP endpoint at `/mcp`."""

    def do_GET(self) -> None:
        """Send the page, or the event stream of a session."""
        if self.path == "/mcp":
            self.reply(endpoint.handle_get(dict(self.headers)))
        else:
            self.reply(HttpReply(200, {"content-type": "text/plain"}, b"Open from 9 to 5."))

    def do_POST(self) -> None:
        """Answer a message. This may block: the server handles each request on its own thread."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/mcp":
            self.reply(endpoint.handle_post(dict(self.headers), body))
        else:
            self.send_error(404)

    def do_DELETE(self) -> None:
        """End a session."""
        if self.path == "/mcp":
            self.reply(endpoint.handle_delete(dict(self.headers)))
        else:
            self.send_error(404)

    def reply(self, reply: HttpReply) -> None:
        """Write a body, or each event of a stream; then the server closes the connection."""
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
            print("the client has disconnected")
        finally:
            reply.body.close()

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


def main() -> None:
    """Get the page, then call the tool twice."""
    # `HTTPServer` would first look up its own host name, which may take seconds.
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
        endpoint.close()  # ends the event streams, so that their threads end
        site.shutdown()


if __name__ == "__main__":
    main()
