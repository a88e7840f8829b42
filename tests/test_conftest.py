"""The leak check itself sees what it must see (on Linux, where it reads /proc)."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

from syncmcp.testing.leaks import Footprint


def test_a_thread_left_running_is_seen() -> None:
    before = Footprint()
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait, name="syncmcp-left", daemon=True)
    thread.start()
    assert before.left_behind(0.0) == ["thread syncmcp-left"]
    gate.set()
    assert before.left_behind() == []


def test_a_child_nobody_waited_for_is_seen() -> None:
    before = Footprint()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert f"child process {child.pid}" in before.left_behind(0.0)
    finally:
        child.communicate(b"\n")
    assert before.left_behind() == []


def test_an_open_socket_is_seen() -> None:
    before = Footprint()
    with socket.socket():
        (leak,) = before.left_behind(0.0)
        assert "socket:" in leak
    assert before.left_behind() == []
