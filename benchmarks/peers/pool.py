"""Worker processes: started when needed, suspended when idle, stopped when memory runs out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from peers.systems import System

GIB = 2**30
FIRST_GUESS = 6 * GIB  # of a worker that has not run yet


class WorkerError(Exception):
    """A worker answered with an error, or ended; the text is one line."""


class Worker:
    """One process, in a group of its own so that its children are reached with it."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=dict(environment),
                start_new_session=True,
            )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            WorkerError: it could not; the log has the rest.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            status = self._process.wait()
            raise WorkerError(f"ended with status {status}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it said nothing"

    def suspend(self) -> None:
        """Let it compute nothing, not even spinning threads."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it and its children."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not sent, nobody will read
                    pipe.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def memory(self) -> int:
        """Bytes that it and its children hold; what is shared counts by its share."""
        total = 0
        try:
            whole = psutil.Process(self._process.pid)
            for process in (whole, *whole.children(recursive=True)):
                total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            pass
        return total


class Pool:
    """The loaded workers; one of them runs at any time.

    Attributes:
        memory: the most bytes seen of each process.
        evictions: how often one was stopped to make room.
    """

    def __init__(self, start: Callable[[System], Worker], reserve: float) -> None:
        self._start = start
        self._reserve = int(reserve * GIB)
        self._loaded: dict[str, Worker] = {}  # the most recently used last
        self._running: str | None = None
        self.memory: dict[str, int] = {}
        self.versions: dict[str, str] = {}
        self.evictions = 0

    def run(self, system: System) -> tuple[Worker, bool]:
        """Return its worker, running and alone in that, and whether it has just been loaded.

        Raises:
            WorkerError: it cannot be loaded.
        """
        name = system.process
        if self._running != name:
            self.rest()
        worker = self._loaded.pop(name, None)
        fresh = worker is None
        if worker is None:
            self._make_room(self.memory.get(name, FIRST_GUESS))
            # It is in the pool before it has loaded, so that whatever interrupts that ends it too.
            worker = self._loaded[name] = self._start(system)
            try:
                answer = worker.ask({"op": "load", "options": system.options})
            except WorkerError:
                self.drop(system)
                raise
            self.versions[system.environment] = answer["version"]
        self._loaded[name] = worker
        if self._running != name:
            worker.resume()
            self._running = name
        return worker, fresh

    def rest(self) -> None:
        """Suspend whoever runs, and note how much memory it has."""
        if self._running is not None:
            worker = self._loaded[self._running]
            worker.suspend()
            seen = self.memory.get(self._running, 0)
            self.memory[self._running] = max(seen, worker.memory())
        self._running = None

    def drop(self, system: System) -> None:
        """Stop the process of a system that has failed; others of the same process reload it."""
        worker = self._loaded.pop(system.process, None)
        if self._running == system.process:
            self._running = None
        if worker is not None:
            worker.stop()

    def _make_room(self, needed: int) -> None:
        # Turns come round: who has just run is needed again the latest, so it goes first.
        while self._loaded and psutil.virtual_memory().available - needed < self._reserve:
            _, worker = self._loaded.popitem()
            worker.stop()
            self.evictions += 1

    def close(self) -> None:
        """Stop all."""
        for worker in self._loaded.values():
            worker.stop()
        self._loaded.clear()
        self._running = None
