"""Measures the runs of a night (of one `squall nightly`) with SQL. The statements read the histories of all runs as one
(`squall.spark_analysis.nightly.tables`), and return rows for each run.

Lost and duplicated records are counted by the rules of `squall.checkers.anomalies`. `squall.checkers.metrics`
defines latency and unavailability. tests/parity compares the results with those of plain Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from squall.checkers.anomalies import duplicate, loss
from squall.checkers.anomalies.check import WitnessRule
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.metrics import LATENCY_UNIT_NS
from squall.spark_analysis.measures import unanswered
from squall.spark_analysis.nightly.tables import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = f"int(part div {PARTITIONS})"
BITS = "length(bin(took))"
SHIFT = f"greatest({BITS} - 7, 0)"
BUCKET = f"{SHIFT} * 64 + shiftright(took, {SHIFT})"
"""Computes the number of a latency's bucket in SQL: a bucket is at most 1/64 as wide as its latencies.
`squall.checkers.nightly.statistics.bucket_of` is the same function in Python.
"""

MARKED = """
select {run} run, part, placed_at off, if(coalesce(sent = 1 and acked, false), t1, first_read) t, val,
       coalesce(sent = 1 and acked, false) acknowledged, coalesce({lost}, false) lost,
       coalesce({duplicated}, false) duplicated
from (select row.*{columns} from judged row)
"""
"""Selects one row for each value, with flags: acknowledged, lost, and duplicated."""

COUNTS = """
select run, count_if(acknowledged) acknowledged, count_if(lost) lost,
       count_if(lost and not acknowledged) lost_unacknowledged, count_if(duplicated) duplicated
from marked group by run
"""

TAILS = """
with hurt as (
  select * from (select *, max(int(lost)) over (partition by part) hurts from marked where acknowledged or lost)
  where hurts = 1),
ordered as (
  select *,
    last_value(if(lost, struct(t, off), null), true) over before_it lost_before,
    last_value(if(lost, null, struct(t, off)), true) over before_it kept_before
  from hurt window before_it as (
    partition by part order by t, off, val rows between unbounded preceding and 1 preceding)),
cut as (
  select run, part, t, off, val, lost_before is null or coalesce(
      kept_before.t >= lost_before.t
      and (off < 0 or lost_before.off < 0
           or (kept_before.off < off and (kept_before.off > lost_before.off or off <= lost_before.off))), false) begins
  from ordered where lost),
numbered as (select *, sum(int(begins)) over (partition by part order by t, off, val) tail from cut),
tails as (
  select run, part, tail, count(*) records, max(t) - min(t) ns from numbered group by run, part, tail)
select run, count(*) lost_tails, max(records) lost_tail_records, max(ns) / 1e6 lost_tail_ms from tails group by run
"""
"""Counts lost tails: records at the end of a partition's log that were lost at once. The lost records are ordered by
the time of their acknowledgement. A lost record begins a new tail if a surviving record was acknowledged between it and
the previous lost record, at a higher offset than the previous one. docs/durability.md gives the reasons.
"""

# Each change of leaders is one epoch more, so changes between two responses count, too.
LEADERS = """
select run, sum(epochs) leader_changes from (
  select {run} run, part, max(epoch) - min(epoch) epochs from told where epoch >= 0 group by part)
group by run
"""

SENDS = """
select s.run, s.part, s.st, s.t0, s.t1, (s.t1 - s.t0) div {unit} took,
       exists(r.spans, span -> s.t0 <= span.ended and s.t1 >= span.began) faulty
from (select {run} run, part, st, t0, t1, producer from standing where sent = 1) s
join runs r on s.run = r.run where not array_contains(r.afterwards, s.producer)
"""
"""Selects the sends of the load with their latency (`took`), and whether a fault was active meanwhile (`faulty`). The
harness's own sends after healing are left out.
"""

PERCENTILES = """
select run, faulty, percentile(took, array(0.5, 0.99)) took from sends where st = 0 group by run, faulty
"""

LATENCIES = f"""
select run, faulty, {BUCKET} bucket, count(*) n from sends where st = 0 group by run, faulty, bucket
"""

GAPS = f"""
with grouped as (select run, explode(array(part, -1)) part, st, t0, t1 from sends),
{unanswered("run, part", "grouped")}
select * from unanswered
"""

UNAVAILABLE = """
select run, max(if(part >= 0, till - since, null)) / 1e6 unavailable_ms,
       max(if(part < 0, till - since, null)) / 1e6 unavailable_all_ms
from gaps group by run
"""

RECOVERY = """
select run, id, max(took) / 1e6 recovery_ms, count_if(took is null) unrecovered from (
  select f.run, f.id, s.part, min(if(s.st = 0, s.t1 - f.began, null)) took
  from played f join sends s on s.run = f.run and s.t0 >= f.whole_since group by f.run, f.id, s.part)
group by run, id
"""

FAULT_GAPS = """
select f.run, f.id, max(g.till - g.since) / 1e6 gap_ms
from played f join gaps g on g.run = f.run and g.part >= 0 and g.till >= f.began
  and (f.ended < 0 or g.since <= f.ended)
group by f.run, f.id
"""

STATEMENTS = {
    "counts": COUNTS,
    "tails": TAILS,
    "leaders": LEADERS.format(run=RUN),
    "percentiles": PERCENTILES,
    "latencies": LATENCIES,
    "unavailable": UNAVAILABLE,
    "recovery": RECOVERY,
    "fault gaps": FAULT_GAPS,
}


def measured(spark: SparkSession, history: ConversionResult) -> Mapping[str, list[dict[str, Any]]]:
    """Run each statement that measures a night, and return its rows by its name in STATEMENTS. `tables.register` must
    have created the views. `history` is the conversion result of all runs together (`tables.together`).
    """
    spark.sql(marked(history)).createOrReplaceTempView("marked")
    sends = spark.sql(SENDS.format(run=RUN, unit=LATENCY_UNIT_NS)).cache()
    sends.createOrReplaceTempView("sends")
    spark.sql(GAPS).createOrReplaceTempView("gaps")
    try:
        # Planning is one thread's work: several statements at a time keep two cores busy.
        with ThreadPoolExecutor(3) as threads:
            tables = threads.map(lambda statement: spark.sql(statement).toArrow().to_pylist(), STATEMENTS.values())
            return dict(zip(STATEMENTS, tables, strict=True))
    finally:
        sends.unpersist()


def marked(history: ConversionResult) -> str:
    """Return a statement that selects one row for each value, with flags: acknowledged, lost, and duplicated. `history`
    decides which rules for lost records apply: damage and compaction, if there are any, excuse missing records.
    """
    lost, duplicated = (_rules(each.CHECK.queries(history)) for each in (loss, duplicate))
    columns = {name: sql for rule in (*lost, *duplicated) for name, sql in rule.columns.items()}
    return MARKED.format(
        run=RUN,
        lost=" or ".join(f"({rule.when})" for rule in lost),
        duplicated=" or ".join(f"({rule.when})" for rule in duplicated),
        columns="".join(f", {sql} {name}" for name, sql in columns.items()),
    )


def _rules(found: Sequence[object]) -> list[WitnessRule]:
    return list(_only_rules(found))


def _only_rules(found: Sequence[object]) -> Iterator[WitnessRule]:
    for each in found:
        assert isinstance(each, WitnessRule) and each.view == "judged", each
        yield each
