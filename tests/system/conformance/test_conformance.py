"""The official conformance suite, strictly: one scenario at a time, and every check counts."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.system.conformance.client import SCENARIOS, SIGNING_IN
from tests.system.conformance.table import EXTENSIONS, PAIRS, REFUSING, WIRES
from tests.system.peers.setup_peers import NODE_MODULES, node

SUITE = NODE_MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
CLIENT = Path(__file__).with_name("client.py")
TIMEOUT_MS = 30_000

SHOWS = {
    "initialize": pytest.mark.requirement("VER-02"),
    "sse-retry": pytest.mark.requirement("HTL-08", "HTL-09", "HTL-15", "M-09"),
    "request-metadata": pytest.mark.requirement("VER-08", "VER-09", "VER-10", "VER-11", "HTM-03"),
    "http-standard-headers": pytest.mark.requirement("HTM-04", "HTM-05"),
    "http-custom-headers": pytest.mark.requirement("XHD-01", "XHD-09", "XHD-10", "XHD-11"),
    "http-invalid-tool-headers": pytest.mark.requirement(
        "XHD-02", "XHD-03", "XHD-04", "XHD-05", "XHD-06"
    ),
    "elicitation-sep1034-client-defaults": pytest.mark.requirement("ELI-01", "ELI-14"),
    "sep-2322-client-request-state": pytest.mark.requirement(
        "MRTR-02", "MRTR-03", "MRTR-05", "MRTR-06"
    ),
    "sep-2640-client-no-prefetch": pytest.mark.requirement("SKL-02"),
    "sep-2640-client-verify-digest": pytest.mark.requirement("SKL-03"),
    "sep-2640-client-verify-size": pytest.mark.requirement("SKL-03"),
    "sep-2640-client-verify-frontmatter": pytest.mark.requirement("SKL-04"),
    "json-schema-ref-no-deref": pytest.mark.requirement("SCHM-05"),
    "auth/2025-03-26-oauth-endpoint-fallback": pytest.mark.requirement("AUD-08"),
    "auth/2025-03-26-oauth-metadata-backcompat": pytest.mark.requirement("AUD-08"),
    "auth/authorization-server-migration": pytest.mark.requirement("AUD-10", "AUD-11", "REG-07"),
    "auth/basic-cimd": pytest.mark.requirement("REG-02"),
    "auth/client-credentials-basic": pytest.mark.requirement("AXT-01"),
    "auth/client-credentials-jwt": pytest.mark.requirement("AXT-01"),
    "auth/dpop": pytest.mark.requirement("AXT-08"),
    "auth/dpop-nonce": pytest.mark.requirement("AXT-09"),
    "auth/enterprise-managed-authorization": pytest.mark.requirement("AXT-02", "AXT-05"),
    "auth/iss-normalized": pytest.mark.requirement("FLW-08"),
    "auth/iss-supported-missing": pytest.mark.requirement("FLW-07"),
    "auth/iss-unexpected": pytest.mark.requirement("FLW-07"),
    "auth/iss-wrong-issuer": pytest.mark.requirement("FLW-06", "FLW-07"),
    "auth/metadata-default": pytest.mark.requirement("AUD-01", "AUD-02", "FLW-01", "FLW-02"),
    "auth/metadata-issuer-mismatch": pytest.mark.requirement("AUD-07"),
    "auth/metadata-var1": pytest.mark.requirement("AUD-03", "AUD-04", "AUD-06"),
    "auth/metadata-var2": pytest.mark.requirement("AUD-03", "FLW-04", "FLW-05"),
    "auth/metadata-var3": pytest.mark.requirement("AUD-05"),
    "auth/offline-access-not-supported": pytest.mark.requirement("TOK-08"),
    "auth/offline-access-scope": pytest.mark.requirement("TOK-07"),
    "auth/pre-registration": pytest.mark.requirement("REG-11"),
    "auth/resource-mismatch": pytest.mark.requirement("AUD-12"),
    "auth/scope-from-scopes-supported": pytest.mark.requirement("SCO-01"),
    "auth/scope-from-www-authenticate": pytest.mark.requirement("SCO-01", "SCO-03"),
    "auth/scope-omitted-when-undefined": pytest.mark.requirement("SCO-01"),
    "auth/scope-retry-limit": pytest.mark.requirement("SCO-05"),
    "auth/scope-step-up": pytest.mark.requirement("SCO-02", "SCO-04"),
    "auth/wif-jwt-bearer": pytest.mark.requirement("AXT-07"),
}


def complaints(client: Path, scenario: str, wire: str, results: Path) -> list[str]:
    """Runs one scenario and returns what is wrong; the suite's files go below `results`."""
    # Without `exec` the suite could end only the shell around a client that hangs.
    driven = "exec " + shlex.join([sys.executable, str(client)])
    command = [str(node()), str(SUITE), "client", "--command", driven, "--scenario", scenario]
    command += ["--spec-version", wire, "--timeout", str(TIMEOUT_MS), "-o", str(results)]
    command += ["--force"] * (scenario in EXTENSIONS)
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=2 * TIMEOUT_MS / 1000
    )
    [checks] = results.glob("**/checks.json")
    said = checks.with_name("stderr.txt").read_text("utf-8").strip()
    seen = Counter(check["status"] for check in json.loads(checks.read_text("utf-8")))
    found = [f"{seen[bad]} {bad}" for bad in ("FAILURE", "WARNING") if seen[bad]]
    if done.returncode:
        found.append(f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}")
    # An exit code is forgiven where the client has to give up; so what that says is read.
    if said.partition(":")[0] != REFUSING.get(scenario, ""):
        found.append(f"it said {said!r}")
    # The suite is content with a client that never asked for anything.
    if not seen["SUCCESS"]:
        found.append("no check succeeded")
    return found


