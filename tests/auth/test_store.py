"""Token stores: contents, permissions and locks."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from syncmcp.auth import Deadline, FileStore, KeyringStore, MemoryStore, OAuth, TokenStore
from syncmcp.errors import AuthError, RequestTimeout, UsageError
from tests.auth.authorization_server import call, signed_in
from tests.support.parts import Exchange, was_aborted
from tests.support.programs import running
from tests.support.stage import elsewhere

KEY = "key"
WAIT = 20.0
SECRET = "canary-4f1d9b"
ENTRY = {"token": {"access_token": SECRET, "expires_at": 12.5}, "list": [1, None, "ü"]}


@pytest.fixture(params=["memory", "file", "keyring"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TokenStore:
    made: dict[str, Callable[[], TokenStore]] = {
        "memory": MemoryStore,
        "file": lambda: FileStore(tmp_path / "tokens.json"),
        "keyring": lambda: KeyringStore(backend=FakeKeyring()),
    }
    return made[request.param]()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "tokens.json"


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def uses(store: TokenStore) -> list[Callable[[], object]]:
    """Return the operations on an entry."""
    return [partial(store.load, KEY), *(partial(store.save, KEY, value) for value in (ENTRY, None))]


class Locker:
    """A thread that locks a key in an exchange, and releases the lock in `end`."""

    def __init__(self, store: TokenStore, seconds: float = WAIT) -> None:
        self.exchange = Exchange()
        self.locked, self._release = threading.Event(), threading.Event()
        self._held = elsewhere(partial(self._hold, store, seconds))

    def _hold(self, store: TokenStore, seconds: float) -> None:
        with self.exchange, store.lock(KEY, Deadline(seconds)):
            self.locked.set()
            self._release.wait(WAIT)

    def end(self) -> BaseException | None:
        self._release.set()
        return self._held.exception(WAIT)


@contextmanager
def locked(store: TokenStore) -> Iterator[None]:
    """Hold the lock of the key in another thread."""
    locker = Locker(store)
    assert locker.locked.wait(WAIT)
    yield
    assert locker.end() is None


def waiting(store: TokenStore) -> Locker:
    """Return another thread that is waiting for the lock."""
    locker = Locker(store)
    assert locker.exchange.waits.wait(WAIT)
    assert not locker.locked.is_set()
    return locker


# --- contents


def test_a_copy_of_what_was_saved_is_loaded_until_it_is_deleted(store: TokenStore) -> None:
    assert store.load(KEY) is None
    store.save(KEY, ENTRY)
    store.save("another", {"x": 1})
    assert store.load(KEY) == ENTRY
    value: dict[str, Any] = {"list": [1]}
    store.save(KEY, value)
    value["list"].append(2)
    taken = store.load(KEY)
    assert taken is not None
    taken["list"].append(3)
    assert store.load(KEY) == {"list": [1]}
    with pytest.raises(TypeError):
        store.save(KEY, {"x": object()})
    assert store.load(KEY) == {"list": [1]}
    for _ in range(2):
        store.save(KEY, None)
    assert store.load(KEY) is None
    assert store.load("another") == {"x": 1}


@pytest.mark.requirement("TOK-04", "TOK-05")
def test_no_store_shows_what_it_keeps(store: TokenStore) -> None:
    store.save(KEY, ENTRY)
    assert SECRET not in repr(store)
    assert isinstance(store, TokenStore)
    if isinstance(store, MemoryStore):
        with pytest.raises(TypeError, match="FileStore"):
            pickle.dumps(store)


# --- permissions


@pytest.mark.requirement("TOK-04", "TOK-05")
@pytest.mark.usefixtures("open_umask")
def test_a_login_that_was_renewed_is_in_one_file_for_its_owner_alone(path: Path) -> None:
    with signed_in(store=FileStore(path)) as (resource, auth, _):
        first = auth.token
        resource.authorization_server.expire()
        assert call(resource, auth).status_code == 200  # a refresh: the file is written again
        token = auth.token
        assert first is not None
        assert token is not None
        assert token.refresh_token is not None
        other = OAuth(resource.url, receiver=None, store=FileStore(path))
        assert other.token == token
        copies = f"{auth!r} {token!r} {pickle.dumps(other)!r}"
    secrets = (token.access_token, token.refresh_token)
    assert not any(secret in copies for secret in secrets)
    places = [path.parent, *path.parent.rglob("*")]
    assert {oct(mode(place) & 0o077) for place in places} == {"0o0"}
    files = [place for place in places if place.is_file()]
    for secret in secrets:
        assert [place for place in files if secret.encode() in place.read_bytes()] == [path]
    assert not [place for place in files if first.access_token.encode() in place.read_bytes()]


@pytest.mark.requirement("TOK-04")
@pytest.mark.usefixtures("open_umask")
def test_the_file_is_never_open_to_others_while_it_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, int, int]] = []
    original = os.open

    def watch(name: Any, flags: int, given: int = 0o777, **named: Any) -> int:
        opened.append((os.fspath(name), flags, given))
        return original(name, flags, given, **named)

    monkeypatch.setattr(os, "open", watch)
    FileStore(path).save(KEY, ENTRY)
    written = [one for one in opened if one[1] & os.O_CREAT]
    assert written
    assert {given for _, _, given in written} == {0o600}
    tokens = [flags for name, flags, _ in written if not name.endswith((".lock", ".gate"))]
    assert tokens
    assert all(flags & os.O_EXCL for flags in tokens)


@pytest.mark.requirement("TOK-04")
def test_a_file_that_others_may_open_or_own_is_refused_with_what_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(path)
    store.save(KEY, ENTRY)
    for wide in (0o640, 0o604, 0o660):
        path.chmod(wide)
        for use in uses(store):
            with pytest.raises(AuthError, match="chmod 600") as caught:
                use()
            assert str(path) in str(caught.value)
            assert SECRET not in str(caught.value)
    path.chmod(0o600)
    assert store.load(KEY) == ENTRY
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(AuthError, match="belongs to another user"):
        store.load(KEY)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"[" * 100_000, b'{"format": "syncmcp-tokens", "version": 1}']
)
def test_a_file_that_is_no_store_is_named_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.touch(0o600)
    path.write_bytes(content)
    store = FileStore(path)
    for use in uses(store):
        with pytest.raises(AuthError) as caught:
            use()
        assert str(path) in str(caught.value)
    assert path.read_bytes() == content
    assert sorted(one.name for one in path.parent.iterdir()) == ["tokens.json", "tokens.json.locks"]


def test_what_is_no_file_or_no_directory_of_ones_own_is_refused_at_once(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path, 0o600)
    for place in (path, path.parent):
        with pytest.raises(AuthError, match="not a regular file"):
            FileStore(place).load(KEY)
    path.unlink()
    FileStore(path).save(KEY, ENTRY)
    path.with_name("tokens.json.locks").chmod(0o777)
    with pytest.raises(AuthError, match="chmod 700"), FileStore(path).lock(KEY, Deadline(WAIT)):
        pass


# --- failures while writing


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_what_cannot_be_written_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    store = FileStore(path)
    store.save(KEY, ENTRY)

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        with pytest.raises(AuthError, match="no space left") as caught:
            store.save(KEY, {"y": 2})
    assert str(path) in str(caught.value)
    assert store.load(KEY) == ENTRY
    assert not path.with_name("tokens.json.new").exists()
    # A temporary file that a killed writer left does not matter.
    path.with_name("tokens.json.new").write_text("half of")
    store.save(KEY, {"y": 2})
    assert store.load(KEY) == {"y": 2}
    assert not path.with_name("tokens.json.new").exists()


def test_no_server_fills_the_file_for_the_others(path: Path) -> None:
    store = FileStore(path)
    with pytest.raises(AuthError, match="longer than 1,048,576 bytes"):
        store.save("hostile", {"client_id": "x" * 1024 * 1024})
    store.save("other", ENTRY)
    assert store.load("other") == ENTRY
    assert store.load("hostile") is None


def test_the_data_is_on_the_disk_before_it_takes_the_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def note(name: str, original: Any, *args: Any) -> None:
        order.append(name)
        original(*args)

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, partial(note, name, getattr(os, name)))
    FileStore(path).save(KEY, ENTRY)
    assert order == ["fsync", "replace", "fsync"]


def test_a_symbolic_link_stays_one_and_a_file_is_pickled_as_its_path(
    path: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(path)
    store = FileStore(link)
    exchange = Exchange()
    exchange.abort()
    with exchange:  # a rotated token is saved even after its call was aborted
        store.save(KEY, ENTRY)
    assert link.is_symlink()
    assert FileStore(path).load(KEY) == ENTRY
    data = pickle.dumps(store)
    assert SECRET.encode() not in data
    assert pickle.loads(data).load(KEY) == ENTRY


# --- locks in one process


def test_one_thread_at_a_time_has_a_key_and_no_failure_keeps_it(store: TokenStore) -> None:
    with pytest.raises(ZeroDivisionError), store.lock(KEY, Deadline(WAIT)):
        _ = 1 / 0
    with locked(store):
        second = waiting(store)
        with store.lock("another", Deadline(WAIT)):
            store.save(KEY, {"x": 1})
    assert second.locked.wait(WAIT)
    assert second.end() is None


def test_a_wait_ends_at_its_deadline_in_words_or_with_a_cut_at_once(store: TokenStore) -> None:
    with locked(store):
        with (
            pytest.raises(RequestTimeout, match="held by another") as caught,
            store.lock(KEY, Deadline(0.05)),
        ):
            pass
        assert (caught.value.seconds, caught.value.delivery) == (0.05, "not_sent")
        second = waiting(store)
        begun = time.monotonic()
        second.exchange.abort()
        assert was_aborted(second.end())
        assert time.monotonic() - begun < WAIT / 2
    with store.lock(KEY, Deadline(WAIT)):
        pass


# --- locks between processes


def test_a_process_waits_for_another_which_lets_go_when_it_is_killed(path: Path) -> None:
    store = FileStore(path)
    code = f"""
