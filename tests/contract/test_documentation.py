"""The pages are correct: code, commands, names, links, and the differences between revisions."""

from __future__ import annotations

import ast
import builtins
import doctest
import functools
import importlib
import inspect
import io
import operator
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import syncmcp
from syncmcp import Client, Mode
from syncmcp._client import requests
from syncmcp.cli.app import command_tree
from syncmcp.testing import Server, demo_server
from syncmcp.types import CompleteResult, ElicitResult, ResourceTemplateReference
from tests.contract import page_words
from tests.contract.public_api import MODULES, public_classes
from tests.support.stage import PATIENCE
from tests.system import test_examples

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

# Blocks of text and output, and directives for Sphinx.
NO_CODE = (
    "text",
    "{toctree}",
    "{glossary}",
    "{container}",
    "{measured}",
    "{eval-rst}",
    "{include}",
)

# Shell commands that are not part of the project.
FOREIGN = ("jq", "kill")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    kind: str
    rest: str
    text: str


def blocks() -> Iterator[Block]:
    """Yield all blocks of all pages, also those within a `{container}`."""
    fence = re.compile(r"^(`{3,})([^\s`]*)[ ]?(.*)\n((?:.*\n)*?)\1$", re.MULTILINE)
    for path in PAGES:
        waiting = [path.read_text(encoding="utf-8")]
        while waiting:
            for _, kind, rest, text in fence.findall(waiting.pop()):
                yield Block(path.relative_to(ROOT).as_posix(), kind, rest, text)
                if kind == "{container}":
                    waiting.append(text)


def pages_that_run() -> set[str]:
    """Return the pages whose Python `test_examples` runs."""
    return {*test_examples.FIRST_PAGES, *test_examples.WALKED}


def programs_that_run() -> set[Path]:
    """Return the example files that a test runs."""
    run = set(test_examples.EXAMPLES)
    words = "".join(path.read_text("utf-8") for path in ROOT.glob("tests/system/embedding/*.py"))
    run |= {path for path in ROOT.glob("examples/embedding/*.py") if path.stem in words}
    words = (ROOT / "tests/system/test_from_official_sdk.py").read_text("utf-8")
    for path in ROOT.glob("examples/from_official_sdk/*.py"):
        name = re.sub("_(official|syncmcp)$", "", path.stem)
        if re.search(rf'"{name}(_\{{side\}})?(\.py)?"', words):
            run.add(path)
    return run


def test_there_are_blocks_of_each_kind() -> None:
    kinds = {block.kind for block in blocks()}
    assert kinds == {"python", "console", "{literalinclude}", *NO_CODE}


def test_every_block_of_python_runs() -> None:
    tried = pages_that_run()
    shown = {block.page for block in blocks() if block.kind == "python"}
    assert sorted(shown - tried) == []


def test_every_file_that_a_page_shows_runs() -> None:
    tried = {path.resolve() for path in programs_that_run()}
    shown = {
        ((ROOT / block.page).parent / block.rest).resolve()
        for block in blocks()
        if block.kind == "{literalinclude}"
    }
    assert len(shown) > 20
    assert sorted(shown - tried) == []


def commands() -> list[str]:
    """Return the commands of all console blocks, without output and comments."""
    lines = [
        line.removeprefix("$ ").partition("  #")[0].strip()
        for block in blocks()
        if block.kind == "console"
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]
    return sorted({part.strip() for line in lines for part in line.split(" | ")})


def extras() -> set[str]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    return set(re.findall(r"^(\w+) = \[", table, re.MULTILINE))


def test_every_command_exists() -> None:
    lines = commands()
    assert len(lines) > 20
    for command in lines:
        check_command(command)


