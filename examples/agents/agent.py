"""A host: you chat with a model at the terminal, and it uses the tools of any number of servers.

``python examples/agents/agent.py``                     needs no key: type ``add {"a": 1, "b": 2}``
``python examples/agents/agent.py --model anthropic``   or ``openai``, ``openai-chat``, ``gemini``
``python examples/agents/agent.py --model openai:gpt-5.6-terra --servers mcp.json --root .``
``python examples/agents/agent.py --url https://example.com/mcp -- my-server --its-option``
``python examples/agents/agent.py --script said.json``  nobody is there: see the class `Script`

You are asked before a tool is called, and for whatever servers want to know: here, or on a page
with ``--ui browser``. Ctrl-C ends what the model is doing, and the chat goes on. ``/help`` lists
the commands. Keys are those of ``ANTHROPIC_API_KEY``, ``OPENAI_API_KEY`` and ``GEMINI_API_KEY``.
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
    sys.exit("the chat is drawn by rich: install syncmcp-client[terminal]")

with suppress(ImportError):  # there is none on Windows
    import_module("readline")  # `input` then edits its line, and remembers the ones before

BUNDLED: Final = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")


# -- the models


class Wish(BaseModel):
    """A turn in which the model wants a tool."""

    tool: str
    arguments: dict[str, Any] = {}


class Script(BaseModel):
    """What is said where nobody is: by the person, by the model, and into forms."""

    person: list[str] = ["/servers", "Find out how I like my answers, then tell me about Bergen."]
    model: list[Wish | str] = [
        Wish(tool="ask_user_preferences"),
        Wish(tool="request_llm_help", arguments={"question": "What is Bergen known for?"}),
        "Rain, mountains, and a fish market.",  # the server asked for this one
        Wish(tool="weather", arguments={"city": "Bergen"}),
        "Bergen: rain, mountains, fish, and 9.5 degrees today.",
    ]
    forms: list[dict[str, str | int | float | bool | list[str]]] = [{"outputFormat": "plain"}]


class ScriptedModel:
    """A model without a provider: it says what a script has, then does what it is told."""

    def __init__(self, turns: Iterable[Wish | str] = ()) -> None:
        self._turns = iter(turns)

    def __call__(
        self, request: CreateMessageRequestParams, context: syncmcp.HandlerContext
    ) -> CreateMessageResult:
        """Answer with a text, or by asking for a tool."""
        turn = next(self._turns, None) or self._obey(request)
        answer = partial(CreateMessageResult, role="assistant", model="scripted")
        if isinstance(turn, Wish):
            id = f"call-{len(request.messages)}"
            use = ToolUseContent(id=id, name=turn.tool, input=turn.arguments)
            return answer(content=use, stop_reason="toolUse")
        context.show(turn)  # a model that streams shows what it has written so far
        return answer(content=TextContent(text=turn), stop_reason="endTurn")

    def _obey(self, request: CreateMessageRequestParams) -> Wish | str:
        last = request.messages[-1]
        for block in last.blocks:
            if isinstance(block, ToolResultContent):
                return f"That gave: {words_of(block)}"
        name, _, arguments = last.text.partition(" ")
        if name in {tool.name for tool in request.tools or ()}:
            return Wish(tool=name, arguments=json.loads(arguments or "{}"))
        return f"You said: {last.text}"

    def __repr__(self) -> str:
        return "scripted"


MODELS: Final[Mapping[str, tuple[Callable[[str], syncmcp.SamplingHandler], str]]] = {
    "anthropic": (AnthropicSampling, "claude-sonnet-5"),
    "openai": (OpenAISampling, "gpt-5.6-terra"),
    "openai-chat": (partial(OpenAISampling, api="chat"), "gpt-5.6-terra"),
    "gemini": (GeminiSampling, "gemini-3.8-flash"),
    "scripted": (lambda _: ScriptedModel(), ""),
}
"""By their names: how to reach a model, and which one unless that is said."""


def model_named(words: str) -> syncmcp.SamplingHandler:
    """The model ``provider`` or ``provider:name``."""
    provider, _, name = words.partition(":")
    if provider not in MODELS:
        raise syncmcp.UsageError(f"no model {words!r}: there are {', '.join(MODELS)}")
    make, usual = MODELS[provider]
    return make(name or usual)


# -- the screen


class Screen:
    """The terminal. One at a time has it: who writes, who types, or a question of a server's."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._free = threading.RLock()
        self._asked = False
        self._bars: Progress | None = None
        self._rows: dict[str, TaskID] = {}
        self._written = 0

    def say(self, words: object = "") -> None:
        """Print a line. Whatever others wrote cannot do anything to the terminal."""
        with self._free:
            self._console.out(visible(str(words), lines=True))

    def line(self) -> str:
        """What the person types; a question waits until it is there."""
        with self._free:
            return input("you> ")

    def text(self, so_far: str) -> None:
        """Print what the model has written since the last time."""
        with self._free:
            if not self._written:
                self._console.out("agent: ", end="")
            self._console.out(visible(so_far[self._written :], lines=True), end="")
            self._written = len(so_far)

    def step(self, step: Step) -> None:
        """Print a step of the loop."""
        if isinstance(step, ModelTurn):
            if not self._written and step.result.text:
                self.text(step.result.text)
            self.end_of_text()
        elif isinstance(step, ToolStarted):
            self.progress(step.use, 0, None, None)
        elif isinstance(step, ToolFinished):
            self._end_bar(step.use)
            asked = visible(f"{step.use.name} {json.dumps(step.use.input, ensure_ascii=False)}")
            # Set in, so that no server writes a line that could be the host's.
            given = shorten(words_of(step.result), 2000).replace("\n", "\n     ")
            self.say(f"{shorten(asked, 500)}\n  -> {given}")

    def progress(
        self, use: ToolUseContent, done: float, total: float | None, message: str | None
    ) -> None:
        """Draw how far a tool is. Called on pool threads."""
        if self._asked or not self._console.is_terminal:
            return  # a report is not worth waiting for a person
        with self._free:
            if self._bars is None:
                name = TextColumn("{task.description}", markup=False)
                self._bars = Progress(
                    name, BarColumn(), console=self._console, auto_refresh=False, transient=True
                )
                self._bars.start()
            if use.id not in self._rows:
                self._rows[use.id] = self._bars.add_task("", total=None)
            words = visible(shorten(f"{use.name} {message or ''}", 60))
            row = self._rows[use.id]
            self._bars.update(row, completed=done, total=total, description=words, refresh=True)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let a question have the terminal."""
        with self._free:
            self._end_bars()
            self._asked = True
            try:
                yield
            finally:
                self._asked = False

    def end_of_text(self) -> None:
        """Begin a new line, if the model has written something."""
        with self._free:
            if self._written:
                self._console.out()
            self._written = 0

    def end_of_turn(self) -> None:
        """Leave nothing of it behind."""
        with self._free:
            self._end_bars()
            self.end_of_text()

    def _end_bar(self, use: ToolUseContent) -> None:
        with self._free:
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


def words_of(result: ToolResultContent) -> str:
    """The text of what a tool gave; of anything else, what it is."""
    return " ".join(
        block.text if isinstance(block, TextContent) else f"[{block.type}]"
        for block in result.content
    )


# -- the chat


class Chat:
    """A conversation with models that use the servers of a group.

    Args:
        model: The first of them.
        servers: By their names.
        screen: Where it happens.
        options: For the clients of all servers.
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
        # In no provider's words: any model can go on with it.
        self._said: list[SamplingMessage] = []

    def run(self, lines: Iterable[str]) -> None:
        """Do what each line wants, until there are no more or one of them is ``/quit``."""
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == "/quit":
                return
            try:
                if word in COMMANDS:
                    COMMANDS[word](self, rest.strip())
                elif word.startswith("/"):
                    self._screen.say(f"there is no {word}; /help lists the commands")
                elif word:
                    self._ask(line)
            except syncmcp.McpError as error:
                self._screen.say(f"{word}: {error}")
            except KeyboardInterrupt:
                self._screen.say(f"{word}: stopped")

    def _ask(self, line: str) -> None:
        """Have the model answer, by way of any tools."""
        screen = self._screen
        loop = syncmcp.ToolLoop(
            self._model,
            self.group,
            timeout=None,  # a person is there to stop it
            on_step=screen.step,
            on_text=screen.text,
            on_progress=screen.progress,
        )
        said = [*self._said, SamplingMessage(role="user", content=TextContent(text=line))]
        try:
            with cancelled_by_ctrl_c() as token:
                self._said = loop.run(said, cancel=token).messages
            screen.end_of_turn()
        except Exception as error:  # those of a provider's package, too
            screen.end_of_turn()
            screen.say(f"stopped: {shorten(str(error), 500)}")
            # What was done stays said, where the error has it.
            self._said = settled(getattr(error, "messages", None) or self._said)

    def _answer(
        self, request: CreateMessageRequestParams, context: syncmcp.HandlerContext
    ) -> CreateMessageResult:
        """A server asks for a model: it gets the one that is there at the moment."""
        return self._model(request, context)

    # -- commands

    def help(self, _: str) -> None:
        """List the commands."""
        for word, command in COMMANDS.items():
            self._screen.say(f"{word:10} {command.__doc__}")
        self._screen.say("/quit      End the chat, as the end of the input does.")

    def tools(self, _: str) -> None:
        """List the tools of the model, and their servers."""
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

    def roots(self, words: str) -> None:
        """List where servers may work; or `add` or `remove` a folder."""
        change, _, folder = words.partition(" ")
        if change == "add":
            self.group.roots.add(folder)
        elif change == "remove":
            self.group.roots.remove(folder)
        for root in self.group.roots.list():
            self._screen.say(f"{root.path} ({root.status})")

    def model(self, words: str) -> None:
        """Go on with another model: `anthropic`, `openai:gpt-5.6-terra`; or show this one."""
        if words:
            self._model = model_named(words)
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
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second one does not ask
        # Not here: the thread that is interrupted may be in the middle of anything.
        threading.Thread(target=token.cancel, args=("Ctrl-C",)).start()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield token
    finally:
        signal.signal(signal.SIGINT, before)


