"""Hints for command lines that cannot be parsed, and for commands that are not found."""

from __future__ import annotations

from typing import Final

# Each entry: a part of Typer's message, a part of the command's usage, and the hint. Words of other
# programs come first: an option with a similar spelling would have another meaning.
OTHER_WORDS: Final = (
    *(
        hint
        for kind in ("tools", "resources", "templates", "prompts")
        for hint in (
            (f"option: --{kind}", "[WHAT]", f"write {kind} after TARGET"),
            (f"'{kind},", "[WHAT]", "separate them with blanks"),
        )
    ),
    ("option: --transport", "TARGET", "TARGET decides: HTTP for a URL, stdio for a command"),
    ("option: --token", "TARGET", "--bearer sends a token"),
    ("option: --auth", "TARGET", "--bearer sends a token, `syncmcp auth login` gets one"),
    ("option: --url", "TARGET", "write the URL as TARGET, without an option"),
    ("option: --tool", "[TOOL]", "write the name of the tool after TARGET"),
    ("option: --arg", "[TOOL]", "write name=value, or --input with a JSON object"),
    ("option: --format", "TARGET", "--json prints JSON"),
    ("option: -d", "[TOOL]", "write name=value, or --input with a JSON object"),
    ("option: --data", "[TOOL]", "write name=value, or --input with a JSON object"),
    ("option: -u", "TARGET", "--header and --bearer send credentials"),
    ("option: -V", "COMMAND", "did you mean --version?"),
    ("command 'version'", "COMMAND", "did you mean --version?"),
    (
        "command 'add'",
        "servers",
        "add it to a file of your editor, or to any file, which --config FILE reads",
    ),
    (
        "command 'remove'",
        "servers",
        "`syncmcp servers forget NAME` forgets the approval of a server",
    ),
    ("command 'login'", "syncmcp [OPTIONS]", "did you mean `syncmcp auth login`?"),
    ("command 'logout'", "syncmcp [OPTIONS]", "did you mean `syncmcp auth logout`?"),
    ("command 'resource", "syncmcp [OPTIONS]", "`syncmcp list TARGET resources` lists them"),
    ("command 'template", "syncmcp [OPTIONS]", "`syncmcp list TARGET templates` lists them"),
    (
        "command 'prompts'",
        "syncmcp [OPTIONS]",
        "`syncmcp list TARGET prompts` lists them, `syncmcp prompt` gets one",
    ),
    ("'http", "[WHAT]", "TARGET comes before WHAT"),
)
USAGE_HINTS: Final = (
    ("'TARGET'", " auth ", "a URL, or a name: `syncmcp servers` lists the names"),
    ("'TARGET'", "", "a URL, a name, or a command after --: {path} -- python server.py"),
    ("unexpected extra argument", "TARGET", "write a command that starts a server after --"),
    ("No such command 'http", "", "write the command first: {path} COMMAND URL"),
    *(
        (f"No such command '{word}", "syncmcp [OPTIONS]", "write {path} tools -- before it")
        for word in ("/", "./", "python", "node", "npx", "uv")
    ),
    ("No such command", "", "`{path} --help` lists the commands"),
    ("option: --output", "", "--json prints JSON"),
    (
        "No such option",
        "[TOOL]",
        "a tool's arguments are written name=value; --help lists the options",
    ),
    ("No such option", "", "`{path} --help` lists the options"),
    ("argument", "", "`{path} --help` shows the arguments"),
    ("Invalid value", "", "`{path} --help` describes it"),
)

SEARCHED: Final = "; PATH searched: "
"""The text before the searched directories in the error for a command that was not found."""

INSTALL: Final = "install it, or write its whole path"
"""The hint for a command that was not found."""

DOCTOR: Final = "`syncmcp doctor` checks each step of connecting"
"""The end of the hint for a failed connection."""

RUNNERS: Final = ("python", "python3", "node", "npx", "uv", "uvx", "deno", "bunx", "docker")
"""Programs that start servers, which the name of a command that was not found is compared with."""
