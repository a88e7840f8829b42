"""Templates, links, prompts and completion with real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from syncmcp import Mode, ResourceNotFound, UsageError
from syncmcp.completion import Completer
from syncmcp.saving import save
from tests.system.peers.launch import client_of
from tests.system.peers.peers import EVERYTHING, HTTP, STDIO, own_server

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.peer

OFFICIAL = own_server("official_content")


@pytest.mark.parametrize(
    ("transport", "mode"),
    [(STDIO, "2024-11-05"), (HTTP, "2025-11-25"), (STDIO, "2026-07-28"), (HTTP, "2026-07-28")],
)
@pytest.mark.requirement("M-11", "M-13")
def test_the_official_server_reads_what_we_expand_and_completes(transport: str, mode: Mode) -> None:
    with client_of(OFFICIAL[transport], mode=mode) as client:
        shop, paper, find = client.list_resource_templates().resource_templates
        expansions: list[tuple[Any, dict[str, Any], str]] = [
            (
                shop,
                {"country": "Norway", "city": "Bodø / {x}?#"},
                "The shop in Bodø / {x}?#, Norway.",
            ),
            (paper, {"path": "a b/c"}, "a b/c"),
            (find, {}, "any on page 1"),
            (find, {"name": "A & B", "page": 3}, "A & B on page 3"),
        ]
        for template, values, text in expansions:
            uri = template.expand(values)
            assert client.read_resource(uri).blob.decode() == text
            assert template.match(uri) == {name: str(value) for name, value in values.items()}
        with pytest.raises(ResourceNotFound):
            client.read_resource("shop://nowhere")

        (order,) = client.list_prompts().prompts
        message = client.get_prompt(order, {"city": "Oslo"}).messages[0].to_wire()
        assert message["content"]["text"] == "Order bread in Oslo."
        with pytest.raises(UsageError, match="needs 'city'"):
            client.get_prompt(order)
        assert client.complete(order, "what", "b").completion.values == []
        completer = Completer(client, shop, pause=0)
        found = completer.suggest("city", "B", {"country": "Norway"})
        assert found is not None
        # The oldest revision knows no context, so there it completes the cities of every country.
        all_of_them = ["Bergen", "Bodø", "Beppu"]
        assert found.values == (all_of_them if mode == "2024-11-05" else ["Bergen", "Bodø"])


@pytest.mark.parametrize("transport", [STDIO, HTTP])
@pytest.mark.requirement("M-11", "M-13")
def test_server_everything_reads_what_we_expand_links_and_completes(
    transport: str, tmp_path: Path
) -> None:
    with client_of(EVERYTHING.programs[transport], mode="2025-11-25") as client:
        text, blob = client.list_resource_templates().resource_templates
        uri = text.expand({"resourceId": 7})
        assert client.read_resource(uri).text.startswith("Resource 7: ")
        assert text.match(uri) == {"resourceId": "7"}
        file = save(client.read_resource(blob.expand({"resourceId": 8})), tmp_path / "blob")
        assert file.read_text().startswith("Resource 8: ")

        links = client.call_tool("get-resource-links", {"count": 2}).links
        contents = [client.read_resource(link).blob for link in links]
        assert len(contents) == 2
        assert all(content.startswith(b"Resource ") for content in contents)

        prompts = {prompt.name: prompt for prompt in client.iter_prompts()}
        team = prompts["completable-prompt"]
        completer = Completer(client, team, pause=0)
        departments = completer.suggest("department", "S")
        assert departments is not None
        assert departments.values == ["Sales", "Support"]
        names = completer.suggest("name", "", {"department": "Sales"})
        assert names is not None
        assert names.values == ["David", "Eve", "Frank"]
        assert client.complete(text, "resourceId", "12").completion.values == ["12"]
        with pytest.raises(UsageError, match="needs 'department', 'name'"):
            client.get_prompt(team)
        message = client.get_prompt(team, {"department": "Sales", "name": "Eve"}).messages[0]
        assert "promote Eve to the head of the Sales team" in message.to_wire()["content"]["text"]
