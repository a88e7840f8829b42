"""The line editor of `syncmcp shell`: a prompt with a history, and Tab completion."""

from __future__ import annotations

import re
import shlex
import sys
import threading
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer as LineCompleter
from prompt_toolkit.completion import Completion
from prompt_toolkit.document import Document
from prompt_toolkit.eventloop import run_in_executor_with_context
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.output import create_output

from syncmcp._client.client import Client
from syncmcp._concurrency.cancel import CancelToken
from syncmcp._concurrency.files import make_private_directory
from syncmcp._connection.options import CallOptions
from syncmcp.cli.calls import is_template
from syncmcp.cli.output import CommandError
from syncmcp.cli.parsing import Item, join_item, split_item
from syncmcp.cli.session import LONGEST_WAIT, SHELL_COMMANDS, short_name
from syncmcp.cli.state import state_directory
from syncmcp.cli.tool_help import needs_json, schema_properties, value_choices
from syncmcp.completion import MAX_VALUES
from syncmcp.errors import McpError
from syncmcp.types import Prompt, PromptReference, Tool
from syncmcp.ui import visible

_BLANK = re.compile(r"[ \t\r\n]")  # what separates words for `shlex`

# The longest completion, in characters: nobody reads more before Enter.
_LONGEST = 200


class LinePrompt:
    """The prompt of the shell, on one thread. Questions of the server suspend it."""

    def __init__(self, client: Client, options: Mapping[str, Sequence[str]]) -> None:
        self._session: PromptSession[str] = PromptSession(
            f"{short_name(client.server.name)}> ",
            history=_history(),
            completer=ShellCompleter(client, options),
            complete_while_typing=False,
            output=create_output(sys.stderr),
        )
        # Guards the next two attributes, and is notified when they change.
        self._changed = threading.Condition()
        self._questions = 0
        self._reading = False

    def lines(self) -> Iterator[str]:
        """Yield each line that the person types, until Ctrl-D."""
        begun = Document()  # what was typed before a question came
        while True:
            try:
                line = self._read(begun)
            except _Suspended:
                begun = self._session.default_buffer.document
                continue
            except KeyboardInterrupt:
                begun = Document()
                continue  # Ctrl-C discards the line, it does not end the shell
            except EOFError:
                return
            begun = Document()
            yield line

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Free the terminal for another thread: within this block, the prompt reads no key."""
        with self._changed:
            self._questions += 1
            while self._reading:
                loop = self._session.app.loop
                if loop is not None:
                    with suppress(RuntimeError):  # the loop was closed just before
                        loop.call_soon_threadsafe(self._leave)
                self._changed.wait(_LOOK_AGAIN)
        try:
            yield
        finally:
            with self._changed:
                self._questions -= 1
                self._changed.notify_all()

    def _read(self, begun: Document) -> str:
        with self._changed:
            self._changed.wait_for(lambda: not self._questions)
            self._reading = True
        try:
            return self._session.prompt(default=begun, pre_run=self._leave)
        finally:
            with self._changed:
                self._reading = False
                self._changed.notify_all()

    def _leave(self) -> None:
        app = self._session.app
        if self._questions and app.is_running and not app.is_done:
            app.exit(exception=_Suspended)


class _Suspended(Exception):
    """A question needs the terminal."""


# A prompt that was starting when a question came is interrupted again after this many seconds.
_LOOK_AGAIN = 0.05


def _history() -> History:
    path = state_directory() / "history"
    try:
        make_private_directory(path.parent)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()  # better a history that is lost than no shell
    return FileHistory(str(path))


class ShellCompleter(LineCompleter):
    """Completes a line with options, and with names, arguments and values that the server offers.

    Each request for them may take `LONGEST_WAIT` seconds. `options` has those of each command.
    """

    def __init__(self, client: Client, options: Mapping[str, Sequence[str]]) -> None:
        self._client = client
        self._command_options = options
        self._cancel = CancelToken()  # of the newest completion

    async def get_completions_async(
        self, document: Document, complete_event: object
    ) -> AsyncGenerator[Completion, None]:
        """Complete on another thread. If the prompt ends during this, requests are cancelled."""
        self._cancel = cancel = CancelToken()
        try:
            found = await run_in_executor_with_context(
                lambda: [*self.get_completions(document, complete_event)]
            )
        finally:
            cancel.cancel("the completion is no longer needed")
        for each in found:
            yield each

    def get_completions(self, document: Document, complete_event: object) -> Iterable[Completion]:
        """Yield the completions of the word before the cursor.

        Each is shown as it is inserted: as one word, quoted if necessary, which the shell parses as
        the text that the server offers. Words that would be parsed as an option, that are too long,
        or that have invisible characters, are not offered. A blank follows the only completion,
        unless a value must follow.
        """
        before = document.text_before_cursor
        written = _BLANK.split(before)[-1]
        try:
            earlier = shlex.split(before[: len(before) - len(written)])
            typed = "".join(shlex.split(written))
        except ValueError:  # the cursor is within quotation marks
            return
        if typed[:1] == "-":
            known = self._command_options.get(earlier[0] if earlier else "", ())
            words = [option for option in known if option.startswith(typed)]
        else:
            words = self._offered_words(earlier, typed)
        alone = len(words) == 1 and not words[0].endswith("=") and not document.text_after_cursor
        for one in words:
            yield Completion(one + " " * alone, start_position=-len(written), display=one)

    def _offered_words(self, earlier: list[str], typed: str) -> list[str]:
        try:
            found = list(self._candidates(earlier, typed))
        except McpError:
            return []  # completion shows no errors; the command itself reports them
        fitting = (
            shlex.quote(word)
            for word in found
            if word is not None and word.startswith(typed) and word[:1] not in ("", "-")
        )
        return [one for one in fitting if len(one) <= _LONGEST and visible(one) == one]

    def _candidates(self, earlier: list[str], typed: str) -> Iterable[str | None]:
        match earlier:
            case []:
                return SHELL_COMMANDS
            case ["call"]:
                return (tool.name for tool in self._tools())
            case ["call", name, *settled]:
                tool = next((one for one in self._tools() if one.name == name), None)
                return [] if tool is None else self._argument_candidates(tool, settled, typed)
            case ["prompt"]:
                return (prompt.name for prompt in self._prompts())
            case ["complete"]:
                return (one.name for one in self._prompts() if not is_template(one.name))
            case ["prompt", name, *settled]:
                prompt = next((one for one in self._prompts() if one.name == name), None)
                return [] if prompt is None else self._value_candidates(prompt, settled, typed)
            case ["read"]:
                return self._uris()
            case ["list"]:
                return ("tools", "resources", "templates", "prompts")
            case ["help"]:
                return SHELL_COMMANDS
            case _:
                return ()

    def _argument_candidates(
        self, tool: Tool, settled: list[str], typed: str
    ) -> Iterator[str | None]:
        for name, details in schema_properties(tool.input_schema).items():
            if any(item.name == name for item in map(_item, settled) if item is not None):
                continue
            bare = Item(name, needs_json(details), "")
            start = join_item(bare)
            if start is not None and typed.startswith(start):
                for choice in value_choices(details):
                    yield join_item(bare._replace(text=choice))
            else:
                yield start

    def _value_candidates(
        self, prompt: Prompt, settled: list[str], typed: str
    ) -> Iterator[str | None]:
        names = [argument.name for argument in prompt.arguments or ()]
        item = _text_item(typed)
        if item is None or item.name not in names:
            yield from (join_item(Item(name, False, "")) for name in names)
            return
        known = {one.name: one.text for one in map(_text_item, settled) if one is not None}
        settled_values = {name: text for name, text in known.items() if name in names}
        ref = PromptReference(name=prompt.name)
        found = self._client.complete(
            ref, item.name, item.text, settled_values, **self._options()
        ).completion
        yield from (join_item(item._replace(text=value)) for value in found.values[:MAX_VALUES])

    def _uris(self) -> Iterator[str]:
        yield from (one.uri for one in self._client.list_resources(**self._options()).resources)
        templates = self._client.list_resource_templates(**self._options())
        yield from (one.uri_template for one in templates.resource_templates)

    def _tools(self) -> list[Tool]:
        return self._client.list_tools(**self._options()).tools

    def _prompts(self) -> list[Prompt]:
        return self._client.list_prompts(**self._options()).prompts

    def _options(self) -> CallOptions:
        return {"timeout": LONGEST_WAIT, "cancel": self._cancel}


def _item(word: str) -> Item | None:
    """Return the argument that a word is; `None` if it is none."""
    try:
        return split_item(word)
    except CommandError:
        return None


def _text_item(word: str) -> Item | None:
    """Return the argument that a word is, if its value is text; otherwise `None`."""
    item = _item(word)
    return None if item is None or item.is_json or item.is_file else item
