"""Finds send-reorder: a producer's records are in another order than that in which the producer sent them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from operator import attrgetter

from squall.checkers.anomalies.anomaly import JEPSEN, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.anomalies.logs import EVIDENCE, ObservedLog, ObservedValue, logs_of, sent, witness
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.values import producer_of

ANOMALIES = (
    AnomalyDefinition(
        "send-reorder",
        AnomalyFamily.DATA,
        "a record is behind a record that its producer sent later to the same partition",
        source=f"{JEPSEN}; Kafka documentation, design: messages of a producer are appended in the order they are sent",
        jepsen="nonmonotonic-send",
        other="how many of its producer's records in this partition overtook earlier ones",
        needs=(HistoryNeed.SENDS,),
        meaning="records were stored after {others} that were sent later",
        meaning_of_one="record was stored after {others} that were sent later",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each record that a later record of the same producer overtook: the later one has the lower
    offset in the partition.
    """
    for log in seen.view(logs_of):
        handed: dict[int, list[tuple[ObservedValue, int, int]]] = {}
        for value in sorted(sent(log), key=attrgetter("op")):
            if (stands := _best_offset(log, value)) is not None:
                handed.setdefault(producer_of(value.val), []).append((value, *stands))
        for each in handed.values():
            yield from _overtaken(log, each)


def _best_offset(log: ObservedLog, value: ObservedValue) -> tuple[int, int] | None:
    """Return (offset of a record, index in `EVIDENCE` of how the offset is known); None if the offset is not known.

    Retention may have removed records below `judged_from`. So if a record was acknowledged there and final reads find
    it only elsewhere, final reads found a later copy of it, and the acknowledged offset is returned.
    """
    if 0 <= value.acked_at < log.partition.judged_from and value.final_at and value.acked_at not in value.final_at:
        return value.acked_at, 1 if value.acked_at in value.read_at else 0
    return value.best_offset


def _overtaken(log: ObservedLog, handed: Sequence[tuple[ObservedValue, int, int]]) -> Iterator[Witness]:
    """Yield a witness for each record of one producer that a later one overtook.

    `handed` has the producer's records in the order in which they were sent, as (record, offset, evidence): evidence is
    an index in `EVIDENCE`, and says how the record's offset is known. A witness is a pair of records, and is as strong
    as the weaker evidence of the two. If several records overtook one, the strongest pair is its witness.
    """
    overtook, highest = 0, -1
    for value, off, _ in handed:
        overtook += _ahead_of(log, value, off) <= highest
        highest = max(highest, off)
    if not overtook:
        return
    least = [inf] * len(EVIDENCE)  # of the records sent later, by their least evidence
    for value, off, level in reversed(handed):
        common = next((each for each in range(level, -1, -1) if least[each] <= off), None)
        if common is not None:
            yield witness("send-reorder", value, off, overtook, EVIDENCE[common])
        ahead_of = _ahead_of(log, value, off)
        least[: level + 1] = [min(each, ahead_of) for each in least[: level + 1]]


def _ahead_of(log: ObservedLog, value: ObservedValue, off: int) -> int:
    """Return the lowest offset at which an earlier record of the same producer counts as overtaken by `value`, which is
    at `off`.

    This is `off` + 1 if nothing was removed from the log, for example by retention. Otherwise it is also at least the
    offset of the last copy of `value`. The producer may have sent both records twice, in the right order: earlier
    record, `value`, earlier record, `value`. If the first of these four is removed, the third seems to be overtaken by
    the second.
    """
    return max(off + 1, _last_copy(value)) if log.partition.judged_from else off + 1


def _last_copy(value: ObservedValue) -> int:
    return max(value.read_at, default=-1)


SQL = """
with handed as (
  select part, val, op, producer, off, level,
         if(judged_from > 0, greatest(off + 1, coalesce(read_max, -1L)), off + 1) ahead_of
  from (
    select *, if(retired, acked_at, coalesce(final_min, read_min, acked_at)) off,
           case when retired then acked_read when final_min is not null then 2 when read_min is not null then 1 else 0
           end level
    from (
      select *, acked_at >= 0 and acked_at < judged_from and final_min is not null and acked_final = 0 retired
      from judged where sent = 1 and st <> 1))
  where off >= 0),
compared as (
  select *, max(off) over (partition by part, producer order by op rows between unbounded preceding and 1 preceding)
            highest,
         min(ahead_of) over later least_acked, min(if(level > 0, ahead_of, null)) over later least_read,
         min(if(level > 1, ahead_of, null)) over later least_final
  from handed
  window later as (partition by part, producer order by op desc rows between unbounded preceding and 1 preceding)),
counted as (
  select *, count_if(ahead_of <= highest) over (partition by part, producer) overtook,
         case when level > 1 and least_final <= off then 'final' when level > 0 and least_read <= off then 'reads'
              when least_acked <= off then 'acks' end evidence
  from compared)
select 'send-reorder' anomaly, evidence, part, off, val, op, producer proc, overtook other
from counted where evidence is not null
"""
"""Selects each record whose offset is above that of a record which the same producer sent later. The window `later`
sorts a producer's sends in descending order, so that all later sends are preceding rows: Spark needs quadratic time for
a frame of all following rows.
"""


def _queries(_: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("judged",))]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