def settled(said: list[SamplingMessage]) -> list[SamplingMessage]:
    """A conversation without the last wish for tools, which nobody fulfilled."""
    wished = said and any(isinstance(block, ToolUseContent) for block in said[-1].blocks)
    return said[:-1] if wished else said


# -- the program


def typed(screen: Screen) -> Iterator[str]:
    """What a person types, line by line; Ctrl-C takes a line back."""
    while True:
        try:
            line = screen.line()
        except KeyboardInterrupt:
            screen.say()
        except EOFError:
            return
        else:
            yield line


def recited(script: Script, screen: Screen) -> Iterator[str]:
    """What the script says in a person's place."""
    for line in script.person:
        screen.say(f"you> {line}")
        yield line


def scripted_forms(script: Script) -> syncmcp.FormHandler:
    """Return what answers forms from the script, and declines once it has ended."""
    contents = iter(script.forms)

    def fill_in(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
        content = next(contents, None)
        return ElicitResult.decline() if content is None else ElicitResult.accept(content)

    return fill_in


class Somebody(NamedTuple):
    """Who answers forms, who approves everything else, and who approves servers of files."""

    elicitation: Any
    approval: syncmcp.Approval
    approve: servers_file.Approve | None = None


@contextmanager
def somebody(ui: str, script: Script, screen: Screen) -> Iterator[Somebody]:
    """Yield who is there, by what was chosen on the command line."""

    def report(record: AuditRecord) -> None:
        if record.by != "person":
            about = f"{record.question} ({record.review})"
            screen.say(f"  [{record.decision.value} by {record.by}: {about}]")

    if ui == "terminal":
        from syncmcp.ui.terminal import AskOnTerminal, Terminal

        terminal = Terminal(beside=screen.lent)
        asking = AskOnTerminal(terminal=terminal, audit=report)
        yield Somebody(terminal, asking, terminal.approve)
    elif ui == "browser":
        from syncmcp.ui.browser import AskInBrowser, Browser

        with Browser() as browser:
            yield Somebody(browser, AskInBrowser(browser=browser, audit=report))
    else:
        # Nothing is approved by itself: a program that runs alone has to say so.
        approval = syncmcp.Approval(syncmcp.AllowAll(), audit=report)
        yield Somebody(scripted_forms(script), approval)


def named_servers(
    options: argparse.Namespace, approve: servers_file.Approve | None
) -> Mapping[str, Source]:
    """The servers of the command line, by their names; the bundled one if there are none."""
    found: dict[str, Source] = {}
    for path in options.servers:
        found |= servers_file.read(path, approve=approve, trust=options.trust)
    for url in options.url:
        where = urlsplit(url)
        name = where.netloc.rpartition("@")[2]  # names are shown: without a password
        found[name + where.path if name in found else name] = url
    if options.command:
        found[Path(options.command[0]).name] = syncmcp.Stdio(*options.command)
    return found or {"demo": BUNDLED}


def main() -> None:
    """Read the command line, and chat."""
    parser = argparse.ArgumentParser(description="A chat with a model that uses your servers.")
    parser.add_argument("--model", default="scripted", metavar="PROVIDER[:NAME]")
    parser.add_argument(
        "--servers", action="append", default=[], metavar="FILE", help="a file with mcpServers"
    )
    parser.add_argument("--trust", action="store_true", help="use these files without asking")
    parser.add_argument("--url", action="append", default=[], help="a server")
    parser.add_argument("--root", action="append", default=[], help="a folder for the servers")
    parser.add_argument("--ui", choices=("terminal", "browser", "none"), help="where you are asked")
    parser.add_argument(
        "--script", type=Path, metavar="FILE", help="JSON with the answers of a person"
    )
    parser.add_argument("command", nargs="*", help="a server, after --")
    options = parser.parse_args()
    screen = Screen()
    try:
        said = options.script.read_bytes() if options.script else None
        script = Script() if said is None else Script.model_validate_json(said)
    except (OSError, ValidationError) as error:
        parser.error(f"--script: {error}")
    alone = options.script is not None or not sys.stdin.isatty()
    ui = options.ui or ("none" if alone else "terminal")
    real = options.model != "scripted" or options.servers or options.url or options.command
    if real and alone and not (options.ui or options.script):
        parser.error("nobody is here to be asked; --script FILE or --ui none approves everything")
    model = model_named(options.model)
    if alone and options.model == "scripted":
        model = ScriptedModel(script.model)
    with somebody(ui, script, screen) as there:
        chat = Chat(
            model,
            named_servers(options, there.approve),
            screen,
            roots=options.root,
            elicitation=there.elicitation,
            approval=there.approval,
        )
        with chat.group:
            chat.run(recited(script, screen) if alone else typed(screen))


if __name__ == "__main__":
    try:
        main()
    except syncmcp.McpError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
