"""What the project set out to do for the programs that use it."""

# fmt: off
from __future__ import annotations

from .row import ALL, Row


def _goal(row_id: str, duty: str, *examples: str) -> Row:
    return Row(row_id, "GOAL", ALL, "project goal", duty, examples=examples)


ROWS = (
    _goal("M-01", "Each operation blocks or gives a future; limits hold, and a call settles once.",
          "futures", "threads"),
    _goal("M-02", "One token cancels calls: polled, waited for, called back, linked, with reason; "
          "late and repeated cancels do no harm.", "cancellation"),
    _goal("M-03", "Roots are checked file URIs that a person may add, remove, inspect and release; "
          "changes are announced, and a host can test whether a path lies inside.",
          "providing_roots"),
    _goal("M-04", "Sampling carries every parameter of the request and every part of the answer; "
          "tools are refused with -32602 unless declared.", "sampling_callback"),
    _goal("M-05", "A loop lets a model use tools until it is done, within a number of rounds and a "
          "time that can be set.", "tool_loop", "agent"),
    _goal("M-06", "Forms have flat fields with defaults and required marks, are validated, and are "
          "accepted, declined or left; nested schemas are refused clearly.",
          "returning_elicitations"),
    _goal("M-07", "A link is followed elsewhere, matched to its completion notice, waited for up "
          "to a limit, and forgotten with its session.", "url_elicitation"),
    _goal("M-08", "Capabilities are those the handlers support, and a server's tool can test "
          "them."),
    _goal("M-09", "One endpoint serves POST and GET, JSON and event streams, sessions, resuming.",
          "resuming"),
    _goal("M-10", "The HTTP half of the test server is an object that any HTTP server can call, "
          "with unguessable sessions that are cleaned up.", "own_http_server"),
    _goal("M-11",
          "Resource templates expand by RFC 6570 with values encoded and nothing injected.",
          "templates"),
    _goal("M-12", "Resources are subscribed, updated and released; many thousand cycles leave "
          "nothing behind.", "subscriptions"),
    _goal("M-13", "Arguments of prompts and templates are completed, with context.", "completions"),
    _goal("M-14", "Annotations of tools and content are shown and used, and believed only from "
          "servers that the caller trusts.", "tool_annotations"),
    _goal("M-15", "Structured output is checked against its compiled schema and read by type.",
          "structured_output"),
    _goal("M-16", "What a running call sends can be iterated in order, blocking, until its result: "
          "the progress of a future, or a stream of everything.", "streaming_results"),
    _goal("M-17", "A person reviews sampling before and after: who asks, details, edits, approval, "
          "text as it arrives.", "approval_ui"),
    _goal("M-18", "A form is shown with fitting inputs, marks, descriptions, defaults and checks.",
          "returning_elicitations"),
    _goal("M-19", "A question reaches the user interface of the call that caused it; with nobody "
          "there it gets a defined answer.", "per_call_ui"),
    _goal("M-20", "Nothing is approved by itself; policies have budgets, servers have rates, and "
          "the time to answer is shown and bounded.", "approval_ui"),
    _goal("M-21", "The test server has tools that ask: user preferences and help from a model.",
          "agent"),
    _goal("M-22", "A tool of the test server can sample, elicit, list roots, report and log, after "
          "testing that the client can.", "multiple_servers"),
    _goal("M-23", "Progress carries number, total and message, and goes only to those who asked.",
          "progress_messages"),
    _goal("M-24", "Batches send many calls in one frame and match the answers, with limits of size "
          "and time and errors per call.", "batches"),
    _goal("M-25", "A log callback gets all eight levels with logger names, filtered by level.",
          "handle_logging"),
    _goal("M-26", "An example tutors in mathematics through reviewed sampling.",
          "sampling_callback"),
    _goal("M-27", "An example counts files inside and outside the roots.", "providing_roots"),
    _goal("M-28", "An example signs a person up in the terminal, field by field.",
          "returning_elicitations"),
    _goal("M-29", "A tool is rendered for several model providers, changed without the client "
          "noticing.", "multiple_models"),
    _goal("M-30", "Several servers act as one group, joined and left at run time; a clash of names "
          "is an error or renamed by a hook.", "multiple_servers"),
    _goal("M-31", "Any request or notification travels either way, in types of the caller's own.",
          "custom_method"),
    _goal("M-32", "Ping, log level and progress from the client are operations.", "handle_logging"),
    _goal("M-33", "Credentials come from the environment or OAuth, roots are no fence, and people "
          "decide and see who asks.", "sign_in"),
    _goal("M-34", "Session and last event id can be kept and used to go on in another client.",
          "resuming"),
    _goal("M-35", "Lists come whole, lazily, or a page at a time.", "demo"),
    _goal("M-36", "The architecture page says where each design pattern is, and it is there."),
)
