"""Implements `squall nightly`, which carries out a matrix of runs within a budget of time and disk."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from squall.chaos.commands.json_output import json_flag, set_json_result
from squall.chaos.errors import PreconditionError
from squall.chaos.nightly.accepted import FILE as ACCEPTED
from squall.chaos.nightly.accepted import AcceptedFileError, AcceptedFinding, read_accepted
from squall.chaos.nightly.announcement import runnable, unwritable
from squall.chaos.nightly.axes import AXES
from squall.chaos.nightly.directory import NIGHTS, NightDirectory
from squall.chaos.nightly.findings import ANY, FAIL_ON
from squall.chaos.nightly.matrix import FILE, Matrix, MatrixError, make_matrix, read_matrix, seconds, varied
from squall.chaos.screen import console
from squall.chaos.toolchain.places import shared
from squall.chaos.typed import place

if TYPE_CHECKING:
    from rich.console import Console

    from squall.chaos.commands.outputs import CommandOutput
    from squall.chaos.nightly.budget import NightForecast
    from squall.chaos.nightly.items import PlannedRun
    from squall.chaos.nightly.player import NightRunner
    from squall.chaos.nightly.scheduling import ScheduledNight
    from squall.checkers.nightly.results import RunAttempt

_FLAGS = {r"runs\.\d+\.axes\.": "--vary ", r"runs\.\d+\.faults": "--faults", r"expect\.\d+\.never": "--never"}
"""Maps a setting of the matrix, as a regular expression, to the flag that gives it."""
QUIET_S = 20.0
"""Gives the expected duration, in seconds, from which a run is announced when it begins."""
STYLES = {"valid": "green", "invalid": "bold red"}


Axes = dict[str, tuple[str, ...]]


def _vary(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Axes:
    axes: Axes = {}
    for each in given:
        axis, equals, values = each.partition("=")
        if not equals:
            raise click.BadParameter(f"{each!r}: AXIS=VALUE,VALUE is wanted, as in --vary acks=all,1")
        axis, words = axis.strip(), tuple(value.strip() for value in values.split(",") if value.strip())
        axes[axis] = (*axes.get(axis, ()), *words)
    return axes


def _time(_: click.Context, __: click.Parameter, given: str | None) -> float | None:
    try:
        return None if given is None else seconds(given)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from None


def _resumed(ctx: click.Context, _: click.Parameter, given: Path | None) -> Path | None:
    """Return `given`, the night to resume. The flags with which that night began become the defaults of this call."""
    if given is not None:
        with suppress(PreconditionError):  # it is said later that no night is there
            ctx.default_map = {**(ctx.default_map or {}), **NightDirectory(given).planned()[0].get("flags", {})}
    return given


def _kept(flags: Mapping[str, Any]) -> dict[str, str]:
    """Return the flags that a new night saves for a later call with `--resume`, apart from its matrix. Paths are
    absolute.
    """
    files = {name: flags[name] for name in ("accepted", "metrics", "summary", "mail") if flags[name] is not None}
    words = {name: flags[name] for name in ("fail_on", "notify") if flags[name] is not None}
    return {**words, **{name: str(Path(each).absolute()) for name, each in files.items()}}


def _accepted(given: str | None) -> dict[str, AcceptedFinding]:
    if given is None and not Path(ACCEPTED).exists():
        return {}
    try:
        return read_accepted(Path(given or ACCEPTED))
    except AcceptedFileError as wrong:
        raise click.UsageError(str(wrong)) from None


def _notify(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    if given is not None and (why := runnable(given)):
        raise click.BadParameter(why)
    return given


def _file(_: click.Context, __: click.Parameter, given: str | None) -> Path | None:
    """Return the path of a file that the night writes at its end. Raise BadParameter if the file cannot be written, so
    that the night does not begin.
    """
    if given is not None and (why := unwritable(given)):
        raise click.BadParameter(f"{given!r}: {why}")
    return None if given is None else Path(given)


def _metrics(ctx: click.Context, parameter: click.Parameter, given: str | None) -> Path | None:
    if given is not None and not given.endswith(".prom"):
        raise click.BadParameter(f"{given!r}: node_exporter reads only files whose names end with .prom")
    return _file(ctx, parameter, given)


@click.command(
    epilog=f"""\b
Axes: {", ".join(list(AXES)[:8])},
{", ".join(list(AXES)[8:])}

