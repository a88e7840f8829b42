"""Steps that validate the arguments and results of tools by their listed schemas."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp import types
from syncmcp._base.checks import check_mapping, text, validate
from syncmcp._base.similar import did_you_mean
from syncmcp._base.text import logger
from syncmcp._client.pages import pages
from syncmcp._connection.tool_schemas import ValidationOptions
from syncmcp._protocol.steps import Compute, GetNegotiated, Steps
from syncmcp._protocol.tasks import AUGMENTED
from syncmcp.errors import (
    HeaderMismatch,
    InvalidParams,
    McpError,
    RequestCancelled,
    RequestTimeout,
)

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore
    from syncmcp._connection.negotiated import NegotiatedState
    from syncmcp._connection.tool_schemas import ToolSchemas
    from syncmcp.types import CallToolResult


_log = logger("syncmcp.schema")


def tool_params(name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    # The types are compared first, for speed: every call runs this.
    if type(name) is not str or not name:
        text(name, "name")
    if type(arguments) is not dict:
        check_mapping(arguments, "arguments")
    params: dict[str, Any] = {"name": name}
    if arguments is not None:
        params["arguments"] = arguments
    return params


def get_negotiated(core: ClientCore, method: str = AUGMENTED) -> Steps[NegotiatedState]:
    """The result of the handshake; connects first if necessary, for a request of `method`."""
    connection = core.live_connection()
    if connection is not None:
        return connection.agreed
    agreed: NegotiatedState = yield GetNegotiated(method)
    return agreed


def ask_for_task(core: ClientCore, name: str, params: dict[str, Any]) -> Steps[None]:
    """Ask for a task if the tool requires that (2025-11-25)."""
    tasks = (yield from get_negotiated(core)).tasks
    if tasks is None or not tasks.requested_by_client:
        return
    if (yield from task_support(core, name)) == "required":
        params["task"] = {}


def task_support(core: ClientCore, name: str) -> Steps[str | None]:
    """The task support of a tool according to the list; `None` if the list has none."""
    known = yield from _schemas_of(core, name)
    return None if known is None else known.task_support


def suggest_tools(core: ClientCore, name: str, error: InvalidParams) -> None:
    """Add similar names to the error of a call, if the list does not have the tool."""
    if name not in core.schemas.by_name:
        error.hint = did_you_mean(name, core.schemas.by_name) or None


def learn_headers(core: ClientCore, mismatch: HeaderMismatch) -> Steps[None]:
    """List the tools, after which a call that the server rejected may be sent once more.

    The server has not processed the call (spec: transports, "Client Behavior"). If the tools cannot
    be listed, `mismatch` is raised.
    """
    try:
        yield from pages("tools/list", types.ListToolsResult, core, use_cache=False)
    except (RequestCancelled, RequestTimeout):
        raise  # the call itself was cancelled or timed out
    except McpError as error:
        raise mismatch from error


def check_input(core: ClientCore, name: str, arguments: Mapping[str, Any] | None) -> Steps[None]:
    """Validate arguments by their schema before they are sent, unless the tool is not listed."""
    given: Mapping[str, Any] = arguments or {}
    cached = core.schemas.by_name.get(name)
    known = yield from _schemas_of(core, name)
    if known is None:
        return
    error: McpError | None
    error = yield Compute(partial(known.input_error, given, core.label), "not_sent")
    if error is not None and known is cached and (yield from _relist_tools(core, name)):
        newer = core.schemas.by_name.get(name)
        if newer is None:
            return
        if newer is not known:
            error = yield Compute(partial(newer.input_error, given, core.label), "not_sent")
    if error is not None:
        raise error


def checked_result(
    core: ClientCore, name: str, raw: dict[str, Any], checks: ValidationOptions
) -> Steps[CallToolResult]:
    """The result of a tool, validated by its output schema; results with `is_error` are not.

    A mismatch may mean that the schema is outdated, so the tools are listed again, once. If that
    fails, the known schema counts: the tool has run, and its result must not be lost.
    """
    result = validate(types.CallToolResult, raw, "tools/call")
    types.set_origin(result, name, core.label)
    if checks.output == "off" or result.is_error:
        return result
    schemas = core.schemas
    known = cached = schemas.by_name.get(name)
    if known is None and result.has_data:
        known = yield from _schemas_of(core, name)
    if known is None or known.output is None:
        return result
    error: McpError | None
    error = yield Compute(partial(known.output_error, result, core.label))
    if error is not None and known is cached and (yield from _relist_tools(core, name)):
        newer = schemas.by_name.get(name)
        if newer is not None and newer is not known:
            error = yield Compute(partial(newer.output_error, result, core.label))
    if error is not None and checks.output == "raise":
        raise error
    if error is not None:
        core.wire.secrets.clean(error)
        _log.warning("[%s] the result of the tool %r: %s", core.label, name, error.message)
    return result


def _schemas_of(core: ClientCore, name: str) -> Steps[ToolSchemas | None]:
    """The schemas of a tool. The tools are listed if the cached list does not have it.

    The list may be outdated without a notification. For each name it is fetched once.
    """
    schemas = core.schemas
    known = schemas.by_name.get(name)
    if known is None and name not in schemas.absent and (yield from _relist_tools(core, name)):
        known = schemas.by_name.get(name)
    return known


def _relist_tools(core: ClientCore, name: str) -> Steps[bool]:
    """List the tools to learn the schemas of one; return whether that succeeded."""
    try:
        yield from pages("tools/list", types.ListToolsResult, core, use_cache=False)
    except McpError as error:
        _log.debug("[%s] cannot list its tools: %s", core.label, error)
        return False
    core.schemas.note_absent(name)
    return True
