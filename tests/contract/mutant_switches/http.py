"""Mutants of Streamable HTTP: exchanges, streams, sessions, connections."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from requests.auth import HTTPBasicAuth
from requests.utils import get_netrc_auth

from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import ConnectionLost, ProtocolError
from syncmcp.transports import _http_reply as reply
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.mutant_switches.change import Function

EVENTS = "syncmcp.transports._http_reply:EventStream"
HTTP = "syncmcp.transports.http:HttpTransport"
SESSION = "syncmcp._http.session:HttpSession"


def _sending(edit: Callable[[str, Any], str]) -> Callable[[Function], Function]:
    """Change the headers of every HTTP request in place, and its method."""

    def change(original: Function) -> Function:
        def send(self: Any, exchange: Any, method: str, url: str, headers: Any, *body: Any) -> Any:
            return original(self, exchange, edit(method, headers), url, headers, *body)

        return send

    return change


def _put_instead(method: str, headers: Any) -> str:
    return "PUT" if method == "POST" else method


def _accept_json_alone(method: str, headers: Any) -> str:
    if method == "POST":
        headers["Accept"] = "application/json"
    return method


def _accept_anything(method: str, headers: Any) -> str:
    if method == "GET":
        headers["Accept"] = "*/*"
    return method


def _forget_the_last_event(method: str, headers: Any) -> str:
    headers.pop("Last-Event-ID", None)
    return method


def _forget_the_session(method: str, headers: Any) -> str:
    headers.pop("Mcp-Session-Id", None)
    return method


def _post_arrays(original: Function) -> Function:
    def send(self: Any, exchange: Any, method: str, url: str, headers: Any, *body: Any) -> Any:
        return original(self, exchange, method, url, headers, *(b"[%b]" % text for text in body))

    return send


def _stumble_over_events(original: Function) -> Function:
    def read_events(self: Any, *_: Any) -> None:
        raise ProtocolError("an event stream is no answer")

    return read_events


def _need_a_listening_stream(original: Function) -> Function:
    def listen_once(self: Any, *args: Any) -> bool:
        again = bool(original(self, *args))
        if not again:
            self._receiver.lost(ConnectionLost("the server lets nobody listen"))
        return again

    return listen_once


def _read_header_names_as_written(original: Function) -> Function:
    def send(self: Any, *args: Any, **named: Any) -> Any:
        response = original(self, *args, **named)
        response.headers = dict(response.headers)
        return response

    return send


def _send_again_what_was_lost(original: Function) -> Function:
    def exchange(self: Any, out: Any, exchange: Any) -> None:
        try:
            original(self, out, exchange)
        except ConnectionLost:
            original(self, out, exchange)

    return exchange


def _leave_refusals_unread(original: Function) -> Function:
    def read_refusal(self: Any, out: Any, exchange: Any, response: Any, headers: Any) -> None:
        raise reply.error_for_status(response, headers, b"", self._secrets)

    return read_refusal


def _wait_for_a_full_buffer(original: Function) -> Function:
    def body_of(*args: Any, **named: Any) -> Any:
        held = b""
        for piece in original(*args, **named):
            held += piece
            if len(held) >= 8192:
                yield held
                held = b""
        if held:
            yield held

    return body_of


class _EachTime(Deadline):
    """A limit that begins anew with each operation of a socket."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__(seconds)
        self.at = None

    def remaining(self) -> float | None:
        return self.seconds


def _limit_each_read(original: Function) -> Function:
    return lambda self, deadline: original(self, _EachTime(deadline.seconds))


def _ask_netrc(original: Function) -> Function:
    def init(self: Any, config: Any, connections: int) -> None:
        original(self, config, connections)
        found = get_netrc_auth(config.url)
        if found is not None:
            self._auth = HTTPBasicAuth(*found)

    return init


def _start_a_thread_first(original: Function) -> Function:
    def close(self: Any, deadline: Any) -> None:
        thread = threading.Thread(target=original, args=(self, deadline), daemon=True)
        thread.start()
        thread.join()

    return close


def editing_lines(edit: Callable[[list[bytes]], list[bytes]]) -> Callable[[Function], Function]:
    """Change the lines of each event before their fields are read."""

    def change(original: Function) -> Function:
        def end_event(self: Any) -> bytes:
            self._event[:] = b"\n".join(edit(bytes(self._event).split(b"\n")))
            found: bytes = original(self)
            return found

        return end_event

    return change


def _read_comments_as_data(lines: list[bytes]) -> list[bytes]:
    return [b"data" + line if line.startswith(b":") else line for line in lines]


def _overlook_retry(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if not line.startswith(b"retry")]


def _lose_ids_without_data(original: Function) -> Function:
    def end_event(self: Any) -> bytes:
        before = self.last_id
        data = bytes(original(self))
        if not data:
            self.last_id = before
        return data

    return end_event


