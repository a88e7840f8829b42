"""The wire below the messages: stdio, Streamable HTTP of both eras, HTTP with SSE, headers."""

# fmt: off
from __future__ import annotations

from .row import (
    ALL,
    FROM_2503,
    FROM_2506_TO_2511,
    FROM_2511,
    ONLY_2411,
    ONLY_2511,
    S24,
    S26,
    S2511,
    STATEFUL,
    STATELESS,
    STREAMABLE,
    Row,
)

PIPE = f"{S26}/basic/transports/stdio"

STDIO = (
    Row("STD-01", "MUST NOT", ALL, PIPE,
        "A message is one line: line breaks inside it are escaped."),
    Row("STD-02", "MUST NOT", ALL, PIPE,
        "Whole protocol messages, and nothing else, are written to the server's stdin."),
    Row("STD-03", "SHOULD NOT", FROM_2511, f"{S2511}/basic/transports#stdio",
        "Text on stderr is kept for diagnosis and fails no call."),
    Row("STD-04", "MUST", STATELESS, f"{PIPE}#receiving-messages",
        "A change event goes to the listener whose subscription id it carries."),
    Row("STD-05", "MUST", STATELESS, f"{PIPE}#cancellation",
        "Over stdio, `notifications/cancelled` cancels a call."),
    Row("STD-06", "SHOULD", ALL, f"{PIPE}#shutdown",
        "Closing ends stdin, waits, terminates the process, and then kills it."),
    Row("STD-07", "SHOULD", STATELESS, f"{PIPE}#unexpected-termination",
        "A server that died is started again for the next call."),
    Row("STD-08", "MUST", STATELESS, f"{S26}/basic/patterns/subscriptions#cancellation",
        "Listeners are restored on the process that replaces a dead one."),
    Row("STD-09", "SHOULD NOT", STATELESS, f"{S26}/basic/index#statelessness",
        "A server outlives its opening thread; any thread may close it."),
    Row("STD-10", "SHOULD NOT", FROM_2503, f"{S26}/basic/authorization/index#protocol-requirements",
        "A child process gets credentials from its environment; no sign-in is attempted."),
    Row("STD-11", "SHOULD", STATEFUL, f"{S2511}/basic/transports",
        "A command can be the target of a client."),
)

OLD = f"{S2511}/basic/transports"
SENDING = f"{OLD}#sending-messages-to-the-server"
LISTENING = f"{OLD}#listening-for-messages-from-the-server"
SESSION = f"{OLD}#session-management"

STATEFUL_HTTP = (
    Row("HTL-01", "MUST", STREAMABLE, SENDING,
        "One message, one POST, always to the same endpoint."),
    Row("HTL-02", "MUST", STREAMABLE, SENDING,
        "A POST accepts both a JSON body and an event stream."),
    Row("HTL-03", "MUST", STREAMABLE, SENDING,
        "Both a JSON body and an event stream are accepted responses."),
    Row("HTL-04", "MUST", STREAMABLE, LISTENING,
        "The listening GET asks for an event stream."),
    Row("HTL-05", "MUST", STREAMABLE, LISTENING,
        "A server that answers the listening GET with 405 works without it."),
    Row("HTL-06", "SHOULD", STREAMABLE, SENDING,
        "A cancelled call sends a notification; closing the connection does not cancel."),
    Row("HTL-07", "MUST", ONLY_2511, SENDING,
        "A reconnect waits as long as the stream's `retry` asked."),
    Row("HTL-08", "SHOULD", ONLY_2511, SENDING,
        "A stream that closes early is resumed by its event id."),
    Row("HTL-09", "SHOULD", STREAMABLE, f"{OLD}#resumability-and-redelivery",
        "A stream is resumed by GET with its own last event id."),
    Row("HTL-10", "MUST", STREAMABLE, SESSION,
        "The session id a server hands out is on every later request."),
    Row("HTL-11", "MUST", STREAMABLE, SESSION,
        "After a 404, a new session begins without the old id."),
    Row("HTL-12", "SHOULD", STREAMABLE, SESSION,
        "Closing deletes the session, and a 405 to that is fine."),
    Row("HTL-13", "MUST", ONLY_2511, SESSION,
        "The session id is secret: no log, error or repr shows it."),
    Row("HTL-14", "MUST", FROM_2506_TO_2511, f"{OLD}#protocol-version-header",
        "After the handshake each HTTP request names the revision in a header."),
    Row("HTL-15", "MUST", ONLY_2511, SENDING,
        "An event without data gives its id and is otherwise no message."),
    Row("HTL-16", "SHOULD", STREAMABLE, f"{OLD}#backwards-compatibility",
        "A POST refused as by an old server leads to HTTP+SSE."),
)

