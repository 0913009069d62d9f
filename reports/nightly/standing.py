"""Compares the findings of a night with those of the nights before it: new, known and gone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from squall.checkers.anomalies.registry import LOSS
from squall.checkers.nightly.results import INVALID, VALID
from squall.reports.checks import INVARIANT

Row = dict[str, Any]
NEW, KNOWN, ACCEPTED, EXPIRED = "new", "known", "accepted", "expired"
GRAVITY = (NEW, EXPIRED, KNOWN, ACCEPTED)
"""Lists the states of findings, the gravest first."""
NO_CAUSE = "nothing that the brokers' traces tell"
"""Is the text in place of a cause if the brokers' traces do not show the cause."""
BROKEN = "This must always hold, and did not: "
"""Begins the `cause` of a finding that comes of a broken invariant of the simulator. The invariant's rule follows."""


@dataclass(frozen=True, slots=True)
class FindingStatus:
    """Describes one finding over the nights: all rows with the same fingerprint that break the same promise."""

    rows: tuple[Row, ...]
    """Lists the finding's rows of this night; if the finding is gone, those of the last night that had it."""
    state: str
    nights: tuple[str, ...]
    """Lists the nights that had the finding, in order, including this night."""
    accepted: Mapping[str, str] | None = None
    """Holds the finding's entry of `accepted.toml`; None if it has none."""

    @property
    def first(self) -> Row:
        """Returns the row whose story is printed: the row of the run with most witnesses."""
        return self.rows[0]

    @property
    def runs(self) -> int:
        """Counts the runs in `rows`, which all show the finding."""
        return len({(row["item"], row["attempt"]) for row in self.rows})

    @property
    def anomalies(self) -> tuple[str, ...]:
        """Returns the names of the anomalies. The kind of evidence, if there is one, follows in brackets:
        "inconsistent-offset (acks)".
        """
        names = (f"{row['anomaly']} ({row['evidence']})" if row["evidence"] else row["anomaly"] for row in self.rows)
        return tuple(dict.fromkeys(names))

    @property
    def most(self) -> int:
        """Returns the highest number of witnesses of the finding in one run. If an anomaly has several causes in a run,
        only the witnesses that the verdict keeps count, because the causes of the others are not known.
        """
        return max(row["count"] or 0 for row in self.rows)

    @property
    def configurations(self) -> tuple[str, ...]:
        """Returns all configurations that show the finding."""
        return tuple(dict.fromkeys(row["configuration"] for row in self.rows))


