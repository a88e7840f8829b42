"""What servers of the three oldest revisions send, and the extension shapes no package has."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp import types

NOVEMBER_2024: list[tuple[type[types.WireModel], dict[str, Any]]] = [
    (types.Result, {}),
    (
        types.ListToolsResult,
        {
            "tools": [
                {
                    "name": "add",
                    "description": "Adds.",
                    "inputSchema": {
                        "type": "object",
                        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                        "required": ["a", "b"],
                    },
                },
                {"name": "now", "inputSchema": {"type": "object"}},
            ],
            "nextCursor": "",
        },
    ),
    (
        types.CallToolResult,
        {
            "content": [
                {
                    "type": "text",
                    "text": "3",
                    "annotations": {"audience": ["user"], "priority": 0.5},
                },
                {"type": "image", "data": "AAEC", "mimeType": "image/png"},
                {
                    "type": "resource",
                    "resource": {"uri": "file:///a.bin", "mimeType": "x/y", "blob": "AA=="},
                },
            ],
            "isError": True,
        },
    ),
    (
        types.ListResourcesResult,
        {
            "resources": [
                {
                    "uri": "file:///a",
                    "name": "a",
                    "description": "A file",
                    "mimeType": "text/plain",
                    "size": 12,
                    "annotations": {"priority": 1},
                }
            ]
        },
    ),
    (
        types.ListResourceTemplatesResult,
        {"resourceTemplates": [{"uriTemplate": "file:///{path}", "name": "files"}]},
    ),
    (
        types.ReadResourceResult,
        {"contents": [{"uri": "file:///a", "text": "x"}, {"uri": "file:///b", "blob": ""}]},
    ),
    (
        types.ListPromptsResult,
        {
            "prompts": [
                {
                    "name": "review",
                    "description": "Reviews code.",
                    "arguments": [{"name": "code", "description": "What", "required": True}],
                }
            ]
        },
    ),
    (
        types.GetPromptResult,
        {
            "description": "A review",
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "Look"}},
                {
                    "role": "assistant",
                    "content": {
                        "type": "resource",
                        "resource": {"uri": "file:///a", "text": "x"},
                        "annotations": {"audience": ["assistant"]},
                    },
                },
            ],
        },
    ),
    (types.CompleteResult, {"completion": {"values": ["a"], "total": 7, "hasMore": True}}),
    (types.PromptReference, {"type": "ref/prompt", "name": "review"}),
    (types.ResourceTemplateReference, {"type": "ref/resource", "uri": "file:///{path}"}),
    (
        types.CreateMessageRequestParams,
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
            "modelPreferences": {
                "hints": [{"name": "small"}, {}],
                "costPriority": 1,
                "speedPriority": 0,
                "intelligencePriority": 0.25,
            },
            "systemPrompt": "Short.",
            "includeContext": "thisServer",
            "temperature": 0.1,
            "maxTokens": 20,
            "stopSequences": ["\n"],
            "metadata": {"tier": 1},
        },
    ),
    (
        types.CreateMessageResult,
        {
            "role": "assistant",
            "content": {"type": "text", "text": "Hello"},
            "model": "small-1",
            "stopReason": "endTurn",
        },
    ),
    (types.ListRootsResult, {"roots": [{"uri": "file:///home", "name": "home"}]}),
    (types.ListRootsRequestParams, {"_meta": {"progressToken": 1}}),
    (types.LoggingMessageNotificationParams, {"level": "info", "data": [1, None]}),
    (types.ErrorObject, {"code": -32601, "message": "No such method", "data": None}),
]

MARCH_2025: list[tuple[type[types.WireModel], dict[str, Any]]] = [
    (
        types.ListToolsResult,
        {
            "tools": [
                {
                    "name": "delete",
                    "inputSchema": {"type": "object"},
                    "annotations": {
                        "title": "Delete a file",
                        "readOnlyHint": False,
                        "destructiveHint": True,
                        "idempotentHint": True,
                        "openWorldHint": False,
                    },
                }
            ]
        },
    ),
    (
        types.CallToolResult,
        {"content": [{"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}]},
    ),
    (
        types.SamplingMessage,
        {"role": "user", "content": {"type": "audio", "data": "", "mimeType": "audio/wav"}},
    ),
]

JUNE_2025: list[tuple[type[types.WireModel], dict[str, Any]]] = [
    (
        types.Tool,
        {
            "name": "weather",
            "title": "Weather",
            "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
            "outputSchema": {"type": "object", "properties": {"degrees": {"type": "number"}}},
            "_meta": {"example.com/tier": "free"},
        },
    ),
    (
        types.CallToolResult,
        {
            "content": [
                {"type": "text", "text": '{"degrees": 3}', "_meta": {"a": 1}},
                {
                    "type": "resource_link",
                    "uri": "file:///report",
                    "name": "report",
                    "title": "The report",
                    "annotations": {"lastModified": "2025-06-18T00:00:00Z"},
                },
            ],
            "structuredContent": {"degrees": 3},
        },
    ),
    (
        types.ElicitRequestFormParams,
        {
            "message": "Who are you?",
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1, "format": "email"},
                    "age": {"type": "integer", "minimum": 0, "maximum": 150},
                    "member": {"type": "boolean", "default": False},
                    "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
                },
                "required": ["name"],
            },
        },
    ),
    (types.ElicitResult, {"action": "accept", "content": {"name": "a", "age": 3, "member": True}}),
    (types.ElicitResult, {"action": "decline"}),
    (types.PromptReference, {"type": "ref/prompt", "name": "review", "title": "Review"}),
]

CREATED = {"createdAt": "2026-07-28T10:00:00Z", "lastUpdatedAt": "2026-07-28T10:00:01Z"}
TASKS_EXTENSION: list[tuple[type[types.WireModel], dict[str, Any]]] = [
    (
        types.Task,
        {
            "taskId": "t1",
            "status": "working",
            "statusMessage": "Digging",
            "ttlMs": None,
            "pollIntervalMs": 500,
            **CREATED,
        },
    ),
    (
        types.Task,
        {
            "taskId": "t1",
            "status": "input_required",
            "ttlMs": 60000,
            "inputRequests": {"q": {"method": "roots/list"}},
            **CREATED,
        },
    ),
    (
        types.Task,
        {
            "taskId": "t1",
            "status": "failed",
            "ttlMs": 1,
            "error": {"code": -32602, "message": "No"},
            **CREATED,
        },
    ),
]


@pytest.mark.parametrize(
    ("model", "sample"),
    [
        pytest.param(model, sample, id=f"{revision}-{model.__name__}-{number}")
        for revision, table in {
            "2024-11-05": NOVEMBER_2024,
            "2025-03-26": MARCH_2025,
            "2025-06-18": JUNE_2025,
            "tasks-extension": TASKS_EXTENSION,
        }.items()
        for number, (model, sample) in enumerate(table)
    ],
)
def test_a_sample_is_understood_and_comes_back_as_it_was(
    model: type[types.WireModel], sample: dict[str, Any]
) -> None:
    parsed = model.from_wire(sample)

    assert parsed.to_wire() == sample
    assert not parsed.model_extra