EXCHANGES = (
    Mutant(
        "messages-are-put",
        "messages do not travel by POST",
        f"{SESSION}.send",
        _sending(_put_instead),
        ("HTL-01",),
    ),
    Mutant(
        "arrays-posted",
        "each message is posted in an array of its own",
        f"{SESSION}.send",
        _post_arrays,
        ("HTM-01",),
    ),
    Mutant(
        "json-alone-accepted",
        "a POST does not ask for event streams",
        f"{SESSION}.send",
        _sending(_accept_json_alone),
        ("HTL-02", "HTM-02"),
    ),
    Mutant(
        "streams-are-no-answer",
        "an answer in an event stream is not found",
        f"{HTTP}._read_events",
        _stumble_over_events,
        ("HTL-03", "HTM-02"),
    ),
    Mutant(
        "header-names-as-written",
        "a response's headers are found in one spelling only",
        "syncmcp._http.connections:Adapter.send",
        _read_header_names_as_written,
        ("HTM-07",),
    ),
    Mutant(
        "lost-and-sent-again",
        "what was lost with its stream is sent once more with its id",
        f"{HTTP}._exchange",
        _send_again_what_was_lost,
        ("HTM-10",),
    ),
    Mutant(
        "refusals-unread",
        "what stands in the body of a 4xx is not looked at",
        f"{HTTP}._read_error",
        _leave_refusals_unread,
        ("HTM-12", "VER-15"),
    ),
    Mutant(
        "streams-left-open",
        "giving up a call does not end its exchange",
        f"{HTTP}.cancel",
        always("unknown"),
        ("HTM-09", "H1b"),
    ),
    Mutant(
        "sockets-closed",
        "a socket that another thread reads is closed, not shut down",
        "syncmcp._http.exchange:shut_down",
        lambda original: lambda sock: sock.close(),
        ("H1",),
    ),
    Mutant(
        "hands-kept-on-connections",
        "a finished exchange can still end the connection it used",
        "syncmcp._http.exchange:AbortableExchange.release",
        always(None),
        ("H1c",),
    ),
    Mutant(
        "limits-for-each-read",
        "a limit holds for each read of the socket, not for the exchange",
        "syncmcp._http.exchange:AbortableExchange.__init__",
        _limit_each_read,
        ("H5",),
    ),
    Mutant(
        "causes-hidden",
        "every failure of the network is the same error",
        "syncmcp._http.errors:_classify",
        lambda original: lambda chain, exchange: ConnectionLost("something went wrong"),
        ("8",),
    ),
    Mutant(
        "netrc-asked",
        "credentials of `~/.netrc` replace the caller's",
        f"{SESSION}.__init__",
        _ask_netrc,
        ("H4",),
    ),
    Mutant(
        "ten-connections",
        "ten connections are kept, however many calls run",
        "syncmcp._http.connections:Adapter.__init__",
        lambda original: lambda self, connections: original(self, 10),
        ("H6",),
    ),
)

STREAMS = (
    Mutant(
        "comments-read",
        "comment lines of an event stream count as data",
        f"{EVENTS}._end_event",
        editing_lines(_read_comments_as_data),
        ("HTM-08",),
    ),
    Mutant(
        "retry-overlooked",
        "the pause that a stream asks for is not kept",
        f"{EVENTS}._end_event",
        editing_lines(_overlook_retry),
        ("HTL-07",),
    ),
    Mutant(
        "ids-without-data-lost",
        "an event that has only an id changes nothing",
        f"{EVENTS}._end_event",
        _lose_ids_without_data,
        ("HTL-15", "H3"),
    ),
    Mutant(
        "buffers-filled-first",
        "events wait until a buffer is full",
        "syncmcp._http.session:body_of",
        _wait_for_a_full_buffer,
        ("H2",),
    ),
    Mutant(
        "never-resumed",
        "a stream that ended early is not taken up again",
        "syncmcp.transports.http:ReconnectPolicy.next_pause",
        always(None),
        ("HTL-08",),
    ),
    Mutant(
        "resumed-anywhere",
        "a stream is taken up without saying where it broke",
        f"{SESSION}.send",
        _sending(_forget_the_last_event),
        ("HTL-09",),
    ),
    Mutant(
        "listening-to-anything",
        "the listening GET does not ask for an event stream",
        f"{SESSION}.send",
        _sending(_accept_anything),
        ("HTL-04",),
    ),
    Mutant(
        "listening-needed",
        "a server that lets nobody listen counts as lost",
        "syncmcp.transports.http:ServerStream._open_and_read",
        _need_a_listening_stream,
        ("HTL-05",),
    ),
)

SESSIONS = (
    Mutant(
        "session-unsaid",
        "the session id is not sent back",
        f"{SESSION}.send",
        _sending(_forget_the_session),
        ("HTL-10",),
    ),
    Mutant(
        "sessions-left",
        "a session is not deleted at the end",
        f"{HTTP}._delete_session",
        always(None),
        ("HTL-12",),
    ),
    Mutant(
        "long-farewell",
        "closing waits half a minute for the answer to DELETE",
        "syncmcp.transports.http:_DELETE_SECONDS",
        lambda original: 30.0,
        ("21",),
    ),
    Mutant(
        "sessions-everywhere",
        "a stateless server is treated as if there was a session",
        f"{HTTP}.adopt",
        lambda original: lambda self, headers, stateful: original(self, headers, stateful=True),
        ("HTM-11",),
    ),
    Mutant(
        "closing-starts-a-thread",
        "closing needs a thread that is started for it",
        f"{HTTP}.close",
        _start_a_thread_first,
        ("H8",),
    ),
)

MUTANTS = EXCHANGES + STREAMS + SESSIONS
