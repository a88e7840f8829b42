"""Reading resources by URI and from links, as text or bytes, and saving them in files."""

from __future__ import annotations

import base64
import errno
import os
import stat
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from syncmcp import InvalidOutput, LimitExceeded, ResourceNotFound, UsageError
from syncmcp.saving import save
from syncmcp.testing import Server
from syncmcp.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
)
from tests.support.stage import STATELESS, Wire, rotated

URIS = (
    "acme:a",
    "file:///no/such/place/../of%20ours",
    "git+ssh://host:22/a?b#c",
    "urn:isbn:0-486-27557-4",
    "x-1.2+3://[::1]/a;b=c,d/$!*'()@",
    "https://example.com",
    "ui://a/%C3%A9%2F",
    "ACME:A",
    "acme:empty#",
    "acme:empty?",
)
DATA = bytes(range(256))


def library() -> Server:
    """Return a server with resources of several schemes, a template, and a tool with links."""
    server = Server("library")
    for uri in URIS:
        server.resource(uri, name=uri)(lambda uri=uri: f"read {uri}")
    server.resource("acme:data", name="data")(lambda: DATA)
    server.resource_template("acme://books/{title}{?page,line}", name="book")(book)
    link = {"type": "resource_link", "name": "found", "uri": "acme://books/Emma?page=2"}
    found = [{"type": "text", "text": "here"}, link, {**link, "uri": "acme:none"}]
    server.add_tool(lambda: {"content": found}, name="find")
    return server


def book(title: str, page: str = "1", line: str = "1") -> str:
    return f"{title}, page {page}, line {line}"


@rotated
@pytest.mark.requirement("RES-02", "M-11")
def test_a_uri_of_any_scheme_is_read_as_it_stands_and_a_template_leads_to_its_resources(
    wire: Wire,
) -> None:
    with wire.connect(library()) as client:
        listed = {resource.uri: resource for resource in client.iter_resources()}
        for uri in URIS:
            for given in (uri, listed[uri]):
                assert client.read_resource(given).text == f"read {uri}"
        (template,) = client.list_resource_templates().resource_templates
        uri = template.expand({"title": "What? {Yes} & #no/..", "line": 3})
        assert uri == "acme://books/What%3F%20%7BYes%7D%20%26%20%23no%2F..?line=3"
        assert client.read_resource(uri).text == "What? {Yes} & #no/.., page 1, line 3"
        assert template.match(uri) == {"title": "What? {Yes} & #no/..", "line": "3"}


@rotated
def test_a_link_from_a_tool_is_followed_when_it_is_read(wire: Wire) -> None:
    server = library()
    with wire.connect(server) as client:
        found, gone = client.call_tool("find").links
        assert server.stats.requests["resources/read"] == 0
        reads = [client.read_resource(found), client.read_resource.future(found).result()]
        if wire.revision == STATELESS:
            reads.append(cast("ReadResourceResult", client.begin_read(found)))
        assert {read.text for read in reads} == {"Emma, page 2, line 1"}
        for missing in (gone, Resource(name="none", uri="acme:none")):
            with pytest.raises(ResourceNotFound):
                client.read_resource(missing)


# -- text and bytes ------------------------------------------------------------------------------
def read_result(*contents: TextResourceContents | BlobResourceContents) -> ReadResourceResult:
    return ReadResourceResult(contents=list(contents))


def text_of(text: str) -> TextResourceContents:
    return TextResourceContents(uri="acme:text", text=text)


def bytes_of(data: bytes) -> BlobResourceContents:
    return BlobResourceContents(uri="acme:blob", blob=base64.b64encode(data).decode())


def test_a_result_gives_its_text_and_its_bytes() -> None:
    assert read_result(text_of("é"), bytes_of(b"x"), text_of("b")).text == "é\nb"
    for content, blob in ((bytes_of(DATA), DATA), (text_of("é"), b"\xc3\xa9"), (text_of(""), b"")):
        assert read_result(content).blob == blob
    assert read_result(bytes_of(DATA)).text == ""


