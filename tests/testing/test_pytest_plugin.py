"""The pytest plugin, in separate runs of pytest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]

WEATHER = """
import pytest, syncmcp
from syncmcp.testing import Server

calls = []

@pytest.fixture
def server():
    server = Server("weather")

    @server.tool()
    def degrees(city: str) -> str:
        calls.append(city)
        return f"it is {len(calls)} in {city}"

    yield server
    server.close()

CITY = "Bergen"

def test_weather(server, mcp_cassette):
    with syncmcp.connect(mcp_cassette(server)) as client:
        print("told:", client.call_tool("degrees", {"city": CITY}).text, len(calls))
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no other plugin, and this one only once, even if it is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "pytest_syncmcp", "-rA", "-Werror", *options)


def run_here(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Do the same in this process: faster, for tests that change nothing in the process."""
    return pytester.runpytest_inprocess("-p", "pytest_syncmcp", "-rA", "-Werror", *options)


def cassettes(pytester: pytest.Pytester) -> list[str]:
    found = (pytester.path / "cassettes").rglob("*")
    return sorted(str(path.relative_to(pytester.path)) for path in found if path.is_file())


@pytest.mark.pitfall("33")
def test_a_test_gets_a_server_of_its_own_and_may_leave_what_its_fixtures_end(
    pytester: pytest.Pytester,
) -> None:
    declared = r'\[project\.entry-points\.pytest11\]\npytest_syncmcp = "pytest_syncmcp"\n'
    assert re.search(declared, (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pytester.makepyfile(
        """
        import pytest, socket, sys

        LOADED = "syncmcp" in sys.modules  # by the plugin

        @pytest.fixture
        def mcp_client_options():
            return {"mode": "2025-11-25", "name": "mine"}

        @pytest.fixture
        def client():
            import syncmcp
            from syncmcp.testing import Server
            server = Server("own")
            server.add_tool(lambda: "said", name="say")
            client = syncmcp.Client(server, lazy=True)
            yield client
            client.close()
            server.close()

        @pytest.fixture(scope="module")
        def line():
            one, other = socket.socketpair()
            yield one
            one.close()
            other.close()

        @pytest.mark.parametrize("number", [1, 2])
        def test_it(mcp_client, mcp_server, number, mcp_no_leaks):
            assert not LOADED
            mcp_server.add_tool(lambda: str(number), name="number")
            assert mcp_client.call_tool("number").text == str(number)
            assert [tool.name for tool in mcp_client.list_tools().tools] == ["number"]
            assert (mcp_client.server.revision, mcp_client.server.name) == ("2025-11-25", "mine")

        # Fixtures end in the other order.
        def test_begun_before(client, line, mcp_no_leaks):
            assert client.call_tool("say").text == "said"

        def test_begun_after(mcp_no_leaks, client, line):
            assert client.call_tool("say").text == "said"

        class TestClass:
            @pytest.fixture(autouse=True)
            def opened(self, client):
                self.client = client

            @pytest.mark.usefixtures("mcp_no_leaks")
            def test_begun_by_itself(self, line):
                assert self.client.call_tool("say").text == "said"
        """
    )
    run(pytester).assert_outcomes(passed=5)


def test_options_of_the_client_that_are_no_dict_are_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def mcp_client_options():
            return ["timeout"]

        def test_it(mcp_client):
            pass
        """
    )
    result = run_here(pytester)
    result.assert_outcomes(errors=1)
    said = "mcp_client_options must return a dict of options of Client, not list"
    result.stdout.fnmatch_lines(f"*UsageError: the fixture {said}")


@pytest.mark.pitfall("33")
def test_what_a_test_leaves_behind_fails_it_by_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest, socket, syncmcp
        import syncmcp.testing.leaks
        kept = []

        @pytest.fixture(autouse=True, scope="module")
        def impatient():
            grown = syncmcp.testing.leaks.Footprint.left_behind
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    syncmcp.testing.leaks.Footprint, "left_behind", lambda self: grown(self, 0.0)
                )
                yield

        def test_client(mcp_server, mcp_no_leaks):
            kept.append(syncmcp.connect(mcp_server))

        def test_socket(mcp_no_leaks):
            kept.append(socket.socket())

        @pytest.fixture
        def broken():
            kept.append(socket.socket())
            yield
            raise OSError("broken in the end")  # is what is told

        def test_broken(mcp_no_leaks, broken):
            pass

        def test_last():
            for one in kept:
                one.close()
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=4, errors=3)
    result.stdout.fnmatch_lines(
        [
            "left behind: thread syncmcp-*",
            "left behind: *socket:*",
            "*OSError: broken in the end",
        ]
    )