from syncmcp.auth import Deadline, FileStore

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
store = FileStore({str(path)!r})
for forks in (False, True):
    with store.lock({KEY!r}, Deadline({WAIT})):
        if forks and os.fork() == 0:
            signal.alarm(60)
            signal.pause()
        say("locked")
        signal.sigwait([signal.SIGUSR1])
    say("unlocked")
"""
    with running(code) as other:
        assert other.line() == "locked"
        with pytest.raises(RequestTimeout), store.lock(KEY, Deadline(0.1)):
            pass
        locker = waiting(store)
        locker.exchange.abort()
        assert was_aborted(locker.end())
        locker = waiting(store)
        other.popen.send_signal(signal.SIGUSR1)
        assert locker.locked.wait(WAIT)
        assert (other.line(), locker.end()) == ("unlocked", None)
        assert other.line() == "locked"
        locker = waiting(store)
        other.popen.kill()
        other.popen.wait(WAIT)
        assert locker.locked.wait(WAIT)
        assert locker.end() is None
        os.killpg(other.popen.pid, signal.SIGKILL)  # the forked child still runs


def test_two_processes_of_eight_threads_lose_no_update_and_neither_starves(path: Path) -> None:
    store = FileStore(path)
    code = f"""
from concurrent.futures import ThreadPoolExecutor
from syncmcp.auth import Deadline, FileStore

