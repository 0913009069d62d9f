"""Adds a night (all runs of one `squall nightly`) to the store of nights, a Parquet data set, and renders its
durability report. `squall report --nightly` and the end of a night do so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.real.processes.child import TETHER
from squall.chaos.toolchain.class_archive import class_archive_here
from squall.chaos.toolchain.extras import missing
from squall.chaos.toolchain.java import java

if TYPE_CHECKING:
    from squall.checkers.nightly.night import Night
    from squall.reports.nightly.report import NightlyReport

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NightSelection:
    """Selects the nights and runs that the durability table counts (a night is all runs of one `squall nightly`). The
    defaults select all runs of one night: the night that the report is about.
    """

    nights: int | None = None
    """Limits the table to so many nights, the newest ones; None: no limit by number."""
    since: str = ""
    """Limits the table to nights that began on this ISO date or later; empty: no limit by date."""
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def page(self) -> str:
        """Returns the file name of the durability report's page: index.html for the defaults. Any other selection has a
        page of its own, such as nights-30-acks-1.html, and does not replace index.html.
        """
        parts = [f"nights-{self.nights}"] if self.nights else []
        parts += [f"since-{self.since}"] if self.since else []
        parts += [f"{axis}-{value}" for axis, value in self.where.items()]
        safe = "".join(each if each.isalnum() or each in "-." else "-" for each in "_".join(parts))
        return f"{safe}.html" if safe else "index.html"


def make_report(path: Path, wanted: NightSelection, say: Say) -> tuple[Path, NightlyReport]:
    """Add the night in the folder `path` to the store of nights, unless the store has it, and render its durability
    report. Return the path of the page and the report's data. wanted: the nights and runs that the page's table counts.

    Raise PreconditionError if the folder holds no night, or if Spark, which reads the histories, is not installed.
    """
    if lacks := missing("spark"):
        raise PreconditionError(lacks[0])
    from squall.checkers.nightly import store
    from squall.checkers.nightly.night import UnreadableNight, read_night
    from squall.reports.nightly.page import render
    from squall.reports.nightly.report import report_of

    try:
        night = read_night(path)
    except UnreadableNight as nothing:
        raise PreconditionError(str(nothing)) from None
    # Beside the night, because all nights of a folder share a store.
    place = path.resolve().parent / store.FOLDER
    cells, chosen = _through_spark(night, place, wanted, say)
    collected, unread = store.collections(place)
    # The page of an older night, made again, must not know of later nights.
    upto = collected[: [each.night for each in collected].index(night.name) + 1]
    tables = {name: store.rows(upto, name) for name in ("nights", "runs", "findings")}
    if wanted.where and not cells:
        raise PreconditionError(_nothing_there([row for row in tables["runs"] if row["night"] in chosen], wanted.where))
    report = report_of(tables, night.name, cells, _scope(chosen, wanted), unread, night.accepted)
    return render(path, report, wanted.page), report


def _through_spark(
    night: Night, place: Path, wanted: NightSelection, say: Say
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of the durability table, which Spark computes, and the names of the nights that the table counts.
    place: the folder of the store of nights. If the store lacks this night or has another version of it, the night is
    first added.
    """
    from squall.chaos.nightly.outcome import many
    from squall.checkers.nightly import store
    from squall.spark_analysis.nightly.cells import from_json

    began = {each.night: each.began for each in store.collections(place)[0]} | {night.name: night.began}
    chosen = chosen_nights(began, night.name, wanted)
    known = [each.digest for each in store.collections(place)[0] if each.night == night.name]
    if not night.attempts and chosen == [night.name]:
        _collect_nothing(night, place)
        return [], chosen
    with tempfile.NamedTemporaryFile(prefix="squall-cells-", suffix=".json") as out:
        arguments = [str(place), "--cells", out.name, *(f"--night={each}" for each in chosen)]
        arguments += [f"--where={axis}={value}" for axis, value in wanted.where.items()]
        if known != [store.digest_of(night)]:
            say(f"Spark reads the histories of {many(len(night.attempts), 'run')}")
            with _with_findings(night, place) as folder:
                _run([*arguments, "--collect", str(night.path), "--into", str(folder)], say)
        else:
            _run(arguments, say)
        return from_json(Path(out.name).read_text()), chosen


