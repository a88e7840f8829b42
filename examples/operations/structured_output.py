"""Data from a tool, checked by the schema that the tool announced, and read by type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import syncmcp
from syncmcp.testing import Server

server = Server("library")


@dataclass
class Book:
    """What a program wants to know of a book."""

    title: str
    year: int


@server.tool()
def newest(author: str) -> Book:
    """The newest book of an author."""
    return Book(f"{author}, collected", 2024)


@server.tool(
    output_schema={
        "type": "object",
        "properties": {"books": {"type": "array", "items": {"required": ["title", "year"]}}},
    }
)
def shelf(author: str) -> dict[str, Any]:
    """All books of an author; the cataloguer was in a hurry."""
    return {"books": [{"title": "Letters", "year": 1999}, {"title": "Notes"}]}


def main() -> None:
    """Read a book, come across a bad record, and make a mistake."""
    with syncmcp.connect(server, validate_input=True) as client:
        book = client.call_tool("newest", {"author": "Ada"}).parse(Book)
        print(f"{book.title} ({book.year})")

        try:
            client.call_tool("shelf", {"author": "Ada"})
        except syncmcp.InvalidOutput as error:
            print(error.message)
            books = error.result.data["books"] if error.result else []
            print(f"all the same: {len(books)} books")

        try:
            client.call_tool("newest", {"author": 1815})
        except syncmcp.InvalidArguments as error:
            print(f"not sent: {error.message}")


if __name__ == "__main__":
    main()
