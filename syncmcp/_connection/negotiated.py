"""The result of the negotiation with a server: the revision and the capabilities of both sides."""

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
    from syncmcp._protocol.dialect import Dialect
    from syncmcp._protocol.tasks import TaskRules


class NegotiatedState:
    """The negotiated state of one connection; fixed once the connection is open.

    Attributes:
        current_dialect: The dialect for incoming messages and notifications; `None` if it is
            unknown. While the connection opens, it may be a dialect that is only being tried.
        unavailable: The requests that `check` may refuse, by method.
        tasks: How calls become tasks; `None` if the revision or the server has no tasks.
        on_late_response: Called on the thread that reads with the id and the outcome of each
            response whose request was cancelled; `None` once a dialect is adopted.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self.current_dialect: Dialect | None = None
        self._declared: OfferedCapabilities | None = None
        self.unavailable: Mapping[str, Unavailable] = {}
        self.tasks: TaskRules | None = None
        self.on_late_response: Callable[[object, Any], object] | None = None

    def adopt(
        self, dialect: Dialect, capabilities: Mapping[str, Any], offer: OfferedCapabilities
    ) -> None:
        """See `Connection.adopt`."""
        self.current_dialect = dialect
        self.unavailable = unavailable_requests(dialect, capabilities)
        self._declared = offer
        self.on_late_response = None
        tasks = dialect.tasks
        if tasks is not None and declares(capabilities, tasks.required_capability):
            self.tasks = tasks

    @property
    def dialect(self) -> Dialect:
        """The negotiated dialect; raises `ClosedError` before the negotiation."""
        if self.current_dialect is None:
            raise ClosedError("the client is not open", server=self._label)
        return self.current_dialect

    def check(self, method: str, undeclared: Undeclared) -> Dialect:
        """Return the dialect if the server supports a request, else raise `NotSupported`.

        With `undeclared` ``"try"`` the server need not declare the capability.
        """
        missing = self.unavailable.get(method)
        if missing is not None and not (missing.undeclared and undeclared == "try"):
            raise NotSupported(missing.reason, server=self._label, method=method)
        return self.current_dialect or self.dialect

    def check_tasks(self, undeclared: Undeclared) -> TaskRules:
        """Return the rules of tasks, else raise `NotSupported`; `undeclared` as for `check`."""
        if self.tasks is not None:
            return self.tasks
        known = self.dialect.tasks
        if known is None:
            why = self.unavailable[GET].reason
        elif undeclared == "try":
            return known
        else:
            why = not_declared(known.required_capability)
        raise NotSupported(f"tools cannot run as tasks: {why}", server=self._label)

    def check_declared(self, offer: OfferedCapabilities) -> None:
        """Raise `UsageError` if the handshake did not declare every capability in `offer`."""
        missing = not_offered(self.current_dialect, offer, self._declared)
        if missing is not None:
            raise UsageError(
                f"the client did not declare {missing!r} when it connected to the server: "
                "set the handler before you open the client",
                server=self._label,
            )
