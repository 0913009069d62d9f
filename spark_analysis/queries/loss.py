"""Finds the anomalies lost-write and unseen with Spark: the final reads lack a record that was acknowledged or that
some reader got. A lost-write is at an offset that readers got past; an unseen record is beyond all that readers got.
`squall.checkers.anomalies.loss` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule

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


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.loss`."""
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
