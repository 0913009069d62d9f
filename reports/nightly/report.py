"""Collects the content of a night's page from the store's rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squall.checkers.anomalies.registry import LOSS
from squall.checkers.history.seal import NOT_JUDGED
from squall.checkers.losses import LossCount
from squall.checkers.nightly.results import INVALID, NO_VERDICT, UNKNOWN, VALID, VERDICTS, forbidden
from squall.reports.nightly.configurations import ConfigurationHistory, configurations_of
from squall.reports.nightly.standing import (
    ACCEPTED,
    NEW,
    FindingCard,
    FindingStatus,
    cards,
    compare_findings,
    places_tested,
    ran_again,
    with_accepted,
    wrong,
)
from squall.reports.nightly.table import DurabilityCell, cells_of
from squall.reports.nightly.trends import Trends, trends_of

Row = dict[str, Any]
WELL, FOUND, TOO_LITTLE = 0, 1, 2
"""These are exit codes of `squall nightly`: all findings are permitted or accepted; a finding is forbidden; too little
is proven.
"""
UNKNOWN_SHARE = 0.2
"""Above this share of runs without a verdict, the page says that too little is proven."""

SHOWN = 4
"""Limits the items that a sentence at the top of the page lists."""


@dataclass(frozen=True, slots=True)
class NightlyReport:
    """Holds the content of the page about a night and the nights before it."""

    night: Row
    """Summarizes the night, as the nightly store does: begin, end, exit code, and the items that did not run."""
    scope: str
    """Says in words which runs the durability table covers."""
    runs: tuple[Row, ...]
    """Lists the night's runs by verdict: invalid ones first, valid ones last."""
    cells: tuple[DurabilityCell, ...]
    found: tuple[FindingStatus, ...]
    gone: tuple[FindingStatus, ...]
    permitted: tuple[Row, ...]
    """Lists the findings of the night that need no look: their configuration permits them, and the night does not
    forbid them.
    """
    nights: tuple[Row, ...]
    """Lists all nights that are compared, this one last."""
    trends: Trends
    problems: tuple[str, ...]
    unread: tuple[str, ...] = ()
    """Lists the invalid runs whose findings cannot be read, for example because their directories are gone."""
    configurations: tuple[ConfigurationHistory, ...] = ()
    """Lists each configuration of the compared nights, with its results and findings."""

    @property
    def counting(self) -> list[Row]:
        """Returns the last attempt of each item (a configuration with faults and a seed). Earlier attempts do not
        count.
        """
        return [run for run in self.runs if run["counts"]]

    @property
    def verdicts(self) -> Counter[str]:
        """Maps each verdict to the number of items whose last attempt has it. An item is a configuration with faults
        and a seed.
        """
        return Counter(run["verdict"] for run in self.counting)

    @property
    def cards(self) -> list[FindingCard]:
        """Returns the findings of the night grouped by cause, those with new findings first."""
        return cards(self.found, (row["night"] for row in self.nights))

    @property
    def new(self) -> list[FindingCard]:
        """Returns the cards with a finding that no earlier night has."""
        return [card for card in self.cards if card.state == NEW]

    @property
    def known(self) -> list[FindingCard]:
        """Returns the cards whose findings an earlier night had already, or whose acceptance has expired."""
        return [card for card in self.cards if card.state not in (NEW, ACCEPTED)]

    @property
    def accepted(self) -> list[FindingCard]:
        """Returns the cards whose findings are all accepted: such findings do not make the night fail."""
        return [card for card in self.cards if card.state == ACCEPTED]

    @property
    def invalid(self) -> int:
        """Counts the invalid runs that no accepted finding explains."""
        rows = (row for each in self.found if each.state == ACCEPTED for row in each.rows)
        explained = {(row["item"], row["attempt"]) for row in rows}
        invalid = [run for run in self.counting if run["verdict"] == INVALID]
        return sum((run["item"], run["attempt"]) not in explained for run in invalid)

    @property
    def beside(self) -> list[tuple[str, str, dict[str, DurabilityCell]]]:
        """Returns a row for each configuration and fault classes that ran on several targets or runtimes:
        (configuration, fault classes, cells of the durability table by target and runtime). Empty if there is none.
        """
        rows: dict[tuple[str, str], dict[str, DurabilityCell]] = {}
        for cell in self.cells:
            if cell.runs:
                rows.setdefault((cell.configuration, cell.class_words), {})[cell.where] = cell
        return [(*key, found) for key, found in rows.items() if len(found) > 1]

    @property
    def places(self) -> list[str]:
        """Returns the column heads of the table that `beside` returns, such as "squall, docker", sorted."""
        return sorted({where for _, _, found in self.beside for where in found})

    @property
    def vanished(self) -> list[tuple[FindingStatus, str]]:
        """Returns (finding, explanation) for each finding of an earlier night that this night does not report. The
        explanation says that the configuration ran tonight without the finding, or that the finding is permitted
        tonight. Findings that were not tested are left out.
        """
        return [(each, why) for each in self.gone if (why := self._why_gone(each))]

    @property
    def not_tested(self) -> list[FindingStatus]:
        """Returns the findings of earlier nights whose configuration has no run with a verdict in this night."""
        return [each for each in self.gone if not self._why_gone(each)]

    def _why_gone(self, each: FindingStatus) -> str:
        same = {(row["anomaly"], row["configuration"], row["target"]) for row in each.rows}
        if any((row["anomaly"], row["configuration"], row["target"]) in same for row in self.permitted):
            return "It was found tonight as well: the configuration permits it, and this night does not forbid it."
        return "The configuration ran tonight without it." if ran_again(each, places_tested(self.runs)) else ""

    @property
    def acknowledged(self) -> int:
        """Counts the acknowledged records of the durability table."""
        return sum(cell.acknowledged for cell in self.cells)

    @property
    def lost_against(self) -> int:
        """Counts the records of the durability table that were lost although their configuration does not permit it."""
        return sum(cell.lost for cell in self.cells if not cell.may_lose)

    @property
    def lost_permitted(self) -> int:
        """Counts the records of the durability table that were lost as their configuration permits."""
        return sum(cell.lost for cell in self.cells if cell.may_lose)

    @property
    def losing(self) -> list[Row]:
        """Returns the valid runs of the night that lost acknowledged records, as their configuration permits."""
        return [run for run in self.counting if run["verdict"] == VALID and run["lost"] and _may_lose(run)]

    @property
    def loss(self) -> str:
        """Describes the permitted losses of the night in a sentence; empty if there are none."""
        if not self.losing:
            return ""
        lost, acked = (sum(run[name] or 0 for run in self.losing) for name in ("lost", "acknowledged"))
        loss = LossCount(lost, acked if acked >= lost else None)
        its = "its" if len(self.losing) == 1 else "their"
        return f"{_many(len(self.losing), 'valid run')} lost {loss.amount}{loss.share}: {its} configuration permits it."

    @property
    def unproven(self) -> int:
        """Counts the items (a configuration with faults and a seed) whose last attempt has no verdict."""
        return self.verdicts[UNKNOWN] + self.verdicts[NO_VERDICT]

    @property
    def retried(self) -> int:
        """Counts the attempts that were repeated."""
        return len(self.runs) - len(self.counting)

    @property
    def contradicted(self) -> list[str]:
        """Lists, a sentence each, the runs whose verdict is in doubt. Either the run is judged valid, but Spark
        measured losses or duplicates in its history that are not permitted. Or the history has changed since it was
        judged.
        """
        measured = [f"{run['item']} is judged valid, but its history shows {told}."
                    for run in self.runs if (told := _against(run))]  # fmt: skip
        changed = [f"{run['item']}: {run['why']}." for run in self.runs if NOT_JUDGED in (run["why"] or "")]
        return measured + changed

    @property
    def untouched(self) -> list[str]:
        """Lists the planned configurations of which nothing ran, each by the short name that the ids of its items begin
        with.
        """
        ran = {_configuration_of(run["item"]) for run in self.runs}
        return [name for name in dict.fromkeys(map(_configuration_of, self.night["not_run"])) if name not in ran]

    @property
    def word(self) -> str:
        """Returns the verdict of the whole night: valid, invalid or unknown."""
        if self.new or self.known or self.invalid or self.forgotten:
            return INVALID
        proven = self.verdicts[VALID] + self.verdicts[INVALID]
        return UNKNOWN if not proven or self.too_little or self.contradicted else VALID

    @property
    def forgotten(self) -> bool:
        """Is True if the night's exit code says that something was found, but no file that shows the finding can be
        read any more.
        """
        return self.night["exit"] == FOUND and not self.found and not self.verdicts[INVALID]

    @property
    def too_little(self) -> bool:
        """Is True if the night proves too little. An exit code of WELL or TOO_LITTLE decides, because `squall nightly`
        chose the code by the limits of that night. With any other exit code, it is True if more than UNKNOWN_SHARE of
        the items have no verdict.
        """
        if self.night["exit"] in (WELL, TOO_LITTLE):
            return bool(self.night["exit"] == TOO_LITTLE)
        return self.unproven > UNKNOWN_SHARE * len(self.counting)

    @property
    def headline(self) -> str:
        """Says in a few words whether something is wrong."""
        if self.new or self.known:
            causes, new = len(self.new) + len(self.known), len(self.new)
            if causes == 1:
                (one,) = (*self.new, *self.known)
                return f"One finding, in {_many(len(one.runs), 'run')}; it is {'new' if new else 'known'}"
            return f"{causes} findings, {'all' if new == causes else new or 'none'} of them new"
        if self.invalid:
            return _many(self.invalid, "invalid run")
        if self.forgotten:
            return "Something went wrong, and what it was is gone"
        if not self.runs:
            return "Nothing ran"
        if self.contradicted:
            return "A verdict is in doubt"
        if self.word == UNKNOWN:
            return "Too little is proven"
        if self.found:
            return f"Nothing is wrong except {_many(len(self.found), 'accepted finding')}"
        return "Nothing is wrong, and records were lost as permitted" if self.losing else "Nothing is wrong"

    @property
    def sentences(self) -> list[str]:
        """Explains the headline, and says what to do."""
        told = []
        if self.forgotten:
            told.append(
                "The night ended with exit code 1: a run found what is not permitted. results.jsonl no longer has it."
            )
        elif not self.runs:
            told.append("No run of this night has ended. " + _of_night(self.night))
        elif self.new or self.known:
            told.append("Start with the first finding below; it has the story and the command for more.")
        elif self.invalid:
            told.append("What they found cannot be read any more: begin with the red runs below.")
        elif not self.verdicts[VALID] + self.verdicts[INVALID]:
            told.append(
                "Every run ended without a verdict, so nothing is known of the cluster. Each run below says why."
            )
        elif self.contradicted:
            told.append("The verdict of a run and its history contradict each other. One of them is wrong.")
        elif self.unproven and self.too_little:
            told.append(
                f"{self.unproven} of {len(self.counting)} runs ended without a verdict. Each of them below says why."
            )
        elif self.too_little:
            told.append("No run found anything that is not permitted, but too little of the plan was played.")
        elif self.found:
            told.append("Accepted findings fail no night. Each below has its owner, the last day, and the reason.")
        else:
            told.append("No run found anything that its configuration does not permit.")
        if self.found and self.unread:
            told.append(f"Of {_many(len(self.unread), 'more invalid run')} nobody can read any more what was found.")
        if self.unproven and self.word == VALID:
            one = self.unproven == 1
            told.append(f"{_many(self.unproven, 'run')} ended without a verdict and prove{'s' * one} nothing.")
        told += [self.loss] if self.loss else []
        told += self.contradicted[:SHOWN]
        if len(self.contradicted) > SHOWN:
            told.append(f"And {len(self.contradicted) - SHOWN} more.")
        return told + (self._not_played() if self.runs else [])

    def _not_played(self) -> list[str]:
        missing, planned = len(self.night["not_run"]), self.night["planned"]
        if not missing:
            return []
        told = [f"{missing} of {planned} planned runs ({missing / planned:.0%}) did not run. {_of_night(self.night)}"]
        if out := self.untouched:
            more = f" and {len(out) - SHOWN} more" if len(out) > SHOWN else ""
            told.append(f"Without any run: {_many(len(out), 'configuration')}, {', '.join(out[:SHOWN])}{more}.")
        return [each.strip() for each in told]


