"""Implements `squall sim`, which simulates clusters in virtual time, from one seed or from many."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from squall.chaos.commands import completions
from squall.chaos.commands.grouped import OptionGroupsCommand, just_one
from squall.chaos.commands.json_output import json_flag, set_json_result
from squall.chaos.commands.run import (
    CLUSTER,
    LIMITS,
    in_flags,
    label_flag,
    plan_flags,
    plan_of,
    workload_flags,
    workload_options,
)
from squall.chaos.errors import error_message
from squall.chaos.faults.kind import FaultError
from squall.chaos.flags import is_typed, of_this_call
from squall.chaos.garbage import garbage_waits
from squall.chaos.plans.plan import Plan, PlanError, read_plan
from squall.chaos.runs.directory import writable
from squall.chaos.screen import console, in_words, live_line
from squall.chaos.typed import here
from squall.workloads.registry import DEFAULT, SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rich.console import Console

    from squall.chaos.commands.outputs import CommandOutput
    from squall.chaos.runs.batch import SeedBatch, SeedResult
    from squall.chaos.runs.result import SimResult

EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN, INTERRUPTED = 0, 1, 2, 130
PAGES = 3
"""Limits how many failing runs of a batch with the same signature get a page at once; `squall report RUN` makes the
others'.
"""
UNKNOWN = 5
"""Limits how many seeds of unknown verdict a batch names."""
ALL_PATHS_FROM = 2_000
"""Gives the number of swarm seeds that together should take every rare path. If they do not, the batch proves too
little.
"""
SAY_EVERY_S = 5.0


def _range(_: click.Context, __: click.Parameter, given: str | None) -> range | None:
    if given is None:
        return None
    found = re.fullmatch(r"(\d+)\.\.(\d+)", given)
    if found is None or int(found[1]) >= int(found[2]):
        raise click.BadParameter(f"{given!r}: FIRST..LAST is wanted, the last one left out, as in 0..1000")
    return range(int(found[1]), int(found[2]))


@click.command(
    cls=OptionGroupsCommand,
    groups={
        "Plan": ("plan_file", "seed", "seeds", "swarm", "time_s", "warmup_s", "expect"),
        "Faults": ("faults", "fault_count", "mutant"),
        "Cluster": CLUSTER,
        "Workload": workload_options(simulated=True),
        "Limits": LIMITS,
        "Batch": ("jobs", "most_unknown"),
        "Judging and files": ("all_violations", "spark", "page", "root", "label", "as_json"),
    },
    epilog="""\b
Examples:
  squall sim --seed 7                      the run of `squall run --seed 7`, in virtual time
  squall sim --seeds 0..1000 --jobs 2      a swarm: each seed draws a plan of its own
  squall sim --swarm --seed 17             one of its seeds again
  squall sim --plan runs/latest/plan.toml  a plan, wherever it was recorded
  squall sim --plan FILE --seeds 0..200    the same plan under many seeds
  squall sim --seed 7 --mutant 1           with a known bug planted

