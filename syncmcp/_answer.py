"""Answers to what a server asks: one table of handlers, whatever way the question came."""

from __future__ import annotations

import logging
from typing import Any

from syncmcp._protocol import jsonrpc
from syncmcp.errors import Refused, UsageError
from syncmcp.handlers import HandlerContext, Handlers

_log = logging.getLogger("syncmcp.handlers")


def answer(handlers: Handlers, request: jsonrpc.Request, context: HandlerContext) -> bytes:
    """Run the handler of `request` on this thread and return the frame that answers it."""
    handler = handlers.request(request.method)
    if handler is None:
        return method_not_found(request)
    try:
        try:
            return jsonrpc.encode_result(request.id, _as_result(handler(request.params, context)))
        except Refused as refusal:
            return jsonrpc.encode_error(request.id, refusal.code, refusal.message, refusal.data)
    except BaseException:  # sys.exit() in a handler too: the server waits for an answer
        # The text stays here: it may tell a server things that are none of its business.
        _log.exception("the handler of %s failed", request.method)
        return jsonrpc.encode_error(
            request.id, jsonrpc.INTERNAL_ERROR, "the client failed to answer"
        )


def method_not_found(request: jsonrpc.Request) -> bytes:
    """The frame that refuses a request nobody handles."""
    return jsonrpc.encode_error(
        request.id, jsonrpc.METHOD_NOT_FOUND, f"this client does not handle {request.method}"
    )


def _as_result(result: object) -> dict[str, Any]:
    if result is None:
        return {}
    to_wire = getattr(result, "to_wire", None)
    if to_wire is not None:
        result = to_wire()
    if not isinstance(result, dict):
        raise UsageError(f"a handler returns a dict or a model, not {type(result).__name__}")
    return result
