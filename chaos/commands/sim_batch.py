"""Runs a batch of simulations for `squall sim --seeds`, and prints its results."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from typing import TYPE_CHECKING

from squall.chaos.commands.json_output import set_json_result
from squall.chaos.commands.sim_coverage import measured_coverage, say_coverage, too_rare
from squall.chaos.errors import error_message
from squall.chaos.screen import console, in_words, live_line
from squall.chaos.typed import shortened

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from rich.console import Console

    from squall.chaos.commands.outputs import BatchCoverage, CommandOutput
    from squall.chaos.runs.batch import SeedBatch, SeedResult
    from squall.chaos.runs.branch_coverage import Arc

EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN, INTERRUPTED = 0, 1, 2, 130
PAGES = 3
"""Limits the pages that a batch renders for runs with the same failure, such as "invariant one-leader". `squall report
RUN` renders the page of any other run.
"""
UNKNOWN = 5
"""Limits how many seeds of unknown verdict a batch names."""
ALL_PATHS_FROM = 2_000
"""Gives the number of random plans (swarm seeds) that should be enough to take every rare code path of the broker. If a
batch of at least so many misses one, the batch is unknown (exit code 2).
"""
SAY_EVERY_S = 5.0


class _BatchTally:
    """Counts the results of a batch of seeds so far."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.began = self.said = time.monotonic()
        self.sim_s = self.cpu_s = 0.0
        self.verdicts: Counter[str] = Counter()
        self.signatures: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.seeds_of: Counter[str] = Counter()
        """Counts, for each rare code path of the broker, how many seeds took it."""
        self.arcs: dict[str, set[Arc]] = {}
        self.coverage: BatchCoverage | None = None
        self.faults = self.landed = 0
        self.failed: list[SeedResult] = []
        self.unknown: list[SeedResult] = []
        self.lossy: list[SeedResult] = []
        """Lists the seeds that are valid although they lost acknowledged records."""

    def take(self, each: SeedResult) -> None:
        """Count one more seed that has ended."""
        self.done += 1
        self.sim_s, self.cpu_s = self.sim_s + each.sim_s, self.cpu_s + each.cpu_s
        self.verdicts[each.verdict] += 1
        self.counts.update(each.counts)
        self.seeds_of.update({name: count > 0 for name, count in each.counts.items()})
        for file, arcs in each.arcs.items():
            self.arcs.setdefault(file, set()).update(arcs)
        self.faults, self.landed = self.faults + each.faults, self.landed + each.landed
        if each.failure is not None or each.trouble is not None:
            self.failed.append(each)
            self.signatures[str(each.failure or "harness")] += 1
        elif each.verdict == "unknown":
            self.unknown.append(each)
        elif each.lost:
            self.lossy.append(each)

    def unknown_share(self) -> float:
        """Return the share of seeds without a verdict among the seeds that have ended, 0 to 1."""
        return len(self.unknown) / self.done if self.done else 0.0

    def rate(self) -> str:
        """Return the progress and the speed of the batch in words."""
        took_s = max(time.monotonic() - self.began, 1e-9)
        speed = self.sim_s / self.cpu_s if self.cpu_s else 0.0
        words = f"{self.done}/{self.total} seeds, {self.done / took_s:.2f}/s, {speed:.0f} virtual s a CPU second"
        words += f", {len(self.failed)} failed" + (f", {len(self.unknown)} unknown" if self.unknown else "")
        if not self.done or self.done == self.total:
            return words
        return f"{words}, about {in_words((self.total - self.done) * took_s / self.done)} left"


def run_seeds(order: SeedBatch, seeds: range, jobs: int, spark: bool, most_unknown: float) -> int:
    """Simulate each seed as `order` describes, `jobs` seeds at a time. Return the exit code: 0 valid, 1 invalid, 2
    unknown, 130 interrupted. spark: let Spark judge the failed runs, too. most_unknown: if a larger share of the seeds
    than this (0 to 1) has no verdict, the code is 2.
    """

    from squall.chaos.runs.batch import run_batch

    say = console(stderr=True)
    tally = _BatchTally(len(seeds))
    interrupted = False
    set_json_result(lambda: _output_of_batch(tally, order, seeds))
    say.print(f"seeds {seeds.start}..{seeds.stop}, {jobs} at a time")
    say_planted(say, order.mutant)
    try:
        with live_line(say, tally.rate):
            for each in run_batch(order, seeds, jobs):
                tally.take(each)
                if each.failure is not None or each.trouble is not None:
                    _say_failed(say, order, each, tally)
                # On a terminal, live_line shows the same all the time.
                if not say.is_terminal and time.monotonic() - tally.said > SAY_EVERY_S:
                    tally.said = time.monotonic()
                    say.print(tally.rate())
    except KeyboardInterrupt:
        interrupted = True
    lacking = _conclude_paths(tally, order, seeds, spark, say) if tally.done else False
    _say_unknown(tally, most_unknown)
    if interrupted:
        left = tally.total - tally.done
        console().print(f"interrupted: {left} of {tally.total} seeds did not run, or not to their end", soft_wrap=True)
    # A failure first: it was found, even if the batch was interrupted later.
    if any(each.failure is not None for each in tally.failed):
        return EXIT_INVALID
    if interrupted:
        return INTERRUPTED
    if tally.failed or tally.done < tally.total or tally.unknown_share() > most_unknown or lacking:
        return EXIT_UNKNOWN
    return EXIT_VALID


