"""Skills: files are read on request, and only if they match the announcement."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest

import syncmcp
from syncmcp import InvalidOutput, InvalidParams, LimitExceeded, NotSupported
from syncmcp.skills import EXTENSION, LoadedSkill, SkillRefused, Skills, problem
from syncmcp.skills.entry import MAX_BYTES, MAX_FILES
from syncmcp.testing import Cut, FaultProxy, Server, ToolContext, serve_http
from syncmcp.types import Skill
from tests.support.stage import STATEFUL, STATELESS, Wire, in_threads, rotated_stateless

ON: dict[str, Any] = {EXTENSION: {}}

HEAD = "---\nname: refunds\ndescription: Give money back\n---\n"
SAID = {"name": "refunds", "description": "Give money back"}
ROOT = "skill://shop/refunds"


def shop(**options: Any) -> Server:
    """Return a server with two skills of one name, a dynamic skill and an unlisted skill."""
    server = Server("shop", **options)
    files = {"references/letter to send.md": "Dear Ann,", "references/de/Brief.md": "Liebe Anna,"}
    server.skill(ROOT, SAID, "Be kind.\n", {**files, "scripts/sum.py": b"\x80print()"})
    server.skill("skill://bank/refunds", {**SAID, "license": "MIT"}, "Be quick.\n")
    daily, files = {"name": "daily", "description": "Today"}, {"today/one.md": "1"}
    files |= {"today/more/two.md": "2"}
    server.skill("skill://daily", daily, "Look around.\n", files, dynamic=True)
    server.skill("github://shop/hidden", {"name": "hidden", "description": "Hush"}, listed=False)
    return server


def asked(server: Server, method: str = "resources/read") -> int:
    return server.stats.requests[method]


def entry(files: dict[str, bytes], **changes: Any) -> dict[str, Any]:
    """Return an entry that announces these files for the skill at `ROOT`."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    resources = [
        {"uri": f"{ROOT}/{name}", "digest": f"sha256:{digests[name]}", "size": len(data)}
        for name, data in files.items()
    ]
    return {"uri": f"{ROOT}/SKILL.md", "frontmatter": SAID, "resources": resources, **changes}


def giving(content: Any) -> Callable[[], Any]:
    return lambda: content


def telling(said: dict[str, Any], served: dict[str, Any], settings: Any = None) -> Server:
    """Return a server that announces one skill, and serves files that need not match."""
    server = Server("teller", capabilities={"extensions": {EXTENSION: settings or {}}})
    for name, content in served.items():
        server.resource(f"{ROOT}/{name}", name=name)(giving(content))
    server.on_request("skills/list", lambda params, context: {"skills": [said]})
    return server


@contextmanager
def skills_of(server: Server, **options: Any) -> Iterator[Skills]:
    with syncmcp.connect(server, mode=STATELESS, extensions=ON, **options) as client:
        yield Skills(client)


def load(server: Server, use: Callable[[LoadedSkill], object] = bool, **options: Any) -> Any:
    """Load the first skill of a server; return the result of `use`."""
    with skills_of(server) as skills:
        return use(skills.load(skills.list()[0], **options))


def refusal(server: Server, words: str | None = None, **options: Any) -> SkillRefused:
    with pytest.raises(SkillRefused, match=words) as caught:
        load(server, **options)
    return caught.value


@pytest.mark.requirement("SKL-01")
def test_nothing_is_asked_for_unless_both_sides_have_the_extension() -> None:
    undeclared = "does not declare the capability extensions"
    for server, options, words in (
        (shop(), {"mode": STATELESS}, "is not enabled"),
        (Server("bare"), {"mode": STATELESS, "extensions": ON}, undeclared),
        (shop(), {"mode": STATEFUL, "extensions": ON}, undeclared),
    ):
        given: dict[str, Any] = options
        with syncmcp.connect(server, **given) as client:
            skills = Skills(client)
            for call in (
                *(skills.list, partial(skills.get, f"{ROOT}/SKILL.md")),
                partial(skills.load, Skill.from_wire(entry({}))),
                partial(skills.read_directory, ROOT),
            ):
                with pytest.raises(NotSupported, match=words):
                    call()
        assert server.stats.requests.keys() <= {"initialize", "server/discover"}
    # Without `directoryRead`, the client requests no directory.
    for settings in ({}, {"directoryRead": False}, {"directoryRead": "yes"}):
        server = telling(entry({}, resources="dynamic"), {"SKILL.md": HEAD}, settings)
        with pytest.raises(NotSupported, match="directoryRead"):
            load(server, LoadedSkill.directory, dynamic=True)
        assert asked(server, "resources/directory/read") == 0


