"""Sums up a night: counts, the exit code, and a summary as Markdown and as plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from squall.chaos.nightly.findings import ANY, STATES, NightFinding, tolerated
from squall.chaos.nightly.items import PlannedRun
from squall.chaos.typed import place, typed
from squall.checkers.nightly.results import INVALID, UNKNOWN, VALID, RunAttempt, forbidden

WELL, FOUND, TOO_LITTLE = 0, 1, 2
"""Are the exit codes of a night. WELL: no finding fails it; FOUND: a finding fails it; TOO_LITTLE: it shows too little
about the cluster (`NightResult.too_little`).
"""


@dataclass(frozen=True, slots=True)
class NightResult:
    """Holds the result of a night, also of one that is not over."""

    night: str
    items: tuple[PlannedRun, ...]
    """Lists the runs that were to be played: those that `squall nightly -k` selected, or all."""
    attempts: Mapping[str, Sequence[RunAttempt]]
    left_out: Mapping[str, str]
    """Maps the id of each run that was not started to the reason, such as no time."""
    unknown_share: float
    """Limits the share of played runs without a verdict, 0 to 1. Above it the night shows too little (exit code 2)."""
    folder: str = ""
    """Is the night's folder as the user typed it."""
    max_unplayed: float = 1.0
    """Limits the share of `items` that were not played, 0 to 1. Above it the night shows too little (exit code 2)."""
    by_cause: tuple[NightFinding, ...] = ()
    """Holds the findings. Attempts with the same cause share one finding."""
    fail_on: str = ANY
    """Says which findings fail the night: all that are not accepted (ANY), or only new ones and those whose acceptance
    has expired (NEW).
    """
    contradicted: tuple[str, ...] = ()
    """Lists, a sentence each, the runs that were judged valid although their history shows forbidden losses or
    duplicates, and the runs whose history has changed since the verdict.
    """

    @property
    def last(self) -> dict[str, RunAttempt]:
        """Returns the last attempt of each run that was played, by the run's id (`PlannedRun.item`)."""
        return {each.item: self.attempts[each.item][-1] for each in self.items if self.attempts.get(each.item)}

    @property
    def findings(self) -> list[tuple[PlannedRun, RunAttempt]]:
        """Returns every attempt that found something forbidden, even if a later attempt did not."""
        return [(item, each) for item in self.items for each in self.attempts.get(item.item, ()) if each.fails]

    @property
    def failing(self) -> list[tuple[PlannedRun, RunAttempt]]:
        """Returns the attempts with forbidden findings that fail the night."""
        well = tolerated(self.by_cause, self.fail_on)
        return [(item, each) for item, each in self.findings if (item.item, each.attempt) not in well]

    @property
    def unproven(self) -> list[tuple[PlannedRun, RunAttempt]]:
        """Returns the last attempts of runs that have no verdict, even after retries, so that they prove nothing about
        the cluster.
        """
        last = self.last
        return [(item, last[item.item]) for item in self.items if item.item in last and not last[item.item].proven]

    @property
    def with_permitted_loss(self) -> list[tuple[PlannedRun, RunAttempt]]:
        """Returns the valid runs that lost acknowledged records, as their configuration and the night permit."""
        last = [(item, self.last[item.item]) for item in self.items if item.item in self.last]
        return [(item, each) for item, each in last if each.verdict == VALID and not each.fails and each.permitted_loss]

    @property
    def retried(self) -> int:
        """Returns the number of attempts beyond the first of each run."""
        return sum(max(0, len(each) - 1) for each in self.attempts.values())

    @property
    def share_without_verdict(self) -> float:
        """Returns the share of the played runs that have no verdict, 0 to 1."""
        return len(self.unproven) / len(self.last) if self.last else 1.0

    @property
    def share_unplayed(self) -> float:
        """Returns the share of the selected runs that were not played, 0 to 1."""
        return 1 - len(self.last) / len(self.items) if self.items else 1.0

    @property
    def configurations_without_run(self) -> list[str]:
        """Returns the configurations of which no run was played."""
        played = {item.configuration for item in self.items if item.item in self.last}
        return list(dict.fromkeys(item.configuration for item in self.items if item.configuration not in played))

    @property
    def exit(self) -> int:
        """Returns the exit code: 1 if a finding fails the night, else 2 if the night shows too little about the
        cluster, else 0.
        """
        # A finding first: it stays a finding, however little else was played.
        return FOUND if self.failing else TOO_LITTLE if self.too_little else WELL

    @property
    def too_little(self) -> str:
        """Returns a sentence that says why the night shows too little about the cluster (exit code 2): too many runs
        have no verdict, too many were not played, or a verdict contradicts its history. Empty if there is no such
        reason.
        """
        if self.contradicted:
            return "A verdict contradicts its history: nobody knows which of them is right."
        if not self.last:
            return "Nothing was played: this night proves nothing."
        if self.share_without_verdict > self.unknown_share:
            return "Too much is unknown: this night proves too little."
        return "Too little was played: this night proves too little." if self.share_unplayed > self.max_unplayed else ""

    @property
    def gaps(self) -> list[str]:
        """Returns the parts of the plan that this night did not cover, a sentence for each; empty if everything was
        played.
        """
        if not self.share_unplayed:
            return []
        names = {item.configuration for item in self.items}
        missing = len(self.items) - len(self.last)
        sentences = [f"NOT PLAYED: {missing} of {many(len(self.items), 'planned run')} ({self.share_unplayed:.0%})."]
        if out := self.configurations_without_run:
            shown = "; ".join(out[:NAMED]) + (f"; and {len(out) - NAMED} more" if len(out) > NAMED else "")
            sentences.append(f"WITHOUT ANY RUN: {len(out)} of {many(len(names), 'configuration')}: {shown}.")
        return sentences

    def counts(self) -> dict[str, int]:
        """Return how many runs ended with each verdict. A run with a forbidden finding counts as invalid."""
        said = [INVALID if each.fails else each.verdict for each in self.last.values()]
        return dict(Counter(said))

    def sentence(self) -> str:
        """Return the result of the night in a sentence or two."""
        counts = self.counts()
        words = (VALID, INVALID, UNKNOWN, "no verdict")
        verdicts = ", ".join(f"{counts[word]} {word}" for word in words if word in counts)
        played = f"{len(self.last)} of {many(len(self.items), 'run')} played" + (f": {verdicts}" if verdicts else "")
        out = f"; {len(self.left_out)} left out" if self.left_out else ""
        well = TOLERATED if self.findings else HEADS[WELL]
        head = HEADS[FOUND] if self.failing else self.too_little or well
        states = Counter(each.state for each in self.by_cause)
        by_state = ", ".join(f"{states[each]} {each}" for each in STATES if states[each])
        head += f" Findings: {by_state}." if by_state else ""
        lossy = many(len(self.with_permitted_loss), "valid run")
        lost = f" {lossy} lost acknowledged records, as permitted." if self.with_permitted_loss else ""
        return f"{head}{lost} {played}{out}."


