"""Measures Squall's cluster, beside Apache Kafka's if asked for, or this checkout in turn with another one, and prints
the figures and their ratios. `python -m bench` is `squall bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import against
from bench.clusters import new_cluster
from bench.machine import snapshot, usage_report
from bench.pairs import checkout, measured
from bench.pairs import table as table_of_pairs
from bench.script import script
from bench.sheet import ClusterFigures, say, table
from squall.chaos.errors import PreconditionError

OURS = "squall"
SWARM_SEEDS = 12


def main(given: Sequence[str] | None = None) -> int:
    """Run the benchmark, and return the exit code. 1: a figure of Squall is missing, or the confidence interval of a
    figure shows that this checkout is worse than the one given by `--against`. 3: the peer or the other checkout is not
    available.
    """
    arguments = _arguments(given)
    before = snapshot()
    try:
        code = _against(arguments) if arguments.against else _beside(arguments)
    except PreconditionError as missing:
        say(f"bench: {missing}")
        return 3
    print(usage_report(before, snapshot(), os.getpid()))
    return code


def _beside(arguments: argparse.Namespace) -> int:
    """Measure Squall's cluster and, with `--peer kafka`, Apache Kafka's, one after the other in each round. Print the
    table, and return the exit code: 1 if a figure of Squall is missing.
    """
    names = [OURS] + (["kafka"] if arguments.peer == "kafka" else [])
    sheets = {name: ClusterFigures(name) for name in names}
    for number in range(arguments.rounds):
        last = number == arguments.rounds - 1
        for name in names:
            say(f"round {number + 1} of {arguments.rounds}: {name}")
            with tempfile.TemporaryDirectory(prefix="squall-bench-") as folder:
                cluster = new_cluster(name, Path(folder))
                cluster.start()
                try:
                    sheets[name].fill(script(cluster, arguments, failovers=arguments.failover and last))
                finally:
                    cluster.stop()
    results = {name: sheet.found for name, sheet in sheets.items()}
    print(table(results))
    for sheet in sheets.values():
        for line in sheet.missing():
            print(line)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if sheets[OURS].missing() else 0


def _against(arguments: argparse.Namespace) -> int:
    """Measure this checkout and the one given by `--against` in turn, and print the table. Return the exit code: 1 if a
    measurement has no figures, or if a figure shows that this checkout is worse.
    """
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as name:
        folder = Path(name)
        (folder / "files").mkdir()
        files = checkout(arguments.against, folder / "files")
        now, then, peer = against.sides(files, arguments.peer, folder, arguments.warmup)
        groups = against.slices(files, arguments.seconds, SWARM_SEEDS)
        clusters, checkouts = ([each for each in group if arguments.only in each.name] for group in groups)
        if not clusters and not checkouts:
            names = "; ".join(each.name for group in groups for each in group)
            raise PreconditionError(f"--only {arguments.only}: nothing has this in its name; there are: {names}")
        try:
            rows = measured(clusters, now, then, peer, arguments.pairs)
        finally:
            for side in (now, then, peer):
                if side is not None:
                    side.stop_cluster()
        rows |= measured(checkouts, now, then, None, arguments.pairs)
    print(table_of_pairs(rows, peer.name if peer is not None else ""))
    if arguments.json:
        figures = {name: {"now": row.now, "before": row.then, "peer": row.peer} for name, row in rows.items()}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    worse = [name for name, row in rows.items() if not row.ratios or row.is_worse(name)]
    return 1 if worse else 0


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="squall bench", description=__doc__)
    parser.add_argument("--against", default="", metavar="REV", help="a commit, or a directory")
    parser.add_argument("--pairs", type=int, default=10, help="with --against: turns of both")
    parser.add_argument("--peer", choices=("none", "kafka"), default="none", help="also measure Apache Kafka")
    parser.add_argument("--rounds", type=int, default=3, help="without --against: each on new clusters")
    parser.add_argument("--seconds", type=float, default=0, help="length of each load: 6, with --against 2")
    parser.add_argument(
        "--warmup", type=float, default=60, help="seconds of load before a JVM is measured, in each round"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only what has this in its name: transactions")
    parser.add_argument("--failover", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path, help="also write every single figure here")
    arguments = parser.parse_args(given)
    arguments.seconds = arguments.seconds or (2 if arguments.against else 6)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
