"""Implements `squall replay`, which repeats a recorded run: exactly if it was simulated, else until its anomaly shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from squall.chaos.commands import completions
from squall.chaos.garbage import garbage_waits
from squall.chaos.screen import console
from squall.chaos.typed import absolute_command, typed

if TYPE_CHECKING:
    from rich.console import Console

    from squall.chaos.plans.plan import Plan
    from squall.chaos.runs.recorded import RecordedRun
    from squall.chaos.runs.result import SimResult

ATTEMPTS = "replays.json"
FOUND = "sim"
EXIT_SAME, EXIT_DIFFERENT, EXIT_UNKNOWN = 0, 1, 2
CONTEXT = 3
"""Gives the number of equal lines of two traces that are shown before the first line in which the traces differ."""


@click.command(
    epilog="""\b
Examples:
  squall replay runs/latest                        the same again; in the simulator the very same
  squall replay runs/latest --in sim --tries 500   a recorded run's plan, seed by seed, until its anomaly shows

\b
Exit codes: 0 the same trace, or the anomaly showed; 1 another trace, or it never showed;
2 nothing could be said; 3 usage. A run of processes ends as `squall run` does."""
)
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completions.runs)
@click.option("--in", "world", type=click.Choice(["process", "docker", "sim"]),
              help="Where to repeat the run. [default: where it was recorded]")  # fmt: skip
@click.option(
    "--tries",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="With --in sim: the largest number of seeds.",
)
@click.option("--runs", "--out", "root", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
              help="Folder for the run directory of a run of processes.")  # fmt: skip
def command(run: Path, world: str | None, tries: int, root: Path) -> int:
    """Repeat a recorded run.

    A simulated run is repeated exactly: the digest of its trace must be the same. A run with real brokers is repeated
    with the same plan, which need not end in the same way. With --in sim, such a plan is simulated under one seed after
    another until one of the recorded anomalies shows. `squall shrink` can then shorten that simulation.
    """

    from squall.chaos.plans.mistakes import beyond_limits
    from squall.chaos.runs.recorded import recorded

    say = console(stderr=True)
    what = recorded(run)
    if beyond := beyond_limits(what.plan):
        say.print(f"as it was recorded, {beyond}", markup=False, soft_wrap=True)
    if world is None:
        world = "sim" if what.simulated else what.plan.runtime
    if world != "sim":
        return _live(what, root, world)
    return same_again(what, say) if what.simulated else until_it_shows(what, tries, say)


def _live(what: RecordedRun, root: Path, world: str) -> int:
    from squall.chaos.commands.conclusion import conclude
    from squall.chaos.errors import PreconditionError
    from squall.chaos.plans.plan import PlanError, make_plan
    from squall.chaos.runs.real import run_and_judge

    try:
        plan = make_plan({**what.plan.model_dump(mode="json"), "runtime": world}, as_recorded=True)
    except PlanError as wrong:
        raise PreconditionError(f"{what.directory.path}: not possible in runtime {world!r}: {wrong}") from None
    directory = run_and_judge(plan, root, engine=what.engine)
    return 130 if directory is None else conclude(directory, keep_data=False)


# ----------------------------------------------------------------------------------------------------- the same again


def same_again(what: RecordedRun, say: Console) -> int:
    """Simulate the same run again, compare the digests of the traces, and return the exit code. The run is simulated
    with and without a stop at the first broken invariant, because the record does not say whether the recorded run was
    to stop there.
    """
    from squall.chaos.runs.simulation import simulate

    results = []
    for stop_at_first in (True, False):
        result = simulate(what.plan, mutant=what.mutant, stop_at_first=stop_at_first)
        if result.digest == what.digest:
            say.print(f"the same trace: {len(result.trace)} events, digest {result.digest}")
            say.print(f"[bold]{result.failure or result.verdict}[/]")
            return EXIT_SAME
        results.append(result)
        if not result.violations:
            break
    # A run that failed was most likely stopped at its first broken invariant, which is the default.
    result = results[-1] if what.failure is None else results[0]
    say.print(f"[bold]another trace[/]: digest {result.digest}, it was {what.digest}")
    for line in first_difference(what.directory.path, result):
        say.print(line, markup=False, soft_wrap=True)
    say.print("Another version of Squall or of Python's libraries is another run: the plan stands, its trace may not.")
    return EXIT_UNKNOWN if result.trouble else EXIT_DIFFERENT


def first_difference(path: Path, result: SimResult) -> Iterator[str]:
    """Yield lines that show where a node's recorded trace and its new trace first differ, after up to CONTEXT equal
    lines.
    """
    for name in sorted(result.files):
        if not name.endswith("trace.jsonl"):
            continue
        try:
            was = _traced((path / name).read_text())
        except OSError:
            was = []
        now = _traced(result.files[name].decode())
        at = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now)))
        if at == len(was) == len(now):
            continue
        yield f"{name}, line {at + 1}:"
        yield from (f"    {line}" for line in was[max(0, at - CONTEXT) : at])
        yield f"  - {was[at] if at < len(was) else '(it ended here)'}"
        yield f"  + {now[at] if at < len(now) else '(it ends here)'}"


def _traced(text: str) -> list[str]:
    """Return the lines of a trace that enter its digest. The simulator adds other lines, about appends and high
    watermarks, for the reports.
    """
    return [line for line in text.splitlines() if not any(f'"e":"{name}"' in line for name in ("appended", "hw_moved"))]


# -------------------------------------------------------------------------------------------------- until it shows


@garbage_waits()
def until_it_shows(what: RecordedRun, tries: int, say: Console) -> int:
    """Simulate the plan of a recorded run under one seed after another until a run shows one of its anomalies. Return
    the exit code.
    """
    from squall.chaos.errors import PreconditionError
    from squall.chaos.runs.recorded import save_at
    from squall.chaos.runs.simulation import simulate

    path = what.directory.path
    if not what.anomalies:
        raise PreconditionError(
            f"{path}: its verdict holds nothing that is not permitted: there is nothing to look for"
        )
    say.print(f"looking for {', '.join(what.anomalies)} in at most {tries} seeds")

    def run(plan: Plan) -> SimResult:
        return simulate(plan, stop_at_first=False)

    attempts: list[dict[str, Any]] = []
    found = search(what, tries, run, attempts)
    (path / ATTEMPTS).write_text(json.dumps({"schema": 1, "wanted": list(what.anomalies), "tries": attempts}, indent=1))
    if found is None:
        failures = sorted({str(each["failure"]) for each in attempts if each["failure"]})
        others = f"; other failures: {', '.join(failures)}" if failures else ""
        say.print(f"it did not show in {len(attempts)} seeds{others}")
        return EXIT_DIFFERENT
    directory = save_at(found, path / FOUND, absolute_command("sim", "--plan", path / FOUND / "plan.toml"))
    say.print(f"[bold]{found.failure}[/] in seed {found.plan.seed}, after {len(attempts)} tries: {directory.path}")
    click.echo(typed("shrink", directory.path))
    return EXIT_SAME


def search(
    what: RecordedRun, tries: int, run: Callable[[Plan], SimResult], attempts: list[dict[str, Any]]
) -> SimResult | None:
    """Return the first simulated run that shows one of the recorded anomalies; None if no try does. Add each try to
    `attempts`.
    """
    for number in range(tries):
        plan = what.plan.model_copy(update={"runtime": "sim", "seed": what.plan.seed + number})
        result = run(plan)
        attempts.append(
            {
                "seed": plan.seed,
                "failure": str(result.failure) if result.failure else None,
                "anomalies": list(result.anomalies),
                "digest": result.digest,
                "cpu_s": round(result.cpu_s, 3),
                "trouble": result.trouble.strip().splitlines()[-1] if result.trouble else None,
            }
        )
        if set(result.anomalies) & set(what.anomalies):
            return result
    return None
