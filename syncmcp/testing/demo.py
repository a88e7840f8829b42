"""The demo server: tools, resources and prompts of every kind, without external effects."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from typing_extensions import TypedDict

from syncmcp._base.origin import split_url
from syncmcp.testing.server.context import ToolContext
from syncmcp.testing.server.server import Server
from syncmcp.testing.server.wire import REVISIONS, Message, since

# Tools that ask the client questions.


READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
_TUTOR = (
    "You are a patient maths tutor. Explain the way to the answer step by step, in words a "
    "twelve-year-old understands, and end with the answer on a line of its own."
)


class FileCount(TypedDict):
    """How many files there are, if the path is inside the roots."""

    path: str
    inside: bool
    files: int | None


def add_asking_tools(server: Server) -> None:
    """Register the tools that ask the client questions."""
    _add_sampling(server)
    _add_forms(server)

    @server.tool(title="Count files", annotations=READ_ONLY)
    def count_files(context: ToolContext, path: str) -> FileCount:
        """Count the files below a directory, if it is inside the client's roots.

        A relative path starts at the first root.
        """
        roots = [_path_of(root["uri"]) for root in context.list_roots()]
        place = (roots[0] / path if roots else Path(path)).resolve()
        inside = any(place.is_relative_to(root) for root in roots)
        return {"path": str(place), "inside": inside, "files": _count(place) if inside else None}

    @server.tool(title="Connect an account")
    def connect_account(context: ToolContext, service: str = "example") -> str:
        """Send a person to a page of the service; what they do there stays there."""
        identifier = str(uuid.uuid4())
        answer = context.elicit_url(
            f"Sign in to {service}, so that this server may read your calendar.",
            f"https://{service}.com/connect?ticket={identifier}",
            identifier,
        )
        if answer.get("action") != "accept":
            return f"not connected: {answer.get('action')}"
        context.complete_elicitation(identifier)
        return f"connected to {service}"


def _add_sampling(server: Server) -> None:
    @server.tool(title="Ask a model", annotations=READ_ONLY)
    def request_llm_help(context: ToolContext, question: str) -> str:
        """Ask the client's model a question; the answer has at most 500 tokens."""
        return _text(context.sample(question, max_tokens=500))

    @server.tool(title="Explain maths", annotations=READ_ONLY)
    def explain_math(context: ToolContext, problem: str) -> str:
        """Have the client's model explain a problem as a maths tutor would."""
        answer = context.sample(
            f"Explain how to solve this: {problem}",
            max_tokens=800,
            system_prompt=_TUTOR,
            temperature=0.3,
            modelPreferences={"intelligencePriority": 0.8, "costPriority": 0.2},
        )
        return _text(answer)


def _add_forms(server: Server) -> None:
    @server.tool(title="Preferences", annotations=READ_ONLY)
    def ask_user_preferences(context: ToolContext) -> dict[str, Any]:
        """Ask how answers should look."""
        verbosity = {"low": "Just the facts", "medium": "Some context", "high": "Everything"}
        fields: Message = {
            "outputFormat": _field(
                "Output format",
                description="How answers are written",
                enum=["json", "markdown", "plain"],
            ),
            "verbosity": _field("Verbosity", **_titled(context, verbosity)),
            "includeTimestamps": _field("Include timestamps", "boolean", default=True),
        }
        return _fill_in(context, "How should answers look?", fields, ["outputFormat"])

    @server.tool(title="Sign up for maths facts")
    def signup_math_facts(context: ToolContext) -> dict[str, Any]:
        """Sign a person up for a maths fact a day."""
        fields: Message = {
            "name": _field("Name", minLength=1),
            "email": _field("E-mail", description="Where the facts go", format="email"),
            "favouriteNumber": _field("Favourite number", "integer"),
        }
        return _fill_in(context, "Sign up for a maths fact a day.", fields, ["name", "email"])


def _fill_in(
    context: ToolContext, message: str, fields: Message, required: list[str]
) -> dict[str, Any]:
    schema: Message = {"type": "object", "properties": fields, "required": required}
    return context.elicit(message, schema)


def _field(title: str, kind: str = "string", **more: Any) -> Message:
    return {"type": kind, "title": title, **more}


def _titled(context: ToolContext, titles: Mapping[str, str]) -> Message:
    """Return the schema members for values with titles, in the form of the revision."""
    if since(context.revision, "2025-11-25"):
        return {"oneOf": [{"const": value, "title": text} for value, text in titles.items()]}
    return {"enum": list(titles), "enumNames": list(titles.values())}


def _text(answer: Message) -> str:
    """Return the text of a model's answer."""
    content = answer["content"]
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")


def _path_of(uri: str) -> Path:
    return Path(unquote(split_url(uri).path)).resolve()


def _count(place: Path) -> int:
    """Count the files at or below `place`, without following links, which may lead outside."""
    if place.is_file():
        return 1
    return sum(
        not os.path.islink(os.path.join(directory, name))
        for directory, _, names in os.walk(place)
        for name in names
    )


