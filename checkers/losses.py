"""Counts the acknowledged records that a run lost. The terminal, pages, JUnit, `squall runs` and nightly runs all show
this one count.

The count is read from verdict.json, so that it also works for runs that earlier versions judged. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall.checkers.anomalies.registry import LOSS
from squall.checkers.guarantees import LOSS_EXPECTED, FaultClass

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LossCount:
    """Counts acknowledged records that a run lost: either those whose loss is permitted, or those whose loss is not."""

    lost: int
    acked: int | None
    """Is the number of records that were acknowledged in the whole run; None if it is not known, or if it is lower than
    the number of lost records, so that it cannot be right.
    """
    partitions: tuple[tuple[str, int, int | None], ...] = ()
    """Holds (partition, lost records, acknowledged records) of each partition, the worst first."""
    grounds: tuple[str, ...] = ()
    """Holds a clause for each cell of the guarantee matrix that permits the loss, such as "acks=1 permits it"; empty if
    the loss is not permitted.
    """
    reasons: tuple[str, ...] = ()
    """Holds the verdict's sentences on why the losses are permitted or not, each once."""

    @property
    def amount(self) -> str:
        """Return the count and the total, such as "260 of 845 acknowledged records"."""
        of = "" if self.acked is None else f" of {self.acked:,}"
        return f"{self.lost:,}{of} acknowledged record{'s'[: (self.acked or self.lost) != 1]}"

    @property
    def share(self) -> str:
        """Return the share of all acknowledged records with a space before it, such as " (31 %)"; empty if it is not
        known.
        """
        return "" if self.acked is None else f" ({percent(self.lost, self.acked)})"

    def __str__(self) -> str:
        """Return the loss in one line, such as "260 of 845 acknowledged records lost (31 %): acks=1 permits it"."""
        why = f": {' and '.join(self.grounds)}" if self.grounds else ""
        return f"{self.amount} lost{self.share}{why}"


def percent(some: int, of: int) -> str:
    """Return a share in whole percent; "less than 1 %" or "more than 99 %" instead of 0 % and 100 % that rounding would
    make.
    """
    if 0 < some < of / 100:
        return "less than 1 %"
    return "more than 99 %" if some < of and some / of >= 0.995 else f"{some / of:.0%}".replace("%", " %")


def permitted_loss(verdict: Json) -> LossCount | None:
    """Return the count of acknowledged records that were lost, if the verdict permits their loss. None if there is no
    such loss, or if verdict.json cannot be understood.
    """
    return loss_of(verdict, permitted=True)


def loss_of(verdict: Json, *, permitted: bool) -> LossCount | None:
    """Return the count of acknowledged records that were lost. If `permitted` is True, only losses that the verdict
    permits count; if it is False, only those that it forbids. None if there is no such loss.
    """
    try:
        found = [each for each in verdict.get("anomalies") or () if each.get("name") in LOSS]
        entries = [each for each in found if each.get("permitted") is permitted]
        lost = sum(int(each["count"]) for each in entries)
        return _loss(entries, lost, verdict.get("metrics") or {}, permitted) if lost > 0 else None
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None


def _loss(entries: list[Json], lost: int, metrics: Json, permitted: bool) -> LossCount:
    by_partition = sum((Counter(each.get("partitions") or {}) for each in entries), Counter[str]())
    reported = metrics.get("partitions") or {}
    partitions = [(name, count, acknowledged_in(reported.get(name))) for name, count in by_partition.items()]
    acked = acknowledged(metrics)
    return LossCount(
        lost,
        acked if acked is not None and acked >= lost else None,
        tuple(sorted(partitions, key=lambda each: (-each[1], each[0]))),
        tuple(dict.fromkeys(map(_ground, entries))) if permitted else (),
        tuple(dict.fromkeys(str(each["why"]) for each in entries if each.get("why"))),
    )


def _ground(entry: Json) -> str:
    """Return what permits a finding, as a clause such as "acks=1 permits it". Verdicts of earlier versions do not say
    which cell of the guarantee matrix permits it; then the clause is "the configuration permits it".
    """
    cell = entry.get("cell")
    if not cell:
        return "the configuration permits it"
    if cell["row"] == LOSS_EXPECTED.name:
        return "you asked for it (--expect loss)"
    under = f" under faults of class {cell['under']}" if cell["under"] in [each.value for each in FaultClass] else ""
    return f"{cell['row']} permits it{under}"


def acknowledged(metrics: Json) -> int | None:
    """Return how many sends were acknowledged, including those after healing; None if the history was not analysed."""
    sends = (metrics.get("outcomes") or {}).get("send")
    return int(sends.get("ok", 0)) if sends else None


def acknowledged_in(partition: object) -> int | None:
    """Return how many sends to a partition were acknowledged, including those after healing; None if that is not known.
    `partition` is the partition's entry in metrics.json.
    """
    reported = partition if isinstance(partition, dict) else {}
    load, after = reported.get("acked"), reported.get("acked_after_healing", 0)
    return load + after if isinstance(load, int) and isinstance(after, int) else None
