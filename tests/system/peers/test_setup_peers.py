"""All packages of the servers are pinned, and are installed once."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

from tests.system.peers import setup_peers

LOCK = setup_peers.HERE / "package-lock.json"


def test_the_lock_file_pins_every_package_by_its_content_and_names_no_host() -> None:
    text = LOCK.read_text("utf-8")
    packages = json.loads(text)["packages"]
    del packages[""]
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert '"resolved"' not in text


@pytest.mark.parametrize("name", setup_peers.python_peers())
def test_every_python_package_of_a_peer_is_pinned(name: str) -> None:
    lines = (setup_peers.REQUIREMENTS / f"{name}.txt").read_text("utf-8").splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert packages
    assert [line for line in packages if not re.match(r"[\w.-]+==[\w.]+(; |$)", line)] == []


@pytest.mark.peer
def test_what_is_installed_already_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    setup_peers.main()
    first, *others = capsys.readouterr().out.splitlines()
    assert [line for line in others if not line.endswith(": is there already")] == []
    assert len(others) == 2 + len(setup_peers.python_peers())
    assert first.startswith("peers: ")


def test_a_place_whose_recipe_changed_or_whose_installation_failed_is_made_anew(
    tmp_path: Path,
) -> None:
    def fail() -> None:
        raise OSError("no space left")

    made: list[str] = []
    for recipe in ("one", "one", "two", "two"):
        setup_peers.unless_there(tmp_path, recipe, partial(made.append, recipe))
    with pytest.raises(OSError, match="no space left"):
        setup_peers.unless_there(tmp_path, "three", fail)
    setup_peers.unless_there(tmp_path, "two", partial(made.append, "two, again"))
    assert made == ["one", "two", "two, again"]