@rotated_stateless
@pytest.mark.requirement("SKL-02", "SKL-03")
def test_a_file_is_read_when_it_is_wanted_and_once(wire: Wire) -> None:
    server = shop(page_size=1)
    with wire.connect(server, extensions=ON, name="shop") as client:
        skills = Skills(client)
        listed = skills.list()
        assert [skill.name for skill in listed] == ["refunds", "refunds", "daily"]
        assert asked(server, "skills/list") == 3
        assert skills.get(listed[0].uri) == listed[0]
        assert asked(server) == 0
        loaded = skills.load(listed[0])
        assert asked(server) == 1
        assert (loaded.body, loaded.server, loaded.verified) == ("Be kind.\n", "shop", True)
        assert loaded.text.endswith("---\nBe kind.\n")
        for _ in range(2):
            assert loaded.read("scripts/sum.py") == b"\x80print()"
            assert loaded.read_text("references/letter to send.md") == "Dear Ann,"
            assert loaded.read_text("references/letter%20to%20send.md") == "Dear Ann,"
            assert loaded.read_text("./references/../references/de/Brief.md") == "Liebe Anna,"
        assert asked(server) == 4


def test_a_client_that_opens_at_its_first_call_reads_nothing_either() -> None:
    server = shop()
    with closing(syncmcp.Client(server, mode=STATELESS, extensions=ON, lazy=True)) as client:
        assert len(Skills(client).list()) == 3
        assert asked(server) == 0
    with pytest.raises(syncmcp.ClosedError):
        Skills(client).list()


WHOLE = {"SKILL.md": HEAD.encode(), "a.md": b"first", "b.md": b"second"}


@rotated_stateless
@pytest.mark.requirement("SKL-03")
@pytest.mark.parametrize(
    ("served", "kind"),
    [
        *(("First", "digest"), (b"FIRST", "digest"), ("first!", "size"), ("", "size")),
        ([{"uri": f"{ROOT}/a.md", "text": half} for half in ("fir", "st")], "content"),
        *(([{"uri": f"{ROOT}/a.md", "blob": "Zmlyc3Q"}], "content"), ([], "content")),
    ],
)
def test_a_file_that_is_not_as_announced_is_the_last(wire: Wire, served: Any, kind: str) -> None:
    server = telling(entry(WHOLE), {"SKILL.md": HEAD, "a.md": served})
    with wire.connect(server, extensions=ON) as client:
        skills = Skills(client)
        loaded = skills.load(skills.list()[0])
        for name in ("a.md", "a.md", "b.md", "SKILL.md"):
            with pytest.raises(SkillRefused) as caught:
                loaded.read(name)
            assert (caught.value.problem, caught.value.file) == (kind, f"{ROOT}/a.md")
        assert asked(server) == 2
        # If a server only fails to answer, the skill remains usable.
        loaded = skills.load(skills.list()[0])
        with pytest.raises(syncmcp.ResourceNotFound):
            loaded.read("b.md")
        server.resource(f"{ROOT}/b.md")(lambda: "second")
        assert loaded.read("b.md") == b"second"


@pytest.mark.requirement("SKL-03")
@pytest.mark.parametrize(
    ("served", "kind"),
    [(HEAD + "More.", "size"), (HEAD.upper(), "digest"), (HEAD.encode()[:-1] + b"\xff", "digest")],
)
def test_a_skill_whose_first_file_is_another_is_not_loaded(served: Any, kind: str) -> None:
    server = telling(entry(WHOLE), {"SKILL.md": served, "a.md": "first"})
    error = refusal(server)
    assert (error.problem, error.skill, error.server) == (kind, f"{ROOT}/SKILL.md", "teller")
    assert asked(server) == 1
    same = pickle.loads(pickle.dumps(error))
    assert (str(same), same.problem, same.file) == (str(error), kind, f"{ROOT}/SKILL.md")