@pytest.mark.peer
@pytest.mark.parametrize(
    ("scenario", "wire"),
    [pytest.param(*pair, marks=SHOWS.get(pair[0], ())) for pair in PAIRS],
)
def test_a_scenario_passes_every_check(scenario: str, wire: str, tmp_path: Path) -> None:
    assert complaints(CLIENT, scenario, wire, tmp_path) == []


@pytest.mark.peer
def test_the_table_has_every_scenario_of_the_suite_on_all_its_wires() -> None:
    listed = subprocess.run(
        [str(node()), str(SUITE), "list", "--client"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    suite = dict(re.findall(r"^  - (\S+) \[(\S+)\]$", listed, re.MULTILINE))
    assert len(suite) == 48
    assert sorted(suite) == sorted(WIRES)
    assert {name for name, wires in suite.items() if wires == "extension"} == EXTENSIONS
    named = {name: tuple(wires.split(",")) for name, wires in suite.items()}
    assert {name: WIRES[name] for name in suite if name not in EXTENSIONS} == {
        name: named[name] for name in suite if name not in EXTENSIONS
    }


@pytest.mark.peer
def test_a_client_that_does_nothing_does_not_pass(tmp_path: Path) -> None:
    idle = tmp_path / "idle.py"
    idle.touch()
    assert complaints(idle, "initialize", "2025-11-25", tmp_path) == ["no check succeeded"]


@pytest.mark.peer
def test_a_client_that_ends_with_an_error_does_not_pass(tmp_path: Path) -> None:
    failing = tmp_path / "failing.py"
    failing.write_text(f"{CLIENT.read_text('utf-8')}    raise SystemExit(3)\n", "utf-8")
    [complaint] = complaints(failing, "initialize", "2025-11-25", tmp_path)
    assert complaint.startswith("exit code ")


def test_the_table_and_the_client_know_the_same_scenarios() -> None:
    assert [*SCENARIOS] == [name for name in WIRES if not name.startswith("auth/")]
    assert SIGNING_IN.keys() <= WIRES.keys()