def test_a_cassette_is_recorded_once_and_replayed_afterwards(pytester: pytest.Pytester) -> None:
    def told(line: str, *options: str, **outcomes: int) -> None:
        result = run_here(pytester, *options)
        result.assert_outcomes(**outcomes)
        result.stdout.fnmatch_lines([line])

    pytester.makepyfile(test_weather=WEATHER)
    pytester.makeini("[pytest]\nmcp_record = none\n")
    told("*the recording *test_weather.jsonl is missing*", failed=1)
    pytester.makeini("[pytest]\nmcp_record = sometimes\n")
    run_here(pytester).assert_outcomes(errors=1)
    told("told: it is 1 in Bergen 1", "--mcp-record=once", passed=1)
    assert cassettes(pytester) == ["cassettes/test_weather/test_weather.jsonl"]
    pytester.makeini("[pytest]\n")
    told("told: it is 1 in Bergen 0", passed=1)

    hides = WEATHER.replace(
        "        print",
        "        import contextlib\n        with contextlib.suppress(Exception): print",
    ).replace("Bergen", "Oslo")
    pytester.makepyfile(test_weather=hides)
    told("not recorded (--mcp-record=all records again):", passed=1, errors=1)
    pytester.makepyfile(test_weather=WEATHER.replace("Bergen", "Oslo"))
    told('*arguments.city: recorded "Bergen"; asked "Oslo"*', failed=1)
    told("told: it is 1 in Oslo 1", "--mcp-record=all", passed=1)
    told("told: it is 1 in Oslo 0", "--mcp-record=none", passed=1)


def test_the_recording_of_a_test_that_failed_is_not_kept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_weather=WEATHER + "    assert 0\n")
    run_here(pytester).assert_outcomes(failed=1)
    assert cassettes(pytester) == []

    pytester.makepyfile(test_weather=WEATHER)
    run_here(pytester).assert_outcomes(passed=1)
    (kept,) = cassettes(pytester)
    before = (pytester.path / kept).read_bytes()
    pytester.makepyfile(test_weather=WEATHER + "    assert 0\n")
    run_here(pytester, "--mcp-record=all").assert_outcomes(failed=1)
    assert cassettes(pytester) == [kept]
    assert (pytester.path / kept).read_bytes() == before


def test_each_test_and_each_server_has_a_file_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_many="""
        import pytest, syncmcp

        class TestIt:
            @pytest.mark.parametrize("word", ["a/b", "a b", "x" * 300])
            def test_words(self, word, mcp_server, mcp_cassette):
                made = []

                def make():
                    made.append(mcp_server)
                    return mcp_server

                mcp_server.add_tool(lambda: word, name="word")
                for name in (None, "other"):
                    with syncmcp.connect(mcp_cassette(make, name=name)) as client:
                        assert client.call_tool("word").text == word
                print("made", len(made))
                with pytest.raises(pytest.UsageError, match="name="):
                    mcp_cassette(mcp_server)
        """
    )
    recorded = run_here(pytester)
    recorded.assert_outcomes(passed=3)
    assert recorded.stdout.str().count("made 2") == 3
    assert len(cassettes(pytester)) == 6
    assert all(Path(name).name.startswith("TestIt.test_words-") for name in cassettes(pytester))
    replayed = run_here(pytester)
    replayed.assert_outcomes(passed=3)
    assert replayed.stdout.str().count("made 0") == 3


def test_the_example_of_the_page_records_and_replays(pytester: pytest.Pytester) -> None:
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    (example,) = (
        block
        for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        if "def test_" in block
    )
    pytester.makepyfile(test_shopping=example)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(pytester.path))  # contains no other Python
        run(pytester).assert_outcomes(passed=3)
    file = "cassettes/test_shopping/test_the_real_server_is_understood.jsonl"
    assert cassettes(pytester) == [file]
    assert file in page
    pytester.makepyfile(test_shopping=example.replace("sys.executable", '"no-such-program"'))
    run(pytester, "--mcp-record=none").assert_outcomes(passed=3)
