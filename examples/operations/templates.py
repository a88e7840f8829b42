"""Resource templates: make a URI from values, and get the values from a URI."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import syncmcp
from syncmcp.saving import save
from syncmcp.templates import UriTemplate
from syncmcp.testing import Server


def archive() -> Server:
    """A server with letters (by person, year and page) and files (by path)."""
    server = Server("archive")

    @server.resource_template("letters://{person}{?year,page}", mime_type="text/plain")
    def letter(person: str, year: str = "any year", page: str = "1") -> str:
        """A letter."""
        return f"Letter of {person}, {year}, page {page}."

    @server.resource_template("file://{+path}")
    def file(path: str) -> bytes:
        """A file."""
        return f"The bytes of {path}".encode()

    return server


def main() -> None:
    """Read letters and a file, and show a refused value and an ambiguous template."""
    with syncmcp.connect(archive()) as client, TemporaryDirectory() as folder:
        letters, files = client.list_resource_templates().resource_templates

        print("the URI, its contents and its values:")
        wanted: list[dict[str, str | int]] = [
            {"person": "Ada Lovelace", "year": 1843},
            {"person": "Who? {me} & #1", "page": 2},
            {"person": "../secrets"},
        ]
        for values in wanted:
            uri = letters.expand(values)
            print(f"  {uri}\n    {client.read_resource(uri).text}\n    {letters.match(uri)}")

        print("a template that allows reserved characters:")
        uri = files.expand({"path": "/etc/config"})
        path = save(client.read_resource(uri), Path(folder) / "config")
        print(f"  {uri}: {path.stat().st_size} bytes")
        try:
            files.expand({"path": "/home/../etc/passwd"})
        except syncmcp.UsageError as error:
            print(f"  refused: {error.message}")

        print("a template that cannot be matched:")
        print(f"  {UriTemplate('{first}-{last}').ambiguity}")


if __name__ == "__main__":
    main()
