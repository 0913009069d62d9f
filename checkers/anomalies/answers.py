"""Collects what brokers reported of a partition beside its records: high watermark, last stable offset, end."""

from __future__ import annotations

from squall.checkers.history.tables import History, ReportedBounds


def answers(history: History) -> list[ReportedBounds]:
    """All answers, in the order in which they were asked for."""
    return sorted(history.told.rows(), key=lambda each: (each.op, each.idx))
