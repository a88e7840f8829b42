"""Somebody types, and is offered completions, key by key."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import syncmcp
from syncmcp.completion import Completer
from syncmcp.testing import Server

CITIES = {
    "Norway": ["Bergen", "Bodø", "Oslo"],
    "Japan": ["Kobe", "Kyoto", "Tokyo"],
}


def atlas() -> Server:
    """A server whose cities depend on the country."""
    server = Server("atlas")

    @server.prompt()
    def journey(country: str, city: str) -> str:
        """Plan a journey."""
        return f"Plan a journey to {city} in {country}."

    @server.completion(prompt="journey", argument="country")
    def countries(typed: str, settled: Mapping[str, str]) -> list[str]:
        return [name for name in CITIES if name.lower().startswith(typed.lower())]

    @server.completion(prompt="journey", argument="city")
    def cities(typed: str, settled: Mapping[str, str]) -> list[str]:
        known = CITIES.get(settled.get("country", ""), [])
        return [name for name in known if name.lower().startswith(typed.lower())]

    return server


def main() -> None:
    """Fill the arguments of a prompt in, and get it."""
    with syncmcp.connect(atlas()) as client, ThreadPoolExecutor() as keyboard:
        (journey,) = client.list_prompts().prompts
        completer = Completer(client, journey)

        arguments: dict[str, str] = {}
        for argument, word in (("country", "Jap"), ("city", "K")):
            # One question for each key. Each outdates the one before, whose answer is None.
            questions = [
                keyboard.submit(completer.suggest, argument, word[:length], dict(arguments))
                for length in range(1, len(word) + 1)
            ]
            answers = [question.result() for question in questions]
            # The threads may have begun in another order than the keys came.
            offered = answers[-1] or completer.suggest(argument, word, arguments)
            values = offered.values if offered else []
            print(f"{argument}: {word} -> {', '.join(values)}")
            arguments[argument] = values[-1]

        print(client.get_prompt(journey, arguments).messages[0].to_wire()["content"]["text"])
        try:
            client.get_prompt(journey, {"country": "Japan"})
        except syncmcp.UsageError as error:
            print(f"not sent: {error.message}")


if __name__ == "__main__":
    main()
