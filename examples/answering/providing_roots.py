"""A server counts files, but only inside the roots that it was told of.

``python examples/answering/providing_roots.py``  tries it on two directories made for it
``python examples/answering/providing_roots.py ROOT PATH ...``
    tries it on yours; the first is the root
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import syncmcp
from syncmcp.handlers.roots import contains


def analyse(root: Path, paths: list[Path]) -> None:
    """Have the files below each path counted; first with one root, then with all of them."""
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(server, roots=[root]) as client:
        for path in paths:
            count(client, path)
        for path in paths:
            if not contains(client.roots, path):
                client.roots.add(path)
                print(f"added {path.name}")
                count(client, path)


def count(client: syncmcp.Client, path: Path) -> None:
    """Ask the server. It promises to keep to the roots; nothing makes it."""
    found = client.call_tool("count_files", {"path": str(path)}).raise_for_error().data
    print(f"{path.name}: {found['files'] if found['inside'] else 'outside the roots'}")


def main() -> None:
    """Analyse what the command line says."""
    paths = [Path(argument).resolve() for argument in sys.argv[1:]]
    if paths:
        analyse(paths[0], paths)
        return
    with TemporaryDirectory() as place:
        for name, files in (("project", 3), ("private", 2)):
            directory = Path(place).resolve() / name
            directory.mkdir()
            for number in range(files):
                (directory / f"{number}.txt").write_text("hello\n", encoding="utf-8")
            paths.append(directory)
        analyse(paths[0], paths)


if __name__ == "__main__":
    main()
