"""Adds sends and polls to a history at given times in ms, and measures the history."""

from __future__ import annotations

from squall.checkers.measures import measure
from squall.checkers.metrics import MeasurementContext, MeasurementRow, context_of
from squall.checkers.nemesis_log import parse_faults
from tests.support.histories.builder import HistoryBuilder
from tests.support.histories.nemesis_lines import MS


def measured(h: HistoryBuilder, *nemesis: bytes) -> tuple[list[MeasurementRow], MeasurementContext]:
    kept = h.history()
    faults, _ = parse_faults(nemesis)
    context = context_of(kept, faults)
    return measure(kept, context), context


def send_at(h: HistoryBuilder, proc: int, begin_ms: int, end_ms: int | None, off: int = 0, part: int = 0) -> None:
    """Add a send that begins and is acknowledged at these times; with `end_ms` None it is never acknowledged."""
    h.now = (begin_ms - 1) * MS
    send = h.send(proc, part)
    if end_ms is not None:
        h.now = (end_ms - 1) * MS
        h.ok(send, off)


def poll_at(h: HistoryBuilder, reader: int, ms: int, position: int, hw: int) -> None:
    h.now = (ms - 2) * MS
    h.poll(reader, [], at=position, position=position, hw=hw)
