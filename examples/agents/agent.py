"""A host: a chat at the terminal with a model that uses the tools of any number of servers.

``python examples/agents/agent.py``                     needs no key: type ``add {"a": 1, "b": 2}``
``python examples/agents/agent.py --model anthropic``   or ``openai``, ``openai-chat``, ``gemini``
``python examples/agents/agent.py --model openai:gpt-5.6-terra --servers mcp.json --root .``
``python examples/agents/agent.py --url https://example.com/mcp -- my-server --its-option``
``python examples/agents/agent.py --script FILE``       needs no person: see the class `Script`

The program asks you before it calls a tool, and shows you the questions of servers: here, or in a
browser with ``--ui browser``. Ctrl-C cancels the current turn; the chat continues. ``/help`` lists
the commands. Keys come from ``ANTHROPIC_API_KEY``, ``OPENAI_API_KEY`` and ``GEMINI_API_KEY``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

import syncmcp
from syncmcp import servers_file
from syncmcp.approval import AuditRecord
from syncmcp.group import Source
from syncmcp.llm import AnthropicSampling, GeminiSampling, OpenAISampling
from syncmcp.tools import ModelTurn, Step, ToolFinished, ToolStarted
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from syncmcp.ui import shorten, visible

try:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn
except ModuleNotFoundError:
    sys.exit("this program needs rich: install syncmcp-client[terminal]")

with suppress(ImportError):  # Windows has no readline
    import_module("readline")  # gives `input` line editing and a history

DEMO: Final = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")


# -- the models


class ToolRequest(BaseModel):
    """A turn in which the model requests a tool."""

    tool: str
    arguments: dict[str, Any] = {}


class Script(BaseModel, extra="forbid"):
    """The file of ``--script``: lines of the person, turns of the model, and answers to forms."""

    person: list[str] = ["/servers", "Find out how I like my answers, then tell me about Bergen."]
    model: list[ToolRequest | str] = [
        ToolRequest(tool="ask_user_preferences"),
        ToolRequest(tool="request_llm_help", arguments={"question": "What is Bergen known for?"}),
        "Rain, mountains, and a fish market.",  # for the sampling request of the server
        ToolRequest(tool="weather", arguments={"city": "Bergen"}),
        "Bergen: rain, mountains, fish, and 9.5 degrees today.",
    ]
    forms: list[dict[str, str | int | float | bool | list[str]]] = [{"outputFormat": "plain"}]


class ScriptedModel:
    """A model without a provider: it plays a script, then calls the tools that typed lines name."""

    def __init__(self, turns: Iterable[ToolRequest | str] = ()) -> None:
        self._turns = iter(turns)

    def __call__(
        self, request: CreateMessageRequestParams, context: syncmcp.HandlerContext
    ) -> CreateMessageResult:
        """Answer with a text or a request for a tool."""
        turn = next(self._turns, None) or self._unscripted(request)
        answer = partial(CreateMessageResult, role="assistant", model="scripted")
        if isinstance(turn, ToolRequest):
            id = f"call-{len(request.messages)}"
            use = ToolUseContent(id=id, name=turn.tool, input=turn.arguments)
            return answer(content=use, stop_reason="toolUse")
        context.show(turn)  # a model that streams passes its text so far
        return answer(content=TextContent(text=turn), stop_reason="endTurn")

    def _unscripted(self, request: CreateMessageRequestParams) -> ToolRequest | str:
        last = request.messages[-1]
        for block in last.blocks:
            if isinstance(block, ToolResultContent):
                return f"The result is: {text_of(block)}"
        name, _, arguments = last.text.partition(" ")
        if name in {tool.name for tool in request.tools or ()}:
            return ToolRequest(tool=name, arguments=typed_arguments(name, arguments))
        return f"You said: {last.text}"

    def __repr__(self) -> str:
        return "scripted"


def typed_arguments(name: str, text: str) -> dict[str, Any]:
    """Return the arguments that a person typed after the name of a tool."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError as error:
        raise syncmcp.UsageError(f"the text after {name} is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise syncmcp.UsageError(f'the text after {name} must be an object, such as {{"a": 1}}')
    return arguments


MODELS: Final[Mapping[str, tuple[Callable[[str], syncmcp.SamplingHandler], str]]] = {
    "anthropic": (AnthropicSampling, "claude-sonnet-5"),
    "openai": (OpenAISampling, "gpt-5.6-terra"),
    "openai-chat": (partial(OpenAISampling, api="chat"), "gpt-5.6-terra"),
    "gemini": (GeminiSampling, "gemini-3.8-flash"),
    "scripted": (lambda _: ScriptedModel(), ""),
}
"""By provider: the function that makes a model, and the name of the default model."""


def model_named(text: str) -> syncmcp.SamplingHandler:
    """Return the model for ``provider`` or ``provider:name``."""
    provider, _, name = text.partition(":")
    if provider not in MODELS:
        raise syncmcp.UsageError(f"no model {text!r}: there are {', '.join(MODELS)}")
    make, default = MODELS[provider]
    return make(name or default)


# -- the screen


class Screen:
    """The terminal. A lock serialises output, typed lines and questions of servers."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._lock = threading.RLock()
        self._question_open = False
        self._bars: Progress | None = None
        self._rows: dict[str, TaskID] = {}
        self._printed = 0

    def say(self, text: object = "") -> None:
        """Print a line. Control characters of servers and models have no effect on the terminal."""
        with self._lock:
            self._console.out(visible(str(text), lines=True))

    def line(self) -> str:
        """Read a line from the person. Questions of servers wait until it is complete."""
        with self._lock:
            return input("you> ")

    def text(self, so_far: str) -> None:
        """Print the part of the model's text that is not printed yet."""
        with self._lock:
            if not self._printed:
                self._console.out("agent: ", end="")
            self._console.out(visible(so_far[self._printed :], lines=True), end="")
            self._printed = len(so_far)

    def step(self, step: Step) -> None:
        """Print a step of the loop."""
        if isinstance(step, ModelTurn):
            if not self._printed and step.result.text:
                self.text(step.result.text)
            self.end_of_text()
        elif isinstance(step, ToolStarted):
            self.progress(step.use, 0, None, None)
        elif isinstance(step, ToolFinished):
            self._end_bar(step.use)
            call = visible(f"{step.use.name} {json.dumps(step.use.input, ensure_ascii=False)}")
            # Indented, so no text of a server looks like a line of this program.
            result = shorten(text_of(step.result), 2000).replace("\n", "\n     ")
            self.say(f"{shorten(call, 500)}\n  -> {result}")

    def progress(
        self, use: ToolUseContent, done: float, total: float | None, message: str | None
    ) -> None:
        """Draw the progress of a tool. Called on pool threads."""
        if self._question_open or not self._console.is_terminal:
            return  # skip this report instead of waiting for the person's answer
        with self._lock:
            if self._bars is None:
                name = TextColumn("{task.description}", markup=False)
                self._bars = Progress(
                    name, BarColumn(), console=self._console, auto_refresh=False, transient=True
                )
                self._bars.start()
            if use.id not in self._rows:
                self._rows[use.id] = self._bars.add_task("", total=None)
            text = visible(shorten(f"{use.name} {message or ''}", 60))
            row = self._rows[use.id]
            self._bars.update(row, completed=done, total=total, description=text, refresh=True)

    @contextmanager
    def for_question(self) -> Iterator[None]:
        """Reserve the terminal for a question of a server."""
        with self._lock:
            self._end_bars()
            self._question_open = True
            try:
                yield
            finally:
                self._question_open = False

    def end_of_text(self) -> None:
        """End the line of the model's text, if there is one."""
        with self._lock:
            if self._printed:
                self._console.out()
            self._printed = 0

    def end_of_turn(self) -> None:
        """Remove the progress bars, and end the line of the text."""
        with self._lock:
            self._end_bars()
            self.end_of_text()

    def _end_bar(self, use: ToolUseContent) -> None:
        with self._lock:
            row = self._rows.pop(use.id, None)
            if self._bars is not None and row is not None:
                self._bars.remove_task(row)
            if not self._rows:
                self._end_bars()

    def _end_bars(self) -> None:
        if self._bars is not None:
            self._bars.stop()
        self._bars = None
        self._rows.clear()


def text_of(result: ToolResultContent) -> str:
    """Return the text of a tool's result; other content is shown as its type."""
    return " ".join(
        block.text if isinstance(block, TextContent) else f"[{block.type}]"
        for block in result.content
    )


# -- the chat


class Chat:
    """A conversation with models that use the servers of a group.

    Args:
        model: The first model.
        servers: The servers, by name.
        screen: The terminal.
        options: Options of the clients of all servers.
    """

    def __init__(
        self,
        model: syncmcp.SamplingHandler,
        servers: Mapping[str, Source],
        screen: Screen,
        **options: Any,
    ) -> None:
        self.group = syncmcp.ClientGroup(servers, sampling=self._answer, **options)
        self._model = model
        self._screen = screen
        # In MCP's own format, so another model can continue the conversation.
        self._messages: list[SamplingMessage] = []

    def run(self, lines: Iterable[str]) -> None:
        """Handle each line: a command, or a message to the model. ``/quit`` ends the chat."""
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == "/quit":
                return
            try:
                if word in COMMANDS:
                    COMMANDS[word](self, rest.strip())
                elif word.startswith("/"):
                    self._screen.say(f"unknown command {word}; /help lists the commands")
                elif word:
                    self._ask(line)
            except syncmcp.McpError as error:
                self._screen.say(f"{word}: {error}")
            except KeyboardInterrupt:
                self._screen.say(f"{word}: stopped")

    def _ask(self, line: str) -> None:
        """Let the model answer; it may call tools."""
        screen = self._screen
        loop = syncmcp.ToolLoop(
            self._model,
            self.group,
            timeout=None,  # the person can press Ctrl-C
            on_step=screen.step,
            on_text=screen.text,
            on_progress=screen.progress,
        )
        messages = [*self._messages, SamplingMessage(role="user", content=TextContent(text=line))]
        try:
            with cancelled_by_ctrl_c() as token:
                self._messages = loop.run(messages, cancel=token).messages
            screen.end_of_turn()
        except Exception as error:  # including errors of a provider's package
            screen.end_of_turn()
            screen.say(f"stopped: {shorten(str(error), 500)}")
            # A turn in which nothing has happened is forgotten; otherwise, no tool may run again.
            so_far = vars(error).get("messages", messages)
            if len(so_far) > len(messages):
                self._messages = completed(so_far)

    def _answer(
        self, request: CreateMessageRequestParams, context: syncmcp.HandlerContext
    ) -> CreateMessageResult:
        """Answer a server's sampling request with the current model."""
        return self._model(request, context)

    # -- commands

    def help(self, _: str) -> None:
        """List the commands."""
        for word, command in COMMANDS.items():
            self._screen.say(f"{word:10} {command.__doc__}")
        self._screen.say("/quit      End the chat, as Ctrl-D does.")

    def tools(self, _: str) -> None:
        """List the tools and their servers."""
        for key, tool in self.group.tools.items():
            server, _name = self.group.server_of("tools", key)
            about = visible(shorten(tool.description or "", 100))  # one line
            self._screen.say(f"{key} ({server}): {about}")

    def servers(self, _: str) -> None:
        """Show the state of each server."""
        for name, status in self.group.status.items():
            about = status.error or (status.server and f"revision {status.server.revision}")
            self._screen.say(f"{name}: {status.state}{f', {about}' if about else ''}")

    def refresh(self, _: str) -> None:
        """Fetch all lists of the servers again."""
        self.group.refresh()
        self._screen.say(f"{len(self.group.tools)} tools")

    def roots(self, text: str) -> None:
        """List the roots; or `add` or `remove` a folder."""
        change, _, folder = text.partition(" ")
        if change == "add":
            self.group.roots.add(folder)
        elif change == "remove":
            self.group.roots.remove(folder)
        for root in self.group.roots.list():
            self._screen.say(f"{root.path} ({root.status})")

    def model(self, text: str) -> None:
        """Continue with another model, such as `openai:gpt-5.6-terra`; or show the current one."""
        if text:
            self._model = model_named(text)
        self._screen.say(f"the model is {self._model!r}")


COMMANDS: Final[Mapping[str, Callable[[Chat, str], None]]] = {
    "/tools": Chat.tools,
    "/servers": Chat.servers,
    "/refresh": Chat.refresh,
    "/roots": Chat.roots,
    "/model": Chat.model,
    "/help": Chat.help,
}


@contextmanager
def cancelled_by_ctrl_c() -> Iterator[syncmcp.CancelToken]:
    """Yield a token that Ctrl-C cancels, instead of ending the program."""
    token = syncmcp.CancelToken()

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C interrupts
        # Not on this thread: it may hold a lock that a callback of the token needs.
        threading.Thread(target=token.cancel, args=("Ctrl-C",)).start()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield token
    finally:
        signal.signal(signal.SIGINT, before)


def completed(messages: list[SamplingMessage]) -> list[SamplingMessage]:
    """Return the messages without a final request for tools that has no results."""
    pending = messages and any(isinstance(item, ToolUseContent) for item in messages[-1].blocks)
    return messages[:-1] if pending else messages


# -- the program


def typed_lines(screen: Screen) -> Iterator[str]:
    """Yield the lines that a person types. Ctrl-C discards the current line."""
    while True:
        try:
            line = screen.line()
        except KeyboardInterrupt:
            screen.say()
        except EOFError:
            return
        else:
            yield line


def printed_lines(lines: Iterable[str], screen: Screen) -> Iterator[str]:
    """Print and yield the lines of a script, or of stdin."""
    for line in lines:
        screen.say(f"you> {line.rstrip()}")
        yield line.rstrip()


def scripted_forms(script: Script) -> syncmcp.FormHandler:
    """Return a handler that answers forms from the script, and declines all further forms."""
    contents = iter(script.forms)

    def fill_in(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
        content = next(contents, None)
        return ElicitResult.decline() if content is None else ElicitResult.accept(content)

    return fill_in


class Interface(NamedTuple):
    """The handler of forms and links, the approval, and the function that approves servers."""

    elicitation: Any
    approval: syncmcp.Approval
    approve: servers_file.Approve | None = None


@contextmanager
def open_interface(ui: str, script: Script, screen: Screen) -> Iterator[Interface]:
    """Yield the interface that ``--ui`` chooses."""

    def report(record: AuditRecord) -> None:
        if record.by != "person":
            about = f"{record.question} ({record.review})"
            screen.say(f"  [{record.decision.value} by {record.by}: {about}]")

    if ui == "terminal":
        from syncmcp.ui.terminal import AskOnTerminal, Terminal

        terminal = Terminal(beside=screen.for_question)
        asking = AskOnTerminal(terminal=terminal, audit=report)
        yield Interface(terminal, asking, terminal.approve)
    elif ui == "browser":
        from syncmcp.ui.browser import AskInBrowser, Browser

        with Browser() as browser:
            yield Interface(browser, AskInBrowser(browser=browser, audit=report))
    else:
        # An `Approval` denies by default, so a run without a person has to allow everything.
        approval = syncmcp.Approval(syncmcp.AllowAll(), audit=report)
        yield Interface(scripted_forms(script), approval)


def named_servers(
    options: argparse.Namespace, approve: servers_file.Approve | None
) -> Mapping[str, Source]:
    """Return the servers of the command line, by name; without any, the demo server."""
    found: dict[str, Source] = {}
    for path in options.servers:
        found |= servers_file.read(path, approve=approve, trust=options.trust)
    for url in options.url:
        parts = urlsplit(url)
        name = parts.netloc.rpartition("@")[2]  # names are printed, so omit the password
        found[name + parts.path if name in found else name] = url
    if options.command:
        found[Path(options.command[0]).name] = syncmcp.Stdio(*options.command)
    return found or {"demo": DEMO}


def main() -> None:
    """Read the command line, and run the chat."""
    parser = argparse.ArgumentParser(description="A chat with a model that uses your servers.")
    parser.add_argument("--model", default="scripted", metavar="PROVIDER[:NAME]")
    parser.add_argument(
        "--servers", action="append", default=[], metavar="FILE", help="a file with mcpServers"
    )
    parser.add_argument("--trust", action="store_true", help="use these files without asking")
    parser.add_argument("--url", action="append", default=[], help="a server")
    parser.add_argument("--root", action="append", default=[], help="a directory for the servers")
    parser.add_argument(
        "--ui",
        choices=("terminal", "browser", "none"),
        help="where you are asked; none approves all but servers of files, and reads stdin",
    )
    parser.add_argument(
        "--script", type=Path, metavar="FILE", help="JSON: lines, turns of the model, and forms"
    )
    parser.add_argument("command", nargs="*", help="a server, after --")
    options = parser.parse_args()
    screen = Screen()
    try:
        file: Path | None = options.script
        script = Script.model_validate_json(file.read_bytes()) if file else Script()
    except (OSError, ValidationError) as error:
        parser.error(f"--script: {error}")
    unattended = options.script is not None or not sys.stdin.isatty()
    ui = options.ui or ("none" if unattended else "terminal")
    chosen = options.model != "scripted" or options.servers or options.url or options.command
    if chosen and unattended and not (options.ui or options.script):
        parser.error(
            "no terminal to ask at; --script FILE or --ui none approves all but the servers of"
            " files, which need --trust"
        )
    piped = options.ui is not None and options.script is None
    if piped:
        script = Script(person=[], model=[], forms=[])
    model = model_named(options.model)
    if unattended and options.model == "scripted":
        model = ScriptedModel(script.model)
    with open_interface(ui, script, screen) as interface:
        chat = Chat(
            model,
            named_servers(options, interface.approve),
            screen,
            roots=options.root,
            elicitation=interface.elicitation,
            approval=interface.approval,
        )
        with chat.group:
            if unattended:
                if not piped and file is None:
                    screen.say("no terminal: a script is played (--ui none reads stdin instead)")
                chat.run(printed_lines(sys.stdin if piped else script.person, screen))
            else:
                chat.run(typed_lines(screen))


if __name__ == "__main__":
    try:
        main()
    except syncmcp.McpError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
