"""Mutants of the way to a common revision: probe, verdict, handshake, who knows what already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from syncmcp._protocol import negotiate, revisions
from syncmcp.errors import (
    ConnectFailed,
    ProtocolError,
    RequestTimeout,
    ServerError,
    UnsupportedVersion,
)
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, effects, meta_without, result

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

NEGOTIATE = "syncmcp._protocol.negotiate"
STATEFUL = "syncmcp._protocol.stateful:Stateful"
STATELESS = "syncmcp._protocol.stateless:Stateless"


def _without_client_info(effect: Any) -> list[Any]:
    if (
        isinstance(effect, negotiate.SendRequest)
        and effect.method == "initialize"
        and effect.params
    ):
        kept = {name: value for name, value in effect.params.items() if name != "clientInfo"}
        return [effect._replace(params=kept)]
    return [effect]


def _notify_before_initialize(effect: Any) -> list[Any]:
    if isinstance(effect, negotiate.SendRequest) and effect.method == "initialize":
        return [negotiate.SendNotification(effect.dialect, "notifications/initialized"), effect]
    return [effect]


def _accept_any_revision(outcome: Any) -> Any:
    chosen = outcome.get("protocolVersion") if isinstance(outcome, dict) else None
    if chosen is None or chosen in revisions.STATEFUL:
        return outcome
    return {**outcome, "protocolVersion": revisions.STATEFUL[0]}


def _take_a_refused_version_for_old(original: Function) -> Function:
    def verdict(outcome: Any) -> Any:
        if isinstance(outcome, UnsupportedVersion):
            return negotiate.Spoken(revisions.STATEFUL[0])
        return original(outcome)

    return verdict


def _give_up_on_a_refused_version(original: Function) -> Function:
    def verdict(outcome: Any) -> Any:
        if isinstance(outcome, UnsupportedVersion):
            return ProtocolError("the server refused the revision")
        return original(outcome)

    return verdict


def _fall_back_on_one_code(original: Function) -> Function:
    def verdict(outcome: Any) -> Any:
        found = original(outcome)
        unknown_method = isinstance(outcome, ServerError) and outcome.code == -32601
        if isinstance(found, negotiate.Spoken) and found.stateful and not unknown_method:
            return ProtocolError("the server refused the probe")
        return found

    return verdict


def _skip_the_probe(original: Function) -> Function:
    return lambda hello: negotiate.negotiate("legacy", hello)


def _do_not_wait_for_the_handshake(original: Function) -> Function:
    def ensure_connection(self: Any, *args: Any) -> Any:
        while self._attempt is not None:
            opening = self._opening
            if opening is not None and opening.agreed.current_dialect is not None:
                return opening
            time.sleep(0.001)
        return original(self, *args)

    return ensure_connection


def _hide_where_it_failed(original: Function) -> Function:
    def open_connection(*args: Any) -> Any:
        try:
            return original(*args)
        except ConnectFailed as error:
            raise error.__cause__ or error from None

    return open_connection


def _take_silence_for_failure(original: Function) -> Function:
    def ask(*args: Any) -> Any:
        outcome = original(*args)
        if isinstance(outcome, negotiate.ProbeTimedOut):
            return RequestTimeout("the probe was not answered")
        return outcome

    return ask


def _probe_once(original: Function) -> Function:
    return lambda self, ask, options, limit: self._send(ask, options, limit)


def _introduce_oneself_once(original: Function) -> Function:
    def request(self: Any, *args: Any) -> Any:
        made = original(self, *args)
        self._metas = {offer: {} for offer in self._metas}
        return made

    return request


def _whatever_both_sides_have(original: Function) -> Function:
    def extension(self: Any, identifier: str) -> Any:
        return self.extensions.get(identifier, {})

    return extension


MUTANTS = (
    Mutant(
        "extensions-of-any-name",
        "an extension may be called anything",
        "syncmcp._protocol.capabilities:is_prefixed",
        always(True),
        ("VER-17",),
    ),
    Mutant(
        "extensions-of-nobody",
        "an extension that one side lacks is taken for one that is there",
        "syncmcp.handlers.context:ConnectedServer.extension",
        _whatever_both_sides_have,
        ("VER-18",),
    ),
    Mutant(
        "extensions-always-on",
        "an extension is declared that nobody switched on",
        "syncmcp._client.settings:check_extensions",
        result(lambda given: {**given, "com.example/extra": {}}),
        ("VER-20",),
    ),
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
        effects(lambda effect: [] if isinstance(effect, negotiate.SendNotification) else [effect]),
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
        f"{STATEFUL}.required_capability",
        result(lambda path: None if path is None else ()),
        ("VER-06",),
    ),
    Mutant(
        "no-revision-in-meta",
        "requests do not say their revision",
        f"{STATELESS}.request",
        meta_without("io.modelcontextprotocol/protocolVersion"),
        ("VER-08",),
    ),
    Mutant(
        "no-capabilities-in-meta",
        "requests do not say what the client can do",
        f"{STATELESS}.request",
        meta_without("io.modelcontextprotocol/clientCapabilities"),
        ("VER-09",),
    ),
    Mutant(
        "no-client-in-meta",
        "requests do not say who the client is",
        f"{STATELESS}.request",
        meta_without("io.modelcontextprotocol/clientInfo"),
        ("VER-10",),
    ),
    Mutant(
        "refused-version-is-final",
        "nothing is tried after the server named its revisions",
        f"{NEGOTIATE}:interpret_probe",
        _give_up_on_a_refused_version,
        ("VER-11",),
    ),
    Mutant(
        "refused-version-means-old",
        "a server that named a stateless revision gets the old handshake",
        f"{NEGOTIATE}:interpret_probe",
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
        f"{NEGOTIATE}:interpret_probe",
        _fall_back_on_one_code,
        ("VER-14", "18"),
    ),
    Mutant(
        "silence-is-final",
        "a server that does not answer the probe is given up",
        "syncmcp._client.opening:_perform_request",
        _take_silence_for_failure,
        ("VER-14", "18"),
    ),
    Mutant(
        "death-is-final",
        "a server that dies of the probe is given up",
        "syncmcp._client.opening:_perform_request",
        result(
            lambda outcome: (
                outcome.error if isinstance(outcome, negotiate.ServerExited) else outcome
            )
        ),
        ("VER-14", "18"),
    ),
    Mutant(
        "era-forgotten",
        "each connection probes anew",
        f"{NEGOTIATE}:negotiate",
        lambda original: lambda mode, hello, known=None: original(mode, hello),
        ("VER-16",),
    ),
    Mutant(
        "probed-in-vain-again",
        "what was learnt of a command is forgotten with its client",
        "syncmcp._client.opening:RevisionMemory.find",
        always(None),
        ("VER-16",),
    ),
    Mutant(
        "probed-once",
        "a server that the probe broke is waited for as long as one that is slow",
        "syncmcp._client.opening:_Probe._send_with_repeat",
        _probe_once,
        ("VER-14", "18"),
    ),
    Mutant(
        "calls-before-the-handshake",
        "a thread calls while another one's handshake has no answer",
        "syncmcp._client.core:ClientCore.ensure_connection",
        _do_not_wait_for_the_handshake,
        ("VER-04",),
    ),
    Mutant(
        "start-unnamed",
        "a server lost at its start is a lost server like any other",
        "syncmcp._client.opening:open_connection",
        _hide_where_it_failed,
        ("VER-07", "8"),
    ),
    Mutant(
        "refusal-in-our-words",
        "what a server says when it refuses the handshake is lost",
        f"{NEGOTIATE}:_as_error",
        always(ProtocolError("the server refused")),
        ("VER-21",),
    ),
    Mutant(
        "introduced-once",
        "only the first request of a connection says what all of them need",
        f"{STATELESS}.request",
        _introduce_oneself_once,
        ("RPC-27", "VER-08", "VER-09"),
    ),
)
