"""Failures that users of other clients reported, and hazards of threads with blocking HTTP."""

# fmt: off
from __future__ import annotations

from .row import ALL, Row


def _report(row_id: str, duty: str) -> Row:
    return Row(row_id, "GUARD", ALL, "reported by users of other clients", duty)


def _hazard(row_id: str, duty: str) -> Row:
    return Row(row_id, "GUARD", ALL, "threads with blocking HTTP", duty)


REPORTS = (
    _report("1", "A client opens in one thread, works in others and closes anywhere, many of them "
            "in any order."),
    _report("2", "After many connects and lost servers no thread is left and no core is busy."),
    _report("3", "A running event loop in the same thread or process is no obstacle."),
    _report("4", "A silent, dripping, chattering or stuck server never holds a caller beyond its "
            "limit, nor the next caller."),
    _report("5", "When the server dies, every open call fails at once with exit code and stderr."),
    _report("6", "A program ends promptly with a client left open or a handler still busy."),
    _report("7", "No server process or descriptor stays behind, however the client ended."),
    _report("8", "Each kind of failed connect is one error class with its cause, never a group."),
    _report("9", "Ctrl-C reaches the caller at once, tells the server, and leaves it usable."),
    _report("10", "A server that floods stderr does not stall, and its last words are kept."),
    _report("11", "A replaced or missing `sys.stderr` does not matter."),
    _report("12", "Noise on a server's stdout is skipped and counted, and its size is bounded."),
    _report("13", "Handlers may call the client, nested and more of them than workers."),
    _report("14", "A call given up is cancelled at the server once, and its late answer dropped."),
    _report("15", "A restarted HTTP server costs one new handshake, shared by all threads."),
    _report("16", "A call that may have run is never repeated in silence."),
    _report("17", "Threads and processes that share a login refresh it once."),
    _report("18", "Old servers are reached whatever they do with the probe."),
    _report("19", "Lists have all their pages; cursors that turn in circles are an error."),
    _report("20", "Progress restarts the clock of silence, asked for even without a callback, and "
            "the total limit still ends the call."),
    _report("21", "A server that never answers the farewell does not delay closing."),
    _report("22", "Streams cut by proxies, or quiet but for comments, go on."),
    _report("23", "Many threads on one client never get each other's answers."),
    _report("24", "Headers can be made anew per request, and secrets stay with their host."),
    _report("25", "Proxies, private authorities and client certificates work."),
    _report("26", "A spawned server gets a chosen environment; a missing command is explained."),
    _report("27", "One broken server does not take down its group."),
    _report("28", "A tool's error keeps its content, returned or raised."),
    _report("29", "Output validation can be off, warn or raise, and follows a changed schema."),
    _report("30", "Progress arrives in order and before the result."),
    _report("31", "Callbacks of a call see the context variables of its caller."),
    _report("32", "A forked child gets a clear error, and a pickled client is an unopened one."),
    _report("33", "Programs that use the client can be tested without a real server."),
)

HAZARDS = (
    _hazard("H1", "A response that a thread is reading is shut down, never closed, by another."),
    _hazard("H1b", "A request still waiting for its headers can be ended from another thread."),
    _hazard("H1c", "Ending a finished request leaves its connection, now someone else's, alone."),
    _hazard("H2", "Events are delivered as they arrive, not when a buffer is full."),
    _hazard("H3", "The event parser keeps id-only and retry-only events, drops a cut-off one, "
            "takes a byte order mark and bad bytes, and has a size limit."),
    _hazard("H4", "Credentials in `~/.netrc` never replace those of the caller."),
    _hazard("H5", "A limit is for the whole exchange, not for each read of the socket."),
    _hazard("H6", "As many connections are kept as calls may be open."),
    _hazard("H7", "A busy handler does not hold the interpreter at exit."),
    _hazard("H8", "Closing works while the interpreter shuts down and starts no thread."),
    _hazard("H9", "Where waiting ignores Ctrl-C, the main thread waits in slices."),
    _hazard("H10", "An answer to a cancelled future is dropped, and the reader lives on."),
    _hazard("H11", "One thread reads a connection; no caller waits for another one's reading."),
    _hazard("H12", "A forked child does not keep a server's stdin open."),
    _hazard("H13", "A full pipe holds no caller beyond its limit, and a half-written frame is "
            "finished or ends the connection."),
)

ROWS = REPORTS + HAZARDS
