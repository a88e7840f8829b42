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
    "Size of what is queued for the callbacks of one client, as it is in memory, with 1 KiB for"
    " each notification": "_concurrency.budget.MAX_BYTES",
    "Size of the questions to one client that are open at one time, or with their handlers, counted"
    " in the same way": "_concurrency.budget.MAX_BYTES",
    "Characters of the texts of progress reports that one future keeps": (
        "_concurrency.futures.MAX_CHARACTERS"
    ),
    "Size of what a stream keeps until it is read, as it is in memory": (
        "_concurrency.budget.MAX_BYTES"
    ),
    "Change events queued for a subscriber, equal ones counted once": (
        "_concurrency.event_queue.BACKLOG"
    ),
    "Characters of the URIs of these events": "_concurrency.event_queue.MAX_CHARACTERS",
    "Values in one message of a server, keys of objects included": "_protocol.jsonrpc.MAX_VALUES",
    "Messages in one batch of a server": "_protocol.jsonrpc.MAX_MESSAGES",
    "Nesting of one message": "_protocol.jsonrpc.MAX_NESTING",
    "Digits of an integer in one message": "_protocol.jsonrpc.MAX_DIGITS",
    "Items of one list, all its pages together": "_client.pages.MAX_ITEMS",
    "Size of the pages of one list, if it has several": "_client.pages.MAX_BYTES",
    "Values of these pages, keys of objects included": "_client.pages.MAX_VALUES",
    "Lifetime of a cached result (2026-07-28)": "_protocol.caching.MAX_TTL",
    "Resources whose changes are tracked one by one": "_protocol.caching.MAX_URIS",
    "Questions of a server that are open at one time": "_connection.server_requests.MAX_OPEN",
    "Handlers that go on running after their questions have ended, beside `max_handlers` others": (
        "_concurrency.pool.MAX_ABANDONED"
    ),
    "Answers and notices of the library that wait for one server": "_concurrency.budget.MAX_OWED",
    "Size of those, with 1 KiB for each beside its bytes": "_concurrency.budget.MAX_BYTES",
    "Sending one of those over HTTP, from the moment it is due": (
        "_connection.notifier.POST_SECONDS"
    ),
    "Time in which a child process reads nothing although one of those waits": (
        "transports._pipes.STALL_SECONDS"
    ),
    "Time for the last answers of a child process that has closed its stdin": (
        "transports._pipes.LAST_ANSWERS_SECONDS"
    ),
    "Time between two log records of one kind that a server can provoke, for each connection": (
        "_concurrency.limited_log.LOG_INTERVAL"
    ),
    "Completion after consent to a URL": "_connection.answering.COMPLETION_SECONDS",
    "Visits to URLs remembered in one session": "handlers.url_completion.MAX_VISITS",
    "Name of a tool or prompt in a group, in characters": "group.catalog.LONGEST_NAME",
    "URI of a resource or template in a group, in characters": "group.catalog.LONGEST_URI",
    "Secrets of one server that are remembered once they were sent": "_base.secrets.MOST_SENT",
    "Parts of one variable of `env=` that are secrets on their own": "_base.secrets.MOST_PARTS",
    "Lines that a person enters for one answer while signing in": "auth.receiver.MOST_PROMPTS",
    "Size of the headers of one response over HTTP": "_http.connections.MAX_HEAD",
    "What is read of the challenges of a response (`WWW-Authenticate`), in characters": (
        "auth.steps.MAX_CHALLENGE"
    ),
    "What an error quotes of the text of a tool or of a server's error, in characters": (
        "_base.text.MOST_QUOTED"
    ),
    "Delay before a server that keeps dying is restarted": "_concurrency.timing._LONGEST_BACKOFF",
    "Delay before the stream of a server's notifications is opened again, at least": (
        "transports.http.SHORTEST_LISTEN_PAUSE"
    ),
    "The same, at most, where the server ends it at once and asks for no longer delay": (
        "transports.http.LONGEST_PAUSE"
    ),
    "The same, and for the stream of a call, at most, if the server asks for more": (
        "transports.http.LONGEST_NAMED_PAUSE"
    ),
    "Age at which such a stream without a message was of use: the next delay is short": (
        "transports.http.USEFUL_SECONDS"
    ),
    "Tools whose arguments that headers repeat are remembered (2026-07-28)": (
        "_protocol.metadata.MAX_TOOLS"
    ),
    "Characters of the name of such a tool, and of all names of such arguments and headers": (
        "_protocol.metadata.MAX_NAMES"
    ),
    "Size of the environment of a process that is looked through for a server's mark": (
        "transports._watcher.MAX_ENVIRONMENT"
    ),
    "Wait for a server of a dead program, after the end of its input and after SIGTERM": (
        "transports._watcher._GRACE"
    ),
    "Wait of a fork for servers that are being started, and modules that are being loaded": (
        "_concurrency.forks._FORK_WAIT"
    ),
    "Interval of polling a task, if the server states none": "_protocol.tasks.DEFAULT_INTERVAL",
    "Interval of polling a task, at least": "_protocol.tasks.MIN_INTERVAL",
    "Interval of polling a task, at most": "_protocol.tasks.MAX_INTERVAL",
    "Cookies of a server that are kept, the oldest dropped first": "_http.session.MAX_COOKIES",
    "Characters of one cookie that is kept, with its attributes": "_http.session.MAX_COOKIE",
    "Characters of all cookies of a server that are kept": "_http.session.MAX_ALL",
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
    "Hints at models in one sampling request": "types.client_features.MAX_HINTS",
    "Characters of a URI template": "templates.MAX_TEMPLATE",
    "Characters of a URI that a template reads": "templates.MAX_URI",
    "Values that a completer offers": "completion.MAX_VALUES",
    "Files of a skill": "skills.entry.MAX_FILES",
    "Size of all files of a skill": "skills.entry.MAX_BYTES",
    "Characters of the frontmatter of a skill": "skills.entry.MAX_CHARACTERS",
    "Nesting of the frontmatter of a skill": "skills.entry.MAX_DEPTH",
    "Size of a file of servers": "servers_file.MAX_BYTES",
    "Nesting of a server in a file": "servers_file.entry.MAX_DEPTH",
    "Size of a file that an approval covers by its content": "servers_file.named_files.MAX_BYTES",
    "Words of a server of a file that are looked up as files, times the folders that it names": (
        "servers_file.named_files.MAX_WORDS"
    ),
    "Time without a key before a question at the terminal can be answered": (
        "ui.terminal.screen._SILENCE_SECONDS"
    ),
    "Characters of a server in a file, beyond which a warning says that nobody reads so much": (
        "ui.terminal.cards._MOST_READ"
    ),
    "Warnings of a server in a file that are shown before it and beside the question": (
        "ui.terminal.cards._MOST_WARNINGS"
    ),
    "Characters of a question that a person is shown": "ui.everything.MOST_SHOWN",
    "Characters of the arguments of a call that a page shows without an overview": (
        "ui.browser.cards._MAX_ARGUMENTS"
    ),
    "Characters of an argument in such an overview, at a terminal and on a page": (
        "ui.calls._MOST_OF_VALUE"
    ),
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
