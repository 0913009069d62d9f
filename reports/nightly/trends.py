"""Finds what changed over the nights: verdicts, flakiness, availability and latency of each configuration. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from squall.checkers.nightly.changes import ChangePoint, changes
from squall.checkers.nightly.results import INVALID, NO_VERDICT, UNKNOWN, VALID
from squall.reports.nightly.standing import FindingStatus, Place, compare_findings, places_tested, ran_again

Row = dict[str, Any]
MEASURES = (
    ("unavailable_ms", "longest unavailability"),
    ("recovery_ms", "time to recovery"),
    ("p99_ms", "p99 without faults"),
    ("p99_faulty_ms", "p99 with faults"),
)
"""Lists (column in the row of a run, name on the page) for each measure that is followed over the nights."""
PROVEN = (VALID, INVALID)
UNPROVEN = (UNKNOWN, NO_VERDICT)


@dataclass(frozen=True, slots=True)
class NightSummary:
    """Holds one row of the page's list of nights: the night's counts of runs, findings and lost records."""

    night: str
    began: str
    runs: int
    valid: int
    invalid: int
    unknown: int
    new: int
    known: int
    gone: int
    """Counts the findings of earlier nights that are gone. A finding counts only in the first night that tested its
    configuration again.
    """
    lost: int
    """Counts the lost records of runs with a verdict, permitted or not."""

    @property
    def unknown_share(self) -> float:
        """Returns the share of items without a verdict among those that ran."""
        return self.unknown / self.runs if self.runs else 0.0


@dataclass(frozen=True, slots=True)
class FlakyItem:
    """Describes an item (a configuration with faults and a seed) that sometimes ended without a verdict."""

    item: str
    unknown: int
    """Counts the attempts without a verdict, including those that were repeated."""
    attempts: int
    nights: int
    why: str
    """Gives the reason of the last attempt without a verdict."""


@dataclass(frozen=True, slots=True)
class MeasureSeries:
    """Holds one measure of one configuration over the nights. Each value is the median over one night's runs."""

    configuration: str
    where: str
    measure: str
    nights: tuple[str, ...]
    values: tuple[float, ...]
    changes: tuple[ChangePoint, ...]

    @property
    def name(self) -> str:
        """Returns the configuration with its target and runtime, as text."""
        return f"{self.configuration}, {self.where}"


@dataclass(frozen=True, slots=True)
class Trends:
    """Holds what changed over the nights: counts per night, flaky items and series of measures."""

    nights: tuple[NightSummary, ...]
    flaky: tuple[FlakyItem, ...]
    series: tuple[MeasureSeries, ...]

    @property
    def changed(self) -> list[tuple[MeasureSeries, ChangePoint]]:
        """Returns (series, change point) for each change of a measure over the nights, the latest first."""
        found = [(each, change) for each in self.series for change in each.changes]
        order = [each.night for each in self.nights]
        return sorted(found, key=lambda pair: (order.index(pair[0].nights[pair[1].at]), pair[0].name), reverse=True)


def trends_of(nights: Sequence[Row], runs: Sequence[Row], findings: Sequence[Row]) -> Trends:
    """Return the counts, flaky items and measures of `nights`, which are in order of time. `runs` and `findings` hold
    these nights' rows.
    """
    order = {night["night"]: number for number, night in enumerate(nights)}
    return Trends(tuple(_counts(nights, runs, findings)), tuple(_flaky(runs, order)), tuple(_series(nights, runs)))


def _counts(nights: Sequence[Row], runs: Sequence[Row], findings: Sequence[Row]) -> Iterable[NightSummary]:
    names = [night["night"] for night in nights]
    by_night = {name: [run for run in runs if run["night"] == name and run["counts"]] for name in names}
    places = {name: places_tested(those) for name, those in by_night.items()}
    for number, night in enumerate(nights):
        upto = names[: number + 1]
        found, gone = compare_findings([row for row in findings if row["night"] in upto], upto)
        mine = by_night[night["night"]]
        yield NightSummary(
            night=night["night"],
            began=night["began"],
            runs=len(mine),
            valid=sum(run["verdict"] == VALID for run in mine),
            invalid=sum(run["verdict"] == INVALID for run in mine),
            unknown=sum(run["verdict"] in UNPROVEN for run in mine),
            new=sum(each.state == "new" for each in found),
            known=sum(each.state != "new" for each in found),
            gone=sum(_tested_first(each, upto, places) == night["night"] for each in gone),
            lost=sum(run["lost"] or 0 for run in mine if run["verdict"] in PROVEN),
        )


def _tested_first(gone: FindingStatus, nights: Sequence[str], places: Mapping[str, Collection[Place]]) -> str:
    """Return the first night that tested the finding's configuration again after the finding was last seen; empty if
    none did.
    """
    since = nights[nights.index(gone.nights[-1]) + 1 :]
    return next((night for night in since if ran_again(gone, places[night])), "")


def _flaky(runs: Iterable[Row], order: Mapping[str, int]) -> list[FlakyItem]:
    """Return the items that had attempts without a verdict, those with the highest share of them first. `order` maps a
    night to its position in time.
    """
    by_item: dict[str, list[Row]] = {}
    for run in runs:
        by_item.setdefault(run["item"], []).append(run)
    found = []
    for item, tried in by_item.items():
        unproven = [run for run in tried if run["verdict"] in UNPROVEN]
        if unproven:
            last = max(unproven, key=lambda run: (order[run["night"]], run["attempt"]))
            nights = len({run["night"] for run in tried})
            found.append(FlakyItem(item, len(unproven), len(tried), nights, last["why"]))
    return sorted(found, key=lambda each: (-each.unknown / each.attempts, -each.unknown, each.item))


def _series(nights: Sequence[Row], runs: Iterable[Row]) -> Iterable[MeasureSeries]:
    names = [night["night"] for night in nights]
    by_key: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for run in runs:
        if run["counts"] and run["verdict"] in PROVEN:
            for column, _ in MEASURES:
                if run[column] is not None:
                    key = run["configuration"], f"{run['target']}, {run['runtime']}", column
                    by_key.setdefault(key, {}).setdefault(run["night"], []).append(run[column])
    for (configuration, where, column), by_night in sorted(by_key.items()):
        had = tuple(name for name in names if name in by_night)
        values = tuple(median(by_night[name]) for name in had)
        yield MeasureSeries(configuration, where, column, had, values, tuple(changes(values)))
