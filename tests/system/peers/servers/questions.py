"""What the Python peers ask their client, in either era.

For every server whose context is, or is made like, that of the official SDK 2.x.
"""

from __future__ import annotations

from typing import Any

from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)

from tests.system.peers.servers.forms import FORM, in_words

STATE = "asked once"


class Questions:
    """Asks, and makes a text of the answer.

    Args:
        same_stream: Whether, until 2025-11-25, a question goes where the answer of the call
            will go, or else its own way. A JSON answer leaves only the latter.
    """

    def __init__(self, *, same_stream: bool) -> None:
        self._same_stream = same_stream

    async def ask_model(self, context: Any, question: str) -> str | InputRequiredResult:
        """Has the client's model answer."""
        message = SamplingMessage(role="user", content=TextContent(text=question))
        params = CreateMessageRequestParams(messages=[message], max_tokens=100)
        result = await self._ask(context, CreateMessageRequest(params=params), CreateMessageResult)
        if isinstance(result, InputRequiredResult):
            return result
        return f"{result.model}: {result.content.text}"

    async def ask_form(self, context: Any) -> str | InputRequiredResult:
        """Has a person fill in a form."""
        params = ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
        result = await self._ask(context, ElicitRequest(params=params), ElicitResult)
        if isinstance(result, InputRequiredResult):
            return result
        return f"{result.action}: {in_words(result.content or {})}"

    async def ask_url(self, context: Any, url: str) -> str | InputRequiredResult:
        """Sends a person to a URL."""
        params = ElicitRequestURLParams(message="Please agree.", url=url, elicitation_id="agree")
        result = await self._ask(context, ElicitRequest(params=params), ElicitResult)
        return result if isinstance(result, InputRequiredResult) else result.action

    async def ask_roots(self, context: Any) -> str | InputRequiredResult:
        """Asks where it may work."""
        result = await self._ask(context, ListRootsRequest(), ListRootsResult)
        if isinstance(result, InputRequiredResult):
            return result
        return " ".join(str(root.uri) for root in result.roots)

    async def _ask(self, context: Any, request: Any, result_type: Any) -> Any:
        if context.request_context.protocol_version < "2026-07-28":
            related = context.request_id if self._same_stream else None
            metadata = ServerMessageMetadata(related_request_id=related)
            return await context.session.send_request(request, result_type, metadata=metadata)
        if context.input_responses is None:
            return InputRequiredResult(input_requests={"answer": request}, request_state=STATE)
        if context.request_state != STATE:
            raise ValueError(f"the state came back as {context.request_state!r}")
        return result_type.model_validate(context.input_responses["answer"].model_dump())
