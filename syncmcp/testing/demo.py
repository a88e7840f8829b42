"""The demo server: a little of everything, nothing from the environment."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from typing_extensions import TypedDict

from syncmcp.testing.asking import add_asking_tools
from syncmcp.testing.server.context import ToolContext
from syncmcp.testing.server.revisions import REVISIONS
from syncmcp.testing.server.server import Server

READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}

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
    """Return a new demo server; the arguments are those of `Server`."""
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
