"""Tokens in the keyring of the desktop, whatever it can hold."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from syncmcp.auth import KeyringStore
from syncmcp.errors import AuthError, UsageError
from tests.auth.peers import KEY

SECRET = "canary-4f1d9b"
ENTRY = {"token": {"access_token": SECRET}}


class FakeKeyring:
    """A keyring that is a dictionary.

    Attributes:
        most: How many bytes it takes at a time.
        before_read: Called with the name of each entry before it is read.
        before_write: Called with the name and the text of each before it is written.
    """

    def __init__(self, most: int = 1_000_000) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.most = most
        self.before_read: Callable[[str], object] = lambda name: None
        self.before_write: Callable[[str, str], object] = lambda name, text: None

    def get_password(self, service: str, username: str, /) -> str | None:
        self.before_read(service)
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str, /) -> None:
        self.before_write(service, password)
        if len(password.encode("utf-16-le")) > self.most:
            raise OSError(1783, "The stub received bad data")
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str, /) -> None:
        del self.kept[service, username]


def long_entry(word: str = "x") -> dict[str, Any]:
    """What does not fit into one secret of Windows."""
    return {"token": {"access_token": f"{SECRET}{word * 6000}", "name": "ü"}}


def test_a_keyring_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(UsageError, match=r"install syncmcp-client\[keyring\]"):
        KeyringStore()


@pytest.mark.requirement("TOK-04")
def test_what_a_keyring_says_is_told_without_the_secret() -> None:
    def fail(name: str, text: str) -> None:
        raise RuntimeError(f"no room for {text}")

    backend = FakeKeyring()
    backend.before_write = fail
    with pytest.raises(AuthError, match="cannot be changed: RuntimeError") as caught:
        KeyringStore(backend=backend).save(KEY, {"access_token": SECRET})
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("foreign", ["[]", "{", '"word"', "[" * 200_000])
def test_an_entry_of_somebody_else_is_left_as_it_is(foreign: str) -> None:
    backend = FakeKeyring()
    store = KeyringStore(backend=backend)
    store.save(KEY, ENTRY)
    (name,) = backend.kept
    backend.kept[name] = foreign
    for use in (store.load, lambda key: store.save(key, ENTRY), lambda key: store.save(key, None)):
        with pytest.raises(AuthError, match="no tokens of syncmcp"):
            use(KEY)
    assert backend.kept == {name: foreign}


def test_the_keyring_of_the_desktop_is_the_default_and_keeps_a_long_entry_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import keyring

    backend = FakeKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: backend)
    KeyringStore("program").save(KEY, long_entry())
    assert list(backend.kept) == [(f"program {KEY}", "tokens")]


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    """The keyring of a computer with Windows."""
    monkeypatch.setattr(KeyringStore, "_max_length", 1_200)
    return FakeKeyring(2560)


def test_a_long_entry_is_in_parts_where_secrets_are_short_and_they_leave_nothing_behind(
    windows: FakeKeyring,
) -> None:
    store = KeyringStore(backend=windows)
    store.save(KEY, long_entry("x"))
    assert store.load(KEY) == long_entry("x")
    before = set(windows.kept)
    assert len(before) > 4
    assert SECRET not in windows.kept[f"syncmcp {KEY}", "tokens"]
    store.save(KEY, long_entry("y"))
    assert store.load(KEY) == long_entry("y")
    assert len(windows.kept) == len(before)
    assert len(before & set(windows.kept)) == 1
    store.save(KEY, ENTRY)
    assert store.load(KEY) == ENTRY
    assert len(windows.kept) == 1
    store.save(KEY, long_entry())
    store.save(KEY, None)
    assert store.load(KEY) is None
    assert windows.kept == {}


def test_who_reads_while_parts_are_replaced_gets_the_new_value_whole(
    windows: FakeKeyring,
) -> None:
    store, other = KeyringStore(backend=windows), KeyringStore(backend=windows)
    store.save(KEY, long_entry("old"))
    names: list[str] = []

    def replace_once(name: str) -> None:
        names.append(name)
        if name.endswith(".1"):
            windows.before_read = names.append
            other.save(KEY, long_entry("new"))

    windows.before_read = replace_once
    assert store.load(KEY) == long_entry("new")
    assert any(name.endswith(".1") for name in names)


@pytest.mark.parametrize("parts", ["", '["a", 99]', '["a", -1]', '["a"]', "[1, 2]", "null"])
def test_an_entry_whose_parts_are_nowhere_is_an_error_and_no_end_of_reading(
    windows: FakeKeyring, parts: str
) -> None:
    store = KeyringStore(backend=windows)
    store.save(KEY, long_entry())
    if parts:
        windows.kept[f"syncmcp {KEY}", "tokens"] = f'{{"syncmcp in parts": {parts}}}'
    else:
        (lost,) = [name for name in windows.kept if name[0].endswith(".2")]
        del windows.kept[lost]
    with pytest.raises(AuthError, match="no tokens of syncmcp"):
        store.load(KEY)


def test_parts_that_cannot_be_written_leave_what_there_was(windows: FakeKeyring) -> None:
    def fill_up(name: str, text: str) -> None:
        if name.endswith(".2"):
            raise OSError("no room")

    store = KeyringStore(backend=windows)
    store.save(KEY, ENTRY)
    windows.before_write = fill_up
    with pytest.raises(AuthError, match="cannot be changed: OSError: no room"):
        store.save(KEY, long_entry())
    assert store.load(KEY) == ENTRY
    assert len(windows.kept) == 1
