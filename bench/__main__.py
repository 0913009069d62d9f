"""`python -m bench`: one run, a table and ratios."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.client import LINGER_MS, first_ack, latency, throughput
from bench.clusters import Cluster, clusters
from bench.failover import failover
from chaos.errors import Refused

LOADS = ((1024, True, False), (1024, False, False), (100, True, False), (100, False, False), (100, True, True))
"""Record size, idempotent, handed over in C."""
RATES = ((1000, 5), (5000, 5), (1000, 0))
"""Records per second and the client's linger.ms."""


def say(text: str) -> None:
    """Progress, on the error stream."""
    print(text, file=sys.stderr, flush=True)


def measure(cluster: Cluster, arguments: argparse.Namespace, out: dict[str, list[float]]) -> None:
    """Every figure of one cluster, appended to `out`; the cluster is started and ended here."""

    def note(name: str, value: float) -> None:
        out.setdefault(name, []).append(value)
        say(f"  {cluster.name:>7} {name:<50} {value:10.2f}")

    cluster.start()
    try:
        note("launch to first ack, s", first_ack(cluster.bootstrap, cluster.launched_at))
        time.sleep(3)
        note("memory at rest, MB a broker", max(cluster.rss_mb()))
        if cluster.name == "kafka" and arguments.warmup:
            say(f"  {cluster.name:>7} warm-up of {arguments.warmup:g} s")
            for size, idempotent, _ in LOADS[:4]:
                throughput(cluster, size, idempotent=idempotent, seconds=arguments.warmup / 4)
        for _ in range(arguments.rounds):
            for rate, linger_ms in RATES:
                found = latency(cluster, rate, arguments.seconds + 1, linger_ms=linger_ms)
                kind = f"ack at {rate}/s" + ("" if linger_ms == LINGER_MS else f", linger {linger_ms}")
                note(f"{kind}, p50 ms", found.p50_ms)
                note(f"{kind}, p99 ms", found.p99_ms)
                note(f"{kind}, p99.9 ms", found.p999_ms)
                note(f"{kind}, broker cores", found.broker_cores)
            for size, idempotent, in_c in LOADS:
                kind = f"{size} B, {'idempotent' if idempotent else 'not idempotent'}{', in C' if in_c else ''}"
                try:
                    t = throughput(cluster, size, idempotent=idempotent, seconds=arguments.seconds, in_c=in_c)
                except RuntimeError as error:
                    say(f"  {cluster.name:>7} {kind}: no figure in this round, {error}")
                    continue
                note(f"{kind}, MB/s", t.mb_s)
                note(f"{kind}, broker CPU s per M", t.broker_cpu_s_per_m)
                note(f"{kind}, client CPU s per M", t.client_cpu_s_per_m)
        note("memory after load, MB a broker", max(cluster.rss_mb()))
        if arguments.failover:
            for controller in (False, True):
                kind = "failover of leader" + (" and controller" if controller else "")
                gap, failed = failover(cluster, controller=controller)
                note(f"{kind}, s to next ack", gap)
                note(f"{kind}, records failed", failed)
    finally:
        cluster.stop()


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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6, help="length of each load")
    parser.add_argument("--warmup", type=float, default=60, help="seconds of load before a JVM is measured")
    parser.add_argument("--failover", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path, help="also write every single figure here")
    arguments = parser.parse_args()
    names = ["squall"] + (["kafka"] if arguments.peer == "kafka" else [])
    results: dict[str, dict[str, Any]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as folder:
        try:
            made = clusters(names, Path(folder))
        except Refused as missing:
            say(f"bench: {missing}")
            return 3
        for cluster in made:
            measure(cluster, arguments, results[cluster.name])
    print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
