"""The table, as text for the terminal and as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.calls import WAYS

WIRES = {"stdio": "stdio", "json": "HTTP, JSON", "sse": "HTTP, event stream"}
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

_HEAD = (
    f"{'':48}{'syncmcp':>10}{'official':>10}{'floor':>10}"
    f"{'ratio':>8}  {'quartiles':<15}{'min..max':<16}{'CPU':>6}{'target':>8}"
)


def heading() -> str:
    """Return the line above the table in the terminal."""
    return _HEAD


def line(row: Mapping[str, Any]) -> str:
    """Return one row of a summary, for the terminal."""
    sides = ("syncmcp", "official", "floor")
    shown = "".join(f"{amount(row, side):>10}" for side in sides)
    title = f"{WIRES[row['wire']]}: {row['title']}"
    ratio = row["ratio"]
    if ratio is None:
        return f"{title:48}{shown}"
    low, quarter, median, three_quarters, high = ratio
    cpu = f"{row['cpu_ratio'][2]:.2f}" if row["cpu_ratio"] and row["unit"] != "MB" else ""
    target = "" if row["target"] is None else f"{row['target']:.3g}"
    return (
        f"{title:48}{shown}{median:8.2f}  {f'{quarter:.2f}..{three_quarters:.2f}':<15}"
        f"{f'{low:.2f}..{high:.2f}':<16}{cpu:>6}{target:>8}  {notes(row)}".rstrip()
    )


def notes(row: Mapping[str, Any]) -> str:
    """Return the verdict and other facts that a reader must know."""
    words = [row["verdict"]] if row["verdict"] else []
    if row["versus"] == "singles":
        words.append(f"to single calls ({amount(row, 'singles')})")
    elif row["versus"] != "official" and row["target"] is not None:
        words.append(f"to the {row['versus']}")
    connections = row.get("connections_per_call")
    if connections:
        words.append(
            f"new connections a call: {connections['syncmcp']:g}"
            f" (official {connections['official']:g})"
        )
    delivered = row.get("delivered")
    if delivered and delivered["syncmcp"] < 1:
        words.append(f"as few as {delivered['syncmcp']:.0%} reached the callback")
    return "; ".join(words)


def amount(row: Mapping[str, Any], side: str) -> str:
    """Return a side's median with its unit."""
    value = row["median"].get(side)
    if value is None:
        return "-"
    if row["unit"] == "MB":
        return f"{value:.1f} MB"
    return _duration(value)


def _duration(seconds: float) -> str:
    magnitude = abs(seconds)
    if magnitude >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if magnitude >= 1e-3 else f"{seconds * 1e6:.0f} us"


def markdown(summary: Mapping[str, Any]) -> str:
    """Return the tables of the docs page, and a description of the measurement."""
    columns = ("", "syncmcp", "official SDK", "floor", "ratio", "quartiles", "CPU ratio", "target")
    lines = [_cells([*columns, ""]), _cells(["---", *["---:"] * (len(columns) - 1), "---"])]
    for row in summary["rows"].values():
        ratio = row["ratio"]
        cpu = row["cpu_ratio"]
        lines.append(
            _cells(
                [
                    f"{WIRES[row['wire']]}: {row['title']}",
                    *(amount(row, side) for side in ("syncmcp", "official", "floor")),
                    f"**{ratio[2]:.2f}**" if ratio else "",
                    f"{ratio[1]:.2f}\u2013{ratio[3]:.2f}" if ratio else "",
                    f"{cpu[2]:.2f}" if cpu and row["unit"] != "MB" else "",
                    "" if row["target"] is None else f"{row['target']:.3g}",
                    notes(row),
                ]
            )
        )
    machine = summary["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    measured = (
        f"Measured with `{summary['command']}`: revision {summary['revision']}, at least "
        f"{summary['pairs']} pairs a row, Python {machine['python']} on {machine['system']} with "
        f"{machine['cores']} cores; {packages}. "
    )
    loaded = summary["unwanted_imports"]
    imports = (
        f"`import syncmcp` loads {', '.join(loaded)}, which it should not."
        if loaded
        else "`import syncmcp` loads neither `requests` nor `jsonschema` nor any user interface."
    )
    late, counted = _deadlines(summary["overshoot"]), _calls(summary["calls"])
    return "\n".join([*lines, "", measured + imports, "", *late, "", *counted])


def _calls(counted: Mapping[str, Any]) -> list[str]:
    """Return the table of functions and files that a tool call enters."""
    explained = (
        "Python functions that one tool call enters, over all threads, and how many files of the "
        "library they are in:"
    )
    lines = [
        explained,
        "",
        _cells(["", "functions", "files"]),
        _cells(["---", "---:", "---:"]),
    ]
    for key, one in counted.items():
        lines.append(_cells([WAYS[key].title, f"{one['calls']:g}", str(one["files"])]))
    return lines


def _deadlines(overshoot: Mapping[str, Any]) -> list[str]:
    """Return the table of how late calls over HTTP end, by the phase of their deadline."""
    aim = overshoot["aim"]
    phases: dict[str, dict[bool, Mapping[str, Any]]] = {}
    for one in overshoot["phases"]:
        phases.setdefault(one["phase"], {})[one["tls"]] = one
    explained = (
        "Over HTTP a call whose deadline passes in one of these phases ends so much later (median "
        f"and slowest of {overshoot['calls']}; the aim is {_duration(aim)} at most):"
    )
    lines = [
        explained,
        "",
        _cells(["deadline passed in", "plain", "slowest", "TLS", "slowest", ""]),
        _cells(["---", *["---:"] * 4, "---"]),
    ]
    for phase, wires in phases.items():
        cells = [phase]
        for tls in (False, True):
            one = wires.get(tls)
            names = ("median", "highest")
            cells += ["-", "-"] if one is None else [_duration(one[name]) for name in names]
        met = all(one["median"] <= aim for one in wires.values())
        lines.append(_cells([*cells, "met" if met else "missed"]))
    return lines


def into_page(page: str, table: str) -> str:
    """Return the page with its table replaced."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"


def _cells(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
