"""Ports for servers that have to be told one."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

from tests.support.plugin_workers import worker_number

# Below those that systems choose from by themselves; so many for each worker.
_FIRST, _EACH, _LAST = 20_000, 500, 30_000

_given: set[int] = set()


def free_port() -> int:
    """A port of the loopback address that nothing listens at, and that nobody is given by chance.

    Until the server listens, a port that the system had chosen could be given to another test. One
    that was given before is not given again, because its server may not listen yet.
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
