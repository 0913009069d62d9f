"""Measures how many rows a second Spark loads with the data source `squall` and with its own Kafka source, by turns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from squall.spark_analysis.session import SMALL_ROWS
from tests.shown.batches import Say
from tests.shown.table import Sitting, Table, add
from tests.support.load.clusters import TARGETS, one_broker
from tests.support.load.comparing import ISOLATIONS, KAFKAS, OURS, compared, topic_rows, two_sources
from tests.support.load.filling import CODECS, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = (100, 1_000)
ISOLATION = "read_committed"
LOAD_RATES = Table(
    "load_rates",
    "Rows a second of a load",
    "A row is four topics of one broker, one for each codec, read whole at read_committed with `local[2]` and thrown "
    "away, by the data source `squall` and by Spark's own Kafka source (4.2.0), by turns. In topics with transactions "
    "two thirds of the records are in one, and a fifth in one that was aborted. The broker runs on the same cores. A "
    "first pair is not counted. The ratio is the median of the pairs, with the lowest and the highest. Different rows "
    "are those of a full outer join of both sources, at read_uncommitted and at read_committed.",
    ("target", "value, B", "transactions", "records written", "pairs", "squall, rows/s", "Spark's source, rows/s",
     "ratio", "different rows"),
    keys=4,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PairOfLoads:
    """Holds the rows a second of both sources, measured one after the other."""

    ours: float
    kafkas: float

    @property
    def ratio(self) -> float:
        """Is how many times as many rows a second ours reads."""
        return self.ours / self.kafkas


class FilledTopics:
    """Holds topics with records of one size, one for each codec."""

    def __init__(self, bootstrap: str, records: int, size: int, *, transactions: bool) -> None:
        self.bootstrap, self.size, self.transactions = bootstrap, size, transactions
        named = {f"{codec}-{size}-{_words(transactions)}": codec for codec in CODECS}
        self.names = list(named)
        each = -(-records // len(named))
        filled = [fill(bootstrap, name, each, size, codec, transactions=transactions) for name, codec in named.items()]
        self.written, self.committed = sum(it.written for it in filled), sum(it.committed for it in filled)


def show_load_rates(pairs: int, records: int, of: Sitting, docs: Path, say: Say) -> list[str]:
    """Measure `pairs` pairs of loads for each target and size of records, and add their rows. Returns a sentence for
    each difference of rows. Raises PreconditionError if Apache Kafka is not available.
    """
    wrong = []
    spark = two_sources(SMALL_ROWS + 1)
    try:
        for target in TARGETS:
            with one_broker(target) as bootstrap:
                for size, transactions in product(SIZES, (True, False)):
                    say(f"{target}: {records:,} records of {size:,} B, {_words(transactions)} transactions")
                    topics = FilledTopics(bootstrap, records, size, transactions=transactions)
                    found = [_pair(spark, topics, number, say) for number in range(pairs + 1)][1:]
                    different = [compared(spark, bootstrap, topics.names, level)["different"] for level in ISOLATIONS]
                    add(LOAD_RATES, [rates_row(target, topics, found, different)], of, docs)
                    if any(different):
                        wrong.append(f"{target}, {size} B: {different} rows are not those of Spark's own source")
    finally:
        with suppress(Exception):  # after Ctrl-C the JVM may have ended before
            spark.stop()
    return wrong


def rates_row(
    target: str, topics: FilledTopics, found: Sequence[PairOfLoads], different: Sequence[int]
) -> tuple[object, ...]:
    """Return the row of a target and of topics."""
    ratios = sorted(each.ratio for each in found)
    ratio = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    ours, kafkas = median(each.ours for each in found), median(each.kafkas for each in found)
    kind = (topics.size, _words(topics.transactions), f"{topics.written:,}")
    return (target, *kind, len(found), f"{ours:,.0f}", f"{kafkas:,.0f}", ratio, ", ".join(map(str, different)))


def _words(transactions: bool) -> str:
    return "with" if transactions else "without"


def _pair(spark: SparkSession, topics: FilledTopics, number: int, say: Say) -> PairOfLoads:
    rates = {}
    for source in (OURS, KAFKAS) if number % 2 else (KAFKAS, OURS):
        read = topic_rows(spark, source, topics.bootstrap, topics.names, ISOLATION)
        began = time.monotonic()
        read.write.format("noop").mode("overwrite").save()
        rates[source] = topics.committed / (time.monotonic() - began)
    pair = PairOfLoads(rates[OURS], rates[KAFKAS])
    counted = f"pair {number}" if number else "warm-up"
    say(f"  {counted}: {pair.ours:,.0f} rows/s against {pair.kafkas:,.0f}: {pair.ratio:.2f}")
    return pair
