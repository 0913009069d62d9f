"""Reads what only the converted history (`history/records.parquet`) has: times without an acknowledgement, single
latencies, and all sends and reads of a value. numpy and pyarrow are imported only if such a history is read: a story in
the terminal needs neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from squall.reports.lanes import UNAVAILABLE_S, LaneSpan, gaps_of_metrics
from squall.reports.run_files import Json, RunFiles

ROWS_LIMIT = 8_000_000
"""Limits the rows of a history that is read for a picture; for a larger one only each partition's longest gap is drawn.
"""
POINTS = 6_000
"""Is roughly the number of sends whose latencies are drawn: of N acknowledged sends, every (N // POINTS)th."""
SEND, POLL = 0, 1
OK = 0


@dataclass
class LatencySamples:
    """Holds each partition's gaps, in which writes waited and none was acknowledged, and latencies of single sends."""

    gaps: dict[str, list[LaneSpan]] = field(default_factory=dict)
    points: Any = None
    """Is a numpy array with two rows: when each acknowledged send ended, in seconds, and its latency in ms. None if
    unknown.
    """
    exact_gaps: bool = False
    """Is False if only each partition's longest gap is known, from metrics.json."""


def read_samples(files: RunFiles, begin: float, end: float) -> LatencySamples:
    """Return the gaps between `begin` and `end`, in seconds on the page's time axis, and the latencies of sends. If
    `history/records.parquet` is missing, cannot be read or is too large (ROWS_LIMIT), return only the longest gap of
    each partition, from metrics.json.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = files.path / "history" / "records.parquet"
    fallback = LatencySamples(gaps=gaps_of_metrics(files))
    if not path.exists() or files.origin_ns is None:
        return fallback
    try:
        if pq.read_metadata(path).num_rows > ROWS_LIMIT:
            return fallback
        columns = ["part", "t0", "t1", "st"]
        table = pq.read_table(path, columns=columns, filters=[("kind", "=", SEND)])
    except (OSError, pa.ArrowException) as error:
        files.problems.append(f"history/records.parquet cannot be read: {error}.")
        return fallback
    part, t0, t1, st = (table[name].to_numpy() for name in columns)
    # A send that never ended has t1 = -1: it ends at its begin.
    begun_s, done_s, acked = (t0 - files.origin_ns) / 1e9, (np.maximum(t1, t0) - files.origin_ns) / 1e9, st == OK
    samples = LatencySamples(exact_gaps=True)
    for dense, name in files.part_names.items():
        here = (part == dense) & (begun_s <= end) & (done_s >= begin)
        samples.gaps[name] = _gaps(begun_s[here], done_s[here], acked[here], begin, end)
    step = max(1, int(acked.sum()) // POINTS)
    samples.points = np.stack([done_s[acked][::step], (t1 - t0)[acked][::step] / 1e6])
    return samples


def _gaps(begun_s: Any, done_s: Any, acked: Any, begin: float, end: float) -> list[LaneSpan]:
    """Return the spans in which writes waited and none was acknowledged. A span is returned if it is longer than
    UNAVAILABLE_S and than 20 times the median span.

    The three arrays have an entry for each write: when it began, when it ended, and whether it was acknowledged. Writes
    that were never acknowledged make spans of their own, which are merged with overlapping ones, as in
    `squall.checkers.metrics`.
    """
    import numpy as np

    # One sorted list of begins and ends; a stretch lies between two acknowledgements. At the same moment begins come
    # before ends, so that a write that follows at once leaves no gap.
    t = np.concatenate([begun_s, done_s])
    ends, ok = np.repeat([False, True], len(begun_s)), np.concatenate([acked, acked])
    order = np.lexsort((ok, ends, t))
    t, ends, ok = t[order], ends[order], ok[order]
    stretch = np.cumsum(ends & ok)

    def writes(acknowledged: bool) -> tuple[Any, Any]:
        """Return when writes waited in each stretch of time between two successive acknowledgements, as two arrays. The
        first has the earliest moment in the stretch at which a write waited, the second the latest one; both are NaN if
        none waited. If `acknowledged`, only writes that were acknowledged in the end count; else only the others.
        """
        first, last = np.full((2, len(t) + 1), np.nan)
        waiting = np.flatnonzero(np.cumsum(np.where(ok == acknowledged, np.where(ends, -1, 1), 0)) > 0)
        last[stretch[waiting]] = t[waiting + 1]  # of several the last one stays
        first[stretch[waiting[::-1]]] = t[waiting[::-1]]
        return first, last

    (a0, a1), (f0, f1) = writes(True), writes(False)
    # Waits of both kinds that overlap are one span.
    touch = (f0 <= a1) & (a0 <= f1)
    begins = np.concatenate([np.where(touch, np.fmin(a0, f0), a0), np.where(touch, np.nan, f0)])
    untils = np.concatenate([np.where(touch, np.fmax(a1, f1), a1), f1])
    known = ~np.isnan(begins)
    begins, untils = begins[known], untils[known]
    if not len(begins):
        return []
    limit = max(UNAVAILABLE_S, 20 * float(np.median(untils - begins)))
    long = np.flatnonzero(untils - begins > limit)
    spans = [LaneSpan(max(float(begins[i]), begin), min(float(untils[i]), end), "gap") for i in long]
    return sorted(spans, key=lambda each: each.begin)


def histories_of(files: RunFiles, values: Iterable[int]) -> dict[int, list[Json]]:
    """Return every send and read of these values, by value, in order of time; empty without a converted history, and
    without pyarrow to read it.
    """
    wanted = sorted({value for value in values if value >= 0})
    path = files.path / "history" / "records.parquet"
    if not wanted or not path.exists() or find_spec("pyarrow") is None:
        return {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, filters=[("val", "in", wanted)])
    except (OSError, pa.ArrowException):
        return {}
    found: dict[int, list[Json]] = {}
    for row in sorted(table.to_pylist(), key=lambda row: (row["t1"], row["t0"])):
        found.setdefault(row["val"], []).append(row)
    return found
