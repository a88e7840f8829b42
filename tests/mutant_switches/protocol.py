"""Mutants of the protocol core: frames, ids, negotiation, what each era says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncmcp._protocol import dialect, jsonrpc, negotiate
from syncmcp.errors import ProtocolError, ServerError, UnsupportedVersion
from tests.mutant import Mutant
from tests.mutant_switches.change import always, effects, meta, meta_without, result, without

if TYPE_CHECKING:
    from tests.mutant_switches.change import Function

JSONRPC = "syncmcp._protocol.jsonrpc"
PEER = "syncmcp._protocol.peer:Peer"
NEGOTIATE = "syncmcp._protocol.negotiate"
STATEFUL = "syncmcp._protocol.dialect_2025:Stateful"
STATELESS = "syncmcp._protocol.dialect_2026:Stateless"


def _restart_ids(original: Function) -> Function:
    def register(self: Any, call: Any) -> bool:
        if not len(self):
            self.next_id = 1
        return bool(original(self, call))

    return register


def _share_ids(original: Function) -> Function:
    def register(self: Any, call: Any) -> bool:
        before = self.next_id
        ready = original(self, call)
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
    def final_result(self: Any, method: str, result: Any) -> Any:
        if isinstance(result, dict) and "resultType" not in result:
            raise ProtocolError("the result has no kind", method=method)
        return original(self, method, result)

    return final_result


def _take_any_kind(original: Function) -> Function:
    def final_result(self: Any, method: str, result: Any) -> Any:
        known = not isinstance(result, dict) or result.get("resultType") == "input_required"
        return original(self, method, result) if known else result

    return final_result


def _without_client_info(effect: Any) -> list[Any]:
    if isinstance(effect, negotiate.Ask) and effect.method == "initialize" and effect.params:
        kept = {name: value for name, value in effect.params.items() if name != "clientInfo"}
        return [effect._replace(params=kept)]
    return [effect]


def _notify_before_initialize(effect: Any) -> list[Any]:
    if isinstance(effect, negotiate.Ask) and effect.method == "initialize":
        return [negotiate.Tell(effect.dialect, "notifications/initialized"), effect]
    return [effect]


def _accept_any_revision(outcome: Any) -> Any:
    chosen = outcome.get("protocolVersion") if isinstance(outcome, dict) else None
    if chosen is None or chosen in dialect.STATEFUL:
        return outcome
    return {**outcome, "protocolVersion": dialect.STATEFUL[0]}


def _take_a_refused_version_for_old(original: Function) -> Function:
    def verdict(outcome: Any) -> Any:
        if isinstance(outcome, UnsupportedVersion):
            return negotiate.Legacy(dialect.STATEFUL[0])
        return original(outcome)

    return verdict


def _give_up_on_a_refused_version(original: Function) -> Function:
    def verdict(outcome: Any) -> Any:
        if isinstance(outcome, UnsupportedVersion):
            return negotiate.Fail(ProtocolError("the server refused the revision"))
        return original(outcome)

    return verdict


def _fall_back_on_one_code(original: Function) -> Function:
    def verdict(outcome: Any) -> Any:
        found = original(outcome)
        unknown_method = isinstance(outcome, ServerError) and outcome.code == -32601
        if isinstance(found, negotiate.Legacy) and not unknown_method:
            return negotiate.Fail(ProtocolError("the server refused the probe"))
        return found

    return verdict


def _skip_the_probe(original: Function) -> Function:
    def probe(hello: Any) -> Any:
        return negotiate._handshake(hello, dialect.STATEFUL[0], restarts=1)

    return probe


def _post_two_answers_in_one(original: Function) -> Function:
    def encode_result(id: Any, result: Any) -> bytes:
        return bytes(original(id, result)[:-1] + b',"error":{"code":0,"message":""}}')

    return encode_result


MESSAGES = (
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
        ("RPC-14", "HTM-01"),
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
        f"{STATELESS}.final_result",
        _demand_a_kind,
        ("RPC-15",),
    ),
    Mutant(
        "any-kind-taken",
        "a result of an unknown kind is taken for a finished one",
        f"{STATELESS}.final_result",
        _take_any_kind,
        ("RPC-16",),
    ),
    Mutant(
        "meta-keys-unchecked",
        "any `_meta` key is sent",
        "syncmcp._protocol.meta:check_keys",
        always(None),
        ("RPC-21",),
    ),
)

NEGOTIATION = (
    Mutant(
        "notify-before-initialize",
        "a notification goes out before the handshake",
        f"{NEGOTIATE}:negotiate",
        effects(_notify_before_initialize),
        ("VER-01",),
    ),
    Mutant(
        "nameless-handshake",
        "`initialize` does not say who we are",
        f"{NEGOTIATE}:negotiate",
        effects(_without_client_info),
        ("VER-02",),
    ),
    Mutant(
        "unconfirmed-handshake",
        "`notifications/initialized` is not sent",
        f"{NEGOTIATE}:negotiate",
        effects(lambda effect: [] if isinstance(effect, negotiate.Tell) else [effect]),
        ("VER-03",),
    ),
    Mutant(
        "any-revision",
        "whatever revision the server picks is accepted",
        f"{NEGOTIATE}:negotiate",
        effects(lambda effect: [effect], _accept_any_revision),
        ("VER-05",),
    ),
    Mutant(
        "capabilities-ignored",
        "requests go out that the server did not offer",
        f"{STATEFUL}.needs",
        result(lambda path: None if path is None else ()),
        ("VER-06",),
    ),
    Mutant(
        "no-revision-in-meta",
        "requests do not say their revision",
        f"{STATELESS}.params",
        meta_without("io.modelcontextprotocol/protocolVersion"),
        ("VER-08",),
    ),
    Mutant(
        "no-capabilities-in-meta",
        "requests do not say what the client can do",
        f"{STATELESS}.params",
        meta_without("io.modelcontextprotocol/clientCapabilities"),
        ("VER-09",),
    ),
    Mutant(
        "no-client-in-meta",
        "requests do not say who the client is",
        f"{STATELESS}.params",
        meta_without("io.modelcontextprotocol/clientInfo"),
        ("VER-10",),
    ),
    Mutant(
        "refused-version-is-final",
        "nothing is tried after the server named its revisions",
        f"{NEGOTIATE}:verdict",
        _give_up_on_a_refused_version,
        ("VER-11",),
    ),
    Mutant(
        "refused-version-means-old",
        "a server that named a stateless revision gets the old handshake",
        f"{NEGOTIATE}:verdict",
        _take_a_refused_version_for_old,
        ("VER-12",),
    ),
    Mutant(
        "no-probe",
        "every server gets the old handshake first",
        f"{NEGOTIATE}:_probe",
        _skip_the_probe,
        ("VER-13",),
    ),
    Mutant(
        "fallback-on-one-code",
        "only -32601 makes a server an old one",
        f"{NEGOTIATE}:verdict",
        _fall_back_on_one_code,
        ("VER-14", "18"),
    ),
    Mutant(
        "era-forgotten",
        "each connection probes anew",
        f"{NEGOTIATE}:negotiate",
        lambda original: lambda mode, hello, known=None: original(mode, hello),
        ("VER-16",),
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
        "syncmcp._protocol.headers:encode_value",
        lambda original: lambda text: text,
        ("HTM-06",),
    ),
)

CALLS = (
    Mutant(
        "cancel-by-silence",
        "over a pipe a stateless server is not told of a cancel",
        f"{STATELESS}.announces_cancel",
        always(False),
        ("STD-05",),
    ),
    Mutant(
        "cancel-by-leaving",
        "a stateful server is not told of a cancel",
        f"{STATEFUL}.announces_cancel",
        always(False),
        ("HTL-06", "14"),
    ),
    Mutant(
        "cancel-said-twice",
        "beside closing the stream a notification is sent",
        f"{STATELESS}.announces_cancel",
        always(True),
        ("HTM-09",),
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
        f"{STATELESS}.params",
        meta(lambda meta: {**meta, "progressToken": 0.5}),
        ("PRG-01",),
    ),
    Mutant(
        "one-progress-token",
        "all requests have the same progress token",
        f"{STATEFUL}.params",
        meta(lambda meta: {**meta, "progressToken": 1}),
        ("PRG-02",),
    ),
    Mutant(
        "no-progress-token",
        "a stateful server is not asked for progress",
        f"{STATEFUL}.params",
        meta_without("progressToken"),
        ("20",),
    ),
)

MUTANTS = MESSAGES + NEGOTIATION + HEADERS + CALLS
