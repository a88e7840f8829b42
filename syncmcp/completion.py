"""Completions for interactive input (spec: "Completion")."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from syncmcp._base.checks import finite_seconds, seconds, whole_number
from syncmcp._client.arguments import Completable
from syncmcp._client.client import Client
from syncmcp._concurrency.cancel import CancelToken
from syncmcp._connection.options import CallOptions
from syncmcp._protocol.jsonrpc import size_of
from syncmcp.errors import MethodNotFound, NotSupported, RequestCancelled

if TYPE_CHECKING:
    from syncmcp.types import Completion

__all__ = ["Completer"]

MAX_VALUES: Final = 100
"""The most values that the protocol allows in one response; further values are discarded."""

MAX_BYTES: Final = 64 * 1024
"""The longest response that is cached, in bytes of memory."""


class Completer:
    """A completer for the arguments of one prompt or resource template, while a person types.

    >>> from syncmcp.completion import Completer
    >>> completer = Completer(client, "translate")
    >>> completer.suggest("language", "G").values
    ['German']

    Each call of `suggest` supersedes the call before. The earlier call returns `None` at once, and
    its request is cancelled if it was sent. So at most one request is in flight. Any thread may use
    a completer. Since `suggest` blocks, a user interface calls it on a separate thread.

    Args:
        client: The client.
        ref: The prompt or resource template, its name, or a reference to it; see
            `Client.complete`.
        pause: The debounce time in seconds. The request is sent if `suggest` is not called again
            within this time. Pass 0 for an interface that debounces by itself.
        timeout: The timeout of the request, in seconds; `None` for that of the client.
        remembered: The maximum number of responses that are cached, and returned without a request.
            A response of more than 64 KiB is not cached.

    Raises:
        UsageError: A number or time is invalid.
    """

    def __init__(
        self,
        client: Client,
        ref: Completable,
        *,
        pause: float = 0.15,
        timeout: float | None = 5.0,
        remembered: int = 256,
    ) -> None:
        self._client = client
        self._ref = ref
        self._pause = finite_seconds(pause, "pause")
        self._timeout = seconds(timeout, "timeout")
        self._remembered = whole_number(remembered, "remembered")
        # Guards the attributes below; not held during a request.
        self._lock = threading.RLock()
        self._newest = CancelToken()  # of the latest call of `suggest`
        self._answers: OrderedDict[tuple[object, ...], Completion] = OrderedDict()
        self._unsupported = False

    def __repr__(self) -> str:
        return f"<Completer of {self._ref!r} with {self._client!r}>"

    def suggest(
        self, argument: str, typed: str, settled: Mapping[str, str] | None = None
    ) -> Completion | None:
        """Return the completions of the text that has been typed, best first.

        The call blocks for the pause, and then until the server has responded.

        Args:
            argument: The name of the argument, or of the template's variable.
            typed: The text that the person has typed so far.
            settled: The values of other arguments that are known already. The server may need them.

        Returns:
            At most 100 values; no values if the server does not support completion. `None` if
            `suggest` was called again before the response arrived, or `dismiss` was called.

        Raises:
            UsageError: There is no such argument. This is checked only if `ref` is an object that
                lists its arguments.
            McpError: The request failed.
        """
        token = CancelToken()
        key = (argument, typed, frozenset((settled or {}).items()))
        self._supersede(token)
        with self._lock:
            known = self._answers.get(key)
            if known is not None:
                self._answers.move_to_end(key)
                return known
        if token.wait(self._pause):
            return None
        found = self._request(argument, typed, settled, token)
        if found is None or token.cancelled:
            return None
        if size_of(found.to_wire()) > MAX_BYTES:
            return found
        with self._lock:
            self._answers[key] = found
            if len(self._answers) > self._remembered:
                self._answers.popitem(last=False)
        return found

    def dismiss(self) -> None:
        """Cancel the running call of `suggest`, if any, which then returns `None`."""
        self._supersede(CancelToken())

    def _supersede(self, token: CancelToken) -> None:
        with self._lock:
            before, self._newest = self._newest, token
        before.cancel("a later request superseded this one")

    def _request(
        self, argument: str, typed: str, settled: Mapping[str, str] | None, token: CancelToken
    ) -> Completion | None:
        from syncmcp.types import Completion

        if self._unsupported:
            return Completion(values=[])
        options: CallOptions = {"cancel": token}
        if self._timeout is not None:
            options["timeout"] = self._timeout
        try:
            result = self._client.complete(self._ref, argument, typed, settled, **options)
        except RequestCancelled:
            if not token.cancelled:
                raise
            return None
        except (NotSupported, MethodNotFound):
            self._unsupported = True
            return Completion(values=[])
        found = result.completion
        if len(found.values) > MAX_VALUES:
            return Completion(values=found.values[:MAX_VALUES], total=found.total, has_more=True)
        return found
