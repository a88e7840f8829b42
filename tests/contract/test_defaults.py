"""docs/defaults.md tells the bounds and time limits of the code, and the options that set them."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import syncmcp

PAGE = (Path(__file__).parents[2] / "docs" / "defaults.md").read_text(encoding="utf-8")
OPTION = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<value>[^|]+) \| `(?P<where>[^`]+)` \|$", re.MULTILINE
)
BOUND = re.compile(r"^\| (?P<what>[^|]+) \| (?P<value>[^|]*\d[^|]*) \|$", re.MULTILINE)
UNITS = {"s": 1, "MiB": 1024 * 1024, "KiB": 1024, "bytes": 1}

# Where each fixed bound is in the code.
CONSTANTS = {
    "Notifications queued for a slow callback, per call": "_concurrency.pool.BACKLOG",
    "Change events queued for a subscriber, equal ones counted once": (
        "_concurrency.event_queue.BACKLOG"
    ),
    "Lifetime of a cached result (2026-07-28)": "_protocol.caching.MAX_TTL",
    "Resources whose changes are tracked one by one": "_protocol.caching.MAX_URIS",
    "Questions of a server that are open at one time": "_connection.server_requests.MAX_OPEN",
    "Completion after consent to a URL": "_connection.answering.COMPLETION_SECONDS",
    "Visits to URLs remembered in one session": "handlers.url_completion.MAX_VISITS",
    "Delay before a server that keeps dying is restarted": "_concurrency.timing._LONGEST_BACKOFF",
    "Interval of polling a task, if the server states none": "_protocol.tasks.DEFAULT_INTERVAL",
    "Interval of polling a task, at least": "_protocol.tasks.MIN_INTERVAL",
    "Interval of polling a task, at most": "_protocol.tasks.MAX_INTERVAL",
    "Schema: steps of one check": "_protocol.schema.place.MAX_STEPS",
    "Schema: nesting within one check": "_protocol.schema.place.MAX_NESTING",
    "Schema: depth of its JSON": "_protocol.schema.MAX_DEPTH",
    "Schema: values": "_protocol.schema.MAX_SIZE",
    "Schema: subschemas": "_protocol.schema.MAX_SUBSCHEMAS",
    "Schema: characters of one reference": "_protocol.schema.place.MAX_REFERENCE",
    "Schema: characters of one pattern, repetitions unrolled": (
        "_protocol.schema.patterns.MAX_PATTERN"
    ),
    "Schema: characters of all patterns, repetitions unrolled": (
        "_protocol.schema.patterns.MAX_PATTERNS"
    ),
    "Nesting of a tool's schema that a model is given": "llm._tools.MAX_DEPTH",
    "Fields of a form": "handlers.forms.MAX_FIELDS",
    "Characters of a URI template": "templates.MAX_TEMPLATE",
    "Characters of a URI that a template reads": "templates.MAX_URI",
    "Values that a completer offers": "completion.MAX_VALUES",
    "Files of a skill": "skills.entry.MAX_FILES",
    "Size of all files of a skill": "skills.entry.MAX_BYTES",
    "Characters of the frontmatter of a skill": "skills.entry.MAX_CHARACTERS",
    "Nesting of the frontmatter of a skill": "skills.entry.MAX_DEPTH",
    "Size of a file of servers": "servers_file.MAX_BYTES",
}


def documented(text: str) -> float | tuple[float, ...]:
    """`2 s + 2 s`, `64 MiB` or `256` as the code would say it."""
    values: list[float] = []
    for part in text.split("+"):
        number, _, unit = part.strip().partition(" ")
        values.append(float(number.replace(",", "")) * UNITS.get(unit, 1))
    return values[0] if len(values) == 1 else tuple(values)


def found(path: str) -> Any:
    """The object that a dotted name stands for; without a package, a name of `syncmcp`."""
    if path == "Client.tool(...).map":
        path = "syncmcp._client.functions.ToolFunction.map"
    names = path.split(".")
    if names[0] != "syncmcp":
        names.insert(0, "syncmcp")
    value: Any = syncmcp
    for index, name in enumerate(names[1:], 2):
        if not hasattr(value, name):
            importlib.import_module(".".join(names[:index]))
        value = getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("value", "where"),
    [pytest.param(row["value"], row["where"], id=row["where"]) for row in OPTION.finditer(PAGE)],
)
def test_the_page_tells_the_default_of_each_option(value: str, where: str) -> None:
    path, _, parameter = where.removesuffix("=)").rpartition("(")
    assert inspect.signature(found(path)).parameters[parameter].default == documented(value)


def test_the_page_tells_the_bounds_of_the_code() -> None:
    told = {row["what"]: documented(row["value"]) for row in BOUND.finditer(PAGE)}
    assert told == {what: found(where) for what, where in CONSTANTS.items()}
    assert len(told) > 20


def test_every_option_that_is_a_number_is_on_the_page() -> None:
    parameters = inspect.signature(syncmcp.Client).parameters.values()
    numbers = {each.name for each in parameters if type(each.default) in {int, float}}
    assert {name for name in numbers if f"`Client({name}=)`" not in PAGE} == set()
