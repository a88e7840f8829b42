"""Which paths can be roots, how a list of roots changes, and which paths are inside."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, cast

import pytest

from syncmcp import UsageError
from syncmcp.handlers.roots import RootLike, Roots, contains, path_of, to_root, uri_of
from syncmcp.types import Root
from tests.support.stage import PATIENCE, elsewhere, in_threads, interrupted

if TYPE_CHECKING:
    from syncmcp.handlers import HandlerContext

CONTEXT = cast("HandlerContext", object())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with two subdirectories and a file."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "file.txt").write_text("x")
    return tmp_path


NAMES = [
    ("with space", "with%20space"),
    ("a#b", "a%23b"),
    ("100%", "100%25"),
    ("%2e%2e", "%252e%252e"),
    ("\u65e5\u672c", "%E6%97%A5%E6%9C%AC"),
    ("new\nline", "new%0Aline"),
    ("back\\slash", "back%5Cslash"),
    ("file:x", "file%3Ax"),
    ("not\udcffutf8", "not%FFutf8"),
]


def test_a_path_becomes_a_uri_and_back_always(tmp_path: Path) -> None:
    for name, written in NAMES:
        path = tmp_path / name
        path.mkdir()
        root = to_root(path)
        assert root.uri == f"{tmp_path.as_uri()}/{written}"
        assert path_of(root.uri) == PurePath(path)
        assert to_root(str(path)).uri == to_root(root.uri).uri == to_root(root).uri == root.uri


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("{}/file.txt", "file.txt"),
        ("../two", "two"),  # from the working directory
        ("../two/.", "two"),
        (".", "one"),
        ("{}/link/..", "one"),  # the parent of the link's target
        ("{}/link", "link"),
        ("~/one", "one"),
        ("FILE://LOCALHOST{}/one", "one"),
        ("file:{}/one", "one"),
        ("file://{}/%6fne", "one"),
        ("file://{}/one/", "one"),
        ("file://{}//one", "one"),
    ],
)
def test_what_names_a_root_is_brought_into_one_form(
    place: Path, given: str, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "one" / "inner").mkdir()
    (place / "link").symlink_to(place / "one" / "inner")
    monkeypatch.chdir(place / "one")
    monkeypatch.setenv("HOME", str(place))
    text, expected = given.format(place), (place / root).as_uri()
    assert to_root(text).uri == expected
    if given[0] in ".{":
        assert to_root(Path(text)).uri == expected
    assert (to_root("/").uri, to_root("~").uri) == ("file:///", place.as_uri())


def test_a_root_keeps_its_name_and_metadata(place: Path) -> None:
    words = {"name": "Work", "_meta": {"a": 1}, "x": 2}
    given = Root.from_wire({"uri": f"file:{place}", **words})
    assert to_root(given).to_wire() == {"uri": place.as_uri(), **words}
    assert to_root(given, name="Other").name == "Other"
    assert given.uri == f"file:{place}"
    assert to_root(place).to_wire() == {"uri": place.as_uri()}


@pytest.mark.requirement("M-03")
@pytest.mark.parametrize(
    "uri",
    [
        "https://example.com/", "http://localhost/tmp", "ftp://x/", "git+ssh://x/", "file:",
        "file:tmp", "file://", "file://host", "file://host/tmp", "file://host@localhost/tmp",
        "file://localhost:80/tmp", "file://127.0.0.1/tmp", "file://./tmp", "file://../tmp",
        "file:////host/share", "file://///host/share", "file://%6cocalhost/tmp", "file:///tmp/..",
        "file:///tmp/../etc", "file:///../etc", "file:///tmp/./x", "file:///tmp/%2e%2e/etc",
        "file:///tmp/%2E./etc", "file:///tmp/.%2e", "file:///tmp/%2e", "file:///tmp/..%2fetc",
        "file:///tmp%2Fx", "file:///tmp/%00", "file:///tmp/\0", "file:///tmp/%", "file:///tmp/%2",
        "file:///tmp/%zz", "file:///tmp?x=1", "file:///tmp#x",
    ],
    ids=ascii,
)  # fmt: skip
def test_a_uri_that_is_no_root_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match=r"root|hexadecimal"):
        to_root(uri)
    with pytest.raises(UsageError, match=r"root|hexadecimal"):
        to_root(Root(uri=uri))
    with pytest.raises(UsageError):  # whatever files exist
        path_of(uri)


def test_what_is_no_path_or_is_not_there_is_refused(place: Path) -> None:
    value: Any
    for value in ("", "a\0b", None, 5, b"/tmp", ["/tmp"], {"uri": "file:///"}, ...):
        with pytest.raises(UsageError, match="root"):
            to_root(value)
    for uri in ("/tmp", "tmp", "", "c:/x"):  # the URI of a root is never read as a path
        with pytest.raises(UsageError, match="file: URI"):
            to_root(Root(uri=uri))
    with pytest.raises(UsageError, match="does not exist"):
        Roots([place / "one", place / "nowhere"])
    with pytest.raises(UsageError, match="no such root: file://"):
        Roots([place / "one"]).remove(place / "two")
    for path, problem in (
        ("~nobody-of-that-name/x", "home directory"),
        (place / "nowhere", "nowhere' does not exist"),
        (place / "file.txt" / "x", "does not exist"),
    ):
        with pytest.raises(UsageError, match=problem):
            to_root(path)


def test_what_cannot_be_read_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def may(path: object, mode: int) -> bool:
        return path != place / "one"

    (place / "loop").symlink_to(place / "loop")
    with pytest.raises(UsageError, match="unreadable"):
        to_root(place / "loop")
    # The tests may run as a user who may read everything.
    monkeypatch.setattr(os, "access", may)
    with pytest.raises(UsageError, match="one' is unreadable"):
        to_root(place / "one")
    assert to_root(place / "two").uri == (place / "two").as_uri()


def test_windows_paths_have_uris_and_back_if_they_may_be_roots() -> None:
    for path, uri in {
        "C:\\": "file:///C:/",
        "c:\\a b\\\u00fc#.txt": "file:///C:/a%20b/%C3%BC%23.txt",
        "D:/x/100%": "file:///D:/x/100%25",
    }.items():
        assert uri_of(PureWindowsPath(path)) == uri
        assert path_of(uri, PureWindowsPath) == PureWindowsPath(path)
    share = "\\\\host\\share\\x"
    for path in (share, "\\\\?\\C:\\x", "\\\\.\\pipe\\x", "\\x", "x", "C:x", "C:"):
        with pytest.raises(UsageError, match="root"):
            uri_of(PureWindowsPath(path))
    for uri in (
        *("file:///x", "file:///C", "file:///C:x", "file:///C|/x", "file:///CC:/x", "file://C:/x"),
        *("file:///C:/a%5c..%5cb", "file:///C:/a\\..\\b", "file:///C:/%2e%2e/x", "file:///C:/.."),
        *("file://host/share/x", "file:////host/share/x"),
    ):
        with pytest.raises(UsageError, match="root"):
            path_of(uri, PureWindowsPath)
    for path in ("x", "", "//host/x"):
        with pytest.raises(UsageError, match="absolute"):
            uri_of(PurePosixPath(path))


def uris(roots: Roots) -> list[str]:
    return [root.uri for root in roots.current(CONTEXT)]


@pytest.mark.requirement("M-03")
def test_roots_are_kept_in_their_order_with_path_and_status(place: Path) -> None:
    roots = Roots([place / "two", Root(uri=(place / "one").as_uri(), name="One")])
    added = roots.add(place / "file.txt", name="File")
    assert added.name == "File"
    assert [(status.path, status.root.name, status.status) for status in roots.list()] == [
        (place / "two", None, "ok"),
        (place / "one", "One", "ok"),
        (place / "file.txt", "File", "ok"),
    ]
    assert uris(roots) == [(place / name).as_uri() for name in ("two", "one", "file.txt")]
    roots.add(f"{place}/two/../one", name="First")  # the same path
    assert [status.root.name for status in roots.list()] == [None, "First", "File"]
    assert len(Roots([place / "one", place / "two", f"file:{place}/one/"]).list()) == 2


@pytest.mark.requirement("M-03")
def test_a_root_is_removed_by_whatever_names_its_path(place: Path) -> None:
    ways: list[Callable[[Root], Any]] = [
        lambda root: root,
        lambda root: root.uri,
        lambda root: place / "one",
        lambda root: f"{place}/one",
    ]
    for way in ways:
        roots = Roots([place / "one", place / "two"])
        root = roots.list()[0].root
        assert roots.remove(way(root)) == root
        assert uris(roots) == [(place / "two").as_uri()]


@pytest.mark.requirement("ROOT-04")
def test_a_root_that_went_away_is_missing(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    roots = Roots([place / "one", place / "two"])
    (place / "one").rename(place / "away")
    assert [status.status for status in roots.list()] == ["missing", "ok"]
    with caplog.at_level(logging.WARNING, "syncmcp.handlers.roots"):
        assert uris(roots) == [(place / "two").as_uri()]
    assert "missing" in caplog.text
    (place / "away").rename(place / "one")
    assert uris(roots) == [(place / name).as_uri() for name in ("one", "two")]
    (place / "one").rmdir()
    assert roots.remove(place / "one").uri == (place / "one").as_uri()
    assert [status.status for status in roots.list()] == ["ok"]


@pytest.mark.parametrize(
    "items", ["/tmp", b"/tmp", Path("/tmp"), Root(uri="file:///tmp"), None, 5], ids=repr
)
def test_a_single_root_is_not_taken_for_a_list(items: Any) -> None:
    with pytest.raises(UsageError, match="list"):
        Roots(items)
    with pytest.raises(UsageError, match="list"):
        Roots(source=lambda _: items).current(CONTEXT)
    with pytest.raises(UsageError, match="callable"):
        Roots(source=cast("Any", ["/tmp"]))


@pytest.mark.requirement("M-03")
def test_a_list_is_replaced_as_a_whole_and_told_once(place: Path) -> None:
    roots = Roots([place / "one", place / "two"], source=lambda _: [place / "file.txt"])
    seen: list[list[str]] = []
    roots.on_change(lambda: seen.append([status.path.name for status in roots.list()]))
    named = Root(uri=(place / "one").as_uri(), name="One")
    new: list[RootLike] = [f"{place}/file.txt", place / "one", named]
    roots.replace(iter(new))
    assert seen == [["file.txt", "one"]]
    assert [status.root.name for status in roots.list()] == [None, "One"]
    roots.replace([])
    assert seen[1:] == [[]]
    assert uris(roots) == [(place / "file.txt").as_uri()]  # from the source, which remains


@pytest.mark.requirement("ROOT-02", "ROOT-04")
def test_a_list_that_is_as_before_or_has_something_wrong_is_told_to_nobody(place: Path) -> None:
    one, two = place / "one", place / "two"
    roots, told = Roots([one, Root(uri=two.as_uri(), name="Two")]), list[str]()
    before = roots.list()
    roots.on_change(lambda: told.append(threading.current_thread().name))
    roots.replace([f"{place}/one/", *(status.root for status in before[1:])])
    roots.replace(status.root for status in before)
    roots.add(one)
    wrong: list[Callable[[], object]] = [
        partial(roots.remove, place / "file.txt"),
        partial(roots.add, place / "nowhere"),
        partial(roots.replace, two),  # type: ignore[arg-type]
    ]
    bad: list[Any] = [place / "nowhere", "https://example.org/", "", 7, None]
    wrong += [partial(roots.replace, [two, each]) for each in bad]
    for change in wrong:
        with pytest.raises(UsageError):
            change()
    with pytest.raises(UsageError, match="list"):
        wrong[2]()
    assert (roots.list(), told) == (before, [])
    # Without the name, in another order, fewer.
    for number, different in enumerate(([one, two], [two, one], [two]), 1):
        roots.replace(different)
        assert told == [threading.current_thread().name] * number


def test_nobody_sees_half_of_a_new_list(place: Path) -> None:
    lists = [["one", "two"], ["file.txt", "two"]]
    seen: list[list[str]] = []
    number = 1
    while True:
        roots = Roots(place / name for name in lists[0])
        there_are = interrupted(
            lambda roots=roots: roots.replace([place / name for name in lists[1]]),  # type: ignore[misc]
            number,
            lambda roots=roots: seen.append([s.path.name for s in roots.list()]),  # type: ignore[misc]
        )
        assert [status.path.name for status in roots.list()] == lists[1]
        if not there_are:
            break
        number += 2
    assert number > 20
    assert [each for each in seen if each not in lists] == []
    assert {tuple(each) for each in seen} == {tuple(each) for each in lists}


def test_the_source_is_asked_each_time_with_the_context(place: Path) -> None:
    asked: list[object] = []

    def source(context: HandlerContext) -> list[Any]:
        asked.append(context)
        # A source may change and read the roots, and return an existing root.
        elsewhere(lambda: roots.add(place / f"made-{len(asked)}")).result(PATIENCE)
        listed = [status.path.name for status in roots.list()]
        assert listed == ["one", *(f"made-{n}" for n in range(1, len(asked) + 1))]
        return [Root(uri=(place / "one").as_uri(), name=f"x{len(asked)}")]

    for number in (1, 2):
        (place / f"made-{number}").mkdir()
    roots = Roots([place / "one"], source=source)
    for number in (1, 2):
        # A root that the source adds is included the next time.
        names = [root.name for root in roots.current(CONTEXT)]
        assert names == [f"x{number}", None][:number]
    assert asked == [CONTEXT, CONTEXT]


def test_what_a_source_returns_is_checked(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    given: list[Any] = []
    roots = Roots(source=lambda _: given[-1:])
    for item in ("file://host/x", "https://x/", 5):
        given.append(item)
        with pytest.raises(UsageError, match="root"):
            roots.current(CONTEXT)
    # A missing root is hidden.
    assert uris(Roots(source=lambda _: [place / "nowhere", place / "one"])) == [
        (place / "one").as_uri()
    ]
    assert "is missing: " in caplog.text

    def source(context: HandlerContext) -> list[str]:
        raise LookupError("no project is open")

    with pytest.raises(LookupError, match="no project"):
        Roots(source=source).current(CONTEXT)


def test_callbacks_may_fail_or_use_the_roots(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    roots, told = Roots(), list[int]()

    def fail() -> None:
        raise LookupError("of the callback")

    def callback() -> None:  # called without a lock
        told.append(elsewhere(lambda: len(roots.list())).result(PATIENCE))

    roots.on_change(fail)
    leave = roots.on_change(callback)
    roots.on_change(callback)
    roots.add(place / "one")
    assert told == [1, 1]
    assert "of the callback" in caplog.text
    leave()
    leave()
    roots.add(place / "two")
    assert told == [1, 1, 2]


def test_many_threads_may_change_the_roots_at_once(place: Path) -> None:
    roots = Roots()
    told: list[int] = []
    roots.on_change(lambda: told.append(1))
    names = [f"of-{number}" for number in range(8)]

    def work(name: str) -> None:
        mine = place / name
        mine.mkdir()
        for _ in range(25):
            roots.add(mine)
            assert uris(roots).count(mine.as_uri()) == 1
            roots.remove(mine)
        roots.add(mine)

    assert in_threads(*(partial(work, name) for name in names)) == [None] * 8
    assert {status.path.name for status in roots.list()} == set(names)
    assert len(told) == 8 * 51


@pytest.mark.requirement("M-03")
def test_what_is_inside_a_root_and_what_is_not(place: Path) -> None:
    one = place / "one"
    roots = [to_root(one), to_root(place / "file.txt")]
    inside: list[str | Path] = [one, one / "new" / "file", place / "file.txt"]
    inside += [f"{place}/two/../one/x", one.as_uri(), f"{place}/one//x/."]
    outside: list[str | Path] = [place, place / "two", place / "one-more", "/", "", "a\0b", "~"]
    outside += [f"{place}/one/../two", f"{place}/one/../../x", place / "file.txt.bak"]
    outside += ["file://host/x", f"{one.as_uri()}/%2e%2e/two"]
    assert [path for path in inside if not contains(roots, path)] == []
    assert [path for path in outside if contains(roots, path)] == []
    assert not contains([], "/")
    several = Roots([one])
    assert contains(several, one / "x")
    several.remove(one)
    assert not contains(several, one / "x")


@pytest.mark.requirement("M-03")
def test_links_are_followed_on_both_sides(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = place / "one"
    (one / "way-out").symlink_to(place / "two")
    (place / "link-to-one").symlink_to(one)
    (one / "loop").symlink_to(one)
    monkeypatch.chdir(one)
    roots = [to_root(one)]
    for outside in (one / "way-out", one / "way-out" / "new", f"{one}/way-out/../x", "../two"):
        assert not contains(roots, outside)
    for inside in (place / "link-to-one" / "x", one / "loop" / "loop" / "x", "x"):
        assert contains(roots, inside)
    assert contains([place / "link-to-one"], one / "x")
    with pytest.raises(UsageError, match=r"absolute|computer"):  # not False
        contains(["file://host/x"], "/")
