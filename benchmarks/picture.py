"""The picture of the docs page: one bar a row, drawn from the summary."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from benchmarks.report import WIRES

_LEFT, _RIGHT, _LINE, _TOP = 300, 90, 24, 62
_PLOT = 420
_WIDTH = _LEFT + _PLOT + _RIGHT
_GOOD, _BAD, _PLAIN = "#2f7d4f", "#b3472f", "#6b7a8f"
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}"
    ".small{font-size:11px;fill:#555}.title{font-size:14px;font-weight:600}"
    ".grid{stroke:#ddd}.whole{stroke:#888;stroke-dasharray:3 3}"
    ".spread{stroke:#222;stroke-width:1.2}.target{stroke:#222;stroke-width:2.5}"
)


def draw(summary: Mapping[str, Any]) -> str:
    """Return an SVG of the ratios to the official SDK: bars, quartiles, and ticks at targets."""
    rows = {
        key: row
        for key, row in summary["rows"].items()
        if row["ratio"] is not None and row["versus"] == "official"
    }
    height = _TOP + _LINE * len(rows) + 34
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" role="img"',
        f' viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">',
        "<title>Cost of syncmcp as a share of the official SDK's</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        '<text class="title" x="14" y="24">Wall time (memory: MB), official SDK = 1</text>',
        '<text class="small" x="14" y="42">Bar: median of pairs; line: quartiles; tick: target; ',
        "grey: no target. Shorter is better.</text>",
    ]
    bottom = _TOP + _LINE * len(rows)
    for step in range(6):
        share = step / 5
        kind = "whole" if step == 5 else "grid"
        x = _x(share)
        out.append(f'<line class="{kind}" x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{bottom}"/>')
        out.append(
            f'<text class="small" x="{x}" y="{bottom + 18}" text-anchor="middle">{share:g}</text>'
        )
    for number, row in enumerate(rows.values()):
        out += _bar(row, _TOP + _LINE * number)
    return "\n".join([*out, "</svg>", ""])


def _x(ratio: float) -> float:
    return round(_LEFT + min(ratio, 1.1) / 1.1 * _PLOT, 1)


def _bar(row: Mapping[str, Any], y: float) -> list[str]:
    _, quarter, median, three_quarters, _ = row["ratio"]
    target = row["target"]
    colour = _PLAIN if target is None else _GOOD if row["verdict"] == "met" else _BAD
    title = escape(f"{WIRES[row['wire']]}: {row['title']}")
    middle = y + 8
    width = round(_x(median) - _LEFT, 1)
    parts = [
        f'<text x="{_LEFT - 10}" y="{y + 12}" text-anchor="end">{title}</text>',
        f'<rect x="{_LEFT}" y="{y}" width="{width}" height="16" fill="{colour}" opacity="0.85"/>',
        f'<path class="spread" d="M{_x(quarter)} {middle}H{_x(three_quarters)}"/>',
        f'<text x="{_LEFT + _PLOT + 10}" y="{y + 12}">{median:.2f}</text>',
    ]
    if target is not None:
        x = _x(target)
        parts.append(f'<line class="target" x1="{x}" y1="{y - 2}" x2="{x}" y2="{y + 18}"/>')
    return parts