@pytest.mark.parametrize(
    "result",
    [
        read_result(),
        read_result(text_of("a"), text_of("b")),
        read_result(BlobResourceContents(uri="acme:blob", blob="no base64")),
        read_result(text_of("\ud800")),
    ],
    ids=["none", "several", "no base64", "no Unicode"],
)
def test_bytes_that_are_missing_are_not_made_up(result: ReadResourceResult, tmp_path: Path) -> None:
    with pytest.raises(InvalidOutput):
        _ = result.blob
    with pytest.raises(InvalidOutput):
        save(result, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


# -- saving in files -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "content",
    [
        bytes_of("é€".encode()),
        text_of("é€"),  # two characters
        read_result(text_of("é€")),
        EmbeddedResource(resource=bytes_of("é€".encode())),
        ImageContent(data="w6nigqw=", mime_type="image/png"),
        AudioContent(data="w6nigqw=", mime_type="audio/wav"),
    ],
    ids=lambda content: type(content).__name__,
)
def test_everything_with_bytes_is_saved_up_to_the_limit(content: Any, tmp_path: Path) -> None:
    saved = save(content, str(tmp_path / "a"), max_bytes=5)
    assert saved.read_bytes() == "é€".encode()
    undecoded = BlobResourceContents(uri="acme:a", blob="no base64!!" * 9)
    words = r"^the content has more than 4 bytes \(option max_bytes\)$"
    for large in (content, undecoded):
        with pytest.raises(LimitExceeded, match=words):
            save(large, tmp_path / "b", max_bytes=4)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("wrong", [b"bytes", "text", None, TextContent(text="text")])
def test_what_has_no_bytes_is_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="saved"):
        save(wrong, tmp_path / "a")
    with pytest.raises(UsageError, match="max_bytes"):
        save(text_of("a"), tmp_path / "a", max_bytes=0)


@pytest.mark.parametrize("there", ["file", "link", "circle"])
def test_a_file_is_replaced_only_if_that_is_asked_for(there: str, tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "a", tmp_path / "elsewhere"
    if there == "file":
        path.write_text("before")
    else:
        path.symlink_to(elsewhere if there == "link" else path)
    with pytest.raises(FileExistsError) as caught:
        save(text_of("after"), path)
    assert str(caught.value) == f"[Errno 17] File exists; overwrite=True replaces it: {str(path)!r}"
    if there == "file":
        assert path.read_text() == "before"
    save(text_of("after"), path, overwrite=True)
    assert (path.read_text(), path.is_symlink()) == ("after", False)
    assert list(tmp_path.iterdir()) == [path]


NO_LINKS = OSError(errno.EPERM, "no links here")


@pytest.mark.parametrize("links", [True, False])
def test_somebody_who_was_faster_is_not_overwritten(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    if not links:
        monkeypatch.setattr(os, "link", Mock(side_effect=NO_LINKS))
    # Another program writes the file before `save` does.
    monkeypatch.setattr(os, "fsync", lambda _: path.write_text("another's"))
    with pytest.raises(FileExistsError):
        save(text_of("a"), path)
    assert path.read_text() == "another's"
    assert list(tmp_path.iterdir()) == [path]


def test_without_links_a_name_that_was_taken_is_given_back_when_the_rest_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", Mock(side_effect=NO_LINKS))
    path = save(text_of("a"), tmp_path / "a")
    assert path.read_text() == "a"
    refusal = PermissionError(errno.EACCES, "not this one")
    monkeypatch.setattr(os, "replace", Mock(side_effect=refusal))
    with pytest.raises(PermissionError):
        save(text_of("b"), tmp_path / "b")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_save_that_fails_leaves_everything_as_it_was(
    overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    if overwrite:
        path.write_text("before")

    full = OSError(errno.ENOSPC, "the disk is full")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=full))
    with pytest.raises(OSError, match="full"):
        save(text_of("after"), path, overwrite=overwrite)
    assert [found.read_text() for found in tmp_path.iterdir()] == ["before"] * overwrite


def test_a_file_has_the_mode_that_files_of_this_user_have(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = save(text_of("a"), tmp_path / "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755, 0o4755])
@pytest.mark.parametrize("linked", [False, True])
def test_a_file_that_is_replaced_keeps_its_mode(
    mode: int, linked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = there = tmp_path / "a"
    path.write_text("before")
    path.chmod(mode)
    if linked:  # the new file replaces the link, and gets the mode of the link's target
        path = tmp_path / "link"
        path.symlink_to(there)
    modes: list[int] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: modes.append(stat.S_IMODE(os.fstat(file).st_mode))
    )
    save(text_of("after"), path, overwrite=True)
    kept = mode & 0o777  # without the special bits
    assert stat.S_IMODE(path.lstat().st_mode) == kept
    assert (path.read_text(), path.is_symlink()) == ("after", False)
    # While the file is written, it has no permission that the replaced file lacks.
    assert [before & ~kept for before in modes] == [0]


def test_a_directory_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save(text_of("a"), tmp_path / "missing" / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("template", ["{x}-{y}", "{x:3}", "a b"])
def test_the_test_server_offers_no_template_it_cannot_read(template: str) -> None:
    problem = "is not allowed outside" if template == "a b" else "cannot be offered"
    with pytest.raises(ValueError, match=problem):
        Server("library").resource_template(template)(book)
