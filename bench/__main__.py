"""`python -m bench`: one run, a table and ratios."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException

from bench.client import LINGER_MS, first_ack, latency, throughput
from bench.clusters import Cluster, new_cluster
from bench.failover import failover
from chaos.errors import Refused

WARM_UP = ((1024, True), (1024, False), (100, True), (100, False))
"""Record size, idempotent: what a JVM is warmed up with, a quarter of the time each."""
ASKED_FIRST = ((100, True, False), (1024, True, False))
FURTHER = ((100, True, True), (1024, False, False), (100, False, False))
"""Record size, idempotent, handed over in C. The first come right after the warm-up: each load is more of it."""
RATES = ((1000, 5), (1000, 0), (5000, 5))
"""Records per second and the client's linger.ms."""


def say(text: str) -> None:
    """Progress, on the error stream."""
    print(text, file=sys.stderr, flush=True)


class Sheet:
    """Every measured value of one cluster, by name. What fails costs that figure in that round, and is said."""

    def __init__(self, name: str) -> None:
        self.name, self.found = name, dict[str, list[float]]()

    def note(self, figure: str, value: float) -> None:
        """One more value."""
        self.found.setdefault(figure, []).append(value)
        say(f"  {self.name:>7} {figure:<50} {value:10.2f}")

    @contextmanager
    def trying(self, figure: str) -> Iterator[None]:
        """A load that a cluster does not acknowledge in time, or that it cannot be asked for at all."""
        try:
            yield
        except (RuntimeError, KafkaException) as error:
            say(f"  {self.name:>7} {figure}: no figure in this round, {error}")


def measure(cluster: Cluster, arguments: argparse.Namespace, sheet: Sheet, *, failovers: bool) -> None:
    """One round of one cluster, which is started and ended here."""
    cluster.start()
    try:
        sheet.note("launch to first ack, s", first_ack(cluster.bootstrap, cluster.launched_at))
        time.sleep(3)
        sheet.note("memory at rest, MB a broker", max(cluster.rss_mb()))
        if cluster.name == "kafka" and arguments.warmup:
            say(f"  {cluster.name:>7} warm-up of {arguments.warmup:g} s")
            for size, idempotent in WARM_UP:
                with sheet.trying("warm-up"):
                    throughput(cluster, size, idempotent=idempotent, seconds=arguments.warmup / len(WARM_UP))
        for load in ASKED_FIRST:
            _load(cluster, arguments, sheet, *load)
        for rate, linger_ms in RATES:
            _rate(cluster, arguments, sheet, rate, linger_ms)
        for load in FURTHER:
            _load(cluster, arguments, sheet, *load)
        _load(cluster, arguments, sheet, 100, True, False, ", at the end")
        sheet.note("memory after load, MB a broker", max(cluster.rss_mb()))
        for controller in (False, True) if failovers else ():
            kind = "failover of leader" + (" and controller" if controller else "")
            with sheet.trying(kind):
                gap, failed = failover(cluster, controller=controller)
                sheet.note(f"{kind}, s to next ack", gap)
                sheet.note(f"{kind}, records failed", failed)
    finally:
        cluster.stop()


def _load(
    cluster: Cluster,
    arguments: argparse.Namespace,
    sheet: Sheet,
    size: int,
    idempotent: bool,
    in_c: bool,
    when: str = "",
) -> None:
    kind = f"{size} B, {'idempotent' if idempotent else 'not idempotent'}{', in C' if in_c else ''}{when}"
    with sheet.trying(kind):
        found = throughput(cluster, size, idempotent=idempotent, seconds=arguments.seconds, in_c=in_c)
        sheet.note(f"{kind}, MB/s", found.mb_s)
        sheet.note(f"{kind}, broker CPU s per M", found.broker_cpu_s_per_m)
        sheet.note(f"{kind}, client CPU s per M", found.client_cpu_s_per_m)


def _rate(cluster: Cluster, arguments: argparse.Namespace, sheet: Sheet, rate: int, linger_ms: int) -> None:
    kind = f"ack at {rate}/s" + ("" if linger_ms == LINGER_MS else f", linger {linger_ms}")
    with sheet.trying(kind):
        found = latency(cluster, rate, arguments.seconds + 1, linger_ms=linger_ms)
        sheet.note(f"{kind}, p50 ms", found.p50_ms)
        sheet.note(f"{kind}, p99 ms", found.p99_ms)
        sheet.note(f"{kind}, p99.9 ms", found.p999_ms)
        sheet.note(f"{kind}, broker cores", found.broker_cores)


def table(results: dict[str, dict[str, list[float]]]) -> str:
    """Median (min .. max) of each figure, and ours divided by the peer's."""
    names = list(results)
    width = max(map(len, next(iter(results.values()))), default=0) + 1
    rows = [f"{'figure':<{width}}" + "".join(f"{n:>28}" for n in names) + (f"{'ratio':>9}" if len(names) > 1 else "")]
    for figure in next(iter(results.values())):
        cells = []
        for name in names:
            values = results[name].get(figure, [])
            cells.append(
                f"{statistics.median(values):9.2f} ({min(values):.2f} .. {max(values):.2f})" if values else "-"
            )
        ratio = ""
        if len(names) > 1 and results[names[1]].get(figure):
            peer = statistics.median(results[names[1]][figure])
            ratio = f"{statistics.median(results[names[0]][figure]) / peer:9.2f}" if peer else ""
        rows.append(f"{figure:<{width}}" + "".join(f"{c:>28}" for c in cells) + ratio)
    return "\n".join(rows)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--peer", choices=("none", "kafka"), default="none", help="also measure Apache Kafka")
    parser.add_argument("--rounds", type=int, default=3, help="each on new clusters")
    parser.add_argument("--seconds", type=float, default=6, help="length of each load")
    parser.add_argument(
        "--warmup", type=float, default=60, help="seconds of load before a JVM is measured, in each round"
    )
    parser.add_argument("--failover", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path, help="also write every single figure here")
    arguments = parser.parse_args()
    names = ["squall"] + (["kafka"] if arguments.peer == "kafka" else [])
    sheets = {name: Sheet(name) for name in names}
    for number in range(arguments.rounds):
        last = number == arguments.rounds - 1
        for name in names:
            say(f"round {number + 1} of {arguments.rounds}: {name}")
            with tempfile.TemporaryDirectory(prefix="squall-bench-") as folder:
                try:
                    cluster = new_cluster(name, Path(folder))
                except Refused as missing:
                    say(f"bench: {missing}")
                    return 3
                measure(cluster, arguments, sheets[name], failovers=arguments.failover and last)
    results = {name: sheet.found for name, sheet in sheets.items()}
    print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
