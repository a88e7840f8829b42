"""Which scenarios of the conformance suite are run, each on which wires."""

from __future__ import annotations

WIRES = {
    "initialize": ("2025-06-18", "2025-11-25"),
    "tools_call": ("2025-06-18", "2025-11-25", "2026-07-28"),
    "sse-retry": ("2025-11-25",),
    "request-metadata": ("2026-07-28",),
    "http-standard-headers": ("2026-07-28",),
    "json-schema-ref-no-deref": ("2026-07-28",),
    "json-schema-2020-12-preservation": ("2025-11-25", "2026-07-28"),
    "elicitation-sep1034-client-defaults": ("2025-11-25",),
    "sep-2322-client-request-state": ("2026-07-28",),
}

PAIRS = tuple((scenario, wire) for scenario, wires in WIRES.items() for wire in wires)