def many(number: int, noun: str) -> str:
    """Return a number with its noun: "3 runs", "1 run"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


HEADS = {
    WELL: "Nothing forbidden was found.",
    FOUND: "Something forbidden was found.",
}
TOLERATED = "All forbidden findings are known or accepted."
NAMED = 6
"""Limits the number of configurations that a sentence names."""


def markdown(outcome: NightResult, page: str = "") -> str:
    """Return the summary for the page of a CI job. page: path of the durability report; empty if there is none."""
    return (
        "\n".join(
            [f"# Squall: night {outcome.night}", "", outcome.sentence(), *_warnings(outcome), *_body(outcome, page)]
        )
        + "\n"
    )


def _warnings(outcome: NightResult) -> Iterator[str]:
    """Yield, in bold, a sentence for each verdict that contradicts the history of its run, and sentences about what was
    not played.
    """
    for each in (*outcome.contradicted, *outcome.gaps):
        yield from ("", f"**{each}**")


def _body(outcome: NightResult, page: str) -> Iterator[str]:
    if outcome.findings:
        yield from ("", "## Findings", "", *_head("configuration", "faults", "seed", "what was found", "run"))
        for item, each in outcome.findings:
            yield _row(item.configuration, item.faults, str(item.seed), found(each), place(run_of(outcome, each)))
        yield from ("", "The story of each:", "", "```")
        yield from (_story(outcome, each) for _, each in outcome.findings)
        yield "```"
        yield from ("", *(f"- {each.line()}" for each in by_gravity(outcome)))
    if outcome.unproven:
        yield from ("", "## Without a verdict", "", *_head("configuration", "faults", "seed", "why"))
        for item, each in outcome.unproven:
            yield _row(item.configuration, item.faults, str(item.seed), f"{each.verdict}: {each.why}")
    if outcome.with_permitted_loss:
        yield from ("", "## Permitted losses", "", *_head("configuration", "faults", "seed", "what was lost", "run"))
        for item, each in outcome.with_permitted_loss:
            run = place(run_of(outcome, each))
            yield _row(item.configuration, item.faults, str(item.seed), each.permitted_loss, run)
    yield from ("", "## Configurations", "", *_head("configuration", "runs", "valid", "found", "unknown", "left out"))
    for name, of_name in by_configuration(outcome).items():
        yield _row(name, *map(str, of_name))
    if outcome.left_out:
        yield from ("", "## Left out", "")
        for why, count in Counter(outcome.left_out.values()).most_common():
            yield f"- {count} x {why}"
    if outcome.retried:
        yield from ("", f"Tried again because the first attempt was unknown: {many(outcome.retried, 'time')}.")
    if page:
        yield from ("", f"Report: {page}")


def _head(*names: str) -> tuple[str, str]:
    return _row(*names), "|---" * len(names) + "|"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _story(outcome: NightResult, attempt: RunAttempt) -> str:
    """Return the command line that explains an attempt's findings: `squall explain` with the run directory."""
    return typed("explain", run_of(outcome, attempt))


