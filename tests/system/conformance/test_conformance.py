"""The official conformance suite: every scenario, in all its revisions, must pass every check.

The suite runs many scenarios in parallel, each with its own server and client program. Here, the
program is a relay: it reports the URL of the server, and waits until this process has used it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.system.conformance.client import SCENARIOS, SIGNING_IN, Context, play
from tests.system.peers.setup_peers import NODE_MODULES, node

SUITE = NODE_MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
# The suite's limit for a scenario, which includes waiting for its turn.
TIMEOUT_MS = 100_000
SLOWEST = 30.0

mark = pytest.mark
NEW = ("2026-07-28",)
BOTH = ("2025-11-25", *NEW)
THREE = ("2025-06-18", *BOTH)
# For scenarios that belong to no revision.
EXTENSION = "extension"
ADDED = (EXTENSION,)

# By scenario: the revisions, the rows that it proves, and the error with which the client must end.
TABLE: dict[str, tuple[tuple[str, ...], pytest.MarkDecorator | None, str]] = {
    "initialize": (THREE[:2], mark.requirement("VER-02"), ""),
    "tools_call": (THREE, None, ""),
    "sse-retry": (BOTH[:1], mark.requirement("HTL-08", "HTL-09", "HTL-15", "M-09"), ""),
    "request-metadata": (
        NEW,
        mark.requirement("VER-08", "VER-09", "VER-10", "VER-11", "HTM-03"),
        "",
    ),
    "http-standard-headers": (NEW, mark.requirement("HTM-04", "HTM-05"), ""),
    "http-custom-headers": (NEW, mark.requirement("XHD-01", "XHD-09", "XHD-10", "XHD-11"), ""),
    "http-invalid-tool-headers": (
        NEW,
        mark.requirement("XHD-02", "XHD-03", "XHD-04", "XHD-05", "XHD-06"),
        "",
    ),
    "json-schema-ref-no-deref": (NEW, mark.requirement("SCHM-05"), ""),
    "json-schema-2020-12-preservation": (BOTH, None, ""),
    "elicitation-sep1034-client-defaults": (BOTH[:1], mark.requirement("ELI-01", "ELI-14"), ""),
    "sep-2322-client-request-state": (
        NEW,
        mark.requirement("MRTR-02", "MRTR-03", "MRTR-05", "MRTR-06"),
        "",
    ),
    "sep-2640-client-no-prefetch": (ADDED, mark.requirement("SKL-02"), ""),
    "sep-2640-client-verify-digest": (ADDED, mark.requirement("SKL-03"), "SkillRefused"),
    "sep-2640-client-verify-size": (ADDED, mark.requirement("SKL-03"), "SkillRefused"),
    "sep-2640-client-verify-frontmatter": (ADDED, mark.requirement("SKL-04"), "SkillRefused"),
    "auth/2025-03-26-oauth-endpoint-fallback": (("2025-03-26",), mark.requirement("AUD-08"), ""),
    "auth/2025-03-26-oauth-metadata-backcompat": (("2025-03-26",), mark.requirement("AUD-08"), ""),
    "auth/authorization-server-migration": (
        NEW,
        mark.requirement("AUD-10", "AUD-11", "REG-07"),
        "",
    ),
    "auth/basic-cimd": (BOTH, mark.requirement("REG-02"), ""),
    "auth/client-credentials-basic": (ADDED, mark.requirement("AXT-01"), ""),
    "auth/client-credentials-jwt": (ADDED, mark.requirement("AXT-01"), ""),
    "auth/dpop": (ADDED, mark.requirement("AXT-08"), ""),
    "auth/dpop-nonce": (ADDED, mark.requirement("AXT-09"), ""),
    "auth/enterprise-managed-authorization": (ADDED, mark.requirement("AXT-02", "AXT-05"), ""),
    "auth/iss-normalized": (NEW, mark.requirement("FLW-08"), "AuthError"),
    "auth/iss-not-advertised": (NEW, None, ""),
    "auth/iss-supported": (NEW, None, ""),
    "auth/iss-supported-missing": (NEW, mark.requirement("FLW-07"), "AuthError"),
    "auth/iss-unexpected": (NEW, mark.requirement("FLW-07"), "AuthError"),
    "auth/iss-wrong-issuer": (NEW, mark.requirement("FLW-06", "FLW-07"), "AuthError"),
    "auth/metadata-default": (
        BOTH,
        mark.requirement("AUD-01", "AUD-02", "FLW-01", "FLW-02"),
        "",
    ),
    "auth/metadata-issuer-mismatch": (NEW, mark.requirement("AUD-07"), "DiscoveryFailed"),
    "auth/metadata-var1": (BOTH, mark.requirement("AUD-03", "AUD-04", "AUD-06"), ""),
    "auth/metadata-var2": (BOTH, mark.requirement("AUD-03", "FLW-04", "FLW-05"), ""),
    "auth/metadata-var3": (BOTH, mark.requirement("AUD-05"), ""),
    "auth/offline-access-not-supported": (NEW, mark.requirement("TOK-08"), ""),
    "auth/offline-access-scope": (NEW, mark.requirement("TOK-07"), ""),
    "auth/pre-registration": (BOTH, mark.requirement("REG-11"), ""),
    "auth/resource-mismatch": (NEW, mark.requirement("AUD-12"), "DiscoveryFailed"),
    "auth/scope-from-scopes-supported": (BOTH, mark.requirement("SCO-01"), ""),
    "auth/scope-from-www-authenticate": (BOTH, mark.requirement("SCO-01", "SCO-03"), ""),
    "auth/scope-omitted-when-undefined": (BOTH, mark.requirement("SCO-01"), ""),
    "auth/scope-retry-limit": (BOTH, mark.requirement("SCO-05"), "AuthError"),
    "auth/scope-step-up": (BOTH, mark.requirement("SCO-02", "SCO-04"), ""),
    "auth/token-endpoint-auth-basic": (THREE, None, ""),
    "auth/token-endpoint-auth-none": (THREE, None, ""),
    "auth/token-endpoint-auth-post": (THREE, None, ""),
    "auth/wif-jwt-bearer": (ADDED, mark.requirement("AXT-07"), ""),
}
RELAY = """
name=${MCP_CONFORMANCE_SCENARIO##*/}
mkfifo "$1/$name"
printf %s "$MCP_CONFORMANCE_CONTEXT" > "$1/$name.json"
echo "$MCP_CONFORMANCE_SCENARIO $2" > "$1/calls"
cat "$1/$name"
"""


def complaints(
    folder: Path, client: Callable[[str, str, Context], None], *options: str
) -> dict[str, list[str]]:
    """Run the scenarios that the options name with a client; return the failures of each."""
    (folder / "relay.sh").write_text(RELAY, "utf-8")
    os.mkfifo(folder / "calls")
    said: dict[str, str] = {}
    command = [str(node()), str(SUITE), "client", "--timeout", str(TIMEOUT_MS), *options]
    command += ["--command", f"exec sh {folder / 'relay.sh'} {folder}", "-o", str(folder / "of")]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as suite,
        open(os.open(folder / "calls", os.O_RDWR)) as calls,  # also for writing: no end of file
    ):
        end = threading.Thread(target=lambda: (suite.wait(), os.write(calls.fileno(), b"\n")))
        end.start()
        while call := calls.readline().split():
            scenario, url = call
            name = scenario.rpartition("/")[2]
            context = json.loads((folder / f"{name}.json").read_text("utf-8") or "{}")
            said[scenario], begun = "", time.monotonic()
            try:
                client(scenario, url, context)
            except Exception as error:
                said[scenario] = type(error).__name__
            if time.monotonic() - begun > SLOWEST:
                said[scenario] += " too late"
            (folder / name).write_text("")  # ends the relay
        end.join()
    assert said, (folder / "log").read_text("utf-8")
    assert suite.returncode == 0, (folder / "log").read_text("utf-8")
    return {scenario: judged(scenario, said[scenario], folder / "of") for scenario in said}


def judged(scenario: str, said: str, results: Path) -> list[str]:
    [checks] = results.glob(f"{scenario}-20*/checks.json")
    seen = Counter(check["status"] for check in json.loads(checks.read_text("utf-8")))
    found = [f"{seen[bad]} {bad}" for bad in ("FAILURE", "WARNING") if seen[bad]]
    if said != TABLE[scenario][2]:
        found.append(f"it ended with {said!r}")
    # A client that does nothing fails no check, so require one success.
    return found if seen["SUCCESS"] else [*found, "no check succeeded"]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, list[str]]]:
    """Return a function of the failures in a revision; its first call runs all scenarios."""

    @cache
    def played(*options: str) -> dict[str, list[str]]:
        return complaints(tmp_path_factory.mktemp("suite"), play, "--suite", "all", *options)

    def of(wire: str) -> dict[str, list[str]]:
        # By default, the suite uses 2025-11-25, also for extensions, unless a scenario is newer.
        return played() if wire in (EXTENSION, BOTH[0]) else played("--spec-version", wire)

    return of


@pytest.mark.peer
@pytest.mark.parametrize(
    ("scenario", "wire"),
    [
        pytest.param(name, wire, marks=shows or ())
        for name, (wires, shows, _) in TABLE.items()
        for wire in wires
    ],
)
def test_a_scenario_passes_every_check(
    scenario: str, wire: str, suite: Callable[[str], dict[str, list[str]]]
) -> None:
    assert suite(wire)[scenario] == []


@pytest.mark.peer
def test_the_table_has_every_scenario_of_the_suite_on_all_its_wires() -> None:
    command = [str(node()), str(SUITE), "list", "--client"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    suite = dict(re.findall(r"^  - (\S+) \[(\S+)\]$", listed, re.MULTILINE))
    assert len(suite) == 48
    assert suite == {name: ",".join(wires) for name, (wires, _, _) in TABLE.items()}
    assert [*SCENARIOS] == [name for name in TABLE if not name.startswith("auth/")]
    assert SIGNING_IN.keys() <= TABLE.keys()


@pytest.mark.peer
@pytest.mark.parametrize("scenario", [name for name in TABLE if TABLE[name][0] == ADDED])
def test_extensions_pass_on_the_newest_wire_too(scenario: str, tmp_path: Path) -> None:
    options = ("--scenario", scenario, "--spec-version", NEW[0], "--force")
    assert complaints(tmp_path, play, *options) == {scenario: []}


def end_with_an_error(scenario: str, url: str, context: Context) -> None:
    play(scenario, url, context)
    raise LookupError


@pytest.mark.peer
@pytest.mark.parametrize(
    ("client", "complaint"),
    [(lambda *_: None, "no check succeeded"), (end_with_an_error, "it ended with 'LookupError'")],
    ids=["that does nothing", "that ends with an error"],
)
def test_a_client_does_not_pass(
    client: Callable[[str, str, Context], None], complaint: str, tmp_path: Path
) -> None:
    found = complaints(tmp_path, client, "--scenario", "initialize")
    assert found == {"initialize": [complaint]}
