"""Presents the results of nightly runs as the durability table, with a cell for each configuration, fault classes,
target and runtime. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Any

from squall.checkers.anomalies.registry import LOSS
from squall.checkers.metrics import LATENCY_UNIT_NS
from squall.checkers.nightly.runs import NO_CLASS, NOT_KNOWN
from squall.checkers.nightly.statistics import percentile_of, wilson

Row = dict[str, Any]
UNIT_MS = LATENCY_UNIT_NS / 1e6
CLASSES = {
    "P": "processes",
    "N": "network",
    "C": "clocks",
    "W1": "power loss of one",
    "WM": "power loss of several",
    "D": "disk damage",
    "DM": "disk damage of the only replica in sync",
}


@dataclass(frozen=True, slots=True)
class DurabilityCell:
    """Holds the results of a configuration under a class of faults, on one target (Squall's brokers or Apache Kafka) in
    one runtime (processes, containers, ...).
    """

    configuration: str
    classes: str
    target: str
    runtime: str
    tried: int
    runs: int
    """Counts the measured runs with a verdict. All other figures but `tried`, `invalid` and `unknown` are of these
    runs.
    """
    invalid: int
    unknown: int
    promise: str
    may_lose: bool
    """Is True if the configuration permits the loss of acknowledged records under these faults."""
    may_double: bool
    acknowledged: int
    lost: int
    lost_unacknowledged: int
    losing: int
    """Counts the runs that lost at least one record."""
    duplicated: int
    lost_tails: int
    lost_tail_records: int | None
    lost_tail_ms: float | None
    leader_changes: int | None
    unavailable_ms: float | None
    recovery_ms: float | None
    recovery_median_ms: float | None
    unrecovered: int
    p50_ms: float | None
    p99_ms: float | None
    p50_faulty_ms: float | None
    p99_faulty_ms: float | None
    behind: tuple[Row, ...]
    """Lists the runs from which the cell is made: first those whose verdict is not valid, then those that lost most."""

    @property
    def committed(self) -> int:
        """Counts the records that can be lost: those that were acknowledged, or that were read without an
        acknowledgement and are gone.
        """
        return self.acknowledged + self.lost_unacknowledged

    @property
    def interval(self) -> tuple[float, float]:
        """Returns the 95 % Wilson interval of the share of records lost."""
        return wilson(self.lost, self.committed)

    @property
    def runs_interval(self) -> tuple[float, float]:
        """Returns the 95 % Wilson interval of the share of runs that lose something."""
        return wilson(self.losing, self.runs)

    @property
    def rate(self) -> float | None:
        """Returns the share of records lost; None without records."""
        return self.lost / self.committed if self.committed else None

    @property
    def per_leader_change(self) -> float | None:
        """Returns the records lost per replaced leader; None if no leader was replaced."""
        return self.lost / self.leader_changes if self.leader_changes else None

    @property
    def broken(self) -> bool:
        """Is True if a run is invalid, or if records were lost or duplicated although the configuration promises that
        none are.
        """
        return bool(self.invalid or (self.lost and not self.may_lose) or (self.duplicated and not self.may_double))

    @property
    def where(self) -> str:
        """Returns the target and the runtime as text, such as "squall, docker"."""
        return f"{self.target}, {self.runtime}"

    @property
    def class_words(self) -> str:
        """Returns the classes of faults in words, such as "processes, network"."""
        if self.classes == NOT_KNOWN:
            return "faults not known"
        words = [CLASSES.get(each, each) for each in self.classes.split()]
        return "no faults" if self.classes == NO_CLASS else ", ".join(words)

    @property
    def promised(self) -> str:
        """Says what the configuration permits under these faults, such as "may happen: loss" or "no loss, no
        duplicates".
        """
        if not self.promise:
            return "not known"
        may = ["loss"] * self.may_lose + ["duplicates"] * self.may_double
        return f"may happen: {' and '.join(may)}" if may else "no loss, no duplicates"


def cells_of(rows: Sequence[Row]) -> list[DurabilityCell]:
    """Return the table's cells, those with a broken promise first, then by configuration."""
    return sorted(map(_cell, rows), key=lambda cell: (not cell.broken, cell.configuration, cell.classes, cell.where))


def _cell(row: Row) -> DurabilityCell:
    promises = [each for each in row["promises"] if each]
    latency = {flag: {f: _ms(row["latency"][flag], f) for f in (0.5, 0.99)} for flag in ("calm", "faulty")}
    same = ("configuration", "classes", "target", "runtime", "tried", "runs", "invalid", "unknown", "acknowledged",
            "lost", "lost_unacknowledged", "losing", "duplicated", "lost_tails", "lost_tail_records", "lost_tail_ms",
            "leader_changes", "unavailable_ms", "recovery_ms", "recovery_median_ms", "unrecovered")  # fmt: skip
    return DurabilityCell(
        **{name: row[name] for name in same},
        promise="; or ".join(sorted(promises)),
        may_lose=any(name in row["permitted"] for name in LOSS),
        may_double="duplicate" in row["permitted"],
        p50_ms=latency["calm"][0.5],
        p99_ms=latency["calm"][0.99],
        p50_faulty_ms=latency["faulty"][0.5],
        p99_faulty_ms=latency["faulty"][0.99],
        behind=tuple(
            sorted(row["behind"], key=lambda run: (run["verdict"] == "valid", -(run["lost"] or 0), run["item"]))
        ),
    )


def _ms(histogram: dict[int, int], fraction: float) -> float | None:
    took = percentile_of(histogram, fraction)
    return None if took is None else took * UNIT_MS


# ---------------------------------------------------------------------------------------------------------------- words


def count(value: float | None) -> str:
    """Return a number of records as text, such as "12,345"; empty for None."""
    return "" if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    """Return a share as a percentage, such as "12.3%" or "0.012%"; empty for None."""
    if value is None:
        return ""
    if not value:
        return "0"
    percent = 100 * value
    return f"{percent:.{2 if percent < 10 else 1}f}%" if percent >= 0.1 else f"{percent:.{1 - floor(log10(percent))}f}%"


def amount(value: float) -> str:
    """Return a mean number of records as text, such as "12" or "0.25"."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def duration(ms: float | None) -> str:
    """Return a duration as text, such as "15 s" or "250 ms"; empty for None."""
    if ms is None:
        return ""
    if ms >= 10_000:
        return f"{ms / 1000:.0f} s"
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 10 or not ms else f"{ms:.2g} ms"
