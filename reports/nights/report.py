"""What the page of a night is made of, from the store's rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.nights.standing import NEW, Standing, standings, wrong
from reports.nights.table import Cell, cells_of

Row = dict[str, Any]
VERDICTS = ("invalid", "unknown", "no verdict", "valid")
UNKNOWN_SHARE = 0.2
"""Above this share of runs without a verdict, the page says that too little is proven."""


@dataclass(frozen=True, slots=True)
class Report:
    """A night and the nights before it."""

    night: Row
    """Its row of the store."""
    scope: str
    """What the table is over, in words."""
    runs: tuple[Row, ...]
    """Of the night, what somebody has to look at first."""
    cells: tuple[Cell, ...]
    found: tuple[Standing, ...]
    gone: tuple[Standing, ...]
    permitted: tuple[Row, ...]
    """Findings of the night that its configurations permit."""
    nights: tuple[Row, ...]
    """All nights that are compared, this one last."""
    problems: tuple[str, ...]

    @property
    def counting(self) -> list[Row]:
        """The last attempt of each item."""
        return [run for run in self.runs if run["counts"]]

    @property
    def verdicts(self) -> Counter[str]:
        """How many items came to which verdict."""
        return Counter(run["verdict"] for run in self.counting)

    @property
    def new(self) -> list[Standing]:
        """Findings that no earlier night has."""
        return [each for each in self.found if each.state == NEW]

    @property
    def known(self) -> list[Standing]:
        """Findings that an earlier night had already."""
        return [each for each in self.found if each.state != NEW]

    @property
    def unproven(self) -> int:
        """Items that ran and have no verdict."""
        return self.verdicts["unknown"] + self.verdicts["no verdict"]

    @property
    def retried(self) -> int:
        """Attempts that were made again."""
        return len(self.runs) - len(self.counting)

    @property
    def word(self) -> str:
        """valid, invalid or unknown, of the whole night."""
        if self.found or self.verdicts["invalid"]:
            return "invalid"
        if not self.verdicts["valid"] or self.unproven > UNKNOWN_SHARE * len(self.counting):
            return "unknown"
        return "valid"

    @property
    def headline(self) -> str:
        """Is something wrong, in a few words."""
        if self.found:
            new = len(self.new)
            return f"{_many(len(self.found), 'finding')}, {new or 'none'} of them new"
        if self.verdicts["invalid"]:
            return _many(self.verdicts["invalid"], "invalid run")
        if not self.runs:
            return "Nothing ran"
        if self.word == "unknown":
            return "Too little is proven"
        return "Nothing is wrong"

    @property
    def sentences(self) -> list[str]:
        """What that means, and what to do."""
        told = []
        if not self.runs:
            told.append("No run of this night has ended. " + _of_night(self.night))
        elif self.found:
            told.append("Begin with the first finding below: its story, and the command that tells more, stand there.")
        elif self.verdicts["invalid"]:
            told.append("Their verdicts do not say what they found: begin with the red runs below.")
        elif not self.verdicts["valid"]:
            told.append(
                "Every run ended without a verdict, so nothing is known of the cluster. Each run below says why."
            )
        elif self.word == "unknown":
            told.append(
                f"{self.unproven} of {len(self.counting)} runs ended without a verdict. Each of them below says why."
            )
        else:
            told.append("No run found anything that its configuration does not permit.")
        if self.unproven and self.word == "valid":
            told.append(f"{_many(self.unproven, 'run')} ended without a verdict and prove nothing.")
        if self.runs and (missing := len(self.night["not_run"])):
            told.append(
                f"{missing} of {self.night['planned']} planned runs did not run. {_of_night(self.night)}".strip()
            )
        return told


def report_of(
    tables: Mapping[str, Sequence[Row]],
    night: str,
    cells: Sequence[Row],
    scope: str,
    problems: Sequence[str] = (),
) -> Report:
    """The report of the night of that name. tables: rows of the store, of it and of the nights to compare it with, by
    name; cells: as `spark_analysis.nights.cells` gives them."""
    nights = sorted(tables["nights"], key=lambda row: (row["began"] or "", row["night"]))
    here = next(row for row in nights if row["night"] == night)
    before = nights[: nights.index(here) + 1]
    runs = [row for row in tables["runs"] if row["night"] == night]
    found, gone = standings(tables["findings"], [row["night"] for row in before])
    order = {word: place for place, word in enumerate(VERDICTS)}
    return Report(
        night=here,
        scope=scope,
        runs=tuple(sorted(runs, key=lambda run: (order[run["verdict"]], run["item"], run["attempt"]))),
        cells=tuple(cells_of(cells)),
        found=tuple(found),
        gone=tuple(gone),
        permitted=tuple(row for row in tables["findings"] if row["night"] == night and not wrong(row)),
        nights=tuple(before),
        problems=(*here["problems"], *problems),
    )


def _of_night(night: Row) -> str:
    if night["interrupted"]:
        return "The night was interrupted: `squall nightly` with the same folder goes on."
    if not night["ended"]:
        return "The night goes on still, or was killed: `squall nightly` with the same folder goes on."
    return "Its time was over before." if night["left_out"] else ""


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
