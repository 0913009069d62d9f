"""Measures what docs/shown shows, and writes its tables: runs in a row, simulated seeds, planted bugs, nights, gates
(the tests of every change) in a row, installations, loads. A new start in the same folder continues after the runs
already played.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from squall.chaos.errors import PreconditionError
from squall.chaos.interrupts import as_ctrl_c
from squall.chaos.nightly.directory import NIGHTS
from tests.shown import batches, fresh_bugs, installs, load_rates, loads_killed, table
from tests.shown import row as rows
from tests.shown.case import SETS, Case, runs_of
from tests.shown.kills import PARTS, kills_of
from tests.shown.playing import play
from tests.shown.private_engine import NoEngine
from tests.shown.row import REFUSED, Row
from tests.shown.table import Sitting


def main(given: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 all as expected, 1 not, 3 wrong usage, 130 after Ctrl-C."""
    given = sys.argv[1:] if given is None else given
    asked = _parser().parse_args(given)
    cases, sitting, wrong = _cases(asked), table.sitting(given), []
    if not (
        (cases or asked.seeds or asked.mutants or asked.fresh_bugs or asked.nights or asked.gates or asked.ci)
        or asked.installs is not None
        or asked.load_rates
        or asked.loads_killed
    ):
        say("nothing was asked for: --default 20 --docker 10 --kafka 10, say")
        return 3
    try:
        if cases:
            wrong += _wrong_runs(play_all(cases, asked.out.absolute(), sitting, asked.docs))
        if asked.seeds:
            names = asked.workload or batches.SIMULATED
            wrong += batches.show_seeds(asked.seeds, names, sitting, asked.docs, say)
        if asked.mutants:
            wrong += batches.show_mutants(asked.mutants, asked.budget, sitting, asked.docs, say)
        if asked.fresh_bugs:
            wrong += fresh_bugs.show_fresh_bugs(asked.fresh_bugs, sitting, asked.docs, say)
        if asked.nights:
            wrong += batches.show_nights(NIGHTS, sitting, asked.docs)
        if asked.gates or asked.ci:
            wrong += batches.show_gates(asked.gates, asked.ci, asked.hogs, sitting, asked.docs, say)
        if asked.installs is not None:
            wrong += installs.show_installs(asked.installs, sitting, asked.docs, say)
        if asked.load_rates:
            wrong += load_rates.show_load_rates(asked.load_rates, asked.load_records, sitting, asked.docs, say)
        if asked.loads_killed:
            wrong += loads_killed.show_loads_killed(asked.loads_killed, sitting, asked.docs, say)
    except (fresh_bugs.WrongPatchError, PreconditionError) as error:
        say(str(error))
        return 3
    except KeyboardInterrupt:
        say(f"interrupted: what has ended is in {asked.docs}")
        return 130
    for each in wrong:
        say(each)
    say(f"{len(wrong)} to look at: {asked.docs}")
    return 1 if wrong else 0


def _wrong_runs(done: Iterable[Row]) -> list[str]:
    return [f"{each.name}: {'; '.join(each.wrong)}" for each in done if each.wrong]


def play_all(cases: Sequence[Case], out: Path, sitting: Sitting, docs: Path) -> list[Row]:
    """Return the rows of all cases in order, and write table.json after each case. A case that already has a row is not
    played again.
    """
    out.mkdir(parents=True, exist_ok=True)
    file = out / "table.json"
    done = {each.name: each for each in rows.read(file) if each.verdict != REFUSED}
    for number, case in enumerate(cases, 1):
        told = f"{number} of {len(cases)}: {case.name}"
        known = done.get(case.name)
        if known is not None and (known.command, known.moment) == (case.command, case.moment):
            say(f"{told}: {known.verdict}, played before")
            continue
        say(f"{told}: {case.command}" + (f", {case.kill} is killed {case.moment}" if case.kill else ""))
        try:
            row = play(case, out, sitting.commit)
        except NoEngine as lacking:
            row = not_played(case, str(lacking))
        done[case.name] = row
        rows.write(file, _sorted(done.values()))
        group = [each for each in _sorted(done.values()) if each.group == case.group]
        table.add(rows.RUNS, rows.shown(group), sitting, docs)
        say(f"  {row.verdict} ({row.exit_code}) in {row.wall_s:.0f} s" + "".join(f"\n  {each}" for each in row.wrong))
    return [done[case.name] for case in cases]


def _sorted(done: Iterable[Row]) -> list[Row]:
    order = list(SETS)
    return sorted(done, key=lambda each: (order.index(each.group) if each.group in order else len(order), each.name))


def not_played(case: Case, why: str) -> Row:
    """Return the row of a case that this machine cannot play. The next start tries it again."""
    told = (case.name, case.group, case.seed, case.command, case.kill, case.moment)
    return Row(*told, REFUSED, 3, [why], 0.0, None, [], None, [])


def _cases(arguments: argparse.Namespace) -> list[Case]:
    seed = arguments.first_seed
    runs = [case for group in SETS for case in runs_of(group, getattr(arguments, group.replace("-", "_")), seed)]
    extra = ("--runtime", "docker") if arguments.in_containers else ()
    return [*runs, *(case for part in arguments.kill for case in kills_of(part, arguments.times, seed, extra))]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.shown", description=__doc__)
    for group, flags in SETS.items():
        shown = " ".join(("./squall run", *flags))
        parser.add_argument(f"--{group}", type=int, default=0, metavar="N", help=f"N times `{shown}`")
    parser.add_argument("--first-seed", type=int, default=1, help="of each of these; others follow (default: 1)")
    parser.add_argument("--kill", action="append", choices=PARTS, default=[], help="runs in which this is killed")
    parser.add_argument("--times", type=int, default=5, help="of each part (default: 5)")
    parser.add_argument("--in-containers", action="store_true", help="kill in runs of containers")
    parser.add_argument("--out", type=Path, default=Path("runs/shown"), help="of runs (default: runs/shown)")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="simulate N fresh seeds of each workload")
    parser.add_argument("--workload", action="append", choices=batches.SIMULATED, help="of --seeds (default: each)")
    parser.add_argument("--mutants", metavar="LIST", help="hunt these planted bugs: own plan, history, swarm")
    parser.add_argument("--budget", type=float, default=150.0, help="CPU seconds for each hunt (default: 150)")
    parser.add_argument("--fresh-bugs", metavar="SET", help="hunt the patches in tests/fresh_bugs/SET: first, second")
    parser.add_argument("--nights", action="store_true", help="take the nights of tests from nights/store")
    parser.add_argument("--gates", type=int, default=0, metavar="N", help="N times `./squall test`")
    parser.add_argument("--ci", type=int, default=0, metavar="N", help="N times `.ci/run` in a fresh clone")
    parser.add_argument("--hogs", type=int, default=0, metavar="N", help="CPU hogs beside each of these")
    parser.add_argument(
        "--installs", nargs="?", const="", metavar="WORD", help="install Squall in each way of README.md that has WORD"
    )
    parser.add_argument(
        "--load-rates", type=int, default=0, metavar="N", help="N pairs of loads by `squall` and Spark's Kafka source"
    )
    parser.add_argument(
        "--load-records", type=int, default=1_000_000, metavar="N", help="records of --load-rates (default: 1,000,000)"
    )
    parser.add_argument("--loads-killed", type=int, default=0, metavar="N", help="kill N loads at random moments")
    parser.add_argument("--docs", type=Path, default=table.DOCS, help="where tables are (default: docs/shown)")
    return parser


def say(line: str) -> None:
    """Print a line of progress without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    as_ctrl_c()
    sys.exit(main())
