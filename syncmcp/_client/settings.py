"""A client as a pickle: its configuration, of which each process opens one client."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from syncmcp._base.text import redact
from syncmcp._client import lifetime
from syncmcp.config import Http, Stdio
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from syncmcp._client.client import Client

Tables: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Handlers by method: of a server's own requests, and of notifications."""


class Shared:
    """The clients of one process that came out of pickles, by what their configuration is."""

    def __init__(self) -> None:
        # Guards the table; an RLock, for making a client may collect garbage, and that may run
        # anything.
        self._lock = threading.RLock()
        self._clients: dict[str, Client] = {}

    def get(self, key: str, make: Callable[[], Client]) -> Client:
        """The client of a configuration; made if there is none, or the last one was closed."""
        with self._lock:
            client = self._clients.get(key)
            if client is None or not client._wanted:
                if not self._clients:
                    _end_with_process()
                client = self._clients[key] = make()
            return client


def _end_with_process() -> None:
    """Have connections closed at the end of a worker of `multiprocessing`, too.

    On some platforms and versions it ends without `atexit`; this is what it does run.
    """
    if "multiprocessing.util" in sys.modules:
        from multiprocessing.util import Finalize

        Finalize(None, lifetime.close_all, exitpriority=0)


_shared = Shared()


def _after_fork_in_child() -> None:
    """Those of the parent go on there; here each pickle gets a new one."""
    global _shared
    _shared = Shared()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def settings_of(client: Client) -> dict[str, Any]:
    """The options that make a client like this one."""
    return {
        "mode": client._mode,
        "timeout": client._timeout,
        "idle_timeout": client._idle_timeout,
        "open_timeout": client._open_timeout,
        "probe_timeout": client._probe_timeout,
        "close_timeout": client._close_timeout,
        "on_log": client._handlers.on_log,
        "on_progress": client._handlers.on_progress,
        "on_notification": client._handlers.on_notification,
        "on_handler_error": client._handlers.on_handler_error,
        "client_info": client._client_info,
        "max_in_flight": client._max_in_flight,
        "max_pages": client._page_limit,
        "name": client._name,
        "trusted": client._trusted,
        "sampling": client._handlers.answering.sampling,
        "elicitation": client._handlers.answering.elicitation,
        "roots": client._roots,
        "approval": client._handlers.answering.approval,
        "human_timeout": client._human_timeout,
        "max_handlers": client._max_handlers,
        "max_questions": client._max_questions,
        "max_rounds": client._round_limit,
        "retry": client._repeatable.policy,
        "validate_output": client._checks.output,
        "validate_input": client._checks.input,
        "ping_interval": client._ping_interval,
        "extensions": client._extensions,
        "interceptors": client._interceptors,
        "cache": client._cache,
        "undeclared": client._undeclared,
    }


def reduced(
    make: Callable[..., Client], target: object, settings: dict[str, Any], tables: Tables
) -> tuple[Any, ...]:
    """What `Client.__reduce__` returns.

    Args:
        make: Makes a client of a target and settings.
        target: What it connects to.
        settings: Its options.
        tables: Handlers that were set one by one.

    Raises:
        UsageError: One of them cannot be pickled; it is named.
    """
    digest = hashlib.sha256()
    for name, value in _parts(target, settings, tables):
        digest.update(f"{name}\0".encode() + _pickled(name, value))
    return _of_this_process, (digest.hexdigest(), make, target, settings, tables)


def _of_this_process(
    key: str, make: Callable[..., Client], target: object, settings: dict[str, Any], tables: Tables
) -> Client:
    def shared() -> Client:
        client = configured(make, target, settings, tables)
        client._shared = True
        return client

    return _shared.get(key, shared)


def configured(
    make: Callable[..., Client], target: object, settings: dict[str, Any], tables: Tables
) -> Client:
    """Make a client that opens at its first call; see `reduced`."""
    client = make(target, **{**settings, "lazy": True})
    requests, notifications = tables
    for method, handler in requests.items():
        client.on_request(method, handler)
    for method, handler in notifications.items():
        client.on_notification(method, handler)
    return client


def _parts(
    target: object, settings: Mapping[str, Any], tables: Tables
) -> Iterator[tuple[str, object]]:
    """Everything that can be named in an error, for itself."""
    if isinstance(target, (Stdio, Http)):
        kind = type(target).__name__
        for name, value in vars(target).items():
            yield f"{name} of {kind}(...)", value
    else:
        yield "the target", target
    yield from settings.items()
    for table in tables:
        for method, handler in table.items():
            yield f"the handler of {method}", handler


def _pickled(name: str, value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=4)
    except Exception as error:  # code of whoever made the value
        raise UsageError(
            f"a client is pickled with all it was given, and {name} cannot be pickled:"
            f" {type(error).__name__}: {redact(str(error))}. Give it a function or class of a"
            " module, or an object that makes its locks and connections where it is used"
        ) from error
