"""Implements `squall hunt`, which plants known bugs and checks that each of them is found."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from rich.table import Table

from squall.chaos.commands import completions
from squall.chaos.garbage import garbage_waits
from squall.chaos.mutants import find, select
from squall.chaos.mutants.hunt import FEW_STEPS, FailureKind, MutantHuntResult, Run, Shrink, alarms, hunt
from squall.chaos.mutants.mutant import ON_DISKS
from squall.chaos.mutants.swarm import drawn_plan
from squall.chaos.mutants.table import HISTORY, OWN, SWARM, planted, write_docs
from squall.chaos.plans.plan import Plan
from squall.chaos.screen import console
from squall.chaos.standard_streams import outlive_readers

if TYPE_CHECKING:
    from squall.chaos.runs.result import SimResult


ALL, FILES = "all", "files"


@dataclass(frozen=True, slots=True)
class HuntTask:
    """Describes one hunt, which one OS process does: the mutant to find, the range of seeds and the budgets."""

    mutant: str
    first: int
    seeds: int
    budget_s: float
    shrink_s: float
    """Limits the CPU seconds for shrinking a found plan; 0: do not shrink."""
    more: int
    """Limits how many further failing plans are shrunk, if the first has too many steps (operations and faults) after
    shrinking.
    """
    controls: int
    """Gives the number of plans that run without the mutant before the hunt. Any failure under them is a false alarm.
    """
    swarm: bool
    """Is True if the plans of the hunt are drawn at random (a swarm), and not made for this mutant."""
    checks: str
    """Says which checks may find the bug: `all`, `history` (only those of the clients' history) or `files` (only the
    comparison of the brokers' logs).
    """


@click.command(
    epilog="""\b
Examples:
  squall hunt                                all planted bugs of replication
  squall hunt --mutants 9,14 --shrink        two of them, each to its shortest plan
  squall hunt --mutants 1 --controls 50      and 50 plans that a sound broker has to stand
  squall hunt --mutants 31 --swarm           without a plan of its own: what the swarm draws
  squall hunt --checks history               by what clients see alone, as with containers
  squall hunt --mutants 93 --checks files    by the brokers' logs, compared after the run
  squall hunt --mutants all --list           what each planted bug is, and its source
  squall sim --plan runs/hunt/14.toml --mutant 14 one of the found plans again

\b
Exit codes: 0 every one is found and a sound broker silent, 1 not so, 3 usage."""
)
@click.option(
    "--mutants",
    "names",
    default="replication",
    show_default=True,
    shell_complete=completions.listed_mutants,
    help="The bugs to plant: a group, all, or a list of ids or names.",
)
@click.option(
    "--seeds", default=200, show_default=True, type=click.IntRange(1), help="The largest number of plans for each bug."
)
@click.option("--from", "first", default=0, show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option("--budget", "budget_s", default=60.0, show_default=True,
              help="CPU seconds for each bug, without shrinking.")  # fmt: skip
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1), help="Number of processes.")
@click.option("--shrink/--no-shrink", "shrinks", help="Shrink each found plan.")
@click.option("--shrink-budget", default=60.0, show_default=True, help="CPU seconds for shrinking each plan.")
@click.option("--more", default=3, show_default=True, type=click.IntRange(0),
              help=f"Further plans to find and shrink while more than {FEW_STEPS} steps are left.")  # fmt: skip
@click.option("--controls", default=0, show_default=True, help="Number of plans of each bug that first run without it.")
@click.option("--swarm", is_flag=True,
              help="Hunt each with the plans that a swarm draws, and not with plans made for it.")  # fmt: skip
@click.option("--checks", type=click.Choice((ALL, HISTORY, FILES)), default=ALL, show_default=True,
              help="What may find a bug: all also looks inside the brokers after each event; history is only what "
                   "clients see, and each bug must cause one of the anomalies that its row names; files is only the "
                   "comparison of the brokers' logs after the run.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("runs/hunt"), show_default=True,
              help="Folder for the plans that found a bug.")  # fmt: skip
@click.option("--list", "lists", is_flag=True, help="Print what these bugs are, and hunt nothing.")
@click.option(
    "--docs",
    type=click.Path(path_type=Path, exists=True),
    help="A page in which the results of these bugs are updated.",
)
def command(
    names: str,
    seeds: int,
    first: int,
    budget_s: float,
    jobs: int,
    shrinks: bool,
    shrink_budget: float,
    more: int,
    controls: int,
    swarm: bool,
    checks: str,
    out: Path,
    lists: bool,
    docs: Path | None,
) -> int:
    """Plant known bugs, one at a time, and check that each of them is found. Under the same plans, brokers without the
    bug must not fail.

    Every plan runs in the simulator. A plan that finds a bug is written to a file, which `squall sim --mutant ID` runs
    again.
    """
    if lists:
        click.echo("\n".join(line for mutant in select(names) for line in planted(mutant)))
        return 0
    if docs is not None and checks == FILES:
        raise click.UsageError("the page of --docs has no columns for --checks files: leave out one of the two")
    shrink_s = shrink_budget if shrinks else 0.0
    tasks = [
        HuntTask(m.id, first, seeds, budget_s, shrink_s, more, controls, swarm, checks)
        for m in select(names)
        # Such a mutant replaces nothing: without its own plan it is a sound broker with sound settings.
        if not (swarm and m.is_setting)
    ]
    results = console()
    found = []
    for hunted in _run_tasks(tasks, jobs):
        found.append(hunted)
        results.print(_line(hunted))
        if hunted.plan:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{hunted.mutant}.toml").write_text(hunted.plan)
    results.print(_table(found))
    if docs is not None:
        write_docs(docs, found, SWARM if swarm else HISTORY if checks == HISTORY else OWN)
    return 0 if all(hunted.is_as_required for hunted in found) else 1


def _run_tasks(tasks: list[HuntTask], jobs: int) -> Iterator[MutantHuntResult]:
    if jobs == 1 or len(tasks) == 1:
        yield from map(run_task, tasks)
        return
    # Each task has a fresh process, so that one simulation's memory does not slow down or change the next one.
    with multiprocessing.get_context("spawn").Pool(jobs, outlive_readers, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(run_task, tasks)


@garbage_waits()
def run_task(task: HuntTask) -> MutantHuntResult:
    """Search for one mutant in this OS process, and return what found it, if anything did."""

    def say(words: str) -> None:
        click.echo(f"{mutant.id:>3} {mutant.name}: {words}", err=True)

    mutant = find(task.mutant)
    seeds = range(task.first, task.first + task.seeds)
    run = simulator(task.checks)
    before = tuple(alarms(mutant, seeds[: task.controls], run))
    shrink = shrinker(task.shrink_s) if task.shrink_s else None
    own = mutant.client_visible_plan if task.checks == HISTORY else None
    plan = partial(drawn_plan, workload=mutant.workload, mutant=mutant.id) if task.swarm else own
    hunted = hunt(
        mutant,
        seeds,
        run,
        budget_s=task.budget_s,
        plan=plan,
        named=task.checks == HISTORY,
        shrink=shrink,
        more=task.more,
        say=say,
    )
    if not before:
        return hunted
    from dataclasses import replace

    return replace(hunted, false_alarms=tuple(dict.fromkeys((*before, *hunted.false_alarms))))


def simulator(checks: str = ALL) -> Run:
    """Return a function that simulates a plan, with or without a mutant (a planted bug), and returns its failure or
    None.

    checks: with a mutant, `history` counts only failures that clients can see, `files` only differences between the
    brokers' logs, and `all` every failure. For a mutant of transactions or groups that clients can notice, `all` counts
    as `history`. Without a mutant every failure counts.
    """
    from squall.chaos.errors import HarnessError
    from squall.chaos.runs.simulation import simulate

    def run(plan: Plan, mutant: str | None) -> FailureKind | None:
        of_clients = mutant is not None and (checks == HISTORY or find(mutant).is_of_clients)
        # A stop at a broken invariant would end the run before clients or files show anything.
        result = simulate(plan, mutant=mutant, stop_at_first=not of_clients and checks != FILES)
        if result.failure is None and result.trouble is not None:
            raise HarnessError(result.trouble)
        if checks == FILES:
            return differing_replicas(result) or (None if mutant else result.failure)
        return seen_by_clients(result, find(mutant).expected) if mutant and of_clients else result.failure

    return run


def differing_replicas(result: SimResult) -> FailureKind | None:
    """Return the failure that the brokers' logs show when they are compared as files; None if they do not differ. Raise
    HarnessError if the run ended too early for a comparison.
    """
    from squall.chaos.errors import HarnessError
    from squall.chaos.runs.result import FailureSignature
    from squall.chaos.runs.saved import save
    from squall.checkers.anomalies import replica_divergence

    with TemporaryDirectory() as root:
        compared = save(result, Path(root), "", latest=False, tables=False).path / replica_divergence.FILE
        if not compared.exists():
            raise HarnessError(f"the brokers' logs were not compared, because the run ended early: {result.failure}")
        differ = bool(json.loads(compared.read_text())["findings"])
    return FailureSignature("anomaly", replica_divergence.NAME) if differ else None


def seen_by_clients(result: SimResult, expected: Sequence[str]) -> FailureKind | None:
    """Return the failure that clients can see, or None. It is an anomaly in the history, if possible one of `expected`
    (the anomalies that the mutant should cause); else a crash, a deadlock or a lack of progress. Broken invariants and
    differing replicas do not count, because no client can observe them.
    """
    from squall.chaos.runs.result import FailureSignature

    anomalies = [name for name in result.anomalies if name not in ON_DISKS]
    seen = [*(name for name in expected if name in anomalies), *anomalies]
    if seen:
        return FailureSignature("anomaly", seen[0])
    ended = result.failure
    return None if ended is None or ended.kind == "invariant" or ended.name in ON_DISKS else ended


def shrinker(budget_s: float) -> Shrink:
    """Return the function that shrinks a failing plan within `budget_s` CPU seconds (`squall.chaos.shrinking`)."""
    from collections.abc import Callable

    from squall.chaos.shrinking.shrinker import shrink

    def shortest(plan: Plan, failure: FailureKind, run: Callable[[Plan], FailureKind | None]) -> tuple[Plan, int]:
        done = shrink(plan, failure, run, budget_s=budget_s, clock=time.process_time)
        if done.interrupted:
            raise KeyboardInterrupt  # of the whole hunt
        return done.plan, done.steps

    return shortest


def _line(hunted: MutantHuntResult) -> str:
    """Return a line with the result of the search for one mutant: the check and the seed that found it, or that no plan
    did, and any false alarms.
    """
    if hunted.seed is not None:
        other = "" if hunted.is_expected else f", which is none of {', '.join(find(hunted.mutant).expected)},"
        end = f"found by {hunted.check}{other} in seed {hunted.seed}"
    else:
        end = f"[bold]not found[/] in {hunted.tried} plans"
    steps = "" if hunted.steps is None else f"; steps after shrinking: {hunted.steps_text}"
    alarm = "".join(f"; [bold]false alarm[/] in seed {seed}: {how}" for seed, how in hunted.false_alarms)
    trouble = "".join(f"; trouble in seed {seed}: {why}" for seed, why in hunted.troubles[:3])
    return f"{hunted.mutant:>3} {find(hunted.mutant).name}: {end} ({hunted.seconds:.1f} s){steps}{alarm}{trouble}"


def _table(found: list[MutantHuntResult]) -> Table:
    table = Table("mutant", "", "found by", "seed", "plans", "CPU s", "steps")
    for h in found:
        table.add_row(
            h.mutant,
            find(h.mutant).name,
            h.check or ("masked" if find(h.mutant).masked else "-"),
            "-" if h.seed is None else str(h.seed),
            str(h.tried),
            f"{h.seconds:.1f}",
            h.steps_text,
        )
    return table