\b
Examples:
  squall nightly                           {FILE}
  squall nightly --list                    what it would run, how long, how much disk
  squall nightly --vary acks=all,1 --vary min-isr=1,2 --seeds 3 --budget 20m
  squall nightly --vary runtime=sim --vary codec=none,zstd --seeds 20
  squall nightly -k "kafka and not acks" -x
  squall nightly --resume nights/20260704T010000

\b
Exit codes: 0 nothing that is not permitted, 1 a finding that is not permitted
(see --fail-on), 2 too much is unknown or was not played (--unknown-share,
--max-unplayed), 3 wrong usage, 130 interrupted."""
)
@click.option(
    "--matrix",
    "matrix_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"The matrix. [default: {FILE}; with --vary none]",
)
@click.option(
    "--vary",
    multiple=True,
    callback=_vary,
    metavar="AXIS=A,B",
    help="Values of an axis; may be repeated. Without --matrix these are the whole matrix.",
)
@click.option(
    "--faults",
    multiple=True,
    metavar="LIST",
    help="With --vary and no --matrix: a mix of faults; may be repeated. [default: as `squall run`]",
)
@click.option(
    "--time",
    "time_s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="With --vary and no --matrix: seconds of load of each run. [default: 30]",
)
@click.option(
    "--seeds", type=click.IntRange(1, 10_000), metavar="N", help="Seeds for each configuration and mix of faults."
)
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="First seed. [default: the matrix's, else from the date]"
)
@click.option("--budget", callback=_time, metavar="TIME", help="How long the night may take: 90s, 20m, 1h.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help=f"Folder of the night. [default: {NIGHTS}/TIME]"
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    # First of all options, because its callback sets the defaults of the others.
    is_eager=True,
    callback=_resumed,
    metavar="DIR",
    help="Continue a night that was interrupted.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Runs of processes at a time; two simulations count as one such run. [default: one for 2 cores]",
)
@click.option("-k", "select", default="", metavar="EXPRESSION", help="Play only runs whose names match, as in pytest.")
@click.option("-x", "stop_at_first", is_flag=True, help="Stop at the first run that is not valid.")
@click.option(
    "--unknown-share",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 2 if a larger share of the runs is unknown. [default: the matrix's, else 20]",
)
@click.option(
    "--max-unplayed",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 2 if a larger share of the planned runs was not played. [default: the matrix's, else 50]",
)
@click.option(
    "--run-limit",
    callback=_time,
    metavar="TIME",
    help="How long one run may take before Squall ends it. [default: the matrix's, else 10m and 3 times its load]",
)
@click.option(
    "--retries", type=click.IntRange(0, 10), metavar="N", help="How often an unknown run is tried again. [default: 1]"
)
@click.option(
    "--keep-mib", type=click.IntRange(1), metavar="N", help="MiB that the night may leave on disk. [default: 4096]"
)
@click.option(
    "--never",
    multiple=True,
    metavar="ANOMALY",
    help="Fail if any run shows this anomaly, even if its configuration permits it; may be repeated.",
)
@click.option("--summary", callback=_file, metavar="FILE", help="Also write the summary there, as Markdown.")
@click.option("--mail", callback=_file, metavar="FILE", help="Also write the summary there, as text.")
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    default=ANY,
    show_default=True,
    help="Exit with 1 for any finding that is not accepted, or only for findings that no earlier night had.",
)
@click.option(
    "--accepted",
    metavar="FILE",
    help=f"File of findings that fail no night until a given day. [default: {ACCEPTED}, if it exists]",
)
@click.option(
    "--notify", callback=_notify, metavar="COMMAND", help="Run this command at the end, with summary.json on its input."
)
@click.option(
    "--metrics",
    callback=_metrics,
    metavar="FILE.prom",
    help="Write the night's figures to this file, for node_exporter's textfile collector.",
)
@click.option("--bootstrap", metavar="HOST:PORT", help="Address of the target external. [default: the matrix's]")
@click.option("--report/--no-report", default=True, help="Make the durability report and Allure's page at the end.")
@click.option("--list", "only_list", is_flag=True, help="Only print what would run, its time and its disk space.")
@json_flag
def command(
    matrix_file: Path | None,
    vary: Axes,
    faults: tuple[str, ...],
    time_s: float | None,
    seeds: int | None,
    seed: int | None,
    out: Path | None,
    resume: Path | None,
    only_list: bool,
    **flags: Any,
) -> int:
    """Run a matrix of configurations, faults and seeds within a time budget, spread fairly over configurations.

    Each run is a `squall run` or a `squall sim`. Runs with the verdict unknown are tried again. --resume continues a
    night that was interrupted. The night's folder has a summary, JUnit and Allure results, and every run.
    """
    from squall.chaos.nightly import scheduling, session

    others = (matrix_file, vary, faults, time_s, seeds, seed is not None, out, flags["never"])
    if resume is not None and any(others):
        beside = "--matrix, --vary, --faults, --time, --seeds, --seed, --out, --never"
        raise click.UsageError(f"--resume continues the planned night: leave out {beside}")
    if flags["fail_on"] != ANY and not flags["report"]:
        raise click.UsageError("--fail-on new needs the report, which says what is known: not with --no-report")
    # _kept first: it takes the name of the file, which _accepted replaces by its content.
    kept, flags["accepted"] = _kept(flags), _accepted(flags["accepted"])
    if not only_list or flags["select"]:
        session.require()
    say = console(stderr=True)
    directory = NightDirectory(resume) if resume is not None else scheduling.new_directory(out, NIGHTS)
    try:
        if resume is not None:
            matrix = scheduling.planned_matrix(directory)
        else:
            matrix = _matrix(matrix_file, vary, faults, time_s)
        matrix = _over(matrix, flags)
    except MatrixError as wrong:
        raise click.UsageError(_in_flags(str(wrong))) from None
    opened = scheduling.plan(matrix, directory, seed, seeds) if resume is None else scheduling.resume(directory, matrix)
    opened.costs.report = flags["report"]
    flags["select"] = session.expression(opened.items, flags["select"])
    chosen = session.chosen(opened.items, flags["select"])
    for each in flags["accepted"].values():
        if each.expired(datetime.now(UTC).date()):
            line = f"finding {each.fingerprint} was accepted by {each.owner} until {each.until}: it fails nights again"
            say.print(line, markup=False, soft_wrap=True)
    if only_list:
        return _list(directory, opened, chosen, flags)
    # From here on there is a folder: --list leaves none.
    with directory.locked():
        if resume is None:
            scheduling.write(directory, opened)
        elif note := scheduling.note_commit(directory):
            say.print(note, markup=False, soft_wrap=True)
        entries = [each.model_dump(mode="json") for each in flags["accepted"].values()]
        directory.write(directory.night, {**directory.planned()[0], "flags": kept, "accepted": entries})
        return _play(directory, opened, chosen, flags, say)


def _in_flags(wrong: str) -> str:
    """Return `wrong`, a MatrixError's message (one mistake a line), with flags in place of settings: `--vary acks` for
    `runs.0.axes.acks`. Equal lines become one. Lines about a matrix file begin with its name and are not changed.
    """
    for part, flag in _FLAGS.items():
        wrong = re.sub(rf"(?m)^{part}", flag, wrong)
    return "\n".join(dict.fromkeys(wrong.splitlines()))


def _matrix(file: Path | None, vary: Axes, faults: tuple[str, ...], time_s: float | None) -> Matrix:
    """Return the night's matrix (configurations, faults and seeds) from --matrix, --vary, --faults and --time. Without
    --matrix and --vary, read the default file. Raise MatrixError if the matrix is invalid.
    """
    by_hand = bool(vary) and file is None
    if (faults or time_s) and not by_hand:
        raise click.UsageError("--faults and --time need --vary, and no --matrix")
    if not by_hand:
        matrix = read_matrix(file if file is not None else shared(FILE))
        return varied(matrix, vary) if vary else matrix
    return make_matrix({"runs": [{"name": "by hand", "axes": vary, "faults": list(faults), "time_s": time_s or 30}]})


def _over(matrix: Matrix, flags: dict[str, Any]) -> Matrix:
    """Return the matrix with the values of the flags that were given. Raise MatrixError if the result is invalid."""
    if flags["never"]:
        values = matrix.model_dump(mode="json", exclude_defaults=True)
        never = [name.strip() for each in flags["never"] for name in each.split(",")]
        values["expect"] = [*values.get("expect", ()), {"never": never}]
        matrix = make_matrix(values)
    given = {name: flags[name] for name in ("budget", "retries", "keep_mib", "bootstrap", "run_limit")}
    for name in ("unknown_share", "max_unplayed"):
        given[name] = None if flags[name] is None else flags[name] / 100
    return matrix.model_copy(update={name: value for name, value in given.items() if value is not None})


def _slots(flags: dict[str, Any]) -> int:
    return flags["jobs"] or max(1, len(os.sched_getaffinity(0)) // 2)


# ------------------------------------------------------------------------------------------------------- beforehand


def _forecast(
    opened: ScheduledNight, chosen: Sequence[PlannedRun], flags: dict[str, Any], done: Collection[str] = ()
) -> NightForecast:
    """Estimate time and disk space of the runs to play. chosen: the runs that -k selects. done: names of ended runs."""
    from squall.chaos.nightly.budget import MIB, forecast

    keep = opened.matrix.keep_mib * MIB
    plays = [each for each in chosen if each.item not in done and each.item not in opened.missing]
    return forecast(plays, opened.costs, opened.matrix.budget, keep, _slots(flags), len(done))


def _list(
    directory: NightDirectory, opened: ScheduledNight, chosen: Sequence[PlannedRun], flags: dict[str, Any]
) -> int:
    """Print the runs that would be started, in their order, and return the exit code."""
    from rich import box
    from rich.table import Table

    expected = _forecast(opened, chosen, flags)
    out = {item.item: why for item, why in expected.left_out} | opened.missing
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("configuration", "faults", "seed", "about, s", "left out"):
        table.add_column(name, justify="right" if name in ("seed", "about, s") else "left")
    for item in chosen:
        cost = opened.costs.of(item)
        table.add_row(item.configuration, item.faults, str(item.seed), f"{cost.seconds:.0f}", out.get(item.item, ""))
    set_json_result(lambda: _planned(directory, opened, chosen, out))
    screen = console()
    screen.print(table)
    _say_plan(screen, directory, opened, chosen, expected)
    return 0


def _planned(
    directory: NightDirectory, opened: ScheduledNight, chosen: Sequence[PlannedRun], out: Mapping[str, str]
) -> CommandOutput:
    from squall.chaos.commands.night_end import night_run
    from squall.chaos.commands.outputs import NightCounts, NightlyOutput

    runs = tuple(night_run(item, out.get(item.item, "")) for item in chosen)
    counts = NightCounts(planned=len(runs), left_out=sum(bool(each.left_out) for each in runs))
    return NightlyOutput(night=opened.id, folder=str(directory.path), counts=counts, runs=runs)


def _say_plan(
    say: Console,
    directory: NightDirectory,
    opened: ScheduledNight,
    chosen: Sequence[PlannedRun],
    expected: NightForecast,
) -> None:
    from squall.chaos.nightly.budget import MIB
    from squall.chaos.nightly.items import idle
    from squall.chaos.nightly.outcome import many

    cells = {each.configuration for each in chosen}
    budget = "" if opened.matrix.budget is None else f", of {opened.matrix.budget / 60:.0f} min"
    size = f"at most about {expected.bytes / MIB:.0f} MiB stay on disk; the night may take {opened.matrix.keep_mib}"
    runs = f"{many(len(chosen), 'run')} over {many(len(cells), 'configuration')}, seeds from {opened.first_seed}"
    say.print(f"{runs}; to play: {len(expected.plays)}", soft_wrap=True)
    say.print(f"about {expected.seconds / 60:.0f} min{budget}; {size}", soft_wrap=True)
    missing = [opened.missing[each.item] for each in chosen if each.item in opened.missing]
    for why, count in Counter(missing).most_common():
        say.print(f"left out: {count} x {why}", markup=False, soft_wrap=True)
    if expected.left_out:
        count = len(expected.left_out)
        say.print(f"likely to be left out at the end: {count}, for want of time or room", soft_wrap=True)
        if opened.matrix.budget is not None and expected.enough_s > opened.matrix.budget:
            say.print(f"time for all of them: --budget {ceil(expected.enough_s / 60)}m", soft_wrap=True)
    if (free := shutil.disk_usage(directory.existing_folder()).free) < expected.bytes:
        say.print(f"only {free // MIB} MiB are free there: the disk may be full before the night is over")
    for each in opened.excluded:
        say.print(f"excluded: {each['what']}: {each['why']}", markup=False, soft_wrap=True)
    for where in idle(opened.matrix, chosen):
        say.print(f"no run has {where}: what is expected there cannot fail this night", markup=False, soft_wrap=True)


# ---------------------------------------------------------------------------------------------------------- playing


def _play(
    directory: NightDirectory, opened: ScheduledNight, chosen: Sequence[PlannedRun], flags: dict[str, Any], say: Console
) -> int:
    from squall.chaos.commands.night_end import end
    from squall.chaos.commands.night_evidence import evidence_of
    from squall.chaos.nightly import scheduling, session
    from squall.chaos.nightly.budget import MIB, spent_s
    from squall.chaos.nightly.leftovers import end_leftovers
    from squall.chaos.nightly.outcome import many
    from squall.chaos.nightly.player import NightLimits, NightRunner
    from squall.checkers.nightly.results import by_item

    say.print(f"night {opened.id}: {place(directory.path)}", markup=False, soft_wrap=True)

    def clear() -> None:
        for ended in end_leftovers(directory.runs):
            say.print(f"ended what was left of a killed run: {ended}", markup=False, soft_wrap=True)

    clear()
    attempts = scheduling.ended(directory)
    _say_plan(say, directory, opened, chosen, _forecast(opened, chosen, flags, by_item(attempts)))
    if attempts:
        say.print(f"in an earlier session {many(len(by_item(attempts)), 'run')} ended: not played again")
    # A resumed night has not ended: readers of the folder would take an old end.json for the end of this session.
    directory.end.unlink(missing_ok=True)
    limits = NightLimits(opened.matrix.budget, opened.matrix.keep_mib * MIB, _slots(flags), opened.matrix.run_limit)
    player = NightRunner(directory, opened.matrix, opened.items, limits, opened.costs, by_item(attempts))
    player.spent_s, player.left_out = spent_s(attempts), dict(opened.missing)
    player.clean_up, player.stop_at_first = clear, flags["stop_at_first"]
    player.on_begun = lambda item, log: _say_begun(say, player, item, log)
    player.on_ended = lambda item, attempt: _say_ended(say, player, item, attempt)
    code = session.play(directory, player, evidence_of, flags["select"], stop_at_first=flags["stop_at_first"])
    if code in (session.USAGE, session.INTERNAL):
        raise PreconditionError(f"pytest could not begin, exit code {code}: see its output")
    return end(directory, opened, player, flags, interrupted=code == session.INTERRUPTED)


def _say_begun(say: Console, player: NightRunner, item: PlannedRun, log: Path) -> None:
    """Print a line for a run that begins, if it is expected to take QUIET_S or longer. log: the file that gets the
    run's output.
    """
    if (cost_s := player.costs.of(item).seconds) >= QUIET_S:
        line = f"begins: {item.configuration}, {item.faults}, seed {item.seed}: about {cost_s:.0f} s; {place(log)}"
        say.print(line, style="dim", markup=False, soft_wrap=True)


def _say_ended(say: Console, player: NightRunner, item: PlannedRun, attempt: RunAttempt) -> None:
    """Print a line for a run that has ended: how many of all are done, its verdict, and how much is left."""
    from squall.chaos.nightly.budget import forecast

    rest = [each for each in player.items if not player.done(each) and each.item not in player.left_out]
    limits = player.limits
    budget = None if limits.budget_s is None else limits.budget_s - player.elapsed_s()
    done = sum(1 for each in player.items if player.done(each))
    expected = forecast(rest, player.costs, budget, limits.keep_bytes, limits.slots, done)
    word = "invalid" if attempt.fails else attempt.verdict
    head = f"[{done} of {len(player.items)}] [{STYLES.get(word, 'yellow')}]{word}[/] {attempt.seconds:.0f} s"
    again = f" (attempt {attempt.attempt})" if attempt.attempt > 1 else ""
    last = [player.attempts[each.item][-1] for each in player.items if player.attempts.get(each.item)]
    so_far = Counter("invalid" if each.fails else each.verdict for each in last)
    left = ", ".join(f"{count} {verdict}" for verdict, count in so_far.most_common())
    left += f"; {expected.seconds / 60:.0f} min left{'' if rest else ', for the report'}"
    left += f", {len(expected.left_out)} will be left out" if expected.left_out else ""
    say.print(f"{head}  {item.configuration}, {item.faults}, seed {item.seed}{again}  | {left}", soft_wrap=True)
    run = place(player.directory.path / attempt.run) if attempt.run else ""
    if word == "valid" and attempt.permitted_loss:
        say.print(f"    {attempt.permitted_loss}  {run}", style="yellow", markup=False, soft_wrap=True)
    if attempt.why or attempt.unexpected:
        from squall.chaos.nightly.outcome import found

        say.print(f"    {found(attempt)}  {run}", markup=False, soft_wrap=True)
