"""Makes the page's section of operations: selects time windows of partitions, and draws all operations in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from squall.checkers.history.seal import FILE
from squall.reports.checks import CheckResult
from squall.reports.fault_words import FaultRow
from squall.reports.lanes import leader_epochs
from squall.reports.links import LinkedWitness, LinkedWitnessGroup
from squall.reports.operations import OperationsWindow, PartitionTimeWindow, draw, text_of
from squall.reports.operations_read import ClientOperation, read_operations
from squall.reports.run_files import RunFiles, integer, mapping, number

WINDOWS_AT_MOST = 12
SECTION_BYTES = 850_000
"""Limits the bytes of the section. A page has at most 1.5 MB, and 350 to 450 KB without its operations."""
SINGLE_AT_MOST = 200
"""Limits the operations of a picture that have a box of their own with a title: those nearest to its middle. Operations
that a witness names have one in any case.
"""
SINGLE_BYTES, TOGETHER_BYTES = 390, 150
"""Give the approximate bytes that one operation adds to the page, picture and text: if it has a box of its own
(`SINGLE_BYTES`), and if it is drawn in one path with others (`TOGETHER_BYTES`).
"""
BEFORE_S, AFTER_S = 0.4, 1.1
"""A window around a fault begins `BEFORE_S` before the fault's begin and ends `AFTER_S` after its end. A window around
a witness is measured in the same way from the time at which the witness's record was sent.
"""
TOGETHER = 0.5
"""A window is left out if more than this share of it is part of another window."""


@dataclass(frozen=True, slots=True)
class OperationsSection:
    """Holds the windows that the page shows, and in `rest` a sentence about what is left out; empty if nothing is."""

    shown: tuple[OperationsWindow, ...] = ()
    rest: str = ""


def section_of(
    files: RunFiles,
    faults: Sequence[FaultRow],
    checks: Sequence[CheckResult],
    groups: Mapping[str, Sequence[LinkedWitnessGroup]],
) -> OperationsSection:
    """Return windows around the first witness of each finding, then windows around faults; none without a converted
    history. The windows around faults show one partition: that of the first finding, else the one that acknowledged
    nothing for the longest time.

    Around a fault every operation of the partition is shown, from before its begin to after its end. If that does not
    fit, two windows show the operations nearest to its begin and to its end.
    """
    maker = _WindowBuilder(files, faults, _about(groups), {name: part for part, name in files.part_names.items()})
    wanted: list[_WindowCandidate] = []
    for each in _windows(files, faults, checks, groups):
        if not any(_is_part_of(each.window, other.window) for other in wanted):
            wanted.append(each)
    bytes_left = SECTION_BYTES
    for turn, each in enumerate(wanted[:WINDOWS_AT_MOST]):
        # An equal share of what is left: what one window does not need goes to those after it.
        bytes_left -= maker.show(each, bytes_left // (min(len(wanted), WINDOWS_AT_MOST) - turn))
    missing = len(wanted) - WINDOWS_AT_MOST
    rest = f"{missing} more stretches are not shown here. {FILE} has every operation." if missing > 0 else ""
    return OperationsSection(tuple(maker.shown), rest)


@dataclass(frozen=True, slots=True)
class _WindowCandidate:
    """Describes a window that may be shown. `middles` are the one or two times in it that matter most: when a witness's
    record was sent, or when a fault began and ended.
    """

    window: PartitionTimeWindow
    middles: tuple[float, ...]


class _WindowBuilder:
    """Draws windows, one after the other, and remembers the operations that have an anchor, because anchors are unique
    on a page.
    """

    def __init__(
        self, files: RunFiles, faults: Sequence[FaultRow], about: Mapping[int, str], part_of: Mapping[str, int]
    ) -> None:
        self._files, self._faults, self._about, self._part_of = files, faults, about, part_of
        self._terms = leader_epochs(files)
        self._named: set[int] = set()
        """Holds the operations that have an anchor already."""
        self.shown: list[OperationsWindow] = []

    def show(self, wanted: _WindowCandidate, bytes_left: int) -> int:
        """Draw the whole window. If that takes more than `bytes_left`, and the window has two `middles`, draw a short
        window around each of them instead. Return the bytes used.
        """
        window, parts = wanted.window, [_around(wanted.window, middle) for middle in wanted.middles]
        first = self._read(parts[0])
        length_s = parts[0].end - parts[0].begin
        # Of a long fault under a heavy load not even the number is read: it may be millions.
        if len(parts) < 2 or _bytes_of(len(first) * (window.end - window.begin) / length_s) <= bytes_left:
            return self._add(window, self._read(window) if window != parts[0] else first, wanted.middles[0], bytes_left)
        used = self._add(parts[0], first, wanted.middles[0], bytes_left // 2)
        return used + self._add(parts[1], self._read(parts[1]), wanted.middles[1], bytes_left - used)

    def _read(self, window: PartitionTimeWindow) -> list[ClientOperation]:
        return read_operations(self._files, self._part_of[window.partition], window.begin, window.end)

    def _add(
        self, window: PartitionTimeWindow, every: Sequence[ClientOperation], middle: float, bytes_left: int
    ) -> int:
        kept, window = _nearest(every, window, middle, _number_in(bytes_left))
        if not kept:
            return 0
        near = sorted(kept, key=lambda each: (abs(each.t0 - middle), each.op))[:SINGLE_AT_MOST]
        single = {each.op for each in near} | {each.op for each in kept if self._in_question(each)}
        own = self._terms.get(window.partition, [])
        ident = f"operations-{len(self.shown)}"
        svg = draw(window, kept, self._faults, own, self._about, ident, single, self._named)
        self._named |= single
        left_out, words = len(every) - len(kept), text_of(kept)
        elsewhere = _elsewhere(self._files, every, window) if left_out else ""
        self.shown.append(OperationsWindow(window, tuple(kept), left_out, svg, words, elsewhere))
        return len(svg) + len(words)

    def _in_question(self, each: ClientOperation) -> bool:
        return each.op in self._about or any(value in self._about for value in each.values)


def _bytes_of(operations: float) -> float:
    """Return about how many bytes this number of operations adds to the page."""
    single = min(operations, SINGLE_AT_MOST)
    return single * SINGLE_BYTES + (operations - single) * TOGETHER_BYTES


def _number_in(bytes_left: int) -> int:
    """Return about how many operations a window can show if it may add `bytes_left` bytes to the page."""
    single = min(bytes_left // SINGLE_BYTES, SINGLE_AT_MOST)
    return single + max(0, bytes_left - single * SINGLE_BYTES) // TOGETHER_BYTES


def _around(window: PartitionTimeWindow, middle: float) -> PartitionTimeWindow:
    """Return the part of the window from `BEFORE_S` before the time `middle` to `AFTER_S` after it."""
    return replace(window, begin=max(window.begin, middle - BEFORE_S), end=min(window.end, middle + AFTER_S))


def _elsewhere(files: RunFiles, every: Sequence[ClientOperation], window: PartitionTimeWindow) -> str:
    """Say where the operations are that the window leaves out: in which file, and at which times."""
    outside = [each.t0 for each in every if not window.begin <= each.t0 <= window.end]
    if files.origin_ns is None or not outside:
        return f"{FILE} has them"
    first, last = (int(files.origin_ns + at * 1e9) for at in (min(outside), max(outside)))
    return f"{FILE} has them, at t from {first} to {last}"


def anchors_of(shown: Sequence[OperationsWindow]) -> frozenset[int]:
    """Return the ids of the operations that have an anchor on the page."""
    return frozenset(each.op for one in shown for each in one.operations if f'id="op-{each.op}"' in one.svg)


def _about(groups: Mapping[str, Sequence[LinkedWitnessGroup]]) -> dict[int, str]:
    """Map the number of each operation, and the value of each record, that a witness names to the anchor of the first
    such witness.
    """
    about: dict[int, str] = {}
    for witness in _witnesses(groups):
        for key in (integer(witness.raw.get("op")), integer(witness.raw.get("val"))):
            if key >= 0:
                about.setdefault(key, witness.anchor)
    return about


def _witnesses(groups: Mapping[str, Sequence[LinkedWitnessGroup]]) -> Iterator[LinkedWitness]:
    return (each for found in groups.values() for group in found for each in group.witnesses)


def _windows(
    files: RunFiles,
    faults: Sequence[FaultRow],
    checks: Sequence[CheckResult],
    groups: Mapping[str, Sequence[LinkedWitnessGroup]],
) -> Iterator[_WindowCandidate]:
    """Yield a window around the first witness of each finding, then one for each fault, from before its begin to after
    its end.
    """
    known = set(files.part_names.values())
    worst = ""
    for check in checks:
        first = next(iter(_witnesses({check.key: groups.get(check.key, ())})), None)
        where = str(first.raw.get("partition") or "") if first is not None else ""
        at = next((line.t for line in first.lines if "hands the record over" in line.text), None) if first else None
        if first is not None and where in known:
            worst = worst or where
            if at is not None:
                why = f"around the record of {check.title}, {first.line}"
                yield _WindowCandidate(PartitionTimeWindow(where, at - BEFORE_S, at + AFTER_S, why), (at,))
    worst = worst or _worst(files, known)
    for row in faults:
        if row.began is not None and worst:
            end = row.began + (row.length or 0.0)
            middles = (row.began, end) if row.length else (row.began,)
            yield _WindowCandidate(
                PartitionTimeWindow(worst, row.began - BEFORE_S, end + AFTER_S, f"around {row.label}"), middles
            )


def _worst(files: RunFiles, known: set[str]) -> str:
    """Return the partition, of those in `known`, that acknowledged nothing for the longest time; empty if there is
    none.
    """
    gaps = mapping(mapping(files.metrics.get("unavailable")).get("partitions"))
    lengths = {name: number(mapping(gaps.get(name)).get("s")) or 0.0 for name in sorted(known)}
    return max(lengths, key=lambda name: lengths[name], default="")


def _is_part_of(window: PartitionTimeWindow, other: PartitionTimeWindow) -> bool:
    both = min(window.end, other.end) - max(window.begin, other.begin)
    return window.partition == other.partition and both > TOGETHER * (window.end - window.begin)


def _nearest(
    every: Sequence[ClientOperation], window: PartitionTimeWindow, middle: float, at_most: int
) -> tuple[list[ClientOperation], PartitionTimeWindow]:
    """Return the `at_most` operations nearest to `middle`, and the window that they cover."""
    if len(every) <= at_most:
        return list(every), window
    kept = sorted(every, key=lambda each: (abs(each.t0 - middle), each.op))[:at_most]
    first, last = min(each.t0 for each in kept), max(each.t0 for each in kept)
    shorter = replace(window, begin=max(first, window.begin), end=min(max(last, first + 0.01), window.end))
    return sorted(kept, key=lambda each: (each.t0, each.op)), shorter
