"""Keyrings that are dictionaries."""

from __future__ import annotations

from collections.abc import Callable


class FakeKeyring:
    """A keyring that is a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str, /) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str, /) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str, /) -> None:
        del self.kept[service, username]


class BrokenKeyring(FakeKeyring):
    """A keyring that fails, and quotes what it got."""

    def set_password(self, service: str, username: str, password: str, /) -> None:
        raise RuntimeError(f"no room for {password}")


class WindowsKeyring(FakeKeyring):
    """A keyring that takes as much at a time as Windows does.

    Attributes:
        before_read: Called with the name of each entry before it is read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before_read: Callable[[str], object] = lambda name: None

    def get_password(self, service: str, username: str, /) -> str | None:
        self.before_read(service)
        return super().get_password(service, username)

    def set_password(self, service: str, username: str, password: str, /) -> None:
        if len(password.encode("utf-16-le")) > 2560:
            raise OSError(1783, "The stub received bad data")
        super().set_password(service, username, password)
