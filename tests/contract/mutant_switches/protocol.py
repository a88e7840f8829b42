"""Mutants of the protocol core: frames, ids, negotiation, what each era says."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from syncmcp._protocol import jsonrpc
from syncmcp._protocol.revisions import KNOWN_REQUESTS
from syncmcp._protocol.steps import AnswerInput, Send
from syncmcp.errors import HeaderMismatch, ProtocolError
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import (
    always,
    effects,
    meta,
    meta_without,
    result,
    without,
)

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

JSONRPC = "syncmcp._protocol.jsonrpc"
PEER = "syncmcp._protocol.jsonrpc:RequestTable"
STATEFUL = "syncmcp._protocol.stateful:Stateful"
STATELESS = "syncmcp._protocol.stateless:Stateless"
ROUND = "syncmcp._protocol.steps:InputRound"
EXCHANGE = "syncmcp._protocol.exchange:exchange"


def _restart_ids(original: Function) -> Function:
    def register(self: Any, call: Any, **named: Any) -> bool:
        if not len(self):
            self.next_id = 1
        return bool(original(self, call, **named))

    return register


def _overwrite_trace(original: Function) -> Function:
    def with_trace_context(options: Any, params: Any) -> Any:
        original(options, params)
        return {**(options.meta or {}), **(options.trace or {})}

    return with_trace_context


def _share_ids(original: Function) -> Function:
    def register(self: Any, call: Any, **named: Any) -> bool:
        before = self.next_id
        ready = original(self, call, **named)
        self.next_id = before
        return bool(ready)

    return register


def _stumble_over_errors_without_id(original: Function) -> Function:
    def read_error(error: object, id: object) -> Any:
        if id is None:
            raise ValueError("an error without an id")
        return original(error, id)

    return read_error


def _demand_a_kind(original: Function) -> Function:
    def read_result(self: Any, method: str, result: Any) -> Any:
        if isinstance(result, dict) and "resultType" not in result:
            raise ProtocolError("the result has no kind", method=method)
        return original(self, method, result)

    return read_result


def _take_any_kind(original: Function) -> Function:
    def read_result(self: Any, method: str, result: Any) -> Any:
        known = not isinstance(result, dict) or result.get("resultType") == "input_required"
        return original(self, method, result) if known else result

    return read_result


def _post_two_answers_in_one(original: Function) -> Function:
    def encode_result(id: Any, result: Any) -> bytes:
        return bytes(original(id, result)[:-1] + b',"error":{"code":0,"message":""}}')

    return encode_result


def _refuse_with_a_reserved_code(original: Function) -> Function:
    def refuse(self: Any, id: Any, code: int, reason: str) -> None:
        original(self, id, -32002 if code == jsonrpc.METHOD_NOT_FOUND else code, reason)

    return refuse


def _without_foreign_meta(result: Any) -> Any:
    if not isinstance(result, dict) or "_meta" not in result:
        return result
    kept = {
        key: value for key, value in result["_meta"].items() if "modelcontextprotocol" not in key
    }
    return {**result, "_meta": kept}


def _name_another_request(original: Function) -> Function:
    def post(self: Any, method: str, params: Any, *args: Any, **named: Any) -> None:
        if method == "notifications/cancelled":
            params = {**params, "requestId": params["requestId"] + 1000}
        original(self, method, params, *args, **named)

    return post


def _give_ids_again(original: Function) -> Function:
    def register(self: Any, call: Any, **named: Any) -> bool:
        if self.next_id > 1 and self.get(self.next_id - 1) is None:
            self.next_id -= 1
        return bool(original(self, call, **named))

    return register


def _reformat_state(original: Function) -> Function:
    def retry(self: Any, params: Any, answers: Any) -> Any:
        made = original(self, params, answers)
        with suppress(KeyError, ValueError):
            made["requestState"] = json.dumps(json.loads(made["requestState"]))
        return made

    return retry


def _drop_an_empty_state(retried: dict[str, Any]) -> dict[str, Any]:
    if not retried.get("requestState"):
        retried.pop("requestState", None)
    return retried


def _keep_the_last_state(original: Function) -> Function:
    def changed(*args: Any, **named: Any) -> Any:
        return _add_kept(("requestState",))(original)(*args, **named)

    return changed


def _add_kept(keys: tuple[str, ...]) -> Any:
    """Have each request send the last of these parameters along that was sent by one before."""
    kept: dict[str, Any] = {}

    def edit(effect: Any) -> list[Any]:
        if not isinstance(effect, Send):
            return [effect]
        params = effect.params or {}
        kept.update((key, params[key]) for key in keys if key in params)
        return [effect._replace(params={**params, **kept})] if kept else [effect]

    return effects(edit)


def _number_answers(original: Function) -> Function:
    def retry(self: Any, params: Any, answers: Any) -> Any:
        if answers is not None:
            answers = {str(index): each for index, each in enumerate(answers.values())}
        return original(self, params, answers)

    return retry


def _mangle_frames(old: bytes, new: bytes) -> Any:
    """Have the memory transport send other frames than were given to it."""

    def change(original: Function) -> Function:
        def send(self: Any, out: Any) -> None:
            out.body = out.body.replace(old, new)
            original(self, out)

        return send

    return change


MESSAGES = (
    Mutant(
        "trace-context-of-any-shape",
        "whatever stands below the keys of trace context is sent",
        "syncmcp._protocol.metadata:has_trace_shape",
        always(True),
        ("RPC-22",),
    ),
    Mutant(
        "trace-context-mixed",
        "a caller's trace context is overwritten by that of the current span",
        "syncmcp._connection.options:with_trace_context",
        _overwrite_trace,
        ("RPC-22",),
    ),
    Mutant(
        "no-jsonrpc",
        "a message does not say that it is JSON-RPC 2.0",
        f"{JSONRPC}:_encode",
        result(lambda frame: frame.replace(b'"jsonrpc":"2.0",', b"")),
        ("RPC-01",),
    ),
    Mutant(
        "ids-with-a-fraction",
        "requests have ids like 1.0",
        f"{JSONRPC}:encode_request",
        lambda original: lambda id, *rest: original(float(id), *rest),
        ("RPC-02",),
    ),
    Mutant(
        "ids-are-null",
        "requests have a null id",
        f"{JSONRPC}:encode_request",
        lambda original: lambda id, *rest: original(None, *rest),
        ("RPC-03",),
    ),
    Mutant(
        "ids-start-again",
        "counting begins anew whenever no request is open",
        f"{PEER}.register",
        _restart_ids,
        ("RPC-04",),
    ),
    Mutant(
        "ids-are-shared",
        "all open requests have one id",
        f"{PEER}.register",
        _share_ids,
        ("RPC-05", "23"),
    ),
    Mutant(
        "answers-with-another-id",
        "an answer has the server's id as a string",
        f"{JSONRPC}:encode_result",
        lambda original: lambda id, result: original(str(id), result),
        ("RPC-06",),
    ),
    Mutant(
        "answers-with-an-error-too",
        "an answer has a result and an error",
        f"{JSONRPC}:encode_result",
        _post_two_answers_in_one,
        ("RPC-07",),
    ),
    Mutant(
        "error-codes-as-text",
        "the code of an error we send is a string",
        f"{JSONRPC}:encode_error",
        lambda original: lambda id, code, *rest: original(id, str(code), *rest),
        ("RPC-08",),
    ),
    Mutant(
        "notifications-with-an-id",
        "a notification has an id",
        f"{JSONRPC}:encode_notification",
        lambda original: lambda method, params: jsonrpc.encode_request(0, method, params),
        ("RPC-09",),
    ),
    Mutant(
        "stumble-over-errors-without-id",
        "an error that names no request raises where frames are read",
        f"{JSONRPC}:_read_error",
        _stumble_over_errors_without_id,
        ("RPC-10",),
    ),
    Mutant(
        "latin-1",
        "frames are not UTF-8",
        f"{JSONRPC}:_encode",
        result(lambda frame: frame.decode().encode("latin-1", "replace")),
        ("RPC-11",),
    ),
    Mutant(
        "first-of-a-batch",
        "only the first message of an array is read",
        f"{JSONRPC}:decode",
        result(lambda messages: messages[:1]),
        ("RPC-12",),
    ),
    Mutant(
        "arrays-out",
        "each message is sent in an array of its own",
        f"{JSONRPC}:_encode",
        result(lambda frame: b"[" + frame + b"]"),
        ("RPC-14",),
    ),
    Mutant(
        "line-breaks-in-frames",
        "a message is spread over two lines",
        f"{JSONRPC}:_encode",
        result(lambda frame: b"{\n" + frame[1:]),
        ("STD-01",),
    ),
    Mutant(
        "kind-demanded",
        "a result that does not say its kind is refused",
        f"{STATELESS}.read_result",
        _demand_a_kind,
        ("RPC-15",),
    ),
    Mutant(
        "any-kind-taken",
        "a result of an unknown kind is taken for a finished one",
        f"{STATELESS}.read_result",
        _take_any_kind,
        ("RPC-16",),
    ),
    Mutant(
        "meta-keys-unchecked",
        "any `_meta` key is sent",
        "syncmcp._protocol.metadata:check_keys",
        always(None),
        ("RPC-21",),
    ),
)

TRANSPORTED = (
    Mutant(
        "reserved-codes-mean-something",
        "a code that servers use as they like is taken for an error we know",
        "syncmcp.errors:ServerError.codes",
        lambda codes: {**codes, -32000: HeaderMismatch, -32001: HeaderMismatch},
        ("RPC-18",),
    ),
    Mutant(
        "reserved-codes-sent",
        "a request that nobody handles is refused by a code that is reserved",
        "syncmcp._connection.server_requests:QuestionDispatcher._refuse",
        _refuse_with_a_reserved_code,
        ("RPC-19",),
    ),
    Mutant(
        "reserved-meta-dropped",
        "values below reserved `_meta` keys are lost",
        EXCHANGE,
        effects(
            lambda step: [step],
            lambda reply: reply._replace(result=_without_foreign_meta(reply.result)),
        ),
        ("RPC-20",),
    ),
    Mutant(
        "no-meta-in-memory",
        "a transport of another kind gets requests without their metadata",
        "syncmcp.transports.memory:MemoryTransport.send",
        _mangle_frames(b'"_meta"', b'"meta"'),
        ("RPC-28",),
    ),
    Mutant(
        "no-handshake-in-memory",
        "a transport of another kind gets another handshake",
        "syncmcp.transports.memory:MemoryTransport.send",
        _mangle_frames(b'"notifications/initialized"', b'"notifications/ready"'),
        ("RPC-29",),
    ),
)

HEADERS = (
    Mutant(
        "no-revision-after-the-handshake",
        "stateful HTTP requests do not name the revision",
        f"{STATEFUL}.session_headers",
        always({}),
        ("HTL-14",),
    ),
    Mutant(
        "no-revision-header",
        "stateless HTTP requests do not name the revision",
        f"{STATELESS}.headers",
        without("MCP-Protocol-Version"),
        ("HTM-03",),
    ),
    Mutant(
        "no-method-header",
        "`Mcp-Method` is missing",
        f"{STATELESS}.headers",
        without("Mcp-Method"),
        ("HTM-04",),
    ),
    Mutant(
        "no-name-header",
        "`Mcp-Name` is missing",
        f"{STATELESS}.headers",
        without("Mcp-Name"),
        ("HTM-05",),
    ),
    Mutant(
        "names-unencoded",
        "`Mcp-Name` holds any text as it is",
        "syncmcp._protocol.metadata:encode_value",
        lambda original: lambda text: text,
        ("HTM-06",),
    ),
)

CALLS = (
    Mutant(
        "cancel-by-silence",
        "over a pipe a stateless server is not told of a cancel",
        f"{STATELESS}.notifies_cancel",
        always(False),
        ("STD-05",),
    ),
    Mutant(
        "cancel-by-leaving",
        "a stateful server is not told of a cancel",
        f"{STATEFUL}.notifies_cancel",
        always(False),
        ("HTL-06", "14"),
    ),
    Mutant(
        "cancel-said-twice",
        "beside closing the stream a notification is sent",
        f"{STATELESS}.notifies_cancel",
        always(True),
        ("HTM-09",),
    ),
    Mutant(
        "cancel-names-another",
        "a cancel names a request that is not open",
        "syncmcp._connection.notifier:Notifier.post_notification",
        _name_another_request,
        ("CAN-01",),
    ),
    Mutant(
        "settled-twice",
        "whoever takes a request leaves it in the table",
        f"{PEER}.take",
        lambda original: lambda self, id: self.get(id),
        ("CAN-04", "H10"),
    ),
    Mutant(
        "progress-token-with-a-fraction",
        "progress tokens are no integers",
        f"{STATELESS}.request",
        meta(lambda meta: {**meta, "progressToken": 0.5}),
        ("PRG-01",),
    ),
    Mutant(
        "one-progress-token",
        "all requests have the same progress token",
        f"{STATEFUL}.request",
        meta(lambda meta: {**meta, "progressToken": 1}),
        ("PRG-02",),
    ),
    Mutant(
        "no-progress-token",
        "a stateful server is not asked for progress",
        f"{STATEFUL}.request",
        meta_without("progressToken"),
        ("20",),
    ),
)

ROUNDS = (
    Mutant(
        "retry-without-asking",
        "the call is sent again before anybody has answered",
        EXCHANGE,
        effects(lambda effect: [] if isinstance(effect, AnswerInput) else [effect]),
        ("MRTR-01",),
    ),
    Mutant(
        "state-lost",
        "the server's state does not go back",
        f"{ROUND}.retry",
        without("requestState"),
        ("MRTR-02",),
    ),
    Mutant(
        "empty-state-lost",
        "a state that is an empty string is taken for none",
        f"{ROUND}.retry",
        result(_drop_an_empty_state),
        ("MRTR-02",),
    ),
    Mutant(
        "state-invented",
        "a state goes back where none came",
        f"{ROUND}.retry",
        result(lambda retried: {"requestState": "", **retried}),
        ("MRTR-03",),
    ),
    Mutant(
        "state-kept",
        "a round without a state repeats the one of the round before",
        EXCHANGE,
        _keep_the_last_state,
        ("MRTR-03",),
    ),
    Mutant(
        "state-read",
        "a state that happens to be JSON is read and written anew",
        f"{ROUND}.retry",
        _reformat_state,
        ("MRTR-04",),
    ),
    Mutant(
        "ids-given-again",
        "the next leg of a call takes the id of the one before, which is over",
        f"{PEER}.register",
        _give_ids_again,
        ("MRTR-05",),
    ),
    Mutant(
        "rounds-shared",
        "answers and state of one call go along with all others",
        EXCHANGE,
        _add_kept(("inputResponses", "requestState")),
        ("MRTR-06",),
    ),
    Mutant(
        "questions-anywhere",
        "the result of any request may be a question",
        "syncmcp._protocol.steps:INPUT_METHODS",
        lambda methods: methods | KNOWN_REQUESTS,
        ("MRTR-07",),
    ),
    Mutant(
        "answers-numbered",
        "answers lose the keys of their questions",
        f"{ROUND}.retry",
        _number_answers,
        ("MRTR-08",),
    ),
    Mutant(
        "urls-of-an-error-ignored",
        "error -32042 is an error like any other",
        "syncmcp._protocol.steps:url_questions",
        always({}),
        ("ELI-18",),
    ),
    Mutant(
        "lists-for-every-revision",
        "an answer of several blocks goes to a server that knows only one",
        "syncmcp._protocol.conversation:single_block",
        lambda original: lambda result, kinds: result,
        ("SAMP-07",),
    ),
)

MUTANTS = MESSAGES + TRANSPORTED + HEADERS + CALLS + ROUNDS
