"""What was agreed on with a server: the revision, what it can do, what it may ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from syncmcp._protocol.gates import declares, gates, undeclared
from syncmcp._protocol.tasks import GET
from syncmcp.errors import ClosedError, NotSupported, UsageError

if TYPE_CHECKING:
    from syncmcp._protocol.dialect import Dialect
    from syncmcp._protocol.offer import Offer
    from syncmcp._protocol.tasks import Shape


class Agreed:
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
        self._declared: Offer | None = None
        self._unsupported: Mapping[str, str] = {}
        self.tasks: Shape | None = None
        self.on_late: Callable[[object, Any], object] | None = None

    def adopt(self, dialect: Dialect, capabilities: Mapping[str, Any], offer: Offer) -> None:
        """See `Connection.adopt`."""
        self.spoken = dialect
        self._unsupported = gates(dialect, capabilities)
        self._declared = offer
        self.on_late = None
        tasks = dialect.tasks
        self.tasks = tasks if tasks is not None and declares(capabilities, tasks.needs) else None

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

    def check(self, method: str) -> Dialect:
        """Return the dialect, if a request can be made in it to this server.

        Raises:
            NotSupported: The revision or the server lacks it.
        """
        missing = self._unsupported.get(method)
        if missing is not None:
            raise NotSupported(missing, server=self._label, method=method)
        return self.dialect

    def check_tasks(self) -> Shape:
        """Return how calls become tasks here.

        Raises:
            NotSupported: None does.
        """
        if self.tasks is not None:
            return self.tasks
        known = self.dialect.tasks
        why = self._unsupported.get(GET)
        if why is None and known is not None:
            why = f"the server does not declare the capability {'.'.join(known.needs)}"
        raise NotSupported(f"no tool runs as a task: {why}", server=self._label)

    def check_declared(self, offer: Offer) -> None:
        """Check that the server can know of everything in `offer`.

        Raises:
            UsageError: It was told what it may ask when the connection was opened, and less.
        """
        missing = undeclared(self.spoken, offer, self._declared)
        if missing is not None:
            raise UsageError(
                f"the handshake did not offer {missing}: "
                "give the handler to the client before it is opened",
                server=self._label,
            )
