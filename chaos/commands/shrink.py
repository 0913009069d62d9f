"""Implements `squall shrink`, which finds the shortest plan that still fails in the same way. It also writes the story
of that failure: what clients and brokers did around it, in order.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from squall.chaos.commands import completions
from squall.chaos.commands.grouped import just_one
from squall.chaos.garbage import garbage_waits
from squall.chaos.screen import console
from squall.chaos.toolchain.extras import no_report
from squall.chaos.typed import absolute_command, typed

if TYPE_CHECKING:
    from rich.console import Console

    from squall.chaos.plans.plan import Plan
    from squall.chaos.runs.directory import RunDirectory
    from squall.chaos.runs.recorded import RecordedRun
    from squall.chaos.shrinking.shrinker import ShrinkResult

SHRUNK = "shrunk"
INTERRUPTED = 130
STORY_TEXT, STORY_PICTURE = "story.txt", "story.svg"


@click.command(
    epilog="""\b
Examples:
  squall shrink runs/latest                a failing simulated run
  squall shrink runs/latest --budget 600   with more time for it
  squall sim --plan runs/latest/shrunk/plan.toml

\b
Exit codes: 0 shrunk, 2 the run does not fail any more, 3 usage,
130 interrupted: the smallest plan found so far is saved."""
)
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completions.runs)
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(1),
    default=300.0,
    show_default=True,
    help="Stop searching after this many seconds.",
)
@click.option(
    "--as", "wanted", metavar="NAME", help="The anomaly or invariant to keep. [default: what the run failed with]"
)
@click.option(
    "--mutant",
    multiple=True,
    callback=just_one,
    metavar="ID",
    help="Plant a known bug in the brokers first. [default: the run's]",
)
def command(run: Path, budget_s: float, wanted: str | None, mutant: str | None) -> int:
    """Shrink a failing simulated run to the few operations and faults that still fail, and tell their story.

    RUN is a run directory of `squall sim`. The result is the run directory RUN/shrunk, with the shrunk plan
    (plan.toml), and with the story of the failure as text and picture (story.txt, story.svg). If an earlier RUN/shrunk
    still fails, the search begins there.
    """

    from squall.chaos.runs.recorded import recorded

    what = recorded(run)
    return shrink_run(what, mutant or what.mutant, wanted, budget_s, console(stderr=True))


@garbage_waits()
def shrink_run(what: RecordedRun, mutant: str | None, wanted: str | None, budget_s: float, say: Console) -> int:
    """Shrink a recorded run, save the shrunk run, print its story, and return the exit code. Raise PreconditionError if
    the run was not simulated, and HarnessError if its plan does not fail any more.

    mutant: the bug that is planted, if any. wanted: the anomaly or invariant that the shrunk run must show; None: the
    failure that was recorded.
    """
    from squall.chaos.errors import HarnessError, PreconditionError
    from squall.chaos.plans.operations import concrete
    from squall.chaos.runs.recorded import tried
    from squall.chaos.shrinking.shrinker import describe, shrink

    path = what.directory.path
    if what.failure is None and not what.simulated:
        raise PreconditionError(f"{path}: not simulated; first find it there: {typed('replay', path, '--in', 'sim')}")
    plan = concrete(what.plan.model_copy(update={"runtime": "sim"}))
    began = time.monotonic()
    say.print(f"{describe(plan)}: once more, to see it fail")
    fails = tried(mutant, wanted)
    try:
        failure = fails(plan)
    except KeyboardInterrupt:
        raise click.Abort("nothing was saved") from None
    # With --as, another failure than the recorded one may be meant.
    expected = what.failure if wanted is None else failure
    if failure is None or (expected is not None and failure != expected):
        was = f"; it was recorded as {what.failure}" if what.failure else ""
        raise HarnessError(
            f"{path}: the plan does not fail{f' with {wanted}' if wanted else ''} ({failure or 'nothing'} found){was}"
        )
    say.print(f"[bold]{failure}[/]")
    earlier = _plan_at(path / SHRUNK / "plan.toml")
    if earlier is not None and fails(earlier) == failure:
        plan = earlier
        say.print(f"from {SHRUNK}/ of an earlier search: {describe(plan)}")
    done = shrink(
        plan,
        failure,
        tried(mutant, wanted, lambda: time.monotonic() - began >= budget_s),
        budget_s=budget_s - (time.monotonic() - began),
        say=lambda words: say.print(f"  {words}", markup=False, soft_wrap=True),
    )
    took_s = time.monotonic() - began
    if done.interrupted:
        say.print("interrupted: the smallest plan found so far is run once more and saved; Ctrl-C again ends that, too")
    directory = _save(done.plan, mutant, path / SHRUNK, whole=wanted is not None)
    _tell(directory, done, took_s, wanted)
    return INTERRUPTED if done.interrupted else 0


def _plan_at(path: Path) -> Plan | None:
    """Return the plan that an earlier `squall shrink` saved at `path`, with its load as a list of operations instead of
    a rate. Return None if there is no valid plan.
    """
    from squall.chaos.plans.operations import concrete
    from squall.chaos.plans.plan import PlanError, read_plan

    try:
        return concrete(read_plan(path))
    except PlanError:
        return None


def _save(plan: Plan, mutant: str | None, path: Path, *, whole: bool) -> RunDirectory:
    """Simulate the shrunk plan, and save the run. If `whole` is set, the run continues to its end. Otherwise the plan
    runs twice: to its end, and to its first broken invariant. The first of these runs is saved if both fail in the same
    way, else the second.
    """
    from squall.chaos.runs.recorded import save_at
    from squall.chaos.runs.simulation import simulate

    # With messages, which are the arrows of the story's picture.
    result = simulate(plan, mutant=mutant, messages=True, stop_at_first=False)
    if not whole:
        stopped = simulate(plan, mutant=mutant, messages=True)
        whole = result.failure == stopped.failure and result.trouble is None
        result = result if whole else stopped
    planted = ("--mutant", mutant) if mutant else ()
    again = absolute_command("sim", "--plan", path / "plan.toml", *planted, "--all-violations" if whole else "")
    return save_at(result, path, again)


def _tell(directory: RunDirectory, done: ShrinkResult, took_s: float, wanted: str | None) -> None:
    from squall.chaos.shrinking.shrinker import many
    from squall.reports.junit import write_junit
    from squall.reports.page import render

    write_junit(directory.path)
    try:
        render(directory.path)
    except ModuleNotFoundError as missing:  # the plan and its story are what was asked for
        click.echo(no_report(missing))
    story = write_story(directory.path, wanted)
    click.echo(story)
    more = "" if done.finished else "; there was no time for more: give it a larger --budget"
    more = "; interrupted: a smaller plan may exist" if done.interrupted else more
    nothing = "" if done.tries else "; nothing was shrunk"
    click.echo(f"{many(done.steps, 'step')}, {many(done.tries, 'try', 'tries')}, {took_s:.0f} s{nothing}{more}")
    click.echo(f"plan, story and report: {directory.path}")


def write_story(path: Path, wanted: str | None = None) -> str:
    """Write story.txt and story.svg of a run directory: what clients, brokers and controller did around the anomaly or
    broken invariant `wanted`. If that has no story, or `wanted` is None, write the run's first story.

    Return the text; empty if the run has no story.
    """
    from squall.reports.run_files import read_run
    from squall.reports.story_index import rendered_stories

    stories = rendered_stories(read_run(path))
    if not stories:
        return ""
    story = next((each for each in stories if wanted in (each.problem.name, each.problem.also)), stories[0])
    (path / STORY_TEXT).write_text(story.text)
    (path / STORY_PICTURE).write_text(story.draw("story"))
    return story.text
