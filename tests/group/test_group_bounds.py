"""How much of the names of one server a group compares."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest

from syncmcp import types
from syncmcp.group import catalog
from syncmcp.group.catalog import Catalog, Lists


def lists(*names: str) -> Lists:
    server: Any = None  # a hook would get it
    tools = tuple(types.Tool.model_construct(name=name, input_schema={}) for name in names)
    return Lists(server, tools, (), (), ())


def test_names_of_one_server_are_compared_up_to_a_number_of_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "MAX_NAMES", 100)
    both = {"many": lists(*(f"tool{i:06}" for i in range(1000))), "few": lists("other")}
    found = Catalog().with_servers(both, None)
    assert list(found.offers["tools"]) == [*(f"tool{i:06}" for i in range(10)), "other"]
    (left_out,) = found.left_out  # one for all: each is logged
    assert left_out.name == "tool000010"
    assert "what follows it is left out, too" in left_out.reason


def test_the_looks_of_servers_are_not_made_for_each_item(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    normalize = unicodedata.normalize

    def counted(form: Any, text: str) -> str:
        made.append(text)
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", counted)
    names = [f"looks{i}" for i in range(50)]
    Catalog().with_servers({"many": lists(*names), **{f"s{i}": lists() for i in range(20)}}, None)
    assert len(made) < 300  # with those of the 21 servers for each item there would be thousands


def test_a_name_that_gets_long_when_it_is_written_out_is_left_out() -> None:
    found = Catalog().with_servers({"a": lists("\ufdfa" * 250, "b" * 250)}, None)
    assert list(found.offers["tools"]) == ["b" * 250]
    assert "normalized name has more than" in found.left_out[0].reason
