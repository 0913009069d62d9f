"""Measures the rate at which clients, each in a loop, complete an operation such as a commit or a transaction."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class OperationRate:
    """Holds the operations per second of all workers together, the latency of one in ms, and the brokers' CPU per
    operation in ms.
    """

    per_s: float
    p50_ms: float
    p99_ms: float
    broker_cpu_ms: float

    def figures(self, kind: str) -> dict[str, float]:
        """Return the figures by their names in the table. `kind` begins each name: "commits" gives "commits, p50 ms"
        and so on.
        """
        return {
            f"{kind}, a second": self.per_s,
            f"{kind}, p50 ms": self.p50_ms,
            f"{kind}, p99 ms": self.p99_ms,
            f"{kind}, broker CPU ms each": self.broker_cpu_ms,
        }


@dataclass(slots=True)
class WorkerThreads:
    """Coordinates worker threads that begin together. A failure in one thread ends the loops of the others, too."""

    start: threading.Barrier
    took: list[float] = field(default_factory=list)
    """Lists the seconds of each operation."""
    failed: list[str] = field(default_factory=list)
    ends: float = 0.0

    def begin(self) -> None:
        """Wait until all workers are ready. Each worker calls this once; the clock starts when all have."""
        self.start.wait()
        self.start.wait()

    @property
    def has_time_left(self) -> bool:
        """Return whether there is time for another operation, and no worker has failed."""
        return not self.failed and time.monotonic() < self.ends

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Time one operation, which counts unless it raises."""
        began = time.monotonic()
        yield
        self.took.append(time.monotonic() - began)


def rate_of(
    cluster: Any, workers: int, seconds: float, work: Callable[[int, WorkerThreads], None], called: str
) -> OperationRate:
    """Measure what `workers` threads do in `seconds`. Each thread runs `work` with its number and the `WorkerThreads`,
    whose `begin` it calls once.

    `called` names the workers in the error message, for example "committers". Raises RuntimeError if one of them
    failed.
    """
    crew = WorkerThreads(threading.Barrier(workers + 1))
    threads = [threading.Thread(target=work, args=(number, crew)) for number in range(workers)]
    for thread in threads:
        thread.start()
    crew.start.wait()
    cpu, begin = cluster.cpu_s(), time.monotonic()
    crew.ends = begin + seconds
    crew.start.wait()
    for thread in threads:
        thread.join()
    took, cpu = time.monotonic() - begin, cluster.cpu_s() - cpu
    if crew.failed:
        raise RuntimeError(f"{len(crew.failed)} {called} failed, the first: {crew.failed[0]}")
    cuts, done = statistics.quantiles(crew.took, n=100), len(crew.took)
    return OperationRate(done / took, cuts[49] * 1e3, cuts[98] * 1e3, cpu / done * 1e3)
