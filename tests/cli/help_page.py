"""The help of every command, for docs/command-line.md.

``python -m tests.cli.help_page`` writes it into the page; a test compares the page with it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syncmcp.cli.app import command_tree
from syncmcp.cli.parsing import Settings

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
WIDTH = 100

_BLOCK = re.compile(r"(<!-- help of (?P<words>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_COMMON = {field.name for field in dataclasses.fields(Settings)}


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command with its words, such as `auth login`."""
    for name, command in command_tree().commands.items():
        for inner, one in getattr(command, "commands", {"": command}).items():
            yield f"{name} {inner}".strip(), one


def with_help(page: str) -> str:
    """Return the page with the current help of the commands."""
    found = dict(commands())

    def filled(block: re.Match[str]) -> str:
        words = block["words"]
        text = _common(found["ping"]) if words == "all" else _help(words, found[words])
        return f"{block[1]}\n```text\n{text}\n```\n\n{block[3]}"

    return _BLOCK.sub(filled, page)


def documented(page: str) -> set[str]:
    """Return the commands whose help is on the page."""
    return {block["words"] for block in _BLOCK.finditer(page)} - {"all"}


def _help(words: str, command: Any) -> str:
    context = command.make_context(f"syncmcp {words}", [], resilient_parsing=True)
    formatter = context.make_formatter()
    formatter.width = WIDTH
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        own = [
            one.get_help_record(context)
            for one in command.params
            if one.param_type_name == kind and one.name not in _COMMON | {"target"}
        ]
        if own:
            with formatter.section(title):
                formatter.write_dl(own)
    return str(formatter.getvalue()).rstrip()


def _common(command: Any) -> str:
    context = command.make_context("syncmcp", [], resilient_parsing=True)
    formatter = context.make_formatter()
    formatter.width = WIDTH
    formatter.write_dl(
        [one.get_help_record(context) for one in command.params if one.name in _COMMON | {"target"}]
    )
    return str(formatter.getvalue()).rstrip()


if __name__ == "__main__":
    PAGE.write_text(with_help(PAGE.read_text("utf-8")), "utf-8")