@pytest.mark.requirement("SKL-03")
def test_threads_that_read_while_the_skill_breaks_get_checked_files_or_the_refusal() -> None:
    server = telling(entry(WHOLE), {"SKILL.md": HEAD, "a.md": "First", "b.md": "second"})

    def use(loaded: LoadedSkill) -> list[Any]:
        return in_threads(*(partial(loaded.read, name) for name in ("a.md", "b.md") * 4))

    outcomes = load(server, use)
    assert all(isinstance(outcome, SkillRefused) for outcome in outcomes[::2])
    assert all(isinstance(outcome, SkillRefused) or outcome == b"second" for outcome in outcomes)
    # Separate errors, since a shared error would collect the tracebacks of all threads.
    assert len({id(outcome) for outcome in outcomes[::2]}) == 4


def with_head(frontmatter: str, stated: dict[str, Any], **changes: Any) -> Server:
    """Return a server whose entry states this frontmatter, with correct digest and size."""
    data = f"---\n{frontmatter}---\nBody.\n".encode()
    said = entry({"SKILL.md": data}, frontmatter=stated, **changes)
    return telling(said, {"SKILL.md": data.decode()})


BASE = "name: refunds\ndescription: Give money back\n"


@pytest.mark.requirement("SKL-04")
@pytest.mark.parametrize(
    ("more", "stated"),
    [
        *(("", {}), ("license: 'MIT' # a comment\n", {"license": "MIT"})),
        ("day: 2026-11-22\n", {"day": "2026-11-22"}),
        ("at: 2026-11-22 10:00:00\n", {"at": "2026-11-22 10:00:00"}),
        *(("version: 1.10\n", {"version": 1.1}), ("version: '1.10'\n", {"version": "1.10"})),
        ("n: [1, -2, +3, 0x1F, 0o17, 1e3, .5, 1.0]\n", {"n": [1, -2, 3, 31, 15, 1000, 0.5, 1]}),
        ("n: [null, ~, true, FALSE]\nm:\n", {"n": [None, None, True, False], "m": None}),
        ("n: [yes, Off, 'yes']\n", {"n": [True, False, "yes"]}),
        *(("n: [yes, Off]\n", {"n": ["yes", "Off"]}), ("n: !!str 1\n", {"n": "1"})),
        ("n: [.inf, .NaN, 1e999, 1_000]\n", {"n": [".inf", ".NaN", "1e999", "1_000"]}),
        ("n: 12:30\n", {"n": "12:30"}),
        ("metadata: {a: {b: [x, {c: y}]}}\n", {"metadata": {"a": {"b": ["x", {"c": "y"}]}}}),
        ("text: |\n  one\n  two\n", {"text": "one\ntwo\n"}),
        ("text: >-\n  one\n  two\n", {"text": "one two"}),
        *(
            ("1: x\ntrue: y\n", {"1": "x", "true": "y"}),
            ('smile: "\\U0001F600"\n', {"smile": "😀"}),
        ),
        ("<<: {a: b}\n", {"<<": {"a": "b"}}),
        ("big: 123456789012345678901234567890\n", {"big": 123456789012345678901234567890}),
    ],
)
def test_frontmatter_that_equals_the_entry_is_loaded(more: str, stated: dict[str, Any]) -> None:
    server = with_head(BASE + more, {**SAID, **stated})
    assert load(server, lambda loaded: loaded.body) == "Body.\n"


@pytest.mark.requirement("SKL-04")
@pytest.mark.parametrize(
    ("more", "stated", "words"),
    [
        ("", {"description": "Take money"}, "'description' differs"),
        ("", {"license": "MIT"}, "only one of them has 'license'"),
        ("allowed-tools: Bash\n", {}, "only one of them has 'allowed-tools'"),
        ("n: [1, 2]\n", {"n": [1, 3]}, r"'n'\[1\] differs"),
        ("n: {a: {b: 1}}\n", {"n": {"a": {"b": 2}}}, "'n'.'a'.'b' differs"),
        *(
            (f"n: {written}\n", {"n": told}, "'n' differs")
            for written, told in (
                *(("1", True), ("true", 1), ("true", "true"), ("'true'", True), ("1", "1")),
                *(("'1'", 1), ("", ""), ("[1, 2]", [1]), ("{a: 1}", [1]), ("[1]", {"a": 1})),
            )
        ),
    ],
)
def test_frontmatter_that_differs_is_refused(more: str, stated: dict[str, Any], words: str) -> None:
    server = with_head(BASE + more, {**SAID, **stated})
    error = refusal(server, words)
    assert error.problem == "frontmatter"
    assert asked(server) == 1


