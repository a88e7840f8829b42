"""docs/defaults.md has the bounds and time limits of the code, and the defaults of options."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import syncmcp

PAGE = (Path(__file__).parents[2] / "docs" / "defaults.md").read_text(encoding="utf-8")
OPTION = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<value>[^|]+) \| `(?P<where>[^`]+)` \|$", re.MULTILINE
)
BOUND = re.compile(r"^\| (?P<what>[^|]+) \| (?P<value>[^|]*\d[^|]*) \|$", re.MULTILINE)
UNITS = {"s": 1, "MiB": 1024 * 1024, "KiB": 1024, "bytes": 1}

# The constant of each fixed bound.
CONSTANTS = """\
Notifications queued for a slow callback, per call | _concurrency.pool.BACKLOG
Memory of notifications queued for one client's callbacks | _concurrency.budget.MAX_BYTES
Memory of open questions to one client | _concurrency.budget.MAX_BYTES
Characters of progress texts that a future keeps | _concurrency.futures.MAX_CHARACTERS
Memory of a stream's unread items | _concurrency.budget.MAX_BYTES
Change events queued for a subscriber | _concurrency.event_queue.BACKLOG
Characters of all URIs in queued change events | _concurrency.event_queue.MAX_CHARACTERS
Values in one message, keys included | _protocol.jsonrpc.MAX_VALUES
Bytes of a smaller `max_frame` or `max_body` that allow one value \
| _protocol.jsonrpc.BYTES_PER_VALUE
Values that the smallest `max_frame` or `max_body` allows | _protocol.jsonrpc.MIN_VALUES
Messages in one batch | _protocol.jsonrpc.MAX_MESSAGES
Nesting of one message | _protocol.jsonrpc.MAX_NESTING
Digits of an integer | _protocol.jsonrpc.MAX_DIGITS
Items of one list, all pages | _client.pages.MAX_ITEMS
Size of all pages of one list | _client.pages.MAX_BYTES
Values in all pages of one list | _client.pages.MAX_VALUES
Lifetime of a cached result (2026-07-28) | _protocol.caching.MAX_TTL
Resources that the cache tracks one by one | _protocol.caching.MAX_URIS
Characters of the URI of a tracked resource | _protocol.caching.LONGEST_URI
Open questions of a server | _connection.server_requests.MAX_OPEN
Running handlers whose questions have ended | _concurrency.pool.MAX_ABANDONED
Handlers that wait in calls of their own | _concurrency.pool.MAX_WAITING_HANDLERS
The library's own messages queued for one server | _concurrency.budget.MAX_OWED
Size of the library's own messages queued for one server | _concurrency.budget.MAX_BYTES
Sending one of the library's own messages over HTTP | _connection.notifier.POST_SECONDS
Time that a child process may leave the library's own messages unread \
| transports._pipes.STALL_SECONDS
Wait for the last answers of a child process that closed its stdin \
| transports._pipes.LAST_ANSWERS_SECONDS
Interval of log records that a server provokes, per kind and connection \
| _concurrency.limited_log.LOG_INTERVAL
Wait for the end of a visit after consent to a URL | _connection.answering.COMPLETION_SECONDS
Visits to URLs remembered in a session | handlers.url_completion.MAX_VISITS
Characters of a tool's or prompt's name in a group | group.catalog.LONGEST_NAME
Characters of a URI in a group | group.catalog.LONGEST_URI
Characters of one server's names of a kind in a group | group.catalog.MAX_NAMES
Characters of one server's templates compared with a URI in a group | group.catalog.MAX_TEMPLATES
Names compared to suggest a similar name | _base.similar.MOST_NAMES
Characters of a name that is compared or suggested | _base.similar.LONGEST_NAME
Sent secrets remembered for one server | _base.secrets.MOST_SENT
Secret parts of one variable of `env=` | _base.secrets.MOST_PARTS
Lines that a person may enter for one answer while signing in | auth.receiver.MOST_PROMPTS
Size of the headers of one HTTP response | _http.connections.MAX_HEAD
Characters of the message endpoint (HTTP+SSE) | transports._http_reply.MAX_ADDRESS
Characters of the header `WWW-Authenticate` that are read | auth.steps.MAX_CHALLENGE
Characters of a server's text quoted in an error | _base.text.MOST_QUOTED
Delay before a server that keeps dying restarts | _concurrency.timing._LONGEST_BACKOFF
Shortest delay before the notification stream reopens | transports.http.SHORTEST_LISTEN_PAUSE
Longest delay before the notification stream reopens, if the server names none \
| transports.http.LONGEST_PAUSE
Longest delay that a server can name, also for a call's stream | transports.http.LONGEST_NAMED_PAUSE
Age of a notification stream that resets the delay of reopening | transports.http.USEFUL_SECONDS
Remembered tools with arguments in headers (2026-07-28) | _protocol.metadata.MAX_TOOLS
Characters of a remembered tool's name, and of its names in headers | _protocol.metadata.MAX_NAMES
Names of headers, of arguments in headers and of the objects around them, per tool \
| _protocol.metadata.MAX_PARTS
Memory of tools' schemas from pages fetched one by one | _connection.tool_schemas.MAX_SINGLE_PAGES
Size of the environment searched for `SYNCMCP_SERVER` | transports._watcher.MAX_ENVIRONMENT
Wait for a process to begin its program, before `SYNCMCP_SERVER` is read \
| transports._watcher._EXEC_SECONDS
Wait for a dead program's server, after end of input and after `SIGTERM` \
| transports._watcher._GRACE
Wait of a fork for starting servers and loading modules | _concurrency.forks._FORK_WAIT
Poll interval of a task, if the server names none | _protocol.tasks.DEFAULT_INTERVAL
Shortest poll interval of a task | _protocol.tasks.MIN_INTERVAL
Longest poll interval of a task | _protocol.tasks.MAX_INTERVAL
Cookies of a server | _http.session.MAX_COOKIES
Characters of one cookie | _http.session.MAX_COOKIE
Characters of all cookies | _http.session.MAX_ALL
Schema: steps of one check | _protocol.schema.place.MAX_STEPS
Schema: nesting within one check | _protocol.schema.place.MAX_NESTING
Schema: depth | _protocol.schema.MAX_DEPTH
Schema: values | _protocol.schema.MAX_SIZE
Schema: subschemas | _protocol.schema.MAX_SUBSCHEMAS
Schema: characters of one URI | _protocol.schema.place.MAX_REFERENCE
Schema: characters of one unrolled pattern | _protocol.patterns.MAX_PATTERN
Schema: characters of all unrolled patterns | _protocol.patterns.MAX_PATTERNS
Nesting of a tool's schema for a model | llm._tools.MAX_DEPTH
Growth of a tool's schema by expanded references, as a multiple of its size | llm._tools.MAX_GROWTH
Fields of a form | handlers.forms.MAX_FIELDS
Model hints in a sampling request | types.client_features.MAX_HINTS
Characters of a URI template | templates.MAX_TEMPLATE
Characters of a URI that a template matches | templates.MAX_URI
Values that a completer offers | completion.MAX_VALUES
Size of a cached completion | completion.MAX_BYTES
Files of a skill | skills.entry.MAX_FILES
Size of all files of a skill | skills.entry.MAX_BYTES
Characters of a skill's frontmatter | skills.entry.MAX_CHARACTERS
Nesting of a skill's frontmatter | skills.entry.MAX_DEPTH
Size of an entry of a `FileStore` | auth.store._LONGEST_ENTRY
Size of a server file | servers_file.MAX_BYTES
Nesting of a server entry | servers_file.entry.MAX_DEPTH
Size of a file whose content an approval covers | servers_file.named_files.MAX_BYTES
Words of a server entry that are looked up as files, times its directories \
| servers_file.named_files.MAX_WORDS
Silence before a terminal question accepts keys | ui.terminal.screen._SILENCE_SECONDS
Characters of a server entry that is shown without a warning about its length \
| ui.terminal.cards._MOST_READ
Warnings shown for a server entry | ui.terminal.cards._MOST_WARNINGS
Characters of a question shown | ui.everything.MOST_SHOWN
Characters of arguments that the browser shows without an overview \
| ui.browser.tool_call._MAX_ARGUMENTS
Characters of an argument in an overview | ui.calls._MOST_OF_VALUE
"""


def documented(text: str) -> float | tuple[float, ...]:
    """Parse a value of the page, such as `2 s + 2 s`, `64 MiB` or `256`."""
    values: list[float] = []
    for part in text.split("+"):
        number, _, unit = part.strip().partition(" ")
        values.append(float(number.replace(",", "")) * UNITS.get(unit, 1))
    return values[0] if len(values) == 1 else tuple(values)


def found(path: str) -> Any:
    """Return the object with a dotted name, which may omit the package `syncmcp`."""
    if path == "Client.tool(...).map":
        path = "syncmcp.ToolFunction.map"
    names = path.split(".")
    if names[0] != "syncmcp":
        names.insert(0, "syncmcp")
    value: Any = syncmcp
    for index, name in enumerate(names[1:], 2):
        if not hasattr(value, name):
            importlib.import_module(".".join(names[:index]))
        value = getattr(value, name)
    return value


def test_the_page_tells_the_default_of_each_option() -> None:
    told = {row["where"]: documented(row["value"]) for row in OPTION.finditer(PAGE)}
    assert len(told) > 30
    for where, value in told.items():
        path, _, parameter = where.removesuffix("=)").rpartition("(")
        assert inspect.signature(found(path)).parameters[parameter].default == value, where


def test_the_page_tells_the_bounds_of_the_code() -> None:
    told = {row["what"]: documented(row["value"]) for row in BOUND.finditer(PAGE)}
    rows = (line.split(" | ") for line in CONSTANTS.splitlines())
    assert told == {what: found(where) for what, where in rows}
    assert len(told) > 20


def test_every_option_that_is_a_number_is_on_the_page() -> None:
    parameters = inspect.signature(syncmcp.Client).parameters.values()
    numbers = {each.name for each in parameters if type(each.default) in {int, float}}
    assert {name for name in numbers if f"`Client({name}=)`" not in PAGE} == set()
