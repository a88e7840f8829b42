"""Complete the arguments of a prompt while a person types."""

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
    """A server that completes countries, and the cities of the chosen country."""
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
    """Complete both arguments of a prompt, then get the prompt."""
    with syncmcp.connect(atlas()) as client, ThreadPoolExecutor() as pool:
        (journey,) = client.list_prompts().prompts
        completer = Completer(client, journey)

        arguments: dict[str, str] = {}
        for argument, word in (("country", "Jap"), ("city", "K")):
            # One call for each key. A newer call supersedes the older one, which returns None.
            calls = [
                pool.submit(completer.suggest, argument, word[:length], dict(arguments))
                for length in range(1, len(word) + 1)
            ]
            results = [call.result() for call in calls]
            # Threads may start in any order, so the call for the last key may be superseded, too.
            completion = results[-1] or completer.suggest(argument, word, arguments)
            values = completion.values if completion else []
            print(f"{argument}: {word} -> {', '.join(values)}")
            arguments[argument] = values[-1]

        print(client.get_prompt(journey, arguments).messages[0].to_wire()["content"]["text"])
        try:
            client.get_prompt(journey, {"country": "Japan"})
        except syncmcp.UsageError as error:
            print(f"not sent: {error.message}")


if __name__ == "__main__":
    main()