def check_command(command: str) -> None:
    words = command.split()
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE)
    elif command.startswith("pip install"):
        named = re.search(r"\[([\w,]+)\]", command)
        assert "syncmcp-client" in command
        assert named is None or set(named[1].split(",")) <= extras()
    elif words[0] == "python" and words[1].endswith(".py"):
        source = (ROOT / words[1]).read_text(encoding="utf-8")
        assert [word for word in words[2:] if word.startswith("--") and word not in source] == []
    elif words[0] == "python":
        assert words[1] == "-c" or words[2] in ("pip", "benchmarks", "pytest")
        if words[1] == "-c":
            code = command.partition('"')[2].rpartition('"')[0]
            exec(code, {})
    elif words[0] == "pytest":
        assert {word for word in words[1:] if word.startswith("--")} <= {"--mcp-record=all"}
    elif words[0] == "syncmcp" and words[1].startswith("--"):
        assert any(words[1] in option.opts for option in command_tree().params)
    elif words[0] == "syncmcp":
        # Another test compares this page with the commands.
        page = (DOCS / "command-line.md").read_text(encoding="utf-8")
        assert re.search(rf"^Usage: syncmcp {words[1]}\b", page, re.MULTILINE)
    else:
        assert words[0] in FOREIGN


def docstrings() -> Iterator[tuple[str, str]]:
    """Return the docstrings of modules, public names and operations, each once with its name."""
    shown = {module: importlib.import_module(module) for module in MODULES}
    values = {
        f"{module}.{name}": getattr(home, name)
        for module, home in shown.items()
        for name in home.__all__
    }
    client, resume = syncmcp.Client, requests.Resume.__call__
    values |= {name: getattr(client, name) for name in dir(client)} | {"resume": resume}
    values |= {"future": client.call_tool.future, "stream": client.call_tool.stream}
    told = {
        inspect.getdoc(value) or "": name
        for name, value in reversed((shown | values).items())
        if callable(value) or inspect.ismodule(value)
    }
    return ((name, text) for text, name in told.items())


def examples() -> Iterator[tuple[str, str]]:
    """Yield the blocks of code in docstrings, except sessions of the interpreter."""
    for name, text in docstrings():
        for block in re.findall(r"::\n\n((?: {4}.*\n?|\n)+)", text):
            if "├" not in block:  # the tree of errors
                yield name, inspect.cleandoc(f"\n{block}")


# Names, besides the operations, that need an example with its output in their docstring.
MAIN = """
    Batch CallOptions CancelToken Client ClientGroup Handlers Http Progress RequestFuture
    ResultStream Retry Rules ServersFile Stdio ToolLoop auth.Bearer auth.OAuth connect fan_out
    testing.Recording testing.ScriptedPeer testing.Server testing.demo_server testing.serve_http
    types.CallToolResult
"""
SHOWN = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1
SESSIONS = [(name, text) for name, text in docstrings() if ">>> " in text]