def run_of(outcome: NightResult, attempt: RunAttempt) -> str:
    """Return the path of the attempt's run directory, as the user would type it."""
    return "/".join(filter(None, (outcome.folder, attempt.run)))


def by_gravity(outcome: NightResult) -> list[NightFinding]:
    """Return the findings, the gravest first: new ones, then those whose acceptance has expired, known ones and
    accepted ones.
    """
    return sorted(outcome.by_cause, key=lambda each: STATES.index(each.state))


def _run(item: PlannedRun) -> str:
    return f"{item.configuration}, faults {item.faults}, seed {item.seed}"


def found(attempt: RunAttempt) -> str:
    """Return the findings of an attempt, in words."""
    return "; ".join(filter(None, (attempt.why, forbidden(attempt.unexpected) if attempt.unexpected else "")))


def by_configuration(outcome: NightResult) -> dict[str, tuple[int, int, int, int, int]]:
    """Return five counts for each configuration: runs played, valid runs, runs with findings, runs without a verdict,
    and runs that were left out.
    """
    last = outcome.last
    rows: dict[str, list[int]] = {}
    for item in outcome.items:
        row = rows.setdefault(item.configuration, [0, 0, 0, 0, 0])
        each = last.get(item.item)
        if each is None:
            row[4] += 1
            continue
        row[0] += 1
        row[2 if each.fails else 1 if each.verdict == VALID else 3] += 1
    return {name: (row[0], row[1], row[2], row[3], row[4]) for name, row in rows.items()}


def text(outcome: NightResult, page: str = "") -> str:
    """Return the summary as plain text, for a mail or the end of a log: short lines, the gravest first."""
    lines, failing = [f"Squall, night {outcome.night}", outcome.sentence(), ""], outcome.failing
    for item, each in outcome.findings:
        word = "FOUND" if (item, each) in failing else "TOLERATED"
        lines += [f"{word}  {_run(item)}", f"  {found(each)}", f"  {_story(outcome, each)}"]
    lines += [each.line() for each in by_gravity(outcome)]
    for item, each in outcome.unproven:
        lines += [f"{each.verdict.upper()}  {_run(item)}", f"  {each.why}"]
    for item, each in outcome.with_permitted_loss:
        lines += [f"LOST AS PERMITTED  {_run(item)}", f"  {each.permitted_loss}"]
    for name, (runs, valid, bad, unproven, out) in by_configuration(outcome).items():
        parts = [f"{valid} of {runs} valid" if runs else "not played"]
        parts += [f"{bad} with findings"] if bad else []
        parts += [f"{unproven} unknown"] if unproven else []
        parts += [f"{out} left out"] if out else []
        lines.append(f"{name}: {', '.join(parts)}")
    lines += [f"left out: {count} x {why}" for why, count in Counter(outcome.left_out.values()).most_common()]
    lines += [f"tried again because unknown: {many(outcome.retried, 'time')}"] if outcome.retried else []
    lines += [f"report: {page}"] if page else []
    # People see the end of a log first, so the warnings come last.
    lines += [*outcome.contradicted, *outcome.gaps]
    return "\n".join(lines) + "\n"
