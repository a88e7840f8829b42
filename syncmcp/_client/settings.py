"""The checked options of a client, and the pickling of clients, which keeps the options only.

Each process has one client for each configuration that is unpickled there.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

from syncmcp import types
from syncmcp._base import __version__
from syncmcp._base.checks import finite_seconds, flag, seconds, text, whole_number
from syncmcp._base.text import redact
from syncmcp._client import lifetime
from syncmcp._client.opening import Target, label_of
from syncmcp._client.retrying import Retry
from syncmcp._connection.options import check_undeclared
from syncmcp._connection.tool_schemas import OutputCheck
from syncmcp._protocol.capabilities import OfferedCapabilities, Undeclared, check_extensions
from syncmcp._protocol.negotiate import ClientHello, Negotiated, check_mode
from syncmcp._protocol.revisions import Mode
from syncmcp.cache import CacheStore
from syncmcp.config import Http, Stdio
from syncmcp.errors import UsageError
from syncmcp.handlers.context import ConnectedServer, identity_of
from syncmcp.interceptors import Interceptor
from syncmcp.transports.base import TransportSource

DEFAULT_TIMEOUT: Final = 300.0
"""The default `timeout` of a client, in seconds."""

DEFAULT_RETRY: Final = Retry()
"""The default `retry` of a client."""


@dataclass(frozen=True)
class Settings:
    """The checked options of a client; documented at `Client`."""

    target: Target
    mode: Mode
    timeout: float | None
    idle_timeout: float | None
    open_timeout: float | None
    probe_timeout: float
    close_timeout: float | None
    client_info: types.Implementation | None
    max_in_flight: int
    max_pages: int
    name: str | None
    trusted: bool
    human_timeout: float | None
    max_handlers: int
    max_questions: int
    max_questions_per_call: int
    max_rounds: int
    retry: Retry | None
    validate_output: OutputCheck
    validate_input: bool
    ping_interval: float | None
    extensions: Mapping[str, Mapping[str, Any]]
    interceptors: Sequence[Interceptor]
    cache: CacheStore | bool
    undeclared: Undeclared
    label: str = ""  # the name of the server, made once, as secrets are searched for in it

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        check_mode(self.mode)
        for limit in ("timeout", "idle_timeout", "open_timeout", "close_timeout", "human_timeout"):
            put(limit, seconds(getattr(self, limit), limit))
        put("probe_timeout", seconds(self.probe_timeout, "probe_timeout") or 0.0)
        if self.ping_interval is not None:
            put("ping_interval", finite_seconds(self.ping_interval, "ping_interval", positive=True))
        for field in fields(self):
            if field.name.startswith("max_"):
                put(field.name, whole_number(getattr(self, field.name), field.name))
        if self.client_info is not None and not hasattr(self.client_info, "to_wire"):
            raise UsageError(f"client_info must be an Implementation, not {self.client_info!r}")
        put("extensions", check_extensions(self.extensions))
        if self.name is not None:
            text(self.name, "name")
        put("label", label_of(self.target) if self.name is None else self.name)
        flag(self.trusted, "trusted")
        if self.retry is not None and not isinstance(self.retry, Retry):
            raise UsageError(f"retry must be a Retry or None, not {self.retry!r}")
        check_undeclared(self.undeclared)

    def options(self) -> dict[str, Any]:
        """The options, without handlers, that make a client of the same settings."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        del given["target"], given["label"]
        return given

    def client_hello(self, offer: OfferedCapabilities) -> ClientHello:
        """The client's description of itself; that of syncmcp by default."""
        info = self.client_info
        ours = {"name": "syncmcp", "version": __version__}
        return ClientHello(ours if info is None else info.to_wire(), offer, self.extensions)

    def connected_server(self, negotiated: Negotiated) -> ConnectedServer:
        return ConnectedServer(
            negotiated,
            name=self.label,
            trusted=self.trusted,
            extensions=self.extensions,
            identity=identity_of(self.target, self.name),
        )


Configuration: TypeAlias = tuple[object, dict[str, Any], dict[str, Any], dict[str, Any]]
"""The data for a copy of a client: its target, its options, and its handlers of requests and of
notifications, by method."""


# The unpickled clients of this process, by the digest of their configuration.
_shared: dict[str, Any] = {}
# Guards the table. Reentrant: making a client may collect garbage, which may run any code.
_shared_lock = threading.RLock()


def _end_with_process() -> None:
    """Close connections at the end of a `multiprocessing` worker, which may run no `atexit`."""
    if "multiprocessing.util" in sys.modules:
        from multiprocessing.util import Finalize

        Finalize(None, lifetime.close_all, exitpriority=0)


def _after_fork_in_child() -> None:
    """Start with an empty table: the clients of the parent belong to the parent."""
    global _shared, _shared_lock
    _shared, _shared_lock = {}, threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def reduce_client(make: Callable[..., Any], configuration: Configuration) -> tuple[Any, ...]:
    """The return value of `Client.__reduce__`; the error names a value that cannot be pickled."""
    digest = hashlib.sha256()
    for name, value in _parts(*configuration):
        digest.update(f"{name}\0".encode() + _pickled(name, value))
    return _shared_client, (digest.hexdigest(), make, configuration)


def _shared_client(key: str, make: Callable[..., Any], configuration: Configuration) -> Any:
    """The client of a configuration; made if there is none, or if the last one was closed."""
    with _shared_lock:
        client = _shared.get(key)
        if client is None or not client._core.may_open:
            if not _shared:
                _end_with_process()
            client = _shared[key] = make_client(make, configuration)
            client._shared = True
        return client


def make_client(make: Callable[..., Any], configuration: Configuration) -> Any:
    """Make a client that opens on its first call; see `reduce_client`."""
    target, options, requests, notifications = configuration
    client = make(target, **{**options, "lazy": True})
    for method, handler in requests.items():
        client.on_request(method, handler)
    for method, handler in notifications.items():
        client.on_notification(method, handler)
    return client


def _parts(
    target: object, options: dict[str, Any], *tables: dict[str, Any]
) -> Iterator[tuple[str, object]]:
    """All values that are pickled, each with the name that an error uses for it."""
    if isinstance(target, (Stdio, Http)):
        kind = type(target).__name__
        for name, value in vars(target).items():
            yield f"{name} of {kind}(...)", value
    else:
        yield "the target", target
    yield from options.items()
    for table in tables:
        for method, handler in table.items():
            yield f"the handler of {method}", handler


def _pickled(name: str, value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=4)
    except Exception as error:  # pickling runs code of the program
        if name == "the target" and not isinstance(value, TransportSource):
            advice = "A server in this process cannot be sent to another process: use threads"
        else:
            advice = (
                "Use a function or class of a module, or an object that creates its locks and"
                " connections at its first use"
            )
        raise UsageError(
            f"a client is pickled with its options, and {name} cannot be pickled:"
            f" {type(error).__name__}: {redact(str(error))}. {advice}"
        ) from error
