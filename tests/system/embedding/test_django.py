"""Django: views of both kinds on one client."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.support.programs import environment
from tests.support.stage import PATIENCE, in_threads
from tests.system.embedding.frameworks import EXAMPLES, FRAMEWORKS, children
from tests.system.peers.launch import http_server
from tests.system.peers.peers import Program
from tests.transports._stdio import wait_gone

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.mark.pitfall("1", "3", "7")
def test_views_block_and_await_side_by_side_and_leave_no_server() -> None:
    site = (FRAMEWORKS, str(EXAMPLES / "django_site.py"), "runserver", "--noreload", "{port}")
    program = Program(site, {"PYTHONPATH": environment()["PYTHONPATH"]}, path="")
    with http_server(program) as django:

        def get(where: str) -> Any:
            answer = requests.get(f"{django.url}/{where}", timeout=6 * PATIENCE)
            return answer.json()

        adding = [lambda n=n: get(f"add?a={n}&b={n}") for n in range(8)]
        *sums, naps = in_threads(*adding, lambda: get("naps"))
        assert sums == [{"sum": str(2 * n)} for n in range(8)]
        assert naps == {"naps": ["rested"] * 5}
        (server,) = children(django.pid)
    assert wait_gone(server)
