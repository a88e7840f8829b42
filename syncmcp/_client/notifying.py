"""The part of a client that sends notifications of the program's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from typing_extensions import Unpack

from syncmcp._client.operation import OperationHost
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import CallOptions, text
from syncmcp.errors import SessionLost


class Notifying(OperationHost, Protocol):
    """What a server can be told without being asked for anything (until 2025-11-25)."""

    def notify(
        self, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> None:
        """Send a notification (until 2025-11-25).

        Raises:
            NotSupported: The revision has no such notification from a client.
        """
        resolved = self._resolve(options)
        text(method, "method")
        deadline = Deadline(resolved.timeout)
        sent = None if params is None else dict(params)
        try:
            self._link(deadline).notify(method, sent, deadline)
        except SessionLost:  # refused: so it goes to the new session
            self._link(deadline).notify(method, sent, deadline)

    def report_progress(
        self,
        token: str | int,
        progress: float,
        total: float | None = None,
        message: str | None = None,
    ) -> None:
        """Tell the server how far a request of its own has come (until 2025-11-25).

        Args:
            token: The ``progressToken`` from the `_meta` of the server's request.
            progress: Must grow with each report.
            total: What `progress` will be at the end, if known.
            message: What is being done.
        """
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        self.notify("notifications/progress", params)
