"""Collects the results of a configuration, night by night, for a page of its own. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any
from zlib import crc32

from squall.checkers.nightly.results import INVALID, VALID
from squall.reports.nightly.standing import wrong
from squall.reports.nightly.trends import MeasureSeries

Row = dict[str, Any]
PROVEN = (VALID, INVALID)


@dataclass(frozen=True, slots=True)
class ConfigurationNight:
    """Holds the results of a configuration in one night, on one target (Squall's brokers or Apache Kafka) in one
    runtime (processes, containers, ...). A value that is not known is None.
    """

    night: str
    where: str
    runs: int
    """Counts the items that ran; an item is one configuration with faults and a seed. Of an item that was tried again,
    the last attempt counts.
    """
    valid: int
    invalid: int
    acknowledged: int
    lost: int
    duplicated: int
    unavailable_ms: float | None
    """Gives the longest unavailability in any of the runs with a verdict; `recovery_ms` gives the longest time to
    recovery.
    """
    recovery_ms: float | None
    p99_ms: float | None
    """Gives the median over the night's runs of the p99 latency without faults. `p99_faulty_ms` is the same for sends
    during faults.
    """
    p99_faulty_ms: float | None

    @property
    def unknown(self) -> int:
        """Counts the items (a configuration with faults and a seed) whose last attempt has no verdict."""
        return self.runs - self.valid - self.invalid


@dataclass(frozen=True, slots=True)
class FindingHistory:
    """Describes one anomaly with one cause in the runs of a configuration, over the nights."""

    anomaly: str
    cause: str
    wrong: bool
    """Is True if the configuration does not permit the finding, or if the nights that had it forbid it (`--never`)."""
    nights: tuple[str, ...]
    runs: tuple[Row, ...]
    """Lists a row of the store for each run that shows the finding, the latest night first."""


@dataclass(frozen=True, slots=True)
class ConfigurationHistory:
    """Holds the results and findings of one configuration over all nights."""

    name: str
    nights: tuple[ConfigurationNight, ...]
    """Lists the results night by night, the latest night first."""
    findings: tuple[FindingHistory, ...]
    """Lists the findings: first those that need a look (`FindingHistory.wrong`), then the others. Both groups begin
    with the finding that was seen last.
    """
    series: tuple[MeasureSeries, ...]
    runs: tuple[Row, ...]
    """Lists the runs of all nights, the latest first."""

    @property
    def page(self) -> str:
        """Returns the file name of the configuration's page."""
        return page_of(self.name)


def page_of(configuration: str) -> str:
    """Return the file name of a configuration's page. A digest distinguishes names with the same letters and digits."""
    letters = re.sub(r"[^a-z0-9]+", "-", configuration.lower()).strip("-")[:60]
    return f"configuration-{letters}-{crc32(configuration.encode()):08x}.html"


def configurations_of(
    nights: Sequence[Row], runs: Sequence[Row], findings: Sequence[Row], series: Iterable[MeasureSeries]
) -> list[ConfigurationHistory]:
    """Return the results of each configuration over the nights, sorted by the configuration's name. `nights` is in
    order of time; `runs`, `findings` and `series` (the measures of each configuration) belong to these nights.
    """
    order = {row["night"]: place for place, row in enumerate(nights)}
    every = list(series)
    found = []
    for name in sorted({run["configuration"] for run in runs if run["configuration"]}):
        own = sorted((run for run in runs if run["configuration"] == name),
                     key=lambda run: (-order[run["night"]], run["item"], run["attempt"]))  # fmt: skip
        mine = [row for row in findings if row["configuration"] == name]
        found.append(
            ConfigurationHistory(
                name,
                tuple(_nights(own)),
                tuple(_findings(mine, order)),
                tuple(each for each in every if each.configuration == name),
                tuple(own),
            )
        )
    return found


def _nights(runs: Sequence[Row]) -> Iterable[ConfigurationNight]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for run in runs:
        if run["counts"]:
            groups.setdefault((run["night"], f"{run['target']}, {run['runtime']}"), []).append(run)
    for (night, where), those in groups.items():
        proven = [run for run in those if run["verdict"] in PROVEN]

        def known(column: str, rows: Sequence[Row] = proven) -> list[float]:
            return [run[column] for run in rows if run[column] is not None]

        yield ConfigurationNight(
            night=night,
            where=where,
            runs=len(those),
            valid=sum(run["verdict"] == VALID for run in those),
            invalid=sum(run["verdict"] == INVALID for run in those),
            acknowledged=int(sum(known("acknowledged"))),
            lost=int(sum(known("lost"))),
            duplicated=int(sum(known("duplicated"))),
            unavailable_ms=max(known("unavailable_ms"), default=None),
            recovery_ms=max(known("recovery_ms"), default=None),
            p99_ms=median(known("p99_ms")) if known("p99_ms") else None,
            p99_faulty_ms=median(known("p99_faulty_ms")) if known("p99_faulty_ms") else None,
        )


def _findings(rows: Sequence[Row], order: dict[str, int]) -> list[FindingHistory]:
    groups: dict[tuple[str, str, bool], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (-order[row["night"]], row["item"])):
        name = f"{row['anomaly']} ({row['evidence']})" if row["evidence"] else row["anomaly"]
        groups.setdefault((name, row["cause"], wrong(row)), []).append(row)
    found = [
        FindingHistory(*key, tuple(sorted({row["night"] for row in those}, key=order.__getitem__)), tuple(those))
        for key, those in groups.items()
    ]
    return sorted(found, key=lambda each: (not each.wrong, -order[each.nights[-1]], each.anomaly))