LAUGHS = "".join(
    f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" if n else "l0: &l0 [ha]\n" for n in range(9)
)


# A frontmatter, and a part of the refusal.
HOSTILE = {
    "many laughs": (LAUGHS, "has a YAML alias"),
    "a list in itself": ("a: &a [*a]\n", "has a YAML alias"),
    "deep": ("a: " + "[" * 40 + "]" * 40 + "\n", "more than 32 levels deep"),
    "deep blocks": ("- " * 30_000 + "a\n", "more than 32 levels deep"),
    "deep keys": ("? " * 30_000 + "a\n", "more than 32 levels deep"),
    "one key": ("a: b\n" * 2, "has a duplicate key"),
    "long": ("a: 1\n" * 14_000, "ends within 65536 characters"),
    "a list as a key": ("? [a]\n: b\n", "has a key that is not a string"),
    "a bell": ("a: \x07\n", "is not YAML"),
    "two documents": ("a: b\n...\nc: d\n", "is not YAML"),
    "an early end": ("a: b\n--- \nc: d\n", "only one of them has"),
    "a directive with a long number": (f"%YAML 1.{'1' * 5_000}\n", "is not YAML"),
    "a character beyond any number": ('a: "\\UFFFFFFFF"\n', "is not YAML"),
    "half a character in a tag": ("a: !<%ff> b\n", "is not YAML"),
    **{
        f"the tag {tag}": (f"name: refunds\ndescription: {tag}\n", "has the YAML tag")
        for tag in ("!!python/object/apply:os.system [echo]", "!!timestamp 2026-11-22", "!mine b")
    },
    "nothing": ("", "it is not a mapping"),
    "a list": ("[a, list]\n", "the whole differs"),
    "a long number": ("n: " + "9" * 60_000 + "\n", "only one of them has"),
}


