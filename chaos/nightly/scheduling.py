"""Begins or resumes a night: plans its runs, leaves out what this machine cannot run, and orders the rest."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from squall.chaos import __version__
from squall.chaos.errors import PreconditionError
from squall.chaos.nightly.budget import CostModel
from squall.chaos.nightly.directory import NightDirectory, nights_beside, write_whole
from squall.chaos.nightly.items import PlannedRun, plan_night
from squall.chaos.nightly.machine import missing_for
from squall.chaos.nightly.matrix import Matrix, MatrixError, make_matrix, plain, write_matrix
from squall.chaos.nightly.order import history_of, in_order
from squall.chaos.nightly.player import read_verdict
from squall.chaos.toolchain.places import commit
from squall.checkers.nightly.night import SCHEMA, read_night
from squall.checkers.nightly.results import RunAttempt, by_item

LOOKED_BACK = 30
"""Limits the number of earlier nights whose results decide the order and the expected costs."""
_MATRIX_HEAD = """\
# The matrix that this night was planned by, for --matrix of another night. Changes here do not change this night:
# --resume and the report read the copy in night.json.
"""


@dataclass(frozen=True, slots=True)
class ScheduledNight:
    """Holds a night that can be played: all its runs in order, also those that this machine cannot run."""

    id: str
    matrix: Matrix
    items: tuple[PlannedRun, ...]
    excluded: tuple[dict[str, str], ...]
    missing: dict[str, str]
    """Maps an item to what this machine lacks for it."""
    costs: CostModel
    first_seed: int


def new_id() -> str:
    """Return the id of a night that begins now."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S")


def seed_of(night: str) -> int:
    """Return the first seed of a night whose matrix names none. The seed is derived from the day, so that each night
    tries others.
    """
    dated = re.match(r"\d{8}", night)
    # Days are 100 seeds apart: with up to 100 seeds for each configuration, no night repeats those of the day before.
    return int(dated[0] if dated else datetime.now(UTC).strftime("%Y%m%d")) * 100


def plan(matrix: Matrix, directory: NightDirectory, seed: int | None, seeds: int | None) -> ScheduledNight:
    """Plan a new night in this folder, without writing a file. Raise PreconditionError if none of its runs is possible.
    seed: the first seed; None: the matrix' first seed, or else one that is derived from the day. seeds: the number of
    seeds for each configuration and mix of faults; None: as the matrix says.
    """
    # Not by `or`: 0 is a seed.
    first_seed = next(each for each in (seed, matrix.seed, seed_of(directory.path.name)) if each is not None)
    planned = plan_night(matrix, first_seed, seeds)
    if not planned.items:
        reasons = "\n".join(f"  {each.what}: {each.why}" for each in planned.excluded)
        raise PreconditionError(f"nothing of this matrix can be run:\n{reasons}")
    before = _before(directory)
    history = history_of([(items, attempts) for items, attempts, _ in before])
    items = tuple(in_order(planned.items, history))
    missing = {each.item: why for each in items if (why := missing_for(each, matrix.bootstrap))}
    excluded = tuple({"what": each.what, "why": each.why} for each in planned.excluded)
    return ScheduledNight(directory.path.name, matrix, items, excluded, missing, _costs(before), first_seed)


Before = tuple[Sequence[PlannedRun], Sequence[RunAttempt], float | None]
"""Describes an earlier night: its items, its attempts, and the seconds that its report took (None: it made none)."""


def _before(directory: NightDirectory) -> list[Before]:
    found: list[Before] = []
    for each in nights_beside(directory.path.absolute())[:LOOKED_BACK]:
        try:
            _, items = each.planned()
        except PreconditionError:
            continue
        found.append((items, each.attempts(), each.report_s()))
    return found


def _costs(nights: Sequence[Before]) -> CostModel:
    costs = CostModel()
    for items, attempts, report_s in nights:
        known = by_item(attempts)
        for item in items:
            for each in known.get(item.item, ()):
                costs.learn(item, each)
        if report_s is not None:
            costs.learn_report(len(known), report_s)
    return costs


def write(directory: NightDirectory, opened: ScheduledNight) -> None:
    """Write night.json and matrix.toml of a new night. Raise PreconditionError if the folder has a night already."""
    if directory.night.exists():
        hint = "--resume goes on with it, --out names another folder"
        raise PreconditionError(f"{directory.path}: there is a night already: {hint}")
    directory.runs.mkdir(parents=True, exist_ok=True)
    write_whole(directory.matrix, _MATRIX_HEAD + write_matrix(opened.matrix))
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "night": opened.id,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "budget_s": opened.matrix.budget,
        "seed": opened.first_seed,
        "squall": __version__,
        "commit": commit(),
        "machine": machine(),
        "matrix": plain(opened.matrix),
        "excluded": list(opened.excluded),
        "lacking": [{"item": item, "why": why} for item, why in opened.missing.items()],
        "items": [each.as_json() for each in opened.items],
    }
    directory.write(directory.night, content)


def planned_matrix(directory: NightDirectory) -> Matrix:
    """Return the matrix of a night that is resumed, from night.json. Raise PreconditionError if it cannot be read."""
    stored = directory.planned()[0].get("matrix")
    if not isinstance(stored, dict):
        raise PreconditionError(f"{directory.night}: its matrix cannot be read: begin a new night")
    try:
        return make_matrix(stored)
    except MatrixError as wrong:
        raise PreconditionError(f"{directory.night}: its matrix is invalid: {wrong}") from None


def resume(directory: NightDirectory, matrix: Matrix) -> ScheduledNight:
    """Return a night that was begun, as it was planned then. Raise PreconditionError if the folder has none."""
    head, items = directory.planned()
    before = _before(directory)
    costs = _costs([(items, directory.attempts(), None), *before])
    missing = {each.item: why for each in items if (why := missing_for(each, matrix.bootstrap))}
    excluded = tuple(head.get("excluded", ()))
    return ScheduledNight(str(head["night"]), matrix, tuple(items), excluded, missing, costs, int(head.get("seed", 0)))


def ended(directory: NightDirectory) -> list[RunAttempt]:
    """Return the attempts that have ended so far. Anomalies that the run's configuration permits and the night forbids
    are also taken from verdict.json, because results.jsonl may lack them.
    """
    from squall.checkers.nightly.runs import with_unexpected  # with pyarrow

    night = read_night(directory.path)
    verdicts = ((each, read_verdict(directory.path / each.run)[1] if each.run else {}) for each in night.attempts)
    return [with_unexpected(night, each, verdict)[0] for each, verdict in verdicts]


def note_commit(directory: NightDirectory) -> str:
    """Write to night.json, for the report, that a resumed night now runs another commit. Return this change in words,
    or "" if the commit is the same.
    """
    head, _ = directory.planned()
    now, commits = commit(), [str(head.get("commit") or ""), *map(str, head.get("commits_since", ()))]
    if now == commits[-1]:
        return ""
    directory.write(directory.night, {**head, "commits_since": [*commits[1:], now]})
    return f"it began at commit {commits[0][:12] or 'unknown'}; what is played now is of {now[:12] or 'unknown'}"


def machine() -> dict[str, Any]:
    """Return the facts about this machine on which the figures of the night depend."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": memory >> 20,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def new_directory(out: Path | None, nights: Path) -> NightDirectory:
    """Return the directory of a new night, without creating it: `out`, or if that is None, a folder in `nights` named
    by the time.
    """
    return NightDirectory(out if out is not None else nights / new_id())
