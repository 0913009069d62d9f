"""`python -m bench`: one run, a table and ratios."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.clusters import new_cluster
from bench.script import script
from bench.sheet import Sheet, say, table
from chaos.errors import Refused

OURS = "squall"


def main(given: Sequence[str] | None = None) -> int:
    """Run the benchmark. Exit code 1: not every figure of ours could be taken; 3: the peer cannot be had."""
    arguments = _arguments(given)
    names = [OURS] + (["kafka"] if arguments.peer == "kafka" else [])
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


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--peer", choices=("none", "kafka"), default="none", help="also measure Apache Kafka")
    parser.add_argument("--rounds", type=int, default=3, help="each on new clusters")
    parser.add_argument("--seconds", type=float, default=6, help="length of each load")
    parser.add_argument(
        "--warmup", type=float, default=60, help="seconds of load before a JVM is measured, in each round"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only what has this in its name: transactions")
    parser.add_argument("--failover", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path, help="also write every single figure here")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())