def report_of(
    tables: Mapping[str, Sequence[Row]],
    night: str,
    cells: Sequence[Row],
    scope: str,
    problems: Sequence[str] = (),
    accepted: Sequence[Mapping[str, str]] = (),
) -> NightlyReport:
    """Return the report of the night of that name. `tables` holds rows of the store by table name, for this night and
    those to compare it with. `cells` comes from `squall.spark_analysis.nightly.cells`; `scope` says in words which runs
    they cover. `problems` lists, a sentence each, the parts of the store that cannot be read. `accepted` holds entries
    of `accepted.toml`.
    """
    nights = sorted(tables["nights"], key=lambda row: (row["began"] or "", row["night"]))
    here = next(row for row in nights if row["night"] == night)
    before = nights[: nights.index(here) + 1]
    tables = {**tables, "runs": [_with_night_verdict(row) for row in tables["runs"]]}
    runs = [row for row in tables["runs"] if row["night"] == night]
    told_of = {(row["item"], row["attempt"]) for row in tables["findings"] if row["night"] == night}
    found, gone = compare_findings(tables["findings"], [row["night"] for row in before])
    order = {word: place for place, word in enumerate(VERDICTS)}
    names = {row["night"] for row in before}
    upto = {name: [row for row in tables[name] if row["night"] in names] for name in ("runs", "findings")}
    trends = trends_of(before, upto["runs"], upto["findings"])
    return NightlyReport(
        night=here,
        scope=scope,
        runs=tuple(sorted(runs, key=lambda run: (order[run["verdict"]], run["item"], run["attempt"]))),
        cells=tuple(cells_of([_with_verdicts(cell, tables["runs"]) for cell in cells])),
        # As of the night's own last day: the page of an old night, made again, says the same.
        found=tuple(with_accepted(found, accepted, (here["ended"] or "")[:10])),
        gone=tuple(gone),
        permitted=tuple(row for row in tables["findings"] if row["night"] == night and not wrong(row)),
        nights=tuple(before),
        trends=trends,
        problems=(*here["problems"], *problems),
        unread=tuple(
            run["item"]
            for run in runs
            if run["counts"] and run["verdict"] == INVALID and (run["item"], run["attempt"]) not in told_of
        ),
        configurations=tuple(configurations_of(before, upto["runs"], upto["findings"], trends.series)),
    )


