"""Runs that anybody can repeat: plays many of them, one after the other, and writes their table into a folder.

A second start with the same folder goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.shown import row as rows
from tests.shown.case import SETS, Case, runs_of
from tests.shown.kills import PARTS, kills_of
from tests.shown.playing import commit_of_checkout, play
from tests.shown.private_engine import NoEngine
from tests.shown.row import REFUSED, Row


def main(given: Sequence[str] | None = None) -> int:
    """0: every run is as it should be, 1: one is not, 3: usage. 130 after Ctrl-C."""
    arguments = _parser().parse_args(given)
    cases = _cases(arguments)
    if not cases:
        say("nothing was asked for: --default 20 --docker 10 --kafka 10, say")
        return 3
    out: Path = arguments.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    kept = rows.read(out / "table.json")
    try:
        done = play_all(cases, out, kept)
    except KeyboardInterrupt:
        say(f"interrupted: the same command goes on; so far {out / 'table.md'}")
        return 130
    wrong = [each for each in done if each.wrong]
    for each in wrong:
        say(f"{each.name}: {'; '.join(each.wrong)}")
    say(f"{len(done)} runs, {len(wrong)} to look at: {out / 'table.md'}")
    return 1 if wrong else 0


def play_all(cases: Sequence[Case], out: Path, kept: Sequence[Row]) -> list[Row]:
    """The rows of all cases, in their order, written after each one. What was played before is not played again."""
    commit = commit_of_checkout()
    done = {each.name: each for each in kept if each.verdict != REFUSED}
    asked = {case.name for case in cases} | set(done)
    for number, case in enumerate(cases, 1):
        told = f"{number} of {len(cases)}: {case.name}"
        known = done.get(case.name)
        if known is not None and (known.command, known.moment) == (case.command, case.moment):
            say(f"{told}: {known.verdict}, played before")
            continue
        say(f"{told}: {case.command}" + (f", {case.kill} is killed {case.moment}" if case.kill else ""))
        try:
            row = play(case, out, commit)
        except NoEngine as lacking:
            row = not_played(case, str(lacking))
        done[case.name] = row
        rows.write(out, _sorted(done.values()), len(asked))
        say(f"  {row.verdict} ({row.exit_code}) in {row.wall_s:.0f} s" + "".join(f"\n  {each}" for each in row.wrong))
    rows.write(out, _sorted(done.values()), len(asked))
    return [done[case.name] for case in cases]


def _sorted(done: Iterable[Row]) -> list[Row]:
    order = list(SETS)
    return sorted(done, key=lambda each: (order.index(each.group) if each.group in order else len(order), each.name))


def not_played(case: Case, why: str) -> Row:
    """The row of a case that this machine cannot play: the next start tries it again."""
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
    parser.add_argument("--out", type=Path, default=Path("runs/shown"), help="default: runs/shown")
    return parser


def say(line: str) -> None:
    """Progress, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
