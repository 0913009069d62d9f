"""`python -m squall.spark_analysis.nightly STORE --cells FILE`: writes the durability table of nightly runs as JSON.

STORE is the folder with the results of nights (`squall.checkers.nightly.store`). --night selects the nights of the
table. With --collect NIGHT --into FOLDER the command first measures the runs of a night from their histories, and adds
them to STORE; FOLDER is in STORE and must have the findings already. Exit code 0 says that all of this is done; with
any other exit code, stderr says why.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from squall.checkers.nightly import store
from squall.checkers.nightly.night import read_night
from squall.spark_analysis import session
from squall.spark_analysis.nightly.cells import cells, to_json
from squall.spark_analysis.nightly.collect import NightCollector


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit code; argparse ends the program itself on wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m squall.spark_analysis.nightly", description=__doc__.split("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--cells", type=Path, required=True, metavar="FILE", help="where the table is written")
    parser.add_argument("--collect", type=Path, metavar="NIGHT", help="measure this night first")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="with --collect: a folder of the store to write to")
    parser.add_argument("--night", action="append", default=[], metavar="ID", help="nights of the table")
    parser.add_argument("--where", action="append", default=[], metavar="AXIS=VALUE", help="only these runs")
    parser.add_argument("--java-home", type=Path, required=True, metavar="DIR")
    parser.add_argument("--class-archive", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    collector = None
    if given.collect is not None:
        night = read_night(given.collect)
        digest = store.digest_of(night)
        collector = NightCollector(night)
    records = collector.records if collector else 0
    spark = session.start(records, given.java_home, class_archive=given.class_archive)
    try:
        if collector:
            collector.measure(spark)
            collector.write(given.into)
            store.commit(given.into, night.name, night.began, digest, datetime.now(UTC))
        chosen = [each for each in store.collections(given.store)[0] if each.night in given.night]
        where = dict(each.split("=", 1) for each in given.where)
        given.cells.write_text(to_json(cells(spark, chosen, where)))
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
