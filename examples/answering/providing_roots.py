"""A server counts files, but only inside the roots that the client provides.

``python examples/answering/providing_roots.py``  uses two temporary directories
``python examples/answering/providing_roots.py ROOT PATH ...``
    uses these paths; the first one is the root
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import syncmcp
from syncmcp.handlers.roots import contains


def analyse(root: Path, paths: list[Path]) -> None:
    """Count the files below each path: first with one root, then with every path as a root."""
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
    """Call the tool. The server itself checks the roots; the client cannot enforce them."""
    found = client.call_tool("count_files", {"path": str(path)}).raise_for_error().data
    print(f"{path.name}: {found['files'] if found['inside'] else 'outside the roots'}")


def main() -> None:
    """Analyse the paths of the command line, or two temporary directories."""
    paths = [Path(argument).resolve() for argument in sys.argv[1:]]
    if paths:
        analyse(paths[0], paths)
        return
    with TemporaryDirectory() as folder:
        for name, files in (("project", 3), ("private", 2)):
            directory = Path(folder).resolve() / name
            directory.mkdir()
            for number in range(files):
                (directory / f"{number}.txt").write_text("hello\n", encoding="utf-8")
            paths.append(directory)
        analyse(paths[0], paths)


if __name__ == "__main__":
    main()
