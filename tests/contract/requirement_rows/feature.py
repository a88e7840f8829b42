"""Calls and what they reach: cancellation, progress, time limits, lists, tools, caches, icons."""

# fmt: off
from __future__ import annotations

from .row import (
    ALL,
    DRAWING,
    FROM_2503,
    FROM_2506,
    FROM_2511,
    ONLY_2511,
    S26,
    S2511,
    SCHEMA_26,
    STATEFUL,
    STATELESS,
    Row,
)

CANCEL = f"{S26}/basic/patterns/cancellation"
OLD_CANCEL = f"{S2511}/basic/utilities/cancellation#behavior-requirements"
PROGRESS = f"{S26}/basic/patterns/progress"
OLD_PROGRESS = f"{S2511}/basic/utilities/progress#behavior-requirements"

CALLS = (
    Row("CAN-01", "MUST", ALL, f"{CANCEL}#behavior-requirements",
        "A cancel names a request of ours that is still open."),
    Row("CAN-02", "MUST NOT", STATEFUL, OLD_CANCEL,
        "The handshake is never cancelled; abandoning it ends the connection."),
    Row("CAN-03", "MUST", ONLY_2511, OLD_CANCEL,
        "A call that runs as a task is cancelled by `tasks/cancel`."),
    Row("CAN-04", "MUST", ALL, f"{CANCEL}#timing-considerations",
        "When answer and cancel cross, one of them settles the call, once."),
    Row("CAN-05", "SHOULD", ALL, f"{CANCEL}#error-handling",
        "Late responses and cancellations of unknown or finished requests are dropped."),
    Row("CAN-06", "SHOULD", STATEFUL, OLD_CANCEL,
        "A question that the server cancels is stopped and not answered."),
    Row("PRG-01", "MUST", ALL, f"{PROGRESS}#progress-flow",
        "A progress token is a string or an integer."),
    Row("PRG-02", "MUST", ALL, f"{PROGRESS}#progress-flow",
        "No two open requests have the same progress token."),
    Row("PRG-03", "MUST", STATEFUL, OLD_PROGRESS,
        "Progress of a question increases, uses its token and ends with it."),
    Row("PRG-04", "SHOULD", ALL, f"{PROGRESS}#implementation-notes",
        "Progress with an unknown token is dropped, and neither side floods."),
    Row("PRG-05", "MUST", ONLY_2511, OLD_PROGRESS,
        "A task keeps its call's progress token until it ends."),
    Row("TMO-01", "SHOULD", ALL, f"{CANCEL}#timeouts",
        "Each request has a default timeout, which a call can set."),
    Row("TMO-02", "SHOULD", ALL, f"{CANCEL}#timeouts",
        "A call that times out notifies the server and returns."),
    Row("TMO-03", "SHOULD", FROM_2503, f"{CANCEL}#timeouts",
        "Steady progress does not carry a call past its total limit."),
)

PAGES = f"{S26}/server/utilities/pagination"

LISTS = (
    Row("PAG-01", "MUST", ALL, f"{PAGES}#implementation-guidelines",
        "A cursor is sent back unchanged, also an empty one."),
    Row("PAG-02", "MUST NOT", ALL, f"{PAGES}#pagination-model",
        "Pages may be of any size, also empty, without ending the list."),
    Row("PAG-03", "SHOULD", ALL, f"{PAGES}#implementation-guidelines",
        "A list ends with a page without a cursor, even the first."),
    Row("PAG-04", "MUST", STATEFUL,
        f"{S2511}/server/utilities/pagination#implementation-guidelines",
        "A cursor is used in its own session only."),
)

TOOLS = (
    Row("TOOL-01", "MUST", FROM_2503, f"{S26}/server/tools#tool",
        "A tool's annotations count only if the caller trusts its server."),
    Row("TOOL-02", "SHOULD", FROM_2506, f"{S26}/server/tools#output-schema",
        "Structured output is checked against the schema that the tool announced."),
    Row("TOOL-03", "SHOULD", FROM_2511, f"{S26}/server/tools#error-handling",
        "A failed tool returns its content for a model to read."),
    Row("TOOL-04", "SHOULD", ALL, f"{S26}/server/tools#security-considerations",
        "Risky calls are confirmed with their inputs, limited in time, and recorded."),
    Row("TOOL-05", "SHOULD", STATELESS, f"{S26}/server/tools#tool-names",
        "Prefixes with server names separate equal tool names."),
)

DIALECTS = f"{S26}/basic/index#implementation-requirements"
REFERENCES = f"{S26}/basic/index#ref-resolution"