def _conclude_paths(tally: _BatchTally, order: SeedBatch, seeds: range, spark: bool, say: Console) -> bool:
    """Print which rare code paths of the broker the seeds took and did not take. Return True if the batch should have
    taken all of them (it has ALL_PATHS_FROM random plans or more), but missed one. With --coverage, a missed branch
    counts, too, unless unreached.toml gives a reason for it. spark: let Spark judge the failed runs first.
    """
    out, large = console(), order.is_whole_swarm() and tally.done >= ALL_PATHS_FROM
    never = _say_end(tally, spark, say, order.impossible())
    if rare := too_rare(tally.seeds_of, tally.done):
        out.print(f"taken by less than one seed in a thousand: {', '.join(rare)}", soft_wrap=True)
    if large and never:
        many = f"{tally.done} seeds of the whole swarm should take every rare path"
        out.print(f"{many}: too little is proven of {', '.join(never)}", soft_wrap=True)
    if not order.coverage:
        return large and bool(never)
    coverage = measured_coverage(tally.arcs, tally.seeds_of, seeds, tally.done, order.root)
    tally.coverage = coverage
    say_coverage(coverage, out)
    unexplained = sum(each.kind == "unexplained" for each in coverage.unreached)
    if large and unexplained:
        many = f"{tally.done} seeds of the whole swarm should take every branch that has no reason"
        out.print(f"{many}: too little is proven of {unexplained}", soft_wrap=True)
    return large and bool(never or unexplained)


def _output_of_batch(tally: _BatchTally, order: SeedBatch, seeds: range) -> CommandOutput:
    from squall.chaos.commands.outputs import FailedSeed, SeedBatchSummary, SimOutput

    def listed(found: list[SeedResult]) -> tuple[FailedSeed, ...]:
        return tuple(
            FailedSeed(
                seed=each.seed,
                verdict=each.verdict,
                failure=None if each.failure is None else str(each.failure),
                reasons=each.reasons,
                harness=each.trouble,
                run=None if each.saved is None else str(each.saved),
                repeat=shortened(order.command(each.seed)),
            )
            # Seeds end in any order.
            for each in sorted(found, key=lambda each: each.seed)
        )

    batch = SeedBatchSummary(
        first=seeds.start,
        last=seeds[-1],
        done=tally.done,
        verdicts=dict(tally.verdicts),
        failed=listed(tally.failed),
        unknown=listed(tally.unknown),
        lost=sum(each.lost for each in tally.lossy),
        faults_planned=tally.faults,
        faults_landed=tally.landed,
        rare_paths=dict(tally.counts),
        seeds_of_paths=dict(tally.seeds_of),
        coverage=tally.coverage,
        virtual_s=tally.sim_s,
        cpu_s=tally.cpu_s,
    )
    return SimOutput(batch=batch)


def _say_failed(say: Console, order: SeedBatch, each: SeedResult, tally: _BatchTally) -> None:
    """Print a failure and the command that repeats it, as soon as its seed has ended."""
    say.print(f"[bold red]seed {each.seed}: {each.failure or 'the harness failed'}[/]")
    trouble = (each.trouble or "").strip().splitlines()[-1:]
    for line in dict.fromkeys((*each.reasons[:3], *trouble)):
        say.print(f"  {line}", markup=False)
    say.print(f"  {shortened(order.command(each.seed))}", markup=False)
    if each.saved is not None:
        say.print(f"  {each.saved}", markup=False)
        if tally.signatures[str(each.failure or "harness")] <= PAGES:
            _page(each.saved, say)


