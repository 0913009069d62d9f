"""What is new, known and gone among the findings of a night, beside those of the nights before it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
NEW, KNOWN = "new", "known"


@dataclass(frozen=True, slots=True)
class Standing:
    """One finding over the nights: what has the same fingerprint and breaks the same promise."""

    rows: tuple[Row, ...]
    """As the store has them, of this night; of a finding that is gone those of the last night that had it."""
    state: str
    nights: tuple[str, ...]
    """Nights that had it, in order, this one included."""

    @property
    def first(self) -> Row:
        """The one whose story is told."""
        return self.rows[0]

    @property
    def runs(self) -> int:
        """How many runs show it."""
        return len({(row["item"], row["attempt"]) for row in self.rows})

    @property
    def anomalies(self) -> tuple[str, ...]:
        """Names, with their evidence."""
        names = (f"{row['anomaly']} ({row['evidence']})" if row["evidence"] else row["anomaly"] for row in self.rows)
        return tuple(dict.fromkeys(names))

    @property
    def count(self) -> int:
        """Of all its runs: an anomaly with several causes is counted once for each of them."""
        return sum(row["count"] or 0 for row in self.rows)

    @property
    def configurations(self) -> tuple[str, ...]:
        """All that show it."""
        return tuple(dict.fromkeys(row["configuration"] for row in self.rows))


def wrong(row: Row) -> bool:
    """Whether somebody has to look at it: it is not permitted, or the night was not to show it."""
    return row["permitted"] is False or bool(row["unexpected"])


def identity(row: Row) -> tuple[str, str]:
    """What makes two findings one: their fingerprint, and the promise that they break."""
    return row["fingerprint"], row["promise"]


def standings(findings: Iterable[Row], nights: Sequence[str]) -> tuple[list[Standing], list[Standing]]:
    """(findings of the last of `nights` that are wrong, new ones first; those of earlier nights that it does not have).

    `findings`: of all these nights. What is permitted is neither.
    """
    by_identity: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in filter(wrong, findings):
        by_identity.setdefault(identity(row), {}).setdefault(row["night"], []).append(row)
    now: list[Standing] = []
    gone: list[Standing] = []
    for by_night in by_identity.values():
        had = tuple(night for night in nights if night in by_night)
        if not had:
            continue
        rows = tuple(sorted(by_night[had[-1]], key=lambda row: (-(row["count"] or 0), row["item"])))
        state = NEW if had == nights[-1:] or had == (nights[-1],) else KNOWN
        (now if had[-1] == nights[-1] else gone).append(Standing(rows, state, had))
    now.sort(key=lambda each: (each.state != NEW, -each.count))
    gone.sort(key=lambda each: (each.nights[-1], each.count), reverse=True)
    return now, gone


def ran_again(gone: Standing, runs: Iterable[Row]) -> bool:
    """Whether a run with a verdict of the night had the configuration of a finding that it no longer shows."""
    wanted = {(row["configuration"], row["target"], row["runtime"]) for row in gone.rows}
    return any(
        (run["configuration"], run["target"], run["runtime"]) in wanted and run["verdict"] in ("valid", "invalid")
        for run in runs
    )
