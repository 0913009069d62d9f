"""Collects the high watermarks, last stable offsets and log ends that brokers reported for a partition."""

from __future__ import annotations

from squall.checkers.history.tables import History, ReportedBounds


def answers(history: History) -> list[ReportedBounds]:
    """Return what each response reported of a partition's high watermark, last stable offset and log start, in the
    order in which clients sent the requests.
    """
    return sorted(history.told.rows(), key=lambda each: (each.op, each.idx))