def _collect_nothing(night: Night, place: Path) -> None:
    """Add a night without any attempt to the store (the folder `place`). There is no history to read, so Spark is not
    started.
    """
    from squall.checkers.nightly import store
    from squall.spark_analysis.nightly.collect import NightCollector

    with _with_findings(night, place) as folder:
        NightCollector(night).write(folder)
        store.commit(folder, night.name, night.began, store.digest_of(night), datetime.now(UTC))


def chosen_nights(began: Mapping[str, str], night: str, wanted: NightSelection) -> list[str]:
    """Return the names of the nights whose runs the durability table counts: the oldest first, none later than `night`.
    began: maps each night of the store, and `night`, to its start time.
    """
    ordered = sorted(began, key=lambda name: (began[name], name))
    upto = ordered[: ordered.index(night) + 1]
    if wanted.nights:
        return upto[-wanted.nights :]
    return [name for name in upto if began[name] >= wanted.since] if wanted.since else [night]


@contextmanager
def _with_findings(night: Night, place: Path) -> Iterator[Path]:
    """Yield a new folder in the store of nights, with the night's findings already in it. place: the folder of the
    store. The caller adds the night's other tables and calls `store.commit`, which renames the new folder. If it was
    not renamed, it is removed at the end.
    """
    from squall.checkers.nightly import store
    from squall.checkers.nightly.runs import facts_of_night
    from squall.reports.nightly.findings import findings_of

    now = datetime.now(UTC)
    # A name of its own: two commands may collect the same night at the same time.
    folder = store.fresh(place, f"{night.name}-{os.getpid()}-{now:%H%M%S%f}", now)
    try:
        store.write(folder, "findings", findings_of(night.name, facts_of_night(night)))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(arguments: Sequence[str], say: Say) -> None:
    there = java(say)
    archive = class_archive_here(there)
    more = ["--class-archive", str(archive)] if archive else []
    # The tether ends Spark if this command is killed.
    tether = (sys.executable, "-I", "-S", str(TETHER), str(os.getpid()))
    command = [*tether, sys.executable, "-P", "-m", "squall.spark_analysis.nightly", *arguments]
    done = subprocess.run(
        [*command, "--java-home", str(there.home), *more], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if line.strip()]
        raise HarnessError(f"Spark ended with code {done.returncode}: {words[-1] if words else 'it said nothing'}")


def _nothing_there(runs: Sequence[Mapping[str, Any]], where: Mapping[str, str]) -> str:
    """Return a sentence that says why no run matches the selection `where`, and which values exist."""
    asked = " and ".join(f"{axis}={value}" for axis, value in where.items())
    for axis in where:
        values = sorted({run["axes"][axis] for run in runs if axis in (run["axes"] or {})})
        if not values:
            names = sorted({name for run in runs for name in run["axes"] or {}})
            return (
                f"--where {asked}: no run of these nights has an axis {axis!r}; there are: {', '.join(names) or 'none'}"
            )
        if where[axis] not in values:
            return f"--where {asked}: no run of these nights has it; {axis} is {', '.join(values)}"
    return f"--where {asked}: no run of these nights has all of it"


def _scope(chosen: Sequence[str], wanted: NightSelection) -> str:
    of = (
        "this night only"
        if len(chosen) == 1
        else f"{len(chosen)} nights, {chosen[0]} to {chosen[-1]}"
        if chosen
        else "no night"
    )
    only = (
        f", only runs with {', '.join(f'{axis}={value}' for axis, value in wanted.where.items())}"
        if wanted.where
        else ""
    )
    return f"{of[0].upper()}{of[1:]}{only}."
