"""Files on this computer: the stored roots, and the servers in files of editors."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from syncmcp import servers_file
from syncmcp._base.similar import similar
from syncmcp._base.text import reason
from syncmcp._concurrency import files
from syncmcp.cli.output import CommandError
from syncmcp.errors import McpError
from syncmcp.handlers.roots import Roots, restored
from syncmcp.servers_file import Approve, ServerEntry, ServersFile
from syncmcp.types import Root

# The directory of sign-ins, approvals, roots and the history of the shell; the stored roots.


def state_directory() -> Path:
    """Return the directory, which may not exist yet; the variable ``SYNCMCP_HOME`` overrides it."""
    given = os.environ.get("SYNCMCP_HOME")
    return Path(given).expanduser() if given else files.state_directory()


def load_roots() -> Roots:
    """Return the stored roots, including those whose directories do not exist at present."""
    path = _roots_file()
    try:
        uris = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        uris = []
    except (OSError, UnicodeError) as error:
        raise CommandError(f"cannot read the roots in {str(path)!r}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{str(path)!r} is not JSON: {reason(error)}") from error
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise CommandError(f"{str(path)!r} holds no list of roots")
    return restored([Root(uri=uri) for uri in uris], None)


def save_roots(roots: Roots) -> None:
    """Replace the stored roots atomically: a crash leaves either the old or the new ones."""
    path = _roots_file()
    text = json.dumps([status.root.uri for status in roots.list()], indent=1)
    try:
        files.make_private_directory(path.parent)
        files.write_atomically(path, text.encode())
    except OSError as error:
        raise CommandError(f"cannot save the roots in {str(path)!r}: {reason(error)}") from error


def _roots_file() -> Path:
    return state_directory() / "roots.json"


# The servers that files of editors name.


def read_server_files(
    config: Path | None, *, approve: Approve | None = None, trust: bool = False
) -> Iterator[tuple[Path, ServersFile | McpError]]:
    """Yield each file of servers with its contents, or with the error of reading it.

    `config` is the only file to read; `None` means those of the editors on this computer. `approve`
    asks a person about a server that is not in their own settings; `trust` uses it without asking.
    """
    paths = [place.path for place in servers_file.known_files()] if config is None else [config]
    for path in paths:
        try:
            yield (
                path,
                servers_file.read(
                    path,
                    approve=approve,
                    trust=trust,
                    approvals=state_directory() / "approved-servers.json",
                ),
            )
        except McpError as error:
            yield path, error


def find_server(
    name: str,
    config: Path | None,
    *,
    approve: Approve | None = None,
    trust: bool = False,
    otherwise: str = "a URL begins with https:// or http://; write a command after --",
) -> ServerEntry:
    """Return the server of this name in the first file that names it; see `read_server_files`.

    `otherwise`: a hint how to name a server that is in no file; "" if the command accepts none.
    """
    names: list[str] = []
    broken: list[str] = []
    for path, read in read_server_files(config, approve=approve, trust=trust):
        if isinstance(read, McpError):
            if config is not None:
                raise read
            # This file must not hide servers of other files; `syncmcp servers` shows its error.
            broken.append(f"{path} cannot be read: see `syncmcp servers`")
            continue
        if name in read:
            return read[name]
        names.extend(read)
    close = similar(name, names, 3)
    listed = "`syncmcp servers` lists the names" if names or not otherwise else ""
    hint = "; ".join(filter(None, (*broken, otherwise, listed)))
    near = [file for file in ("mcp.json", ".mcp.json") if Path(file).is_file()]
    if config is not None and not names:
        hint = f"there are no servers in {config}"
    elif config is None and near:
        hint += f"; --config {near[0]} looks in the file of this directory"
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    elif otherwise and (runner := {".py": "python", ".js": "node"}.get(Path(name).suffix)):
        start = name if " " in name else f"{runner} {name}"
        hint = f"to start this program, write -- {start}"
    elif otherwise and re.match(r"(localhost|127\.0\.0\.1)[:/]", name):
        hint = f"write http://{name}"
    elif otherwise and name in ("tools", "resources", "templates", "prompts"):
        hint = f"{name!r} was taken as the server: name the server first"
    elif otherwise and (url := re.match(r"(https?):?/+", name, re.IGNORECASE)):
        hint = f"write {url[1].lower()}://{name[url.end() :]}"
    elif otherwise and "://" in name:
        hint = "the URL of a server begins with https:// or http://"
    elif otherwise and shutil.which(name):
        hint = f"if {name} is a command, write -- before it"
    elif otherwise and Path(name).is_file() and config is None:
        hint = f"NAME --config {name} uses a server of this file"
    where = "" if config is None else f" in {config}"
    raise CommandError(f"no server named {name!r}{where}", hint=hint)