@pytest.mark.parametrize(("name", "text"), SESSIONS, ids=[name for name, _ in SESSIONS])
def test_examples_in_docstrings_print_what_they_show(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = demo_server()
    with syncmcp.connect(server) as client:
        given = {"syncmcp": syncmcp, "server": server, "client": client}
        test = doctest.DocTestParser().get_doctest(text, given, name, None, None)
        shown = io.StringIO()
        failed, tried = doctest.DocTestRunner(optionflags=SHOWN).run(test, out=shown.write)
    assert tried
    assert not failed, shown.getvalue()


def test_the_main_names_have_an_example_with_its_output() -> None:
    assert {name for name, _ in SESSIONS} >= {
        *("future", "stream", "call_tool", "list_tools", "read_resource", "get_prompt"),
        *("complete", "subscribe_resource", "listen", "ping", "tool"),
        *(f"syncmcp.{name}" for name in MAIN.split()),
    }


# Names that the program of the reader defines, and not the example.
READERS = {
    *("client", "server", "target", "url", "model", "reviewer", "request", "folder", "key", "name"),
    *("durations", "repetitions", "traffic"),
}


def test_examples_in_docstrings_are_python_of_public_names_and_of_names_that_they_define() -> None:
    found = [*examples()]
    assert len(found) + len(SESSIONS) > 50
    for where, code in found:
        nodes = [*ast.walk(ast.parse(code, where))]
        for node in nodes:
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "syncmcp":
                assert hasattr(syncmcp, node.attr), where
        names = [node for node in nodes if isinstance(node, ast.Name)]
        used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        made |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
        assert used - made - READERS - {"syncmcp", *dir(builtins)} == set(), where


def test_help_of_the_package_says_where_to_go_on() -> None:
    named = re.findall(r"`syncmcp\.([\w.]+)`", syncmcp.__doc__ or "")
    assert {"connect", "Client", "errors", "Handlers", "auth", "testing"} <= {*named}
    for name in named:
        value = operator.attrgetter(name)(syncmcp)
        assert inspect.getdoc(value)


@pytest.mark.parametrize("cls", [syncmcp.Client, syncmcp.Handlers])
def test_help_gives_the_signature_and_the_thread_of_each_handler(cls: type) -> None:
    shown = inspect.getdoc(cls) or ""
    for name, signature in (
        ("sampling", "(request, context)"),
        ("elicitation", "(request, context)"),
        ("roots", "(context)"),
    ):
        told = re.search(rf"^    {name}: (.*(?:\n {{8}}.*)*)", shown, re.MULTILINE)
        assert told
        assert f"``{signature}``" in told[1]
    words = " ".join(shown.split())
    assert "handler threads" in words or words.count("on a handler thread") == 3


def told(module: str, name: str) -> bool:
    """Return True if the value `name` of a module is followed by a docstring."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    for line, following in zip(tree.body, tree.body[1:], strict=False):
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return isinstance(following, ast.Expr)
    return False


@functools.cache
def documented() -> set[object]:
    """Return what the reference documents: ids of objects, and (module, name) of plain values."""
    page = "".join(path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("api/*.md")))
    found: set[object] = set()
    directive = re.compile(r"^\.\. auto(\w+):: ([^\s(]+).*\n((?:   :.*\n)*)", re.MULTILINE)
    for kind, target, options in directive.findall(page):
        if kind != "module":
            module, _, name = target.rpartition(".")
            found |= {id(getattr(importlib.import_module(module), name)), (module, name)}
            continue
        home = importlib.import_module(target)
        left_out = re.search(r":exclude-members: (.*)", options)
        some = re.search(r":members: (.+)", options)
        names = set(some[1].split(", ")) if some else set(getattr(home, "__all__", ()))
        for name in names - set(left_out[1].split(", ") if left_out else ()):
            value = getattr(home, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                if value.__module__ == target or ":imported-members:" in options or some:
                    found.add(id(value))
            elif inspect.ismodule(value) or told(target, name):
                found.add((target, name))
    by_hand = re.findall(r"^\.\. py:data:: (\w+)\n   :module: (\S+)", page, re.MULTILINE)
    return found | {(module, name) for name, module in by_hand}


def test_every_public_name_is_in_the_reference() -> None:
    known = documented()
    # Two names with equal numbers or strings may share one object, so ids do not suffice for them.
    missing = [
        f"{module}.{name}"
        for module in MODULES
        for name, value in vars(importlib.import_module(module)).items()
        if name in sys.modules[module].__all__
        and (module, name) not in known
        and (id(value) not in known or isinstance(value, (int, str)))
    ]
    assert missing == []


def test_the_pages_of_the_client_have_each_of_its_members() -> None:
    pages = "".join(page.read_text("utf-8") for page in DOCS.glob("api/client*.md"))
    tables = re.findall(r"summary:: syncmcp\.Client\n   :members:\n\n((?:   .+\n)+)", pages)
    lines = "".join(tables).splitlines()
    named = [name for line in lines for name in line.partition(": ")[2].split()]
    public = [name for name in dir(syncmcp.Client) if not name.startswith("_")]
    assert sorted(named) == public


@pytest.mark.parametrize("module", ["approval", "auth", "errors", "handlers", "testing", "types"])
def test_the_groups_of_a_page_have_each_name_of_its_module(module: str) -> None:
    page = (DOCS / f"api/{module}.md").read_text("utf-8")
    table = page.partition(".. summary::")[2].partition("\n\n")[2].partition("\n\n")[0]
    lines = [line.partition(": ")[2] for line in table.splitlines()]
    public = importlib.import_module(f"syncmcp.{module}").__all__
    assert sorted(" ".join(lines).split()) == sorted(public)


@pytest.mark.parametrize("page", ["errors", "api/errors"])
def test_the_pages_of_errors_name_each_error(page: str) -> None:
    named = set(re.findall(r"\w+", (DOCS / f"{page}.md").read_text("utf-8")))
    public = {each.__name__ for each in public_classes() if issubclass(each, syncmcp.McpError)}
    assert public - named == set()


def test_the_page_of_the_client_groups_each_of_its_options_once() -> None:
    text = (DOCS / "api/client.md").read_text("utf-8").partition(".. options:: syncmcp.Client\n")[2]
    named = re.sub(r"^ +[\w ]+:", "", text.partition("```")[0], flags=re.MULTILINE).split()
    assert sorted(named) == sorted(inspect.signature(syncmcp.Client).parameters)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, which its headings define."""
    text = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_links_lead_to_pages_and_headings() -> None:
    checked = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
            if "://" in target or target.startswith("mailto:"):
                continue
            there = (page.parent / target) if target else page
            assert there.exists(), f"{page.name} links to {target}"
            if anchor:
                assert anchor in anchors(there), f"{page.name}: {target}#{anchor}"
                checked += 1
    assert checked > 50


def test_every_drawing_is_shown_and_every_picture_has_words_for_those_who_do_not_see_it() -> None:
    shown: set[str] = set()
    for page in PAGES:
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text("utf-8")):
            assert len(words) > 15, f"{page.name}: {target}"
            shown.add((page.parent / target).resolve().relative_to(DOCS).as_posix())
    drawn = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.svg")}
    assert drawn <= shown
    for name in drawn:
        text = (DOCS / name).read_text(encoding="utf-8")
        assert "<title>" in text
        # A white background, because the page may be dark.
        assert re.search(r'<rect width="\d+" height="\d+"[^>]* fill="#fff"/>', text)


