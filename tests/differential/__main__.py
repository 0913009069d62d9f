"""Asks one of our nodes and one of Apache Kafka's the same, and says where their answers differ."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.differential import brokers, compare, fields, java, report, sequences, table
from tests.differential.steps import Row

SEQUENCES = 200


def main(given: Sequence[str] | None = None) -> int:
    """0: every difference is named. 1: one is not. 3: wrong usage, or Apache Kafka cannot be had."""
    asked = _parser().parse_args(given)
    rows = chosen(asked)
    if not rows and not asked.only_java:
        print("squall: no row has such a name", file=sys.stderr)
        return 3
    with TemporaryDirectory(prefix="squall-differential-") as folder:
        with brokers.both(Path(folder)) as (ours, theirs):
            results = list(java.results(Path(folder), ours, theirs)) if asked.only_java or asked.rows == "*" and asked.sequence is None else []
            results += compare.play(rows, ours, theirs, lambda line: print(line, flush=True))
    return report.write(results, asked.out)


def chosen(asked: argparse.Namespace) -> list[Row]:
    """The rows that the command line asks for; all of them where it names none."""
    if asked.only_java:
        return []
    if asked.sequence is not None:
        return [sequences.sequence(asked.sequence)]
    drawn = [sequences.sequence(asked.seed + number) for number in range(asked.sequences)]
    rows = [*fields.rows(), *table.rows(), *drawn]
    return [row for row in rows if asked.rows in ("*", row.name) or fnmatchcase(row.name, asked.rows)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--rows", default="*", metavar="GLOB", help="only rows with such a name")
    parser.add_argument("--java", dest="only_java", action="store_true", help="only the actions of Java's clients")
    parser.add_argument("--sequence", type=int, metavar="SEED", help="only this random sequence")
    parser.add_argument("--sequences", type=int, default=SEQUENCES, metavar="N", help="how many random sequences")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the first random sequence")
    parser.add_argument("--out", type=Path, default=Path("runs/differential"), metavar="DIR", help="gets the report")
    return parser


if __name__ == "__main__":
    sys.exit(main())
