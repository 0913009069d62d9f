"""Decides which findings fail a night: a finding is new, known from earlier nights, or accepted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from squall.chaos.nightly.accepted import AcceptedFinding

NEW, KNOWN, ACCEPTED, EXPIRED = "new", "known", "accepted", "expired"
STATES = (NEW, EXPIRED, KNOWN, ACCEPTED)
"""Lists the states of a finding, the gravest first. EXPIRED: the finding was accepted until a day that is over."""
ANY = "any"
FAIL_ON = (ANY, NEW)
"""Lists the values of --fail-on. ANY: every finding that is not accepted fails a night; NEW: a finding fails it only if
no earlier night had it, or if its acceptance has expired.
"""


@dataclass(frozen=True, slots=True)
class NightFinding:
    """Describes one finding, with all runs of a night that show it. Two runs show the same finding if the durability
    report sees the same cause in both.
    """

    fingerprint: str
    """Identifies the finding in all nights; empty if its cause is not known, so that it counts as new."""
    anomalies: tuple[str, ...]
    cause: str
    configurations: tuple[str, ...]
    attempts: frozenset[tuple[str, int]]
    """Holds the attempts that show the finding, as pairs of run id and attempt number."""
    nights: tuple[str, ...]
    """Lists the nights that had the finding, in order, this night last."""
    accepted: AcceptedFinding | None
    today: date

    @property
    def state(self) -> str:
        """Returns "new", "known" (an earlier night had the finding, too), "accepted", or "expired" (it was accepted
        until a day that is over).
        """
        if self.accepted is not None:
            return EXPIRED if self.accepted.expired(self.today) else ACCEPTED
        return KNOWN if len(self.nights) > 1 else NEW

    def fails(self, fail_on: str) -> bool:
        """Return whether the finding makes the night end with exit code 1. fail_on: ANY (every finding that is not
        accepted does) or NEW (only new findings do, and those whose acceptance has expired).
        """
        return self.state not in ((ACCEPTED,) if fail_on == ANY else (ACCEPTED, KNOWN))

    def line(self) -> str:
        """Return the finding as one line, for people."""
        what = ", ".join(self.anomalies) or self.cause
        head = f"{self.state}  {self.fingerprint or 'no fingerprint'}  {what}"
        runs = f"{len(self.attempts)} run{'s'[: len(self.attempts) != 1]} of {'; '.join(self.configurations)}"
        since = f", since night {self.nights[0]}" if len(self.nights) > 1 else ""
        entry = self.accepted
        by = "" if entry is None else f", accepted by {entry.owner} until {entry.until}: {entry.why}"
        return f"{head}, in {runs}{since}{by}"


def tolerated(findings: Collection[NightFinding], fail_on: str) -> frozenset[tuple[str, int]]:
    """Return the attempts that have findings, but none that fails the night: pairs of run id and attempt number.
    fail_on: ANY (every finding that is not accepted fails the night) or NEW (known ones do not).
    """
    shown = frozenset().union(*(each.attempts for each in findings))
    return shown.difference(*(each.attempts for each in findings if each.fails(fail_on)))
