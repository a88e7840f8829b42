"""The part of a client that makes batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from syncmcp._client.operation import OperationHost

if TYPE_CHECKING:
    from syncmcp._client.batch import Batch, Oversize


class Batching(OperationHost, Protocol):
    """Many calls at once."""

    def batch(
        self,
        *,
        parallel: bool = True,
        timeout: float | None = None,
        max_size: int = 100,
        oversize: Oversize = "split",
    ) -> Batch:
        """Collect calls in a `with` block, and send them when it is left.

        In one frame where the revision has batches (2025-03-26), one by one and at the same time
        elsewhere. A block that is left by an exception sends nothing and cancels the futures.

        Args:
            parallel: Whether the calls run at the same time; otherwise each is sent alone, when
                the one before it is done.
            timeout: The longest that all calls may take, in seconds, from when the block is left;
                `None` for no limit but that of each call.
            max_size: How many requests a frame may hold.
            oversize: What becomes of more calls than that: ``"split"`` sends several frames,
                ``"refuse"`` raises `LimitExceeded` at the call that is one too many.

        Raises:
            UsageError: An argument makes no sense.
        """
        from syncmcp._client.batch import Batch

        return Batch(self, parallel=parallel, timeout=timeout, max_size=max_size, oversize=oversize)