@pytest.mark.requirement("SKL-04")
@pytest.mark.parametrize(("head", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_frontmatter_ends_in_a_refusal(head: str, words: str) -> None:
    assert refusal(with_head(head, SAID), words).problem == "frontmatter"


@pytest.mark.requirement("SKL-04")
def test_a_file_without_frontmatter_is_no_skill_and_marks_of_editors_do_no_harm() -> None:
    for whole in ("", "Body.", "--- \nname: refunds\n", "\n" + HEAD, "----\n" + HEAD, " " + HEAD):
        server = telling(entry({"SKILL.md": whole.encode()}), {"SKILL.md": whole})
        assert refusal(server).problem == "frontmatter"
    for whole in (HEAD.replace("\n", "\r\n"), "\ufeff" + HEAD, HEAD[:-1]):
        server = telling(entry({"SKILL.md": whole.encode()}), {"SKILL.md": whole})
        assert load(server, lambda loaded: loaded.text) == whole


@pytest.mark.requirement("SKL-05")
@pytest.mark.parametrize(
    "name",
    [
        *("c.md", "A.md", ".", "..", "a.md/", "/a.md", "a.md?x", "a.md#x", "sub\\a.md"),
        *("../shop/refunds/a.md", "../../bank/refunds/SKILL.md", "a.md/../../refunds/a.md"),
        *("%2e%2e/refunds/a.md", "..%2Frefunds%2Fa.md", "//shop/refunds/a.md", f"{ROOT}/a.md"),
        *("skill://bank/refunds/SKILL.md", "file:///etc/passwd"),
    ],
)
def test_what_is_no_file_of_the_entry_has_no_name(name: str) -> None:
    server = telling(entry(WHOLE), {"SKILL.md": HEAD, "a.md": "first", "c.md": "third"})
    with skills_of(server) as skills:
        loaded = skills.load(skills.list()[0])
        with pytest.raises(SkillRefused) as caught:
            loaded.read(name)
        assert caught.value.problem == "unlisted"
        assert loaded.read("a.md") == b"first"  # the skill itself is still usable
    assert asked(server) == 2


OUTSIDE = [
    *("skill://bank/refunds/a.md", "skill://shop/refunds", "skill://shop/refunds/"),
    *("skill://shop/refunds-2/a.md", "file:///etc/passwd", "a.md", ""),
    *(f"{ROOT}/../secret.md", f"{ROOT}/x/%2e%2e/secret.md", f"{ROOT}/x%2Fsecret.md"),
    *(f"{ROOT}/x%5Csecret.md", f"{ROOT}//a.md", f"{ROOT}/./a.md", f"{ROOT}/a.md?version=2"),
    *(f"{ROOT}/a.md#part", f"{ROOT}/a%0A.md", f"{ROOT}/SKILL.md", f"{ROOT}/SKILL%2Emd"),
]


@pytest.mark.requirement("SKL-05", "SKL-06")
@pytest.mark.parametrize(
    "wrong",
    [
        *({"uri": uri} for uri in OUTSIDE),
        *({"size": -1}, {"digest": "md5:00"}, {"digest": "sha256:" + "A" * 64}),
    ],
)
def test_an_entry_with_a_wrong_file_is_refused_before_a_read(wrong: dict[str, Any]) -> None:
    said = entry(WHOLE)
    said["resources"][1].update(wrong)
    server = telling(said, {"SKILL.md": HEAD})
    error = refusal(server)
    assert (error.problem, error.file) == ("entry", wrong.get("uri", f"{ROOT}/a.md"))
    assert asked(server) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(
            ({"uri": uri}, "does not end with")
            for uri in (
                *("skill://shop/refunds/README.md", "SKILL.md", "skill:///SKILL.md"),
                "skill://shop?x/refunds/SKILL.md",
            )
        ),
        ({"uri": "skill://shop/returns/SKILL.md"}, "in a directory of another name"),
        ({"frontmatter": {"name": "refunds"}}, "no name or no description"),
        ({"frontmatter": {"name": "refunds", "description": 1}}, "no name or no description"),
        ({"resources": []}, "does not list its SKILL.md"),
        *(
            ({"resources": resources}, "does not list its files")
            for resources in ("static", None, [{"uri": f"{ROOT}/SKILL.md"}], {"uri": "a.md"})
        ),
    ],
)
@pytest.mark.requirement("SKL-06")
def test_an_invalid_entry_is_listed_with_its_problem(changes: dict[str, Any], words: str) -> None:
    server = telling(entry(WHOLE, **changes), {"SKILL.md": HEAD})
    with skills_of(server) as skills:
        (skill,) = skills.list()
        assert words in (problem(skill) or "")
        with pytest.raises(SkillRefused, match=words) as caught:
            skills.load(skill)
        assert caught.value.problem == "entry"
    assert asked(server) == 0


def many(count: int, size: int) -> dict[str, bytes]:
    """Return this number of files with this total size."""
    empty = {f"{n}.md": b"" for n in range(count - 2)}
    return {"SKILL.md": HEAD.encode(), **empty, "last.bin": b"x" * (size - len(HEAD))}


@pytest.mark.requirement("SKL-06")
def test_a_skill_of_512_files_and_16_mebibytes_can_be_loaded_and_none_larger() -> None:
    files = many(512, 16 * 1024 * 1024)
    server = telling(entry(files), files)
    length, names = load(server, lambda loaded: (len(loaded.read("last.bin")), loaded.names))
    assert length == 16 * 1024 * 1024 - len(HEAD)
    assert len(names) == 512 == MAX_FILES
    assert asked(server) == 2
    for count, size in ((513, 1000), (3, MAX_BYTES + 1)):
        server = telling(entry(many(count, size)), {})
        assert refusal(server, "more than").problem == "limit"
        assert asked(server) == 0


