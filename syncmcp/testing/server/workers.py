"""Daemon threads that run tools: one per call, kept a moment for the next call."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

_IDLE_SECONDS = 0.1

Job = Callable[[], None]


class Workers:
    """Runs each job at once on a thread of its own; a blocked job delays no other.

    An idle thread is used again, which is several times quicker than starting one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._releases = 0

    def run(self, job: Job) -> None:
        """Start `job` on an idle thread or a new one. It must not raise."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            releases = self._releases
        if worker is None:
            worker = _Worker(self._name, self._rest, self._retire)
        worker.jobs.put((job, releases))

    def release(self) -> None:
        """End the idle threads and wait for them; the busy ones end with their job."""
        with self._lock:
            self._releases += 1
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.jobs.put(None)
        for worker in idle:
            if worker.thread is not threading.current_thread():
                worker.thread.join()

    def _rest(self, worker: _Worker, releases: int) -> bool:
        """Keep a worker for the next job; false when there was a release since its last began."""
        with self._lock:
            if releases != self._releases:
                return False
            self._idle.append(worker)
            return True

    def _retire(self, worker: _Worker) -> bool:
        """Take an idle worker out of use; false when a job is already on its way to it."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True


class _Worker:
    def __init__(
        self,
        name: str,
        rest: Callable[[_Worker, int], bool],
        retire: Callable[[_Worker], bool],
    ) -> None:
        self.jobs: queue.SimpleQueue[tuple[Job, int] | None] = queue.SimpleQueue()
        self._rest = rest
        self._retire = retire
        self.thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        while True:
            try:
                order = self.jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                if self._retire(self):
                    return
                continue
            if order is None:
                return
            job, releases = order
            job()
            del order, job  # A resting thread must not keep the last call alive.
            if not self._rest(self, releases):
                return
