"""The line editor of `syncmcp shell`: a prompt with a history, and Tab completion."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer as LineCompleter
from prompt_toolkit.completion import Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.output import create_output

from syncmcp._concurrency.files import make_private_directory
from syncmcp.cli.calls import argument_syntax, enum_choices, schema_properties
from syncmcp.cli.state import state_directory
from syncmcp.completion import Completer
from syncmcp.errors import McpError
from syncmcp.ui import visible

if TYPE_CHECKING:
    from syncmcp._client.client import Client
    from syncmcp.types import Prompt, Tool

__all__ = ["COMMANDS", "ShellCompleter", "read_lines"]


T = TypeVar("T")

COMMANDS = (
    "call",
    "complete",
    "help",
    "info",
    "list",
    "listen",
    "ping",
    "prompt",
    "quit",
    "read",
    "tools",
)
"""The commands of the shell; all but `help` and `quit` are commands of `syncmcp`."""


def read_lines(client: Client) -> Iterator[str]:
    """Yield each line that the person types, until Ctrl-D."""
    prompt: PromptSession[str] = PromptSession(
        "syncmcp> ",
        history=_history(),
        completer=ThreadedCompleter(ShellCompleter(client)),
        complete_while_typing=False,
        output=create_output(sys.stderr),
    )
    while True:
        try:
            yield prompt.prompt()
        except KeyboardInterrupt:
            continue  # Ctrl-C discards the line, it does not end the shell
        except EOFError:
            return


def _history() -> History:
    path = state_directory() / "history"
    try:
        make_private_directory(path.parent)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()  # better a history that is lost than no shell
    return FileHistory(str(path))


class ShellCompleter(LineCompleter):
    """Completes a line with names, arguments and argument values that the server offers.

    Runs on a thread of prompt_toolkit. Each list of the server is fetched once.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # Guards the cached lists: two quick keystrokes must not fetch a list twice.
        self._lock = threading.Lock()
        self._lists: dict[Callable[[], Any], list[Any]] = {}

    def get_completions(self, document: Document, complete_event: object) -> Iterable[Completion]:
        """Yield the completions of the word before the cursor."""
        before = document.text_before_cursor
        words = before.split()
        if not words or before[-1].isspace():
            words.append("")
        *earlier, typed = words
        try:
            found = list(self._candidates(earlier, typed))
        except McpError:
            return  # completion shows no errors; the command itself reports them
        for candidate in found:
            # Names with hidden characters are not offered: the person could not see them.
            if candidate.startswith(typed) and visible(candidate) == candidate:
                yield Completion(candidate, start_position=-len(typed), display=candidate[:80])

    def _candidates(self, earlier: list[str], typed: str) -> Iterable[str]:
        match earlier:
            case []:
                return COMMANDS
            case ["call"]:
                return (tool.name for tool in self._tools())
            case ["call", name, *_]:
                tool = next((one for one in self._tools() if one.name == name), None)
                return [] if tool is None else self._argument_candidates(tool, typed)
            case ["prompt"] | ["complete"]:
                return (prompt.name for prompt in self._prompts())
            case ["prompt", name, *settled]:
                prompt = next((one for one in self._prompts() if one.name == name), None)
                return [] if prompt is None else self._value_candidates(prompt, settled, typed)
            case ["read"]:
                return self._uris()
            case ["list"]:
                return ("tools", "resources", "templates", "prompts")
            case ["help"]:
                return COMMANDS
            case _:
                return ()

    def _argument_candidates(self, tool: Tool, typed: str) -> Iterator[str]:
        for name, details in schema_properties(tool.input_schema).items():
            start = argument_syntax(name, details).partition("=")[0] + "="
            if typed.startswith(start):
                yield from (start + choice for choice in enum_choices(details))
            else:
                yield start

    def _value_candidates(self, prompt: Prompt, settled: list[str], typed: str) -> Iterator[str]:
        name, equals, value = typed.partition("=")
        names = [argument.name for argument in prompt.arguments or ()]
        if not equals or name not in names:
            yield from (f"{each}=" for each in names)
            return
        known = dict(word.split("=", 1) for word in settled if "=" in word)
        completer = Completer(self._client, prompt, pause=0)
        found = completer.suggest(name, value, {n: v for n, v in known.items() if n in names})
        if found is not None:
            yield from (shlex.quote(f"{name}={one}") for one in found.values)

    def _uris(self) -> Iterator[str]:
        yield from (one.uri for one in self._fetch_once(self._client.iter_resources))
        yield from (
            one.uri_template for one in self._fetch_once(self._client.iter_resource_templates)
        )

    def _tools(self) -> list[Tool]:
        return self._fetch_once(self._client.iter_tools)

    def _prompts(self) -> list[Prompt]:
        return self._fetch_once(self._client.iter_prompts)

    def _fetch_once(self, fetch: Callable[[], Iterator[T]]) -> list[T]:
        with self._lock:
            if fetch not in self._lists:
                self._lists[fetch] = list(fetch())
            return self._lists[fetch]