_CITIES = {"Bergen": (9.5, "rain"), "Cairo": (31.0, "sun"), "Kyoto": (18.0, "clouds")}
_LANGUAGES = ("English", "French", "German", "Japanese", "Norwegian")
_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Weather(TypedDict):
    """The weather in one city."""

    city: str
    celsius: float
    sky: str


def demo_server(
    name: str = "syncmcp-demo",
    *,
    revisions: Iterable[str] = REVISIONS,
    page_size: int | None = None,
) -> Server:
    """Return a new demo server: a `Server` with tools, resources and prompts of every kind.

    >>> from syncmcp.testing import demo_server
    >>> with syncmcp.connect(demo_server()) as client:
    ...     print(client.call_tool("greet", {"name": "Ada"}).text)
    Hello, Ada!

    Args:
        name: The server's name.
        revisions: The protocol revisions that the server speaks.
        page_size: The number of entries in one page of a list; `None` sends all entries in one
            page.
    """
    server = Server(
        name,
        version="1.0",
        title="Demo",
        instructions="A demo server. Every tool is harmless; some ask you something.",
        revisions=revisions,
        page_size=page_size,
    )
    _add_tools(server)
    add_asking_tools(server)
    _add_resources(server)
    _add_prompts(server)
    return server


def _add_tools(server: Server) -> None:
    @server.tool(title="Add", annotations={**READ_ONLY, "idempotentHint": True})
    def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @server.tool(title="Echo", annotations=READ_ONLY)
    def echo(text: str) -> str:
        """Return the text unchanged."""
        return text

    @server.tool(title="Greet", annotations=READ_ONLY)
    def greet(name: str = "world") -> str:
        """Greet somebody."""
        return f"Hello, {name}!"

    @server.tool(title="Countdown", annotations=READ_ONLY)
    def countdown(context: ToolContext, steps: int = 3, delay: float = 0.1) -> str:
        """Count down with progress and log messages; `delay` is in seconds per step."""
        context.log("info", f"counting down from {steps}", "countdown")
        for step in range(1, steps + 1):
            if context.cancelled.wait(delay):
                return "cancelled"
            context.report_progress(step, steps, f"{steps - step} left")
            context.log("debug", {"step": step}, "countdown")
        return "lift-off"

    @server.tool(title="Fail", annotations=READ_ONLY)
    def fail(message: str = "as you wish") -> str:
        """Fail with the given message."""
        raise RuntimeError(message)

    @server.tool(title="Weather", annotations={**READ_ONLY, "idempotentHint": True})
    def weather(city: str) -> Weather:
        """Return the weather in Bergen, Cairo or Kyoto as structured data."""
        if city not in _CITIES:
            raise ValueError(f"no weather for {city}; try {', '.join(_CITIES)}")
        celsius, sky = _CITIES[city]
        return {"city": city, "celsius": celsius, "sky": sky}

    @server.tool(title="Sleep", annotations=READ_ONLY)
    def sleep(context: ToolContext, seconds: float) -> str:
        """Answer after some seconds, or never if cancelled."""
        return "cancelled" if context.cancelled.wait(seconds) else "rested"

    @server.tool(title="Big", annotations=READ_ONLY)
    def big(size: int) -> str:
        """Return that many bytes of text."""
        return "x" * size


def _add_resources(server: Server) -> None:
    @server.resource("demo://readme", title="Read me", mime_type="text/plain")
    def readme() -> str:
        """A short text."""
        return "This is the demo server."

    @server.resource("demo://pixel.png", title="One pixel", mime_type="image/png")
    def pixel() -> bytes:
        """A picture of one pixel."""
        return _PIXEL

    @server.resource("demo://cities", title="Cities", mime_type="application/json")
    def cities() -> list[dict[str, str]]:
        """The cities the weather tool knows, one content each."""
        return [
            {"uri": f"demo://cities/{city}", "mimeType": "text/plain", "text": city}
            for city in _CITIES
        ]

    @server.resource_template("demo://cities/{city}", title="A city", mime_type="application/json")
    def city(city: str) -> dict[str, Any]:
        """The weather in one city."""
        celsius, sky = _CITIES.get(city, (None, "unknown"))
        return {"city": city, "celsius": celsius, "sky": sky}

    @server.completion(template="demo://cities/{city}", argument="city")
    def complete_city(value: str, arguments: Any) -> list[str]:
        return [city for city in _CITIES if city.lower().startswith(value.lower())]


def _add_prompts(server: Server) -> None:
    @server.prompt(title="Say hello")
    def hello() -> str:
        """A prompt without arguments."""
        return "Say hello."

    @server.prompt(title="Translate")
    def translate(text: str, language: str = "English") -> list[str]:
        """Ask for a translation."""
        return [f"Translate into {language}:", text]

    @server.completion(prompt="translate", argument="language")
    def complete_language(value: str, arguments: Any) -> list[str]:
        return [name for name in _LANGUAGES if name.lower().startswith(value.lower())]
