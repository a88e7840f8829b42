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
from tests.system.peers.setup_peers import NODE_MODULES, node

SUITE = NODE_MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
CLIENT = Path(__file__).with_name("client.py")
TIMEOUT_MS = 30_000

mark = pytest.mark
NEW = ("2026-07-28",)
BOTH = ("2025-11-25", *NEW)
THREE = ("2025-06-18", *BOTH)

# Each scenario: on which wires, what it shows, and with which error the client has to give up.
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
    "sep-2640-client-no-prefetch": (NEW, mark.requirement("SKL-02"), ""),
    "sep-2640-client-verify-digest": (NEW, mark.requirement("SKL-03"), "SkillRefused"),
    "sep-2640-client-verify-size": (NEW, mark.requirement("SKL-03"), "SkillRefused"),
    "sep-2640-client-verify-frontmatter": (NEW, mark.requirement("SKL-04"), "SkillRefused"),
    "auth/2025-03-26-oauth-endpoint-fallback": (("2025-03-26",), mark.requirement("AUD-08"), ""),
    "auth/2025-03-26-oauth-metadata-backcompat": (("2025-03-26",), mark.requirement("AUD-08"), ""),
    "auth/authorization-server-migration": (
        NEW,
        mark.requirement("AUD-10", "AUD-11", "REG-07"),
        "",
    ),
    "auth/basic-cimd": (BOTH, mark.requirement("REG-02"), ""),
    "auth/client-credentials-basic": (BOTH, mark.requirement("AXT-01"), ""),
    "auth/client-credentials-jwt": (BOTH, mark.requirement("AXT-01"), ""),
    "auth/dpop": (BOTH, mark.requirement("AXT-08"), ""),
    "auth/dpop-nonce": (BOTH, mark.requirement("AXT-09"), ""),
    "auth/enterprise-managed-authorization": (BOTH, mark.requirement("AXT-02", "AXT-05"), ""),
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
    "auth/wif-jwt-bearer": (BOTH, mark.requirement("AXT-07"), ""),
}
# Scenarios that belong to no revision; the suite runs them with `--force` alone.
_ADDED = ("auth/client-credentials", "auth/dpop", "auth/enterprise", "auth/wif", "sep-2640")
EXTENSIONS = {name for name in TABLE if name.startswith(_ADDED)}


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
    if said.partition(":")[0] != TABLE[scenario][2]:
        found.append(f"it said {said!r}")
    # The suite is content with a client that never asked for anything.
    return found if seen["SUCCESS"] else [*found, "no check succeeded"]


@pytest.mark.peer
@pytest.mark.parametrize(
    ("scenario", "wire"),
    [
        pytest.param(name, wire, marks=shows or ())
        for name, (wires, shows, _) in TABLE.items()
        for wire in wires
    ],
)
def test_a_scenario_passes_every_check(scenario: str, wire: str, tmp_path: Path) -> None:
    assert complaints(CLIENT, scenario, wire, tmp_path) == []


@pytest.mark.peer
def test_the_table_has_every_scenario_of_the_suite_on_all_its_wires() -> None:
    command = [str(node()), str(SUITE), "list", "--client"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    suite = dict(re.findall(r"^  - (\S+) \[(\S+)\]$", listed, re.MULTILINE))
    assert len(suite) == 48
    assert suite == {
        name: "extension" if name in EXTENSIONS else ",".join(wires)
        for name, (wires, _, _) in TABLE.items()
    }


@pytest.mark.peer
@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("", "no check succeeded"),
        (f"{CLIENT.read_text('utf-8')}    raise SystemExit(3)\n", "exit code .*"),
    ],
    ids=["that does nothing", "that ends with an error"],
)
def test_a_client_does_not_pass(code: str, complaint: str, tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(code, "utf-8")
    [said] = complaints(client, "initialize", "2025-11-25", tmp_path)
    assert re.fullmatch(complaint, said, re.DOTALL)


def test_the_table_and_the_client_know_the_same_scenarios() -> None:
    assert [*SCENARIOS] == [name for name in TABLE if not name.startswith("auth/")]
    assert SIGNING_IN.keys() <= TABLE.keys()