def _with_night_verdict(run: Row) -> Row:
    """Return a run with the verdict that counts for its night: it is invalid also if the run shows an anomaly that the
    night forbids. The night's exit code and summary follow the same rule.
    """
    if not run["unexpected"] or run["verdict"] == INVALID:
        against = _against(run)
        return {**run, "why": f"in doubt: its history shows {against}"} if against else run
    return {**run, "verdict": INVALID, "why": "; ".join(filter(None, (forbidden(run["unexpected"]), run["why"])))}


def _with_verdicts(cell: Row, runs: Sequence[Row]) -> Row:
    """Return a cell of the durability table with its runs' verdicts from `runs`. There, an anomaly that its night
    forbids makes a run invalid, too; Spark, which made the cell, does not know that.
    """
    verdicts = {(run["night"], run["item"], run["attempt"]): run["verdict"] for run in runs}
    behind = [
        {**each, "verdict": verdicts.get((each["night"], each["item"], each["attempt"]), each["verdict"])}
        for each in cell["behind"]
    ]
    invalid = sum(each["verdict"] == INVALID for each in behind)
    return {**cell, "behind": behind, "invalid": max(invalid, cell["invalid"])}


def _of_night(night: Row) -> str:
    if night["interrupted"]:
        return "The night was interrupted: `squall nightly --resume` goes on with it."
    if not night["ended"]:
        return "The night goes on still, or was killed: `squall nightly --resume` goes on with it."
    reasons = Counter(each.partition(": ")[2] or "no reason is given" for each in night["left_out"])
    return (
        "Left out: " + "; ".join(f"{count} x {why}" for why, count in reasons.most_common(4)) + "." if reasons else ""
    )


def _against(run: Row) -> str:
    """Say what a valid run lost or duplicated that its configuration does not permit; empty for nothing."""
    if run["verdict"] != VALID or not run["measured"]:
        return ""
    told = []
    if run["lost"] and not _may_lose(run):
        told.append(_many(run["lost"], "lost record"))
    if run["duplicated"] and "duplicate" not in (run["permitted"] or ()):
        told.append(_many(run["duplicated"], "duplicated record"))
    return f"{' and '.join(told)}, which is not permitted" if told else ""


def _may_lose(run: Row) -> bool:
    return any(name in (run["permitted"] or ()) for name in LOSS)


def _configuration_of(item: str) -> str:
    """Return the configuration in an item's name, which is configuration, faults and seed with dots between them."""
    # From the right, because a configuration may have dots.
    return item.rsplit(".", 2)[0]


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
