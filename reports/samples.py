"""What the converted history (`history/records.parquet`) adds: gaps, single latencies, where a value went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reports.lanes import UNAVAILABLE_S, Span, gaps_of_metrics
from reports.run_files import Json, RunFiles

ROWS_LIMIT = 8_000_000
"""Larger histories are not read for a picture: per partition only the longest gap is drawn then."""
POINTS = 6_000
"""Single latencies that are drawn at most, evenly taken."""
SEND, POLL = 0, 1
OK = 0


@dataclass
class Samples:
    """`points`: (2, n) seconds and milliseconds of acknowledged sends; empty where there is no converted history."""

    gaps: dict[str, list[Span]] = field(default_factory=dict)
    points: Any = None
    """numpy array or None."""
    exact_gaps: bool = False
    """False: only each partition's longest gap is known, from metrics.json."""


def read_samples(files: RunFiles, begin: float, end: float) -> Samples:
    """Gaps and latencies between `begin` and `end` of the page's seconds; falls back to metrics.json."""
    path = files.path / "history" / "records.parquet"
    fallback = Samples(gaps=gaps_of_metrics(files))
    if not path.exists() or files.origin_ns is None:
        return fallback
    try:
        if pq.read_metadata(path).num_rows > ROWS_LIMIT:
            return fallback
        columns = ["part", "t0", "t1"]
        table = pq.read_table(path, columns=columns, filters=[("kind", "=", SEND), ("st", "=", OK)])
    except (OSError, pa.ArrowException) as error:
        files.problems.append(f"history/records.parquet cannot be read: {error}.")
        return fallback
    part, t0, t1 = (table[name].to_numpy() for name in columns)
    done_s = (t1 - files.origin_ns) / 1e9
    samples = Samples(exact_gaps=True)
    for dense, name in files.part_names.items():
        samples.gaps[name] = _gaps(np.sort(done_s[part == dense]), begin, end)
    step = max(1, len(done_s) // POINTS)
    samples.points = np.stack([done_s[::step], (t1 - t0)[::step] / 1e6])
    return samples


def _gaps(acked_s: Any, begin: float, end: float) -> list[Span]:
    """Where nothing was acknowledged for UNAVAILABLE_S, or for much longer than is usual in a slow load."""
    inside = acked_s[(acked_s >= begin) & (acked_s <= end)]
    edges = np.concatenate([[begin], inside, [end]])
    waits = np.diff(edges)
    limit = max(UNAVAILABLE_S, 20 * float(np.median(waits)))
    return [Span(float(edges[i]), float(edges[i + 1]), "gap") for i in np.flatnonzero(waits > limit)]


def histories_of(files: RunFiles, values: Iterable[int]) -> dict[int, list[Json]]:
    """Every send and read of these values, by value, in order of time; empty without a converted history."""
    wanted = sorted({value for value in values if value >= 0})
    path = files.path / "history" / "records.parquet"
    if not wanted or not path.exists():
        return {}
    try:
        table = pq.read_table(path, filters=[("val", "in", wanted)])
    except (OSError, pa.ArrowException):
        return {}
    found: dict[int, list[Json]] = {}
    for row in sorted(table.to_pylist(), key=lambda row: (row["t1"], row["t0"])):
        found.setdefault(row["val"], []).append(row)
    return found
