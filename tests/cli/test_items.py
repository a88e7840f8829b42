"""Arguments on the command line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from syncmcp.cli import parsing
from syncmcp.cli.output import CommandError


@pytest.mark.parametrize(
    ("word", "name", "value"),
    [
        ("a=1", "a", "1"),
        ("a:=1", "a", 1),
        ("a:=[1, null]", "a", [1, None]),
        ("a=", "a", ""),
        ("a=b=c", "a", "b=c"),
        ("a=b:=c", "a", "b:=c"),
        ("a:b=c", "a:b", "c"),
        (r"a\=b=c", "a=b", "c"),
        (r"a\:=b", "a:", "b"),
        (r"a\b=c", "a\\b", "c"),
        (r"a\@b=c", "a@b", "c"),
        (r"a=\@b", "a", "@b"),
        (r"a=\=b", "a", "=b"),
        ("a=line\nbreak", "a", "line\nbreak"),
        ('a:="x"', "a", "x"),
    ],
)
def test_an_item_is_a_name_and_a_value(word: str, name: str, value: Any) -> None:
    assert parsing.parse_arguments([word]) == {name: value}


def test_values_come_from_files_and_from_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, json = tmp_path / "text", tmp_path / "json"
    text.write_text("é\n", "utf-8")
    json.write_text('{"deep": true}')
    monkeypatch.setattr("sys.stdin", io.StringIO("piped"))
    found = parsing.parse_arguments([f"a=@{text}", f"b:=@{json}", "c=@-"])
    assert found == {"a": "é\n", "b": {"deep": True}, "c": "piped"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "'a' is not an argument"),
        (["=a"], "'=a' is not an argument"),
        (["a=1", "a:=2"], "'a' is given twice"),
        (["a:=x"], "the value of 'a' is not JSON: see line 1, column 1"),
        (["a:=NaN"], "the value of 'a' cannot be sent as JSON: NaN is not a JSON value"),
        (["a:=1e400"], "the value of 'a' cannot be sent as JSON: the number 1e400 is too large"),
        (["a=@missing"], "cannot read the file 'missing': No such file or directory"),
    ],
)
def test_what_is_no_item_is_named(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError) as caught:
        parsing.parse_arguments(words)
    assert message in str(caught.value)


def test_a_file_of_text_that_is_taken_for_json_comes_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("x = 1")
    for word, hint in [
        (f"a:=@{tmp_path / 'shop.py'}", f"write a=@{tmp_path / 'shop.py'} to pass its text"),
        ("a:=x", "write text after =, not :="),
        ("a:=NaN", None),
        ("a==x", r"write a=x, or a=\=x if the text begins with ="),
        ("a:1", "write a=1"),
        ("York", "write name=text, name:=json or name=@file; a value with blanks needs quotes"),
        ("a://b", "write name=text, name:=json or name=@file; a value with blanks needs quotes"),
        ("-", "--input @- reads all arguments from stdin, as a JSON object"),
    ]:
        with pytest.raises(CommandError) as caught:
            parsing.parse_arguments([word])
        assert caught.value.hint == hint


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\xff\xd8")
    with pytest.raises(CommandError, match="it is not UTF-8"):
        parsing.parse_arguments([f"a=@{tmp_path / 'picture'}"])


def test_where_only_strings_are_taken_json_is_refused() -> None:
    assert parsing.parse_strings(["a=1"]) == {"a": "1"}
    with pytest.raises(CommandError) as caught:
        parsing.parse_strings(["a:=1"])
    assert caught.value.hint == "write a=..."


def test_all_arguments_can_be_one_object(tmp_path: Path) -> None:
    (tmp_path / "all").write_text('{"a": 1}')
    assert (
        parsing.parse_object(f"@{tmp_path / 'all'}") == parsing.parse_object('{"a": 1}') == {"a": 1}
    )
    with pytest.raises(CommandError, match="not a JSON object"):
        parsing.parse_object("[1]")


@pytest.mark.parametrize("kind", [5, True, 1.5, {"type": "integer"}])
def test_a_type_that_is_none_leaves_a_text_as_it_is(kind: object) -> None:
    assert parsing.parse_arguments(["a=1"], {"a": {"type": kind}}) == {"a": "1"}