# Limits for all pages together. Lower them when the pages have become shorter.
WORDS = 45_000
LONG = 1
PRIVATE = 10


def test_all_pages_together_are_short_in_short_sentences_and_in_words_of_the_field() -> None:
    # `python -m tests.contract.page_words` prints the figures; with --long or --private, sentences.
    pages = page_words.pages()
    assert sum(page.words for page in pages) <= WORDS
    assert sum(len(page.long) for page in pages) <= LONG
    assert sum(len(page.private) for page in pages) <= PRIVATE


def test_words_long_sentences_and_private_words_are_counted() -> None:
    long = " ".join(["Word"] * (page_words.LONG + 1))
    text = (
        f"{long}. {long[5:]}. It is told what is `what is`.\n\n<!-- no reader sees this -->\n"
        "* One [link text](far/away.md)\n* two\n\n| told | `x y` |\n"
        "```python\nprint(1)  # what is code\n```\n```{toctree}\nnot/seen\n```\n"
        "<!-- results: begin -->\nmade: told\n<!-- results: end -->\n"
    )
    page = page_words.read("docs/beyond-one-machine.md", text)
    assert page.words == 31 + 30 + 6 + 4 + 2 + 5 + 2
    assert page.long == [f"{long}."]
    assert [word for word, _ in page.private] == ["what is", "told", "told"]


REVISIONS: tuple[Mode, ...] = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
CITY = ResourceTemplateReference(uri="demo://cities/{city}")

Heard = list[Any]
"""The contexts that the server received with requests for completion."""


