"""Measures this checkout and an earlier one in turn, and Apache Kafka beside them if asked for."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from bench.client import first_ack, latency, throughput
from bench.clusters import Kafka, MeasuredCluster, PrototypeCluster, Squall, is_prototype
from bench.failover import KINDS, failover
from bench.launch import TracedSquall
from bench.launch import measure as measure_launch
from bench.pairs import Figures, PairedMeasurement
from squall.chaos.toolchain.sources import package_in

ROOT = Path(__file__).resolve().parents[1]
SIZES = (1024, 100)
RATE = 1000
RUN = ("run", "--time", "20", "--seed", "7")
SINGLE = ("sim", "--seed", "7")
KNOWN_CODES = (0, 2)
"""Lists the expected exit codes of a run or a swarm: valid, or unknown."""


@dataclass(slots=True)
class ComparedSide:
    """Represents one side of a comparison: a checkout of Squall, a prototype of its data path (see `PROGRAM` in
    `bench.clusters`), or Apache Kafka.

    `make` returns a new cluster of this side, with its files in the given folder. `folder` holds the folders of all
    clusters. `root` holds the files of a checkout; None for others.
    """

    name: str
    make: Callable[[Path], MeasuredCluster]
    folder: Path
    root: Path | None = None
    warmup_s: float = 0.0
    """Gives the seconds of load before the cluster is measured, because a new JVM is slow."""
    _standing: MeasuredCluster | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    def cluster(self) -> MeasuredCluster:
        """Return this side's running cluster, on which loads are measured one after the other. The first call starts
        it.
        """
        if self._standing is None:
            self._standing = self._launched()
            first_ack(self._standing.bootstrap, self._standing.launched_at)
        return self._standing

    def stop_cluster(self) -> None:
        """Stop the running cluster, if any."""
        standing, self._standing = self._standing, None
        if standing is not None:
            standing.stop()

    @contextmanager
    def fresh(self) -> Iterator[MeasuredCluster]:
        """Yield a cluster that was launched just now, and stop it at the end."""
        cluster = self._launched()
        try:
            yield cluster
        finally:
            cluster.stop()

    def _launched(self) -> MeasuredCluster:
        cluster = self.make(self.place())
        cluster.start()
        return cluster

    def place(self) -> Path:
        """Create and return a new folder for the files of one cluster."""
        folder = self.folder / f"cluster-{next(self._numbers)}"
        folder.mkdir()
        return folder


def sides(
    files: Path, peer: str, folder: Path, warmup_s: float
) -> tuple[ComparedSide, ComparedSide, ComparedSide | None]:
    """Return the sides of a comparison: this checkout, the other checkout or prototype in `files`, and the peer, which
    is None unless `peer` is "kafka". Each side gets a subfolder of `folder` for its clusters. `warmup_s` is how long
    load warms the peer up.
    """
    for name in ("now", "then", "peer"):
        (folder / name).mkdir()
    now = ComparedSide("now", Squall, folder / "now", ROOT)
    if is_prototype(files):
        then = ComparedSide("prototype", partial(PrototypeCluster, files), folder / "then")
    else:
        then = ComparedSide("then", partial(Squall, root=files), folder / "then", files)
    other = ComparedSide("kafka", Kafka, folder / "peer", warmup_s=warmup_s) if peer == "kafka" else None
    return now, then, other


def slices(
    files: Path, seconds: float, seeds: int
) -> tuple[list[PairedMeasurement[ComparedSide]], list[PairedMeasurement[ComparedSide]]]:
    """Return the measurements of a comparison as two lists: those for every cluster, the peer included, and those only
    for checkouts of Squall.

    `files` holds the other checkout, or a prototype of the data path, which is measured under load only. `seconds` is
    the length of a load, `seeds` the number of simulations in the measured swarm. Measurements of a launch start a new
    cluster each time.
    """
    loads = [_load(size, seconds) for size in SIZES]
    if is_prototype(files):
        return loads, []
    clusters = [
        *loads,
        PairedMeasurement(f"100 B, one a request, {RATE}/s", partial(_single, seconds), _warm),
        PairedMeasurement(f"ack at {RATE}/s", partial(_latency, seconds), _warm),
        PairedMeasurement("launch", _launch),
        *(PairedMeasurement(kind, partial(_failover, controller=controller)) for controller, kind in KINDS.items()),
    ]
    return clusters, [
        PairedMeasurement("steps of a launch", _steps, _steps),
        _run(),
        *(_words(words) for words in (SINGLE, ("--help",), ("run", "--help"))),
        _swarm(seeds),
    ]


def _run() -> PairedMeasurement[ComparedSide]:
    return PairedMeasurement(
        " ".join(RUN), lambda side: {"s to the verdict": command(side, RUN)[0]}, lambda s: command(s, RUN)
    )


def _words(words: Sequence[str]) -> PairedMeasurement[ComparedSide]:
    return PairedMeasurement(" ".join(words), partial(_cpu, words), lambda side: command(side, words))


def _swarm(seeds: int) -> PairedMeasurement[ComparedSide]:
    words = ("sim", "--seeds", f"0..{seeds}", "--jobs", "1")
    return PairedMeasurement(
        f"a seed of {' '.join(words)}", partial(_cpu, words, share=seeds), lambda side: command(side, SINGLE)
    )


def _warm(side: ComparedSide) -> None:
    """Run a load before the measurement, so that no figure includes what is slow the first time."""
    cluster = side.cluster()
    seconds, side.warmup_s = max(side.warmup_s, len(SIZES)), 0.0
    for size in SIZES:
        throughput(cluster, size, idempotent=True, seconds=seconds / len(SIZES))


def _load(size: int, seconds: float) -> PairedMeasurement[ComparedSide]:
    def take(side: ComparedSide) -> Figures:
        found = throughput(side.cluster(), size, idempotent=True, seconds=seconds)
        system = found.broker_system_s_per_m
        return {
            "MB/s": found.mb_s,
            "broker CPU s per M": found.broker_cpu_s_per_m,
            "of it user": found.broker_cpu_s_per_m - system,
            "of it system": system,
        }

    return PairedMeasurement(f"{size} B", take, _warm)


def _single(seconds: float, side: ComparedSide) -> Figures:
    # `latency` does not count its first second as latency, and so wants more than one.
    found = latency(side.cluster(), RATE, seconds + 1, size=100, linger_ms=0)
    return {"broker CPU s per M": found.broker_cores * 1e6 / RATE}


def _latency(seconds: float, side: ComparedSide) -> Figures:
    found = latency(side.cluster(), RATE, seconds + 1)
    return {"p50 ms": found.p50_ms, "p99 ms": found.p99_ms}


def _launch(side: ComparedSide) -> Figures:
    with side.fresh() as cluster:
        return {"s to the first ack": first_ack(cluster.bootstrap, cluster.launched_at)}


def _steps(side: ComparedSide) -> Figures:
    return measure_launch(TracedSquall(side.place(), side.folder / "compiled", side.root))


def _failover(side: ComparedSide, *, controller: bool) -> Figures:
    with side.fresh() as cluster:
        first_ack(cluster.bootstrap, cluster.launched_at)
        found = failover(cluster, controller=controller)
        return {figure: value for figure, value in found.items() if figure.startswith("s ") or ", s " in figure}


def _cpu(words: Sequence[str], side: ComparedSide, share: int = 1) -> Figures:
    return {"CPU s": command(side, words)[1] / share}


def command(side: ComparedSide, words: Sequence[str]) -> tuple[float, float]:
    """Run `squall WORDS` of a checkout. Returns its seconds, and the CPU seconds of all its processes, user and system.

    Both checkouts keep compiled modules between runs, as an installed Squall does, even if this shell's environment
    turns that off. Raises RuntimeError if the exit code is neither 0 nor 2.
    """
    assert side.root is not None, side.name
    places = {"PYTHONPATH": str(side.root), "PYTHONPYCACHEPREFIX": str(side.folder / "compiled")}
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | places
    files = ["--runs", str(side.folder / "runs")] if words[0] in ("run", "sim") and "--help" not in words else []
    used, began = _used_s(), time.monotonic()
    program = "squall.chaos" if package_in(side.root)[0] == "squall.broker" else "chaos"
    done = subprocess.run(
        [sys.executable, "-P", "-m", program, *words, *files], env=env, cwd=side.folder, capture_output=True
    )
    took = time.monotonic() - began
    if done.returncode not in KNOWN_CODES:
        raise RuntimeError(f"{side.name}: squall {' '.join(words)} ended with {done.returncode}: {done.stderr!r}")
    return took, _used_s() - used


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
