"""Implements `squall sim`, which simulates clusters in virtual time, from one seed or from many."""

from __future__ import annotations

import os
import re
import time
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
from squall.chaos.commands.sim_batch import judge_with_spark, run_seeds, say_planted
from squall.chaos.faults.kind import FaultError
from squall.chaos.flags import is_typed, of_this_call
from squall.chaos.garbage import garbage_waits
from squall.chaos.plans.plan import Plan, PlanError, read_plan
from squall.chaos.runs.directory import writable
from squall.chaos.screen import console
from squall.workloads.registry import DEFAULT, SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from squall.chaos.commands.outputs import CommandOutput
    from squall.chaos.runs.result import SimResult


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
        "Batch": ("jobs", "most_unknown", "coverage"),
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
2000 seeds of the whole swarm never took, or with --coverage a branch that they never
took and that has no reason), 3 wrong usage.""",
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
@click.option(
    "--coverage",
    is_flag=True,
    help="Measure which branches of the brokers a batch takes, and write coverage.html. Takes up to 3 times as long.",
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
    coverage: bool,
    root: Path,
    label: str,
    **flags: Any,
) -> int:
    """Run clusters in virtual time: brokers, clients, network, disks and clocks, all from one seed.

    Brokers, clients and checks are those of `squall run`. A run can be repeated exactly, and is much faster than real
    time. Invariants are checked after every event. Without --plan, --seed simulates the plan that `squall run` draws
    from the seed. Its load is lighter (7 records per second in the workload `appends`) unless --rate is given. --seeds
    simulates many random plans, one for each seed: a swarm.
    """
    if any(map(is_typed, ("plan_file", "seeds", "swarm"))):
        flags = of_this_call(flags)
    _check(plan_file, seeds, swarm, mutant, flags)
    if page and seeds is not None:
        raise click.UsageError("--page makes the page of a single seed; in a batch, only failing runs have a page")
    if coverage and seeds is None:
        raise click.UsageError("--coverage measures a batch: give --seeds A..B")
    writable(root)
    if seeds is not None:
        from squall.chaos.runs.batch import SeedBatch
        from squall.chaos.runs.branch_coverage import preload_coverage

        if coverage:
            preload_coverage()
        order = SeedBatch(plan_file, mutant, root, not all_violations, workload=flags["workload"], coverage=coverage)
        return run_seeds(order, seeds, jobs or os.cpu_count() or 1, spark, most_unknown / 100)
    # With --rate nothing is made lighter: a load of the user's own is wanted.
    if plan_file is None and flags["rate"] is None:
        light = SCENARIOS[flags["workload"] or DEFAULT].LIGHT
        flags.update({name: value for name, value in light.items() if flags[name] is None})
    try:
        plan = _drawn(flags, mutant) if swarm else plan_of(plan_file, flags, "sim")
    except (PlanError, FaultError) as wrong:
        raise click.UsageError(in_flags(wrong, plan_file, flags)) from None
    return _single(plan, mutant, not all_violations, partial(_conclude, page=page, spark=spark), root, label)


def _drawn(flags: dict[str, Any], mutant: str | None) -> Plan:
    """Return the random plan of one seed, the same as in a batch of seeds (`--seeds`)."""
    from squall.chaos.mutants.swarm import drawn_plan

    return drawn_plan(flags["seed"], workload=flags["workload"], mutant=mutant)


def _check(plan_file: Path | None, seeds: range | None, swarm: bool, mutant: str | None, flags: dict[str, Any]) -> None:
    """Raise UsageError if options contradict each other, and PreconditionError if the mutant does not exist."""
    # A plan has its workload.
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
    """Simulate one plan, save the run, and return the exit code. mutant: the bug to plant, if any. stop_at_first: end
    the run at the first broken invariant. end: prints the verdict of the run directory and returns the exit code.
    """
    from squall.chaos.runs.saved import repeat_of, save
    from squall.chaos.runs.simulation import simulate

    say = console(stderr=True)
    say.print(f"seed {plan.seed}: {plan.cluster.nodes} brokers, {plan.how_many}, {plan.time_s:g} s of load")
    say_planted(say, mutant)
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
    """Render the reports of a saved run, print its result, and return the exit code (0 valid, 1 invalid, 2 unknown).
    page: render report.html even for a valid run without losses; other runs always have it. spark: let Spark judge the
    run first.
    """
    from squall.chaos.commands.conclusion import conclude
    from squall.chaos.runs.directory import RunDirectory

    if spark:
        judge_with_spark(path, say)
    return conclude(RunDirectory(path), keep_data=True, always_page=page)
