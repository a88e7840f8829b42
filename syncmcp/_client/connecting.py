"""`connect`: make a client and open it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from typing_extensions import ParamSpec

from syncmcp._client.client import Client
from syncmcp._connection.options import keyword_hint, options_of_targets, target_with
from syncmcp.errors import UsageError

P = ParamSpec("P")


def _opened(make: Callable[P, Client]) -> Callable[P, Client]:
    parameters = dict(inspect.signature(make).parameters)
    del parameters["lazy"]
    signature = inspect.Signature(list(parameters.values()), return_annotation="Client")

    def connect(*args: P.args, **kwargs: P.kwargs) -> Client:
        """Make a client and open it; a `with` block closes it.

        >>> import sys
        >>> server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")  # a demo
        >>> with syncmcp.connect(server, timeout=30, on_log=print) as client:
        ...     print(client.call_tool("add", {"a": 1, "b": 2}).raise_for_error().text)
        3

        The arguments are those of `Client`, which describes them, without `lazy`. The first one is
        the target: a URL, `Stdio`, `Http`, an entry of a servers file, or a server in this process.
        Programs often pass the options `timeout` and `open_timeout` (seconds for a call, and for
        opening), `name` (of the server), `on_log` (a function for log messages), `elicitation` and
        `sampling` (functions that answer questions of the server).

        Returns:
            The open client.

        Raises:
            UsageError: An argument is invalid; `TypeError` for an option that does not exist.
            McpError: The client could not be opened, often `ConnectFailed`; see `Client.open`.
        """
        if "lazy" in kwargs:
            raise TypeError("connect() opens the client at once: write Client(TARGET, lazy=True)")
        if len(args) > 1:
            raise TypeError("connect() takes one target; for a command, write Stdio(COMMAND, ...)")
        if unknown := kwargs.keys() - parameters.keys():
            for kind, names in options_of_targets().items():
                if wrong := sorted(unknown.intersection(names)):
                    raise UsageError(
                        f"{wrong[0]}= is an option of the target: write"
                        f" connect({target_with(kind, *wrong)})"
                    )
            word = min(unknown)
            hint = keyword_hint(word, parameters)
            text = f"connect() got an unexpected keyword argument {word!r}"
            raise TypeError(f"{text}: {hint}" if hint else text)
        if not args and "target" not in kwargs:
            raise TypeError("connect() needs a target: a URL, Stdio, Http or server")
        return make(*args, **kwargs).open()

    connect.__signature__ = signature  # type: ignore[attr-defined]
    return connect


connect = _opened(Client)
