"""Sends the same requests to one of our nodes and to one of Apache Kafka's, and reports where their answers differ.

A row is a list of such requests. A known difference has an entry, with a reason, in `named`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from squall.chaos.errors import PreconditionError
from squall.chaos.interrupts import as_ctrl_c
from tests.differential import brokers, compare, fields, java, report, sequences, table
from tests.differential.compare import UNEXPLAINED, Result
from tests.differential.steps import Row
from tests.support.usage import USAGE, Parser

SEQUENCES = 200


def main(given: Sequence[str] | None = None) -> int:
    """Return the exit code. 0: every difference has an entry in `named`. 1: one has none. 3: wrong usage, or Apache
    Kafka cannot be had. 130 after Ctrl-C.
    """
    asked = _parser().parse_args(given)
    rows = chosen(asked)
    if not rows and not asked.java:
        say(f"squall: no row is named {asked.rows}")
        return USAGE
    try:
        asked.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        say(f"squall: --out {asked.out}: {error.strerror}")
        return USAGE
    try:
        results = play(rows, with_java=asked.java or asked.rows == "*" and asked.sequence is None)
    except PreconditionError as refused:
        say(f"squall: {refused}")
        return USAGE
    except KeyboardInterrupt:
        say("squall: interrupted")
        return 130
    page = report.write(results, sum(row.seed is not None for row in rows), asked.out)
    unexplained = [result for result in results if result.outcome == UNEXPLAINED]
    for result in unexplained[: report.SHOWN]:
        say(f"{report.text_of(result)}\n")
    for api, total, count in report.counts(results):
        say(f"{api:<32}{total:>7,}  " + ", ".join(f"{n:,} {outcome}" for outcome, n in count.most_common()))
    say(f"{page}\n{report.headline(results, sum(row.seed is not None for row in rows))}")
    return 1 if unexplained else 0


def play(rows: Sequence[Row], *, with_java: bool) -> list[Result]:
    """Start both brokers, play the rows and (with `with_java`) Java's clients against them, and return the results."""
    with TemporaryDirectory(prefix="squall-differential-") as folder, brokers.both(Path(folder)) as (ours, theirs):
        results = list(java.results(Path(folder), ours, theirs)) if with_java else []
        return results + compare.play(rows, ours, theirs, say)


def chosen(asked: argparse.Namespace) -> list[Row]:
    """Return the rows that the command line names; all, if it names none."""
    if asked.java:
        return []
    if asked.sequence is not None:
        return [sequences.sequence(asked.sequence)]
    drawn = [sequences.sequence(asked.seed + number) for number in range(asked.sequences)]
    rows = [*fields.rows(), *table.rows(), *drawn]
    return [row for row in rows if asked.rows == row.name or fnmatchcase(row.name, asked.rows)]


def say(line: str) -> None:
    """Print a line without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} should be a number of 0 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m tests.differential", description=__doc__)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--rows", default="*", metavar="GLOB", help="only rows with such a name")
    only.add_argument("--java", action="store_true", help="only the actions of Java's clients")
    only.add_argument("--sequence", type=int, metavar="SEED", help="only the random sequence of this seed")
    parser.add_argument("--sequences", type=_count, default=SEQUENCES, metavar="N", help="random sequences (200)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the first random sequence (1)")
    parser.add_argument("--out", type=Path, default=Path("runs/differential"), metavar="DIR",
                        help="gets report/index.html and unexplained.txt (runs/differential)")  # fmt: skip
    return parser


if __name__ == "__main__":
    as_ctrl_c()
    sys.exit(main())
