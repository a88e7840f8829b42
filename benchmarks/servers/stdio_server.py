"""The server over stdio, with one thread and no buffers. Its argument is the revision."""

from __future__ import annotations

import heapq
import json
import os
import select
import sys
import time

from benchmarks.servers.answers import Answers

_CHUNK = 1 << 18


class StdioServer:
    """Reads frames and writes the answers; answers with a delay are queued."""

    def __init__(self, revision: str) -> None:
        self._answers = Answers(revision)
        self._later: list[tuple[float, int, bytes]] = []
        self._number = 0

    def run(self) -> None:
        """Serve until stdin ends."""
        rest = b""
        while True:
            if self._later and not self._readable():
                continue
            chunk = os.read(0, _CHUNK)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._serve(line)

    def _serve(self, line: bytes) -> None:
        message = json.loads(line)
        answers = self._answers
        batch = isinstance(message, list)
        answer = answers.answer_all(message) if batch else answers.answer(message)
        if answer is None:
            return
        frames = b"\n".join([*answer.frames, b""])
        if not answer.delay:
            _write(frames)
            return
        self._number += 1
        heapq.heappush(self._later, (time.monotonic() + answer.delay, self._number, frames))

    def _readable(self) -> bool:
        """Wait for input or the next due answer; send due answers; return whether input came."""
        wait = max(0.0, self._later[0][0] - time.monotonic())
        readable, _, _ = select.select([0], [], [], wait)
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            _write(heapq.heappop(self._later)[2])
        return bool(readable)


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    StdioServer(sys.argv[1]).run()