@pytest.mark.requirement("SKL-06")
def test_a_skill_without_digests_is_loaded_only_if_that_is_asked_for() -> None:
    with skills_of(shop()) as skills:
        daily = skills.list()[2]
        assert problem(daily) is None
        with pytest.raises(SkillRefused, match="dynamic=") as caught:
            skills.load(daily)
        assert caught.value.problem == "dynamic"
        loaded = skills.load(daily, dynamic=True)
        assert (loaded.verified, loaded.names) == (False, ("SKILL.md",))
        assert loaded.directory() == ["SKILL.md", "today/"]
        assert loaded.directory("today/") == ["today/more/", "today/one.md"]
        assert loaded.read_text("today/more/two.md") == "2"
        for name in ("../shop/refunds/SKILL.md", "/x", "today//one.md"):
            with pytest.raises(SkillRefused):
                loaded.read(name)


@pytest.mark.requirement("SKL-04", "SKL-06")
def test_what_is_generated_is_held_against_the_entry_and_the_limit_all_the_same() -> None:
    heads = iter([HEAD, HEAD.replace("Give", "Take")])
    server = telling(entry({}, resources="dynamic"), {"big.bin": b"x" * (MAX_BYTES // 2)})
    server.resource(f"{ROOT}/SKILL.md")(lambda: next(heads))

    def use(loaded: LoadedSkill) -> None:
        assert loaded.read_text("SKILL.md") == HEAD  # the content that was checked
        assert len(loaded.read("big.bin")) == MAX_BYTES // 2
        with pytest.raises(SkillRefused) as caught:
            loaded.read("big.bin")
        assert caught.value.problem == "limit"

    load(server, use, dynamic=True)
    assert refusal(server, dynamic=True).problem == "frontmatter"


@pytest.mark.parametrize(
    "uri", ["skill://bank/refunds/x.md", f"{ROOT}/../x.md", f"{ROOT}/deep/x.md"]
)
@pytest.mark.requirement("SKL-05")
def test_a_directory_with_something_from_elsewhere_is_refused(uri: str) -> None:
    said, found = entry({}, resources="dynamic"), {"resources": [{"uri": uri, "name": "x"}]}
    server = telling(said, {"SKILL.md": HEAD}, {"directoryRead": True})
    server.on_request("resources/directory/read", lambda params, context: found)
    error = refusal(server, use=LoadedSkill.directory, dynamic=True)
    assert (error.problem, error.file) == ("content", uri)


@pytest.mark.requirement("SKL-05")
def test_the_entry_tells_what_is_in_a_directory_and_the_server_is_not_asked() -> None:
    server = shop()

    def use(loaded: LoadedSkill) -> None:
        assert loaded.directory() == ["SKILL.md", "references/", "scripts/"]
        assert loaded.directory("references") == ["references/de/", "references/letter to send.md"]
        for name in ("nothing", "..", "SKILL.md", "/"):
            with pytest.raises(SkillRefused, match="has no directory") as caught:
                loaded.directory(name)
            assert caught.value.problem == "unlisted"

    load(server, use)
    assert asked(server, "resources/directory/read") == 0


@rotated_stateless
def test_a_directory_is_listed_over_all_pages(wire: Wire) -> None:
    with wire.connect(shop(page_size=1), extensions=ON) as client:
        found = Skills(client).read_directory(ROOT)
        assert [resource.name for resource in found] == ["SKILL.md", "references", "scripts"]
        with pytest.raises(LimitExceeded, match="max_pages"):
            Skills(client).read_directory(ROOT, max_pages=2)
        with pytest.raises(InvalidParams):
            Skills(client).read_directory(f"{ROOT}/SKILL.md")


@pytest.mark.requirement("SKL-07")
def test_skills_of_one_name_are_all_there_and_known_by_server_and_uri() -> None:
    servers = {"ours": shop(), "theirs": shop()}
    known: dict[tuple[str | None, str], str] = {}
    for name, server in servers.items():
        with skills_of(server, name=name) as skills:
            for skill in skills.list():
                if skill.name == "refunds":
                    known[skill.key] = skills.load(skill).body
                    assert pickle.loads(pickle.dumps(skill)).key == skill.key
                    assert skill.model_copy().key == skill.key
                    assert "_server" not in skill.to_wire()
    bodies = {f"{ROOT}/SKILL.md": "Be kind.\n", "skill://bank/refunds/SKILL.md": "Be quick.\n"}
    assert known == {(name, uri): body for name in servers for uri, body in bodies.items()}
    with skills_of(shop(), name="ours") as skills:
        skill = skills.list()[0]
        loaded = skills.load(skill)
        kept = Skill.from_wire(skill.to_wire())  # as if loaded from a file
    theirs = shop()
    with skills_of(theirs, name="theirs") as skills:
        with pytest.raises(syncmcp.UsageError, match="belongs to ours"):
            skills.load(skill)
        wrong: Any = f"{ROOT}/SKILL.md"
        with pytest.raises(syncmcp.UsageError, match=r"which get\(uri\) returns, not str"):
            skills.load(wrong)
        with pytest.raises(syncmcp.UsageError, match=r"group.clients\[name\], not str"):
            Skills(wrong)
        assert asked(theirs) == 0
        loaded = skills.load(kept)
        assert loaded.body == "Be kind.\n"
        # Changes of the entry do not affect the loaded skill.
        assert isinstance(kept.resources, list)
        kept.resources[1].uri = "skill://bank/refunds/SKILL.md"
        kept.frontmatter.clear()
        assert loaded.read_text("references/letter to send.md") == "Dear Ann,"
        assert loaded.skill.name == "refunds"


@rotated_stateless
@pytest.mark.requirement("SKL-08")
def test_a_skill_that_is_not_listed_is_found_by_its_uri_whatever_the_scheme(wire: Wire) -> None:
    with wire.connect(shop(), extensions=ON, name="shop") as client:
        skills = Skills(client)
        uri = "github://shop/hidden/SKILL.md"
        assert uri not in [skill.uri for skill in skills.list()]
        hidden = skills.get(uri)
        assert (hidden.key, hidden.description) == (("shop", uri), "Hush")
        assert skills.load(hidden).names == ("SKILL.md",)
        with pytest.raises(InvalidParams, match="No skill is served"):
            skills.get("skill://shop/refunds/references/letter")


@pytest.mark.requirement("SKL-08")
def test_an_answer_about_another_skill_or_about_none_is_refused() -> None:
    server = telling(entry(WHOLE), {})
    server.on_request("skills/get", lambda params, context: {"skill": entry(WHOLE)})
    with skills_of(server) as skills:
        with pytest.raises(InvalidOutput, match="another skill"):
            skills.get("skill://shop/returns/SKILL.md")
        assert skills.get(f"{ROOT}/SKILL.md").server == "teller"
    entries: list[Any] = [{"uri": f"{ROOT}/SKILL.md"}, {"frontmatter": SAID}, [], None]
    for wrong in entries:
        with skills_of(telling(wrong, {})) as skills, pytest.raises(InvalidOutput):
            skills.list()


def test_what_only_asks_is_asked_again_after_a_failure() -> None:
    server = shop()
    with serve_http(server) as http, FaultProxy(http.url) as proxy:
        swift = syncmcp.Retry(pause=0)
        with syncmcp.connect(proxy.url, mode=STATELESS, extensions=ON, retry=swift) as client:
            skills = Skills(client)
            for method in ("skills/list", "skills/get", "resources/directory/read"):
                proxy.queue(Cut("sent"), method=method)
            assert skills.get(skills.list()[0].uri).name == "refunds"
            assert skills.read_directory(ROOT)
    assert asked(server, "skills/list") == 2


def test_the_options_of_calls_are_taken() -> None:
    server = shop()

    def listed(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        assert params["_meta"]["example.com/a"] == 1
        return {"skills": []}

    server.on_request("skills/list", listed)
    with skills_of(server) as skills:
        assert skills.list(timeout=5, meta={"example.com/a": 1}) == []
        with pytest.raises(TypeError, match="unknown option 'colour'"):
            skills.list(colour="red")  # type: ignore[call-arg]
        with pytest.raises(syncmcp.UsageError):
            skills.get("")
        token = syncmcp.CancelToken()
        token.cancel()
        for call in (skills.list, partial(skills.get, f"{ROOT}/SKILL.md")):
            with pytest.raises(syncmcp.RequestCancelled):
                call(cancel=token)


def test_without_yaml_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    server = shop()
    with pytest.raises(syncmcp.UsageError, match=r"install syncmcp-client\[skills\]"):
        load(server)
    assert asked(server) == 0
