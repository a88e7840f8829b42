"""What the project set out to do for the programs that use it."""

# fmt: off
from __future__ import annotations

from .row import ALL, Row


def _goal(row_id: str, duty: str, *examples: str) -> Row:
    return Row(row_id, "GOAL", ALL, "project goal", duty, examples=examples)


ROWS = (
    _goal("M-01", "Each operation blocks or returns a future, within limits, settled once.",
          "futures", "threads"),
    _goal("M-02", "One token cancels many calls: polled, awaited, called back or linked.",
          "cancellation"),
    _goal("M-03", "Roots are checked file URIs that a person may change.",
          "providing_roots"),
    _goal("M-04", "Sampling carries every parameter; undeclared tools are refused with -32602.",
          "sampling_callback"),
    _goal("M-05", "A tool loop runs a model within limits of rounds and time.",
          "tool_loop", "agent"),
    _goal("M-06", "Forms have validated flat fields; nested schemas are refused.",
          "returning_elicitations"),
    _goal("M-07", "A link is matched to its completion, awaited, and later forgotten.",
          "url_elicitation"),
    _goal("M-08", "Capabilities follow from the handlers, and a server's tool can test them."),
    _goal("M-09", "One endpoint serves POST and GET, JSON and event streams, sessions, resuming.",
          "resuming"),
    _goal("M-10", "The test server's HTTP half works in any HTTP server.", "own_http_server"),
    _goal("M-11",
          "Resource templates expand by RFC 6570 with values encoded and nothing injected.",
          "templates"),
    _goal("M-12", "Resources are subscribed, updated and released; many thousand cycles leave "
          "nothing behind.", "subscriptions"),
    _goal("M-13", "Arguments of prompts and templates are completed, with context.", "completions"),
    _goal("M-14", "Annotations are shown, and trusted only from trusted servers.",
          "tool_annotations"),
    _goal("M-15", "Structured output is checked against its compiled schema and read by type.",
          "structured_output"),
    _goal("M-16", "Progress of a future and a call's stream are blocking iterators.",
          "streaming_results"),
    _goal("M-17", "A person reviews and edits sampling before and after.", "approval_ui"),
    _goal("M-18", "A form is shown with fitting inputs, marks, descriptions, defaults and checks.",
          "returning_elicitations"),
    _goal("M-19", "A question reaches its call's interface, or gets a defined answer.",
          "per_call_ui"),
    _goal("M-20", "Nothing is approved by default; policies have budgets, rates and time limits.",
          "approval_ui"),
    _goal("M-21", "The test server has tools that ask a user and a model.",
          "agent"),
    _goal("M-22", "A test tool can sample, elicit, list roots, report and log.",
          "multiple_servers"),
    _goal("M-23", "Progress carries number, total and message to those who asked.",
          "progress_messages"),
    _goal("M-24", "A batch sends many calls in one frame, within limits.", "batches"),
    _goal("M-25", "A log callback gets all eight levels, filtered, with logger names.",
          "handle_logging"),
    _goal("M-26", "An example tutors in mathematics through reviewed sampling.",
          "sampling_callback"),
    _goal("M-27", "An example counts files inside and outside the roots.", "providing_roots"),
    _goal("M-28", "An example signs a person up in the terminal, field by field.",
          "returning_elicitations"),
    _goal("M-29", "A tool is converted for several model providers.", "multiple_models"),
    _goal("M-30", "Servers form one group and join or leave at run time.", "multiple_servers"),
    _goal("M-31", "Custom requests and notifications work both ways, with custom types.",
          "custom_method"),
    _goal("M-32", "Ping, log level and progress from the client are operations.", "handle_logging"),
    _goal("M-33", "Credentials come from environment or OAuth; people approve and see who asks.",
          "sign_in"),
    _goal("M-34", "Another client can resume a session by session and event id.",
          "resuming"),
    _goal("M-35", "Lists come whole, lazily, or a page at a time.", "demo"),
    _goal("M-36", "The architecture page names the location of each design pattern."),
)