def eras() -> dict[str, dict[str, str]]:
    """Parse the table of operations in ``docs/eras.md``: cells by operation and revision."""
    text = (DOCS / "eras.md").read_text("utf-8")
    part = text.partition("<!-- operations: begin -->")[2].partition("<!-- operations: end -->")[0]
    head, _, *rows = re.findall(r"^\|(.*)\|$", part, re.MULTILINE)
    revisions = [cell.strip() for cell in head.split("|")][1:]
    said: dict[str, dict[str, str]] = {}
    for row in rows:
        name, *cells = [cell.strip() for cell in row.split("|")]
        said[name] = dict(zip(revisions, cells, strict=True))
    return said


def data(client: Client, heard: Heard) -> str:
    result = client.call_tool("weather", {"city": "Cairo"})
    return "yes" if result.has_data else "no data"


def complete(client: Client, heard: Heard) -> str:
    answer: CompleteResult = client.complete(CITY, "city", "K", {"country": "Japan"})
    assert answer.completion.values == ["Kyoto"]
    return "yes" if heard == [{"country": "Japan"}] else "left out"


def begin(client: Client, heard: Heard) -> str:
    asked = isinstance(client.begin_tool("count_files", {"path": "/"}), syncmcp.InputRequired)
    return "the questions" if asked else "the result"


def batch(client: Client) -> None:
    with client.batch() as calls:
        answers = [calls.call_tool("add", {"a": n, "b": n}) for n in range(2)]
    assert [answer.result(PATIENCE).text for answer in answers] == ["0", "2"]


def only(*operations: Callable[[Client], object]) -> Callable[[Client, Heard], str]:
    """Return a function that runs operations and returns "yes"; they may raise `NotSupported`."""

    def run(client: Client, heard: Heard) -> str:
        for operation in operations:
            operation(client)
        return "yes"

    return run


WORKS: dict[str, Callable[[Client, Heard], str]] = {
    "`call_tool`, `list_tools`": only(
        lambda client: client.list_tools(),
        lambda client: client.call_tool("add", {"a": 1, "b": 2}).raise_for_error(),
    ),
    "`call_tool(...).data`": data,
    "`complete(context=)`": complete,
    "`ping`": only(lambda client: client.ping()),
    "`set_log_level`": only(lambda client: client.set_log_level("info")),
    "`listen`": only(lambda client: client.listen(tools=True, timeout=PATIENCE).close()),
    "`subscribe_resource`": only(lambda client: client.subscribe_resource("demo://readme")),
    "`begin_tool`": begin,
    "`start_task`": only(lambda client: client.start_task("slow").result(PATIENCE)),
    "`list_tasks`": only(lambda client: client.list_tasks()),
    "`batch`": only(batch),
    "`notify`, `report_progress`": only(
        lambda client: client.notify("acme/seen", {}),
        lambda client: client.report_progress("token", 1),
    ),
    "`on_request`": only(lambda client: client.on_request("acme/ask", lambda params, context: {})),
}


def server(heard: Heard) -> Server:
    """Return the demo server, with a completion, and a tool that may run as a task."""
    made = demo_server()
    made.add_tool(lambda: "done", name="slow", task_support="optional")

    @made.completion(template="demo://cities/{city}", argument="city")
    def complete_city(value: str, arguments: Any) -> list[str]:
        heard.append(dict(arguments))
        return ["Kyoto"]

    return made


def test_each_operation_does_in_each_revision_what_the_page_about_eras_says() -> None:
    said = eras()
    assert {tuple(cells) for cells in said.values()} == {REVISIONS}
    for revision in REVISIONS:
        found = dict(all_that_works(revision))
        assert found == {name: cells[revision] for name, cells in said.items()}, revision


def all_that_works(revision: Mode) -> Iterator[tuple[str, str]]:
    heard: Heard = []
    with syncmcp.connect(
        server(heard),
        mode=revision,
        roots=["."],
        elicitation=lambda request, context: ElicitResult.cancel(),
        extensions={"io.modelcontextprotocol/tasks": {}},
    ) as client:
        for name, work in WORKS.items():
            try:
                yield name, work(client, heard)
            except syncmcp.NotSupported:
                yield name, "no"
