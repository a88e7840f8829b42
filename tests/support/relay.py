"""Program: connects its stdin and stdout to a TCP port, where `stage.relayed` runs the server."""

from __future__ import annotations

import os
import socket
import sys
import threading


def main(port: int) -> None:
    """Copy stdin to the port, and the port to stdout, until stdin ends."""
    line = socket.create_connection(("127.0.0.1", port))

    def answer() -> None:
        while data := line.recv(65536):
            while data:
                data = data[os.write(1, data) :]

    threading.Thread(target=answer, daemon=True).start()
    while data := os.read(0, 65536):
        line.sendall(data)


if __name__ == "__main__":
    main(int(sys.argv[1]))
