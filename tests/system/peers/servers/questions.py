"""The tools of the Python peers that report progress or ask questions, in all revisions.

They are for servers whose context has the interface of the official SDK 2.x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

from tests.system.peers.servers import tools
from tests.system.peers.servers.tools import FORM, in_words

if TYPE_CHECKING:
    from collections.abc import Callable

STATE = "asked once"


def context_tools(context_type: Any, *, same_stream: bool) -> list[Callable[..., Any]]:
    """Return the tools, with a parameter of type `context_type`.

    Args:
        context_type: The annotation by which the SDK finds the parameter for the context.
        same_stream: True if, until 2025-11-25, questions are sent on the stream of the call;
            otherwise on the listening stream. If the result is JSON, this must be False.
    """

    async def ask(context: Any, request: Any, result_type: Any) -> Any:
        if context.request_context.protocol_version < "2026-07-28":
            metadata = ServerMessageMetadata(
                related_request_id=context.request_id if same_stream else None
            )
            return await context.session.send_request(request, result_type, metadata=metadata)
        if context.input_responses is None:
            return InputRequiredResult(input_requests={"answer": request}, request_state=STATE)
        if context.request_state != STATE:
            raise ValueError(f"the state came back as {context.request_state!r}")
        return result_type.model_validate(context.input_responses["answer"].model_dump())

    async def count(steps: int, context: Any) -> str:
        """Report progress once for each step."""
        return await tools.count(steps, context.report_progress)

    async def ask_model(question: str, context: Any) -> str | InputRequiredResult:
        """Ask the client's model."""
        message = SamplingMessage(role="user", content=TextContent(text=question))
        params = CreateMessageRequestParams(messages=[message], max_tokens=100)
        result = await ask(context, CreateMessageRequest(params=params), CreateMessageResult)
        if isinstance(result, InputRequiredResult):
            return result
        return f"{result.model}: {result.content.text}"

    async def ask_form(context: Any) -> str | InputRequiredResult:
        """Ask for a form."""
        params = ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
        result = await ask(context, ElicitRequest(params=params), ElicitResult)
        if isinstance(result, InputRequiredResult):
            return result
        return f"{result.action}: {in_words(result.content or {})}"

    async def ask_url(url: str, context: Any) -> str | InputRequiredResult:
        """Ask for a visit to a URL."""
        params = ElicitRequestURLParams(message="Please agree.", url=url, elicitation_id="agree")
        result = await ask(context, ElicitRequest(params=params), ElicitResult)
        return result if isinstance(result, InputRequiredResult) else result.action

    async def ask_roots(context: Any) -> str | InputRequiredResult:
        """Ask for the roots."""
        result = await ask(context, ListRootsRequest(), ListRootsResult)
        if isinstance(result, InputRequiredResult):
            return result
        return " ".join(str(root.uri) for root in result.roots)

    found: list[Callable[..., Any]] = [count, ask_model, ask_form, ask_url, ask_roots]
    for tool in found:
        tool.__annotations__["context"] = context_type
    return found