store = FileStore({str(path)!r})

def count(_):
    with store.lock({KEY!r}, Deadline({WAIT})):
        entry = store.load({KEY!r}) or dict(count=0)
        store.save({KEY!r}, dict(count=entry["count"] + 1))

say("ready")
while store.load("go") is None:
    os.sched_yield()
with ThreadPoolExecutor(8) as pool:
    list(pool.map(count, range(16)))
say("counted")
while store.load("stop") is None:
    with store.lock({KEY!r}, Deadline({WAIT})):
        pass
"""
    with running(code) as one, running(code) as other:
        assert (one.line(), other.line()) == ("ready", "ready")
        store.save("go", {})
        assert (one.line(), other.line()) == ("counted", "counted")
        assert store.load(KEY) == {"count": 32}
        # This process gets the lock, although the two others lock again at once.
        for _ in range(20):
            with store.lock(KEY, Deadline(WAIT)):
                pass
        store.save("stop", {})
        assert (one.end(), other.end()) == ((0, "", ""), (0, "", ""))


# -- the keyring of the desktop, and its limits


class FakeKeyring:
    """A keyring that is a dictionary.

    Attributes:
        most: The maximum length of an entry, in bytes of UTF-16.
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
    """Return an entry that is too long for one secret of Windows."""
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
    """A keyring with the limits of Windows."""
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