@dataclass(frozen=True, slots=True)
class FindingCard:
    """Groups findings that have the same cause and break the same promise, so that one story explains all of them."""

    findings: tuple[FindingStatus, ...]
    """Lists the findings, the gravest first."""
    nights: tuple[str, ...]
    """Lists the nights that had one of the findings, in order."""

    @property
    def first(self) -> Row:
        """Returns the row whose story is printed: the first row of the card's first finding."""
        return self.findings[0].first

    @property
    def state(self) -> str:
        """Returns the gravest state of the card's findings."""
        return min((each.state for each in self.findings), key=GRAVITY.index)

    @property
    def accepted(self) -> tuple[Mapping[str, str], ...]:
        """Returns the entries of `accepted.toml`, one for each finding that has one."""
        entries = {each.accepted["fingerprint"]: each.accepted for each in self.findings if each.accepted}
        return tuple(entries.values())

    @property
    def anomalies(self) -> tuple[str, ...]:
        """Returns the names of the anomalies. The kind of evidence, if there is one, follows in brackets:
        "inconsistent-offset (acks)".
        """
        return tuple(dict.fromkeys(name for each in self.findings for name in each.anomalies))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Returns the fingerprints by which later nights, and `accepted.toml`, identify the findings."""
        return tuple(dict.fromkeys(each.first["fingerprint"] for each in self.findings))

    @property
    def runs(self) -> tuple[Row, ...]:
        """Returns a row for each run that shows one of the findings."""
        rows = {(row["night"], row["item"], row["attempt"]): row for each in self.findings for row in each.rows}
        return tuple(rows.values())

    @property
    def where(self) -> tuple[str, ...]:
        """Returns the configurations, each with its target and runtime."""
        rows = (row for each in self.findings for row in each.rows)
        return tuple(dict.fromkeys(f"{row['configuration']} ({row['target']}, {row['runtime']})" for row in rows))


def cards(found: Iterable[FindingStatus], nights: Iterable[str]) -> list[FindingCard]:
    """Group the findings by cause and broken promise. The cards with new findings come first, then those about lost
    records, then those whose cause is known.

    `nights` lists all nights that are compared, in order. Their names need not sort in that order.
    """
    order = tuple(nights)
    groups: dict[tuple[object, ...], list[FindingStatus]] = {}
    for each in sorted(found, key=_gravity):
        row = each.first
        # Without a cause, nothing but the place says that two anomalies are of one thing.
        place = row["place"] if row["cause"] == NO_CAUSE else ""
        key = row["cause"], place, _promise(row), bool(row["unexpected"])
        groups.setdefault(key, []).append(each)
    had = {key: {night for each in group for night in each.nights} for key, group in groups.items()}
    return [FindingCard(tuple(group), tuple(filter(had[key].__contains__, order))) for key, group in groups.items()]


def _gravity(each: FindingStatus) -> tuple[bool, bool, bool, bool, int]:
    name, cause = each.first["anomaly"], each.first["cause"]
    return each.state != NEW, name not in LOSS, cause == NO_CAUSE, not name.startswith(INVARIANT), -each.most


def wrong(row: Row) -> bool:
    """Return whether a finding needs a look: its configuration does not permit it, or its night forbids it whatever the
    configuration permits (`squall nightly --never`).
    """
    return row["permitted"] is False or bool(row["unexpected"])


def identity(row: Row) -> tuple[str, ...]:
    """Return the key that rows of the same finding share: the fingerprint, the target ("squall" or "kafka"), the broken
    promise, and "never" if the configuration permits the finding but the night forbids it (`--never`).
    """
    return row["fingerprint"], row["target"], _promise(row), "never" if row["unexpected"] else ""


def _promise(row: Row) -> str:
    """Return the promise of the run's configuration that the finding breaks; empty for a broken invariant, because
    every configuration promises that invariants hold.
    """
    return "" if row["cause"].startswith(BROKEN) else row["promise"]


def compare_findings(findings: Iterable[Row], nights: Sequence[str]) -> tuple[list[FindingStatus], list[FindingStatus]]:
    """Return two lists: the findings of the latest of `nights`, new ones first, and the findings of earlier nights that
    are missing in the latest one. `nights` is in order of time.

    `findings` holds the rows of all these nights. A finding that its configuration permits is left out, unless its
    night forbids it (`--never`).
    """
    by_identity: dict[tuple[str, ...], dict[str, list[Row]]] = {}
    for row in filter(wrong, findings):
        by_identity.setdefault(identity(row), {}).setdefault(row["night"], []).append(row)
    now: list[FindingStatus] = []
    gone: list[FindingStatus] = []
    for by_night in by_identity.values():
        had = tuple(night for night in nights if night in by_night)
        if not had:
            continue
        rows = tuple(sorted(by_night[had[-1]], key=lambda row: (-(row["count"] or 0), row["item"])))
        state = NEW if had == (nights[-1],) else KNOWN
        (now if had[-1] == nights[-1] else gone).append(FindingStatus(rows, state, had))
    now.sort(key=lambda each: (each.state != NEW, -each.most))
    gone.sort(key=lambda each: (nights.index(each.nights[-1]), each.most), reverse=True)
    return now, gone


def with_accepted(
    found: Iterable[FindingStatus], accepted: Iterable[Mapping[str, str]], today: str
) -> list[FindingStatus]:
    """Give each finding its entry of `accepted.toml`, and the state ACCEPTED, or EXPIRED if the entry ended before
    `today` (an ISO date).
    """
    entries = {each["fingerprint"]: each for each in accepted}
    told = []
    for each in found:
        entry = entries.get(each.first["fingerprint"])
        state = each.state if entry is None else EXPIRED if entry["until"] < today else ACCEPTED
        told.append(replace(each, state=state, accepted=entry))
    return told


Place = tuple[str, str, str]
"""Identifies where a finding is tested: (configuration, target, runtime)."""


def places_tested(runs: Iterable[Row]) -> frozenset[Place]:
    """Return the (configuration, target, runtime) of the runs that have a verdict."""
    proven = (run for run in runs if run["verdict"] in (VALID, INVALID))
    return frozenset((run["configuration"], run["target"], run["runtime"]) for run in proven)


def ran_again(gone: FindingStatus, where: Collection[Place]) -> bool:
    """Return whether a night tested the finding again: one of the finding's configurations has a run with a verdict, on
    the same target and runtime. `where` is what `places_tested` returns for that night.
    """
    return any((row["configuration"], row["target"], row["runtime"]) in where for row in gone.rows)