OLDEST_HTTP = (
    Row("SSE-01", "MUST", ONLY_2411, f"{S24}/basic/transports#http-with-sse",
        "Messages are posted to the address the server's first event names."),
    Row("SSE-02", "MUST", ONLY_2411, f"{S24}/basic/transports#http-with-sse",
        "Server messages are read from the events named `message`."),
    Row("SSE-03", "SHOULD", STATELESS,
        f"{S26}/basic/transports/streamable-http#httpsse-transport-2024-11-05",
        "A refusal that a stateless server could send does not mean HTTP+SSE."),
)

NEW = f"{S26}/basic/transports/streamable-http"

STATELESS_HTTP = (
    Row("HTM-01", "MUST", STATELESS, f"{NEW}#sending-messages",
        "A POST carries a single request or notification."),
    Row("HTM-02", "MUST", STATELESS, f"{NEW}#sending-messages",
        "The client accepts both JSON and event streams as responses."),
    Row("HTM-03", "MUST", STATELESS, f"{NEW}#protocol-version-header",
        "Each POST names the revision in a header, as in its `_meta`."),
    Row("HTM-04", "MUST", STATELESS, f"{NEW}#standard-request-headers",
        "`Mcp-Method` repeats the method of the request."),
    Row("HTM-05", "MUST", STATELESS, f"{NEW}#standard-request-headers",
        "`Mcp-Name` repeats the tool, prompt or resource that a request is about."),
    Row("HTM-06", "MUST", STATELESS, f"{NEW}#standard-request-headers",
        "A name that no header can hold is sent in marked Base64."),
    Row("HTM-07", "MUST", STATELESS, f"{NEW}#case-sensitivity",
        "Headers are found whatever the case of their names."),
    Row("HTM-08", "MUST", STATELESS, f"{NEW}#receiving-messages",
        "Comment lines in an event stream are skipped."),
    Row("HTM-09", "MUST", STATELESS, f"{NEW}#cancellation",
        "Cancelling a call closes its response stream; no notification is sent."),
    Row("HTM-10", "MUST", STATELESS, f"{S26}/changelog#major-changes",
        "A request lost with its stream is repeated under a new id."),
    Row("HTM-11", "MUST NOT", STATELESS, f"{NEW}#earlier-streamable-http-revisions",
        "There is no session header, no resumption, no GET and no DELETE."),
    Row("HTM-12", "MUST", STATELESS, f"{NEW}#server-validation",
        "A JSON-RPC error in the body of 400 or 404 counts."),
)

MIRROR = f"{NEW}#schema-extension"
VALUES = f"{NEW}#server-behavior-for-custom-headers"

MIRRORED_HEADERS = (
    Row("XHD-01", "MUST", STATELESS, f"{NEW}#custom-headers-from-tool-parameters",
        "Arguments that the tool's schema marks for it are repeated as headers."),
    Row("XHD-02", "MUST", STATELESS, f"{S26}/server/tools#x-mcp-header",
        "Lists over HTTP omit a tool with an invalid header mark."),
    Row("XHD-03", "MUST", STATELESS, MIRROR,
        "A marked header name is a non-empty HTTP token."),
    Row("XHD-04", "MUST", STATELESS, MIRROR,
        "Two marks of one tool that differ only in case are invalid."),
    Row("XHD-05", "MUST", STATELESS, MIRROR,
        "Only strings, integers and booleans may be marked."),
    Row("XHD-06", "MUST", STATELESS, MIRROR,
        "A mark counts only where nothing but `properties` leads to it."),
    Row("XHD-07", "MUST", STATELESS, MIRROR,
        "An integer beyond exact double precision goes into no header."),
    Row("XHD-08", "SHOULD", STATELESS, MIRROR,
        "A tool left out is named in a warning with the reason."),
    Row("XHD-09", "MUST", STATELESS, VALUES,
        "Any value that is given has its header, an empty string too."),
    Row("XHD-10", "MUST", STATELESS, VALUES,
        "Null or absent arguments have no header."),
    Row("XHD-11", "MUST", STATELESS, f"{NEW}#value-encoding",
        "Headers spell numbers and booleans like JSON, and unsafe text in Base64."),
    Row("XHD-12", "MUST", STATELESS, f"{NEW}#value-encoding",
        "A value that already looks encoded is encoded once more."),
    Row("XHD-13", "MUST", STATELESS, "seps/2243",
        "The marks used are those of the schema fetched last."),
    Row("XHD-14", "SHOULD", STATELESS, f"{NEW}#client-behavior",
        "After -32020 the client lists the tools and repeats the call once."),
    Row("XHD-15", "SHOULD", STATELESS, "seps/2243",
        "Headers too large for the server (413, 431) are clear errors."),
)

ROWS = STDIO + STATEFUL_HTTP + OLDEST_HTTP + STATELESS_HTTP + MIRRORED_HEADERS
