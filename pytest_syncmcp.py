"""The pytest plugin of syncmcp: fixtures for the tests of programs that use it.

pytest loads it in every run where the package is installed. So it imports the library only when a
test asks for one of the fixtures.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from syncmcp import Client, Target
    from syncmcp.testing import Recording, Replay, Server
    from syncmcp.testing.leaks import Footprint

__all__ = [
    "Cassette",
    "mcp_cassette",
    "mcp_client",
    "mcp_client_options",
    "mcp_no_leaks",
    "mcp_server",
]

_MODES = ("once", "all", "none")

# Characters of the name of a file: there are systems where 255 are the end of it.
_LONGEST_NAME = 120

_REPORTS = pytest.StashKey[dict[str, pytest.TestReport]]()

_BEFORE: pytest.StashKey[Footprint] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("syncmcp", "recorded MCP sessions")
    group.addoption(
        "--mcp-record",
        choices=_MODES,
        default=None,
        help=(
            "what mcp_cassette records: 'once' (the default) what there is no file of yet,"
            " 'all' everything anew, 'none' nothing: a file that is missing fails the test"
        ),
    )
    parser.addini(
        "mcp_record", "what mcp_cassette records if --mcp-record is not given", default="once"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how the phases of a test ended: a recording of one that failed is not kept."""
    report = yield
    item.stash.setdefault(_REPORTS, {})[report.when or ""] = report
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Look for what a test has left behind, once all of its fixtures have ended."""
    yield
    before = item.stash.get(_BEFORE, None)
    if before is not None and (leaks := before.left_behind()):
        pytest.fail("left behind: " + "; ".join(leaks), pytrace=False)


@pytest.fixture
def mcp_no_leaks(request: pytest.FixtureRequest) -> None:
    """Fail a test that leaves a thread of the library, a child process or a socket behind.

    Child processes and sockets are seen on Linux only. For all tests of a module:
    ``pytestmark = pytest.mark.usefixtures("mcp_no_leaks")``.
    """
    from syncmcp.testing.leaks import Footprint

    request.node.stash[_BEFORE] = Footprint()


@pytest.fixture
def mcp_server() -> Iterator[Server]:
    """A `syncmcp.testing.Server` without anything in it, closed after the test."""
    from syncmcp.testing import Server

    server = Server("mcp_server")
    yield server
    server.close()


@pytest.fixture
def mcp_client_options() -> Mapping[str, Any]:
    """The options of `mcp_client`: define a fixture of this name to have others than none."""
    return {}


@pytest.fixture
def mcp_client(mcp_server: Server, mcp_client_options: Mapping[str, Any]) -> Iterator[Client]:
    """A `syncmcp.Client` of `mcp_server`, in memory; closed after the test.

    It connects at its first call, or by `open()`: a server says what it has when it is connected
    to, so fill it before that.
    """
    from syncmcp import Client

    options: dict[str, Any] = {"lazy": True, **mcp_client_options}
    client = Client(mcp_server, **options)
    yield client
    client.close()


@pytest.fixture
def mcp_cassette(request: pytest.FixtureRequest) -> Iterator[Cassette]:
    """Makes targets that are recorded in the first run of a test and replayed afterwards."""
    mode = request.config.getoption("--mcp-record") or request.config.getini("mcp_record")
    if mode not in _MODES:
        raise pytest.UsageError(f"mcp_record is one of {', '.join(_MODES)}, not {mode!r}")
    cassette = Cassette(request.path, request.node.nodeid.partition("::")[2], mode)
    yield cassette
    report = request.node.stash.get(_REPORTS, {}).get("call")
    cassette.finish(passed=report is not None and report.passed)


class Cassette:
    """The recordings of one test: files in the directory `cassettes` next to it.

    Args:
        test: The file that the test is in.
        name: What the test is called there, with its class and parameters.
        mode: ``"once"``, ``"all"`` or ``"none"``; see the option ``--mcp-record``.
    """

    def __init__(self, test: Path, name: str, mode: str) -> None:
        self._directory = test.parent / "cassettes" / test.stem
        self._name = name
        self._mode = mode
        self._recordings: dict[Path, Recording] = {}
        self._replays: dict[Path, Replay] = {}

    def path(self, name: str | None = None) -> Path:
        """The file of the recording of this name."""
        full = self._name if name is None else f"{self._name}-{name}"
        return self._directory / f"{_file_name(full)}.jsonl"

    def __call__(
        self,
        target: Target | Callable[[], Target],
        *,
        name: str | None = None,
        secrets: tuple[str, ...] = (),
        mask: Callable[[str], str] | None = None,
        normalize: Callable[[str, Any], Any] | None = None,
    ) -> Recording | Replay:
        """What to connect to instead of `target`.

        Args:
            target: The real server; or a function that returns it, which is called only if there
                is something to be recorded.
            name: Which one it is, in a test that connects to several servers.
            secrets: See `syncmcp.testing.Recording`.
            mask: See `syncmcp.testing.Recording`.
            normalize: See `syncmcp.testing.Replay`.
        """
        from syncmcp.testing import Recording, Replay

        path = self.path(name)
        if path in self._recordings or path in self._replays:
            raise pytest.UsageError(f"two servers are recorded in {path}: give each a name=")
        if self._mode == "none" or (self._mode == "once" and path.exists()):
            if not path.exists():
                pytest.fail(f"there is no recording {path}, and --mcp-record is 'none'")
            replay = self._replays[path] = Replay(path, normalize=normalize)
            return replay
        server: Any = target
        if callable(target) and not hasattr(target, "connect"):
            server = target()
        recording = Recording(server, _unfinished(path), secrets=secrets, mask=mask)
        self._recordings[path] = recording
        return recording

    def finish(self, *, passed: bool) -> None:
        """Keep what was recorded if the test passed; fail it for what was not recorded."""
        for path, recording in self._recordings.items():
            if passed and recording.path.exists():
                os.replace(recording.path, path)
            recording.path.unlink(missing_ok=True)
        unexpected = [
            f"{path.name}: {error}"
            for path, replay in self._replays.items()
            for error in replay.unexpected
        ]
        if passed and unexpected:
            text = "\n".join(["not recorded (--mcp-record=all records anew):", *unexpected])
            pytest.fail(text, pytrace=False)


def _file_name(name: str) -> str:
    """A name that every file system takes; two that differ in more than that get a number."""
    plain = re.sub(r"[^\w.-]+", "-", name.replace("::", ".")).strip("-.")
    if plain == name.replace("::", ".") and len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[:_LONGEST_NAME]}-{zlib.crc32(name.encode()):08x}"


def _unfinished(path: Path) -> Path:
    """Where a recording is made; it gets its name when the test has passed."""
    return path.with_name(f"{path.name}.part")
