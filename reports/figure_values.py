"""Encodes what the timeline shows at each moment, as JSON: the page's script shows it under the mouse. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from squall.reports.fault_words import FaultRow
from squall.reports.lanes import BrokerLane, LaneSpan, PartitionLane
from squall.reports.run_files import RunFiles, number

SERIES = (
    ("acknowledged/s", "acked"),
    ("failed/s", "failed"),
    ("unknown outcome/s", "unknown"),
    ("read/s", "read"),
    ("p50, ms", "p50_ms"),
    ("p99, ms", "p99_ms"),
)
LEFT, RIGHT = 0.115, 0.985
"""The panes begin and end at these fractions of the width; names of brokers and partitions are left of them."""


def values_of(
    files: RunFiles,
    faults: Sequence[FaultRow],
    brokers: Sequence[BrokerLane],
    partitions: Sequence[PartitionLane],
    span: tuple[float, float],
) -> str:
    """Return JSON with series by second, spans as [begin, end, what] and steps as [since, what]. The text is safe
    inside a script element.
    """
    end = span[1]
    told = {
        "from": span[0], "to": end, "left": LEFT, "right": RIGHT,
        "second": _numbers(files.series.get("second")),
        "series": [[name, _numbers(files.series.get(key))] for name, key in SERIES],
        "faults": [[row.began, end if row.length is None else row.began + row.length, row.label]
                   for row in faults if row.began is not None],
        "brokers": [[f"broker {lane.node}", _broker(lane)] for lane in brokers],
        "partitions": [[lane.name, {"leaders": _spans(lane.leaders, whole=True),
                                    "isr": [[_short(t), size] for t, size in lane.isr]}] for lane in partitions],
    }  # fmt: skip
    return json.dumps(told, separators=(",", ":")).replace("<", "\\u003c")


def _numbers(values: Any) -> list[float | None]:
    return [number(value) for value in values] if isinstance(values, list) else []


def _broker(lane: BrokerLane) -> list[list[Any]]:
    controller = [LaneSpan(each.begin, each.end, "active controller") for each in lane.controller]
    return _spans([*lane.states, *lane.over, *controller])


def _spans(spans: Sequence[LaneSpan], whole: bool = False) -> list[list[Any]]:
    return [[_short(each.begin), _short(each.end), int(each.kind) if whole else each.kind] for each in spans]


def _short(t: float) -> float:
    return round(t, 4)
