"""A separate process for each side, so that the sides share no imports, threads or GIL.

It serves all rows of a wire and revision. Each workload and each sample is one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from benchmarks import workloads
from benchmarks.sides.base import ROOT, Side, SideName, Target


class Worker:
    """The worker process, as seen by the process that controls it."""

    def __init__(self, side: SideName, target: Target) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", side, json.dumps(target)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sample(self, workload: str, parameters: dict[str, Any]) -> workloads.Sample:
        """Run a workload once.

        Raises:
            RuntimeError: The process ended; its stderr has the reason.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([workload, parameters]) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the side of {workload} ended with exit code {process.wait()}")
        return workloads.Sample(**json.loads(line))

    def close(self) -> None:
        """End the process."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _make(side: str) -> Side:
    # Each process imports its own side only.
    if side == "syncmcp":
        from benchmarks.sides.syncmcp_side import SyncmcpSide

        return SyncmcpSide()
    if side == "singles":
        from benchmarks.sides.syncmcp_side import SinglesSide

        return SinglesSide()
    if side == "official":
        from benchmarks.sides.official_side import OfficialSide

        return OfficialSide()
    from benchmarks.sides.floor_side import FloorSide

    return FloorSide()


def _main(name: str, target: Target) -> None:
    side = _make(name)
    side.open(target)
    for line in sys.stdin:
        workload, parameters = json.loads(line)
        sample = workloads.run(workload, side, target, parameters)
        print(json.dumps(asdict(sample)), flush=True)
    side.close()


if __name__ == "__main__":
    _main(sys.argv[1], Target(*json.loads(sys.argv[2])))
