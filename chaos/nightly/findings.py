"""The findings of a night, and which of them fail it: new ones, known ones, and those that somebody has accepted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from squall.chaos.nightly.accepted import AcceptedFinding

NEW, KNOWN, ACCEPTED, EXPIRED = "new", "known", "accepted", "expired"
STATES = (NEW, EXPIRED, KNOWN, ACCEPTED)
"""The gravest first. EXPIRED: it was accepted until a day that is over."""
ANY = "any"
FAIL_ON = (ANY, NEW)
"""Findings that fail a night: all that are not accepted, or of these only those that no earlier night had."""


@dataclass(frozen=True, slots=True)
class NightFinding:
    """One finding over the runs of a night, as the durability report tells findings apart."""

    fingerprint: str
    """Empty: nobody can say what it is, so it is new."""
    anomalies: tuple[str, ...]
    cause: str
    configurations: tuple[str, ...]
    attempts: frozenset[tuple[str, int]]
    """The runs that show it, as item and number of the attempt."""
    nights: tuple[str, ...]
    """The nights that had it, in order, this one last."""
    accepted: AcceptedFinding | None
    today: date

    @property
    def state(self) -> str:
        """Return the finding's state, one of STATES."""
        if self.accepted is not None:
            return EXPIRED if self.accepted.expired(self.today) else ACCEPTED
        return KNOWN if len(self.nights) > 1 else NEW

    def fails(self, fail_on: str) -> bool:
        """Return whether it makes the night end with exit code 1."""
        return self.state not in ((ACCEPTED,) if fail_on == ANY else (ACCEPTED, KNOWN))

    def line(self) -> str:
        """It in a line, for people."""
        what = ", ".join(self.anomalies) or self.cause
        head = f"{self.state}  {self.fingerprint or 'no fingerprint'}  {what}"
        runs = f"{len(self.attempts)} run{'s'[: len(self.attempts) != 1]} of {'; '.join(self.configurations)}"
        since = f", since night {self.nights[0]}" if len(self.nights) > 1 else ""
        entry = self.accepted
        by = "" if entry is None else f", accepted by {entry.owner} until {entry.until}: {entry.why}"
        return f"{head}, in {runs}{since}{by}"


def tolerated(findings: Collection[NightFinding], fail_on: str) -> frozenset[tuple[str, int]]:
    """The attempts of which every finding is known, and none fails the night."""
    shown = frozenset().union(*(each.attempts for each in findings))
    return shown.difference(*(each.attempts for each in findings if each.fails(fail_on)))