def _page(path: Path, say: Console) -> None:
    from squall.reports.junit import write_junit
    from squall.reports.page import render

    try:
        write_junit(path)
        render(path)
    except Exception as error:  # an error of the page must not hide the failure, which is printed already
        say.print(f"  its page could not be rendered: {error_message(error)}", markup=False)


def _say_unknown(tally: _BatchTally, most: float) -> None:
    """Print how many seeds have no verdict, the reasons by frequency, and a few of these seeds. most: the share of such
    seeds that --max-unknown allows, 0 to 1.
    """

    if not tally.unknown:
        return
    out = console()
    share = tally.unknown_share()
    allowed = f"--max-unknown allows {most:.0%}"
    limit = f"{allowed}: too little is proven" if share > most else allowed
    out.print(f"{len(tally.unknown)} of {tally.done} seeds are unknown ({share:.1%}); {limit}", soft_wrap=True)
    reasons = Counter(_kind_of(reason) for each in tally.unknown for reason in each.reasons[:1])
    for reason, count in reasons.most_common():
        out.print(f"  {count} x {reason}", markup=False, soft_wrap=True)
    for each in sorted(tally.unknown, key=lambda each: each.seed)[:UNKNOWN]:
        out.print(f"  seed {each.seed}: {'; '.join(each.reasons)}", markup=False, soft_wrap=True)


def _kind_of(reason: str) -> str:
    """Return the reason why a seed has no verdict, with N for each number, so that reasons that differ only in numbers
    count together.
    """
    return re.sub(r"\d+(\.\d+)?", "N", reason)


def _say_end(tally: _BatchTally, spark: bool, say: Console, impossible: Collection[str]) -> list[str]:
    """Print the results of the whole batch: verdicts, failures, how many faults took effect (landed), and how often
    each rare code path of the broker was taken. Return the rare paths that no seed took, without those in `impossible`,
    which no seed of this batch can take. spark: let Spark judge the failed runs first.
    """
    from rich.table import Table

    out = console()
    if spark:
        for each in tally.failed:
            if each.saved is not None:
                judge_with_spark(each.saved, say)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(tally.verdicts.items()))
    out.print(f"{tally.rate()}; {verdicts}")
    out.print(f"{tally.sim_s:.0f} virtual s in {tally.cpu_s:.0f} CPU s; {tally.landed} of {tally.faults} faults landed")
    if tally.lossy:
        lost, worst = sum(each.lost for each in tally.lossy), max(tally.lossy, key=lambda each: each.lost)
        many = f"{len(tally.lossy)} of {tally.verdicts['valid']} valid seeds lost {lost:,} acknowledged records"
        out.print(f"{many}, as they permit; most of them seed {worst.seed}: {worst.lost:,}", soft_wrap=True)
    for signature, count in tally.signatures.most_common():
        first = min(each.seed for each in tally.failed if str(each.failure or "harness") == signature)
        out.print(f"  {count} x {signature}, first by seed {first}", markup=False)
    table = Table("rare path", "times", box=None)
    apart = sorted(name for name in impossible if not tally.counts[name])
    for name, count in sorted(tally.counts.items(), key=lambda each: (-each[1], each[0])):
        if name not in apart:
            table.add_row(name, str(count))
    out.print(table)
    never = [name for name, count in sorted(tally.counts.items()) if not count and name not in apart]
    if never and tally.done:
        out.print(f"never taken by any of these seeds: {', '.join(never)}")
    if apart and tally.done:
        out.print(f"not possible with this workload: {', '.join(apart)}")
    return never


def say_planted(say: Console, mutant: str | None) -> None:
    """Print which bug is planted, so that its effects are not taken for a real bug of the broker."""
    if mutant is not None:
        from squall.chaos.mutants import find

        planted = find(mutant)
        say.print(
            f"planted: mutant {planted.id_and_name()}, a broker that {planted.title}", soft_wrap=True, markup=False
        )


def judge_with_spark(path: Path, say: Console) -> None:
    """Let Spark judge a saved run, and write its verdict over the one in the run directory. A run that the simulation
    found invalid stays invalid.
    """
    from squall.chaos.runs.directory import RunDirectory
    from squall.chaos.runs.judgement import judge

    found = json.loads((path / "verdict.json").read_text())
    spark = judge(RunDirectory(path), say)
    say.print(f"Spark: {spark['verdict']}; the reference checkers: {found['verdict']}")
    if found["verdict"] == "invalid":
        spark.update(verdict="invalid", reasons=list(dict.fromkeys([*found["reasons"], *spark["reasons"]])))
        (path / "verdict.json").write_text(json.dumps(spark, indent=1) + "\n")
