"""Pydantic models of the protocol: what a program gets from servers, and what it sends to them.

There is one model for each construct, with the fields of all five revisions. The docstrings say
which revisions have a construct or a field. The library's own messages (handshakes, progress,
cancelling, subscriptions) have no models. The schemas of forms have no models, either;
`syncmcp.handlers.forms` reads them. A submodule is loaded when one of its names is first used.

>>> result = client.call_tool("weather", {"city": "Bergen"})
>>> [block.text for block in result.content if isinstance(block, syncmcp.types.TextContent)]
['{"city":"Bergen","celsius":9.5,"sky":"rain"}']
>>> result.to_wire()["structuredContent"]  # the names of the protocol
{'city': 'Bergen', 'celsius': 9.5, 'sky': 'rain'}
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncmcp.types.base import *  # noqa: F403
    from syncmcp.types.client_features import *  # noqa: F403
    from syncmcp.types.content import *  # noqa: F403
    from syncmcp.types.extensions import *  # noqa: F403
    from syncmcp.types.server_features import *  # noqa: F403

_MODULES = {
    "extensions": (
        "AuthModel AuthorizationServerMetadata GetSkillResult ListSkillsResult "
        "ListTasksResult ProtectedResourceMetadata ReadResourceDirectoryResult Skill "
        "SkillResource Task TaskStatus"
    ),
    "base": (
        "Annotations BaseMetadata CacheableResult ErrorObject Icon Implementation MetaModel "
        "PaginatedResult RequestParams Result Role TaggedModel TaskMetadata WireModel"
    ),
    "server_features": (
        "CallToolResult CompleteResult Completion CompletionReference GetPromptResult "
        "ListPromptsResult ListToolsResult LoggingLevel LoggingMessageNotificationParams Prompt "
        "PromptArgument PromptMessage PromptReference PromptsCapability "
        "ResourceTemplateReference ResourcesCapability ServerCapabilities TasksCapability Tool "
        "ToolAnnotations ToolExecution ToolsCapability"
    ),
    "content": (
        "AudioContent BlobResourceContents ContentBlock EmbeddedResource ImageContent "
        "ListResourceTemplatesResult ListResourcesResult ReadResourceResult Resource "
        "ResourceContents ResourceLink ResourceTemplate SamplingMessageContentBlock "
        "TextContent TextResourceContents ToolResultContent ToolUseContent UnknownContent"
    ),
    "client_features": (
        "CreateMessageRequestParams CreateMessageResult ElicitRequestFormParams "
        "ElicitRequestURLParams ElicitResult InputRequest ListRootsRequestParams "
        "ListRootsResult ModelHint ModelPreferences Root SamplingMessage ToolChoice"
    ),
}

# For the library's own modules, which must not load the models when they are imported, either.
_INTERNAL = {
    "set_origin": "server_features",
    "set_server": "extensions",
    "single_content": "content",
}

_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

if not TYPE_CHECKING:  # type checkers would take every misspelt name for Any
    __all__ = sorted(_HOME)  # noqa: PLE0605
    _HOME |= _INTERNAL

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value


_loaded = False


def load() -> None:
    """Load all submodules, so that no call has to wait for one."""
    global _loaded
    # Once: before Python 3.11 even the import of a loaded module takes the global import lock,
    # which stays locked if Ctrl-C comes at the wrong moment.
    if not _loaded:
        for module in _MODULES:
            import_module(f"{__name__}.{module}")
        _loaded = True


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