SCHEMAS = (
    Row("SCHM-01", "MUST", FROM_2511, DIALECTS,
        "JSON Schema 2020-12 is understood and assumed where none is named."),
    Row("SCHM-02", "MUST", FROM_2511, DIALECTS,
        "Validation follows the dialect that the schema names."),
    Row("SCHM-03", "MUST", FROM_2511, DIALECTS,
        "An unsupported dialect is an error that names it."),
    Row("SCHM-04", "SHOULD", FROM_2511, DIALECTS,
        "The documentation lists the dialects."),
    Row("SCHM-05", "MUST NOT", STATELESS, REFERENCES,
        "No `$ref` in a server's schema makes us open a connection."),
    Row("SCHM-06", "MUST", STATELESS, REFERENCES,
        "References are fetched only if that is switched on."),
    Row("SCHM-07", "SHOULD", STATELESS, REFERENCES,
        "A schema that points outside itself is refused."),
    Row("SCHM-08", "SHOULD", STATELESS, f"{S26}/basic/index#composition-keyword-resource-use",
        "Depth, size and steps of a validation are bounded."),
    Row("SCHM-09", "MUST", STATELESS, f"{S26}/server/tools#structured-content",
        "Structured output may be any JSON value, not only an object."),
    Row("SCHM-10", "MUST", FROM_2511, f"{S2511}/basic/index#schema-validation",
        "Schemas that we write are valid in the dialect they name."),
)

COMPLETING = f"{S26}/server/utilities/completion"

CONTENT = (
    Row("RES-01", "SHOULD", STATELESS, f"{S26}/server/resources#error-handling",
        "Both -32602 and -32002 mean that a resource was not found."),
    Row("RES-02", "MUST", FROM_2506, f"{S26}/server/resources#custom-uri-schemes",
        "URIs of any scheme are accepted if they follow RFC 3986."),
    Row("PMT-01", "MUST", ALL, f"{S26}/server/prompts#security",
        "Prompt arguments are checked before sending, messages on arrival."),
    Row("PMT-02", "SHOULD", ALL, f"{S26}/server/prompts#implementation-considerations",
        "Prompts are listed over all pages, from servers that declare prompts."),
    Row("CMP-01", "MUST", ALL, f"{COMPLETING}#security",
        "A completion request is checked before it is sent."),
    Row("CMP-02", "SHOULD", ALL, f"{COMPLETING}#implementation-considerations",
        "Completion while typing is delayed, cached, and sent with its context."),
    Row("LOG-01", "SHOULD", ALL, f"{S26}/server/utilities/logging#security",
        "Log messages from a server are validated and bounded."),
)

CHANGES = f"{S26}/basic/patterns/subscriptions"

SUBSCRIPTIONS = (
    Row("SUB-01", "SHOULD", STATELESS, f"{CHANGES}#acknowledgment",
        "The acknowledged subscription is compared with the requested one."),
    Row("SUB-02", "MUST", STATELESS, f"{SCHEMA_26}#SubscriptionsListenRequestParams",
        "A listener always says which changes it wants."),
    Row("SUB-03", "MUST", STATELESS, f"{CHANGES}#graceful-closure",
        "A final result, a cancellation and a broken stream each end listening."),
)

CACHING = f"{S26}/server/utilities/caching"

CACHE = (
    Row("CCH-01", "MUST NOT", STATELESS, f"{CACHING}#cache-key",
        "A cached result is used only for equal method and parameters."),
    Row("CCH-02", "MUST NOT", STATELESS, f"{CACHING}#cache-key",
        "A result that needed a user's input is not cached."),
    Row("CCH-03", "MUST NOT", STATELESS, f"{CACHING}#cache-scope-field",
        "A private result is not given to another user."),
    Row("CCH-04", "SHOULD", STATELESS, f"{CACHING}#time-to-live-ttl-field",
        "Only a positive lifetime makes a result fresh."),
    Row("CCH-05", "SHOULD NOT", STATELESS, f"{CACHING}#freshness-calculation",
        "The end of a lifetime alone sends no request."),
    Row("CCH-06", "MUST", STATELESS, f"{CACHING}#interaction-with-notifications",
        "A change notification invalidates a cached result."),
    Row("CCH-07", "SHOULD", STATELESS, f"{CACHING}#interaction-with-pagination",
        "A refused cursor discards all cached pages, and the list restarts."),
)

ICONS = (
    Row("ICN-01", "MUST", FROM_2511, f"{S26}/basic/index#icons",
        "Where icons are drawn at all, PNG and JPEG are.", DRAWING),
    Row("ICN-02", "MUST", FROM_2511, f"{S26}/basic/index#icons",
        "Icons are untrusted: unsafe schemes and redirects are refused; no credentials.",
        DRAWING),
)

ROWS = CALLS + LISTS + TOOLS + SCHEMAS + CONTENT + SUBSCRIPTIONS + CACHE + ICONS
