"""The link to the pages: in a private file, for one use, with a code to compare."""

from __future__ import annotations

import logging
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from syncmcp.ui.browser import Browser
from syncmcp.ui.browser.link_file import LinkFile
from tests.support.pages import file_of
from tests.support.stage import PATIENCE
from tests.ui.asking import Asked, context, form, until
from tests.ui.visitor import Visitor, address_in


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's download folder."""
    folder = tmp_path / "Downloads"
    folder.mkdir()
    monkeypatch.setenv("XDG_DOWNLOAD_DIR", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


class Opened:
    """An interface that has opened a page for a question, and the text that it shows."""

    def __init__(self) -> None:
        self.shown: SimpleQueue[str] = SimpleQueue()
        self._urls: SimpleQueue[str] = SimpleQueue()
        self.browser = Browser(open_page=self._urls.put, show=self.shown.put)
        self.asked = Asked(self.browser.form, form(message="only this"), context())
        self.url = self._urls.get(timeout=PATIENCE)
        self.file = file_of(self.url)


@pytest.fixture
def opened(downloads: Path) -> Iterator[Opened]:
    made = Opened()
    yield made
    made.browser.close()
    assert made.asked.answer().action == "cancel"


def test_the_browser_is_started_with_a_file_that_only_the_user_can_read(
    opened: Opened, downloads: Path
) -> None:
    assert address_in(opened.url) == opened.browser.address
    token = opened.browser.address.rpartition("/")[2]
    assert token not in opened.url
    assert opened.file.parent.parent == downloads
    assert stat.S_IMODE(opened.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(opened.file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("way", ["file", "address"])
def test_the_file_goes_once_the_link_was_used_and_a_second_use_is_reported(
    way: str, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    address = address_in(opened.url)
    door, _, token = address.rpartition("/")
    from_file = {"Origin": "null", "Sec-Fetch-Site": "cross-site"}
    announced = opened.shown.get(timeout=PATIENCE)
    assert opened.browser.code in announced
    assert address in announced
    with (
        Visitor(opened.browser, enters=False) as person,
        Visitor(opened.browser, enters=False) as other,
    ):
        page = (
            person.post(door, {"token": token}, **from_file)
            if way == "file"
            else person.get(address)
        )
        assert page.status == 200
        assert ("only this" in page.text) is (way == "address")
        assert person.session.cookies
        until(lambda: not opened.file.parent.exists())
        assert opened.shown.empty()
        for late in (other.post(door, {"token": token}, **from_file), other.get(address)):
            assert late.status == 403
            assert "has been used" in late.text
            assert not other.session.cookies
            assert opened.browser.code not in late.text
            warned = opened.shown.get(timeout=PATIENCE)
            assert "refused a second use of the link" in warned
            assert token not in warned
        assert caplog.text.count("refused a second use of the link") == 2
        assert token not in caplog.text
        assert opened.browser.address != address


def test_a_token_that_never_was_one_is_refused_and_not_reported(opened: Opened) -> None:
    opened.shown.get(timeout=PATIENCE)
    door = opened.browser.address.rpartition("/")[0]
    with Visitor(opened.browser, enters=False) as visitor:
        for token in ("", "x", "ü", "%00", "a" * 5_000):
            assert visitor.post(door, {"token": token}).status == 403
            assert visitor.get(f"{door}/{token}").status in (403, 404)
        assert visitor.post(door, {}).status == 403
        assert visitor.post(door, {}, Host="evil.example").status == 403
        assert visitor.get(door).status in (403, 405)
        assert not visitor.session.cookies
    assert opened.shown.empty()
    assert opened.file.exists()


def test_the_page_from_the_file_goes_on_by_itself_to_the_question(opened: Opened) -> None:
    door, _, token = opened.browser.address.rpartition("/")
    with Visitor(opened.browser, enters=False) as visitor:
        page = visitor.post(door, {"token": token}, Origin="null", **{"Sec-Fetch-Site": ""})
        (target,) = (one["href"] for one in page.all("a"))
        assert page.one("meta", content=f"0; url={target}")
        question = visitor.get(visitor.origin + target)
        assert "only this" in question.text
        assert opened.browser.code in question.text


def test_every_page_shows_the_code_and_no_two_programs_have_the_same() -> None:
    with Browser(open_page=None) as one, Browser(open_page=None) as other:
        assert one.code != other.code
        with Visitor(one) as visitor:
            assert one.code in visitor.get("").text


def test_closing_removes_the_file(downloads: Path) -> None:
    made = Opened()
    made.browser.close()
    made.asked.answer()
    assert list(downloads.iterdir()) == []


def group_of(name: str, *members: str) -> Callable[[int], SimpleNamespace]:
    """Return a substitute of `grp.getgrgid`: each group has this name and these members."""
    return lambda number: SimpleNamespace(gr_name=name, gr_mem=list(members))


def own_name() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


@pytest.mark.parametrize(
    "trouble", ["missing", "open to everybody", "open to a group", "others in the group"]
)
def test_without_a_folder_of_downloads_it_is_in_the_state_directory(
    trouble: str, downloads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "missing":
        downloads.rmdir()
    else:
        downloads.chmod(0o777 if trouble == "open to everybody" else 0o770)
        own = trouble != "open to a group"
        members = ("somebody",) if trouble == "others in the group" else ()
        group = group_of(own_name() if own else "staff", *members)
        monkeypatch.setattr("grp.getgrgid", group)
    made = LinkFile("http://127.0.0.1:1/open", "secret")
    assert file_of(made.url).parent.parent == tmp_path / "state/syncmcp"
    made.remove()
    made.remove()
    assert list((tmp_path / "state/syncmcp").iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "members"), [(0o775, ()), (0o770, (own_name(),)), (0o755, ("x",))]
)
def test_a_folder_of_downloads_for_the_user_s_own_group_is_used(
    mode: int, members: tuple[str, ...], downloads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads.chmod(mode)
    monkeypatch.setattr("grp.getgrgid", group_of(own_name(), *members))
    made = LinkFile("http://127.0.0.1:1/open", "secret")
    assert file_of(made.url).parent.parent == downloads
    made.remove()


def test_where_no_file_can_be_written_the_address_is_shown_and_nothing_started(
    downloads: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    downloads.rmdir()
    (tmp_path / "state").write_text("no folder")
    started: SimpleQueue[str] = SimpleQueue()
    shown: SimpleQueue[str] = SimpleQueue()
    with (
        caplog.at_level(logging.ERROR, "syncmcp.ui.browser"),
        Browser(open_page=started.put, show=shown.put) as browser,
    ):
        asked = Asked(browser.form, form(), context())
        assert browser.address in shown.get(timeout=PATIENCE)
        until(lambda: "could not open the page" in caplog.text)
        assert started.empty()
    assert asked.answer().action == "cancel"
