"""The pytest plugin of syncmcp: fixtures for tests of programs that use it.

pytest loads the plugin in every run if the package is installed. It therefore imports the library
only when a test requests one of the fixtures.
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

# The maximum length of a file name, in characters. Some file systems allow no more than 255.
_MAX_NAME_LENGTH = 120

_REPORTS = pytest.StashKey[dict[str, pytest.TestReport]]()

_FOOTPRINT: pytest.StashKey[Footprint] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("syncmcp", "recorded MCP sessions")
    group.addoption(
        "--mcp-record",
        choices=_MODES,
        default=None,
        help=(
            "what mcp_cassette records: 'once' (the default) only missing recordings, 'all'"
            " everything again, 'none' nothing: a missing recording fails the test"
        ),
    )
    parser.addini(
        "mcp_record", "what mcp_cassette records if --mcp-record is not given", default="once"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Store the report of each phase of a test: recordings of failed tests are discarded."""
    report = yield
    item.stash.setdefault(_REPORTS, {})[report.when or ""] = report
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Check a test with `mcp_no_leaks` for leaks, after all of its fixtures were finalized."""
    yield
    before = item.stash.get(_FOOTPRINT, None)
    if before is not None and (leaks := before.left_behind()):
        pytest.fail("left behind: " + "; ".join(leaks), pytrace=False)


@pytest.fixture
def mcp_no_leaks(request: pytest.FixtureRequest) -> None:
    """Fail a test that leaks a thread of the library, a child process, a socket or a pipe.

    Child processes, sockets and pipes are found on Linux only. To check all tests of a module,
    write ``pytestmark = pytest.mark.usefixtures("mcp_no_leaks")``.
    """
    from syncmcp.testing.leaks import Footprint

    request.node.stash[_FOOTPRINT] = Footprint()


@pytest.fixture
def mcp_server() -> Iterator[Server]:
    """A `syncmcp.testing.Server` without tools, resources and prompts, closed after the test."""
    from syncmcp.testing import Server

    server = Server("mcp_server")
    yield server
    server.close()


@pytest.fixture
def mcp_client_options() -> Mapping[str, Any]:
    """The options of `mcp_client`. There are none by default; override this fixture to set some."""
    return {}


@pytest.fixture
def mcp_client(mcp_server: Server, mcp_client_options: Mapping[str, Any]) -> Iterator[Client]:
    """A `syncmcp.Client` of `mcp_server` in memory, closed after the test.

    The client connects at its first call, or by `open()`. Register the server's features before
    that: the server declares its capabilities when the client connects.
    """
    from syncmcp import Client

    given: object = mcp_client_options
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise pytest.UsageError(
            f"the fixture mcp_client_options must return a dict of options of Client, not {kind}"
        )
    options: dict[str, Any] = {"lazy": True, **mcp_client_options}
    client = Client(mcp_server, **options)
    yield client
    client.close()


@pytest.fixture
def mcp_cassette(request: pytest.FixtureRequest) -> Iterator[Cassette]:
    """A `Cassette`, whose targets are recorded in the first run and replayed afterwards."""
    mode = request.config.getoption("--mcp-record") or request.config.getini("mcp_record")
    if mode not in _MODES:
        raise pytest.UsageError(f"mcp_record must be one of {', '.join(_MODES)}, not {mode!r}")
    cassette = Cassette(request.path, request.node.nodeid.partition("::")[2], mode)
    yield cassette
    report = request.node.stash.get(_REPORTS, {}).get("call")
    cassette.finish(passed=report is not None and report.passed)


class Cassette:
    """The recordings of one test: files in the directory `cassettes` next to the test's file.

    Args:
        test: The file of the test.
        name: The name of the test, with its class and parameters.
        mode: ``"once"``, ``"all"`` or ``"none"``; see the option ``--mcp-record``.
    """

    def __init__(self, test: Path, name: str, mode: str) -> None:
        self._directory = test.parent / "cassettes" / test.stem
        self._name = name
        self._mode = mode
        self._recordings: dict[Path, Recording] = {}
        self._replays: dict[Path, Replay] = {}

    def path(self, name: str | None = None) -> Path:
        """Return the file of the recording with this name."""
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
        """Return the target to connect to instead of `target`: a `Recording` or a `Replay`.

        Args:
            target: The real server, or a function that returns it. The function is called only to
                record the server.
            name: A name for the recording, in a test that connects to several servers.
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
                pytest.fail(f"the recording {path} is missing, and --mcp-record is 'none'")
            replay = self._replays[path] = Replay(path, normalize=normalize)
            return replay
        server: Any = target
        if callable(target) and not hasattr(target, "connect"):
            server = target()
        recording = Recording(server, _partial_path(path), secrets=secrets, mask=mask)
        self._recordings[path] = recording
        return recording

    def finish(self, *, passed: bool) -> None:
        """Keep the recordings of a passed test; fail it if some requests were not recorded."""
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
            text = "\n".join(["not recorded (--mcp-record=all records again):", *unexpected])
            pytest.fail(text, pytrace=False)


def _file_name(name: str) -> str:
    """Return a valid file name; a checksum distinguishes names that would become equal."""
    plain = re.sub(r"[^\w.-]+", "-", name.replace("::", ".")).strip("-.")
    if plain == name.replace("::", ".") and len(plain) <= _MAX_NAME_LENGTH:
        return plain
    return f"{plain[:_MAX_NAME_LENGTH]}-{zlib.crc32(name.encode()):08x}"


def _partial_path(path: Path) -> Path:
    """Return the file to record to, which is renamed when the test has passed."""
    return path.with_name(f"{path.name}.part")
