"""Summarizes a run as a row of table.json, and all runs of a group as a row of docs/shown/runs.md."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from squall.chaos.nightly.directory import write_whole
from tests.shown.table import Table

CODES = {"valid": 0, "unknown": 2, "invalid": 1}
VERDICTS = tuple(CODES)
RUNS = Table(
    "runs",
    "Runs in a row",
    "A row is a set of runs of `./squall run` with consecutive seeds, one after the other.",
    ("set", "the first", "seeds", "runs", *VERDICTS, "no verdict", "left something", "to look at",
     "wall s: median; longest", "commits", "not valid, and why"),
    keys=1,
)  # fmt: skip
NOT_LANDED = re.compile(r"fault \d+ \(")
"""Matches a verdict's reason that names a fault without evidence (`squall.checkers.fault_classes.not_landed`)."""
HUNG, REFUSED = "hung", "refused"
JUDGING = "while it is judged"
"""The only moment of a kill at which everything is recorded already, so that `squall verify` may find the run valid."""


@dataclass(frozen=True, slots=True)
class Row:
    """The row of one run. Times are in seconds."""

    name: str
    group: str
    seed: int
    command: str
    kill: str
    moment: str
    verdict: str
    """valid, unknown or invalid; "none" if none was written, "hung" past the time limit, "refused" for exit code 3."""
    exit_code: int
    reasons: list[str]
    wall_s: float
    acknowledged: int | None
    faults: list[str]
    landed: int | None
    """How many of the faults have evidence that they took effect; None if the run did not report it."""
    left: list[str]
    """Everything that the run left on the machine."""
    judged_again: str = ""
    """The verdict of `./squall verify`, if the run was killed before its own verdict."""
    commit: str = ""
    began: str = ""
    load: float = 0.0
    """The machine's load average over a minute when the run began."""
    missed: str = ""
    """Why nothing was killed, if a kill was planned."""

    @property
    def wrong(self) -> list[str]:
        """Return a sentence for everything about the run that is not as expected."""
        found = [f"left behind: {each}" for each in self.left]
        if self.verdict in (HUNG, REFUSED):
            return [*found, self.verdict]
        if "invalid" in (self.verdict, self.judged_again):
            found.append("invalid")
        if self.kill:
            found += [f"not killed: {self.missed}"] if self.missed else []
            return found + self._wrong_of_killed()
        expected = CODES.get(self.verdict)
        if expected is None:
            found.append("no verdict")
        elif self.exit_code != expected:
            found.append(f"exit code {self.exit_code} with {self.verdict}")
        if self.verdict == "unknown":
            found += [f"whose bug? {each}" for each in self.reasons if not NOT_LANDED.match(each)]
        return found

    def _wrong_of_killed(self) -> list[str]:
        if self.verdict == "none":
            fine = ("unknown", *(["valid"] if self.moment == JUDGING else []))
            return [] if self.judged_again in fine else [f"judged again: {self.judged_again or 'not at all'}"]
        expected = CODES[self.verdict]
        return [f"exit code {self.exit_code} with {self.verdict}"] if self.exit_code != expected else []


def read(path: Path) -> list[Row]:
    """Return the rows that an earlier start has written; none if there are none."""
    if not path.exists():
        return []
    return [Row(**{name: each[name] for name in Row.__dataclass_fields__ if name in each}) for each in _rows(path)]


def _rows(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text())["rows"]
    assert isinstance(found, list), path
    return found


def write(file: Path, rows: Sequence[Row]) -> None:
    """Replace table.json by these rows."""
    write_whole(file, json.dumps({"rows": [_json(each) for each in rows]}, indent=1) + "\n")


def _json(row: Row) -> dict[str, Any]:
    return {**asdict(row), "wrong": row.wrong}


def shown(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """Return a row of docs/shown/runs.md for each group of runs."""
    return [_of_group(group, [row for row in rows if row.group == group])
            for group in dict.fromkeys(row.group for row in rows)]  # fmt: skip


def _of_group(group: str, rows: Sequence[Row]) -> tuple[object, ...]:
    verdicts = Counter(row.verdict for row in rows)
    words = [verdicts[each] for each in VERDICTS]
    seeds = f"{min(row.seed for row in rows)} to {max(row.seed for row in rows)}"
    times = sorted(row.wall_s for row in rows)
    whys = [(row, "; ".join(dict.fromkeys((*row.reasons, *row.wrong)))) for row in rows]
    return (
        group,
        f"`{rows[0].command}`",
        seeds,
        len(rows),
        *words,
        len(rows) - sum(words),
        sum(1 for row in rows if row.left),
        sum(1 for row in rows if row.wrong),
        f"{median(times):.0f}; {times[-1]:.0f}",
        ", ".join(sorted({row.commit for row in rows})),
        "; ".join(f"seed {row.seed}: {why}" for row, why in whys if why) or "all are",
    )
