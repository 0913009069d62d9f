"""Runs all nightly tests, part by part. A part is a command, and its result is recorded when it ends.

At the end it writes a page, and adds to the store of nights a table with each test, its result, its cost, and whether
it is flaky. A part that this machine cannot run is recorded as "not here".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from squall.chaos.errors import PreconditionError
from squall.chaos.interrupts import as_ctrl_c
from squall.chaos.nightly import scheduling
from squall.chaos.nightly.directory import NIGHTS, NightDirectory
from squall.chaos.toolchain.places import commit
from tests.night import collecting, page
from tests.night.parts import PARTS, Part, shown
from tests.night.player import play
from tests.night.record import Folder, Head
from tests.night.report import report_of
from tests.support.usage import USAGE, Parser

INTERRUPTED = 130


def main(given: Sequence[str] | None = None, parts: Mapping[str, Part] = PARTS) -> int:
    """Return the exit code. 0: nothing failed. 1: a part failed. 2: too much could not be run. 3: wrong usage. 130:
    interrupted.
    """
    command_line = parser(parts)
    arguments = command_line.parse_args(given)
    if arguments.resume and (arguments.out or arguments.only):
        command_line.error("--resume goes on with a night as it was asked for: leave out --out and --only")
    began = scheduling.new_id()
    folder = Folder((arguments.resume or arguments.out or NIGHTS / f"tests-{began}").absolute())
    try:
        if arguments.resume:
            _check(folder, parts)
        with NightDirectory(folder.path).locked():
            if not arguments.resume:
                name = name_of(began, folder.path) if arguments.out else began
                tables, unread = collecting.read_tables(collecting.place_of(folder))
                for problem in unread:
                    say(f"squall: {problem}")
                folder.begin(_head(name, list(dict.fromkeys(arguments.only or parts)), collecting.first_seed(tables)))
            return _play(folder, parts)
    except PreconditionError as refused:
        say(f"squall: {refused}")
        return USAGE
    except KeyboardInterrupt:
        say(f"interrupted: ./squall test --night --resume {shown(folder.path)} goes on")
        return INTERRUPTED


def name_of(began: str, out: Path) -> str:
    """Return the name of a night whose folder was chosen by the user. The folder's name in it keeps nights of one
    second apart.
    """
    return f"{began}-{out.name}"


def _check(folder: Folder, parts: Mapping[str, Part]) -> None:
    """Raise PreconditionError if the night cannot be continued."""
    head, _ = folder.read()
    if unknown := [name for name in head.parts if name not in parts]:
        raise PreconditionError(f"{folder.record}, line 1: parts: there is no part {', '.join(unknown)}")


def _play(folder: Folder, parts: Mapping[str, Part]) -> int:
    play(folder, parts, say)
    head, _ = folder.read()
    now = datetime.now(UTC)
    rows = collecting.rows_of(folder, now)
    collecting.collect(folder, rows, now)
    tables, unread = collecting.read_tables(collecting.place_of(folder))
    report = report_of(tables, head.night, unread, [name for name in parts if name not in head.parts])
    written = page.render(folder, report, parts)
    for row in report.parts:
        say(f"{row['part']:<12} {row['result']:<12} {page.minutes(row['seconds']):>8}  {row['why']}".rstrip())
    say(f"{report.headline}. {' '.join(report.sentences)}".strip())
    for problem in report.problems:
        say(f"squall: {problem}")
    say(f"page: {shown(written)}")
    return int(rows["test_nights"][0]["exit"])


def _head(name: str, asked: Sequence[str], first_seed: int) -> Head:
    machine = scheduling.machine()
    return Head(
        night=name,
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit(),
        machine=f"{machine['cores']} cores, {machine['memory_mib'] / 1024:.0f} GiB",
        python=machine["python"],
        parts=tuple(asked),
        first_seed=first_seed,
    )


def parser(parts: Mapping[str, Part]) -> argparse.ArgumentParser:
    """Return the command line's parser."""
    listed = "\n".join(f"  {part.name:<12} {part.what} About {part.minutes} min." for part in parts.values())
    codes = "Exit codes: 0 nothing failed, 1 a part failed, 2 too little is proven, 3 usage, 130 interrupted."
    found = Parser(
        prog="squall test --night",
        description=__doc__,
        epilog=f"Parts, in their order:\n{listed}\n\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--out", type=Path, metavar="DIR", help="the folder of the night (default: nights/tests-TIME)")
    found.add_argument("--only", nargs="+", choices=list(parts), metavar="PART", help="play these parts only")
    found.add_argument("--resume", type=Path, metavar="DIR", help="go on with a night that was interrupted")
    return found


def say(line: str) -> None:
    """Print a line without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    as_ctrl_c()
    sys.exit(main())
