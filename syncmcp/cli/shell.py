"""`shell`: one connection, many commands."""

from __future__ import annotations

import shlex

from syncmcp.cli.failures import CommandError
from syncmcp.cli.options import speaks_to_server
from syncmcp.cli.session import Session, Shared

__all__ = ["shell"]


@speaks_to_server
def shell(session: Session) -> None:
    """Type commands at one connection, without TARGET; Tab completes, Ctrl-D ends."""
    from syncmcp.cli.app import obey
    from syncmcp.cli.prompting import COMMANDS, lines

    person = session.person
    if person is None:
        raise CommandError("a shell needs a terminal", hint="`syncmcp call` and its kin need none")
    client = session.client
    shared = Shared(client, person)
    session.out.note(f"connected to {client.server.name}; help lists the commands, Ctrl-D ends")
    for line in lines(client):
        words = _words(line)
        if not words:
            continue
        if words[0] == "quit":
            return
        if words[0] == "help":
            known = words[1:] and words[1] not in ("help", "quit")
            words = [words[1], "--help"] if known else []
        if words and words[0] not in COMMANDS:
            session.out.note(f"{words[0]}: there is no such command; help lists them")
        elif words:
            obey(words, shared)
        else:
            session.out.note(" ".join(COMMANDS) + "; help COMMAND says more")


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a quotation mark is missing
        return line.split()