\b
Exit codes: 0 valid, 1 something is broken, 2 unknown (neither is proven, the last
lines say why; of a batch too many seeds, see --max-unknown, or a rare path that
2000 seeds of the whole swarm never took), 3 wrong usage.""",
)
@plan_flags("sim")
@click.option("--seeds", callback=_range, metavar="A..B", help="Run a batch: seeds from A up to, but without, B.")
@click.option("--swarm", is_flag=True, help="The seed draws everything: cluster, settings, load, kinds of faults.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Number of processes of a batch. [default: one for each CPU]")
@click.option(
    "--mutant",
    multiple=True,
    callback=just_one,
    metavar="ID",
    shell_complete=completions.mutants,
    help="Plant a known bug in the brokers first.",
)
@click.option("--spark", is_flag=True, help="Let Spark judge the saved runs as well.")
@click.option("--page", is_flag=True, help="With one seed: make the page of a valid run, too.")
@click.option(
    "--max-unknown",
    "most_unknown",
    type=click.FloatRange(0, 100),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="A batch exits with 2 if more than this percentage of its seeds is unknown.",
)
@click.option("--all-violations", is_flag=True, help="Continue after the first broken invariant.")
@click.option(
    "--runs",
    "--out",
    "root",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder for run directories; a batch keeps those of failing runs.",
)
@label_flag
@workload_flags(simulated=True)
@json_flag
def command(
    plan_file: Path | None,
    seeds: range | None,
    swarm: bool,
    jobs: int | None,
    mutant: str | None,
    spark: bool,
    page: bool,
    all_violations: bool,
    most_unknown: float,
    root: Path,
    label: str,
    **flags: Any,
) -> int:
    """Run clusters in virtual time: brokers, clients, network, disks and clocks, all from one seed.

    Brokers, clients and checks are those of `squall run`. A run can be repeated exactly, and is much faster than real
    time. Invariants are checked after every event. Without --plan, --seed simulates the plan that `squall run` draws
    from the seed, with a lighter load (for appends 7 records per second) unless --rate is given; --seeds runs a swarm.
    """
    if any(map(is_typed, ("plan_file", "seeds", "swarm"))):
        flags = of_this_call(flags)
    _check(plan_file, seeds, swarm, mutant, flags)
    if page and seeds is not None:
        raise click.UsageError("--page makes the page of a single seed; in a batch, only failing runs have a page")
    writable(root)
    if seeds is not None:
        from squall.chaos.runs.batch import SeedBatch

        order = SeedBatch(plan_file, mutant, root, not all_violations, workload=flags["workload"])
        return _batch(order, seeds, jobs or os.cpu_count() or 1, spark, most_unknown / 100)
    if plan_file is None and flags["rate"] is None:
        light = SCENARIOS[flags["workload"] or DEFAULT].LIGHT
        flags.update({name: value for name, value in light.items() if flags[name] is None})
    try:
        plan = _drawn(flags, mutant) if swarm else plan_of(plan_file, flags, "sim")
    except (PlanError, FaultError) as wrong:
        raise click.UsageError(in_flags(wrong, plan_file, flags)) from None
    return _single(plan, mutant, not all_violations, partial(_conclude, page=page, spark=spark), root, label)


def _drawn(flags: dict[str, Any], mutant: str | None) -> Plan:
    """Return the plan that the swarm draws for one seed, the same as in a batch."""
    from squall.chaos.mutants.swarm import drawn_plan

    return drawn_plan(flags["seed"], workload=flags["workload"], mutant=mutant)


def _check(plan_file: Path | None, seeds: range | None, swarm: bool, mutant: str | None, flags: dict[str, Any]) -> None:
    """Raise UsageError if options contradict each other, and PreconditionError if the mutant does not exist."""
    free = ("seed", "workload") if plan_file is None else ("seed",)
    given = [name for name, value in flags.items() if value not in (None, {}) and name not in free]
    if seeds is not None and flags["seed"] is not None:
        raise click.UsageError("--seed is one run, --seeds a batch: give one of them")
    if (swarm or seeds is not None) and given:
        flag = "--" + given[0].replace("_", "-")
        raise click.UsageError(f"a swarm draws all from its seed, and a batch takes all from --plan: leave out {flag}")
    if swarm and plan_file is not None:
        raise click.UsageError("--swarm draws the plan from a seed: leave out --plan")
    if swarm and flags["seed"] is None and seeds is None:
        raise click.UsageError("--swarm draws the plan from a seed: give --seed N or --seeds A..B")
    if seeds is not None and plan_file is not None:
        try:
            read_plan(plan_file)
        except PlanError as wrong:
            raise click.UsageError(str(wrong)) from None
    if mutant is not None:
        from squall.chaos.mutants import find

        find(mutant)


# -------------------------------------------------------------------------------------------------------- one seed


@garbage_waits()  # around the imports, too: what they define stays
def _single(
    plan: Plan, mutant: str | None, stop_at_first: bool, end: Callable[[Path, Console], int], root: Path, label: str
) -> int:
    """Simulate one seed, save the run, and return the exit code. end: prints the verdict of a run directory and returns
    the exit code.
    """
    from squall.chaos.runs.saved import repeat_of, save
    from squall.chaos.runs.simulation import simulate

    say = console(stderr=True)
    say.print(f"seed {plan.seed}: {plan.cluster.nodes} brokers, {plan.how_many}, {plan.time_s:g} s of load")
    _say_planted(say, mutant)
    began = time.monotonic()
    result = simulate(plan, mutant=mutant, stop_at_first=stop_at_first)
    _say_result(say, result, time.monotonic() - began)
    repeat = partial(repeat_of, mutant=mutant, stop_at_first=stop_at_first)
    directory = save(result, root, repeat, label=label, tables=False)
    set_json_result(lambda: _output_of_one(directory.path, result.digest))
    return end(directory.path, say)


def _output_of_one(path: Path, digest: str) -> CommandOutput:
    from squall.chaos.commands.outputs import SimOutput
    from squall.chaos.commands.run_output import judged_run

    return SimOutput(run=judged_run(path), digest=digest)


def _say_planted(say: Console, mutant: str | None) -> None:
    """Print which bug is planted, so that its effects are not taken for a real bug of the broker."""
    if mutant is not None:
        from squall.chaos.mutants import find

        planted = find(mutant)
        say.print(f"planted: mutant {planted.title_of()}, a broker that {planted.title}", soft_wrap=True, markup=False)


def _say_result(say: Console, result: SimResult, took_s: float) -> None:
    simulating_s = result.cpu_s - result.judging_cpu_s
    rate = result.sim_s / simulating_s if simulating_s else 0
    cost = f"{simulating_s:.2f} s of CPU and {result.judging_cpu_s:.2f} for judging, {rate:.0f} a CPU second"
    say.print(f"{result.sim_s:.1f} virtual s in {took_s:.1f} s ({cost}); digest {result.digest[:16]}", soft_wrap=True)
    say.print("rare paths: " + (", ".join(f"{n} {c}" for n, c in sorted(result.counts.items()) if c) or "none"))
    if result.trouble is not None:
        say.print("[bold]the harness failed[/]: nothing is said of the broker (harness-traceback.txt)")
    elif result.failure is not None:
        say.print(f"[bold red]{result.failure}[/]")
    for line in result.reasons:
        say.print(f"  {line}", markup=False)


def _conclude(path: Path, say: Console, *, page: bool, spark: bool) -> int:
    """Print the table, render the page if something was found or `page` is set, and with `spark` let Spark judge the
    run first.
    """
    from squall.chaos.commands.conclusion import conclude
    from squall.chaos.runs.directory import RunDirectory

    if spark:
        _spark(path, say)
    return conclude(RunDirectory(path), keep_data=True, always_page=page)


def _spark(path: Path, say: Console) -> None:
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


# ----------------------------------------------------------------------------------------------------------- a batch


class _BatchTally:
    """Counts the results of a batch of seeds so far."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.began = self.said = time.monotonic()
        self.sim_s = self.cpu_s = 0.0
        self.verdicts: Counter[str] = Counter()
        self.signatures: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
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


