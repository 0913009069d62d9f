"""Reads nemesis.jsonl: which faults were requested, when they were on, and what proves that they took effect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from squall.checkers import first_schema
from squall.checkers.fault_traits import OUT_OF_SYNC, TAKES_DOWN
from squall.checkers.history.tables import HistoryProblem, RecordedFault, int64

FILE = "nemesis.jsonl"
SCHEMA = 3
"""Is the version of the format in which nemesis.jsonl is written now; each line names its version as `schema`. Since
schema 2 a line has its fault's class, traits (`squall.checkers.fault_traits`) and words; older lines have no schema.
Since schema 3 its evidence includes an observation in the middle of the fault.
"""
CLOCKS = "C"
"""Is the `RecordedFault.fault_class` of faults that move brokers' wall clocks."""
FOREVER = (1 << 63) - 1
"""Is the end, in ns, of a fault that never ended."""
HEARS_AFTER_NS = 10_000_000_000
"""Is how long after a fault, in ns, a broker may still not know what the other brokers decided meanwhile. Kafka's
brokers may wait that long for one connection (`socket.connection.setup.timeout.ms`); the fetches that follow take far
less.
"""


def parse_faults(lines: Iterable[bytes]) -> tuple[list[RecordedFault], HistoryProblem | None]:
    """Return the faults by id, each as its last line reports it, and why reading stopped early; None if it did not.

    An unfinished last line is left out, as in a history: its fault then counts as one that began and never ended.
    """
    faults: dict[int, RecordedFault] = {}
    for number, raw in enumerate(lines, start=1):
        try:
            fault = _fault(json.loads(raw))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if raw.endswith(b"\n"):
                return list(faults.values()), HistoryProblem(FILE, number, f"{type(error).__name__}: {error}")
            break
        faults[fault.id] = fault
    return [faults[key] for key in sorted(faults)], None


def _fault(line: dict[str, Any]) -> RecordedFault:
    target, params, action = line.get("target") or {}, dict(line.get("params") or {}), str(line["action"])
    schema = int64(line.get("schema", 1))
    if schema > SCHEMA:
        raise ValueError(f"schema {schema} is newer than {SCHEMA}, which is known here")
    old = schema < 2
    return RecordedFault(
        id=int64(line["id"]),
        action=action,
        fault_class=str(line.get("fault_class") or (first_schema.class_of(action) if old else "")),
        traits=tuple(sorted(first_schema.traits_of(action, params) if old else map(str, line["traits"]))),
        target=str(target.get("asked", "")),
        resolved=tuple(target.get("resolved") or ()),
        params=params,
        asked=_time(line.get("asked")),
        began=_time(line.get("began")),
        ended=_time(line.get("ended")),
        evidence=dict(line["evidence"]) if line.get("evidence") else None,
        error=str(line.get("error") or ""),
        on=_time(line.get("on")),
    )


def _time(value: Any) -> int:
    return -1 if value is None else int64(value)


def windows(faults: Iterable[RecordedFault]) -> list[tuple[int, int]]:
    """Return the times in which at least one fault was on, as disjoint [began, ended] in ns, in order. A fault without
    an end lasts for ever.
    """
    return _merged((each.began, each.ended if each.ended >= 0 else FOREVER) for each in faults if each.began >= 0)


def apart(faults: Iterable[RecordedFault]) -> list[tuple[int, int]]:
    """Return the times in which a broker may have run without hearing what the other brokers decided, as disjoint
    [begin, end] in ns, in order.

    Such a time lasts from the begin of a fault that may leave a broker running although it does not keep up with the
    others (cut or slow links, a pause, a slow disk or processor) until HEARS_AFTER_NS after the fault's end. A broker
    that is down answers no request, so faults that certainly take their nodes down do not count. A rolling restart, or
    a crash at some point, does count, because its line does not say that it takes nodes down.
    """
    return _merged(
        (each.began, each.ended + HEARS_AFTER_NS if each.ended >= 0 else FOREVER)
        for each in faults
        if each.began >= 0 and OUT_OF_SYNC in each.traits and TAKES_DOWN not in each.traits
    )


def skew_ms(faults: Iterable[RecordedFault], info: Mapping[str, Any]) -> int:
    """Return by how many ms brokers' clocks may have been off from the history's clock, or from their own earlier time:
    by faults that moved them, and by the machine's own clock if it was set or suspended. `info` is run.json.

    A clock fault that does not say its offset, or that drifts and never ended, may have moved clocks by any amount
    (FOREVER).
    """
    drift = info.get("wall_drift_ms")
    moved = [_moved_ms(each) for each in faults if each.began >= 0 and each.fault_class == CLOCKS]
    # Two brokers may be off in opposite directions.
    ahead, behind = (max((sign * each for each in moved if sign * each > 0), default=0) for sign in (1, -1))
    return min(FOREVER, ahead + behind + (abs(drift) if type(drift) is int else 0))


def _moved_ms(fault: RecordedFault) -> int:
    """Return by how many ms a fault moved its brokers' clocks at most; negative if it moved them back."""
    offset, rate = fault.params.get("offset_ms"), fault.params.get("rate", 1.0)
    if not isinstance(offset, int | float) or not isinstance(rate, int | float):
        return FOREVER
    if rate != 1 and fault.ended < 0:
        return FOREVER
    drift = (rate - 1.0) * (fault.ended - fault.began) / 1e6 if rate != 1 else 0.0
    return ceil(max(offset, offset + drift) if offset + drift > 0 else min(offset, offset + drift))


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for began, ended in sorted(spans):
        if merged and began <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ended))
        else:
            merged.append((began, ended))
    return merged
