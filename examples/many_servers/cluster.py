"""Calls of a tool on a cluster of Dask: workers in processes of their own, each with a server.

Needs ``distributed``. On a real cluster only the line that makes the cluster is another one.

Dask runs the tasks of a lost worker again, whatever they do. Here that is switched off at the
scheduler: a call whose worker is lost has an `OutcomeUnknown` as its error, and the program decides
what to do. For calls that only read, leave the line out.
"""

from __future__ import annotations

import sys

import dask.config
from distributed import Client as Dask
from distributed import LocalCluster

import syncmcp


def main() -> None:
    """Add many numbers."""
    # What each worker opens for itself.
    config = syncmcp.Client(syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing"), name="adder")
    calls = [("add", {"a": number, "b": number}) for number in range(20)]
    workers = set()
    total = 0
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Dask(cluster) as client,
    ):
        for outcome in syncmcp.fan_out(config, calls, client.get_executor()):
            total += int(outcome.result().text)
            workers.add(outcome.worker)
    print(f"{len(calls)} calls, at least one by each of: {', '.join(sorted(workers))}")
    print(f"the sum is {total}")


if __name__ == "__main__":
    main()