def _batch(order: SeedBatch, seeds: range, jobs: int, spark: bool, most_unknown: float) -> int:
    """Run a batch and return its exit code. most_unknown: the share of unknown seeds, 0 to 1, above which the code is
    2.
    """

    from squall.chaos.runs.batch import run_batch

    say = console(stderr=True)
    tally = _BatchTally(len(seeds))
    interrupted = False
    set_json_result(lambda: _output_of_batch(tally, order, seeds))
    say.print(f"seeds {seeds.start}..{seeds.stop}, {jobs} at a time")
    _say_planted(say, order.mutant)
    try:
        with live_line(say, tally.rate):
            for each in run_batch(order, seeds, jobs):
                tally.take(each)
                if each.failure is not None or each.trouble is not None:
                    _say_failed(say, order, each, tally)
                if not say.is_terminal and time.monotonic() - tally.said > SAY_EVERY_S:
                    tally.said = time.monotonic()
                    say.print(tally.rate())
    except KeyboardInterrupt:
        interrupted = True
    never = _say_end(tally, spark, say, order.impossible()) if tally.done else []
    lacking = never if order.is_whole_swarm() and tally.done >= ALL_PATHS_FROM else []
    if lacking:
        many = f"{tally.done} seeds of the whole swarm should take every rare path"
        console().print(f"{many}: too little is proven of {', '.join(lacking)}", soft_wrap=True)
    _say_unknown(tally, most_unknown)
    if interrupted:
        left = tally.total - tally.done
        console().print(f"interrupted: {left} of {tally.total} seeds did not run, or not to their end", soft_wrap=True)
    if any(each.failure is not None for each in tally.failed):
        return EXIT_INVALID
    if interrupted:
        return INTERRUPTED
    if tally.failed or tally.done < tally.total or tally.unknown_share() > most_unknown or lacking:
        return EXIT_UNKNOWN
    return EXIT_VALID


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
                repeat=here(order.command(each.seed)),
            )
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
    say.print(f"  {here(order.command(each.seed))}", markup=False)
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
    """Print how many seeds have no verdict, the reasons by frequency, and a few of these seeds."""

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
    """Return a reason without its numbers, so that reasons of one kind count together."""
    return re.sub(r"\d+(\.\d+)?", "N", reason)


def _say_end(tally: _BatchTally, spark: bool, say: Console, impossible: Collection[str]) -> list[str]:
    """Print the results of the whole batch: verdicts, failures, faults that landed, rare paths. Return the possible
    rare paths that no seed took. impossible: paths that no seed of this batch can take.
    """
    from rich.table import Table

    out = console()
    if spark:
        for each in tally.failed:
            if each.saved is not None:
                _spark(each.saved, say)
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
