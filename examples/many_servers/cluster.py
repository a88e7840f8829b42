"""Call a tool on a Dask cluster, where each worker process starts its own server.

Needs ``distributed``. On a real cluster, only the line with `LocalCluster` differs.

By default Dask runs the jobs of a lost worker again, even if they have an effect. This program sets
``allowed-failures`` to 0: the call of a lost worker ends with an `OutcomeUnknown`, and the program
decides what to do. For calls that only read, omit this line.
"""

from __future__ import annotations

import sys

import dask.config
from distributed import Client as DaskClient
from distributed import LocalCluster

import syncmcp


def main() -> None:
    """Add numbers on the workers, and print the sum."""
    # Each worker process opens its own client with this configuration.
    config = syncmcp.Client(syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing"), name="adder")
    calls = [("add", {"a": number, "b": number}) for number in range(20)]
    workers = set()
    total = 0
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        DaskClient(cluster) as dask_client,
    ):
        for outcome in syncmcp.fan_out(config, calls, dask_client.get_executor()):
            total += int(outcome.result().text)
            workers.add(outcome.worker)
    print(f"{len(calls)} calls on these workers: {', '.join(sorted(workers))}")
    print(f"the sum is {total}")


if __name__ == "__main__":
    main()
