"""Compares a night of tests with earlier nights, from the store's rows. It reads and writes no files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.night.parts import EVERYTHING
from tests.night.record import FAILED, NOT_HERE, PASSED, UNKNOWN

Row = dict[str, Any]
WELL, FOUND, TOO_LITTLE = 0, 1, 2
LOOKED_BACK = 30
"""The number of last nights whose results show which tests are flaky."""
SHOWN = 25
"""How many of the costliest tests are shown."""


def verdict(results: Mapping[str, str]) -> int:
    """Return the exit code of a night, from the result of each part. A part that cannot run on this machine changes it
    only if no part passed.
    """
    found = Counter(results.values())
    if found[FAILED]:
        return FOUND
    return TOO_LITTLE if found[UNKNOWN] or not found[PASSED] else WELL


@dataclass(frozen=True, slots=True)
class Report:
    """A night of tests, compared with the nights before it."""

    night: Row
    parts: tuple[Row, ...]
    tests: tuple[Row, ...]
    before: tuple[Row, ...]
    """The tests of the last earlier night that ran tests."""
    before_night: str
    """The name of that night; empty if there is none."""
    flaky: tuple[tuple[str, str], ...]
    """Flaky tests: (test, reason)."""
    unread: tuple[str, ...]
    """A sentence for each night in the store that cannot be read."""
    not_asked: tuple[str, ...]
    """Parts that this night was not to run."""

    @property
    def problems(self) -> list[str]:
        """Return a sentence for everything that is missing in this night, or in the nights it is compared with."""
        return [*(self.night["problems"] or ()), *self.unread]

    @property
    def word(self) -> str:
        """Return valid, invalid or unknown, which sets the page's colour."""
        return {WELL: "valid", FOUND: "invalid"}.get(self.night["exit"], "unknown")

    @property
    def failed(self) -> list[Row]:
        """Return the tests that failed, new failures first."""
        rows = [row for row in self.tests if row["result"] == FAILED]
        return sorted(rows, key=lambda row: (not self.is_new(row), row["test"]))

    @property
    def headline(self) -> str:
        """Return the result in a few words."""
        wrong = [row["part"] for row in self.parts if row["result"] == FAILED]
        if wrong:
            return f"Failed: {', '.join(wrong)}"
        if self.word == "unknown":
            return "Too little is proven"
        passed = all(row["result"] == PASSED for row in self.parts)
        if not self.not_asked:
            return "Everything passed" if passed else "Nothing failed"
        asked = ", ".join(row["part"] for row in self.parts)
        return f"{'All that was asked for passed' if passed else 'Nothing failed of what was asked for'}: {asked}"

    @property
    def sentences(self) -> list[str]:
        """Return the sentences that explain the result."""
        told = [f"Not asked for: {', '.join(self.not_asked)}."] if self.not_asked else []
        if self.tests:
            new = sum(1 for row in self.failed if self.is_new(row))
            failed = f"{len(self.failed):,} failed ({new:,} new)" if self.failed else "none failed"
            told.append(f"Of {len(self.tests):,} tests {failed}; skipped: {len(self.skipped):,}.")
        if self.flaky:
            told.append(f"Flaky: {len(self.flaky):,}, listed below.")
        told += [f"{row['part']} is unknown: {row['why']}" for row in self.parts if row["result"] == UNKNOWN]
        lacking = [row["part"] for row in self.parts if row["result"] == NOT_HERE]
        if lacking:
            told.append(f"This machine cannot play {', '.join(lacking)}; the table says why.")
        return told

    @property
    def played_tests(self) -> bool:
        """Return whether the part with the tests was started."""
        return any(row["part"] == EVERYTHING and row["result"] != NOT_HERE for row in self.parts)

    @property
    def skipped(self) -> list[Row]:
        """Return the skipped tests."""
        return [row for row in self.tests if row["result"] == "skipped"]

    @property
    def skip_reasons(self) -> list[tuple[str, int]]:
        """Return the reasons of skips with their counts, the commonest first."""
        return Counter(row["why"] for row in self.skipped).most_common()

    @property
    def costly(self) -> list[tuple[Row, float | None]]:
        """Return the costliest tests, each with its CPU seconds in the night before."""
        known = {row["test"]: row["cpu_s"] for row in self.before}
        first = sorted(self.tests, key=lambda row: (-row["cpu_s"], row["test"]))[:SHOWN]
        return [(row, known.get(row["test"])) for row in first]

    @property
    def cpu_s(self) -> float:
        """Return the CPU time of all tests, in seconds."""
        return sum(row["cpu_s"] for row in self.tests)

    @property
    def repaired(self) -> list[str]:
        """Tests that failed in the night before and passed tonight."""
        passed = {row["test"] for row in self.tests if row["result"] == PASSED}
        return sorted(row["test"] for row in self.before if row["result"] == FAILED and row["test"] in passed)

    @property
    def added(self) -> list[str]:
        """Tests that the night before did not have."""
        return sorted(self._names() - {row["test"] for row in self.before}) if self.before else []

    @property
    def removed(self) -> list[str]:
        """Tests of the night before that this one does not have."""
        return sorted({row["test"] for row in self.before} - self._names()) if self.tests else []

    def is_new(self, row: Row) -> bool:
        """Return whether this failure was not in the night before."""
        return not any(row["test"] == each["test"] and each["result"] == FAILED for each in self.before)

    def _names(self) -> set[str]:
        return {row["test"] for row in self.tests}


def report_of(
    tables: Mapping[str, Sequence[Row]], night: str, unread: Sequence[str] = (), not_asked: Sequence[str] = ()
) -> Report:
    """Return the report of the night of that name.

    tables: rows of the store, the earliest night first. unread: a sentence for each night that cannot be read.
    not_asked: parts that this night was not to run.
    """
    order = [row["night"] for row in tables["test_nights"]]
    upto = order[: order.index(night) + 1]
    of_night: dict[str, list[Row]] = defaultdict(list)
    for row in tables["tests"]:
        of_night[row["night"]].append(row)
    before_night = next((name for name in reversed(upto[:-1]) if of_night[name]), "")
    last = [row for name in upto[-LOOKED_BACK:] for row in of_night[name]]
    return Report(
        night=next(row for row in tables["test_nights"] if row["night"] == night),
        parts=tuple(row for row in tables["parts"] if row["night"] == night),
        tests=tuple(of_night[night]),
        before=tuple(of_night[before_night]),
        before_night=before_night,
        flaky=tuple(sorted({**_over_nights(last), **_within(of_night[night])}.items())),
        unread=tuple(unread),
        not_asked=tuple(not_asked),
    )


def _within(tests: Sequence[Row]) -> dict[str, str]:
    """Return tests that failed in this night and passed when run once more, alone; each with the reason for the page.
    """
    return {row["test"]: "failed tonight, and passed alone" for row in tests if row["flaky"]}


def _over_nights(tests: Sequence[Row]) -> dict[str, str]:
    """Return tests that failed in some nights and passed in others at the same commit; each with the reason for the
    page.
    """
    counted: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in tests:
        if row["commit"] and not row["commit"].endswith("-dirty"):
            counted[row["test"], row["commit"]][row["result"]] += 1
    return {
        test: f"failed in {found[FAILED]} of {found[FAILED] + found[PASSED]} nights at commit {commit[:12]}"
        for (test, commit), found in counted.items()
        if found[FAILED] and found[PASSED]
    }
