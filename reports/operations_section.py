"""The page's section of operations: which stretches of which partitions are shown, and all that happened there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reports.checks import Check
from reports.fault_words import FaultRow
from reports.lanes import terms
from reports.links import ShownGroup, ShownWitness
from reports.operations import Shown, Window, draw, text_of
from reports.operations_read import Operation, read_operations
from reports.run_files import RunFiles, integer, mapping, number

WINDOWS_AT_MOST = 6
OPERATIONS_AT_MOST = 300
"""In one picture: those nearest to its middle."""
BEFORE_S, AFTER_S = 0.4, 1.1
"""What is shown around a fault's begin, and around the operation of a witness."""
TOGETHER = 0.5
"""A window that has so much of another one is left out."""


def section_of(
    files: RunFiles, faults: Sequence[FaultRow], checks: Sequence[Check], groups: Mapping[str, Sequence[ShownGroup]]
) -> list[Shown]:
    """Findings first, then faults, each in the partition that suffered most; none without a converted history."""
    part_of = {name: part for part, name in files.part_names.items()}
    about = _about(groups)
    by_partition = terms(files)
    shown: list[Shown] = []
    for window in _windows(files, faults, checks, groups):
        if len(shown) >= WINDOWS_AT_MOST or any(_is_part_of(window, each.window) for each in shown):
            continue
        every = read_operations(files, part_of[window.partition], window.begin, window.end)
        kept, window = _nearest(every, window)
        if kept:
            own = by_partition.get(window.partition, [])
            svg = draw(window, kept, faults, own, about, f"operations-{len(shown)}")
            shown.append(Shown(window, tuple(kept), len(every) - len(kept), svg, text_of(kept)))
    return shown


def anchors_of(shown: Sequence[Shown]) -> frozenset[int]:
    """Operations that a link can lead to."""
    return frozenset(each.op for one in shown for each in one.operations)


def _about(groups: Mapping[str, Sequence[ShownGroup]]) -> dict[int, str]:
    """An operation or a value of a witness -> the first witness's anchor."""
    about: dict[int, str] = {}
    for witness in _witnesses(groups):
        for key in (integer(witness.raw.get("op")), integer(witness.raw.get("val"))):
            if key >= 0:
                about.setdefault(key, witness.anchor)
    return about


def _witnesses(groups: Mapping[str, Sequence[ShownGroup]]) -> Iterator[ShownWitness]:
    return (each for found in groups.values() for group in found for each in group.witnesses)


def _windows(
    files: RunFiles, faults: Sequence[FaultRow], checks: Sequence[Check], groups: Mapping[str, Sequence[ShownGroup]]
) -> Iterator[Window]:
    """Around the first witness of each finding, then around each fault."""
    known = set(files.part_names.values())
    worst = ""
    for check in checks:
        first = next(iter(_witnesses({check.title: groups.get(check.title, ())})), None)
        where = str(first.raw.get("partition") or "") if first is not None else ""
        at = next((line.t for line in first.lines if "hands the record over" in line.text), None) if first else None
        if first is not None and where in known:
            worst = worst or where
            if at is not None:
                yield Window(where, at - BEFORE_S, at + AFTER_S, f"around the record of {check.title}, {first.line}")
    worst = worst or _worst(files, known)
    for row in faults:
        if row.began is not None and worst:
            yield Window(worst, row.began - BEFORE_S, row.began + AFTER_S, f"around the begin of {row.label}")


def _worst(files: RunFiles, known: set[str]) -> str:
    """The partition that acknowledged nothing for the longest time."""
    gaps = mapping(mapping(files.metrics.get("unavailable")).get("partitions"))
    lengths = {name: number(mapping(gaps.get(name)).get("s")) or 0.0 for name in sorted(known)}
    return max(lengths, key=lambda name: lengths[name], default="")


def _is_part_of(window: Window, other: Window) -> bool:
    both = min(window.end, other.end) - max(window.begin, other.begin)
    return window.partition == other.partition and both > TOGETHER * (window.end - window.begin)


def _nearest(every: Sequence[Operation], window: Window) -> tuple[list[Operation], Window]:
    """As many operations as there is room for, and the stretch that they cover."""
    if len(every) <= OPERATIONS_AT_MOST:
        return list(every), window
    middle = window.begin + BEFORE_S
    kept = sorted(every, key=lambda each: (abs(each.t0 - middle), each.op))[:OPERATIONS_AT_MOST]
    first, last = min(each.t0 for each in kept), max(each.t0 for each in kept)
    shorter = Window(window.partition, max(first, window.begin), min(max(last, first + 0.01), window.end), window.why)
    return sorted(kept, key=lambda each: (each.t0, each.op)), shorter
