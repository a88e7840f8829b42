"""What a server asks of the client: roots, sampling, elicitation, and the rounds of a call."""

# fmt: off
from __future__ import annotations

from .row import (
    ALL,
    BEFORE_2511,
    FROM_2506,
    FROM_2511,
    ONLY_2511,
    S26,
    S2511,
    SCHEMA_26,
    SCHEMA_2511,
    STATEFUL,
    STATELESS,
    Row,
)

ROOTS = (
    Row("ROOT-01", "MUST", ALL, f"{S26}/client/roots#capabilities",
        "A client that has roots says so among its capabilities."),
    Row("ROOT-02", "MUST", ALL, f"{S26}/client/roots#root",
        "A root is a `file://` URI."),
    Row("ROOT-03", "MUST", STATEFUL, f"{S2511}/client/roots#root-list-changes",
        "Root changes are notified if the client declared that."),
    Row("ROOT-04", "MUST", ALL, f"{S26}/client/roots#security-considerations",
        "Given roots exist, are readable and allow no path traversal."),
    Row("ROOT-05", "SHOULD", ALL, f"{S26}/client/roots#implementation-guidelines",
        "A person can be asked before a server first sees the roots."),
    Row("ROOT-06", "SHOULD", STATEFUL, f"{S2511}/client/roots#error-handling",
        "Without roots the error is -32601; an internal failure is -32603."),
)

MODEL = f"{S26}/client/sampling"

SAMPLING = (
    Row("SAMP-01", "MUST", ALL, f"{MODEL}#capabilities",
        "Sampling, and tools in sampling, are declared only with a handler."),
    Row("SAMP-02", "MUST", FROM_2511, f"{SCHEMA_2511}#CreateMessageRequestParams",
        "Tools in a request are an error unless we declared them."),
    Row("SAMP-03", "MUST", ALL, f"{SCHEMA_26}#ModelPreferences",
        "Model hints are tried in order; the first match wins."),
    Row("SAMP-04", "MUST", STATELESS, f"{MODEL}#sampling-parameters",
        "The answer stays within the number of tokens asked for."),
    Row("SAMP-05", "MUST", FROM_2511, f"{MODEL}#tool-result-messages",
        "Each tool use is followed by its result, in result-only messages."),
    Row("SAMP-06", "SHOULD", ONLY_2511, f"{S2511}/client/sampling#error-handling",
        "Missing or mixed tool results are -32602; a person's no is -1."),
    Row("SAMP-07", "MUST NOT", BEFORE_2511, "seps/1577",
        "Servers of the older revisions get one content block, not a list."),
    Row("SAMP-08", "MUST", ALL, f"{MODEL}#security-considerations",
        "Messages of a model appear in no log or error."),
    Row("SAMP-09", "SHOULD", ALL, f"{MODEL}#security-considerations",
        "A person can approve; rate, rounds and content are limited and checked."),
)

FORM = f"{S26}/client/elicitation"
OLD_FORM = f"{S2511}/client/elicitation"

ELICITATION = (
    Row("ELI-01", "MUST", FROM_2506, f"{FORM}#capabilities",
        "A client that answers forms or links declares elicitation."),
    Row("ELI-02", "MUST", FROM_2511, f"{FORM}#capabilities",
        "At least one mode is meant: an empty declaration stands for forms."),
    Row("ELI-03", "MUST", FROM_2511, f"{FORM}#elicitation-requests",
        "A request without a mode is a form."),
    Row("ELI-04", "MUST", ONLY_2511, f"{OLD_FORM}#error-handling",
        "A mode that was not declared is answered -32602."),
    Row("ELI-05", "MUST", FROM_2511, f"{FORM}#user-interaction-model",
        "The person sees which server is asking."),
    Row("ELI-06", "MUST", FROM_2511, f"{FORM}#user-interaction-model",
        "Declining and cancelling are plain choices besides answering."),
    Row("ELI-07", "MUST", FROM_2511, f"{FORM}#user-interaction-model",
        "Answers can be reviewed and changed before they are sent."),
    Row("ELI-08", "MUST", FROM_2511, f"{FORM}#user-interaction-model",
        "A link is opened only after the person agreed to its host."),
    Row("ELI-09", "MUST NOT", FROM_2511, f"{FORM}#safe-url-handling",
        "Nothing behind a link is fetched ahead, not even to describe it."),
    Row("ELI-10", "MUST NOT", FROM_2511, f"{FORM}#safe-url-handling",
        "No link opens by itself."),
    Row("ELI-11", "MUST", FROM_2511, f"{FORM}#safe-url-handling",
        "The whole address is shown."),
    Row("ELI-12", "MUST", FROM_2511, f"{FORM}#safe-url-handling",
        "Neither program nor model can look into the opened page."),
    Row("ELI-13", "SHOULD", FROM_2511, f"{FORM}#safe-url-handling",
        "The host is emphasized, look-alikes carry warnings, other links are not clickable."),
    Row("ELI-14", "SHOULD", FROM_2506, f"{FORM}#form-mode-security",
        "Fields begin with their defaults, and answers are checked against the schema."),
    Row("ELI-15", "MUST", ONLY_2511,
        f"{OLD_FORM}#completion-notifications-for-url-mode-elicitation",
        "A completion for an unknown or finished link is ignored."),
    Row("ELI-16", "MUST", ONLY_2511, f"{SCHEMA_2511}#ElicitRequestURLParams",
        "The id of a link is compared and never interpreted."),
    Row("ELI-17", "SHOULD", FROM_2511,
        f"{OLD_FORM}#completion-notifications-for-url-mode-elicitation",
        "A person can retry or cancel while a link is awaited."),
    Row("ELI-18", "MUST", ONLY_2511, f"{OLD_FORM}#url-elicitation-required-error",
        "After -32042 and its links, the call can be repeated."),
)

ROUND = f"{S26}/basic/patterns/mrtr"
RETRY = f"{ROUND}#client-requirements-basic-workflow"

ROUNDS = (
    Row("MRTR-01", "MUST", STATELESS, RETRY,
        "The call is repeated when each of its questions has an answer."),
    Row("MRTR-02", "MUST", STATELESS, RETRY,
        "A state that the server gave goes back unchanged."),
    Row("MRTR-03", "MUST NOT", STATELESS, RETRY,
        "No state is sent where none was given."),
    Row("MRTR-04", "MUST NOT", STATELESS, f"{ROUND}#inputrequiredresult",
        "The client never inspects the state."),
    Row("MRTR-05", "MUST", STATELESS, RETRY,
        "Each request of a call has its own id."),
    Row("MRTR-06", "MUST NOT", STATELESS, RETRY,
        "Questions and state of one call touch no other."),
    Row("MRTR-07", "MUST", STATELESS, f"{ROUND}#supported-requests",
        "Questions from a method that allows none fail the call."),
    Row("MRTR-08", "MUST", STATELESS, f"{SCHEMA_26}#InputResponseRequestParams",
        "Each question's key has exactly one answer."),
)

ROWS = ROOTS + SAMPLING + ELICITATION + ROUNDS
