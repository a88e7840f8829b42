"""Ports for servers that must be given one."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

from tests.support.plugin_workers import worker_number

# A range below the ephemeral ports, and the number of ports for each worker.
_FIRST, _EACH, _LAST = 20_000, 500, 30_000

_given: set[int] = set()


def free_port() -> int:
    """Return a port of the loopback address that is free, and that the system does not assign.

    The system could assign an ephemeral port to another test before the server listens. A port is
    not returned twice (until half of the worker's ports are used): its server may not listen yet.
    """
    if len(_given) > _EACH // 2:
        _given.clear()
    first = _FIRST + worker_number() * _EACH % (_LAST - _FIRST)
    for port in random.sample(range(first, first + _EACH), 100):
        if port in _given:
            continue
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _given.add(port)
            return port
    raise AssertionError("a hundred ports are taken")
