"""Failures that users of other clients reported, and hazards of threads with blocking HTTP."""

# fmt: off
from __future__ import annotations

from .row import ALL, Row


def _report(row_id: str, duty: str) -> Row:
    return Row(row_id, "GUARD", ALL, "reported by users of other clients", duty)


def _hazard(row_id: str, duty: str) -> Row:
    return Row(row_id, "GUARD", ALL, "threads with blocking HTTP", duty)


REPORTS = (
    _report("1", "Any thread opens, uses and closes a client, many clients at once."),
    _report("2", "Many connects and lost servers leave no thread and no busy core."),
    _report("3", "A running event loop in the thread or process is no obstacle."),
    _report("4", "No silent, slow, noisy or stuck server holds callers beyond their limits."),
    _report("5", "When the server dies, open calls fail with exit code and stderr."),
    _report("6", "A program with an open client or busy handler exits promptly."),
    _report("7", "No server process or descriptor stays behind, however the client ended."),
    _report("8", "Each kind of failed connect is one error class with its cause."),
    _report("9", "Ctrl-C reaches the caller at once, notifies the server, and breaks nothing."),
    _report("10", "A server that floods stderr does not stall; last lines are kept."),
    _report("11", "A replaced or missing `sys.stderr` does not matter."),
    _report("12", "Noise on stdout is skipped, counted and bounded."),
    _report("13", "Handlers may call the client, nested and more of them than workers."),
    _report("14", "A cancelled call notifies the server once, and drops its late response."),
    _report("15", "A restarted HTTP server costs one new handshake, shared by all threads."),
    _report("16", "A call that may have run is never repeated silently."),
    _report("17", "Threads and processes that share a login refresh it once."),
    _report("18", "Old servers are reached whatever they do with the probe."),
    _report("19", "Lists have all pages; cyclic cursors are an error."),
    _report("20", "Progress restarts the idle timeout but not the total timeout."),
    _report("21", "A server that never answers the session's end does not delay closing."),
    _report("22", "Streams cut by proxies, or quiet but for comments, go on."),
    _report("23", "Many threads on one client never get each other's answers."),
    _report("24", "Headers can be computed per request, and secrets stay with their host."),
    _report("25", "Proxies, private authorities and client certificates work."),
    _report("26", "A spawned server gets a chosen environment; a missing command is explained."),
    _report("27", "One broken server does not take down its group."),
    _report("28", "A tool's error keeps its content, returned or raised."),
    _report("29", "Output validation can be off, warn or raise, and follows changed schemas."),
    _report("30", "Progress arrives in order and before the result."),
    _report("31", "Callbacks of a call see the context variables of its caller."),
    _report("32", "A forked child gets a clear error; a pickled client is unopened."),
    _report("33", "Programs that use the client can be tested without a real server."),
)

HAZARDS = (
    _hazard("H1", "A response in reading is shut down by other threads, never closed."),
    _hazard("H1b", "Another thread can end a request that waits for its headers."),
    _hazard("H1c", "Ending a finished request leaves its connection, now someone else's, alone."),
    _hazard("H2", "Events are delivered as they arrive, not when a buffer is full."),
    _hazard("H3", "The event parser handles all event forms, bad bytes and size limits."),
    _hazard("H4", "Credentials in `~/.netrc` never replace those of the caller."),
    _hazard("H5", "A timeout covers the whole exchange, not each read."),
    _hazard("H6", "As many connections are kept as calls may be open."),
    _hazard("H7", "A busy handler does not hold the interpreter at exit."),
    _hazard("H8", "Closing works while the interpreter shuts down and starts no thread."),
    _hazard("H9", "Where waiting ignores Ctrl-C, the main thread waits in slices."),
    _hazard("H10", "A response to a cancelled future is dropped, and the reader continues."),
    _hazard("H11", "One thread reads a connection; no caller waits for another one's reading."),
    _hazard("H12", "A forked child does not keep a server's stdin open."),
    _hazard("H13", "A full pipe holds no caller, and no frame stays half-written."),
)

ROWS = REPORTS + HAZARDS
