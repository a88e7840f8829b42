"""What was agreed on with a server: the revision, what it can do, what it may ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from syncmcp._protocol.capabilities import Unavailable, declares, not_declared
from syncmcp._protocol.revisions import unavailable_requests
from syncmcp._protocol.revisions import undeclared_offer as not_offered
from syncmcp._protocol.tasks import GET
from syncmcp.errors import ClosedError, NotSupported, UsageError

if TYPE_CHECKING:
    from syncmcp._protocol.capabilities import OfferedCapabilities, Undeclared
    from syncmcp._protocol.dialect import Dialect, TaskProtocol


class NegotiatedState:
    """What holds on one connection; replaced as a whole while it opens, and fixed from then on.

    Attributes:
        spoken: The dialect for what comes in and for notices, also while nothing is agreed on yet.
        tasks: How calls become tasks, if both sides want that.
        on_late: Told, on the thread that reads, of each answer that comes when its request has
            been given up, with the id in it; `None` once something is agreed on.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self.spoken: Dialect | None = None
        self._declared: OfferedCapabilities | None = None
        self._gates: Mapping[str, Unavailable] = {}
        self.tasks: TaskProtocol | None = None
        self.on_late: Callable[[object, Any], object] | None = None

    def adopt(
        self, dialect: Dialect, capabilities: Mapping[str, Any], offer: OfferedCapabilities
    ) -> None:
        """See `Connection.adopt`."""
        self.spoken = dialect
        self._gates = unavailable_requests(dialect, capabilities)
        self._declared = offer
        self.on_late = None
        tasks = dialect.tasks
        self.tasks = (
            tasks
            if tasks is not None and declares(capabilities, tasks.required_capability)
            else None
        )

    def late(self, id: object, answer: Any) -> None:
        """An answer came that nobody waits for."""
        heard = self.on_late  # read once: something may be agreed on at this moment
        if heard is not None:
            heard(id, answer)

    @property
    def dialect(self) -> Dialect:
        """What was negotiated.

        Raises:
            ClosedError: Nothing was.
        """
        if self.spoken is None:
            raise ClosedError("the client is not open", server=self._label)
        return self.spoken

    def check(self, method: str, undeclared: Undeclared) -> Dialect:
        """Return the dialect, if a request can be made in it to this server.

        Args:
            method: The request.
            undeclared: Whether it is tried where the server does not declare the capability.

        Raises:
            NotSupported: The revision lacks it, or the server does not declare it.
        """
        gate = self._gates.get(method)
        if gate is not None and not (gate.undeclared and undeclared == "try"):
            raise NotSupported(gate.reason, server=self._label, method=method)
        return self.dialect

    def check_tasks(self, undeclared: Undeclared) -> TaskProtocol:
        """Return how calls become tasks here; `undeclared` as for `check`.

        Raises:
            NotSupported: None does.
        """
        if self.tasks is not None:
            return self.tasks
        known = self.dialect.tasks
        if known is None:
            why = self._gates[GET].reason
        elif undeclared == "try":
            return known
        else:
            why = not_declared(known.required_capability)
        raise NotSupported(f"no tool runs as a task: {why}", server=self._label)

    def check_declared(self, offer: OfferedCapabilities) -> None:
        """Check that the server can know of everything in `offer`.

        Raises:
            UsageError: It was told what it may ask when the connection was opened, and less.
        """
        missing = not_offered(self.spoken, offer, self._declared)
        if missing is not None:
            raise UsageError(
                f"the handshake did not offer {missing}: "
                "give the handler to the client before it is opened",
                server=self._label,
            )
