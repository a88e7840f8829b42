"""Structured output: validated against the tool's schema, and parsed into a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import syncmcp
from syncmcp.testing import Server

server = Server("library")


@dataclass
class Book:
    """A book: the server derives a schema from it, and the client parses results into it."""

    title: str
    year: int


@server.tool()
def newest(author: str) -> Book:
    """Return the newest book of an author."""
    return Book(f"{author}, collected", 2024)


@server.tool(
    output_schema={
        "type": "object",
        "properties": {"books": {"type": "array", "items": {"required": ["title", "year"]}}},
    }
)
def shelf(author: str) -> dict[str, Any]:
    """Return all books of an author; the second one lacks its year."""
    return {"books": [{"title": "Letters", "year": 1999}, {"title": "Notes"}]}


def main() -> None:
    """Parse a valid result, then get an invalid result, then pass an invalid argument."""
    with syncmcp.connect(server, validate_input=True) as client:
        book = client.call_tool("newest", {"author": "Ada"}).parse(Book)
        print(f"{book.title} ({book.year})")

        try:
            client.call_tool("shelf", {"author": "Ada"})
        except syncmcp.InvalidOutput as error:
            print(error.message)
            books = error.result.data["books"] if error.result else []
            print(f"the invalid result has {len(books)} books")

        try:
            client.call_tool("newest", {"author": 1815})
        except syncmcp.InvalidArguments as error:
            print(f"not sent: {error.message}")


if __name__ == "__main__":
    main()
