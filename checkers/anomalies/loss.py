"""Finds lost-write and unseen: acknowledged records that are gone. A lost-write is at an offset that readers got past;
an unseen record is beyond all that readers got.
"""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import JEPSEN, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessRule
from squall.checkers.anomalies.logs import ObservedLog, logs_of, witness
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import INFO, OK, ObservedPartition

ANOMALIES = (
    AnomalyDefinition(
        "lost-write",
        AnomalyFamily.DATA,
        "the record was acknowledged (or a reader saw it committed), but the last round of final reads did not return "
        "it, although readers got past its offset",
        source=f"{JEPSEN}; Kafka documentation, design, Replication",
        jepsen="lost-write",
        other="the highest offset that any reader saw",
        needs=(HistoryNeed.SENDS, HistoryNeed.FINAL_READS),
        meaning="acknowledged records were lost",
        meaning_of_one="acknowledged record was lost",
    ),
    AnomalyDefinition(
        "unseen",
        AnomalyFamily.DATA,
        "the record was acknowledged, but no final read returned it, and no reader got as far as its offset",
        source=f"{JEPSEN}; Kafka documentation, design, Replication",
        jepsen="unseen",
        other="the highest offset that any reader saw",
        needs=(HistoryNeed.SENDS, HistoryNeed.FINAL_READS),
        meaning="acknowledged records were lost",
        meaning_of_one="acknowledged record was lost",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each lost record: it was acknowledged, or some reader got it, but the last final reads did
    not return it although they should have.
    """
    for log in seen.view(logs_of):
        yield from _of(log)


def _of(log: ObservedLog) -> Iterator[Witness]:
    """Yield the lost records of one partition, as lost-write or unseen.

    Acknowledged records count. So does any other record that some reader got, because readers get only replicated
    records: for example one whose send had no answer, or whose transaction is not known to have committed. A record
    whose send definitely failed never counts.
    """
    superseded = _last_of_key(log)
    for value in log.values.values():
        open_ = value.st == INFO or (value.txn is not None and value.st == OK)
        kept = value.final_at and not value.vanished(log.partition)
        if not value.sent or kept or not (value.acked or (open_ and value.read_at)):
            continue
        off = value.acked_at if value.acked_at >= 0 else max(value.read_at, default=-1)
        since = value.t1 if value.acked else value.first_read
        # A damaged record is `corrupt`, and there.
        if not _judged(log.partition, off, since) or off in log.corrupt_finally:
            continue
        # Compaction keeps only the last record of a key.
        if value.key >= 0 and superseded.get(value.key, -1) > off:
            continue
        # A record without an offset gets the worse name.
        yield witness("lost-write" if off <= log.seen else "unseen", value, off, log.seen)


def _judged(partition: ObservedPartition, off: int, since: int) -> bool:
    """Return whether a final read would have shown a record at `off` that was known to be committed at `since` ns.

    A read would have shown it if its reader went past the offset, or if its reader read to the end and began after the
    record was committed.
    """
    if partition.may_lack(off):
        return False
    passed = off >= 0 and partition.cover_from <= off < partition.cover_to
    return passed or since <= partition.cover_t0


def _last_of_key(log: ObservedLog) -> dict[int, int]:
    """Return, for each key of a compacted partition, the highest offset at which a final read found a record with this
    key.
    """
    last: dict[int, int] = {}
    for value in log.values.values():
        if value.key >= 0 and value.final_at:
            last[value.key] = max(last.get(value.key, -1), max(value.final_at))
    return last


DAMAGED = """
  exists (select 1 from places c where c.part = row.part and c.off = row.placed_at and c.val < 0 and c.is_final = 1)"""
"""Is true if final reads found a damaged record at `placed_at`, the offset of the row's record. Such a record is not
lost: the anomaly `corrupt` reports it.
"""

SUPERSEDED = """
  (key >= 0 and coalesce(max(if(key >= 0, final_max, null)) over (partition by part, key), -1L) > placed_at)"""
"""Is true if a compacted partition has a later record with the same key."""

LOST = """sent = 1 and (final_min is null or vanished)
  and (acked or (read_min is not null and (st = 2 or (st = 0 and in_txn))))
  and not (judged_from > 0 and placed_at < judged_from)
  and ((placed_at >= 0 and placed_at >= cover_from and placed_at < cover_to)
       or if(acked, t1, first_read) <= cover_t0)"""


def _queries(history: ConversionResult) -> Queries:
    excuses = {
        **({"damaged": DAMAGED} if history.corrupt else {}),
        **({"superseded": SUPERSEDED} if history.compacted else {}),
    }
    return [
        WitnessRule(
            "judged",
            LOST + "".join(f" and not {name}" for name in excuses),
            "if(placed_at <= seen, 'lost-write', 'unseen')",
            off="placed_at",
            val="val",
            proc="producer",
            other="seen",
            columns=excuses,
        )
    ]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
